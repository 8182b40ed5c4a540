//! Transformer layers and stacks of them. Vaswani et al.: Attention is all you need (2017).

use std::fmt;

use tensor_core::{DType, Error, Generator, Result, Tensor, caller_line, default_dtype};

use super::{
    AttentionMasks, Dropout, KeyValueCache, LayerNorm, LayerNormConfig, Linear, LinearConfig,
    MultiheadAttention, MultiheadAttentionConfig, layer,
};
use crate::{Module, Visitor, VisitorMut};

/// The activation between the two linear layers of a transformer layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TransformerActivation {
    /// max(x, 0), PyTorch's default.
    #[default]
    Relu,
    /// x · Φ(x).
    Gelu,
}

/// Options of a transformer layer, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug)]
pub struct TransformerConfig {
    /// The number of features between the two linear layers. 2048 by default.
    pub dim_feedforward: usize,
    /// The dropout probability, in attention and after each part. 0.1 by default.
    pub dropout: f64,
    /// The activation between the linear layers. ReLU by default.
    pub activation: TransformerActivation,
    /// The eps of the layer norms. 1e-5 by default.
    pub layer_norm_eps: f64,
    /// Whether tensors are `[N, L, E]`; by default they are `[L, N, E]`.
    pub batch_first: bool,
    /// Whether norms come before attention and linear layers; by default they come after.
    pub norm_first: bool,
    /// Whether linear layers and norms have biases; they do by default.
    pub bias: bool,
    /// The dtype of the parameters: that of [`default_dtype`] (f32) by default.
    pub dtype: DType,
}

impl Default for TransformerConfig {
    fn default() -> TransformerConfig {
        TransformerConfig {
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: TransformerActivation::Relu,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
            bias: true,
            dtype: default_dtype(),
        }
    }
}

impl TransformerConfig {
    #[track_caller]
    fn attention(&self, width: usize, heads: usize, rng: &Generator) -> Result<MultiheadAttention> {
        let TransformerConfig { dropout, bias, batch_first, dtype, .. } = *self;
        let config = MultiheadAttentionConfig { dropout, bias, batch_first, dtype, ..Default::default() };
        MultiheadAttention::with_config(width, heads, config, rng)
    }

    #[track_caller]
    fn norm(&self, width: usize, rng: &Generator) -> Result<LayerNorm> {
        let (eps, bias, dtype) = (self.layer_norm_eps, self.bias, self.dtype);
        let config = LayerNormConfig { eps, bias, dtype, elementwise_affine: true };
        LayerNorm::with_config([width], config, rng.device())
    }

    #[track_caller]
    fn feed_forward(&self, width: usize, rng: &Generator) -> Result<FeedForward> {
        let linear = LinearConfig { bias: self.bias, dtype: self.dtype };
        Ok(FeedForward {
            linear1: Linear::with_config(width, self.dim_feedforward, linear, rng)?,
            linear2: Linear::with_config(self.dim_feedforward, width, linear, rng)?,
            dropout: Dropout::new(self.dropout, rng)?,
            activation: self.activation,
        })
    }
}

/// The two linear layers of a transformer layer.
#[derive(Clone)]
struct FeedForward {
    linear1: Linear,
    linear2: Linear,
    dropout: Dropout,
    activation: TransformerActivation,
}

impl FeedForward {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.linear1.forward(x)?;
        let hidden = match self.activation {
            TransformerActivation::Relu => hidden.relu(),
            TransformerActivation::Gelu => hidden.gelu(),
        };
        self.linear2.forward(&self.dropout.forward(&hidden)?)
    }
}

/// Self-attention, then two linear layers, each with a residual connection and a layer norm.
/// `torch.nn.TransformerEncoderLayer`.
///
/// State: `self_attn`, `linear1`, `linear2`, `norm1`, `norm2`. The features are on the last axis; see
/// [`TransformerConfig`] for the others.
///
/// ```
/// use nn::{TransformerConfig, TransformerEncoderLayer};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let config = TransformerConfig { dim_feedforward: 16, batch_first: true, ..Default::default() };
/// let layer = TransformerEncoderLayer::with_config(8, 2, config, &rng)?;
/// assert_eq!(layer.forward(&Tensor::randn([3, 5, 8], &rng)?)?.dims(), [3, 5, 8]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TransformerEncoderLayer {
    self_attn: MultiheadAttention,
    feed: FeedForward,
    norm1: LayerNorm,
    norm2: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    norm_first: bool,
}

impl TransformerEncoderLayer {
    /// `nhead` heads over `d_model` features, on the generator's device.
    ///
    /// # Errors
    /// As [`TransformerEncoderLayer::with_config`].
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize, rng: &Generator) -> Result<TransformerEncoderLayer> {
        TransformerEncoderLayer::with_config(d_model, nhead, TransformerConfig::default(), rng)
    }

    /// A layer with other options.
    ///
    /// # Errors
    /// Heads that do not divide the features, no features, a dropout outside [0, 1], a dtype that is not
    /// floating-point or that the device lacks, too little memory.
    #[track_caller]
    pub fn with_config(
        d_model: usize,
        nhead: usize,
        config: TransformerConfig,
        rng: &Generator,
    ) -> Result<TransformerEncoderLayer> {
        Ok(TransformerEncoderLayer {
            self_attn: config.attention(d_model, nhead, rng)?,
            feed: config.feed_forward(d_model, rng)?,
            norm1: config.norm(d_model, rng)?,
            norm2: config.norm(d_model, rng)?,
            dropout1: Dropout::new(config.dropout, rng)?,
            dropout2: Dropout::new(config.dropout, rng)?,
            norm_first: config.norm_first,
        })
    }

    /// The output, without masks.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.forward_masked(input, AttentionMasks::default())
    }

    /// The output, with masks.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward_masked(&self, input: &Tensor, masks: AttentionMasks<'_>) -> Result<Tensor> {
        let _line = caller_line();
        self.run(input, |x| self.self_attn.forward(x, x, x, masks))
    }

    /// The output for the positions that follow those in `cache`: see [`MultiheadAttention::forward_cached`].
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward_cached`].
    #[track_caller]
    pub fn forward_cached(&self, input: &Tensor, cache: &mut KeyValueCache) -> Result<Tensor> {
        let _line = caller_line();
        self.run(input, |x| self.self_attn.forward_cached(x, cache))
    }

    #[track_caller]
    fn run(&self, x: &Tensor, attend: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        if self.norm_first {
            let x = x.add(&self.dropout1.forward(&attend(&self.norm1.forward(x)?)?)?)?;
            return x.add(&self.dropout2.forward(&self.feed.forward(&self.norm2.forward(&x)?)?)?);
        }
        let x = self.norm1.forward(&x.add(&self.dropout1.forward(&attend(x)?)?)?)?;
        self.norm2.forward(&x.add(&self.dropout2.forward(&self.feed.forward(&x)?)?)?)
    }
}

/// Self-attention, cross-attention to an encoder's output, then two linear layers.
/// `torch.nn.TransformerDecoderLayer`.
///
/// State: `self_attn`, `multihead_attn`, `linear1`, `linear2`, `norm1` to `norm3`.
#[derive(Clone)]
pub struct TransformerDecoderLayer {
    self_attn: MultiheadAttention,
    multihead_attn: MultiheadAttention,
    feed: FeedForward,
    norms: [LayerNorm; 3],
    dropouts: [Dropout; 3],
    norm_first: bool,
}

impl TransformerDecoderLayer {
    /// `nhead` heads over `d_model` features, on the generator's device.
    ///
    /// # Errors
    /// As [`TransformerEncoderLayer::with_config`].
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize, rng: &Generator) -> Result<TransformerDecoderLayer> {
        TransformerDecoderLayer::with_config(d_model, nhead, TransformerConfig::default(), rng)
    }

    /// A layer with other options.
    ///
    /// # Errors
    /// As [`TransformerEncoderLayer::with_config`].
    #[track_caller]
    pub fn with_config(
        d_model: usize,
        nhead: usize,
        config: TransformerConfig,
        rng: &Generator,
    ) -> Result<TransformerDecoderLayer> {
        let _line = caller_line();
        let norm = || config.norm(d_model, rng);
        let dropout = || Dropout::new(config.dropout, rng);
        Ok(TransformerDecoderLayer {
            self_attn: config.attention(d_model, nhead, rng)?,
            multihead_attn: config.attention(d_model, nhead, rng)?,
            feed: config.feed_forward(d_model, rng)?,
            norms: [norm()?, norm()?, norm()?],
            dropouts: [dropout()?, dropout()?, dropout()?],
            norm_first: config.norm_first,
        })
    }

    /// The output for `target`, which attends to itself with `target_masks` (for training: `is_causal`) and
    /// to the encoder's output, `memory`, with `memory_masks`.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward(
        &self,
        target: &Tensor,
        memory: &Tensor,
        target_masks: AttentionMasks<'_>,
        memory_masks: AttentionMasks<'_>,
    ) -> Result<Tensor> {
        let _line = caller_line();
        let attend = |x: &Tensor| self.self_attn.forward(x, x, x, target_masks);
        let look = |x: &Tensor| self.multihead_attn.forward(x, memory, memory, memory_masks);
        let x = self.part(0, target, attend)?;
        let x = self.part(1, &x, look)?;
        self.part(2, &x, |x| self.feed.forward(x))
    }

    /// The input plus the output of a part, normalized before or after.
    #[track_caller]
    fn part(&self, at: usize, x: &Tensor, part: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let (norm, dropout) = (&self.norms[at], &self.dropouts[at]);
        match self.norm_first {
            true => x.add(&dropout.forward(&part(&norm.forward(x)?)?)?),
            false => norm.forward(&x.add(&dropout.forward(&part(x)?)?)?),
        }
    }
}

/// Creates this number of layers, each with its own initial values.
#[track_caller]
fn stack<L>(op: &'static str, num_layers: usize, layer: impl Fn() -> Result<L>) -> Result<Vec<L>> {
    if num_layers == 0 {
        return Err(Error::invalid(op, "no layers: give at least one"));
    }
    (0..num_layers).map(|_| layer()).collect()
}

/// The output of a stack's last layer, through the norm if there is one.
#[track_caller]
fn normed(norm: Option<&LayerNorm>, x: Tensor) -> Result<Tensor> {
    match norm {
        Some(norm) => norm.forward(&x),
        None => Ok(x),
    }
}

/// A stack of encoder layers, and an optional norm. `torch.nn.TransformerEncoder`. State: `layers.0` …,
/// `norm`.
#[derive(Clone, Debug)]
pub struct TransformerEncoder {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer>,
    /// The norm of the last layer's output, if there is one.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// A stack of `num_layers` layers with independent initial values. (PyTorch copies one layer with its
    /// values.)
    ///
    /// # Errors
    /// No layers, and as [`TransformerEncoderLayer::with_config`].
    #[track_caller]
    pub fn new(
        num_layers: usize,
        d_model: usize,
        nhead: usize,
        config: TransformerConfig,
        rng: &Generator,
    ) -> Result<TransformerEncoder> {
        let _line = caller_line();
        let layer = || TransformerEncoderLayer::with_config(d_model, nhead, config, rng);
        Ok(TransformerEncoder { layers: stack("TransformerEncoder", num_layers, layer)?, norm: None })
    }

    /// The output of the last layer, without masks.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.forward_masked(input, AttentionMasks::default())
    }

    /// The output of the last layer; every layer uses these masks.
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward_masked(&self, input: &Tensor, masks: AttentionMasks<'_>) -> Result<Tensor> {
        let mut x = input.clone();
        for layer in &self.layers {
            x = layer.forward_masked(&x, masks)?;
        }
        normed(self.norm.as_ref(), x)
    }

    /// The output for the positions that follow those in the caches, one for each layer: see
    /// [`MultiheadAttention::forward_cached`].
    ///
    /// # Errors
    /// Another number of caches than layers, and as [`MultiheadAttention::forward_cached`]. The caches are
    /// unchanged then.
    #[track_caller]
    pub fn forward_cached(&self, input: &Tensor, caches: &mut [KeyValueCache]) -> Result<Tensor> {
        if caches.len() != self.layers.len() {
            let message =
                format!("{} caches for {} layers: give one for each", caches.len(), self.layers.len());
            return Err(Error::invalid("TransformerEncoder", message));
        }
        let mut next = caches.to_vec();
        let mut x = input.clone();
        for (layer, cache) in self.layers.iter().zip(&mut next) {
            x = layer.forward_cached(&x, cache)?;
        }
        let out = normed(self.norm.as_ref(), x)?;
        caches.clone_from_slice(&next);
        Ok(out)
    }
}

/// A stack of decoder layers, and an optional norm. `torch.nn.TransformerDecoder`. State: `layers.0` …,
/// `norm`.
#[derive(Clone, Debug)]
pub struct TransformerDecoder {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer>,
    /// The norm of the last layer's output, if there is one.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// A stack of `num_layers` layers with independent initial values. (PyTorch copies one layer with its
    /// values.)
    ///
    /// # Errors
    /// No layers, and as [`TransformerEncoderLayer::with_config`].
    #[track_caller]
    pub fn new(
        num_layers: usize,
        d_model: usize,
        nhead: usize,
        config: TransformerConfig,
        rng: &Generator,
    ) -> Result<TransformerDecoder> {
        let _line = caller_line();
        let layer = || TransformerDecoderLayer::with_config(d_model, nhead, config, rng);
        Ok(TransformerDecoder { layers: stack("TransformerDecoder", num_layers, layer)?, norm: None })
    }

    /// The output of the last layer: see [`TransformerDecoderLayer::forward`].
    ///
    /// # Errors
    /// As [`MultiheadAttention::forward`].
    #[track_caller]
    pub fn forward(
        &self,
        target: &Tensor,
        memory: &Tensor,
        target_masks: AttentionMasks<'_>,
        memory_masks: AttentionMasks<'_>,
    ) -> Result<Tensor> {
        let mut x = target.clone();
        for layer in &self.layers {
            x = layer.forward(&x, memory, target_masks, memory_masks)?;
        }
        normed(self.norm.as_ref(), x)
    }
}

impl fmt::Debug for TransformerEncoderLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (attention, first) = (&self.self_attn, self.norm_first);
        write!(f, "TransformerEncoderLayer({attention:?}, {:?}, norm_first={first})", self.feed.linear1)
    }
}

impl fmt::Debug for TransformerDecoderLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (attention, first) = (&self.self_attn, self.norm_first);
        write!(f, "TransformerDecoderLayer({attention:?}, {:?}, norm_first={first})", self.feed.linear1)
    }
}

layer!(TransformerEncoderLayer, TransformerEncoder);

/// Implements `Module` for types whose parts are fields under PyTorch's names.
macro_rules! module {
    ($layer:ident, $this:ident: $($name:literal $field:expr, $field_mut:expr;)*) => {
        impl Module for $layer {
            fn visit(&self, visitor: &mut Visitor) {
                let $this = self;
                $(visitor.field($name, $field);)*
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut) {
                let $this = self;
                $(visitor.field($name, $field_mut);)*
            }
        }
    };
}

module! {
    TransformerEncoderLayer, this:
    "self_attn" &this.self_attn, &mut this.self_attn;
    "linear1" &this.feed.linear1, &mut this.feed.linear1;
    "dropout" &this.feed.dropout, &mut this.feed.dropout;
    "linear2" &this.feed.linear2, &mut this.feed.linear2;
    "norm1" &this.norm1, &mut this.norm1;
    "norm2" &this.norm2, &mut this.norm2;
    "dropout1" &this.dropout1, &mut this.dropout1;
    "dropout2" &this.dropout2, &mut this.dropout2;
}

module! {
    TransformerDecoderLayer, this:
    "self_attn" &this.self_attn, &mut this.self_attn;
    "multihead_attn" &this.multihead_attn, &mut this.multihead_attn;
    "linear1" &this.feed.linear1, &mut this.feed.linear1;
    "dropout" &this.feed.dropout, &mut this.feed.dropout;
    "linear2" &this.feed.linear2, &mut this.feed.linear2;
    "norm1" &this.norms[0], &mut this.norms[0];
    "norm2" &this.norms[1], &mut this.norms[1];
    "norm3" &this.norms[2], &mut this.norms[2];
    "dropout1" &this.dropouts[0], &mut this.dropouts[0];
    "dropout2" &this.dropouts[1], &mut this.dropouts[1];
    "dropout3" &this.dropouts[2], &mut this.dropouts[2];
}

module! {
    TransformerEncoder, this:
    "layers" &this.layers, &mut this.layers;
    "norm" &this.norm, &mut this.norm;
}

module! {
    TransformerDecoder, this:
    "layers" &this.layers, &mut this.layers;
    "norm" &this.norm, &mut this.norm;
}
