//! The Llama family: decoders with rotary positions, root mean square norms and gated feed forward layers.
//! `transformers`: `LlamaForCausalLM`, `MistralForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM`,
//! `GemmaForCausalLM`, `Gemma2ForCausalLM`, `Gemma3ForCausalLM`, `Phi3ForCausalLM`, `Glm4ForCausalLM`,
//! `Olmo2ForCausalLM`, `Olmo3ForCausalLM`, `GraniteForCausalLM`, `SmolLM3ForCausalLM`,
//! `Qwen3_5ForCausalLM`, and those with a
//! mixture of experts: `MixtralForCausalLM`, `Qwen2MoeForCausalLM`, `Qwen3MoeForCausalLM`,
//! `Qwen3NextForCausalLM`,
//! `GptOssForCausalLM`, `Glm4MoeForCausalLM`, `DeepseekV2ForCausalLM`, `DeepseekV3ForCausalLM`.
//!
//! Touvron et al.: LLaMA, open and efficient foundation language models (2023). `style` has the table of how
//! the models differ.

mod attention;
mod config;
mod defaults;
mod delta;
mod from_gguf;
mod latent;
mod layer;
mod style;

use std::path::Path;

use nn::{Embedding, Linear, Module};
use serde_json::{Map, Value};
use tensor_core::{DType, Device, Error, Result, Tensor, file::file_error};
use weights::{Format, WeightFile};

pub use self::config::{LlamaConfig, RopeParameters};
use self::{
    attention::{Keys, Norm},
    defaults::with_defaults,
    from_gguf::from_metadata,
    layer::Layer,
};
use crate::{
    KvCache, LanguageModel, Rope, WeightSource, attention::causal_masking, read_config,
    recurrent::padding_mask,
};

const OP: &str = "Llama";

/// The configuration of these fields, with the defaults of its model.
#[track_caller]
fn typed(path: &Path, fields: Map<String, Value>) -> Result<LlamaConfig> {
    serde_json::from_value(Value::Object(with_defaults(fields))).map_err(|error| {
        let path = path.join("config.json");
        file_error(&path, format!("is no configuration of this model: {error}"))
    })
}

/// The names before the tensors of parts that read pictures or predict later tokens.
const OTHER_PARTS: [&str; 6] = [
    "model.visual.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "vision_tower.",
    "multi_modal_projector.",
    "mtp.",
];

/// The place of the decoder in older files of models that also read pictures.
const FORMER_PLACE: &str = "language_model.model";

/// The decoder without its output layer.
#[derive(Module)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: Norm,
}

/// A decoder of the Llama family with its output layer.
///
/// ```
/// use models::{LanguageModel, Llama, LlamaConfig};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let config = LlamaConfig {
///     vocab_size: 50,
///     hidden_size: 16,
///     intermediate_size: 32,
///     num_hidden_layers: 2,
///     num_attention_heads: 4,
///     num_key_value_heads: Some(2),
///     ..Default::default()
/// };
/// let device = backend_cpu::cpu();
/// let model = Llama::new(&config, &Generator::seed(0, &device))?;
/// let logits = model.forward(&Tensor::new([[1i32, 2, 3]], &device)?)?;
/// assert_eq!(logits.dims(), [1, 3, 50]);
/// # Ok(()) }
/// ```
#[derive(Module)]
pub struct Llama {
    model: Decoder,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: LlamaConfig,
    #[module(skip)]
    ropes: [Rope; 2],
    #[module(skip)]
    windows: Vec<Option<usize>>,
    /// The factor of embeddings.
    embedding_scale: Option<f64>,
}

impl Llama {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// A configuration that is none of the family or contradicts itself; parameters that are missing, have
    /// another shape, or are left over.
    #[track_caller]
    pub fn new(config: &LlamaConfig, weights: impl Into<WeightSource>) -> Result<Llama> {
        Llama::build(config, &weights.into(), "model")
    }

    /// A model whose decoder has the name `at`.
    #[track_caller]
    pub(crate) fn build(config: &LlamaConfig, source: &WeightSource, at: &str) -> Result<Llama> {
        config.check()?;
        let style = config.style()?;
        let model = source.at(at);
        let layers = (0..config.num_hidden_layers).map(|k| Layer::new(&model.at("layers"), k, config));
        let decoder = Decoder {
            embed_tokens: model.embedding("embed_tokens", config.vocab_size, config.hidden_size)?,
            layers: layers.collect::<Result<_>>()?,
            norm: Norm::new(&model, "norm", config.hidden_size, config)?,
        };
        let lm_head = match config.is_tied(style) {
            true => {
                crate::weight_source::tie_output(&decoder.embed_tokens);
                None
            }
            false if at == FORMER_PLACE => Some(source.at("language_model").linear(
                "lm_head",
                config.hidden_size,
                config.vocab_size,
                false,
            )?),
            false => Some(source.linear("lm_head", config.hidden_size, config.vocab_size, false)?),
        };
        let unread = [
            "rotary_emb.inv_freq",
            "lm_head.weight",
            "rope_freqs.weight",
            "rope_factors_long.weight",
            "rope_factors_short.weight",
            // These are read as one.
            "attn_k_b.weight",
            "attn_v_b.weight",
        ];
        // Layers behind the others predict later tokens.
        let first = config.num_hidden_layers;
        let later = first..first.saturating_add(config.num_nextn_predict_layers);
        let is_later = |name: &str| {
            let rest = name.strip_prefix("model.layers.").or(name.strip_prefix("blk."));
            let number = rest.and_then(|rest| rest.split('.').next()?.parse().ok());
            number.is_some_and(|number| later.contains(&number))
        };
        source.finish_but(|name| {
            let of_others = OTHER_PARTS.iter().any(|start| name.starts_with(start));
            unread.iter().any(|end| name.ends_with(end)) || is_later(name) || (at != "model" && of_others)
        })?;
        let (ropes, windows) = (config.ropes()?, config.windows()?);
        let root = style.gemma.then(|| (config.hidden_size as f64).sqrt());
        let embedding_scale = config.embedding_multiplier.or(root);
        Ok(Llama { model: decoder, lm_head, config: config.clone(), ropes, windows, embedding_scale })
    }

    /// A model from a folder with `config.json` and weights (see [`weights::open`]), or from a GGUF file.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Llama::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Llama> {
        let path = path.as_ref();
        if path.is_dir() {
            let mut fields: Map<String, Value> = read_config(path)?;
            let source = WeightSource::open(path, device)?;
            let Some(Value::Object(mut decoder)) = fields.remove("text_config") else {
                return Llama::build(&typed(path, fields)?, &source, "model");
            };
            if let Some(tied) = fields.remove("tie_word_embeddings") {
                decoder.entry("tie_word_embeddings").or_insert(tied);
            }
            let config = typed(path, decoder)?;
            // Before version 5 of `transformers` the two parts had the other order.
            return match source.at(FORMER_PLACE).has("embed_tokens.weight") {
                true => Llama::build(&config, &source, FORMER_PLACE),
                false => Llama::build(&config, &source, "model.language_model"),
            };
        }
        Llama::from_gguf(weights::open(path)?, device)
    }

    /// A model from an open GGUF file, configured by its metadata. Weights in blocks stay in blocks: they
    /// take no more memory than the file, and cannot be trained.
    ///
    /// # Errors
    /// Another format or architecture, metadata that lacks a number, and the errors of [`Llama::new`].
    #[track_caller]
    pub fn from_gguf(file: WeightFile, device: &Device) -> Result<Llama> {
        Llama::from_gguf_in(file, tensor_core::default_dtype(), device)
    }

    /// [`Llama::from_gguf`] in another dtype of hidden states, such as bf16.
    ///
    /// # Errors
    /// As [`Llama::from_gguf`], and a dtype that the device lacks.
    #[track_caller]
    pub fn from_gguf_in(file: WeightFile, dtype: DType, device: &Device) -> Result<Llama> {
        if file.format() != Format::Gguf {
            let message = format!("is {}, not GGUF; give the folder with its config.json", file.format());
            return Err(file_error(file.path(), message));
        }
        let (config, names) = from_metadata(&file)?;
        Llama::new(&config, WeightSource::gguf(file, names, device).floats(dtype))
    }

    /// The dtype of hidden states.
    pub fn dtype(&self) -> DType {
        self.model.norm.weight.dtype()
    }

    /// The configuration.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// Visits the decoder under this name, and the output layer.
    pub(crate) fn visit_as(&self, decoder: &str, visitor: &mut nn::Visitor) {
        visitor.field(decoder, &self.model);
        visitor.field("lm_head", &self.lm_head);
    }

    pub(crate) fn visit_mut_as(&mut self, decoder: &str, visitor: &mut nn::VisitorMut) {
        visitor.field(decoder, &mut self.model);
        visitor.field("lm_head", &mut self.lm_head);
    }

    /// The vectors `[N, L, features]` of tokens `[N, L]`.
    #[track_caller]
    pub(crate) fn embedded(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.model.embed_tokens.forward(ids)?;
        Ok(match self.embedding_scale {
            Some(scale) => x.mul_scalar(scale),
            None => x,
        })
    }

    /// As [`LanguageModel::hidden`], with vectors of tokens by a function, such as [`Llama::embedded`].
    #[track_caller]
    pub(crate) fn hidden_of(
        &self,
        ids: &Tensor,
        cache: Option<&mut KvCache>,
        embed: &dyn Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        match cache {
            Some(cache) => {
                cache.step_by_length(ids, &self.ropes, |ids, cache| self.step(ids, embed, Some(cache)))
            }
            None => self.step(ids, embed, None),
        }
    }

    /// As [`Llama::hidden_of`], for keys whose frequencies do not change by this step.
    #[track_caller]
    fn step(
        &self,
        ids: &Tensor,
        embed: &dyn Fn(&Tensor) -> Result<Tensor>,
        mut cache: Option<&mut KvCache>,
    ) -> Result<Tensor> {
        let &[batch, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let device = ids.device();
        let mut x = embed(ids)?;
        let mask = padding_mask(cache.as_deref_mut(), [batch, length], x.dtype(), &device)?;
        let [full, sliding] = &self.ropes;
        let full = KvCache::rope_tables(cache.as_deref_mut(), full, length, x.dtype(), &device)?;
        let sliding = KvCache::rope_tables(cache.as_deref_mut(), sliding, length, x.dtype(), &device)?;
        let masking = causal_masking(length, None, &device)?;
        let windowed = causal_masking(length, self.config.sliding_window, &device)?;
        // The layers with a state and those with keys and values have numbers of their own in a cache.
        let mut numbers = [0, 0];
        for (k, layer) in self.model.layers.iter().enumerate() {
            let (rope, masking) = match self.windows[k] {
                Some(_) => (&sliding, &windowed),
                None => (&full, &masking),
            };
            let number = &mut numbers[usize::from(layer.attends())];
            let keys = match &mut cache {
                Some(cache) => Keys::Cached(cache, *number),
                None => Keys::Own(masking),
            };
            *number += 1;
            x = layer.forward(&x, rope, mask.as_ref(), keys)?;
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        self.model.norm.forward(&x)
    }
}

impl LanguageModel for Llama {
    fn device(&self) -> Device {
        self.model.embed_tokens.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn new_cache(&self) -> KvCache {
        let layers = self.model.layers.iter().zip(&self.windows);
        let windows: Vec<_> =
            layers.filter(|(layer, _)| layer.attends()).map(|(_, window)| *window).collect();
        let recurrent = self.model.layers.len() - windows.len();
        KvCache::hybrid(windows, recurrent)
    }

    fn repeats_steps(&self) -> bool {
        !self.ropes.iter().any(Rope::has_long_frequencies)
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, cache: Option<&mut KvCache>) -> Result<Tensor> {
        self.hidden_of(ids, cache, &|ids| self.embedded(ids))
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = match &self.lm_head {
            Some(head) => head.forward(hidden)?,
            None => nn::functional::linear(hidden, &self.model.embed_tokens.weight, None)?,
        };
        let logits = match self.config.logits_scaling {
            Some(scale) => logits.div_scalar(scale),
            None => logits,
        };
        Ok(match self.config.final_logit_softcapping {
            Some(cap) => logits.div_scalar(cap).tanh().mul_scalar(cap),
            None => logits,
        })
    }
}
