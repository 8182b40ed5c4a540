//! Attention and positions by rotation.

use tensor_core::{DType, Result, Tensor};

use super::{Row, all, one};
use crate::{context::Context, value::Value};

pub(crate) const TABLE: &[Row] = &[("", "Attention", 23, attention), ("", "RotaryEmbedding", 23, rotary)];

/// `[N, T, heads·size]` as `[N, heads, T, size]`.
fn by_head(c: &Context<'_>, x: Tensor, heads: &str) -> Result<Tensor> {
    if x.rank() == 4 {
        return Ok(x);
    }
    let count = c.int(heads)?.and_then(|count| usize::try_from(count).ok()).filter(|&count| count > 0);
    let (Some(count), &[n, t, width]) = (count, x.dims()) else {
        return Err(c.error(format!("an input {} without {heads}", x.shape())));
    };
    x.reshape([n, t, count, width / count])?.transpose(1, 2)
}

/// softmax(scale·QKᵀ + mask)·V, with keys and values of before in front, and grouped heads. Also gives keys
/// and values of now and before, and the products at a stage that an attribute names.
fn attention(c: &Context<'_>) -> Result<Vec<Value>> {
    let flat = c.tensor(0)?.rank() == 3;
    let query = by_head(c, c.tensor(0)?, "q_num_heads")?;
    let mut key = by_head(c, c.tensor(1)?, "kv_num_heads")?;
    let mut value = by_head(c, c.tensor(2)?, "kv_num_heads")?;
    let mut past = 0;
    if let (Some(keys), Some(values)) = (c.optional_tensor(4)?, c.optional_tensor(5)?) {
        past = keys.dims().get(2).copied().unwrap_or(0);
        key = Tensor::concat(&[keys, key], 2)?;
        value = Tensor::concat(&[values, value], 2)?;
    }
    let present = (key.clone(), value.clone());
    let (&[n, heads, steps, size], &[_, groups, total, _]) = (query.dims(), key.dims()) else {
        return Err(c.error("queries and keys are [N, heads, T, size]"));
    };
    if groups == 0 || heads % groups != 0 {
        return Err(c.error(format!("{heads} heads of queries for {groups} of keys")));
    }
    let repeated =
        |x: &Tensor| if groups == heads { Ok(x.clone()) } else { x.repeat_interleave(heads / groups, 1) };
    let (key, value) = (repeated(&key)?, repeated(&value)?);
    let scale = c.number_or("scale", 1.0 / (size as f64).sqrt())?;
    let stage = c.int_or("qk_matmul_output_mode", 0)?;
    // The root of the scale on both sides, so that products of half types do not overflow.
    let root = scale.sqrt();
    let mut scores = query.mul_scalar(root).matmul(&key.transpose(-1, -2)?.mul_scalar(root))?;
    let mut shown = scores.clone();
    if let Some(cap) = c.number("softcap")?.filter(|&cap| cap > 0.0) {
        scores = scores.div_scalar(cap).tanh().mul_scalar(cap);
    }
    if stage == 2 {
        shown = scores.clone();
    }
    if let Some(mask) = c.optional_tensor(3)? {
        let mut mask = mask;
        let short = total.saturating_sub(mask.dims().last().copied().unwrap_or(total));
        if mask.dtype().is_bool() {
            let below = Tensor::full((), f64::NEG_INFINITY, (scores.dtype(), c.device()))?;
            mask = mask.where_cond(&below.zeros_like(), &below)?;
        }
        if short > 0 {
            let mut padding = vec![(0, 0); mask.rank()];
            padding[mask.rank() - 1] = (0, short);
            mask = mask.pad(&padding, f64::NEG_INFINITY)?;
        }
        scores = scores.add(&mask.to_dtype(scores.dtype())?)?;
    }
    if c.flag("is_causal", false)? {
        let ones = Tensor::ones([steps, total], (DType::F32, c.device()))?.triu(past as i32 + 1)?;
        scores =
            scores.masked_fill(&ones.to_dtype(DType::Bool)?.expand(scores.shape())?, f64::NEG_INFINITY)?;
    }
    if stage == 1 {
        shown = scores.clone();
    }
    let wide =
        match c.int("softmax_precision")?.map(|n| i32::try_from(n).ok().and_then(crate::DataType::from_onnx))
        {
            Some(Some(crate::DataType::Tensor(dtype))) => dtype,
            _ => scores.dtype(),
        };
    let probabilities = scores.to_dtype(wide)?.softmax(-1)?.to_dtype(scores.dtype())?;
    if stage == 3 {
        shown = probabilities.clone();
    }
    let mut y = probabilities.matmul(&value)?;
    if flat {
        let width = heads * y.dims()[3];
        y = y.transpose(1, 2)?.reshape([n, steps, width])?;
    }
    all([y, present.0, present.1, shown])
}

/// Pairs of numbers turned by angles that a cache holds for each position.
fn rotary(c: &Context<'_>) -> Result<Vec<Value>> {
    let input = c.tensor(0)?;
    let x = by_head(c, input.clone(), "num_heads")?;
    let (mut cos, mut sin) = (c.tensor(1)?, c.tensor(2)?);
    let &[n, _, steps, size] = x.dims() else { return Err(c.error("the input is [N, heads, T, size]")) };
    let turned = match usize::try_from(c.int_or("rotary_embedding_dim", 0)?) {
        Ok(count) if count > 0 => count.min(size),
        _ => size,
    };
    let half = turned / 2;
    if let Some(positions) = c.optional_tensor(3)? {
        let index = positions.to_dtype(c.index_dtype())?.flatten_all();
        let rows = |cache: &Tensor| {
            let shape = [n, steps, cache.dims().get(1).copied().unwrap_or(0)];
            cache.index_select(0, &index)?.reshape(shape)
        };
        (cos, sin) = (rows(&cos)?, rows(&sin)?);
    }
    let (cos, sin) = (cos.narrow(-1, 0, half)?.unsqueeze(1)?, sin.narrow(-1, 0, half)?.unsqueeze(1)?);
    let part = x.narrow(-1, 0, turned)?;
    let interleaved = c.flag("interleaved", false)?;
    let (a, b) = if interleaved {
        let pairs = part.reshape([n, x.dims()[1], steps, half, 2])?;
        (pairs.select(-1, 0)?, pairs.select(-1, 1)?)
    } else {
        (part.narrow(-1, 0, half)?, part.narrow(-1, half, half)?)
    };
    let (real, imaginary) = (a.mul(&cos)?.sub(&b.mul(&sin)?)?, a.mul(&sin)?.add(&b.mul(&cos)?)?);
    let rotated = if interleaved {
        Tensor::stack(&[real, imaginary], -1)?.reshape(part.dims())?
    } else {
        Tensor::concat(&[real, imaginary], -1)?
    };
    let y = Tensor::concat(&[rotated, x.narrow(-1, turned, size - turned)?], -1)?;
    one(if input.rank() == 3 { y.transpose(1, 2)?.reshape(input.dims())? } else { y })
}
