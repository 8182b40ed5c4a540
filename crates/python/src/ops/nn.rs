//! The layers of `torch.nn.functional` as functions of their parameters.

use pyo3::prelude::*;
use taper::{
    Tensor,
    nn::functional::{
        self as f, AttentionOptions, BagMode, BagOptions, ConvOptions, ConvPadding, ConvTransposeOptions,
        FoldOptions, GridMode, GridPadding, GridSampleOptions, InterpolateMode, InterpolateOptions, PadMode,
        Resize,
    },
};

use super::{PyGenerator, functions};
use crate::{
    args::{Ints, Value, built, optional},
    errors::{runtime, wrong_value},
    tensor::{PyTensor, made, run},
};

/// Indices as Taper takes them.
fn whole(index: &Tensor) -> taper::Result<Tensor> {
    index.to_dtype(crate::promote::held_by(&index.device(), taper::DType::I64))
}

functions! { add_functions:
    linear(input: Value, weight: Value, bias: Option<Value> = None) "AddmmBackward0" => {
        f::linear(&input.0, &weight.0, bias.as_ref().map(|bias| &bias.0))
    };
    bilinear(input1: Value, input2: Value, weight: Value, bias: Option<Value> = None) "AddBackward0" => {
        f::bilinear(&input1.0, &input2.0, &weight.0, bias.as_ref().map(|bias| &bias.0))
    };
    _embedding(input: Value, weight: Value, padding_idx: Option<usize> = None) "EmbeddingBackward0" => {
        match padding_idx {
            Some(padding) => f::embedding_with_padding(&whole(&input.0)?, &weight.0, padding),
            None => f::embedding(&whole(&input.0)?, &weight.0),
        }
    };
    _embedding_bag(input: Value, weight: Value, offsets: Option<Value>, mode: String,
        per_sample_weights: Option<Value>, include_last_offset: bool, padding_idx: Option<usize>)
        "EmbeddingBagBackward0" => {
        let mode = match mode.as_str() {
            "sum" => BagMode::Sum,
            "mean" => BagMode::Mean,
            _ => BagMode::Max,
        };
        let offsets = offsets.as_ref().map(|offsets| whole(&offsets.0)).transpose()?;
        let options = BagOptions {
            mode,
            offsets: offsets.as_ref(),
            include_last_offset,
            per_sample_weights: per_sample_weights.as_ref().map(|weights| &weights.0),
            padding_idx,
        };
        f::embedding_bag(&whole(&input.0)?, &weight.0, options)
    };
    _layer_norm(input: Value, normalized_shape: Vec<usize>, weight: Option<Value>, bias: Option<Value>, eps: f64)
        "NativeLayerNormBackward0" => {
        let (weight, bias) = (optional(weight), optional(bias));
        f::layer_norm(&input.0, normalized_shape, weight.as_ref(), bias.as_ref(), eps)
    };
    _rms_norm(input: Value, normalized_shape: Vec<usize>, weight: Option<Value>, eps: Option<f64>)
        "RmsNormBackward0" => {
        f::rms_norm(&input.0, normalized_shape, weight.as_ref().map(|weight| &weight.0), eps)
    };
    group_norm(input: Value, num_groups: usize, weight: Option<Value> = None, bias: Option<Value> = None,
        eps: f64 = 1e-5) "NativeGroupNormBackward0" => {
        let (weight, bias) = (optional(weight), optional(bias));
        f::group_norm(&input.0, num_groups, weight.as_ref(), bias.as_ref(), eps)
    };
    local_response_norm(input: Value, size: usize, alpha: f64 = 1e-4, beta: f64 = 0.75, k: f64 = 1.0)
        "DivBackward0" => f::local_response_norm(&input.0, size, alpha, beta, k);
    normalize(input: Value, p: f64 = 2.0, dim: isize = 1, eps: f64 = 1e-12) "DivBackward0" => {
        f::normalize(&input.0, p, dim, eps)
    };
    cosine_similarity(x1: Value, x2: Value, dim: isize = 1, eps: f64 = 1e-8) "SumBackward1" => {
        f::cosine_similarity(&x1.0, &x2.0, dim, eps)
    };
    pairwise_distance(x1: Value, x2: Value, p: f64 = 2.0, eps: f64 = 1e-6, keepdim: bool = false)
        "NormBackward1" => {
        let distance = f::pairwise_distance(&x1.0, &x2.0, p, eps)?;
        if keepdim { distance.unsqueeze(-1) } else { Ok(distance) }
    };
    cdist(x1: Value, x2: Value, p: f64 = 2.0) "CdistBackward0" => f::cdist(&x1.0, &x2.0, p);
    pdist(input: Value, p: f64 = 2.0) "PdistBackward0" => f::pdist(&input.0, p);
    channel_shuffle(input: Value, groups: usize) "NativeChannelShuffleBackward0" => {
        f::channel_shuffle(&input.0, groups)
    };
    affine_grid(theta: Value, size: Vec<usize>, align_corners: Option<bool> = None)
        "AffineGridGeneratorBackward0" => f::affine_grid(&theta.0, size, align_corners.unwrap_or(false));
    grid_sample(input: Value, grid: Value, mode: String = "bilinear".into(),
        padding_mode: String = "zeros".into(), align_corners: Option<bool> = None) "GridSamplerBackward0" => {
        let wrong = |text: String| taper::Error::invalid("grid_sample", text);
        let options = GridSampleOptions {
            mode: match mode.as_str() {
                "bilinear" => GridMode::Bilinear,
                "nearest" => GridMode::Nearest,
                "bicubic" => GridMode::Bicubic,
                _ => return Err(wrong(format!("no mode {mode}"))),
            },
            padding: match padding_mode.as_str() {
                "zeros" => GridPadding::Zeros,
                "border" => GridPadding::Border,
                "reflection" => GridPadding::Reflection,
                _ => return Err(wrong(format!("no padding {padding_mode}"))),
            },
            align_corners: align_corners.unwrap_or(false),
        };
        f::grid_sample(&input.0, &grid.0, options)
    };
    pixel_shuffle(input: Value, upscale_factor: usize) "PixelShuffleBackward0" => {
        f::pixel_shuffle(&input.0, upscale_factor)
    };
    pixel_unshuffle(input: Value, downscale_factor: usize) "PixelUnshuffleBackward0" => {
        f::pixel_unshuffle(&input.0, downscale_factor)
    };
    _pad(input: Value, pad: Vec<isize>, mode: String, value: f64) "ConstantPadNdBackward0" => {
        let mode = match mode.as_str() {
            "constant" => PadMode::Constant(value),
            "reflect" => PadMode::Reflect,
            "replicate" => PadMode::Replicate,
            "circular" => PadMode::Circular,
            _ => return Err(taper::Error::invalid("pad", format!("Unrecognised padding mode {mode}"))),
        };
        // PyTorch begins with the last axis.
        let pairs: Vec<(isize, isize)> = pad.chunks_exact(2).rev().map(|pair| (pair[0], pair[1])).collect();
        f::pad(&input.0, &pairs, mode)
    };
    _interpolate(input: Value, size: Option<Vec<usize>>, scale: Option<Vec<f64>>, mode: String,
        align_corners: bool, recompute_scale_factor: bool, antialias: bool) "UpsampleBackward0" => {
        let mode = match mode.as_str() {
            "nearest" => InterpolateMode::Nearest,
            "nearest-exact" => InterpolateMode::NearestExact,
            "linear" => InterpolateMode::Linear,
            "bilinear" => InterpolateMode::Bilinear,
            "trilinear" => InterpolateMode::Trilinear,
            "bicubic" => InterpolateMode::Bicubic,
            "area" => InterpolateMode::Area,
            _ => return Err(taper::Error::invalid("interpolate", format!("no mode {mode}"))),
        };
        let to = match (size, scale) {
            (Some(size), None) => Resize::Size(size),
            (None, Some(scale)) => Resize::Scale(scale),
            _ => {
                return Err(taper::Error::invalid("interpolate", "give one of size and scale_factor"));
            }
        };
        let options = InterpolateOptions { mode, align_corners, recompute_scale_factor, antialias };
        f::interpolate_with(&input.0, to, options)
    };
    _unfold(input: Value, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) "Im2ColBackward0" => {
        f::unfold(&input.0, pair(&kernel_size)?, folding(&dilation, &padding, &stride)?)
    };
    _fold(input: Value, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints)
        "Col2ImBackward0" => {
        f::fold(&input.0, pair(&output_size)?, pair(&kernel_size)?, folding(&dilation, &padding, &stride)?)
    };
}

/// Two numbers, or one for both axes.
fn pair(ints: &Ints) -> taper::Result<[usize; 2]> {
    ints.window::<2>("a size").map_err(|error| crate::errors::keep("fold", error))
}

fn folding(dilation: &Ints, padding: &Ints, stride: &Ints) -> taper::Result<FoldOptions> {
    Ok(FoldOptions { dilation: pair(dilation)?, padding: pair(padding)?, stride: pair(stride)? })
}

/// A convolution along `D` axes.
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn convolved<const D: usize>(
    py: Python<'_>,
    f: fn(&Tensor, &Tensor, Option<&Tensor>, ConvOptions<D>) -> taper::Result<Tensor>,
    [input, weight]: [Tensor; 2],
    bias: Option<Tensor>,
    stride: &Ints,
    padding: &Bound<'_, PyAny>,
    dilation: &Ints,
    groups: usize,
) -> PyResult<PyTensor> {
    let padding = match padding.extract::<String>() {
        Ok(text) if text == "same" => ConvPadding::Same,
        Ok(text) if text == "valid" => ConvPadding::Each([(0, 0); D]),
        Ok(text) => {
            return Err(runtime(format!(
                "Invalid padding string {text:?}, should be one of 'valid', 'same'"
            )));
        }
        Err(_) => ConvPadding::Each(padding.extract::<Ints>()?.window::<D>("padding")?.map(|n| (n, n))),
    };
    let (stride, dilation) = (stride.window::<D>("stride")?, dilation.window::<D>("dilation")?);
    let options = ConvOptions { stride, padding, dilation, groups };
    made(py, "ConvolutionBackward0", move || f(&input, &weight, bias.as_ref(), options))
}

/// A convolution along one to three axes.
#[pyfunction]
#[pyo3(signature = (d, input, weight, bias, stride, padding, dilation, groups))]
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn _conv(
    py: Python<'_>,
    d: usize,
    input: Value,
    weight: Value,
    bias: Option<Value>,
    stride: Ints,
    padding: &Bound<'_, PyAny>,
    dilation: Ints,
    groups: usize,
) -> PyResult<PyTensor> {
    let (of, bias) = ([input.0, weight.0], optional(bias));
    match d {
        1 => convolved(py, f::conv1d, of, bias, &stride, padding, &dilation, groups),
        2 => convolved(py, f::conv2d, of, bias, &stride, padding, &dilation, groups),
        3 => convolved(py, f::conv3d, of, bias, &stride, padding, &dilation, groups),
        _ => Err(wrong_value(format!("a convolution along {d} axes"))),
    }
}

/// The options of a transposed convolution.
struct Transposed<'a>(&'a Ints, &'a Ints, &'a Ints, &'a Ints, usize);

impl Transposed<'_> {
    fn options<const D: usize>(&self) -> PyResult<ConvTransposeOptions<D>> {
        Ok(ConvTransposeOptions {
            stride: self.0.window("stride")?,
            padding: self.1.window("padding")?,
            output_padding: self.2.window("output_padding")?,
            dilation: self.3.window("dilation")?,
            groups: self.4,
        })
    }
}

/// A transposed convolution along one to three axes.
#[pyfunction]
#[pyo3(signature = (d, input, weight, bias, stride, padding, output_padding, groups, dilation))]
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn _conv_transpose(
    py: Python<'_>,
    d: usize,
    input: Value,
    weight: Value,
    bias: Option<Value>,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: usize,
    dilation: Ints,
) -> PyResult<PyTensor> {
    let (input, weight, bias) = (input.0, weight.0, optional(bias));
    let given = Transposed(&stride, &padding, &output_padding, &dilation, groups);
    let name = "ConvolutionBackward0";
    match d {
        1 => {
            let options = given.options()?;
            made(py, name, move || f::conv_transpose1d(&input, &weight, bias.as_ref(), options))
        }
        2 => {
            let options = given.options()?;
            made(py, name, move || f::conv_transpose2d(&input, &weight, bias.as_ref(), options))
        }
        3 => {
            let options = given.options()?;
            made(py, name, move || f::conv_transpose3d(&input, &weight, bias.as_ref(), options))
        }
        _ => Err(wrong_value(format!("a convolution along {d} axes"))),
    }
}

/// Batch and instance norm: running statistics are tensors of Python, which the norm changes.
#[pyfunction]
#[pyo3(signature = (by_instance, input, running_mean, running_var, weight, bias, training, momentum, eps))]
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn _statistics_norm(
    py: Python<'_>,
    by_instance: bool,
    input: Value,
    running_mean: Option<PyRef<'_, PyTensor>>,
    running_var: Option<PyRef<'_, PyTensor>>,
    weight: Option<Value>,
    bias: Option<Value>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> PyResult<PyTensor> {
    // Taper changes cells; these begin with the present values, which get the new ones afterwards.
    let cell = |running: &Option<PyRef<'_, PyTensor>>| {
        running.as_ref().map(|running| built(running.read()?.detach().into_cell(false))).transpose()
    };
    let (mean, var) = (cell(&running_mean)?, cell(&running_var)?);
    let (weight, bias) = (optional(weight), optional(bias));
    let (into_mean, into_var) = (mean.clone(), var.clone());
    let out = run(py, move || {
        let norm = if by_instance { f::instance_norm } else { f::batch_norm };
        let (mean, var) = (into_mean.as_ref(), into_var.as_ref());
        norm(&input.0, mean, var, weight.as_ref(), bias.as_ref(), training, momentum, eps)
    })?;
    if training {
        for (running, cell) in [(running_mean, mean), (running_var, var)] {
            if let (Some(running), Some(cell)) = (running, cell) {
                running.write(py, &cell.detach(), "")?;
            }
        }
    }
    Ok(PyTensor::new(out, "NativeBatchNormBackward0"))
}

/// A dropout by its name.
#[pyfunction]
#[pyo3(signature = (name, input, p, training, generator = None))]
fn _dropout(
    py: Python<'_>,
    name: &str,
    input: Value,
    p: f64,
    training: bool,
    generator: Option<PyRef<'_, PyGenerator>>,
) -> PyResult<PyTensor> {
    if !(0.0..=1.0).contains(&p) {
        return Err(wrong_value(format!("dropout probability has to be between 0 and 1, but got {p}")));
    }
    if !training || (p == 0.0 && name.starts_with("feature")) {
        return made(py, "", move || Ok(input.0));
    }
    let (input, name) = (input.0, name.to_string());
    let rng = PyGenerator::of(generator, &input.device());
    made(py, "MulBackward0", move || match name.as_str() {
        "dropout" => f::dropout(&input, p, training, &rng),
        "dropout1d" => f::dropout1d(&input, p, training, &rng),
        "dropout2d" => f::dropout2d(&input, p, training, &rng),
        "dropout3d" => f::dropout3d(&input, p, training, &rng),
        "alpha_dropout" => f::alpha_dropout(&input, p, training, &rng),
        "feature_alpha_dropout" => f::feature_alpha_dropout(&input, p, training, &rng),
        _ => Err(taper::Error::invalid("dropout", format!("no dropout {name}"))),
    })
}

/// Attention; dropout draws from the default generator of the device.
#[pyfunction]
#[pyo3(signature = (query, key, value, attn_mask = None, dropout_p = 0.0, is_causal = false, scale = None, enable_gqa = false))]
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn scaled_dot_product_attention(
    py: Python<'_>,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Option<Value>,
    dropout_p: f64,
    is_causal: bool,
    scale: Option<f64>,
    enable_gqa: bool,
) -> PyResult<PyTensor> {
    let (mask, rng) = (optional(attn_mask), PyGenerator::of(None, &query.0.device()));
    made(py, "ScaledDotProductFlashAttentionForCpuBackward0", move || {
        let dropout = (dropout_p > 0.0).then_some((dropout_p, &rng));
        let options = AttentionOptions { mask: mask.as_ref(), is_causal, scale, enable_gqa, dropout };
        f::scaled_dot_product_attention(&query.0, &key.0, &value.0, options)
    })
}

/// Draws of categories that gradients can pass.
#[pyfunction]
#[pyo3(signature = (logits, tau = 1.0, hard = false, dim = -1))]
fn gumbel_softmax(py: Python<'_>, logits: Value, tau: f64, hard: bool, dim: isize) -> PyResult<PyTensor> {
    let rng = PyGenerator::of(None, &logits.0.device());
    made(py, "SoftmaxBackward0", move || f::gumbel_softmax(&logits.0, tau, hard, dim, &rng))
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_functions(module)?;
    module.add_function(wrap_pyfunction!(_conv, module)?)?;
    module.add_function(wrap_pyfunction!(_conv_transpose, module)?)?;
    module.add_function(wrap_pyfunction!(_statistics_norm, module)?)?;
    module.add_function(wrap_pyfunction!(_dropout, module)?)?;
    module.add_function(wrap_pyfunction!(scaled_dot_product_attention, module)?)?;
    module.add_function(wrap_pyfunction!(gumbel_softmax, module)?)
}
