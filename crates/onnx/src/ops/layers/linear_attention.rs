//! Attention with a state of fixed size in place of keys and values of before, and the convolution that such
//! networks have in front of it.

use nn::functional::{ConvOptions, conv1d};
use tensor_core::{DType, Result, Tensor};

use crate::{
    context::Context,
    ops::{Row, all},
    value::Value,
};

pub(crate) const TABLE: &[Row] =
    &[("", "CausalConvWithState", 27, causal_conv), ("", "LinearAttention", 27, linear_attention)];

/// A convolution of each channel over now and before: the input `[N, C, T]` after the state `[N, C, k − 1]`,
/// which is zeros at first; also gives the state for the next call.
fn causal_conv(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, weight, bias) = (c.tensor(0)?, c.tensor(1)?, c.optional_tensor(2)?);
    let (&[n, channels, _], &[_, 1, window]) = (x.dims(), weight.dims()) else {
        let message =
            format!("an input {} and a weight {}; [N, C, T] and [C, 1, k]", x.shape(), weight.shape());
        return Err(c.error(message));
    };
    if window == 0 {
        return Err(c.error(format!("a weight {} without elements", weight.shape())));
    }
    let state = match c.optional_tensor(3)? {
        Some(state) => state,
        None => Tensor::zeros([n, channels, window - 1], (x.dtype(), c.device()))?,
    };
    let padded = Tensor::concat(&[state, x], 2)?;
    let mut y =
        conv1d(&padded, &weight, bias.as_ref(), ConvOptions { groups: channels, ..Default::default() })?;
    match c.text_or("activation", "none")? {
        "none" => {}
        "silu" | "swish" => y = y.silu(),
        other => return Err(c.error(format!("activation \"{other}\"; none, silu and swish are known"))),
    }
    let length = padded.dims()[2];
    let state = padded.narrow(2, length + 1 - window, window - 1)?;
    all([y, state])
}

/// `[N, T, heads·size]` as `[N, heads, T, size]` in f32 at least.
fn by_head(c: &Context<'_>, x: &Tensor, heads: usize, what: &str) -> Result<Tensor> {
    match x.dims() {
        &[n, t, width] if width % heads == 0 => {
            x.to_dtype(DType::F32.promote(x.dtype()))?.reshape([n, t, heads, width / heads])?.transpose(1, 2)
        }
        _ => Err(c.error(format!("{what} {} for {heads} heads; it is [N, T, heads·size]", x.shape()))),
    }
}

/// A state `[N, heads, size of keys, size of values]` that each step decays and to which it adds the product
/// of its key and its value; the query reads it. The delta rule first takes away what the key reads, see Yang
/// et al.: Gated delta networks (2024).
fn linear_attention(c: &Context<'_>) -> Result<Vec<Value>> {
    let heads = |name: &str| -> Result<usize> {
        let count = c.int(name)?.and_then(|count| usize::try_from(count).ok()).filter(|&count| count > 0);
        count.ok_or_else(|| c.error(format!("{name} is missing, or not above 0")))
    };
    let (query_heads, groups) = (heads("q_num_heads")?, heads("kv_num_heads")?);
    if query_heads % groups != 0 {
        return Err(c.error(format!("{query_heads} heads of queries for {groups} of keys")));
    }
    let (gated, delta) = match c.text_or("update_rule", "gated_delta")? {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => {
            let message = format!("update_rule \"{other}\"; linear, gated, delta and gated_delta are known");
            return Err(c.error(message));
        }
    };
    let dtype = c.tensor(0)?.dtype();
    let query = by_head(c, &c.tensor(0)?, query_heads, "a query")?;
    let key = by_head(c, &c.tensor(1)?, groups, "a key")?;
    let value = by_head(c, &c.tensor(2)?, groups, "a value")?;
    let (&[n, _, steps, size], width) = (query.dims(), value.dims()[3]) else {
        return Err(c.error("the query is [N, T, heads·size]"));
    };
    // A number for each head has an axis of one, which broadcasts.
    let decay = if gated { Some(by_head(c, &c.tensor(4)?, groups, "a decay")?.exp()) } else { None };
    let beta = c.optional_tensor(5)?.filter(|_| delta);
    let of_each = |beta: &Tensor| beta.dims().last().map_or(1, |&heads| heads.clamp(1, groups));
    let beta = beta.map(|beta| by_head(c, &beta, of_each(&beta), "a rate")).transpose()?;
    if delta && beta.is_none() {
        return Err(c.error("the delta rule needs the input beta"));
    }
    let given = c.optional_tensor(3)?;
    let held = given.as_ref().map_or(dtype, Tensor::dtype);
    let mut state = match given {
        Some(state) => state.to_dtype(query.dtype())?,
        None => Tensor::zeros([n, groups, size, width], (query.dtype(), c.device()))?,
    };
    let scale = match c.number_or("scale", 0.0)? {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => scale,
    };
    let mut outputs = Vec::with_capacity(steps);
    for step in 0..steps {
        let at = |x: &Tensor| x.narrow(2, step, 1);
        let column = at(&key)?.transpose(-1, -2)?;
        if let Some(decay) = &decay {
            state = state.mul(&at(decay)?.transpose(-1, -2)?)?;
        }
        let mut value = at(&value)?;
        if let Some(beta) = &beta {
            value = value.sub(&at(&key)?.matmul(&state)?)?.mul(&at(beta)?)?;
        }
        state = state.add(&column.mul(&value)?)?;
        // The heads of queries that share a state are the rows of one product.
        let rows = at(&query)?.reshape([n, groups, query_heads / groups, size])?;
        outputs.push(rows.matmul(&state)?.reshape([n, 1, query_heads * width])?);
    }
    let y = Tensor::concat(&outputs, 1)?.mul_scalar(scale).to_dtype(dtype)?;
    all([y, state.to_dtype(held)?])
}
