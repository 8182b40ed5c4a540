//! Helpers that all distributions share: they check, broadcast and read parameters and values.

use tensor_core::{DType, Error, Generator, Operand, Result, Shape, Tensor};

/// The operand as a tensor; a number takes the dtype and device of the first parameter.
#[track_caller]
pub(crate) fn beside(first: &Tensor, operand: Operand) -> Result<Tensor> {
    match operand {
        Operand::Tensor(tensor) => Ok(tensor),
        Operand::Scalar(number) => Tensor::full((), number, (first.dtype(), &first.device())),
    }
}

/// Checks that parameters are floating-point, converts them to the dtype that they promote to, and expands
/// them to the batch shape that they broadcast to.
#[track_caller]
pub(crate) fn settle<const N: usize>(
    op: &'static str,
    names: [&'static str; N],
    mut tensors: [Tensor; N],
) -> Result<[Tensor; N]> {
    for (name, tensor) in names.iter().zip(&tensors) {
        require_float(op, name, tensor)?;
    }
    let dtype = tensors.iter().map(Tensor::dtype).reduce(DType::promote).unwrap_or(DType::F32);
    for tensor in &mut tensors {
        *tensor = tensor.to_dtype(dtype)?;
    }
    over_one(op, tensors)
}

#[track_caller]
pub(crate) fn require_float(op: &'static str, name: &str, tensor: &Tensor) -> Result<()> {
    if tensor.dtype().is_float() {
        return Ok(());
    }
    let message =
        format!("{name} is of {}: a floating-point dtype is needed; cast it with .to_dtype", tensor.dtype());
    Err(Error::invalid(op, message))
}

#[track_caller]
pub(crate) fn one_device(op: &'static str, tensors: &[&Tensor]) -> Result<()> {
    let different = tensors.iter().find(|t| t.device() != tensors[0].device());
    match different {
        Some(other) => Err(tensors[0].on_another_device(op, other)),
        None => Ok(()),
    }
}

/// Expands tensors to the shape that they broadcast to and checks that they are on one device, so that
/// operators on them cannot fail.
#[track_caller]
pub(crate) fn over_one<const N: usize>(op: &'static str, mut tensors: [Tensor; N]) -> Result<[Tensor; N]> {
    one_device(op, &tensors.each_ref())?;
    let mut shape = Shape::scalar();
    for tensor in &tensors {
        shape = shape.broadcast(tensor.shape(), op)?;
    }
    for tensor in &mut tensors {
        *tensor = tensor.expand(shape.dims())?;
    }
    Ok(tensors)
}

/// The shape of draws, `front + back`.
pub(crate) fn join(front: &Shape, back: &Shape) -> Shape {
    front.dims().iter().chain(back.dims()).copied().collect()
}

/// A parameter expanded to draws of this shape.
#[track_caller]
pub(crate) fn over_draws(parameter: &Tensor, shape: &Shape) -> Result<Tensor> {
    parameter.expand(join(shape, parameter.shape()).dims())
}

/// Standard normal noise of shape `shape + parameter`.
#[track_caller]
pub(crate) fn normal_noise(parameter: &Tensor, shape: &Shape, rng: &Generator) -> Result<Tensor> {
    Tensor::randn_dtype(join(shape, parameter.shape()), parameter.dtype(), &rng.on(&parameter.device()))
}

/// Uniform noise in [0, 1) of shape `shape + parameter`, in the compute dtype of the parameter: results are
/// rounded to a half type, noise is not.
#[track_caller]
pub(crate) fn uniform_noise(parameter: &Tensor, shape: &Shape, rng: &Generator) -> Result<Tensor> {
    let dtype = parameter.dtype().compute();
    Tensor::rand_dtype(join(shape, parameter.shape()), dtype, &rng.on(&parameter.device()))
}

/// The tensor in its compute dtype.
#[track_caller]
pub(crate) fn wide(t: &Tensor) -> Result<Tensor> {
    t.to_dtype(t.dtype().compute())
}

/// Rounds draws above 0 to this dtype, clamped so that none becomes 0 or infinite.
#[track_caller]
pub(crate) fn above_zero_in(draws: &Tensor, dtype: DType) -> Result<Tensor> {
    draws.clamp(dtype.smallest_normal(), dtype.greatest()).to_dtype(dtype)
}

/// `values` where `holds` is true, and `otherwise` elsewhere.
#[track_caller]
pub(crate) fn where_else(holds: &Tensor, values: &Tensor, otherwise: f64) -> Result<Tensor> {
    values.masked_fill(&holds.logical_not(), otherwise)
}

/// Whether elements are above 0 and finite.
#[track_caller]
pub(crate) fn positive(t: &Tensor) -> Result<Tensor> {
    t.gt_scalar(0.0).bitwise_and(&t.lt_scalar(f64::INFINITY))
}

/// Reports an error unless the condition holds for all elements of a parameter.
#[track_caller]
pub(crate) fn hold(op: &'static str, name: &str, range: &str, condition: &Tensor) -> Result<()> {
    if condition.all().item::<bool>()? {
        return Ok(());
    }
    Err(Error::invalid(op, format!("an element of {name} is not {range}")))
}

#[track_caller]
pub(crate) fn hold_positive(op: &'static str, name: &str, t: &Tensor) -> Result<()> {
    hold(op, name, "above 0 and finite", &positive(t)?)
}

#[track_caller]
pub(crate) fn hold_finite(op: &'static str, name: &str, t: &Tensor) -> Result<()> {
    hold(op, name, "finite", &t.isfinite())
}
