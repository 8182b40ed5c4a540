//! Attention without a cache: heads, masks, soft caps. With a cache, see `cache.rs`.

use nn::functional::{AttentionOptions, scaled_dot_product_attention};
use tensor_core::{DType, Device, Error, Result, Tensor};

use crate::config::check_counts;

/// Which keys a query sees.
#[derive(Clone, Debug)]
pub enum Masking {
    /// All.
    Full,
    /// Those up to its own position; queries and keys have the same positions.
    Causal,
    /// Those that are true in a mask that broadcasts to `[N, heads, L, S]`.
    Mask(Tensor),
}

/// Fails unless the heads divide the width.
pub(crate) fn check_heads(model: &'static str, width: usize, heads: usize) -> Result<()> {
    check_counts(model, &[("the number of heads", heads), ("the width", width)])?;
    match width.is_multiple_of(heads) {
        true => Ok(()),
        false => Err(Error::invalid(model, format!("{heads} heads do not divide a width of {width}"))),
    }
}

/// The rows of a table of positions for `length` tokens after `first`, less the padding of each row of the
/// batch: `[1 or N, L]`. The first position has the row `offset`.
#[track_caller]
pub(crate) fn positions(
    first: usize,
    length: usize,
    offset: usize,
    pads: &[usize],
    device: &Device,
) -> Result<Tensor> {
    let rows: &[usize] = if pads.is_empty() { &[0] } else { pads };
    let row = |pad: &usize| {
        let pad = *pad;
        (first..first + length).map(move |at| (at.saturating_sub(pad) + offset) as i32)
    };
    Tensor::from_vec(rows.iter().flat_map(row).collect(), [rows.len(), length], device)
}

/// A table of learned positions: its rows that are positions, and the row of the first one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PositionTable {
    pub(crate) model: &'static str,
    pub(crate) count: usize,
    pub(crate) offset: usize,
}

impl PositionTable {
    /// The rows for `length` positions from `first`, as [`positions`].
    ///
    /// # Errors
    /// More positions than the table has.
    #[track_caller]
    pub(crate) fn rows(self, first: usize, length: usize, pads: &[usize], device: &Device) -> Result<Tensor> {
        if first + length > self.count {
            let message = format!("{} tokens, of at most {}", first + length, self.count);
            return Err(Error::invalid(self.model, message));
        }
        positions(first, length, self.offset, pads, device)
    }
}

/// A mask of keys `[N, S]` as `[N, 1, 1, S]` of bool.
#[track_caller]
pub(crate) fn keys_mask(model: &'static str, mask: &Tensor) -> Result<Tensor> {
    let &[batch, length] = mask.dims() else {
        return Err(Error::invalid(model, format!("a mask has the axes [N, L], not {}", mask.shape())));
    };
    mask.to_dtype(DType::Bool)?.reshape([batch, 1, 1, length])
}

/// Splits `[N, L, heads · E]` into `[N, heads, L, E]`.
#[track_caller]
pub(crate) fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let &[batch, length, width] = x.dims() else {
        let message = format!("features of heads have the axes [N, L, features], not {}", x.shape());
        return Err(Error::invalid("attention", message));
    };
    x.reshape([batch, length, heads, width / heads])?.transpose(1, 2)
}

/// Joins `[N, heads, L, E]` to `[N, L, heads · E]`.
#[track_caller]
pub(crate) fn join_heads(x: &Tensor) -> Result<Tensor> {
    let dims = x.dims();
    let (batch, heads, length, width) = (dims[0], dims[1], dims[2], dims[3]);
    x.transpose(1, 2)?.reshape([batch, length, heads * width])
}

/// How the products of queries and keys become weights.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scoring<'a> {
    /// The factor of the products.
    pub(crate) scale: f64,
    /// With a cap of c, a score x becomes c · tanh(x / c).
    pub(crate) softcap: Option<f64>,
    /// The score `[heads]` of a key that each query sees and whose value is 0 (gpt-oss).
    pub(crate) sinks: Option<&'a Tensor>,
}

/// softmax(cap(query · keyᵀ · scale)) · value, where cap(x) is c · tanh(x / c) for a `softcap` c, and x
/// without. Query `[N, heads, L, E]`, key `[N, groups, S, E]`, value `[N, groups, S, V]`; the number of
/// groups divides that of heads. The result is `[N, heads, L, V]`.
///
/// # Errors
/// As [`scaled_dot_product_attention`].
#[track_caller]
pub fn attend(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    scale: f64,
    softcap: Option<f64>,
    masking: &Masking,
) -> Result<Tensor> {
    attend_by([query, key, value], Scoring { scale, softcap, sinks: None }, masking)
}

/// [`attend`] with any [`Scoring`].
#[track_caller]
pub(crate) fn attend_by(
    [query, key, value]: [&Tensor; 3],
    scoring: Scoring<'_>,
    masking: &Masking,
) -> Result<Tensor> {
    let Scoring { scale, softcap, sinks } = scoring;
    if softcap.is_none() && sinks.is_none() {
        let (mask, is_causal) = match masking {
            Masking::Full => (None, false),
            Masking::Causal => (None, true),
            Masking::Mask(mask) => (Some(mask), false),
        };
        let enable_gqa = query.dims()[1] != key.dims()[1];
        let options = AttentionOptions { mask, is_causal, scale: Some(scale), enable_gqa, dropout: None };
        return scaled_dot_product_attention(query, key, value, options);
    }
    let (batch, heads, rows, width) = (query.dims()[0], query.dims()[1], query.dims()[2], query.dims()[3]);
    let groups = key.dims()[1];
    let query = query.reshape([batch, groups, heads / groups, rows, width])?;
    let scores = scoring.capped(&query.matmul(&key.unsqueeze(2)?.transpose(-1, -2)?)?);
    let mask = match masking {
        Masking::Full => None,
        Masking::Causal => Some(causal_mask(0, rows, 0, rows, None, &[], &query.device())?),
        Masking::Mask(mask) => Some(mask.clone()),
    };
    let scores = match mask {
        Some(mask) if mask.rank() == 4 => {
            scores.masked_fill(&mask.logical_not().unsqueeze(2)?, f64::NEG_INFINITY)?
        }
        Some(mask) => scores.masked_fill(&mask.logical_not(), f64::NEG_INFINITY)?,
        None => scores,
    };
    let out = scoring.weights(&scores, groups)?.matmul(&value.unsqueeze(2)?)?;
    let last = value.dims()[3];
    out.reshape([batch, heads, rows, last])
}

impl Scoring<'_> {
    /// The scores of products.
    pub(crate) fn capped(self, products: &Tensor) -> Tensor {
        match self.softcap {
            Some(cap) => products.mul_scalar(self.scale / cap).tanh().mul_scalar(cap),
            None => products.mul_scalar(self.scale),
        }
    }

    /// The weights of scores `[N, groups, heads of a group, L, keys]`, or with the heads and the queries of a
    /// group as one axis.
    #[track_caller]
    pub(crate) fn weights(self, scores: &Tensor, groups: usize) -> Result<Tensor> {
        let Some(sinks) = self.sinks else { return scores.softmax(-1) };
        let mut shape = scores.dims().to_vec();
        let (keys, last) = (shape[shape.len() - 1], shape.len() - 1);
        shape[last] = 1;
        let per_group = sinks.numel() / groups.max(1);
        // [groups, heads of a group, queries of a head, 1]
        let sinks = sinks.to_dtype(scores.dtype())?.reshape([groups, per_group, 1, 1])?;
        let queries = shape[2..].iter().product::<usize>() / per_group.max(1);
        let sinks = sinks.expand([shape[0], groups, per_group, queries, 1])?.reshape(shape)?;
        Tensor::concat(&[scores, &sinks], -1)?.softmax(-1)?.narrow(-1, 0, keys)
    }
}

/// 1/√E for queries `[N, heads, L, E]`.
pub(crate) fn default_scale(query: &Tensor) -> f64 {
    (query.dims()[3] as f64).powf(-0.5)
}

/// [`attend`] for heads that are not split, without a mask, with the default scale: queries `[N, L, heads ·
/// E]`, keys and values `[N, S, heads · E]`, the result `[N, L, heads · E]`.
#[track_caller]
pub(crate) fn multi_head_attention([query, key, value]: [&Tensor; 3], heads: usize) -> Result<Tensor> {
    let [query, key, value] =
        [split_heads(query, heads)?, split_heads(key, heads)?, split_heads(value, heads)?];
    join_heads(&attend(&query, &key, &value, default_scale(&query), None, &Masking::Full)?)
}

/// A mask for queries at positions `first..first + rows` of keys at positions `start..start + keys`, `[rows,
/// keys]`: true up to the query's position and, with a window of w, for the last w of these. With `pads` the
/// mask is `[N, 1, rows, keys]`, and row n does not see its first `pads[n]` positions (a query in the padding
/// sees its own position).
#[track_caller]
pub(crate) fn causal_mask(
    first: usize,
    rows: usize,
    start: usize,
    keys: usize,
    window: Option<usize>,
    pads: &[usize],
    device: &Device,
) -> Result<Tensor> {
    let one = [0];
    let each: &[usize] = if pads.is_empty() { &one } else { pads };
    let mut seen = Vec::with_capacity(each.len() * rows * keys);
    for pad in each {
        for query in first..first + rows {
            let least = window.map_or(0, |window| (query + 1).saturating_sub(window)).max((*pad).min(query));
            seen.extend((start..start + keys).map(|key| key <= query && key >= least));
        }
    }
    match pads.is_empty() {
        true => Tensor::from_vec(seen, [rows, keys], device),
        false => Tensor::from_vec(seen, [pads.len(), 1, rows, keys], device),
    }
}

/// The masking of a sequence of `length` without a cache.
#[track_caller]
pub(crate) fn causal_masking(length: usize, window: Option<usize>, device: &Device) -> Result<Masking> {
    match window {
        Some(window) if window < length => {
            Ok(Masking::Mask(causal_mask(0, length, 0, length, Some(window), &[], device)?))
        }
        _ => Ok(Masking::Causal),
    }
}
