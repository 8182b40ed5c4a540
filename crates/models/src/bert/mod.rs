//! BERT and its relatives: encoders with learned positions, norms after each part, and heads for sentences,
//! classes, tokens and masked words. `transformers`: `BertModel`, `RobertaModel`, `DistilBertModel` and
//! their `For…` classes.
//!
//! Devlin et al.: BERT, pre-training of deep bidirectional transformers (2019). Liu et al.: RoBERTa (2019).
//! Sanh et al.: DistilBERT (2019).

mod heads;

use std::path::Path;

use nn::{Embedding, LayerNorm, Linear, Module, functional::normalize};
use serde::{Deserialize, Serialize};
use tensor_core::{Device, Error, Result, Tensor};

pub use self::heads::{BertClassifier, BertMaskedLm};
use crate::{
    Activation, Masking, WeightSource,
    attention::{attend, check_heads, join_heads, split_heads},
    read_config,
};

const OP: &str = "Bert";

/// The configuration, with the names and defaults of `transformers`. `model_type` says which relative it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BertConfig {
    /// `bert`, `roberta`, `xlm-roberta` or `distilbert`.
    pub model_type: String,
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    #[serde(alias = "dim")]
    pub hidden_size: usize,
    /// The number of layers.
    #[serde(alias = "n_layers")]
    pub num_hidden_layers: usize,
    /// The heads of attention.
    #[serde(alias = "n_heads")]
    pub num_attention_heads: usize,
    /// The features inside a feed forward layer.
    #[serde(alias = "hidden_dim")]
    pub intermediate_size: usize,
    /// The activation of the feed forward layers.
    #[serde(alias = "activation")]
    pub hidden_act: Option<Activation>,
    /// The number of positions.
    pub max_position_embeddings: usize,
    /// The number of types of sequences.
    pub type_vocab_size: usize,
    /// Added to the variance in norms.
    pub layer_norm_eps: f64,
    /// The padding token; positions of RoBERTa count from the one after it.
    pub pad_token_id: usize,
    /// The classes of a classifier, by number.
    pub id2label: std::collections::BTreeMap<String, String>,
    /// The number of classes, if they have no names.
    pub num_labels: Option<usize>,
}

impl Default for BertConfig {
    fn default() -> BertConfig {
        BertConfig {
            model_type: "bert".into(),
            vocab_size: 30522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: None,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            layer_norm_eps: 1e-12,
            pad_token_id: 0,
            id2label: Default::default(),
            num_labels: None,
        }
    }
}

/// The names of a relative's modules.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Style {
    /// The name before all tensors of the encoder in a file with a head.
    prefix: &'static str,
    layers: &'static str,
    query: &'static str,
    key: &'static str,
    value: &'static str,
    out: &'static str,
    attention_norm: &'static str,
    inner: &'static str,
    outer: &'static str,
    norm: &'static str,
    /// Positions count from the token after the padding token.
    after_padding: bool,
    has_types: bool,
}

const BERT: Style = Style {
    prefix: "bert",
    layers: "encoder.layer",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    out: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    inner: "intermediate.dense",
    outer: "output.dense",
    norm: "output.LayerNorm",
    after_padding: false,
    has_types: true,
};

const STYLES: &[(&str, Style)] = &[
    ("bert", BERT),
    ("roberta", Style { prefix: "roberta", after_padding: true, ..BERT }),
    ("xlm-roberta", Style { prefix: "roberta", after_padding: true, ..BERT }),
    (
        "distilbert",
        Style {
            prefix: "distilbert",
            layers: "transformer.layer",
            query: "attention.q_lin",
            key: "attention.k_lin",
            value: "attention.v_lin",
            out: "attention.out_lin",
            attention_norm: "sa_layer_norm",
            inner: "ffn.lin1",
            outer: "ffn.lin2",
            norm: "output_layer_norm",
            after_padding: false,
            has_types: false,
        },
    ),
];

impl BertConfig {
    #[track_caller]
    fn style(&self) -> Result<Style> {
        match STYLES.iter().find(|(name, _)| *name == self.model_type) {
            Some((_, style)) => Ok(*style),
            None => {
                let names: Vec<&str> = STYLES.iter().map(|(name, _)| *name).collect();
                let message = format!("model_type \"{}\" is none of {}", self.model_type, names.join(", "));
                Err(Error::invalid(OP, message))
            }
        }
    }

    /// The number of classes of a classifier: as many as have names, or else 2.
    pub fn classes(&self) -> usize {
        self.num_labels.unwrap_or(if self.id2label.is_empty() { 2 } else { self.id2label.len() })
    }
}

/// The rows of a table, of which one may be the padding's, which gets no gradient.
#[track_caller]
pub(crate) fn with_padding(table: &Embedding, ids: &Tensor, padding: Option<usize>) -> Result<Tensor> {
    match padding.filter(|padding| *padding < table.weight.dims()[0]) {
        Some(padding) => table.adapters.embedding(ids, &table.weight, Some(padding)),
        None => table.forward(ids),
    }
}

/// The sum of the embeddings of tokens, positions and types, normalized.
struct Embeddings {
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Option<Embedding>,
    layer_norm: LayerNorm,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
    attention_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    norm: LayerNorm,
}

/// The encoder of BERT, RoBERTa or DistilBERT.
///
/// ```no_run
/// use models::Bert;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let model = Bert::from_folder("all-MiniLM-L6-v2", &device)?;
/// let ids = Tensor::new([[101i32, 7592, 102, 0]], &device)?;
/// let mask = Tensor::new([[true, true, true, false]], &device)?;
/// let sentence = Bert::mean_pooled(&model.forward(&ids, Some(&mask), None)?, Some(&mask))?; // [N, features]
/// # let _ = sentence;
/// # Ok(()) }
/// ```
pub struct Bert {
    embeddings: Embeddings,
    layers: Vec<Layer>,
    pooler: Option<Linear>,
    config: BertConfig,
    style: Style,
    activation: Activation,
}

impl Layer {
    #[track_caller]
    fn new(source: &WeightSource, config: &BertConfig, style: Style) -> Result<Layer> {
        let (width, inner, eps) = (config.hidden_size, config.intermediate_size, config.layer_norm_eps);
        let linear = |name: &str, inputs: usize, outputs: usize| source.linear(name, inputs, outputs, true);
        Ok(Layer {
            query: linear(style.query, width, width)?,
            key: linear(style.key, width, width)?,
            value: linear(style.value, width, width)?,
            out: linear(style.out, width, width)?,
            attention_norm: source.layer_norm(style.attention_norm, width, eps, true)?,
            inner: linear(style.inner, width, inner)?,
            outer: linear(style.outer, inner, width)?,
            norm: source.layer_norm(style.norm, width, eps, true)?,
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, heads: usize, masking: &Masking, activation: Activation) -> Result<Tensor> {
        let part = |layer: &Linear| split_heads(&layer.forward(x)?, heads);
        let (query, key, value) = (part(&self.query)?, part(&self.key)?, part(&self.value)?);
        let scale = (query.dims()[3] as f64).powf(-0.5);
        let attended = join_heads(&attend(&query, &key, &value, scale, None, masking)?)?;
        let x = self.attention_norm.forward(&self.out.forward(&attended)?.add(x)?)?;
        let inner = activation.activate(&self.inner.forward(&x)?);
        self.norm.forward(&self.outer.forward(&inner)?.add(&x)?)
    }
}

/// The names and fields of the modules, for both kinds of visits.
macro_rules! visit {
    ($self:ident, $visitor:ident, $layers:expr, $($r:tt)+) => {{
        let style = $self.style;
        let parts = $($r)+ $self.embeddings;
        $visitor.field("embeddings.word_embeddings", $($r)+ parts.word_embeddings);
        $visitor.field("embeddings.position_embeddings", $($r)+ parts.position_embeddings);
        $visitor.field("embeddings.token_type_embeddings", $($r)+ parts.token_type_embeddings);
        $visitor.field("embeddings.LayerNorm", $($r)+ parts.layer_norm);
        for (k, layer) in $layers.enumerate() {
            let name = |part: &str| format!("{}.{k}.{part}", style.layers);
            $visitor.field(&name(style.query), $($r)+ layer.query);
            $visitor.field(&name(style.key), $($r)+ layer.key);
            $visitor.field(&name(style.value), $($r)+ layer.value);
            $visitor.field(&name(style.out), $($r)+ layer.out);
            $visitor.field(&name(style.attention_norm), $($r)+ layer.attention_norm);
            $visitor.field(&name(style.inner), $($r)+ layer.inner);
            $visitor.field(&name(style.outer), $($r)+ layer.outer);
            $visitor.field(&name(style.norm), $($r)+ layer.norm);
        }
        $visitor.field("pooler.dense", $($r)+ $self.pooler);
    }};
}

impl Module for Bert {
    fn visit(&self, visitor: &mut nn::Visitor) {
        visit!(self, visitor, self.layers.iter(), &);
    }
    fn visit_mut(&mut self, visitor: &mut nn::VisitorMut) {
        visit!(self, visitor, self.layers.iter_mut(), &mut);
    }
}

impl Bert {
    /// An encoder with the parameters of a source, whose tensors may begin with the model's name. It has a
    /// pooling layer if the source has one.
    ///
    /// # Errors
    /// An unknown `model_type`, heads that do not divide the features, or parameters that are missing or have
    /// another shape.
    #[track_caller]
    pub fn new(config: &BertConfig, weights: impl Into<WeightSource>) -> Result<Bert> {
        Bert::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &BertConfig, source: &WeightSource) -> Result<Bert> {
        let style = config.style()?;
        let (width, heads) = (config.hidden_size, config.num_attention_heads);
        check_heads(OP, width, heads)?;
        let source = source.at_if_there(style.prefix);
        let at = source.at("embeddings");
        let has_types = style.has_types && config.type_vocab_size > 0;
        let types = || at.embedding("token_type_embeddings", config.type_vocab_size, width);
        let embeddings = Embeddings {
            word_embeddings: at.embedding("word_embeddings", config.vocab_size, width)?,
            position_embeddings: at.embedding(
                "position_embeddings",
                config.max_position_embeddings,
                width,
            )?,
            token_type_embeddings: has_types.then(types).transpose()?,
            layer_norm: at.layer_norm("LayerNorm", width, config.layer_norm_eps, true)?,
        };
        let layers = source.at(style.layers);
        let layers = (0..config.num_hidden_layers).map(|k| Layer::new(&layers.at(k), config, style));
        let pooler = || source.linear("pooler.dense", width, width, true);
        let pooler = (style.has_types && source.has("pooler.dense.weight")).then(pooler).transpose()?;
        Ok(Bert {
            embeddings,
            layers: layers.collect::<Result<_>>()?,
            pooler,
            config: config.clone(),
            style,
            activation: config.hidden_act.unwrap_or(Activation::Gelu),
        })
    }

    /// An encoder from a folder with `config.json` and weights. Heads in the file are ignored.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Bert::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Bert> {
        Bert::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }

    /// The configuration.
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// The position of the first token.
    fn first_position(&self) -> usize {
        if self.style.after_padding { self.config.pad_token_id + 1 } else { 0 }
    }

    /// The greatest number of tokens of a text, those around it included.
    pub fn max_tokens(&self) -> usize {
        self.config.max_position_embeddings.saturating_sub(self.first_position())
    }

    /// The last hidden states `[N, L, features]` for tokens `[N, L]`, a mask `[N, L]` that is true (or not 0)
    /// where there is a token, and types of sequences `[N, L]` (0 by default).
    ///
    /// # Errors
    /// More tokens than positions, other shapes, or whatever the device reports.
    #[track_caller]
    pub fn forward(&self, ids: &Tensor, mask: Option<&Tensor>, types: Option<&Tensor>) -> Result<Tensor> {
        let &[batch, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let (first, most) = (self.first_position(), self.max_tokens());
        if length > most {
            return Err(Error::invalid(OP, format!("{length} tokens, of at most {most}: cut the texts")));
        }
        let device = ids.device();
        let positions = match (self.style.after_padding, mask) {
            // Padding has the padding token's position, and tokens count without it.
            (true, Some(mask)) => {
                let there = mask.to_dtype(device.int_dtype())?;
                there.cumsum(1)?.mul(&there)?.add_scalar(self.config.pad_token_id as i64)
            }
            _ => Tensor::arange(first as i64, (first + length) as i64, 1, (device.int_dtype(), &device))?
                .unsqueeze(0)?,
        };
        let parts = &self.embeddings;
        // The padding token's rows get no gradient, as in the reference.
        let words = with_padding(&parts.word_embeddings, ids, Some(self.config.pad_token_id))?;
        let padding = self.style.after_padding.then_some(self.config.pad_token_id);
        let mut x = words.add(&with_padding(&parts.position_embeddings, &positions, padding)?)?;
        if let Some(table) = &parts.token_type_embeddings {
            x = match types {
                Some(types) => x.add(&table.forward(types)?)?,
                None => x.add(&table.weight.select(0, 0)?)?,
            };
        }
        x = parts.layer_norm.forward(&x)?;
        let masking = match mask {
            Some(mask) if mask.dims() != [batch, length] => {
                let message = format!("a mask {} of tokens [{batch}, {length}]", mask.shape());
                return Err(Error::invalid(OP, message));
            }
            Some(mask) => {
                Masking::Mask(mask.to_dtype(tensor_core::DType::Bool)?.reshape([batch, 1, 1, length])?)
            }
            None => Masking::Full,
        };
        for layer in &self.layers {
            x = layer.forward(&x, self.config.num_attention_heads, &masking, self.activation)?;
        }
        Ok(x)
    }

    /// tanh(W · h + b) of the first token's state: `[N, L, features]` to `[N, features]`.
    ///
    /// # Errors
    /// A model without a pooling layer.
    #[track_caller]
    pub fn pooled(&self, hidden: &Tensor) -> Result<Tensor> {
        match &self.pooler {
            Some(pooler) => Ok(pooler.forward(&hidden.select(1, 0)?)?.tanh()),
            None => {
                Err(Error::invalid(OP, "this model has no pooling layer; use mean_pooled or the first token"))
            }
        }
    }

    /// The vectors `[N, features]` of sentences with tokens `[N, L]` and a mask `[N, L]`, as
    /// `Tokenizer::encode_batch` gives them: the means of their tokens' states, of length 1.
    ///
    /// Reimers, Gurevych: Sentence-BERT, sentence embeddings using Siamese BERT networks (2019).
    ///
    /// # Errors
    /// As [`Bert::forward`].
    #[track_caller]
    pub fn sentence_vectors(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let hidden = self.forward(ids, Some(mask), None)?;
        normalize(&Bert::mean_pooled(&hidden, Some(mask))?, 2.0, -1, 1e-12)
    }

    /// The mean of the states `[N, L, features]` of the tokens that `mask` `[N, L]` has: `[N, features]`.
    ///
    /// # Errors
    /// A mask of another shape.
    #[track_caller]
    pub fn mean_pooled(hidden: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        match mask {
            Some(mask) => {
                let weights = mask.to_dtype(hidden.dtype())?.unsqueeze(2)?;
                hidden
                    .mul(&weights)?
                    .sum_axis(1, false)?
                    .div(&weights.sum_axis(1, false)?.clamp(1e-9, f64::INFINITY))
            }
            None => hidden.mean_axis(1, false),
        }
    }
}
