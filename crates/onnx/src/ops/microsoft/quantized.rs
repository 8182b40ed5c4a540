//! Integers of 8 bits with scales in ONNX Runtime's own domain. The operators compute on the numbers which
//! the integers stand for. Weights of few bits are in [`super::blocks`].

use tensor_core::{DType, Result, Tensor};

use crate::{
    context::Context,
    ops::{
        Row,
        layers::pool::averaged,
        one,
        quantized::{COLUMN, ROW, along, centred, rounded, through_u8},
    },
    value::Value,
};

const DOMAIN: &str = "com.microsoft";

pub(crate) const TABLE: &[Row] = &[
    (DOMAIN, "DynamicQuantizeMatMul", 1, dynamic_matmul),
    (DOMAIN, "MatMulIntegerToFloat", 1, matmul_to_float),
    (DOMAIN, "QGemm", 1, gemm),
    (DOMAIN, "QLinearAdd", 1, |c| binary(c, Tensor::add)),
    (DOMAIN, "QLinearAveragePool", 1, |c| unary(c, averaged)),
    (DOMAIN, "QLinearConcat", 1, concat),
    (DOMAIN, "QLinearGlobalAveragePool", 1, |c| {
        unary(c, |_, x| x.mean_axis((2..x.rank()).collect::<Vec<_>>(), true))
    }),
    (DOMAIN, "QLinearLeakyRelu", 1, |c| unary(c, |c, x| Ok(x.leaky_relu(c.number_or("alpha", 0.01)?)))),
    (DOMAIN, "QLinearMul", 1, |c| binary(c, Tensor::mul)),
    (DOMAIN, "QLinearReduceMean", 1, reduce_mean),
    (DOMAIN, "QLinearSigmoid", 1, |c| unary(c, |_, x| Ok(x.sigmoid()))),
    (DOMAIN, "QLinearSoftmax", 1, |c| unary(c, |c, x| x.softmax(c.axis_or("axis", -1, x.rank())? as isize))),
    (DOMAIN, "QLinearWhere", 1, select),
];

/// The numbers of integers whose scale and zero point are the inputs after them.
fn numbers(c: &Context<'_>, at: usize) -> Result<Tensor> {
    let x = centred(c, at, at + 2, |_| 0)?;
    x.to_dtype(DType::F32)?.mul(&c.tensor(at + 1)?.to_dtype(DType::F32)?.reshape(())?)
}

/// Numbers as integers whose scale and zero point are inputs, of the zero point's type or of that of input
/// `like`.
fn integers(c: &Context<'_>, y: &Tensor, scale: usize, like: usize) -> Result<Vec<Value>> {
    let zero = c.optional_tensor(scale + 1)?;
    let of_zero = c.input(scale + 1).and_then(Value::data_type);
    let to = of_zero.or(c.value(like)?.data_type()).ok_or_else(|| c.error("the input is no tensor"))?;
    let mut y = y.div(&c.tensor(scale)?.to_dtype(DType::F32)?.reshape(())?)?.round();
    if let Some(zero) = zero {
        y = y.add(&zero.to_dtype(DType::F32)?.reshape(())?)?;
    }
    Ok(vec![rounded(c, &y, to)?])
}

fn unary(c: &Context<'_>, f: impl FnOnce(&Context<'_>, &Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
    let x = numbers(c, 0)?;
    // Channels may be the last axis.
    let last = c.flag("channels_last", false)? && x.rank() > 2;
    let x = if last { x.movedim(x.rank() - 1, 1)? } else { x };
    let y = f(c, &x)?;
    let y = if last { y.movedim(1, y.rank() - 1)? } else { y };
    integers(c, &y, 3, 0)
}

fn binary(c: &Context<'_>, f: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
    integers(c, &f(&numbers(c, 0)?, &numbers(c, 3)?)?, 6, 0)
}

/// The mean over the axes of an attribute, or over all.
fn reduce_mean(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = numbers(c, 0)?;
    let axes: Vec<usize> = match c.ints("axes")?.filter(|axes| !axes.is_empty()) {
        Some(axes) => axes.into_iter().map(|axis| c.axis(axis, x.rank())).collect::<Result<_>>()?,
        None => (0..x.rank()).collect(),
    };
    integers(c, &x.mean_axis(axes, c.flag("keepdims", true)?)?, 3, 0)
}

fn select(c: &Context<'_>) -> Result<Vec<Value>> {
    let y = c.tensor(0)?.where_cond(&numbers(c, 1)?, &numbers(c, 4)?)?;
    integers(c, &y, 7, 1)
}

/// The scale and the zero point of the result come first, then each input with its own.
fn concat(c: &Context<'_>) -> Result<Vec<Value>> {
    let parts = (2..c.input_count()).step_by(3).map(|at| numbers(c, at)).collect::<Result<Vec<_>>>()?;
    let first = parts.first().ok_or_else(|| c.error("it has nothing to join"))?;
    let axis = c.axis_or("axis", 1, first.rank())?;
    integers(c, &Tensor::concat(&parts, axis)?, 0, 2)
}

/// Numbers with a bias that is an input, if it is given.
fn biased(c: &Context<'_>, y: Tensor, bias: usize) -> Result<Tensor> {
    match c.optional_tensor(bias)? {
        Some(bias) => y.add(&bias),
        None => Ok(y),
    }
}

/// Two matrices of integers, as floats of their numbers. Sums of products below 2²⁴ are exact, and the result
/// has floats anyhow.
fn matmul_to_float(c: &Context<'_>) -> Result<Vec<Value>> {
    let lhs = centred(c, 0, 4, ROW)?.to_dtype(DType::F32)?;
    let rhs = centred(c, 1, 5, COLUMN)?.to_dtype(DType::F32)?;
    let y = lhs.matmul(&rhs)?;
    let (rank, columns) = (y.rank(), y.rank().saturating_sub(1));
    let scale = |at: usize, axis: usize| along(&c.tensor(at)?, rank, axis);
    one(biased(c, y.mul(&scale(2, rank.saturating_sub(2))?)?.mul(&scale(3, columns)?)?, 6)?)
}

/// A matrix that is quantized to u8 by its own range, times one of integers.
fn dynamic_matmul(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = through_u8(&c.tensor(0)?)?;
    let weight = centred(c, 1, 3, COLUMN)?.to_dtype(DType::F32)?;
    let y = x.matmul(&weight)?;
    let scale = along(&c.tensor(2)?, y.rank(), y.rank().saturating_sub(1))?;
    one(biased(c, y.mul(&scale)?, 4)?)
}

/// α·A·B + C of integers, where C has the scale of the product; as floats unless a scale of the result is
/// given.
fn gemm(c: &Context<'_>) -> Result<Vec<Value>> {
    let turned = |x: Tensor, name: &str| if c.flag(name, false)? { x.t() } else { Ok(x) };
    // A list of zero points is by column of the product.
    let columns = if c.flag("transB", false)? { ROW } else { COLUMN };
    let lhs = turned(centred(c, 0, 2, ROW)?.to_dtype(DType::F32)?, "transA")?;
    let rhs = turned(centred(c, 3, 5, columns)?.to_dtype(DType::F32)?, "transB")?;
    let mut sums = lhs.matmul(&rhs)?;
    if let Some(bias) = c.optional_tensor(6)? {
        sums = sums.add(&bias.to_dtype(DType::F32)?)?;
    }
    let scale = along(&c.tensor(1)?, 2, 0)?.mul(&along(&c.tensor(4)?, 2, 1)?)?;
    let y = sums.mul(&scale)?.mul_scalar(c.number_or("alpha", 1.0)?);
    if c.input(7).is_none() { one(y) } else { integers(c, &y, 7, 0) }
}
