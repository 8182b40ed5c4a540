//! Attention with several heads.

use std::fmt;

use tensor_core::{DType, Error, Generator, Result, Tensor, default_dtype};

use super::{Dropout, Linear, LinearConfig, linear::parameter, record};
use crate::{
    Module, Training, Visitor, VisitorMut,
    functional::{Request, attention, attention_with_weights, linear},
    init,
};

/// The operation in errors.
const OP: &str = "multi_head_attention";

/// What a [`MultiheadAttention`] may have otherwise than usual; PyTorch's arguments with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct MultiheadAttentionConfig {
    /// The probability with which a weight of attention is dropped. 0 by default.
    pub dropout: f64,
    /// Whether projections have biases; they do by default.
    pub bias: bool,
    /// Whether tensors are `[N, L, E]`; by default they are `[L, N, E]`.
    pub batch_first: bool,
    /// The size of a key if it is not that of a query. Only the query's size is supported.
    pub kdim: Option<usize>,
    /// The size of a value if it is not that of a query. Only the query's size is supported.
    pub vdim: Option<usize>,
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
            dtype: default_dtype(),
        }
    }
}

/// What an attention does not see.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionMasks<'a> {
    /// `[N, S]`, or `[S]` without a batch: bool, true where a key is padding that nobody sees, or numbers added to its scores.
    pub key_padding_mask: Option<&'a Tensor>,
    /// `[L, S]` or `[N·heads, L, S]`: bool, true where a query does not see a key, or numbers added to the scores. (That of
    /// [`crate::functional::scaled_dot_product_attention`] says the contrary, as in PyTorch.)
    pub attn_mask: Option<&'a Tensor>,
    /// Whether query i sees keys 0 to i alone. No mask need be given for it.
    pub is_causal: bool,
}

/// Attention of several heads, each in a part of the features. `torch.nn.MultiheadAttention`.
///
/// State: `in_proj_weight` `[3E, E]` and `in_proj_bias` for query, key and value, `out_proj.weight` `[E, E]` and `out_proj.bias`. Weights begin
/// as Glorot's uniform (`out_proj` as a [`Linear`]'s), biases as zeros.
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
    /// `[3E, E]`: the projections of queries, keys and values.
    pub in_proj_weight: Tensor,
    /// `[3E]`, unless the layer has none.
    pub in_proj_bias: Option<Tensor>,
    /// From the heads to the output.
    pub out_proj: Linear,
    heads: usize,
    batch_first: bool,
    dropout: Dropout,
    training: Training,
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

    /// With dropout, without biases, with the batch first, or of another dtype.
    ///
    /// # Errors
    /// Heads that do not divide the features, a `kdim` or `vdim` of another size, a dropout outside [0, 1), a dtype that is not
    /// floating-point or that the device lacks, no memory.
    #[track_caller]
    pub fn with_config(
        embed_dim: usize,
        num_heads: usize,
        config: MultiheadAttentionConfig,
        rng: &Generator,
    ) -> Result<MultiheadAttention> {
        const LAYER: &str = "MultiheadAttention";
        let MultiheadAttentionConfig { dropout, bias, batch_first, kdim, vdim, dtype } = config;
        if num_heads == 0 || embed_dim == 0 || !embed_dim.is_multiple_of(num_heads) {
            let message = format!("{num_heads} heads do not divide {embed_dim} features");
            return Err(Error::invalid(LAYER, message));
        }
        if [kdim, vdim].into_iter().flatten().any(|size| size != embed_dim) {
            return Err(Error::invalid(
                LAYER,
                format!(
                    "kdim {kdim:?} and vdim {vdim:?} other than the {embed_dim} features of a query are not supported: project \
                     keys and values to {embed_dim} features with a Linear first"
                ),
            ));
        }
        let dropout = Dropout::new(dropout, rng)?;
        let weight = init::xavier_uniform([3 * embed_dim, embed_dim], 1.0, rng)?;
        let zeros = |size: usize| parameter(Tensor::zeros([size], (dtype, rng.device()))?, dtype);
        let in_proj_bias = if bias { Some(zeros(3 * embed_dim)?) } else { None };
        let mut out_proj = Linear::with_config(embed_dim, embed_dim, LinearConfig { bias, dtype }, rng)?;
        if bias {
            out_proj.bias = Some(zeros(embed_dim)?);
        }
        let in_proj_weight = parameter(weight, dtype)?;
        let (heads, training) = (num_heads, Training::default());
        Ok(MultiheadAttention {
            in_proj_weight,
            in_proj_bias,
            out_proj,
            heads,
            batch_first,
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

    /// Queries `[L, N, E]`, keys and values `[S, N, E]` to `[L, N, E]`; the batch comes first with `batch_first`, and may be missing.
    ///
    /// # Errors
    /// Tensors of other features, lengths or batches, masks of other shapes or dtypes, several dtypes or devices.
    #[track_caller]
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        masks: AttentionMasks<'_>,
    ) -> Result<Tensor> {
        self.attend(query, key, value, masks, None, false).map(|found| found.0)
    }

    /// As [`MultiheadAttention::forward`], with the weights `[N, L, S]`, the mean over the heads.
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
        let (out, weights) = self.attend(query, key, value, masks, None, true)?;
        let Some(weights) = weights else {
            return Err(Error::invalid(OP, "there are no weights"));
        };
        let mean = weights.mean_axis(1, false)?;
        Ok((out, if query.rank() == 2 { mean.squeeze(0)? } else { mean }))
    }

    /// Self-attention of the positions that follow those in `cache`, which then holds these as well: a sequence piece by piece, as
    /// generation makes it, gives what the whole with a causal mask gives.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`], or another batch than the cache's. The cache is as it was then.
    #[track_caller]
    pub fn forward_cached(&self, input: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        self.attend(input, input, input, AttentionMasks::default(), Some(cache), false).map(|found| found.0)
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
        let wrong = |message: String| Err(Error::invalid(OP, message).here());
        let width = self.embed_dim();
        let all = [query, key, value];
        let shapes = format!("query {}, key {}, value {}", query.shape(), key.shape(), value.shape());
        if !(2..=3).contains(&query.rank())
            || all.iter().any(|t| t.rank() != query.rank() || t.dims().last() != Some(&width))
        {
            let axes = if self.batch_first { "[N, L, E] or [L, E]" } else { "[L, N, E] or [L, E]" };
            return wrong(format!("{shapes}: all three have the axes {axes} with {width} features"));
        }
        let [q, k, v] = [self.batched(query)?, self.batched(key)?, self.batched(value)?];
        let (batch, rows, keys) = (q.dims()[0], q.dims()[1], k.dims()[1]);
        if k.dims() != v.dims() || k.dims()[0] != batch {
            return wrong(format!("{shapes}: key and value have one shape, and the query's batch"));
        }
        // One product where the three are one tensor, or where keys are values.
        let (weight, bias) = (&self.in_proj_weight, self.in_proj_bias.as_ref());
        let part = |x: &Tensor, start: usize, count: usize| -> Result<Vec<Tensor>> {
            let bias = bias.map(|bias| bias.narrow(0, start * width, count * width)).transpose()?;
            let out = linear(x, &weight.narrow(0, start * width, count * width)?, bias.as_ref())?;
            out.split(width, -1)
        };
        let same = |a: &Tensor, b: &Tensor| a.id() == b.id();
        let projected: Vec<Tensor> = match (same(query, key), same(key, value)) {
            (true, true) => part(&q, 0, 3)?,
            (false, true) => [part(&q, 0, 1)?, part(&k, 1, 2)?].concat(),
            (_, false) => [part(&q, 0, 1)?, part(&k, 1, 1)?, part(&v, 2, 1)?].concat(),
        };
        let of_heads = |x: &Tensor, length: usize| {
            x.reshape([batch, length, self.heads, width / self.heads])?.transpose(1, 2)
        };
        let q = of_heads(&projected[0], rows)?;
        let (mut k, mut v) = (of_heads(&projected[1], keys)?, of_heads(&projected[2], keys)?);
        let (mask, causal) = match &cache {
            None => (self.mask(masks, [batch, rows, keys], &q)?, masks.is_causal.then_some(0)),
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
        let out = linear(&joined, &self.out_proj.weight, self.out_proj.bias.as_ref())?;
        if let Some(cache) = cache {
            cache.kept = Some((k.detach(), v.detach()));
        }
        let out = match (query.rank(), self.batch_first) {
            (2, _) => out.squeeze(0)?,
            (_, true) => out,
            (_, false) => out.transpose(0, 1)?,
        };
        Ok((record(self, Ok(out))?, weights))
    }

    /// The masks but the causal one as one that broadcasts to `[N, heads, L, S]`: bool, true where a query sees a key, or numbers to add.
    #[track_caller]
    fn mask(
        &self,
        masks: AttentionMasks<'_>,
        [batch, rows, keys]: [usize; 3],
        like: &Tensor,
    ) -> Result<Option<Tensor>> {
        let wrong = |what: &str, mask: &Tensor, wanted: String| {
            let message = format!("{what} of shape {} and {}: {wanted}", mask.shape(), mask.dtype());
            Err(Error::invalid(OP, message).here())
        };
        let fits = |mask: &Tensor| mask.dtype() == DType::Bool || mask.dtype() == like.dtype();
        let mut parts: Vec<Tensor> = Vec::new();
        if let Some(mask) = masks.key_padding_mask {
            if !(mask.dims() == [batch, keys] || (batch == 1 && mask.dims() == [keys])) || !fits(mask) {
                let wanted = format!("give one of [{batch}, {keys}], of bool or {}", like.dtype());
                return wrong("a key_padding_mask", mask, wanted);
            }
            parts.push(mask.reshape([batch, 1, 1, keys])?);
        }
        if let Some(mask) = masks.attn_mask {
            let whole = [batch * self.heads, rows, keys];
            if !(mask.dims() == [rows, keys] || mask.dims() == whole) || !fits(mask) {
                let wanted =
                    format!("give one of [{rows}, {keys}] or {whole:?}, of bool or {}", like.dtype());
                return wrong("an attn_mask", mask, wanted);
            }
            parts.push(match mask.rank() {
                2 => mask.clone(),
                _ => mask.reshape([batch, self.heads, rows, keys])?,
            });
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
            let numbers = match part.dtype() {
                DType::Bool => part.where_cond(&zero.full_like(f64::NEG_INFINITY), &zero)?,
                _ => part,
            };
            sum = Some(match sum {
                Some(sum) => sum.add(&numbers)?,
                None => numbers,
            });
        }
        Ok(sum)
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
        visitor.parameter("in_proj_weight", &self.in_proj_weight);
        if let Some(bias) = &self.in_proj_bias {
            visitor.parameter("in_proj_bias", bias);
        }
        visitor.field("out_proj", &self.out_proj);
        visitor.field("dropout", &self.dropout);
        visitor.training(&self.training);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.parameter("in_proj_weight", &mut self.in_proj_weight);
        if let Some(bias) = &mut self.in_proj_bias {
            visitor.parameter("in_proj_bias", bias);
        }
        visitor.field("out_proj", &mut self.out_proj);
    }
}

/// Keys and values of the positions that a [`MultiheadAttention`] has seen: `[N, heads, S, E / heads]` each. For generation, not for training:
/// what is kept has no history.
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    kept: Option<(Tensor, Tensor)>,
}

impl KeyValueCache {
    /// A cache of no positions.
    pub fn new() -> KeyValueCache {
        KeyValueCache::default()
    }

    /// How many positions it holds: the position of the next one.
    pub fn len(&self) -> usize {
        self.kept.as_ref().map_or(0, |(key, _)| key.dims()[2])
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets everything: for another sequence.
    pub fn clear(&mut self) {
        self.kept = None;
    }
}
