//! Quantization that is simulated in floats, with gradients for training.

use tensor_core::{Argument, Error, Result, Tensor, caller_line, is_grad_enabled, traced};

const OP: &str = "fake_quantize";

/// (clamp(round(x / scale + zero_point), quant_min, quant_max) − zero_point) · scale: the numbers that
/// integers with one scale stand for. Halves are rounded to even. The gradient is passed where the integer
/// is within its range, and 0 elsewhere (straight through); scale and zero point have none. As
/// `torch.fake_quantize_per_tensor_affine`.
///
/// `scale` and `zero_point` have one element.
///
/// # Errors
/// An input that is not of floats, a scale or a zero point of several elements, an empty range, or tensors on
/// several devices.
///
/// ```
/// use nn::functional::fake_quantize_per_tensor_affine;
/// # use tensor_core::{Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = backend_cpu::cpu();
/// let x = Tensor::new([-20.0, 0.3, 0.8, 200.0], &device)?;
/// let [scale, zero] = [0.5, 3.0].map(|x| Tensor::full((), x, &device));
/// let y = fake_quantize_per_tensor_affine(&x, &scale?, &zero?, 0, 255)?;
/// assert_eq!(y.to_vec::<f32>()?, [-1.5, 0.5, 1.0, 126.0]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn fake_quantize_per_tensor_affine(
    input: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    quant_min: i64,
    quant_max: i64,
) -> Result<Tensor> {
    let _line = caller_line();
    if scale.numel() != 1 || zero_point.numel() != 1 {
        let message = format!(
            "a scale of shape {} and a zero point of shape {}: give one of each",
            scale.shape(),
            zero_point.shape()
        );
        return Err(Error::invalid(OP, message));
    }
    simulate(input, [scale, zero_point], None, (quant_min, quant_max))
}

/// [`fake_quantize_per_tensor_affine`] with a scale and a zero point for each position of an axis:
/// `torch.fake_quantize_per_channel_affine`.
///
/// # Errors
/// As [`fake_quantize_per_tensor_affine`], an axis out of range, or another number of scales than its size.
#[track_caller]
pub fn fake_quantize_per_channel_affine(
    input: &Tensor,
    scale: &Tensor,
    zero_point: &Tensor,
    axis: isize,
    quant_min: i64,
    quant_max: i64,
) -> Result<Tensor> {
    let _line = caller_line();
    let axis = input.shape().axis(axis, OP)?;
    let size = input.dims()[axis];
    if scale.dims() != [size] || zero_point.dims() != [size] {
        let message = format!(
            "scales {} and zero points {} for axis {axis} of {}, which has {size} positions",
            scale.shape(),
            zero_point.shape(),
            input.shape()
        );
        return Err(Error::invalid(OP, message));
    }
    simulate(input, [scale, zero_point], Some(axis), (quant_min, quant_max))
}

fn simulate(
    input: &Tensor,
    given: [&Tensor; 2],
    axis: Option<usize>,
    (low, high): (i64, i64),
) -> Result<Tensor> {
    if !input.dtype().is_float() {
        let message = format!("an input of {}: cast it with .to_dtype(DType::F32)?", input.dtype());
        return Err(Error::invalid(OP, message));
    }
    if low >= high {
        return Err(Error::invalid(OP, format!("integers from {low} to {high}: give a range")));
    }
    let dtype = input.dtype().compute();
    let mut shape = vec![1; if axis.is_some() { input.rank() } else { 0 }];
    if let Some(axis) = axis {
        shape[axis] = input.dims()[axis];
    }
    let [scale, zero] = given.map(|x| x.detach().to_dtype(dtype).and_then(|x| x.reshape(shape.as_slice())));
    let (scale, zero) = (scale?, zero?);
    let x = input.to_dtype(dtype)?;
    let integers = x.detach().mul(&scale.reciprocal())?.add(&zero)?.round();
    let rounded = integers.clamp(low as f64, high as f64).sub(&zero)?.mul(&scale)?.to_dtype(input.dtype())?;
    let mut out = rounded;
    if is_grad_enabled() && input.is_tracked() {
        let within = integers.ge_scalar(low as f64).logical_and(integers.le_scalar(high as f64))?;
        let passed = within.where_cond(&x, &x.zeros_like())?.to_dtype(input.dtype())?;
        out = out.add(&passed.sub(&passed.detach())?)?; // the value is unchanged: x − x is 0
    }
    Ok(traced(OP, [Some(input), Some(given[0])], out, || {
        let zeros = given[1].to_f64_vec().unwrap_or_default();
        vec![
            ("zero_points", Argument::Ints(zeros.into_iter().map(|z| z as i64).collect())),
            ("axis", Argument::Int(axis.map_or(-1, |axis| axis as i64))),
            ("quant_min", Argument::Int(low)),
            ("quant_max", Argument::Int(high)),
        ]
    }))
}
