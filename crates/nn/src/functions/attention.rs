//! Attention, and positional encodings.

mod blocked;

use autograd::is_grad_enabled;
use tensor_core::{
    DType, Device, Error, Generator, Result, Shape, Tensor, at_caller, autocast, caller_line, is_tracing,
};

use self::blocked::Blocked;
use super::check_probability;

const OP: &str = "scaled_dot_product_attention";

/// Options of [`scaled_dot_product_attention`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions<'a> {
    /// Broadcasts to `[…, L, S]`: a bool mask, true where a query attends to a key, or numbers that are added
    /// to the scores, of the query's dtype or f32.
    pub mask: Option<&'a Tensor>,
    /// Whether query i attends to keys 0 to i only.
    pub is_causal: bool,
    /// The factor of the scores; 1/√E by default.
    pub scale: Option<f64>,
    /// Grouped-query attention: queries may have several times as many heads (axis −3) as keys and values,
    /// each of which serves a group of query heads.
    pub enable_gqa: bool,
    /// The dropout probability of attention weights, and the random stream to draw from. No dropout by
    /// default.
    pub dropout: Option<(f64, &'a Generator)>,
}

/// softmax(query · keyᵀ · scale + mask) · value for `query` `[…, L, E]`, `key` `[…, S, E]` and `value` `[…,
/// S, V]`: `[…, L, V]`. A query that attends to no key gives zeros, with gradients of zero.
/// `torch.nn.functional.scaled_dot_product_attention`.
///
/// Memory is linear in the lengths: scores are computed in tiles, and recomputed for the gradient. Whole
/// matrices `[…, L, S]` are stored only for a mask that requires gradients, and for second derivatives. In
/// the kernels of the CPU and of GPUs, keys hidden by `is_causal` take no time.
///
/// Vaswani et al.: Attention is all you need (2017). Dao: FlashAttention-2 (2023).
///
/// ```
/// use nn::functional::{AttentionOptions, scaled_dot_product_attention};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let x = Tensor::new([[[1.0f32, 0.0], [0.0, 1.0]]], &device)?;
/// let options = AttentionOptions { is_causal: true, ..Default::default() };
/// let y = scaled_dot_product_attention(&x, &x, &x, options)?;
/// assert_eq!(y.select(1, 0)?.to_vec::<f32>()?, [1.0, 0.0]); // the first attends to itself only
/// # Ok(()) }
/// ```
///
/// # Errors
/// Fewer than two axes, sizes that do not fit each other, heads that do not divide, a mask of another shape
/// or dtype, a mask together with `is_causal`, several dtypes or devices.
#[track_caller]
pub fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    options: AttentionOptions<'_>,
) -> Result<Tensor> {
    let AttentionOptions { mask, is_causal, scale, enable_gqa, dropout } = options;
    if mask.is_some() && is_causal {
        let message = "a mask and is_causal: give one of them, or put the causal mask into the mask";
        return Err(Error::invalid(OP, message));
    }
    attention(query, key, value, Request { mask, causal: is_causal.then_some(0), scale, enable_gqa, dropout })
}

/// The arguments of attention inside layers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request<'a> {
    /// As [`AttentionOptions::mask`].
    pub(crate) mask: Option<&'a Tensor>,
    /// With `Some(first)`, query i attends to keys 0 to `first` + i only.
    pub(crate) causal: Option<usize>,
    pub(crate) scale: Option<f64>,
    pub(crate) enable_gqa: bool,
    pub(crate) dropout: Option<(f64, &'a Generator)>,
}

impl<'a> Request<'a> {
    /// The request without dropout if that drops everything; the caller then multiplies results by 0, since
    /// 1 / (1 − p) is infinite.
    fn without_dropout(self) -> Option<Request<'a>> {
        self.dropout.filter(|(p, _)| *p == 1.0).map(|_| Request { dropout: None, ..self })
    }
}

/// The number of queries up to which their scores take no more memory than keys and values: on a device
/// without a kernel for attention, whole matrices are computed for them.
const FEW_QUERIES: usize = 8;

/// The attention output.
#[track_caller]
pub(crate) fn attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    request: Request<'_>,
) -> Result<Tensor> {
    let _line = caller_line();
    if let Some(kept) = request.without_dropout() {
        return Ok(attention(query, key, value, kept)?.mul_scalar(0.0));
    }
    let cast = autocast::cast(OP, [query, key, value], [])?;
    let ([query, key, value], []) = cast.tensors();
    let mask = autocast::like(request.mask, query);
    let request = Request { mask: mask.as_ref(), ..request };
    let call = Call::new(query, key, value, request)?;
    let of_mask = call.mask.as_ref().is_some_and(|mask| is_grad_enabled() && mask.is_tracked());
    let batch = call.batch()?;
    let is_empty = batch.contains(&0) || call.sizes().contains(&0);
    let out = if of_mask || is_empty || is_tracing() { None } else { call.blocked(batch)? };
    let out = match out {
        Some(out) => out,
        None => call.whole()?.0,
    };
    call.regroup(out)
}

/// The output and the weights, `[…, L, S]`, after dropout.
#[track_caller]
pub(crate) fn attention_with_weights(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    request: Request<'_>,
) -> Result<(Tensor, Tensor)> {
    if let Some(kept) = request.without_dropout() {
        let (out, weights) = attention_with_weights(query, key, value, kept)?;
        return Ok((out.mul_scalar(0.0), weights.mul_scalar(0.0)));
    }
    let cast = autocast::cast(OP, [query, key, value], [])?;
    let ([query, key, value], []) = cast.tensors();
    let mask = autocast::like(request.mask, query);
    let request = Request { mask: mask.as_ref(), ..request };
    let call = Call::new(query, key, value, request)?;
    let (out, weights) = call.whole()?;
    Ok((call.regroup(out)?, call.regroup(weights)?))
}

/// Checked inputs. Heads that share a key are in groups: query `[…, heads, group, L, E]`, key and value `[…,
/// heads, 1, S, features]`.
struct Call {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    weighting: Weighting,
    /// The number of key heads, if query heads are in groups.
    heads: Option<usize>,
}

impl Call {
    #[track_caller]
    fn new(query: &Tensor, key: &Tensor, value: &Tensor, request: Request<'_>) -> Result<Call> {
        let _line = caller_line();
        let wrong = |message: String| Err(Error::invalid(OP, message).here());
        let Request { mask, causal, scale, enable_gqa, dropout } = request;
        let shapes = format!("query {}, key {}, value {}", query.shape(), key.shape(), value.shape());
        let [(rows, width), (keys, key_width), (values, _)] =
            match [query, key, value].map(|t| match t.dims() {
                &[.., length, width] => Some((length, width)),
                _ => None,
            }) {
                [Some(query), Some(key), Some(value)] => [query, key, value],
                _ => return wrong(format!("{shapes}: each has the axes […, length, features]")),
            };
        if width != key_width || keys != values || width == 0 {
            return wrong(format!(
                "{shapes}: query and key have the same features, key and value the same length"
            ));
        }
        let all: Vec<&Tensor> = [query, key, value].into_iter().chain(mask).collect();
        if !query.dtype().is_float() || query.dtype() != key.dtype() || query.dtype() != value.dtype() {
            let dtypes = [query, key, value].map(|t| t.dtype().to_string()).join(", ");
            return wrong(format!("query, key and value of {dtypes}: cast them to one floating-point dtype"));
        }
        if let Some(other) = all.iter().find(|t| t.device() != query.device()) {
            return Err(query.on_another_device(OP, other));
        }
        let heads = match enable_gqa {
            true => Some(groups(query, key, value)?),
            false => None,
        };
        let lead = |t: &Tensor| -> Shape { t.dims()[..t.rank() - 2].iter().copied().collect() };
        let batch = match heads {
            // Key and value are repeated to the number of query heads.
            Some(_) => lead(query),
            None => lead(query).broadcast(&lead(key), OP)?,
        };
        let scores: Shape = batch.iter().copied().chain([rows, keys]).collect();
        if let Some(mask) = mask {
            let fits = scores.broadcast(mask.shape(), OP).ok();
            if fits.as_ref() != Some(&scores) {
                return wrong(format!(
                    "a mask of shape {} does not broadcast to the scores {scores} (queries by keys)",
                    mask.shape(),
                ));
            }
            if !is_mask(mask, query.dtype()) {
                return wrong(format!(
                    "a mask of {}: give one of bool, true where a query sees a key, or of the scores' {} or f32",
                    mask.dtype(),
                    query.dtype()
                ));
            }
        }
        if let Some((p, _)) = dropout {
            check_probability(OP, p)?;
        }
        let draws = match dropout {
            Some((p, rng)) if p > 0.0 => {
                let (seed, first) = rng.take(scores.numel() as u64);
                Some(Draws { p, seed, first })
            }
            Some(_) | None => None,
        };
        let weighting = Weighting {
            scale: scale.unwrap_or(1.0 / (width as f64).sqrt()),
            // If the first query attends to every key, the causal mask hides nothing.
            causal: causal.filter(|first| first.saturating_add(1) < keys),
            draws,
        };
        let mask = mask
            .map(|mask| if mask.dtype().is_bool() { Ok(mask.clone()) } else { mask.to_dtype(query.dtype()) });
        let (query, key, value, mask) = (query.clone(), key.clone(), value.clone(), mask.transpose()?);
        let Some((heads, group)) = heads else {
            return Ok(Call { query, key, value, mask, weighting, heads: None });
        };
        let grouped = |t: &Tensor| {
            let dims = t.dims();
            let (lead, last) = (&dims[..dims.len() - 3], &dims[dims.len() - 2..]);
            let wide: Shape =
                lead.iter().copied().chain([heads, group]).chain(last.iter().copied()).collect();
            t.reshape(wide.dims())
        };
        let mask = match mask {
            Some(mask) if mask.rank() < 3 => Some(mask),
            Some(mask) if mask.dims()[mask.rank() - 3] == 1 => Some(mask.unsqueeze(-3)?),
            Some(mask) => Some(grouped(&mask)?),
            None => None,
        };
        Ok(Call {
            query: grouped(&query)?,
            key: key.unsqueeze(-3)?,
            value: value.unsqueeze(-3)?,
            mask,
            weighting,
            heads: Some(heads * group),
        })
    }

    /// L, S and V.
    fn sizes(&self) -> [usize; 3] {
        let last = |t: &Tensor, back: usize| t.dims()[t.rank() - back];
        [last(&self.query, 2), last(&self.key, 2), last(&self.value, 1)]
    }

    /// The leading axes that query, key and value broadcast to.
    #[track_caller]
    fn batch(&self) -> Result<Shape> {
        let [query, key, value] = [&self.query, &self.key, &self.value]
            .map(|t| -> Shape { t.dims()[..t.rank() - 2].iter().copied().collect() });
        query.broadcast(&key, OP)?.broadcast(&value, OP)
    }

    /// Merges groups of heads back to heads.
    #[track_caller]
    fn regroup(&self, out: Tensor) -> Result<Tensor> {
        let Some(heads) = self.heads else { return Ok(out) };
        let dims = out.dims();
        let (lead, last) = (&dims[..dims.len() - 4], &dims[dims.len() - 2..]);
        let flat: Shape = lead.iter().copied().chain([heads]).chain(last.iter().copied()).collect();
        out.reshape(flat.dims())
    }

    /// Computes whole matrices of scores: the result and the weights after dropout.
    #[track_caller]
    fn whole(&self) -> Result<(Tensor, Tensor)> {
        let mut weights = self.weighting.weights(&self.query, &self.key, self.mask.as_ref())?;
        if let Some(kept) = self.weighting.kept(&weights)? {
            weights = weights.mul(&kept)?;
        }
        let weights = weights.to_dtype(self.value.dtype())?;
        Ok((weights.matmul(&self.value)?, weights))
    }

    /// Computes blocks of scores, by the device's kernel if it has one; `batch` has the common leading axes.
    /// `None` if whole matrices are better, because there are few queries and no kernel.
    #[track_caller]
    fn blocked(&self, batch: Shape) -> Result<Option<Tensor>> {
        let expand = |t: &Tensor, last: [usize; 2]| {
            let shape: Shape = batch.iter().copied().chain(last).collect();
            if *t.shape() == shape { Ok(t.clone()) } else { t.expand(shape.dims()) }
        };
        let [rows, keys, _] = self.sizes();
        let last = |t: &Tensor| [t.dims()[t.rank() - 2], t.dims()[t.rank() - 1]];
        let mut inputs = Vec::with_capacity(4);
        for t in [&self.query, &self.key, &self.value] {
            inputs.push(expand(t, last(t))?);
        }
        if let Some(mask) = &self.mask {
            inputs.push(expand(mask, [rows, keys])?);
        }
        let function = Blocked { weighting: self.weighting };
        if function.has_kernel(&inputs)? {
            return Ok(Some(at_caller(|| autograd::apply(function, &inputs))?.0));
        }
        if rows <= FEW_QUERIES {
            return Ok(None);
        }
        if let Some(wide) = function.widened(&inputs)? {
            let out = at_caller(|| autograd::apply(function, &wide))?.0;
            return out.to_dtype(self.query.dtype()).map(Some);
        }
        Ok(Some(at_caller(|| autograd::apply(function, &inputs))?.0))
    }
}

/// Whether a mask suits scores of this dtype: bool, or f32 or scores' dtype to be added. Autocast casts
/// others.
pub(crate) fn is_mask(mask: &Tensor, scores: DType) -> bool {
    let dtype = mask.dtype();
    dtype == DType::Bool
        || dtype == DType::F32
        || dtype == scores
        || (autocast::is_within() && dtype.is_float())
}

/// The number of key heads, and the number of query heads that share each.
#[track_caller]
fn groups(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<(usize, usize)> {
    let mut found = (0, 0);
    for tensor in [key, value] {
        found = match (query.dims(), tensor.dims()) {
            (&[.., wanted, _, _], &[.., heads, _, _]) if heads > 0 && wanted.is_multiple_of(heads) => {
                (heads, wanted / heads)
            }
            _ => {
                let message = format!(
                    "heads (axis -3) of a key or value {} do not divide those of the query {}",
                    tensor.shape(),
                    query.shape()
                );
                return Err(Error::invalid(OP, message));
            }
        };
    }
    if key.dims()[key.rank() - 3] != value.dims()[value.rank() - 3] {
        let message =
            format!("a key {} and a value {} have as many heads (axis -3)", key.shape(), value.shape());
        return Err(Error::invalid(OP, message));
    }
    Ok(found)
}

/// The parameters that turn scores into weights.
#[derive(Clone, Copy, Debug)]
struct Weighting {
    scale: f64,
    causal: Option<usize>,
    draws: Option<Draws>,
}

/// The positions of dropout's draws in the random stream: the draws of all batch positions of a query are
/// adjacent, so that a block of queries reads a contiguous range. See [`Attention::dropout`].
#[derive(Clone, Copy, Debug)]
struct Draws {
    p: f64,
    seed: u64,
    first: u64,
}

impl Weighting {
    /// Scores `[…, L, S]` of the queries from `start` on, −∞ where masked; f32 for reduced floats.
    #[track_caller]
    fn scores(&self, query: &Tensor, key: &Tensor, mask: Option<&Tensor>, start: usize) -> Result<Tensor> {
        let keys = key.transpose(-2, -1)?;
        let dtype = query.dtype();
        let mut scores = match dtype.is_reduced_float() {
            true => query.matmul_wide(&keys)?.mul_scalar(self.scale),
            false => query.mul_scalar(self.scale).matmul(&keys)?,
        };
        if let Some(first) = self.causal {
            let (rows, keys) = (query.dims()[query.rank() - 2], key.dims()[key.rank() - 2]);
            let unseen = causal_mask(first + start, rows, keys, &query.device())?.logical_not();
            scores = scores.masked_fill(&unseen, f64::NEG_INFINITY)?;
        }
        match mask {
            Some(mask) if mask.dtype() == DType::Bool => {
                scores.masked_fill(&mask.logical_not(), f64::NEG_INFINITY)
            }
            Some(mask) => scores.add(&mask.to_dtype(scores.dtype())?),
            None => Ok(scores),
        }
    }

    /// All weights before dropout; f32 for half types.
    #[track_caller]
    fn weights(&self, query: &Tensor, key: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let scores = self.scores(query, key, mask, 0)?;
        if (mask.is_none() && self.causal.is_none()) || key.dims()[key.rank() - 2] == 0 {
            return scores.softmax(-1);
        }
        // If all keys are masked, −∞ − −∞ is NaN: such rows are computed from zeros, and their weights set
        // to 0.
        let blind = scores.detach().amax(-1, true)?.eq_scalar(f64::NEG_INFINITY);
        scores.masked_fill(&blind, 0.0)?.softmax(-1)?.masked_fill(&blind, 0.0)
    }

    /// The dropout factors of all weights, if there is dropout.
    #[track_caller]
    fn kept(&self, weights: &Tensor) -> Result<Option<Tensor>> {
        let Some(draws) = self.draws else { return Ok(None) };
        let (dims, keys) = (weights.dims(), weights.dims()[weights.rank() - 1]);
        draws.kept(dims, 0, keys, weights.dtype(), &weights.device()).map(Some)
    }
}

impl Draws {
    /// 0 where a weight is dropped, and otherwise 1 / (1 − p), for a block `[…, L, S]` of queries from
    /// `start` on; only the first `seen` keys are computed.
    #[track_caller]
    fn kept(
        self,
        dims: &[usize],
        start: usize,
        seen: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let (&[ref batch @ .., rows, keys], Draws { p, seed, first }) = (dims, self) else {
            return Err(Error::invalid(OP, "scores must have the axes […, queries, keys]"));
        };
        let query = batch.iter().product::<usize>() as u64 * keys as u64;
        let stream = Generator::seed(seed, device);
        stream.set_offset(first.wrapping_add((start as u64).wrapping_mul(query)));
        let drawn: Shape = [rows].into_iter().chain(batch.iter().copied()).chain([keys]).collect();
        let last = drawn.rank() as isize - 1;
        let axes: Vec<isize> = (1..last).chain([0, last]).collect();
        let drawn = Tensor::rand_dtype(drawn, DType::F32, &stream)?.permute(axes)?.narrow(-1, 0, seen)?;
        Ok(drawn.ge_scalar(p).to_dtype(dtype)?.mul_scalar(1.0 / (1.0 - p)))
    }
}

/// The causal mask `[queries, keys]`: true where key ≤ first + query.
#[track_caller]
pub(crate) fn causal_mask(first: usize, queries: usize, keys: usize, device: &Device) -> Result<Tensor> {
    let row = Tensor::arange(0, keys, 1, (DType::I32, device))?;
    let column = Tensor::arange(first, first + queries, 1, (DType::I32, device))?.reshape([queries, 1])?;
    row.le(&column)
}

/// The sinusoidal encoding `[positions, features]`, f32: sines (even features) and cosines (odd ones) of
/// position / 10000^(2i / features). Vaswani et al.: Attention is all you need (2017), section 3.5.
///
/// # Errors
/// An odd number of features.
#[track_caller]
pub fn sinusoidal_positions(
    positions: usize,
    features: usize,
    device: &tensor_core::Device,
) -> Result<Tensor> {
    let _line = caller_line();
    if features == 0 || !features.is_multiple_of(2) {
        let message = format!("{features} features are no pairs of a sine and a cosine: give an even number");
        return Err(Error::invalid("sinusoidal_positions", message));
    }
    let angles = angles(positions, features, 1e4, 0);
    let table: Vec<f32> = angles.iter().flat_map(|angle| [angle.sin() as f32, angle.cos() as f32]).collect();
    Tensor::from_vec(table, [positions, features], device)
}

/// position · base^(−2i / features) for each position from `first` and each i below features / 2, in f64: in
/// f32 the phases of distant positions would lose their digits.
fn angles(positions: usize, features: usize, base: f64, first: usize) -> Vec<f64> {
    let rates: Vec<f64> = (0..features / 2).map(|i| base.powf(-2.0 * i as f64 / features as f64)).collect();
    (first..first + positions).flat_map(|at| rates.iter().map(move |rate| at as f64 * rate)).collect()
}

/// Rotary position embedding of `input` `[…, L, E]`, whose first row has the position `first`: features i
/// and i + E/2 are a pair, rotated by position · base^(−2i/E), the pairing of Llama and GPT-NeoX. The usual
/// base is 10000.
///
/// Su et al.: RoFormer, enhanced transformer with rotary position embedding (2021).
///
/// # Errors
/// An input without rows, with an odd number of features, or of a dtype that is not floating-point.
#[track_caller]
pub fn rotary_embedding(input: &Tensor, first: usize, base: f64) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "rotary_embedding";
    let &[.., length, width] = input.dims() else {
        return Err(Error::invalid(OP, format!("an input is […, length, features], not {}", input.shape())));
    };
    if width == 0 || !width.is_multiple_of(2) || !input.dtype().is_float() {
        let message = format!(
            "an input of shape {} and {}: give an even number of features of a floating-point dtype",
            input.shape(),
            input.dtype()
        );
        return Err(Error::invalid(OP, message));
    }
    let half = width / 2;
    let angles = angles(length, width, base, first);
    let table = |function: fn(f64) -> f64| -> Result<Tensor> {
        let values: Vec<f64> = angles.iter().map(|&angle| function(angle)).collect();
        Tensor::new(values, (input.dtype(), &input.device()))?.reshape([length, half])
    };
    let (cos, sin) = (table(f64::cos)?, table(f64::sin)?);
    let (a, b) = (input.narrow(-1, 0, half)?, input.narrow(-1, half, half)?);
    let turned = [a.mul(&cos)?.sub(&b.mul(&sin)?)?, b.mul(&cos)?.add(&a.mul(&sin)?)?];
    Tensor::concat(&turned, -1)
}
