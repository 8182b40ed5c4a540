//! Simulated quantization as a pair of `QuantizeLinear` and `DequantizeLinear`, and weights in 8 bits as
//! integers with a `DequantizeLinear`: the form in which ONNX programs find layers of integers (QDQ).

use std::any::Any;

use tensor_core::{Affine, AffineBits, Argument, DType, Result, Scalar, Tensor};

use super::{
    builder::{Builder, int},
    sample::Call,
};

/// The dtypes of the integers of 8 bits, by their ranges.
const RANGES: [((i64, i64), DType); 2] = [((0, 255), DType::U8), ((-128, 127), DType::I8)];

fn integers(call: &Call) -> Option<DType> {
    let range = (call.int("quant_min"), call.int("quant_max"));
    RANGES.iter().find(|(known, _)| *known == range).map(|(_, dtype)| *dtype)
}

/// The zero points, if they do not depend on the sample.
fn zero_points(call: &Call) -> Option<&Vec<i64>> {
    let mut all = call.samples("zero_points").into_iter();
    let Some(Argument::Ints(first)) = all.next() else { return None };
    let same = |other: &Argument| matches!(other, Argument::Ints(list) if list == first);
    (!first.is_empty() && all.all(same)).then_some(first)
}

/// Whether the integers are of 8 bits, and the call is in f32.
pub(super) fn holds(call: &Call) -> bool {
    call.outputs[0].dtype() == DType::F32 && integers(call).is_some() && zero_points(call).is_some()
}

/// Adds the pair for a call whose input and scale have these names, and returns the name of the result.
pub(super) fn pair(builder: &mut Builder, call: &Call, names: &[String]) -> String {
    let zeros = zero_points(call).cloned().unwrap_or_default();
    let dtype = integers(call).unwrap_or(DType::U8);
    let axis = call.int("axis");
    let numbers: Vec<Scalar> = zeros.iter().map(|&z| Scalar::Int(z).cast(dtype)).collect();
    let dims: Vec<usize> = if axis < 0 { Vec::new() } else { vec![zeros.len()] };
    let zero = builder.constant(dtype, &dims, Scalar::to_bytes(dtype, &numbers));
    let attributes = || (axis >= 0).then(|| int("axis", axis));
    let rounded = builder.node("QuantizeLinear", &[&names[0], &names[1], &zero], attributes());
    builder.node("DequantizeLinear", &[&rounded, &names[1], &zero], attributes())
}

/// Adds a weight that is stored as integers of 8 bits with scales under its name, and returns the name of its
/// numbers; None for other weights.
pub(super) fn weight(builder: &mut Builder, weight: &Tensor, name: &str) -> Result<Option<String>> {
    let Some(format) = weight.block_format().filter(|_| weight.dtype() == DType::F32) else {
        return Ok(None);
    };
    let any: &dyn Any = &*format;
    let Some(format) = any.downcast_ref::<Affine>() else { return Ok(None) };
    let dtype = match format.bits() {
        AffineBits::I8 => DType::I8,
        AffineBits::U8 => DType::U8,
        AffineBits::I4 | AffineBits::U4 => return Ok(None),
    };
    let bytes = weight.block_bytes()?;
    let Some(parts) = format.channels(weight.shape(), &bytes) else { return Ok(None) };
    let whole = |zero: &[f32]| zero.iter().map(|&z| Scalar::Int(z as i64).cast(dtype)).collect::<Vec<_>>();
    let is_integer = |z: &f32| {
        z.fract() == 0.0
            && RANGES.iter().any(|((low, high), of)| *of == dtype && (*low as f32..=*high as f32).contains(z))
    };
    let zeros = parts.zero.clone().unwrap_or_else(|| vec![0.0; parts.scale.len()]);
    if !zeros.iter().all(is_integer) {
        return Ok(None);
    }
    builder.initializer(name, dtype, weight.dims(), parts.integers.to_vec());
    let dims: Vec<usize> = if parts.axis.is_some() { vec![parts.scale.len()] } else { Vec::new() };
    let scales = parts.scale.iter().flat_map(|x| x.to_le_bytes()).collect();
    let scale = builder.constant(DType::F32, &dims, scales);
    let zero = builder.constant(dtype, &dims, Scalar::to_bytes(dtype, &whole(&zeros)));
    let attributes = parts.axis.map(|axis| int("axis", axis as i64));
    Ok(Some(builder.node("DequantizeLinear", &[name, &scale, &zero], attributes)))
}
