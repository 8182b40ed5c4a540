//! Attention in ONNX Runtime's own domain, as exported language models have it: with projections, masks by
//! lengths, caches of keys and values, grouped heads, and positions by rotation.

use nn::functional::{AttentionOptions, scaled_dot_product_attention};
use tensor_core::{DType, Result, Tensor};

use crate::{
    context::Context,
    ops::{
        Row, all,
        layers::attention::{repeated, rotated},
        one,
        quantized::centred,
    },
    value::Value,
};

const DOMAIN: &str = "com.microsoft";

pub(crate) const TABLE: &[Row] = &[
    (DOMAIN, "Attention", 1, projected),
    (DOMAIN, "EmbedLayerNormalization", 1, embedded),
    (DOMAIN, "GroupQueryAttention", 1, group_query),
    (DOMAIN, "MultiHeadAttention", 1, multi_head),
    (DOMAIN, "QAttention", 1, quantized),
    (DOMAIN, "RotaryEmbedding", 1, rotary),
];

/// The greatest number of heads, so that sums and products of it are numbers.
const MAX_HEADS: usize = 1 << 16;

/// Refuses inputs from `first` on, and attributes other than 0, that change the results and are not
/// supported.
pub(crate) fn refuse(c: &Context<'_>, first: usize, attributes: &[&str]) -> Result<()> {
    if let Some(input) = (first..c.input_count()).find(|&input| c.input(input).is_some()) {
        return Err(c.error(format!("input {input} is not supported; export the model without it")));
    }
    for name in attributes {
        if c.int_or(name, 0)? != 0 {
            return Err(c.error(format!("{name} is not supported; export the model without it")));
        }
    }
    Ok(())
}

/// A number of heads, an attribute.
fn heads(c: &Context<'_>, name: &str) -> Result<usize> {
    let count = c.int(name)?.and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| (1..=MAX_HEADS).contains(count));
    count.ok_or_else(|| c.error(format!("{name} is missing, or not from 1 to {MAX_HEADS}")))
}

/// `[N, T, heads·size]` as `[N, heads, T, size]`; four axes are such already.
fn by_head(c: &Context<'_>, x: &Tensor, heads: usize) -> Result<Tensor> {
    match x.dims() {
        [_, own, _, _] if *own == heads => Ok(x.clone()),
        &[n, t, width] if width % heads == 0 => x.reshape([n, t, heads, width / heads])?.transpose(1, 2),
        _ => Err(c.error(format!("an input {} for {heads} heads; it is [N, T, heads·size]", x.shape()))),
    }
}

/// `[N, heads, T, size]` as `[N, T, heads·size]`.
fn flat(x: &Tensor) -> Result<Tensor> {
    match x.dims() {
        &[n, heads, t, size] => x.transpose(1, 2)?.reshape([n, t, heads * size]),
        _ => Ok(x.clone()),
    }
}

/// The numbers 0 to `count`.
fn line(c: &Context<'_>, count: usize) -> Result<Tensor> {
    Tensor::arange(0, count as i64, 1, (c.index_dtype(), c.device()))
}

/// 0 where a key is seen, and `hidden` elsewhere, in the dtype of `like`.
fn shares(seen: &Tensor, hidden: f64, like: &Tensor) -> Result<Tensor> {
    let hidden = Tensor::full((), hidden, (like.dtype(), &like.device()))?;
    seen.where_cond(&hidden.zeros_like(), &hidden)
}

fn sum(a: Option<Tensor>, b: Option<Tensor>) -> Result<Option<Tensor>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(a.add(&b)?),
        (a, b) => a.or(b),
    })
}

/// Which keys of now and before a query sees, `[steps, total]`: those up to its own position.
fn up_to_own(c: &Context<'_>, steps: usize, total: usize) -> Result<Tensor> {
    let positions = line(c, steps)?.add_scalar(total.saturating_sub(steps) as i64).unsqueeze(1)?;
    line(c, total)?.unsqueeze(0)?.le(&positions)
}

/// The share of the input `at` in the scores: a key is seen or not `[N, T]`, a query and a key are `[N, S,
/// T]`, or the numbers of valid keys `[N]`, or those and the numbers of keys left out at the start `[2·N]`.
fn mask(c: &Context<'_>, at: usize, query: &Tensor, total: usize) -> Result<Option<Tensor>> {
    let Some(mask) = c.optional_tensor(at)? else { return Ok(None) };
    let mask = mask.to_dtype(c.index_dtype())?;
    let (n, hidden) = (query.dims()[0], c.number_or("mask_filter_value", -10000.0)?);
    let key = || line(c, total)?.unsqueeze(0);
    let before = |ends: &Tensor| key()?.lt(&ends.reshape([n, 1])?);
    let seen = match *mask.dims() {
        [own, keys] if own == n && keys == total => mask.ne_scalar(0).reshape([n, 1, 1, total])?,
        [own, steps, keys] if own == n && keys == total => mask.ne_scalar(0).reshape([n, 1, steps, total])?,
        [count] if count == n => before(&mask)?.reshape([n, 1, 1, total])?,
        [count] if count == 2 * n => {
            let (ends, starts) = (mask.narrow(0, 0, n)?, mask.narrow(0, n, n)?.reshape([n, 1])?);
            before(&ends)?.logical_and(&key()?.ge(&starts)?)?.reshape([n, 1, 1, total])?
        }
        _ => {
            let message = format!(
                "a mask {} for {n} sequences of {total} keys; [N], [2·N], [N, T] and [N, S, T] are known",
                mask.shape()
            );
            return Err(c.error(message));
        }
    };
    shares(&seen, hidden, query).map(Some)
}

/// Attention of heads `[N, heads, T, size]` with a share in the scores, `[N, T, heads·size]`.
fn attend(
    c: &Context<'_>,
    query: &Tensor,
    (key, value): (&Tensor, &Tensor),
    share: Option<&Tensor>,
    is_causal: bool,
) -> Result<Tensor> {
    // A scale of 0 stands for the default.
    let scale = c.number("scale")?.filter(|&scale| scale != 0.0);
    let mask = match share {
        Some(share) => {
            let &[n, heads, steps, _] = query.dims() else { return Err(c.error("no heads")) };
            Some(share.expand([n, heads, steps, key.dims()[2]])?)
        }
        None => None,
    };
    let options =
        AttentionOptions { mask: mask.as_ref(), is_causal, scale, enable_gqa: true, ..Default::default() };
    flat(&scaled_dot_product_attention(query, key, value, options)?)
}

/// Keys or values of before, and those of now.
fn after(past: Option<&Tensor>, now: Tensor) -> Result<Tensor> {
    match past {
        Some(past) => Tensor::concat(&[past.clone(), now], 2),
        None => Ok(now),
    }
}

/// Attention of queries, keys and values that are given, or packed into one or two inputs, with biases.
fn multi_head(c: &Context<'_>) -> Result<Vec<Value>> {
    refuse(c, 8, &[])?;
    let count = heads(c, "num_heads")?;
    let query = c.tensor(0)?;
    let (key, value) = (c.optional_tensor(1)?, c.optional_tensor(2)?);
    // Packed ones are [N, T, heads, parts, size].
    let part = |x: &Tensor, k: usize| x.select(3, k as isize)?.transpose(1, 2);
    let [mut query, mut key, mut value] = match (key, value) {
        (None, _) if query.rank() == 5 => [part(&query, 0)?, part(&query, 1)?, part(&query, 2)?],
        (Some(key), None) if key.rank() == 5 => [by_head(c, &query, count)?, part(&key, 0)?, part(&key, 1)?],
        (Some(key), Some(value)) => {
            [by_head(c, &query, count)?, by_head(c, &key, count)?, by_head(c, &value, count)?]
        }
        _ => return Err(c.error("a key or a value is missing, and none is packed beside the query")),
    };
    if let Some(bias) = c.optional_tensor(3)? {
        let mut start = 0;
        for x in [&mut query, &mut key, &mut value] {
            let size = x.dims()[3];
            let own = bias.narrow(0, start, count * size)?.reshape([1, count, 1, size])?;
            *x = x.add(&own)?;
            start += count * size;
        }
    }
    let (key, value) =
        (after(c.optional_tensor(6)?.as_ref(), key)?, after(c.optional_tensor(7)?.as_ref(), value)?);
    let (steps, total) = (query.dims()[2], key.dims()[2]);
    let mut share = sum(mask(c, 4, &query, total)?, c.optional_tensor(5)?)?;
    let causal = c.flag("unidirectional", false)?;
    let is_square = causal && steps == total && share.is_none();
    if causal && !is_square {
        let hidden = shares(&up_to_own(c, steps, total)?, f64::NEG_INFINITY, &query)?;
        share = sum(share, Some(hidden))?;
    }
    let y = attend(c, &query, (&key, &value), share.as_ref(), is_square)?;
    all([y, key, value])
}

/// Attention whose queries, keys and values are one product of the input with a weight.
fn projected(c: &Context<'_>) -> Result<Vec<Value>> {
    refuse(c, 6, &["do_rotary", "past_present_share_buffer"])?;
    let projections = c.tensor(0)?.matmul(&c.tensor(1)?)?;
    let projections = match c.optional_tensor(2)? {
        Some(bias) => projections.add(&bias)?,
        None => projections,
    };
    of_projections(c, &projections, [3, 4, 5])
}

/// [`projected`] with an input and a weight of 8-bit integers.
fn quantized(c: &Context<'_>) -> Result<Vec<Value>> {
    refuse(c, 9, &["do_rotary", "past_present_share_buffer"])?;
    let x = centred(c, 0, 6, |_| 0)?.to_dtype(DType::F32)?;
    let weight = centred(c, 1, 7, |x| x.rank().saturating_sub(1))?.to_dtype(DType::F32)?;
    let scale = c.tensor(3)?.mul(&c.tensor(4)?)?;
    let projections = x.matmul(&weight)?.mul(&scale)?.add(&c.tensor(2)?)?;
    of_projections(c, &projections, [5, 8, usize::MAX])
}

/// Attention of projections `[N, T, queries + keys + values]`. The numbers are those of the inputs with the
/// mask, with keys and values of before, and with a share in the scores.
fn of_projections(
    c: &Context<'_>,
    projections: &Tensor,
    [of_mask, of_past, of_share]: [usize; 3],
) -> Result<Vec<Value>> {
    let count = heads(c, "num_heads")?;
    let width = projections.dims().last().copied().unwrap_or(0);
    let sizes = match c.ints("qkv_hidden_sizes")?.filter(|sizes| !sizes.is_empty()) {
        Some(sizes) => crate::ops::sizes(c, &sizes)?,
        None => vec![width / 3; 3],
    };
    let &[queries, keys, values] = sizes.as_slice() else {
        return Err(c.error(format!("qkv_hidden_sizes {sizes:?}; three sizes are needed")));
    };
    if projections.rank() != 3 || queries + keys + values != width {
        return Err(c.error(format!("projections {} for the sizes {sizes:?}", projections.shape())));
    }
    let part = |start: usize, size: usize| by_head(c, &projections.narrow(2, start, size)?, count);
    let (query, key) = (part(0, queries)?, part(queries, keys)?);
    let value = part(queries + keys, values)?;
    let past = c.optional_tensor(of_past)?;
    let before = |k: isize| past.as_ref().map(|past| past.select(0, k)).transpose();
    let (key, value) = (after(before(0)?.as_ref(), key)?, after(before(1)?.as_ref(), value)?);
    let (steps, total) = (query.dims()[2], key.dims()[2]);
    let mut share = sum(mask(c, of_mask, &query, total)?, c.optional_tensor(of_share)?)?;
    let causal = c.flag("unidirectional", false)?;
    let is_square = causal && steps == total && share.is_none();
    if causal && !is_square {
        let hidden = shares(&up_to_own(c, steps, total)?, f64::NEG_INFINITY, &query)?;
        share = sum(share, Some(hidden))?;
    }
    let y = attend(c, &query, (&key, &value), share.as_ref(), is_square)?;
    if c.output_count() < 2 {
        return one(y);
    }
    all([y, Tensor::stack(&[key, value], 0)?])
}

/// The rows of a cache of angles at positions `[N, T]`: `[N, 1, T, half]`.
fn angles(c: &Context<'_>, cache: &Tensor, positions: &Tensor) -> Result<Tensor> {
    let (&[n, t], &[_, half]) = (positions.dims(), cache.dims()) else {
        let message = format!("positions {} and angles {}", positions.shape(), cache.shape());
        return Err(c.error(message + "; they are [N, T] and [positions, half a head]"));
    };
    cache.index_select(0, &positions.flatten_all())?.reshape([n, 1, t, half])
}

/// Pairs of numbers turned by the angles of their positions.
fn rotary(c: &Context<'_>) -> Result<Vec<Value>> {
    refuse(c, 4, &["is_packed_batching"])?;
    let (input, cos, sin) = (c.tensor(0)?, c.tensor(2)?, c.tensor(3)?);
    let half = cos.dims().get(1).copied().unwrap_or(0);
    let count = match (c.int_or("num_heads", 0)?, input.dims()) {
        (_, &[_, heads, _, _]) => heads,
        (0, &[_, _, width]) if half > 0 => width / (2 * half),
        (count, _) => usize::try_from(count).unwrap_or(0),
    };
    if count == 0 {
        return Err(c.error(format!("an input {} and angles {}", input.shape(), cos.shape())));
    }
    let x = by_head(c, &input, count)?;
    let (n, steps) = (x.dims()[0], x.dims()[2]);
    let mut positions = c.tensor(1)?.to_dtype(c.index_dtype())?;
    if positions.numel() == 1 {
        // The position of the first step.
        positions = positions.reshape([1, 1])?.add(&line(c, steps)?)?.expand([n, steps])?;
    }
    let (cos, sin) = (angles(c, &cos, &positions)?, angles(c, &sin, &positions)?);
    let mut y = rotated(&x, &cos, &sin, c.flag("interleaved", false)?)?;
    let scale = c.number_or("scale", 1.0)?;
    if scale != 1.0 {
        y = y.mul_scalar(scale);
    }
    one(if input.rank() == 3 { flat(&y)? } else { y })
}

/// The cache with rows at positions `[N, T]` replaced; it is made longer where it is too short.
fn cached(
    c: &Context<'_>,
    past: Option<&Tensor>,
    now: &Tensor,
    positions: &Tensor,
    length: usize,
) -> Result<Tensor> {
    let &[n, groups, steps, size] = now.dims() else { return Ok(now.clone()) };
    let mut cache = match past {
        Some(past) if past.rank() == 4 => past.clone(),
        Some(past) => return Err(c.error(format!("a cache {}; it is [N, heads, T, size]", past.shape()))),
        None => Tensor::zeros([n, groups, 0, size], (now.dtype(), &now.device()))?,
    };
    let more = length.saturating_sub(cache.dims()[2]);
    if more > 0 {
        cache = cache.pad(&[(0, 0), (0, 0), (0, more as isize), (0, 0)], 0.0)?;
    }
    cache.scatter(2, &positions.reshape([n, 1, steps, 1])?.expand(now.dims())?, now)
}

/// Attention of grouped heads with a cache, in which each sequence has its own length: `seqlens_k` is one
/// less than the number of its keys, those of now among them.
fn group_query(c: &Context<'_>) -> Result<Vec<Value>> {
    refuse(c, 16, &["kv_cache_bit_width", "qk_output", "sliding_window_cache"])?;
    if c.input(12).is_some() || c.input(13).is_some() || !c.flag("causal", true)? {
        return Err(
            c.error("caches of integers and causal = 0 are not supported; export the model without them")
        );
    }
    let (count, groups) = (heads(c, "num_heads")?, heads(c, "kv_num_heads")?);
    let input = c.tensor(0)?;
    let [query, key, value] = match (c.optional_tensor(1)?, c.optional_tensor(2)?) {
        (Some(key), Some(value)) => [input, key, value],
        _ => {
            let size = input.dims().last().copied().unwrap_or(0) / (count + 2 * groups);
            let part = |start: usize, heads: usize| input.narrow(-1, start * size, heads * size);
            [part(0, count)?, part(count, groups)?, part(count + groups, groups)?]
        }
    };
    let (mut query, mut key) = (by_head(c, &query, count)?, by_head(c, &key, groups)?);
    let value = by_head(c, &value, groups)?;
    let (n, steps) = (query.dims()[0], query.dims()[2]);
    let total = c.integer(6)?.and_then(|total| usize::try_from(total).ok());
    let total = total.filter(|&total| total >= steps);
    let total = total.ok_or_else(|| c.error(format!("no total_sequence_length of {steps} steps or more")))?;
    let is_prompt = steps == total;
    // The position of each sequence's first step.
    let starts = match c.optional_tensor(5)? {
        _ if is_prompt => Tensor::zeros([n, 1], (c.index_dtype(), c.device()))?,
        Some(last) if last.numel() == n => {
            last.to_dtype(c.index_dtype())?.reshape([n, 1])?.add_scalar(1 - steps as i64)
        }
        _ => return Err(c.error(format!("seqlens_k has not one number for each of {n} sequences"))),
    };
    let positions = starts.add(&line(c, steps)?.unsqueeze(0)?)?;
    let epsilon = c.number_or("qk_norm_epsilon", 1e-6)?;
    for (x, weight, name) in [(&mut query, 14, "q_norm_epsilon"), (&mut key, 15, "k_norm_epsilon")] {
        if let Some(weight) = c.optional_tensor(weight)? {
            let epsilon = c.number_or(name, epsilon)?;
            *x = nn::functional::rms_norm(x, weight.shape(), Some(&weight), Some(epsilon))?;
        }
    }
    if c.flag("do_rotary", false)? {
        let at = match c.optional_tensor(9)? {
            // Only the first one of a prompt counts.
            Some(given) if is_prompt => {
                positions.add(&given.flatten_all().narrow(0, 0, 1)?.to_dtype(c.index_dtype())?)?
            }
            Some(given) => given.to_dtype(c.index_dtype())?,
            None => positions.clone(),
        };
        let (cos, sin) = (angles(c, &c.tensor(7)?, &at)?, angles(c, &c.tensor(8)?, &at)?);
        let interleaved = c.flag("rotary_interleaved", false)?;
        query = rotated(&query, &cos, &sin, interleaved)?;
        key = rotated(&key, &cos, &sin, interleaved)?;
    }
    let (past_key, past_value) = (c.optional_tensor(3)?, c.optional_tensor(4)?);
    let length = past_key.as_ref().map_or(0, |past| past.dims().get(2).copied().unwrap_or(0)).max(total);
    let present = |past: Option<&Tensor>, now: &Tensor| match past {
        _ if is_prompt && length == steps => Ok(now.clone()),
        // A single sequence goes on where its cache ends.
        Some(past) if n == 1 && past.dims().get(2) == Some(&(total - steps)) => {
            Tensor::concat(&[past.clone(), now.clone()], 2)
        }
        past => cached(c, past, now, &positions, length),
    };
    let (present_key, present_value) =
        (present(past_key.as_ref(), &key)?, present(past_value.as_ref(), &value)?);
    let (key, value) = (present_key.narrow(2, 0, total)?, present_value.narrow(2, 0, total)?);
    let window = c.int_or("local_window_size", -1)?;
    let bias = c.optional_tensor(10)?;
    let cap = c.number("softcap")?.filter(|&cap| cap > 0.0);
    let sink = c.optional_tensor(11)?;
    let smooth = c.flag("smooth_softmax", false)? || sink.is_some();
    let is_plain = window <= 0 && bias.is_none() && cap.is_none() && !smooth;
    let sees_all = steps == 1 && n == 1;
    let y = if is_plain && (is_prompt || sees_all) {
        attend(c, &query, (&key, &value), None, is_prompt && steps > 1)?
    } else {
        let distance = positions.reshape([n, 1, steps, 1])?.sub(&line(c, total)?)?;
        let mut seen = distance.ge_scalar(0);
        if window > 0 {
            seen = seen.logical_and(distance.lt_scalar(window))?;
        }
        let hidden = shares(&seen, f64::NEG_INFINITY, &query)?;
        let share = sum(Some(hidden), bias)?;
        if cap.is_none() && !smooth {
            attend(c, &query, (&key, &value), share.as_ref(), false)?
        } else {
            capped(c, &query, (&key, &value), share.as_ref(), (cap, smooth.then_some(sink)))?
        }
    };
    all([y, present_key, present_value])
}

/// [`attend`] with scores that are bounded by cap·tanh(x / cap), or with a further key without a value, whose
/// score is 0 or a number of each head.
fn capped(
    c: &Context<'_>,
    query: &Tensor,
    (key, value): (&Tensor, &Tensor),
    share: Option<&Tensor>,
    (cap, sink): (Option<f64>, Option<Option<Tensor>>),
) -> Result<Tensor> {
    let &[n, heads, steps, size] = query.dims() else { return Err(c.error("no heads")) };
    let (key, value) = (repeated(c, key, heads)?, repeated(c, value, heads)?);
    let scale = c.number("scale")?.filter(|&scale| scale != 0.0).unwrap_or(1.0 / (size as f64).sqrt());
    let mut scores = query.mul_scalar(scale).matmul(&key.transpose(-1, -2)?)?;
    if let Some(cap) = cap {
        scores = scores.div_scalar(cap).tanh().mul_scalar(cap);
    }
    if let Some(share) = share {
        scores = scores.add(share)?;
    }
    let total = scores.dims()[3];
    if let Some(sink) = sink {
        let zeros = || Tensor::zeros([heads], (scores.dtype(), c.device()));
        let sink = sink.map_or_else(zeros, |sink| sink.to_dtype(scores.dtype()))?;
        let sink = sink.reshape([1, heads, 1, 1])?.expand([n, heads, steps, 1])?;
        scores = Tensor::concat(&[scores, sink], 3)?;
    }
    flat(&scores.softmax(-1)?.narrow(3, 0, total)?.matmul(&value)?)
}

/// The sum of the embeddings of words, positions and segments, normalized; with the number of words that a
/// mask leaves.
fn embedded(c: &Context<'_>) -> Result<Vec<Value>> {
    let words = c.tensor(0)?.to_dtype(c.index_dtype())?;
    let &[n, steps] = words.dims() else {
        return Err(c.error(format!("words {}; they are [N, T]", words.shape())));
    };
    let read = |table: usize, index: &Tensor| -> Result<Tensor> {
        let table = c.tensor(table)?;
        let width = table.dims().last().copied().unwrap_or(0);
        table.index_select(0, &index.flatten_all())?.reshape([n, steps, width])
    };
    let positions = match c.optional_tensor(8)? {
        Some(positions) => positions.to_dtype(c.index_dtype())?,
        None => line(c, steps)?.unsqueeze(0)?,
    };
    let mut sum = read(2, &words)?.add(&read(3, &positions.expand([n, steps])?)?)?;
    if let Some(segments) = c.optional_tensor(1)? {
        sum = sum.add(&read(4, &segments.to_dtype(c.index_dtype())?)?)?;
    }
    let (weight, bias) = (c.tensor(5)?, c.tensor(6)?);
    let eps = c.number_or("epsilon", 1e-12)?;
    let y = nn::functional::layer_norm(&sum, weight.shape(), Some(&weight), Some(&bias), eps)?;
    let kept = match c.optional_tensor(7)? {
        Some(mask) => mask.to_dtype(DType::I32)?.sum_axis(1, false)?.to_dtype(DType::I32)?,
        None => Tensor::zeros([n], (DType::I32, c.device()))?,
    };
    all([y, kept, sum])
}
