//! Multi-head attention.

use std::fmt;

use tensor_core::{
    DType, Error, Generator, Result, Scalar, Tensor, begin_layer_call, caller_line, default_dtype,
};

use super::{Dropout, Linear, LinearConfig, call, linear::parameter};
use crate::{
    Module, Training, Visitor, VisitorMut,
    functions::{Request, attention, attention_with_weights, causal_mask, is_mask, linear},
    init,
};

/// The name of the operation in errors.
const OP: &str = "multi_head_attention";

/// Options of a [`MultiheadAttention`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug)]
pub struct MultiheadAttentionConfig {
    /// The dropout probability of attention weights. 0 by default.
    pub dropout: f64,
    /// Whether projections have biases; they do by default.
    pub bias: bool,
    /// Whether tensors are `[N, L, E]`; by default they are `[L, N, E]`.
    pub batch_first: bool,
    /// The size of keys, if it differs from that of queries.
    pub kdim: Option<usize>,
    /// The size of values, if it differs from that of queries.
    pub vdim: Option<usize>,
    /// Whether a trainable key and value are appended to those given. Off by default.
    pub add_bias_kv: bool,
    /// Whether a key and value of zeros are appended. Off by default.
    pub add_zero_attn: bool,
    /// The dtype of the parameters: that of [`default_dtype`] (f32) by default.
    pub dtype: DType,
}

impl Default for MultiheadAttentionConfig {
    fn default() -> MultiheadAttentionConfig {
        MultiheadAttentionConfig {
            dropout: 0.0,
            bias: true,
            batch_first: false,
            kdim: None,
            vdim: None,
            add_bias_kv: false,
            add_zero_attn: false,
            dtype: default_dtype(),
        }
    }
}

/// The masks of an attention.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionMasks<'a> {
    /// The padding mask `[N, S]`, or `[S]` without a batch: bool, true where a key is padding that no query
    /// attends to, or numbers added to its scores.
    pub key_padding_mask: Option<&'a Tensor>,
    /// The attention mask `[L, S]` or `[N·heads, L, S]`: bool, true where a query does not attend to a key,
    /// or numbers added to the scores. (The mask of [`crate::functional::scaled_dot_product_attention`] has
    /// the opposite meaning, as in PyTorch.)
    pub attn_mask: Option<&'a Tensor>,
    /// Whether query i attends to keys 0 to i only. It needs no mask.
    pub is_causal: bool,
}

/// Multi-head attention: each head attends with a part of the features. `torch.nn.MultiheadAttention`.
///
/// State: `in_proj_weight` `[3E, E]` and `in_proj_bias` for query, key and value, `out_proj.weight` `[E, E]`
/// and `out_proj.bias`. Weights are initialized by Xavier's uniform scheme (`out_proj` as in a [`Linear`]),
/// biases with zeros. If keys or values have other sizes: `q_proj_weight` `[E, E]`, `k_proj_weight` `[E,
/// kdim]` and `v_proj_weight` `[E, vdim]` in place of `in_proj_weight`. With `add_bias_kv`: `bias_k` and
/// `bias_v` `[1, 1, E]`, initialized by Xavier's normal scheme.
///
/// ```
/// use nn::{AttentionMasks, MultiheadAttention};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let attention = MultiheadAttention::new(8, 2, &rng)?;
/// let x = Tensor::randn([5, 3, 8], &rng)?; // [L, N, E]
/// let masks = AttentionMasks { is_causal: true, ..Default::default() };
/// let (y, weights) = attention.forward_with_weights(&x, &x, &x, masks)?;
/// assert_eq!((y.dims(), weights.dims()), (&[5, 3, 8][..], &[3, 5, 5][..]));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MultiheadAttention {
    /// The projections of queries, keys and values.
    pub in_proj: InProjection,
    /// The bias of the projections `[3E]`, unless the layer has none.
    pub in_proj_bias: Option<Tensor>,
    /// The appended trainable key and value, `[1, 1, E]` each, if the layer has them.
    pub bias_kv: Option<(Tensor, Tensor)>,
    /// The projection from the heads to the output.
    pub out_proj: Linear,
    heads: usize,
    batch_first: bool,
    zero_attn: bool,
    dropout: Dropout,
    training: Training,
}

/// The weights that project queries, keys and values of a [`MultiheadAttention`].
#[derive(Clone)]
pub enum InProjection {
    /// `in_proj_weight`, `[3E, E]`: one weight for all three, if keys and values have the size of queries.
    Joint(Tensor),
    /// `q_proj_weight` `[E, E]`, `k_proj_weight` `[E, kdim]` and `v_proj_weight` `[E, vdim]`.
    Separate([Tensor; 3]),
}

/// The names of separate projections.
const SEPARATE: [&str; 3] = ["q_proj_weight", "k_proj_weight", "v_proj_weight"];

impl InProjection {
    /// The sizes of queries, keys and values.
    fn sizes(&self) -> [usize; 3] {
        let columns = |weight: &Tensor| weight.dims().get(1).copied().unwrap_or(0);
        match self {
            InProjection::Joint(weight) => [columns(weight); 3],
            InProjection::Separate(all) => [columns(&all[0]), columns(&all[1]), columns(&all[2])],
        }
    }
}

impl MultiheadAttention {
    /// `num_heads` heads over `embed_dim` features, on the generator's device.
    ///
    /// # Errors
    /// As [`MultiheadAttention::with_config`].
    #[track_caller]
    pub fn new(embed_dim: usize, num_heads: usize, rng: &Generator) -> Result<MultiheadAttention> {
        MultiheadAttention::with_config(embed_dim, num_heads, MultiheadAttentionConfig::default(), rng)
    }

    /// A layer with dropout, without biases, with the batch first, or of another dtype.
    ///
    /// # Errors
    /// Heads that do not divide the features, a `kdim` or `vdim` of 0, a dropout outside [0, 1], a dtype
    /// that is not floating-point or that the device lacks, too little memory.
    #[track_caller]
    pub fn with_config(
        embed_dim: usize,
        num_heads: usize,
        config: MultiheadAttentionConfig,
        rng: &Generator,
    ) -> Result<MultiheadAttention> {
        let _line = caller_line();
        const LAYER: &str = "MultiheadAttention";
        let MultiheadAttentionConfig {
            dropout,
            bias,
            batch_first,
            kdim,
            vdim,
            add_bias_kv,
            add_zero_attn,
            dtype,
        } = config;
        if num_heads == 0 || embed_dim == 0 || !embed_dim.is_multiple_of(num_heads) {
            let message = format!("{num_heads} heads do not divide {embed_dim} features");
            return Err(Error::invalid(LAYER, message));
        }
        let sizes = [embed_dim, kdim.unwrap_or(embed_dim), vdim.unwrap_or(embed_dim)];
        if sizes.contains(&0) {
            return Err(Error::invalid(
                LAYER,
                format!("keys and values of sizes {kdim:?} and {vdim:?}: give at least 1"),
            ));
        }
        let dropout = Dropout::new(dropout, rng)?;
        let glorot = |shape: [usize; 2]| parameter(init::xavier_uniform(shape, 1.0, rng)?, dtype);
        let in_proj = match sizes == [embed_dim; 3] {
            true => InProjection::Joint(glorot([3 * embed_dim, embed_dim])?),
            false => InProjection::Separate([
                glorot([embed_dim, sizes[0]])?,
                glorot([embed_dim, sizes[1]])?,
                glorot([embed_dim, sizes[2]])?,
            ]),
        };
        let extra = || parameter(init::xavier_normal([1, 1, embed_dim], 1.0, rng)?, dtype);
        let bias_kv = if add_bias_kv { Some((extra()?, extra()?)) } else { None };
        let zeros = |size: usize| parameter(Tensor::zeros([size], (dtype, rng.device()))?, dtype);
        let in_proj_bias = if bias { Some(zeros(3 * embed_dim)?) } else { None };
        let mut out_proj = Linear::with_config(embed_dim, embed_dim, LinearConfig { bias, dtype }, rng)?;
        if bias {
            out_proj.bias = Some(zeros(embed_dim)?);
        }
        let (heads, training) = (num_heads, Training::default());
        Ok(MultiheadAttention {
            in_proj,
            in_proj_bias,
            bias_kv,
            out_proj,
            heads,
            batch_first,
            zero_attn: add_zero_attn,
            dropout,
            training,
        })
    }

    /// The number of features of queries and outputs.
    pub fn embed_dim(&self) -> usize {
        self.out_proj.out_features()
    }

    /// The number of heads.
    pub fn num_heads(&self) -> usize {
        self.heads
    }

    /// The attention of queries `[L, N, E]` to keys and values `[S, N, E]`: `[L, N, E]`. The batch comes
    /// first with `batch_first`, and may be missing.
    ///
    /// # Errors
    /// Tensors with other features, lengths or batches, masks of other shapes or dtypes, several dtypes or
    /// devices.
    #[track_caller]
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks<'_>,
    ) -> Result<Tensor> {
        let _line = caller_line();
        self.attend(query, key, value, masks, None, false).map(|found| found.0)
    }

    /// As [`MultiheadAttention::forward`], and the weights `[N, L, S]`, averaged over the heads.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let (out, weights) = self.forward_with_head_weights(query, key, value, masks)?;
        Ok((out, weights.mean_axis(-3, false)?))
    }

    /// As [`MultiheadAttention::forward`], and the weights of each head, `[N, heads, L, S]`:
    /// `average_attn_weights=False`.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward_with_head_weights(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let (out, weights) = self.attend(query, key, value, masks, None, true)?;
        let Some(weights) = weights else {
            return Err(Error::invalid(OP, "there are no weights"));
        };
        Ok((out, if query.rank() == 2 { weights.squeeze(0)? } else { weights }))
    }

    /// Self-attention of the positions that follow those in `cache`, to which they are then added.
    /// Processing a sequence piece by piece, as in generation, gives the same result as processing it whole
    /// with a causal mask.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`], or another batch size than the cache's, or a layer that appends
    /// its own keys. The cache is unchanged then.
    #[track_caller]
    pub fn forward_cached(&self, input: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        let _line = caller_line();
        self.attend(input, input, input, AttentionMasks::default(), Some(cache), false).map(|found| found.0)
    }

    /// A hint for tensors that seem to be in the other order of axes.
    fn order_hint(&self, seems_other: bool) -> &'static str {
        match (seems_other, self.batch_first) {
            (false, _) => "",
            (true, false) => "; the layer reads [L, N, E], and these fit batch_first: true",
            (true, true) => "; the layer reads [N, L, E], and these fit batch_first: false",
        }
    }

    /// `[L, N, E]`, `[N, L, E]` or `[L, E]` as `[N, L, E]`.
    #[track_caller]
    fn batched(&self, tensor: &Tensor) -> Result<Tensor> {
        match tensor.rank() {
            2 => tensor.unsqueeze(0),
            _ if self.batch_first => Ok(tensor.clone()),
            _ => tensor.transpose(0, 1),
        }
    }

    #[track_caller]
    fn attend(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks<'_>,
        cache: Option<&mut KeyValueCache>,
        with_weights: bool,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let _line = caller_line();
        let begun = begin_layer_call();
        let wrong = |message: String| Err(Error::invalid(OP, message).here());
        let width = self.embed_dim();
        let all = [query, key, value];
        let shapes = format!("query {}, key {}, value {}", query.shape(), key.shape(), value.shape());
        let sizes = self.in_proj.sizes();
        let misfit =
            |(t, size): (&&Tensor, &usize)| t.rank() != query.rank() || t.dims().last() != Some(size);
        if !(2..=3).contains(&query.rank()) || all.iter().zip(&sizes).any(misfit) {
            let axes = if self.batch_first { "[N, L, E] or [L, E]" } else { "[L, N, E] or [L, E]" };
            return wrong(match sizes == [width; 3] {
                true => format!("{shapes}: all three have the axes {axes} with {width} features"),
                false => format!("{shapes}: all three have the axes {axes}, with {sizes:?} features"),
            });
        }
        if cache.is_some() && (self.bias_kv.is_some() || self.zero_attn) {
            return wrong("a cache holds the keys that are given: a layer that adds others has none".into());
        }
        let [q, k, v] = [self.batched(query)?, self.batched(key)?, self.batched(value)?];
        let (batch, rows, keys) = (q.dims()[0], q.dims()[1], k.dims()[1]);
        if k.dims()[..2] != v.dims()[..2] || k.dims()[0] != batch {
            return wrong(format!(
                "{shapes}: key and value have one length, and the query's batch{}",
                self.order_hint(key.dims()[0] == query.dims()[0] && key.dims()[..2] == value.dims()[..2])
            ));
        }
        let bias = |start: usize, count: usize| -> Result<Option<Tensor>> {
            let bias = self.in_proj_bias.as_ref();
            bias.map(|bias| bias.narrow(0, start * width, count * width)).transpose()
        };
        let mut projected: Vec<Tensor> = match &self.in_proj {
            InProjection::Separate([of_q, of_k, of_v]) => vec![
                linear(&q, of_q, bias(0, 1)?.as_ref())?,
                linear(&k, of_k, bias(1, 1)?.as_ref())?,
                linear(&v, of_v, bias(2, 1)?.as_ref())?,
            ],
            InProjection::Joint(weight) => {
                // One product if the three are one tensor, or if keys are values.
                let part = |x: &Tensor, start: usize, count: usize| -> Result<Vec<Tensor>> {
                    let weight = weight.narrow(0, start * width, count * width)?;
                    linear(x, &weight, bias(start, count)?.as_ref())?.split(width, -1)
                };
                let same = |a: &Tensor, b: &Tensor| a.id() == b.id();
                match (same(query, key), same(key, value)) {
                    (true, true) => part(&q, 0, 3)?,
                    (false, true) => [part(&q, 0, 1)?, part(&k, 1, 2)?].concat(),
                    (_, false) => [part(&q, 0, 1)?, part(&k, 1, 1)?, part(&v, 2, 1)?].concat(),
                }
            }
        };
        let given = keys;
        let mut keys = keys;
        let mut follow = |of_key: &Tensor, of_value: &Tensor| -> Result<()> {
            for (at, extra) in [(1, of_key), (2, of_value)] {
                projected[at] = Tensor::concat(&[&projected[at], &extra.expand([batch, 1, width])?], 1)?;
            }
            keys += 1;
            Ok(())
        };
        if let Some((of_key, of_value)) = &self.bias_kv {
            follow(of_key, of_value)?;
        }
        if self.zero_attn {
            let zero = Tensor::zeros([1, 1, width], (q.dtype(), &q.device()))?;
            follow(&zero, &zero)?;
        }
        let of_heads = |x: &Tensor, length: usize| {
            x.reshape([batch, length, self.heads, width / self.heads])?.transpose(1, 2)
        };
        let q = of_heads(&projected[0], rows)?;
        let (mut k, mut v) = (of_heads(&projected[1], keys)?, of_heads(&projected[2], keys)?);
        let (mask, causal) = match &cache {
            None => {
                // The layer's own keys are visible to all queries, so the causal mask is merged into the
                // others.
                let own = keys - given;
                match self.mask(masks, own > 0, [batch, rows, given], &q)? {
                    Some(mask) if own > 0 => {
                        let mut padding = vec![(0, 0); mask.rank()];
                        padding[mask.rank() - 1].1 = own;
                        let seen =
                            if mask.dtype() == DType::Bool { Scalar::Bool(true) } else { Scalar::Float(0.0) };
                        (Some(mask.pad(&padding, seen)?), None)
                    }
                    mask => (mask, (masks.is_causal && own == 0).then_some(0)),
                }
            }
            Some(cache) => {
                let before = cache.len();
                if let Some((old_k, old_v)) = &cache.kept {
                    if old_k.dims()[0] != batch || old_k.dims()[1] != self.heads {
                        let found = old_k.shape();
                        return wrong(format!(
                            "{shapes}: the cache holds another batch, {found}; clear it first"
                        ));
                    }
                    k = Tensor::concat(&[old_k, &k], 2)?;
                    v = Tensor::concat(&[old_v, &v], 2)?;
                }
                (None, Some(before))
            }
        };
        let drop =
            (self.training.get() && self.dropout.p() > 0.0).then(|| (self.dropout.p(), self.dropout.rng()));
        let request = Request { mask: mask.as_ref(), causal, dropout: drop, ..Default::default() };
        let (out, weights) = match with_weights {
            true => attention_with_weights(&q, &k, &v, request).map(|(out, weights)| (out, Some(weights)))?,
            false => (attention(&q, &k, &v, request)?, None),
        };
        let joined = out.transpose(1, 2)?.reshape([batch, rows, width])?;
        let (weight, bias) = (&self.out_proj.weight, self.out_proj.bias.as_ref());
        let out = self.out_proj.adapters.linear(&joined, weight, bias)?;
        if let Some(cache) = cache {
            cache.kept = Some((k.detach(), v.detach()));
        }
        let out = match (query.rank(), self.batch_first) {
            (2, _) => out.squeeze(0)?,
            (_, true) => out,
            (_, false) => out.transpose(0, 1)?,
        };
        Ok((call::record(self, begun, Ok(out))?, weights))
    }

    /// The combined mask, with or without the causal one, which broadcasts to `[N, heads, L, S]`: bool, true
    /// where a query attends to a key, or numbers to add.
    #[track_caller]
    fn mask(
        &self,
        masks: AttentionMasks<'_>,
        with_causal: bool,
        [batch, rows, keys]: [usize; 3],
        like: &Tensor,
    ) -> Result<Option<Tensor>> {
        let wrong = |what: &str, mask: &Tensor, wanted: String| {
            let message = format!("{what} of shape {} and {}: {wanted}", mask.shape(), mask.dtype());
            Err(Error::invalid(OP, message).here())
        };
        let fits = |mask: &Tensor| is_mask(mask, like.dtype());
        let mut parts: Vec<Tensor> = Vec::new();
        if let Some(mask) = masks.key_padding_mask {
            if !(mask.dims() == [batch, keys] || (batch == 1 && mask.dims() == [keys])) || !fits(mask) {
                let wanted = format!(
                    "give one of [{batch}, {keys}], of bool, {} or f32{}",
                    like.dtype(),
                    self.order_hint(batch != keys && mask.dims() == [keys, batch])
                );
                return wrong("a key_padding_mask", mask, wanted);
            }
            parts.push(mask.reshape([batch, 1, 1, keys])?);
        }
        if let Some(mask) = masks.attn_mask {
            let whole = [batch * self.heads, rows, keys];
            if !(mask.dims() == [rows, keys] || mask.dims() == whole) || !fits(mask) {
                let wanted = format!(
                    "give one of [{rows}, {keys}] or {whole:?}, of bool, {} or f32{}",
                    like.dtype(),
                    self.order_hint(rows != batch && mask.dims() == [batch, batch])
                );
                return wrong("an attn_mask", mask, wanted);
            }
            parts.push(match mask.rank() {
                2 => mask.clone(),
                _ => mask.reshape([batch, self.heads, rows, keys])?,
            });
        }
        if with_causal && masks.is_causal {
            parts.push(causal_mask(0, rows, keys, &like.device())?.logical_not());
        }
        if parts.iter().all(|part| part.dtype() == DType::Bool) {
            let mut parts = parts.into_iter();
            let Some(first) = parts.next() else { return Ok(None) };
            let unseen = parts.try_fold(first, |all, part| all.bitwise_or(&part))?;
            return Ok(Some(unseen.logical_not()));
        }
        let zero = Tensor::zeros(tensor_core::Shape::scalar(), (like.dtype(), &like.device()))?;
        let mut sum: Option<Tensor> = None;
        for part in parts {
            let numbers = if part.dtype().is_bool() {
                part.where_cond(&zero.full_like(f64::NEG_INFINITY), &zero)?
            } else {
                part.to_dtype(like.dtype())?
            };
            sum = Some(match sum {
                Some(sum) => sum.add(&numbers)?,
                None => numbers,
            });
        }
        Ok(sum)
    }
}

/// Options of [`multi_head_attention_forward`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug)]
pub struct MultiHeadAttentionOptions<'a> {
    /// The bias `[3E]` of the projections of queries, keys and values. None by default.
    pub in_proj_bias: Option<&'a Tensor>,
    /// The bias `[E]` of the output projection. None by default.
    pub out_proj_bias: Option<&'a Tensor>,
    /// An appended key and value, `[1, 1, E]` each. None by default.
    pub bias_kv: Option<(&'a Tensor, &'a Tensor)>,
    /// Whether a key and value of zeros are appended. Off by default.
    pub add_zero_attn: bool,
    /// The dropout probability of weights, and the generator that the random stream is taken from. None by
    /// default, as PyTorch's `training=False`.
    pub dropout: Option<(f64, &'a Generator)>,
    /// The masks.
    pub masks: AttentionMasks<'a>,
    /// Whether the weights are returned. They are by default; without them, memory is linear in the lengths.
    pub need_weights: bool,
    /// Whether the weights are averaged over the heads. They are by default.
    pub average_attn_weights: bool,
}

impl Default for MultiHeadAttentionOptions<'_> {
    fn default() -> Self {
        MultiHeadAttentionOptions {
            in_proj_bias: None,
            out_proj_bias: None,
            bias_kv: None,
            add_zero_attn: false,
            dropout: None,
            masks: AttentionMasks::default(),
            need_weights: true,
            average_attn_weights: true,
        }
    }
}

/// [`MultiheadAttention`] as a function of its parameters: queries `[L, N, E]` or `[L, E]`, keys and values
/// `[S, N, …]` or `[S, …]`, the input projections, and the output projection `[E, E]`. Returns `[L, N, E]`
/// and, on request, the weights, `[N, L, S]` or `[N, heads, L, S]` for each head.
/// `torch.nn.functional.multi_head_attention_forward`.
///
/// ```
/// use nn::{InProjection, functional::{MultiHeadAttentionOptions, multi_head_attention_forward}};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let x = Tensor::randn([5, 3, 8], &rng)?;
/// let in_proj = InProjection::Joint(Tensor::randn([24, 8], &rng)?);
/// let out_proj = Tensor::randn([8, 8], &rng)?;
/// let (y, weights) = multi_head_attention_forward(&x, &x, &x, 2, &in_proj, &out_proj,
/// MultiHeadAttentionOptions::default())?; assert_eq!((y.dims(), weights.unwrap().dims()), (&[5, 3, 8][..],
/// &[3, 5, 5][..]));
/// # Ok(()) }
/// ```
///
/// # Errors
/// Heads that do not divide the features, parameters of other shapes, a dropout outside [0, 1], and the
/// errors of [`MultiheadAttention::forward`].
#[track_caller]
pub fn multi_head_attention_forward(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    num_heads: usize,
    in_proj: &InProjection,
    out_proj: &Tensor,
    options: MultiHeadAttentionOptions<'_>,
) -> Result<(Tensor, Option<Tensor>)> {
    let _line = caller_line();
    let MultiHeadAttentionOptions { in_proj_bias, out_proj_bias, bias_kv, dropout, masks, .. } = options;
    let wrong = |message: String| Err(Error::invalid(OP, message));
    let &[width, features] = out_proj.dims() else {
        return wrong(format!("out_proj has the shape [E, E], not {}", out_proj.shape()));
    };
    if num_heads == 0 || width == 0 || width != features || !width.is_multiple_of(num_heads) {
        return wrong(format!(
            "{num_heads} heads do not divide the features of an out_proj {}",
            out_proj.shape()
        ));
    }
    let rows: &[(&Tensor, usize)] = match in_proj {
        InProjection::Joint(weight) => &[(weight, 3 * width)],
        InProjection::Separate([of_q, of_k, of_v]) => &[(of_q, width), (of_k, width), (of_v, width)],
    };
    if let Some((weight, rows)) =
        rows.iter().find(|(weight, rows)| weight.rank() != 2 || weight.dims()[0] != *rows)
    {
        return wrong(format!("in_proj {}: a weight of {rows} rows is needed", weight.shape()));
    }
    let (of_key, of_value) = bias_kv.unzip();
    let vectors =
        [(in_proj_bias, vec![3 * width]), (of_key, vec![1, 1, width]), (of_value, vec![1, 1, width])];
    for (given, wanted) in vectors {
        if let Some(given) = given.filter(|given| given.dims() != wanted) {
            return wrong(format!("a bias {}: one of {wanted:?} is needed", given.shape()));
        }
    }
    let (p, rng) = match dropout {
        Some((p, rng)) => (p, rng.clone()),
        None => (0.0, Generator::seed(0, &query.device())),
    };
    let layer = MultiheadAttention {
        in_proj: in_proj.clone(),
        in_proj_bias: in_proj_bias.cloned(),
        bias_kv: of_key.cloned().zip(of_value.cloned()),
        out_proj: Linear::from_weight(out_proj.clone(), out_proj_bias.cloned()),
        heads: num_heads,
        batch_first: false,
        zero_attn: options.add_zero_attn,
        dropout: Dropout::new(p, &rng)?,
        training: Training::default(),
    };
    match (options.need_weights, options.average_attn_weights) {
        (false, _) => Ok((layer.forward(query, key, value, masks)?, None)),
        (true, true) => layer.forward_with_weights(query, key, value, masks).map(|(y, w)| (y, Some(w))),
        (true, false) => layer.forward_with_head_weights(query, key, value, masks).map(|(y, w)| (y, Some(w))),
    }
}

impl fmt::Debug for MultiheadAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, heads, p, first) = (self.embed_dim(), self.heads, self.dropout.p(), self.batch_first);
        write!(
            f,
            "MultiheadAttention(embed_dim={width}, num_heads={heads}, dropout={p:?}, batch_first={first})"
        )
    }
}

impl Module for MultiheadAttention {
    fn visit(&self, visitor: &mut Visitor) {
        match &self.in_proj {
            InProjection::Joint(weight) => visitor.parameter("in_proj_weight", weight),
            InProjection::Separate(all) => {
                SEPARATE.iter().zip(all).for_each(|(name, weight)| visitor.parameter(name, weight));
            }
        }
        if let Some(bias) = &self.in_proj_bias {
            visitor.parameter("in_proj_bias", bias);
        }
        if let Some((of_key, of_value)) = &self.bias_kv {
            visitor.parameter("bias_k", of_key);
            visitor.parameter("bias_v", of_value);
        }
        visitor.field("out_proj", &self.out_proj);
        visitor.field("dropout", &self.dropout);
        visitor.training(&self.training);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        match &mut self.in_proj {
            InProjection::Joint(weight) => visitor.parameter("in_proj_weight", weight),
            InProjection::Separate(all) => {
                SEPARATE.iter().zip(all).for_each(|(name, weight)| visitor.parameter(name, weight));
            }
        }
        if let Some(bias) = &mut self.in_proj_bias {
            visitor.parameter("in_proj_bias", bias);
        }
        if let Some((of_key, of_value)) = &mut self.bias_kv {
            visitor.parameter("bias_k", of_key);
            visitor.parameter("bias_v", of_value);
        }
        visitor.field("out_proj", &mut self.out_proj);
    }
}

/// Keys and values of the positions that a [`MultiheadAttention`] has processed: `[N, heads, S, E / heads]`
/// each. It is for generation, not for training: the cached tensors have no history.
///
/// Each step copies it to append its own positions. Language models of `models` have a `KvCache` instead,
/// with padded batches, sliding windows and steps whose shapes do not change.
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    kept: Option<(Tensor, Tensor)>,
}

impl KeyValueCache {
    /// An empty cache.
    pub fn new() -> KeyValueCache {
        KeyValueCache::default()
    }

    /// The number of cached positions, which is the position of the next one.
    pub fn len(&self) -> usize {
        self.kept.as_ref().map_or(0, |(key, _)| key.dims()[2])
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Empties the cache, for another sequence.
    pub fn clear(&mut self) {
        self.kept = None;
    }
}
