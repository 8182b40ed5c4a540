//! Integers with scales in ONNX Runtime's own domain: products with weights of few bits, and operators on
//! integers of 8 bits that compute on the numbers which the integers stand for.

use std::sync::Mutex;

use tensor_core::{Affine, AffineBits, DType, Device, Result, Shape, Tensor};

use super::{
    Row,
    microsoft_attention::refuse,
    one,
    pool::averaged,
    quantized::{COLUMN, ROW, along, centred, rounded, through_u8},
};
use crate::{
    context::Context,
    value::{DataType, Value},
};

const DOMAIN: &str = "com.microsoft";

pub(crate) const TABLE: &[Row] = &[
    (DOMAIN, "DynamicQuantizeMatMul", 1, dynamic_matmul),
    (DOMAIN, "MatMulIntegerToFloat", 1, matmul_to_float),
    (DOMAIN, "MatMulNBits", 1, matmul_of_few_bits),
    (DOMAIN, "QGemm", 1, gemm),
    (DOMAIN, "QLinearAdd", 1, |c| binary(c, Tensor::add)),
    (DOMAIN, "QLinearAveragePool", 1, |c| unary(c, averaged)),
    (DOMAIN, "QLinearConcat", 1, concat),
    (DOMAIN, "QLinearGlobalAveragePool", 1, |c| {
        unary(c, |_, x| x.mean_axis((2..x.rank()).collect::<Vec<_>>(), true))
    }),
    (DOMAIN, "QLinearLeakyRelu", 1, |c| unary(c, |c, x| Ok(x.leaky_relu(c.number_or("alpha", 0.01)?)))),
    (DOMAIN, "QLinearMul", 1, |c| binary(c, Tensor::mul)),
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

/// A weight of few bits in blocks, and the values that it was made from.
#[derive(Debug, Default)]
struct Kept(Mutex<Option<(Device, Vec<u64>, Tensor)>>);

/// x·Wᵀ + bias, where W `[N, K]` has 2, 4 or 8 bits for each number, with a scale and a zero point for each
/// `block_size` numbers of a row. The weight stays packed: the product decodes it where it reads it.
fn matmul_of_few_bits(c: &Context<'_>) -> Result<Vec<Value>> {
    let inputs = [c.tensor(1)?, c.tensor(2)?].into_iter().chain(c.optional_tensor(3)?).collect::<Vec<_>>();
    refuse(c, 6, &["weight_prepacked"])?;
    if c.input(4).is_some() {
        return Err(c.error("g_idx, an order of the blocks, is not supported; export the model without it"));
    }
    let ids: Vec<u64> = inputs.iter().map(Tensor::value_id).collect();
    let kept = c.parsed(|| Ok(Kept::default()))?;
    let mut kept = kept.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let known = kept.as_ref().filter(|(device, own, _)| device == c.device() && *own == ids);
    let weight = match known {
        Some((_, _, weight)) => weight.clone(),
        None => {
            let weight = unpacked(c)?;
            *kept = Some((c.device().clone(), ids, weight.clone()));
            weight
        }
    };
    drop(kept);
    let x = c.tensor(0)?;
    let wide = x.to_dtype(DType::F32)?;
    // The last block may be longer than the rows of x.
    let more = weight.dims()[1].saturating_sub(wide.dims().last().copied().unwrap_or(0));
    let wide = if more > 0 {
        let mut padding = vec![(0, 0); wide.rank()];
        padding[wide.rank() - 1] = (0, more as isize);
        wide.pad(&padding, 0.0)?
    } else {
        wide
    };
    let bias = c.optional_tensor(5)?.map(|bias| bias.to_dtype(DType::F32)).transpose()?;
    one(nn::functional::linear(&wide, &weight, bias.as_ref())?.to_dtype(x.dtype())?)
}

/// The weight of [`matmul_of_few_bits`] as a tensor in blocks, `[N, blocks·block_size]`.
fn unpacked(c: &Context<'_>) -> Result<Tensor> {
    let size = |name: &str, default: i64| -> Result<usize> {
        let size = i32::try_from(c.int_or(name, default)?).ok().filter(|&size| size > 0);
        size.map(|size| size as usize).ok_or_else(|| c.error(format!("{name} is missing, or no size")))
    };
    let (rows, columns) = (size("N", 0)?, size("K", 0)?);
    let (bits, block) = (size("bits", 4)?, size("block_size", 0)?);
    if !matches!(bits, 2 | 4 | 8) {
        return Err(c.error(format!("a weight of {bits} bits; 2, 4 and 8 are known")));
    }
    let (packed, scale) = (c.host_data(1)?, c.host_data(2)?.to_f64s()?);
    let blocks = columns.div_ceil(block);
    let bytes: Vec<u8> = packed.to_i64s()?.into_iter().map(|byte| byte as u8).collect();
    let wanted = rows.checked_mul(blocks).filter(|&count| count == scale.len());
    if wanted.and_then(|count| count.checked_mul(block * bits / 8)) != Some(bytes.len()) {
        let message = format!(
            "a weight {:?} and {} scales for N = {rows}, K = {columns} in blocks of {block}",
            packed.dims(),
            scale.len()
        );
        return Err(c.error(message));
    }
    // Zero points are packed for each row, or numbers; without them they are the middle.
    let middle = (1u32 << (bits - 1)) as f32;
    let zero: Vec<f32> = match c.input(3).map(|_| c.host_data(3)).transpose()? {
        None => vec![middle; scale.len()],
        Some(zero) if zero.data_type() != DataType::Tensor(DType::U8) => {
            zero.to_f64s()?.into_iter().map(|zero| zero as f32).collect()
        }
        Some(zero) => {
            let line = (blocks * bits).div_ceil(8);
            let list = zero.to_i64s()?;
            let at = |place: usize| {
                let (row, number) = (place / blocks, place % blocks * bits);
                let byte = *list.get(row * line + number / 8)? as u8;
                Some(f32::from(byte >> (number % 8) & (u8::MAX >> (8 - bits))))
            };
            let found: Option<Vec<f32>> = (0..scale.len()).map(at).collect();
            found
                .ok_or_else(|| c.error(format!("zero points {:?} for {blocks} blocks a row", zero.dims())))?
        }
    };
    if zero.len() != scale.len() {
        return Err(c.error(format!("{} zero points for {} scales", zero.len(), scale.len())));
    }
    let scale: Vec<f32> = scale.into_iter().map(|scale| scale as f32).collect();
    let (format, bytes) = match bits {
        4 => (AffineBits::U4, bytes),
        8 => (AffineBits::U8, bytes),
        _ => (AffineBits::U8, bytes.iter().flat_map(|byte| [0, 2, 4, 6].map(|at| byte >> at & 3)).collect()),
    };
    let shape = Shape::from([rows, blocks * block]);
    let (format, bytes) =
        Affine::encode(format, &shape, &bytes, (&Shape::from([rows, blocks]), &scale), Some(&zero), 1)?;
    Tensor::from_blocks(format, shape, DType::F32, &bytes, c.device())
}
