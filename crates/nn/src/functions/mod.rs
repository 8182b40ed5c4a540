//! The functions of [`crate::functional`], except those that belong to a layer or a loss.

mod attention;
mod bag;
mod conv;
mod distance;
mod fake_quantize;
mod fold;
mod fractional;
mod grid;
mod interpolate;
mod norm;
mod pad;
mod pool;
mod recurrence;
mod resize;
mod scan;

use tensor_core::{
    DType, Device, DeviceKind, Error, ErrorKind, Generator, Refusal, Result, Shape, Tensor, autocast,
    caller_line, default_dtype, traced,
};

pub use attention::{AttentionOptions, rotary_embedding, scaled_dot_product_attention, sinusoidal_positions};
pub(crate) use attention::{Request, attention, attention_with_weights, causal_mask, is_mask};
pub(crate) use bag::renormalize;
pub use bag::{BagMode, BagOptions, embedding_bag};
pub use conv::{
    ConvOptions, ConvPadding, ConvTransposeOptions, Window, conv_transpose1d, conv_transpose2d,
    conv_transpose3d, conv1d, conv2d, conv3d,
};
pub(crate) use conv::{convolution, transposed_convolution};
pub use distance::{cdist, cosine_similarity, normalize, pairwise_distance, pdist};
pub use fake_quantize::{fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine};
pub use fold::{FoldOptions, fold, unfold};
pub use fractional::{fractional_max_pool_with_indices, fractional_max_pool2d, fractional_max_pool3d};
pub use grid::{GridMode, GridPadding, GridSampleOptions, affine_grid, grid_sample};
pub(crate) use interpolate::interpolate_by;
pub use interpolate::{
    InterpolateMode, InterpolateOptions, Resize, interpolate, interpolate_nearest, interpolate_with,
};
pub(crate) use norm::{Momentum, batch_norm_by};
pub use norm::{batch_norm, group_norm, instance_norm, layer_norm, local_response_norm, rms_norm};
pub(crate) use pad::pad_by;
pub use pad::{PadMode, pad};
pub use pool::{
    PoolOptions, UnpoolOptions, avg_pool1d, avg_pool1d_with, avg_pool2d, avg_pool2d_with, avg_pool3d,
    avg_pool3d_with, lp_pool1d, lp_pool2d, lp_pool3d, max_pool_with_indices, max_pool1d, max_pool1d_with,
    max_pool2d, max_pool2d_with, max_pool3d, max_pool3d_with, max_unpool1d, max_unpool2d, max_unpool3d,
};
pub(crate) use pool::{avg_pool, lp_pool, max_pool, max_unpool};
pub(crate) use recurrence::recurrent_step;
#[doc(hidden)] // for `onnx`
pub use recurrence::{Sequence, States};
pub(crate) use resize::{adaptive_avg_pool, adaptive_max_pool};
pub use resize::{
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool_with_indices,
    adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d, channel_shuffle, pixel_shuffle,
    pixel_unshuffle,
};
pub use scan::linear_scan;

/// Whether kernels of a device wait for memory and for launches more than for arithmetic, so that computing
/// again costs less than storing, and a pass over all elements less than a scatter.
pub(crate) fn is_gpu(device: &Device) -> bool {
    device.info().kind != DeviceKind::Cpu
}

/// The name of an operation for its number of axes, one to three.
pub(crate) const fn by_dims<const D: usize>(names: [&'static str; 3]) -> &'static str {
    match D {
        0 | 1 => names[0],
        2 => names[1],
        _ => names[2],
    }
}

/// The linear transformation y = x · Wᵀ + b, from `[…, in]` to `[…, out]`, for `weight` `[out, in]` and
/// `bias` `[out]`; or to `[…]`, for a vector `[in]` and a 0-d bias. `torch.nn.functional.linear`.
///
/// ```
/// use nn::functional::linear;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let weight = Tensor::new([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &device)?;
/// let y = linear(&Tensor::new([[1.0f32, 1.0]], &device)?, &weight, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 7.0, 11.0]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// A weight that is neither a matrix nor a vector, a last axis or bias of another size, another dtype, or
/// another device.
#[track_caller]
pub fn linear(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    if weight.rank() == 1 {
        return linear_of_vector(input, weight, bias);
    }
    let &[outputs, inputs] = weight.dims() else {
        let message = format!("the weight must have the shape [out, in], not {}", weight.shape());
        return Err(Error::invalid("linear", message));
    };
    let cast = autocast::cast("linear", [input, weight], [bias])?;
    let ([input, weight], [bias]) = cast.tensors();
    let Some((&features, lead)) = input.dims().split_last() else {
        return Err(features_misfit(input, weight, inputs, outputs));
    };
    if features != inputs {
        return Err(features_misfit(input, weight, inputs, outputs));
    }
    if input.dtype() != weight.dtype() {
        return Err(dtype_misfit(input, weight));
    }
    if input.device() != weight.device() {
        return Err(input.on_another_device("linear", weight));
    }
    if let Some(bias) = bias
        && bias.dims() != [outputs]
    {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op: "linear",
            lhs: weight.shape().clone(),
            rhs: bias.shape().clone(),
            hint: format!("a weight [{outputs}, {inputs}] takes a bias [{outputs}]"),
        }));
    }
    // Leading axes are merged, so that there is one matrix product, and one for each gradient. Its sums are
    // reshaped at once: the bias and what follows are then over one shape, and can be its epilogue.
    let wide = lead.len() > 1;
    let rows = if wide { input.reshape([lead.iter().product(), features])? } else { input.clone() };
    let shape: Shape = lead.iter().copied().chain([outputs]).collect();
    let over_lead = |sums: Tensor| if wide { sums.reshape(&shape) } else { Ok(sums) };
    let out = match bias {
        // Half types are rounded once.
        Some(bias) if bias.dtype() == input.dtype() => {
            let sums = over_lead(rows.matmul_wide(&weight.t()?)?)?;
            sums.add(&bias.to_dtype(sums.dtype())?)?.to_dtype(input.dtype())?
        }
        Some(bias) => over_lead(rows.matmul(&weight.t()?)?)?.add(bias)?,
        None => over_lead(rows.matmul(&weight.t()?)?)?,
    };
    Ok(traced("linear", [Some(input), Some(weight), bias], out, Vec::new))
}

/// [`linear`] with a vector as weight: the result has no axis for it.
#[track_caller]
fn linear_of_vector(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let _line = caller_line();
    if let Some(bias) = bias
        && bias.rank() > 0
    {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op: "linear",
            lhs: weight.shape().clone(),
            rhs: bias.shape().clone(),
            hint: "a weight that is a vector takes a bias of one number, 0-d".into(),
        }));
    }
    let row = weight.unsqueeze(0)?;
    let bias = bias.map(|bias| bias.unsqueeze(0)).transpose()?;
    linear(input, &row, bias.as_ref())?.squeeze(-1)
}

/// The bilinear transformation Σᵢⱼ x₁ᵢ · Wₒᵢⱼ · x₂ⱼ + bₒ: `[…, in1]` and `[…, in2]` with a weight `[out,
/// in1, in2]` and a bias `[out]` give `[…, out]`. `torch.nn.functional.bilinear`.
///
/// # Errors
/// Leading axes that differ, sizes other than the weight's, several dtypes or devices.
#[track_caller]
pub fn bilinear(x1: &Tensor, x2: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "bilinear";
    let &[outputs, first, second] = weight.dims() else {
        let message = format!("the weight must have the shape [out, in1, in2], not {}", weight.shape());
        return Err(Error::invalid(OP, message));
    };
    let cast = autocast::cast(OP, [x1, x2, weight], [bias])?;
    let ([x1, x2, weight], [bias]) = cast.tensors();
    let fits = |x: &Tensor, size: usize| x.dims().last() == Some(&size);
    let lead = |x: &Tensor| x.dims()[..x.rank().saturating_sub(1)].to_vec();
    if !fits(x1, first) || !fits(x2, second) || lead(x1) != lead(x2) {
        let message = format!(
            "inputs {} and {}: a weight {} takes […, {first}] and […, {second}] with the same leading axes",
            x1.shape(),
            x2.shape(),
            weight.shape()
        );
        return Err(Error::invalid(OP, message));
    }
    if let Some(bias) = bias
        && bias.dims() != [outputs]
    {
        let message = format!("a bias {}: a weight {} takes [{outputs}]", bias.shape(), weight.shape());
        return Err(Error::invalid(OP, message));
    }
    let out = Tensor::einsum("...i,oij,...j->...o", &[x1, weight, x2])?;
    match bias {
        Some(bias) => out.add(bias),
        None => Ok(out),
    }
}

#[track_caller]
fn features_misfit(input: &Tensor, weight: &Tensor, inputs: usize, outputs: usize) -> Error {
    let hint = match input.dims().last() {
        None => format!("a scalar has no features; Linear({inputs}, {outputs}) takes […, {inputs}]"),
        Some(size) => format!(
            "Linear({inputs}, {outputs}) takes {inputs} features on the last axis, the input has {size}; \
             flatten or reshape the input to […, {inputs}]"
        ),
    };
    Error::new(ErrorKind::ShapeMismatch {
        op: "linear",
        lhs: input.shape().clone(),
        rhs: weight.shape().clone(),
        hint,
    })
}

/// The input is to be cast, not the trained weights.
#[track_caller]
fn dtype_misfit(input: &Tensor, weight: &Tensor) -> Error {
    let (found, dtype) = (input.dtype(), weight.dtype());
    Error::new(ErrorKind::DTypeMismatch {
        op: "linear",
        lhs: found,
        rhs: dtype,
        hint: format!(
            "the input is {found} and the weights are {dtype}: cast the input with .to_dtype(DType::{dtype:?})?"
        ),
    })
}

/// Looks up the rows of `weight` `[rows, features]` at `indices` `[…]` of an integer dtype: `[…, features]`.
/// `torch.nn.functional.embedding`.
///
/// # Errors
/// Indices that are not integers, a weight that is no matrix, or two devices. An index out of range is an
/// error when the result is computed.
#[track_caller]
pub fn embedding(indices: &Tensor, weight: &Tensor) -> Result<Tensor> {
    const ROWS: &Refusal = &Refusal::of_index("embedding");
    let &[_, features] = weight.dims() else {
        let message = format!("the weight must have the shape [rows, features], not {}", weight.shape());
        return Err(Error::invalid("embedding", message));
    };
    if !indices.dtype().is_int() {
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op: "embedding",
            lhs: indices.dtype(),
            rhs: DType::I64,
            hint: "indices are whole numbers: make them of an integer dtype, or cast with .to_dtype(DType::I32)?"
                .into(),
        }));
    }
    if indices.device() != weight.device() {
        return Err(indices.on_another_device("embedding", weight));
    }
    let shape: Vec<usize> = indices.dims().iter().copied().chain([features]).collect();
    let out = weight.index_select_for(ROWS, 0, &indices.flatten_all())?.reshape(shape)?;
    Ok(traced("embedding", [Some(weight), Some(indices)], out, Vec::new))
}

/// As [`embedding`], with a padding row `padding_idx`, which gets no gradient and so keeps its values.
/// `torch.nn.functional.embedding(padding_idx=…)`.
///
/// # Errors
/// As [`embedding`], and a `padding_idx` that is out of range.
#[track_caller]
pub fn embedding_with_padding(indices: &Tensor, weight: &Tensor, padding_idx: usize) -> Result<Tensor> {
    let rows = embedding(indices, weight)?;
    if padding_idx >= weight.dims()[0] {
        let message = format!("padding_idx {padding_idx} is no row of a weight {}", weight.shape());
        return Err(Error::invalid("embedding", message));
    }
    if !rows.is_tracked() {
        return Ok(rows);
    }
    let padding = indices.eq_scalar(padding_idx as i64).unsqueeze(-1)?;
    padding.where_cond(&rows.detach(), &rows)
}

/// While `training`, sets each element of the input to 0 with probability `p` and scales the others by 1 /
/// (1 − p); otherwise returns the input itself. With a `p` of 1 all elements are 0. The random numbers come
/// from `rng`, whichever device the input is on. `torch.nn.functional.dropout`.
///
/// # Errors
/// A `p` outside [0, 1], or a device that cannot draw that many numbers.
#[track_caller]
pub fn dropout(input: &Tensor, p: f64, training: bool, rng: &Generator) -> Result<Tensor> {
    dropout_by("dropout", input, input.shape().clone(), p, training, rng)
}

/// Checks a dropout probability.
#[track_caller]
pub(crate) fn check_probability(op: &'static str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::invalid(op, format!("dropout with probability {p}: give one from 0 to 1")))
}

/// Dropout with a mask of shape `drawn`, which broadcasts to the input's shape: each number of it drops a
/// group.
#[track_caller]
fn dropout_by(
    op: &'static str,
    input: &Tensor,
    drawn: Shape,
    p: f64,
    training: bool,
    rng: &Generator,
) -> Result<Tensor> {
    let _line = caller_line();
    check_probability(op, p)?;
    if !training || p == 0.0 {
        return Ok(input.clone());
    }
    let dtype = if input.dtype().is_float() { input.dtype() } else { DType::F32 };
    if p == 1.0 {
        // All elements are dropped, and 1 / (1 − p) is infinite. Infinities and NaN become NaN, as in
        // PyTorch.
        return input.mul(&Tensor::zeros((), (dtype, &input.device()))?);
    }
    let kept = Tensor::rand_dtype(drawn, DType::F32, &rng.on(&input.device()))?.ge_scalar(p);
    input.mul(&kept.to_dtype(dtype)?.mul_scalar(1.0 / (1.0 - p)))
}

/// The randomized leaky ReLU: x for x > 0 and a·x otherwise, with a drawn from [lower, upper) for each
/// element while `training`, and the mean of the bounds otherwise. PyTorch's bounds are 1/8 and 1/3.
/// `torch.nn.functional.rrelu`.
///
/// # Errors
/// Bounds that are not finite or out of order, or a device that cannot draw that many numbers.
#[track_caller]
pub fn rrelu(input: &Tensor, lower: f64, upper: f64, training: bool, rng: &Generator) -> Result<Tensor> {
    check_rrelu(lower, upper)?;
    if !training {
        return Ok(input.leaky_relu((lower + upper) / 2.0));
    }
    let dtype = if input.dtype().is_float() { input.dtype() } else { default_dtype() };
    let input = input.to_dtype(dtype)?;
    let slopes =
        Tensor::uniform(input.shape().clone(), lower, upper, &rng.on(&input.device()))?.to_dtype(dtype)?;
    input.gt_scalar(0.0).where_cond(&input, &input.mul(&slopes)?)
}

#[track_caller]
pub(crate) fn check_rrelu(lower: f64, upper: f64) -> Result<()> {
    if lower.is_finite() && upper.is_finite() && lower <= upper {
        return Ok(());
    }
    Err(Error::invalid("rrelu", format!("slopes from {lower} to {upper}: give finite bounds in order")))
}

#[track_caller]
pub(crate) fn channel_dropout<const D: usize>(
    input: &Tensor,
    p: f64,
    training: bool,
    rng: &Generator,
) -> Result<Tensor> {
    let _line = caller_line();
    let op = by_dims::<D>(["dropout1d", "dropout2d", "dropout3d"]);
    let Some(lead) = input.rank().checked_sub(D).filter(|lead| (1..=2).contains(lead)) else {
        let message = format!(
            "the input has {} axes, [N, C, …], or {} without N; shape {} has {}",
            D + 2,
            D + 1,
            input.shape(),
            input.rank()
        );
        return Err(Error::invalid(op, message));
    };
    let drawn: Shape = input.dims()[..lead].iter().copied().chain([1; D]).collect();
    dropout_by(op, input, drawn, p, training, rng)
}

macro_rules! channel_dropouts {
    ($($(#[$doc:meta])* $name:ident = $d:literal;)*) => {$(
        $(#[$doc])*
        /// While `training`, sets whole channels to 0 with probability `p` and scales the others by 1 / (1 −
        /// p).
        ///
        /// # Errors
        /// A `p` outside [0, 1], another number of axes, or a device that cannot draw that many numbers.
        #[track_caller]
        pub fn $name(input: &Tensor, p: f64, training: bool, rng: &Generator) -> Result<Tensor> {
            channel_dropout::<$d>(input, p, training, rng)
        }
    )*};
}

channel_dropouts! {
    /// Drops whole channels of `[N, C, L]` or `[C, L]`. `torch.nn.functional.dropout1d`.
    dropout1d = 1;
    /// Drops whole channels of `[N, C, H, W]` or `[C, H, W]`. `torch.nn.functional.dropout2d`.
    dropout2d = 2;
    /// Drops whole channels of `[N, C, D, H, W]` or `[C, D, H, W]`. `torch.nn.functional.dropout3d`.
    dropout3d = 3;
}

/// While `training`, sets whole examples (each entry of the first axis) to 0 with probability `p` and scales
/// the others by 1 / (1 − p); with `batch`, all examples are kept or dropped together. It is for the residual
/// branch of a block, which it skips. `torchvision.ops.stochastic_depth`, whose modes are `"row"` and
/// `"batch"`; timm's `drop_path`.
///
/// Huang et al.: Deep networks with stochastic depth (2016).
///
/// # Errors
/// A `p` outside [0, 1], an input without axes, or a device that cannot draw that many numbers.
#[track_caller]
pub fn stochastic_depth(
    input: &Tensor,
    p: f64,
    batch: bool,
    training: bool,
    rng: &Generator,
) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "stochastic_depth";
    let Some(&rows) = input.dims().first() else {
        return Err(Error::invalid(OP, "the input has no axes; its first axis is the batch"));
    };
    let rows = if batch { 1 } else { rows };
    let drawn = std::iter::once(rows).chain(input.dims()[1..].iter().map(|_| 1)).collect();
    dropout_by(OP, input, drawn, p, training, rng)
}

/// While `training`, replaces each element by SELU's α′ = −λ·α with probability `p`, then scales and shifts
/// all so that a mean of 0 and a variance of 1 are preserved: a·x′ + b with a = 1 / √((1 − p)·(1 + p·α′²))
/// and b = −a·p·α′. Otherwise returns the input itself. `torch.nn.functional.alpha_dropout`.
///
/// Klambauer, Unterthiner, Mayr, Hochreiter: Self-normalizing neural networks (2017).
///
/// # Errors
/// A `p` outside [0, 1], a dtype that is not floating-point, or a device that cannot draw that many numbers.
#[track_caller]
pub fn alpha_dropout(input: &Tensor, p: f64, training: bool, rng: &Generator) -> Result<Tensor> {
    alpha_dropout_by("alpha_dropout", input, input.shape().clone(), p, training, rng)
}

/// As [`alpha_dropout`], for whole channels of `[N, C, …]`. `torch.nn.functional.feature_alpha_dropout`.
///
/// # Errors
/// As [`alpha_dropout`], and fewer than two axes.
#[track_caller]
pub fn feature_alpha_dropout(input: &Tensor, p: f64, training: bool, rng: &Generator) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "feature_alpha_dropout";
    let &[n, channels, ref rest @ ..] = input.dims() else {
        let message = format!("the input has the shape [N, C, …], not {}", input.shape());
        return Err(Error::invalid(OP, message));
    };
    let drawn = [n, channels].into_iter().chain(rest.iter().map(|_| 1)).collect();
    alpha_dropout_by(OP, input, drawn, p, training, rng)
}

#[track_caller]
fn alpha_dropout_by(
    op: &'static str,
    input: &Tensor,
    drawn: Shape,
    p: f64,
    training: bool,
    rng: &Generator,
) -> Result<Tensor> {
    let _line = caller_line();
    // SELU's −λ·α.
    const DROPPED: f64 = -1.758_099_340_847_376_6;
    check_probability(op, p)?;
    if !input.dtype().is_float() {
        let message = format!("a tensor of {}: cast it with .to_dtype(DType::F32)?", input.dtype());
        return Err(Error::invalid(op, message));
    }
    if !training || p == 0.0 {
        return Ok(input.clone());
    }
    if p == 1.0 {
        // All elements are equal then, with a variance of 0.
        return Ok(input.mul_scalar(0.0));
    }
    let scale = 1.0 / ((1.0 - p) * (1.0 + p * DROPPED * DROPPED)).sqrt();
    let kept = Tensor::rand_dtype(drawn, DType::F32, &rng.on(&input.device()))?.ge_scalar(p);
    // Half types are rounded once.
    let wide = input.to_dtype(input.dtype().compute())?;
    let dropped = Tensor::full((), DROPPED, (wide.dtype(), &input.device()))?;
    let out = kept.where_cond(&wide, &dropped)?.mul_scalar(scale).add_scalar(-scale * p * DROPPED);
    out.to_dtype(input.dtype())
}

/// softmax((logits + g) / τ) along an axis, with noise g from the Gumbel distribution, −ln(−ln u): a relaxed
/// sample from the categorical distribution, through which gradients flow. With `hard` the result is
/// one-hot, with the gradient of the soft one. PyTorch's defaults are τ = 1, soft, and axis −1.
/// `torch.nn.functional.gumbel_softmax`.
///
/// Jang, Gu, Poole: Categorical reparameterization with Gumbel-softmax (2017).
///
/// # Errors
/// No such axis, a τ that is not finite and above 0, a dtype that is not floating-point, or a device that
/// cannot draw that many numbers.
#[track_caller]
pub fn gumbel_softmax(logits: &Tensor, tau: f64, hard: bool, axis: isize, rng: &Generator) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "gumbel_softmax";
    if logits.rank() == 0 {
        return gumbel_softmax(&logits.unsqueeze(0)?, tau, hard, axis, rng)?.squeeze(0);
    }
    let at = logits.shape().axis(axis, OP)?;
    if !(tau.is_finite() && tau > 0.0) {
        return Err(Error::invalid(OP, format!("tau {tau}: give a finite one above 0")));
    }
    if !logits.dtype().is_float() {
        let message = format!("logits of {}: cast them with .to_dtype(DType::F32)?", logits.dtype());
        return Err(Error::invalid(OP, message));
    }
    let waits = Tensor::exponential(logits.shape().clone(), 1.0, &rng.on(&logits.device()))?;
    let gumbel = waits.log().neg().to_dtype(logits.dtype())?;
    let soft = logits.add(&gumbel)?.div_scalar(tau).softmax(at)?;
    if !hard || logits.numel() == 0 {
        return Ok(soft);
    }
    let classes = logits.dims()[at];
    let one = soft.detach().argmax_axis(at, false)?.one_hot(classes)?.movedim(-1, at)?;
    one.to_dtype(logits.dtype())?.add(&soft.sub(&soft.detach())?)
}
