//! Attention and positions by rotation.

use tensor_core::{DType, Result, Tensor};

use crate::{
    context::Context,
    ops::{Row, all, one},
    value::{DataType, Value},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "Attention", 23, attention),
    ("", "RotaryEmbedding", 23, rotary),
    ("ai.onnx.preview", "FlexAttention", 1, flex_attention),
];

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

/// softmax(cap(scale·QKᵀ) + bias)·V, with keys and values of before in front, and grouped heads. Also gives
/// keys and values of now and before, and the products at a stage that an attribute names.
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
    let (&[n, heads, steps, _], &[_, _, total, _]) = (query.dims(), key.dims()) else {
        return Err(c.error("queries and keys are [N, heads, T, size]"));
    };
    let (key, value) = (repeated(c, &key, heads)?, repeated(c, &value, heads)?);
    let stage = c.int_or("qk_matmul_output_mode", 0)?;
    let mut scores = products(c, &query, &key)?;
    let mut shown = scores.clone();
    if let Some(cap) = c.number("softcap")?.filter(|&cap| cap > 0.0) {
        scores = scores.div_scalar(cap).tanh().mul_scalar(cap);
    }
    if stage == 1 {
        shown = scores.clone();
    }
    let bias = bias(c, &scores, [steps, total], past)?;
    if let Some(bias) = &bias {
        scores = scores.add(bias)?;
    }
    if stage == 2 {
        shown = scores.clone();
    }
    let wide = softmax_dtype(c)?.unwrap_or(scores.dtype());
    let mut probabilities = scores.to_dtype(wide)?.softmax(-1)?.to_dtype(scores.dtype())?;
    if let Some(bias) = &bias {
        // A row without any key gives zeros, not NaN.
        let masked = bias.amax(-1, true)?.eq_scalar(f64::NEG_INFINITY);
        probabilities = masked.where_cond(&probabilities.zeros_like(), &probabilities)?;
    }
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

/// Keys or values `[N, groups, T, size]`, each group for as many heads of queries.
pub(crate) fn repeated(c: &Context<'_>, x: &Tensor, heads: usize) -> Result<Tensor> {
    let groups = x.dims()[1];
    if groups == 0 || !heads.is_multiple_of(groups) {
        return Err(c.error(format!("{heads} heads of queries for {groups} of keys")));
    }
    if groups == heads { Ok(x.clone()) } else { x.repeat_interleave(heads / groups, 1) }
}

/// scale·QKᵀ. The root of the scale is on both sides, so that products of half types do not overflow.
fn products(c: &Context<'_>, query: &Tensor, key: &Tensor) -> Result<Tensor> {
    let size = query.dims()[3];
    let root = c.number_or("scale", 1.0 / (size as f64).sqrt())?.sqrt();
    query.mul_scalar(root).matmul(&key.transpose(-1, -2)?.mul_scalar(root))
}

/// The dtype in which an attribute asks for the softmax.
fn softmax_dtype(c: &Context<'_>) -> Result<Option<DType>> {
    let Some(number) = c.int("softmax_precision")? else { return Ok(None) };
    match i32::try_from(number).ok().and_then(DataType::from_onnx) {
        Some(DataType::Tensor(dtype)) if dtype.is_float() => Ok(Some(dtype)),
        _ => Err(c.error(format!("softmax_precision {number} is no type of floats"))),
    }
}

/// The sum of all masks, which broadcasts to the scores `[N, heads, steps, total]`: −∞ where a query does not
/// see a key. A query's position is its number plus that of the keys before the first query: `past`, or in a
/// cache of its own the number of valid keys less the queries.
fn bias(c: &Context<'_>, scores: &Tensor, [steps, total]: [usize; 2], past: usize) -> Result<Option<Tensor>> {
    let below = Tensor::full((), f64::NEG_INFINITY, (scores.dtype(), c.device()))?;
    let mut bias = None;
    if let Some(mut mask) = c.optional_tensor(3)? {
        if mask.dtype().is_bool() {
            mask = mask.where_cond(&below.zeros_like(), &below)?;
        }
        let short = total.saturating_sub(mask.dims().last().copied().unwrap_or(total));
        if short > 0 {
            let mut padding = vec![(0, 0); mask.rank()];
            padding[mask.rank() - 1] = (0, short);
            mask = mask.pad(&padding, f64::NEG_INFINITY)?;
        }
        bias = Some(mask.to_dtype(scores.dtype())?);
    }
    let valid = c.optional_tensor(6)?;
    let valid = valid.map(|n| n.to_dtype(c.index_dtype())?.reshape([n.numel(), 1, 1, 1])).transpose()?;
    let line = |count: usize| Tensor::arange(0, count as i64, 1, (c.index_dtype(), c.device()));
    let (queries, keys) = (line(steps)?.unsqueeze(1)?, line(total)?.unsqueeze(0)?);
    let positions = match &valid {
        Some(valid) if c.input(4).is_none() => queries.add(&valid.sub_scalar(steps as i64))?,
        _ => queries.add_scalar(past as i64),
    };
    let distance = positions.sub(&keys)?;
    let (left, right) = (c.int_or("left_window_size", -1)?, c.int_or("right_window_size", -1)?);
    let mut seen = Vec::new();
    if c.flag("is_causal", false)? {
        seen.push(distance.ge_scalar(0));
    }
    if left >= 0 {
        seen.push(distance.le_scalar(left));
    }
    if right >= 0 {
        seen.push(distance.ge_scalar(-right));
    }
    if let Some(valid) = &valid {
        seen.push(keys.lt(valid)?);
    }
    for seen in seen {
        let mask = seen.where_cond(&below.zeros_like(), &below)?;
        bias = Some(match bias {
            Some(bias) => bias.add(&mask)?,
            None => mask,
        });
    }
    Ok(bias)
}

/// Attention with graphs that change the scores and the probabilities; both are f32 at least unless an
/// attribute names another type.
fn flex_attention(c: &Context<'_>) -> Result<Vec<Value>> {
    let (query, key, value) = (c.tensor(0)?, c.tensor(1)?, c.tensor(2)?);
    if [&query, &key, &value].iter().any(|x| x.rank() != 4) {
        return Err(c.error("queries, keys and values are [N, heads, T, size]"));
    }
    let heads = query.dims()[1];
    let wide = softmax_dtype(c)?.unwrap_or(DType::F32.promote(query.dtype()));
    let changed = |x: Tensor, name: &str| -> Result<Tensor> {
        if !c.has(name) {
            return Ok(x);
        }
        let outputs = c.run_graph(&*c.graph(name)?, vec![Some(x.into())])?;
        let [output] = outputs.as_slice() else {
            return Err(c.error(format!("{name} has {} outputs, not one", outputs.len())));
        };
        output.to_tensor(c.device())
    };
    let scores = products(c, &query, &repeated(c, &key, heads)?)?.to_dtype(wide)?;
    let probabilities = changed(changed(scores, "score_mod")?.softmax(-1)?, "prob_mod")?;
    let y = probabilities.to_dtype(wide)?.matmul(&repeated(c, &value, heads)?.to_dtype(wide)?)?;
    one(y.to_dtype(value.dtype())?)
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
    let y = rotated(&x, &cos, &sin, c.flag("interleaved", false)?)?;
    one(if input.rank() == 3 { y.transpose(1, 2)?.reshape(input.dims())? } else { y })
}

/// Heads `[N, heads, T, size]` with pairs of numbers turned by angles, whose cosines and sines `[N, 1, T,
/// half]` broadcast; numbers beyond those of the angles stay. A pair is of neighbours if `interleaved`, or of
/// a number and the one `half` after it.
pub(crate) fn rotated(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
    let (size, half) = (x.dims()[3], cos.dims().last().copied().unwrap_or(0));
    let turned = (2 * half).min(size);
    let part = x.narrow(-1, 0, turned)?;
    let (a, b) = if interleaved {
        let mut pairs = x.dims()[..3].to_vec();
        pairs.extend([half, 2]);
        let pairs = part.reshape(pairs)?;
        (pairs.select(-1, 0)?, pairs.select(-1, 1)?)
    } else {
        (part.narrow(-1, 0, half)?, part.narrow(-1, half, half)?)
    };
    let (real, imaginary) = (a.mul(cos)?.sub(&b.mul(sin)?)?, a.mul(sin)?.add(&b.mul(cos)?)?);
    let rotated = if interleaved {
        Tensor::stack(&[real, imaginary], -1)?.reshape(part.dims())?
    } else {
        Tensor::concat(&[real, imaginary], -1)?
    };
    if turned == size {
        Ok(rotated)
    } else {
        Tensor::concat(&[rotated, x.narrow(-1, turned, size - turned)?], -1)
    }
}
