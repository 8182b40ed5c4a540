//! Calls of high-level functions that are one operator in ONNX, or a few. A form says for which calls it
//! holds; for others, and for older versions of ONNX's operators, the recorded operations are exported.

use tensor_core::{Argument, DType, Scalar};

use super::{
    builder::{float, given, int, ints, text},
    exporter::{Exporter, Failure},
    index::index_of,
    quantized, recurrent,
    sample::{Call, Size, Twin},
};

/// The operators for calls of one function.
pub(super) struct Form {
    name: &'static str,
    /// The first version of ONNX's operators with the operator.
    since: i64,
    /// The first version in which the operator takes bf16; before, bf16 is computed in f32.
    bf16: i64,
    /// Arguments that may differ between samples.
    varying: &'static [&'static str],
    /// Whether the operator computes this call.
    holds: fn(&Call) -> bool,
    emit: Emit,
}

/// Adds the nodes of a call whose tensors have these names; returns the names of the results.
type Emit = fn(&mut Exporter, &Call, &[String]) -> Results;

const fn form(name: &'static str, since: i64, bf16: i64, holds: fn(&Call) -> bool, emit: Emit) -> Form {
    Form { name, since, bf16, varying: &[], holds, emit }
}

fn always(_: &Call) -> bool {
    true
}

/// A function of one tensor as an operator with float attributes of the same names.
macro_rules! plain {
    ($op:literal $(, $argument:literal as $attribute:literal)*) => {
        |exporter, _call, names| {
            let attributes = [$(float($attribute, _call.float($argument))),*];
            Ok(vec![exporter.builder.node($op, &[&names[0]], attributes)])
        }
    };
}

/// All forms.
static FORMS: &[Form] = &[
    form("gelu", 20, 20, always, |ex, _, x| Ok(vec![ex.builder.node("Gelu", &[&x[0]], [])])),
    form("gelu_tanh", 20, 20, always, |ex, _, x| {
        Ok(vec![ex.builder.node("Gelu", &[&x[0]], [text("approximate", "tanh")])])
    }),
    form("selu", 6, 22, always, plain!("Selu")),
    form("softsign", 1, 22, always, plain!("Softsign")),
    form("hardswish", 14, 22, always, plain!("HardSwish")),
    form("mish", 18, 22, always, plain!("Mish")),
    form("hardsigmoid", 6, 22, always, |ex, _, x| {
        Ok(vec![ex.builder.node("HardSigmoid", &[&x[0]], [float("alpha", 1.0 / 6.0), float("beta", 0.5)])])
    }),
    form("elu", 6, 22, always, plain!("Elu", "alpha" as "alpha")),
    form(
        "celu",
        12,
        99,
        |call| call.float("alpha") != 0.0 && is_f32(call),
        plain!("Celu", "alpha" as "alpha"),
    ),
    form("leaky_relu", 6, 16, always, plain!("LeakyRelu", "alpha" as "alpha")),
    form("softplus", 1, 22, |call| call.float("beta") == 1.0, plain!("Softplus")),
    form("hardshrink", 9, 99, is_f32, plain!("Shrink", "lambd" as "lambd")),
    form("softshrink", 9, 99, is_f32, plain!("Shrink", "lambd" as "lambd", "lambd" as "bias")),
    form("prelu", 9, 16, always, |ex, _, x| Ok(vec![ex.builder.node("PRelu", &[&x[0], &x[1]], [])])),
    form("clamp", 13, 13, always, clamp),
    form("softmax", 13, 13, always, |ex, call, x| along(ex, call, x, "Softmax")),
    form("log_softmax", 13, 13, always, |ex, call, x| along(ex, call, x, "LogSoftmax")),
    form("linear", 13, 13, of_one_type, linear),
    Form { holds: always, ..form("embedding", 13, 13, always, embedding) },
    form("index_select", 13, 13, |call| call.outputs[0].rank() > 0, index_select),
    form("conv", 11, 22, of_one_type, conv),
    form("conv_transpose", 11, 22, of_one_type, conv_transpose),
    form("layer_norm", 17, 17, of_one_type, layer_norm),
    form("rms_norm", 23, 23, of_one_type, rms_norm),
    form("group_norm", 21, 21, of_one_type, group_norm),
    form("instance_norm", 6, 22, of_one_type, instance_norm),
    form("batch_norm", 15, 15, of_one_type, batch_norm),
    form("max_pool", 12, 22, always, max_pool),
    Form {
        varying: &["kernel_shape", "strides"],
        ..form("avg_pool", 1, 22, covers, |ex, _, x| {
            Ok(vec![ex.builder.node("GlobalAveragePool", &[&x[0]], [])])
        })
    },
    form("avg_pool", 11, 22, |call| call.int("extends") == 0, avg_pool),
    form("pad", 18, 18, |call| matches!(call.text("mode"), "reflect" | "edge"), pad),
    form("pad", 19, 19, |call| call.text("mode") == "wrap", pad),
    form("pixel_shuffle", 13, 13, |call| call.outputs[0].rank() == 4, pixel_shuffle),
    Form { varying: &["sizes"], ..form("interpolate", 18, 18, is_resize, interpolate) },
    form("grid_sample", 20, 99, |call| call.inputs[0].as_ref().is_some_and(|x| x.rank() == 4), grid_sample),
    form("recurrent", 14, 99, of_one_type, recurrent::emit),
    form("fake_quantize", 13, 99, quantized::holds, |ex, call, x| {
        Ok(vec![quantized::pair(&mut ex.builder, call, x)])
    }),
];

/// The form for a call.
pub(super) fn form_of(call: &Call, opset: i64) -> Option<&'static Form> {
    let dtype = call.outputs[0].dtype();
    // Functions of integers cast them first.
    let kept = matches!(call.name, "embedding" | "index_select")
        || dtype.is_float()
            && call.inputs.iter().flatten().next().is_some_and(|input| input.dtype() == dtype);
    let holds = |form: &&Form| {
        form.name == call.name && form.since <= opset && call.is_fixed_but(form.varying) && (form.holds)(call)
    };
    FORMS.iter().find(holds).filter(|_| kept)
}

fn is_f32(call: &Call) -> bool {
    call.outputs[0].dtype() == DType::F32
}

/// Whether all tensors have the result's type.
fn of_one_type(call: &Call) -> bool {
    call.inputs.iter().flatten().all(|input| input.dtype() == call.outputs[0].dtype())
}

/// Adds the nodes of a call; returns the names of its results.
pub(super) fn emit(exporter: &mut Exporter, call: &Call, form: &Form) -> Result<Vec<String>, Failure> {
    let dtype = call.outputs[0].dtype();
    let is_wide = dtype == DType::BF16 && exporter.builder.opset < form.bf16;
    let mut names = Vec::with_capacity(call.inputs.len());
    for input in &call.inputs {
        let name = input.as_ref().map(|input| exporter.name(input)).unwrap_or_default();
        let of = input.as_ref().map(Twin::dtype);
        names.push(if is_wide && of == Some(dtype) {
            exporter.builder.cast(&name, dtype, DType::F32)
        } else {
            name
        });
    }
    exporter.wide = is_wide;
    let results = (form.emit)(exporter, call, &names);
    exporter.wide = false;
    let results = results?;
    Ok(match is_wide {
        true => results.iter().map(|name| exporter.builder.cast(name, DType::F32, dtype)).collect(),
        false => results,
    })
}

impl Exporter {
    /// The type in which a call is computed.
    pub(super) fn computed_in(&self, call: &Call) -> DType {
        if self.wide { DType::F32 } else { call.outputs[0].dtype() }
    }

    /// A weight, or a vector of one number in its place.
    fn weight_or(&mut self, name: &str, number: f64, shape: &[usize], dtype: DType) -> String {
        if !name.is_empty() {
            return name.into();
        }
        let numbers = vec![Scalar::Float(number).cast(dtype); shape.iter().product()];
        self.builder.constant(dtype, shape, Scalar::to_bytes(dtype, &numbers))
    }
}

type Results = Result<Vec<String>, Failure>;

fn along(exporter: &mut Exporter, call: &Call, names: &[String], op: &str) -> Results {
    Ok(vec![exporter.builder.node(op, &[&names[0]], [int("axis", call.int("axis"))])])
}

fn clamp(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let dtype = exporter.computed_in(call);
    let bound = |exporter: &mut Exporter, number: f64| match number.is_finite() {
        true => exporter.builder.number(number, dtype),
        false => String::new(),
    };
    let all = vec![names[0].clone(), bound(exporter, call.float("min")), bound(exporter, call.float("max"))];
    Ok(vec![exporter.builder.node("Clip", &given(&all), [])])
}

fn linear(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let is_matrix = call.outputs[0].rank() == 2;
    let (x, weight, bias) = (&names[0], &names[1], names.get(2).filter(|name| !name.is_empty()));
    if let (true, Some(bias)) = (is_matrix, bias) {
        return Ok(vec![exporter.builder.node("Gemm", &[x, weight, bias], [int("transB", 1)])]);
    }
    let transposed = exporter.transposed(weight, &[1, 0]);
    let product = exporter.builder.node("MatMul", &[x, &transposed], []);
    Ok(vec![match bias {
        Some(bias) => exporter.builder.node("Add", &[&product, bias], []),
        None => product,
    }])
}

fn embedding(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    gather(exporter, call, names, 0)
}

fn index_select(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    gather(exporter, call, names, call.int("axis"))
}

fn gather(exporter: &mut Exporter, call: &Call, names: &[String], axis: i64) -> Results {
    let dtype = call.inputs[1].as_ref().map_or(DType::I64, Twin::dtype);
    let index = index_of(exporter, &names[1], dtype);
    Ok(vec![exporter.builder.node("Gather", &[&names[0], &index], [int("axis", axis)])])
}

fn conv(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let lists = ["strides", "pads", "dilations"].map(|name| ints(name, call.ints(name)));
    let attributes = lists.into_iter().chain([int("group", call.int("group")), kernel_shape(call)]);
    Ok(vec![exporter.builder.node("Conv", &given(names), attributes)])
}

fn conv_transpose(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let lists = ["strides", "pads", "dilations", "output_padding"].map(|name| ints(name, call.ints(name)));
    let attributes = lists.into_iter().chain([int("group", call.int("group")), kernel_shape(call)]);
    Ok(vec![exporter.builder.node("ConvTranspose", &given(names), attributes)])
}

/// The sizes of a kernel, which are those of the weight.
fn kernel_shape(call: &Call) -> crate::proto::AttributeProto {
    let sizes = call.inputs[1].as_ref().map(|weight| weight.first().dims()[2..].to_vec()).unwrap_or_default();
    ints("kernel_shape", sizes.into_iter().map(|size| size as i64))
}

fn epsilon(call: &Call) -> crate::proto::AttributeProto {
    float("epsilon", call.float("epsilon"))
}

/// The number of channels of a call's input.
fn channels(call: &Call) -> usize {
    call.outputs[0].first().dims()[1]
}

fn normalized_shape(call: &Call) -> Vec<usize> {
    let dims = call.outputs[0].first().dims();
    dims[dims.len() - call.int("axis").unsigned_abs() as usize..].to_vec()
}

fn layer_norm(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let dtype = exporter.computed_in(call);
    let weight = exporter.weight_or(&names[1], 1.0, &normalized_shape(call), dtype);
    let all = [names[0].clone(), weight, names[2].clone()];
    let attributes = [int("axis", call.int("axis")), epsilon(call)];
    Ok(vec![exporter.builder.node("LayerNormalization", &given(&all), attributes)])
}

fn rms_norm(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let dtype = exporter.computed_in(call);
    let weight = exporter.weight_or(&names[1], 1.0, &normalized_shape(call), dtype);
    let attributes = [int("axis", call.int("axis")), epsilon(call)];
    Ok(vec![exporter.builder.node("RMSNormalization", &[&names[0], &weight], attributes)])
}

fn group_norm(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let (dtype, channels) = (exporter.computed_in(call), channels(call));
    let weight = exporter.weight_or(&names[1], 1.0, &[channels], dtype);
    let bias = exporter.weight_or(&names[2], 0.0, &[channels], dtype);
    let attributes = [int("num_groups", call.int("num_groups")), epsilon(call)];
    Ok(vec![exporter.builder.node("GroupNormalization", &[&names[0], &weight, &bias], attributes)])
}

fn instance_norm(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let (dtype, channels) = (exporter.computed_in(call), channels(call));
    let weight = exporter.weight_or(&names[1], 1.0, &[channels], dtype);
    let bias = exporter.weight_or(&names[2], 0.0, &[channels], dtype);
    Ok(vec![exporter.builder.node("InstanceNormalization", &[&names[0], &weight, &bias], [epsilon(call)])])
}

fn batch_norm(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let (dtype, channels) = (exporter.computed_in(call), channels(call));
    let weight = exporter.weight_or(&names[1], 1.0, &[channels], dtype);
    let bias = exporter.weight_or(&names[2], 0.0, &[channels], dtype);
    let all = [&names[0], &weight, &bias, &names[3], &names[4]].map(String::as_str);
    Ok(vec![exporter.builder.node("BatchNormalization", &all, [epsilon(call)])])
}

fn max_pool(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let lists = ["kernel_shape", "strides", "pads", "dilations"].map(|name| ints(name, call.ints(name)));
    Ok(vec![exporter.builder.node("MaxPool", &[&names[0]], lists)])
}

/// Whether the one window of a pooling is the whole image, of whatever size.
fn covers(call: &Call) -> bool {
    let Some(Some(x)) = call.inputs.first() else { return false };
    let kernels = call.samples("kernel_shape");
    let whole = x.all().zip(kernels).all(|(x, kernel)| {
        *kernel == Argument::sizes(&x.dims()[2..]) && x.dims()[2..].iter().all(|&size| size > 0)
    });
    let out = &call.outputs[0];
    whole
        && call.ints("pads").iter().all(|&pad| pad == 0)
        && (2..out.rank()).all(|axis| out.size(axis).iter().all(|&size| size == 1))
}

fn avg_pool(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let lists = ["kernel_shape", "strides", "pads"].map(|name| ints(name, call.ints(name)));
    let counts = int("count_include_pad", call.int("count_include_pad"));
    Ok(vec![exporter.builder.node("AveragePool", &[&names[0]], lists.into_iter().chain([counts]))])
}

fn pad(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let side = |name: &str| {
        let padded = call.ints(name);
        let first = call.outputs[0].rank() - padded.len();
        [vec![0; first], padded].concat()
    };
    let pads = exporter.builder.ints(&[side("before"), side("after")].concat());
    Ok(vec![exporter.builder.node("Pad", &[&names[0], &pads], [text("mode", call.text("mode"))])])
}

fn pixel_shuffle(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let attributes = [int("blocksize", call.int("factor")), text("mode", "CRD")];
    Ok(vec![exporter.builder.node("DepthToSpace", &[&names[0]], attributes)])
}

fn resize_mode(mode: &str) -> Option<&'static str> {
    match mode {
        "nearest" => Some("nearest"),
        "linear" | "bilinear" | "trilinear" => Some("linear"),
        "bicubic" => Some("cubic"),
        _ => None,
    }
}

/// Whether `Resize` computes this. PyTorch's antialiasing with aligned corners places its filters otherwise,
/// and a factor that is rounded to f32 may take another nearest element.
fn is_resize(call: &Call) -> bool {
    let unaligned = call.int("antialias") == 0 || call.int("align_corners") == 0;
    let rounded = |factors: Vec<f64>| {
        factors.iter().any(|&factor| f64::from(factor as f32) != factor) && !are_ratios(call, &factors)
    };
    let moves = call.text("mode") == "nearest" && call.floats("scales").is_some_and(rounded);
    unaligned && !moves && resize_mode(call.text("mode")).is_some()
}

/// The sizes of the resized axes in each sample.
fn resized(call: &Call) -> Vec<&Vec<i64>> {
    fn list(argument: &Argument) -> Option<&Vec<i64>> {
        if let Argument::Ints(list) = argument { Some(list) } else { None }
    }
    call.samples("sizes").into_iter().filter_map(list).collect()
}

/// Whether the sizes are fixed and the factors are exactly their ratios, so that sizes can stand for factors.
fn are_ratios(call: &Call, factors: &[f64]) -> bool {
    let Some(Some(x)) = call.inputs.first() else { return false };
    let sizes = resized(call);
    let is_ratio = |(axis, &factor): (usize, &f64)| {
        let olds = x.size(axis + 2);
        olds.iter().zip(&sizes).all(|(&old, new)| (old as f64 * factor - new[axis] as f64).abs() < 1e-9)
    };
    sizes.iter().all(|list| *list == sizes[0]) && factors.iter().enumerate().all(is_ratio)
}

fn interpolate(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let mode = resize_mode(call.text("mode")).unwrap_or("nearest");
    let place = match (mode, call.int("align_corners")) {
        ("nearest", _) => "asymmetric",
        (_, 0) => "half_pixel",
        _ => "align_corners",
    };
    let mut attributes = vec![text("mode", mode), text("coordinate_transformation_mode", place)];
    match mode {
        "nearest" => attributes.push(text("nearest_mode", "floor")),
        "cubic" => {
            attributes.push(float("cubic_coeff_a", if call.int("antialias") == 0 { -0.75 } else { -0.5 }))
        }
        _ => {}
    }
    if call.int("antialias") != 0 {
        // PyTorch normalizes a filter that reaches over the border; by default ONNX repeats the border.
        attributes.extend([int("antialias", 1), int("exclude_outside", 1)]);
    }
    let sizes = resized(call);
    // A factor says more than a size that was rounded down, because positions follow from it.
    if let Some(factors) = call.floats("scales").filter(|factors| !are_ratios(call, factors)) {
        let factors: Vec<Scalar> =
            [1.0, 1.0].into_iter().chain(factors).map(|f| Scalar::Float(f).cast(DType::F32)).collect();
        let bytes = Scalar::to_bytes(DType::F32, &factors);
        let scales = exporter.builder.constant(DType::F32, &[factors.len()], bytes);
        return Ok(vec![exporter.builder.node("Resize", &[&names[0], "", &scales], attributes)]);
    }
    let count = call.outputs[0].rank() - 2;
    let wanted: Vec<Size> =
        (0..count).map(|axis| sizes.iter().map(|list| list[axis] as usize).collect()).collect();
    let near: Vec<&Twin> = call.inputs.iter().flatten().collect();
    let wanted = exporter.shape(&wanted, &near)?;
    attributes.push(ints("axes", (0..count).map(|axis| axis as i64 + 2)));
    Ok(vec![exporter.builder.node("Resize", &[&names[0], "", "", &wanted], attributes)])
}

fn grid_sample(exporter: &mut Exporter, call: &Call, names: &[String]) -> Results {
    let attributes = [
        text("mode", call.text("mode")),
        text("padding_mode", call.text("padding_mode")),
        int("align_corners", call.int("align_corners")),
    ];
    Ok(vec![exporter.builder.node("GridSample", &[&names[0], &names[1]], attributes)])
}
