//! PyTorch's promotion. Tensors with axes decide before tensors of a single number, and those before
//! Python's numbers: a later group widens the result only if it is of a later kind (bool, integers, floats).

use taper::{DType, Device, Result, Scalar, Tensor};

use crate::{args::Operand, tensor::category};

/// The dtype of an operation on some operands.
pub(crate) fn result_type(operands: &[&Operand]) -> DType {
    let mut groups: [Option<DType>; 3] = [None; 3];
    for operand in operands {
        let (group, dtype) = match operand {
            Operand::Tensor(tensor) if tensor.rank() > 0 => (0, tensor.dtype()),
            Operand::Tensor(tensor) => (1, tensor.dtype()),
            Operand::Number(Scalar::Bool(_)) => (2, DType::Bool),
            Operand::Number(Scalar::Float(_)) => (2, taper::default_dtype()),
            Operand::Number(_) => (2, DType::I64),
        };
        groups[group] = Some(groups[group].map_or(dtype, |other| other.promote(dtype)));
    }
    let later = |first: DType, next: DType| if category(next) > category(first) { next } else { first };
    groups.into_iter().flatten().reduce(later).unwrap_or_else(taper::default_dtype)
}

/// The device of the operands: tensors of a single number on the processor follow the others.
fn device(operands: &[&Operand]) -> Option<Device> {
    let tensors = || {
        operands.iter().filter_map(|operand| match operand {
            Operand::Tensor(tensor) => Some(tensor),
            Operand::Number(_) => None,
        })
    };
    let with_axes = tensors().find(|tensor| tensor.rank() > 0);
    let elsewhere = tensors().find(|tensor| !tensor.device().name().starts_with("cpu"));
    with_axes.or(elsewhere).or_else(|| tensors().next()).map(Tensor::device)
}

/// Operands in one dtype and, where PyTorch moves them, on one device.
pub(crate) fn all<const N: usize>(
    operands: [&Operand; N],
    dtype: impl Fn(DType) -> DType,
) -> Result<[Tensor; N]> {
    let device = device(&operands).unwrap_or_else(taper::cpu);
    let dtype = held_by(&device, dtype(result_type(&operands)));
    let cast = |operand: &Operand| match operand {
        Operand::Number(number) => Tensor::full((), *number, (dtype, &device)),
        Operand::Tensor(tensor) if tensor.rank() == 0 && tensor.device() != device => {
            tensor.to_dtype(dtype)?.to(&device)
        }
        Operand::Tensor(tensor) if tensor.dtype() == dtype => Ok(tensor.clone()),
        Operand::Tensor(tensor) => tensor.to_dtype(dtype),
    };
    let mut out = Vec::with_capacity(N);
    for operand in operands {
        out.push(cast(operand)?);
    }
    out.try_into().map_err(|_| taper::Error::invalid("promote", "an operand is missing"))
}

/// The dtype in which a device keeps one: 64-bit integers in 32 bits, if it has no others.
pub(crate) fn held_by(device: &Device, dtype: DType) -> DType {
    if dtype == DType::I64 && !device.supports(DType::I64) { device.int_dtype() } else { dtype }
}

/// The dtype itself, for operations of every dtype.
pub(crate) fn same(dtype: DType) -> DType {
    dtype
}

/// The floats in which division and functions compute integers.
pub(crate) fn float(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { taper::default_dtype() }
}

/// The dtype of sums: 64-bit integers for integers and truth values.
pub(crate) fn sums(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::I64 }
}
