//! Integers with scales and zero points: to and from floats, products and convolutions of them.

use tensor_core::{DType, Result, Tensor};

use super::{Row, all, elementwise::cast_to, layers::conv::convolution, one, wide_float};
use crate::{
    context::Context,
    value::{DataType, Value},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "ConvInteger", 10, conv_integer),
    ("", "DequantizeLinear", 10, dequantize),
    ("", "DynamicQuantizeLinear", 11, dynamic),
    ("", "MatMulInteger", 10, |c| one(product(c, 0, 1, [2, 3])?)),
    ("", "QLinearConv", 10, linear_conv),
    ("", "QLinearMatMul", 10, linear_matmul),
    ("", "QuantizeLinear", 10, quantize),
];

/// Scales or zero points so that they broadcast to a tensor: one, one for each slice of an axis, or one for
/// each block of it.
fn spread(c: &Context<'_>, x: &Tensor, factor: Tensor) -> Result<Tensor> {
    if factor.numel() == 1 && factor.rank() <= 1 {
        return factor.reshape(());
    }
    let axis = c.axis_or("axis", 1, x.rank())?;
    let block = usize::try_from(c.int_or("block_size", 0)?).unwrap_or(0);
    if block > 0 {
        let all = factor.repeat_interleave(block, axis)?;
        return all.narrow(axis, 0, x.dims()[axis]);
    }
    let mut shape = vec![1; x.rank()];
    shape[axis] = factor.numel();
    factor.reshape(shape)
}

/// (x − zero point)·scale.
fn dequantize(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, scale) = (c.tensor(0)?, c.tensor(1)?);
    let to = scale.dtype();
    let wide = if x.dtype().is_float() { DType::F32 } else { DType::I32 };
    let mut numbers = x.to_dtype(wide)?;
    if let Some(zero) = c.optional_tensor(2)? {
        numbers = numbers.sub(&spread(c, &x, zero.to_dtype(wide)?)?)?;
    }
    let compute = to.compute();
    one(numbers.to_dtype(compute)?.mul(&spread(c, &x, scale.to_dtype(compute)?)?)?.to_dtype(to)?)
}

/// The element type that a quantization gives, and the least and greatest number of it.
fn target(c: &Context<'_>, zero: Option<&Value>) -> Result<DataType> {
    if let Some(data_type) = zero.and_then(Value::data_type) {
        return Ok(data_type);
    }
    let number = c.int_or("output_dtype", 0)?;
    if number == 0 {
        return Ok(DataType::Tensor(DType::U8));
    }
    i32::try_from(number).ok().and_then(DataType::from_onnx).ok_or_else(|| c.error("no such output_dtype"))
}

/// Rounded to the nearest number of the type, halves to even.
pub(super) fn rounded(c: &Context<'_>, x: &Tensor, to: DataType) -> Result<Value> {
    let (low, high) = match (to, to.narrow_range()) {
        (DataType::Tensor(dtype), _) if !dtype.is_float() => {
            (dtype.least().as_f64(), dtype.greatest().as_f64())
        }
        (DataType::Text, _) => return Err(c.error("texts are not quantized")),
        (_, Some((low, high))) => (low as f64, high as f64),
        (_, None) => return cast_to(c, &x.into(), to),
    };
    cast_to(c, &x.clamp(low, high).into(), to)
}

/// saturate(round(x / scale) + zero point).
fn quantize(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, scale) = (c.tensor(0)?, c.tensor(1)?);
    let to = target(c, c.input(2))?;
    let wide = DType::F32.promote(x.dtype().compute());
    let x = x.to_dtype(wide)?;
    let mut y = x.div(&spread(c, &x, scale.to_dtype(wide)?)?)?;
    if !to.dtype().is_some_and(DType::is_float) {
        y = y.round();
    }
    if let Some(zero) = c.optional_tensor(2)? {
        y = y.add(&spread(c, &x, zero.to_dtype(wide)?)?)?;
    }
    Ok(vec![rounded(c, &y, to)?])
}

/// To u8 over the range of the input, which is made to hold 0; with the scale and the zero point.
fn dynamic(c: &Context<'_>) -> Result<Vec<Value>> {
    let (y, scale, zero) = quantized(&c.tensor(0)?)?;
    all([y, scale, zero])
}

/// A tensor as u8, with its scale and its zero point.
pub(super) fn quantized(x: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let low = x.min()?.minimum_scalar(0.0);
    let high = x.max()?.maximum_scalar(0.0);
    let range = high.sub(&low)?;
    let scale = range.div_scalar(255.0);
    // A tensor of zeros has no range; its scale is 1.
    let scale = scale.masked_fill(&scale.eq_scalar(0.0), 1.0)?;
    let zero = low.neg().div(&scale)?.clamp(0.0, 255.0).round();
    let y = x.div(&scale)?.round().add(&zero)?.clamp(0.0, 255.0);
    Ok((y.to_dtype(DType::U8)?, scale, zero.to_dtype(DType::U8)?))
}

/// The axis of a list of zero points.
pub(crate) const ROW: fn(&Tensor) -> usize = |x| x.rank().saturating_sub(2);
pub(super) const COLUMN: fn(&Tensor) -> usize = |x| x.rank().wrapping_sub(1);
pub(crate) const CHANNEL: fn(&Tensor) -> usize = |_| 1;
pub(crate) const CHANNEL_OF_WEIGHT: fn(&Tensor) -> usize = |_| 0;

/// The numbers that a tensor stands for once it is quantized to u8 by its own range.
pub(super) fn through_u8(x: &Tensor) -> Result<Tensor> {
    let (y, scale, zero) = quantized(x)?;
    y.to_dtype(x.dtype())?.sub(&zero.to_dtype(x.dtype())?)?.mul(&scale)
}

/// An input minus its zero point, as i32. A list of zero points is by row for a matrix on the left, by column
/// for one on the right, and by output channel for a weight.
pub(crate) fn centred(
    c: &Context<'_>,
    input: usize,
    zero: usize,
    axis: fn(&Tensor) -> usize,
) -> Result<Tensor> {
    let x = c.tensor(input)?.to_dtype(DType::I32)?;
    let Some(zero) = c.optional_tensor(zero)? else { return Ok(x) };
    let zero = zero.to_dtype(DType::I32)?;
    if zero.numel() == 1 {
        return x.sub(&zero.reshape(())?);
    }
    if zero.rank() > 1 {
        return x.sub(&zero);
    }
    let mut shape = vec![1; x.rank()];
    let axis = axis(&x);
    if axis >= x.rank() {
        return Err(c.error(format!("zero points {} for a tensor {}", zero.shape(), x.shape())));
    }
    shape[axis] = zero.numel();
    x.sub(&zero.reshape(shape)?)
}

/// The product of two inputs less their zero points, as i32.
fn product(c: &Context<'_>, a: usize, b: usize, zeros: [usize; 2]) -> Result<Tensor> {
    let lhs = centred(c, a, zeros[0], ROW)?;
    let rhs = centred(c, b, zeros[1], COLUMN)?;
    lhs.matmul(&rhs)?.to_dtype(DType::I32)
}

/// Scales along an axis of a result of `rank` axes.
pub(super) fn along(scale: &Tensor, rank: usize, axis: usize) -> Result<Tensor> {
    if scale.numel() == 1 {
        return scale.reshape(());
    }
    if scale.rank() > 1 {
        return Ok(scale.clone());
    }
    let mut shape = vec![1; rank];
    if let Some(size) = shape.get_mut(axis) {
        *size = scale.numel();
    }
    scale.reshape(shape)
}

/// Sums times scales, divided by the result's scale, with its zero point.
fn requantized(
    c: &Context<'_>,
    sums: &Tensor,
    factor: &Tensor,
    scale: usize,
    zero: usize,
) -> Result<Vec<Value>> {
    let to = c.value(zero)?.data_type().ok_or_else(|| c.error("the zero point is no tensor"))?;
    let y = sums.to_dtype(DType::F32)?.mul(factor)?.div(&c.tensor(scale)?.to_dtype(DType::F32)?)?.round();
    let y = y.add(&c.tensor(zero)?.to_dtype(DType::F32)?)?;
    Ok(vec![rounded(c, &y, to)?])
}

fn linear_matmul(c: &Context<'_>) -> Result<Vec<Value>> {
    let sums = product(c, 0, 3, [2, 5])?;
    let rank = sums.rank();
    let lhs = along(&c.tensor(1)?.to_dtype(DType::F32)?, rank, rank.saturating_sub(2))?;
    let rhs = along(&c.tensor(4)?.to_dtype(DType::F32)?, rank, rank.saturating_sub(1))?;
    requantized(c, &sums, &lhs.mul(&rhs)?, 6, 7)
}

/// A convolution of integers less their zero points, as floats that hold the sums exactly.
fn sums_of_windows(c: &Context<'_>, x: (usize, usize), weight: (usize, usize)) -> Result<Tensor> {
    let float = wide_float(c);
    let lhs = centred(c, x.0, x.1, CHANNEL)?.to_dtype(float)?;
    let rhs = centred(c, weight.0, weight.1, CHANNEL_OF_WEIGHT)?.to_dtype(float)?;
    convolution(c, &lhs, &rhs, None)
}

fn conv_integer(c: &Context<'_>) -> Result<Vec<Value>> {
    one(sums_of_windows(c, (0, 2), (1, 3))?.to_dtype(DType::I32)?)
}

fn linear_conv(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut sums = sums_of_windows(c, (0, 2), (3, 5))?;
    if let Some(bias) = c.optional_tensor(8)? {
        sums = sums.add(&along(&bias.to_dtype(sums.dtype())?, sums.rank(), 1)?)?;
    }
    let scale = along(&c.tensor(4)?.to_dtype(DType::F32)?, sums.rank(), 1)?;
    requantized(c, &sums, &scale.mul(&c.tensor(1)?.to_dtype(DType::F32)?)?, 6, 7)
}
