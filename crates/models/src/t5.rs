//! T5: an encoder and a decoder with biases by relative position. `transformers`:
//! `T5ForConditionalGeneration`.
//!
//! Raffel et al.: Exploring the limits of transfer learning with a unified text-to-text transformer (2020).

use std::{ops::Range, path::Path};

use nn::{Embedding, Linear, Module, RmsNorm, Visitor, VisitorMut};
use serde::{Deserialize, Serialize};
use tensor_core::{Device, Error, Result, Tensor};

use crate::{
    Activation, KvCache, LanguageModel, Masking, WeightSource,
    attention::{Scoring, attend, causal_mask, join_heads, keys_mask, split_heads},
    config::check_counts,
    generate::{GenerationConfig, generate, row},
    projected_attention::Memory,
    read_config,
};

const OP: &str = "T5";

/// The configuration, with the names and defaults of `transformers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct T5Config {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    pub d_model: usize,
    /// The features of a head.
    pub d_kv: usize,
    /// The features inside a feed forward layer.
    pub d_ff: usize,
    /// The layers of the encoder.
    pub num_layers: usize,
    /// The layers of the decoder: as many as the encoder has by default.
    pub num_decoder_layers: Option<usize>,
    /// The heads of attention.
    pub num_heads: usize,
    /// The number of biases by relative position.
    pub relative_attention_num_buckets: usize,
    /// The distance from which all positions have the same bias.
    pub relative_attention_max_distance: usize,
    /// Added to the mean square in norms.
    pub layer_norm_epsilon: f64,
    /// `relu`, or `gated-gelu` (or another activation after `gated-`).
    pub feed_forward_proj: String,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: bool,
    /// Whether the decoder's states are scaled before the output layer: by default where it is tied.
    pub scale_decoder_outputs: Option<bool>,
    /// The padding token, with which the decoder begins.
    pub pad_token_id: u32,
    /// The token with which the decoder begins, if it is another.
    pub decoder_start_token_id: Option<u32>,
    /// The token that ends a text.
    pub eos_token_id: u32,
}

impl Default for T5Config {
    fn default() -> T5Config {
        T5Config {
            vocab_size: 32128,
            d_model: 512,
            d_kv: 64,
            d_ff: 2048,
            num_layers: 6,
            num_decoder_layers: None,
            num_heads: 8,
            relative_attention_num_buckets: 32,
            relative_attention_max_distance: 128,
            layer_norm_epsilon: 1e-6,
            feed_forward_proj: "relu".into(),
            tie_word_embeddings: true,
            scale_decoder_outputs: None,
            pad_token_id: 0,
            decoder_start_token_id: None,
            eos_token_id: 1,
        }
    }
}

impl T5Config {
    /// Whether the feed forward layers are gated, and their activation.
    #[track_caller]
    fn activation(&self) -> Result<(bool, Activation)> {
        let (gated, name) = match self.feed_forward_proj.strip_prefix("gated-") {
            Some(name) => (true, name),
            None => (false, self.feed_forward_proj.as_str()),
        };
        // The reference takes the approximation for the gated form.
        let name = if gated && name == "gelu" { "gelu_new" } else { name };
        match serde_json::from_value(serde_json::Value::String(name.into())) {
            Ok(activation) => Ok((gated, activation)),
            Err(_) => Err(Error::invalid(
                OP,
                format!("feed_forward_proj \"{}\" is unknown", self.feed_forward_proj),
            )),
        }
    }
}

#[derive(Module)]
struct T5Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    relative_attention_bias: Option<Embedding>,
    heads: usize,
}

impl T5Attention {
    #[track_caller]
    fn new(source: &WeightSource, config: &T5Config, has_bias: bool) -> Result<T5Attention> {
        let (width, inner) = (config.d_model, config.num_heads * config.d_kv);
        let table = || {
            let rows = config.relative_attention_num_buckets;
            source.embedding("relative_attention_bias", rows, config.num_heads)
        };
        Ok(T5Attention {
            q: source.linear("q", width, inner, false)?,
            k: source.linear("k", width, inner, false)?,
            v: source.linear("v", width, inner, false)?,
            o: source.linear("o", inner, width, false)?,
            relative_attention_bias: has_bias.then(table).transpose()?,
            heads: config.num_heads,
        })
    }

    /// The keys and values of states `[N, S, features]`.
    #[track_caller]
    fn memory(&self, states: &Tensor) -> Result<Memory> {
        let key = split_heads(&self.k.forward(states)?, self.heads)?;
        Ok(Memory { key, value: split_heads(&self.v.forward(states)?, self.heads)? })
    }

    /// Attention of `x` to keys and values. Scores are not scaled.
    #[track_caller]
    fn forward(&self, x: &Tensor, memory: &Memory, masking: &Masking) -> Result<Tensor> {
        let query = split_heads(&self.q.forward(x)?, self.heads)?;
        self.o.forward(&join_heads(&attend(&query, &memory.key, &memory.value, 1.0, None, masking)?)?)
    }

    /// Attention of `x` to itself and the earlier steps of a cache, with biases by position.
    #[track_caller]
    fn forward_cached(
        &self,
        x: &Tensor,
        bias: &Tensor,
        (cache, layer): (&mut KvCache, usize),
    ) -> Result<Tensor> {
        let query = split_heads(&self.q.forward(x)?, self.heads)?;
        let Memory { key, value } = self.memory(x)?;
        let scoring = Scoring { scale: 1.0, ..Default::default() };
        let out = cache.attend_by(layer, [&query, &key, &value], scoring, Some(bias))?;
        self.o.forward(&join_heads(&out)?)
    }
}

/// The number of the bias for a key `distance` behind a query (negative: before it).
fn bucket(distance: i64, both_sides: bool, buckets: usize, farthest: usize) -> usize {
    let (mut first, mut buckets, mut distance) = (0, buckets, distance);
    if both_sides {
        buckets /= 2;
        first = if distance > 0 { buckets } else { 0 };
        distance = distance.abs();
    } else {
        distance = (-distance).max(0);
    }
    let (distance, exact) = (distance as usize, buckets / 2);
    if distance < exact {
        return first + distance;
    }
    let part = (distance as f32 / exact as f32).ln() / (farthest as f32 / exact as f32).ln();
    first + (exact + (part * (buckets - exact) as f32) as usize).min(buckets - 1)
}

/// The feed forward layer; gated if it has `wi_0` and `wi_1`.
#[derive(Module)]
struct FeedForward {
    wi: Option<Linear>,
    wi_0: Option<Linear>,
    wi_1: Option<Linear>,
    wo: Linear,
    activation: Activation,
}

impl FeedForward {
    #[track_caller]
    fn new(source: &WeightSource, config: &T5Config) -> Result<FeedForward> {
        let (gated, activation) = config.activation()?;
        let part = |name: &str, there: bool| -> Result<Option<Linear>> {
            there.then(|| source.linear(name, config.d_model, config.d_ff, false)).transpose()
        };
        Ok(FeedForward {
            wi: part("wi", !gated)?,
            wi_0: part("wi_0", gated)?,
            wi_1: part("wi_1", gated)?,
            wo: source.linear("wo", config.d_ff, config.d_model, false)?,
            activation,
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inner = match (&self.wi, &self.wi_0, &self.wi_1) {
            (Some(wi), _, _) => self.activation.activate(&wi.forward(x)?),
            (_, Some(gate), Some(up)) => self.activation.activate(&gate.forward(x)?).mul(&up.forward(x)?)?,
            _ => return Err(Error::invalid(OP, "a feed forward layer has no projections")),
        };
        self.wo.forward(&inner)
    }
}

/// A part of a block with the norm before it. The reference numbers the parts, and names what is in them.
#[derive(Module)]
#[allow(non_snake_case)]
struct Part {
    SelfAttention: Option<T5Attention>,
    EncDecAttention: Option<T5Attention>,
    DenseReluDense: Option<FeedForward>,
    layer_norm: RmsNorm,
}

#[derive(Module)]
struct Block {
    layer: Vec<Part>,
}

/// The encoder or the decoder.
#[derive(Module)]
struct Stack {
    block: Vec<Block>,
    final_layer_norm: RmsNorm,
    #[module(skip)]
    config: T5Config,
    is_decoder: bool,
}

impl Stack {
    #[track_caller]
    fn new(source: &WeightSource, config: &T5Config, is_decoder: bool) -> Result<Stack> {
        let (width, eps) = (config.d_model, config.layer_norm_epsilon);
        let count = if is_decoder {
            config.num_decoder_layers.unwrap_or(config.num_layers)
        } else {
            config.num_layers
        };
        let part = |source: &WeightSource, name: &str, first: bool| -> Result<Part> {
            let of = |wanted: &str| wanted == name;
            let at = source.at(name);
            let attention = |has_bias: bool| T5Attention::new(&at, config, has_bias);
            Ok(Part {
                SelfAttention: of("SelfAttention").then(|| attention(first)).transpose()?,
                EncDecAttention: of("EncDecAttention").then(|| attention(false)).transpose()?,
                DenseReluDense: of("DenseReluDense").then(|| FeedForward::new(&at, config)).transpose()?,
                layer_norm: source.rms_norm("layer_norm", width, eps)?,
            })
        };
        let names: &[&str] = match is_decoder {
            true => &["SelfAttention", "EncDecAttention", "DenseReluDense"],
            false => &["SelfAttention", "DenseReluDense"],
        };
        let block = |k: usize| -> Result<Block> {
            let at = source.at("block").at(k).at("layer");
            let parts = names.iter().enumerate().map(|(p, name)| part(&at.at(p), name, k == 0));
            Ok(Block { layer: parts.collect::<Result<_>>()? })
        };
        Ok(Stack {
            block: (0..count).map(block).collect::<Result<_>>()?,
            final_layer_norm: source.rms_norm("final_layer_norm", width, eps)?,
            config: config.clone(),
            is_decoder,
        })
    }

    /// The biases `[1, heads, L, S]` of the scores for the rows of [`Stack::bias_rows`].
    #[track_caller]
    fn biases(&self, places: &Tensor) -> Result<Tensor> {
        let table = self.block.first().and_then(|block| block.layer.first());
        let table = table.and_then(|part| part.SelfAttention.as_ref()?.relative_attention_bias.as_ref());
        let Some(table) = table else { return Err(Error::invalid(OP, "a stack has no blocks")) };
        table.forward(places)?.permute([2, 0, 1])?.unsqueeze(0)
    }

    /// Makes the rows `[L, S]` of the table of biases for queries and keys at some positions.
    fn bias_rows(&self, device: &Device) -> impl Fn(Range<usize>, &[usize]) -> Result<Tensor> + use<> {
        let (buckets, farthest) =
            (self.config.relative_attention_num_buckets, self.config.relative_attention_max_distance);
        let (both_ways, device) = (!self.is_decoder, device.clone());
        move |queries, keys| {
            let shape = [queries.len(), keys.len()];
            let row = |query: usize, key: usize| {
                bucket(key as i64 - query as i64, both_ways, buckets, farthest) as i32
            };
            let rows = queries.flat_map(|query| keys.iter().map(move |&key| row(query, key)));
            Tensor::from_vec(rows.collect(), shape, &device)
        }
    }

    /// The masking of a whole sequence: biases, and minus infinity where a key is hidden.
    #[track_caller]
    fn masking(&self, length: usize, mask: Option<&Tensor>, device: &Device) -> Result<Masking> {
        let keys: Vec<usize> = (0..length).collect();
        let mut biases = self.biases(&self.bias_rows(device)(0..length, &keys)?)?;
        let hidden = Tensor::full((), f64::NEG_INFINITY, (biases.dtype(), device))?;
        if self.is_decoder {
            let seen = causal_mask(0, length, 0, length, None, &[], device)?;
            biases = seen.where_cond(&biases, &hidden)?;
        }
        if let Some(mask) = mask {
            biases = keys_mask(OP, mask)?.where_cond(&biases, &hidden)?;
        }
        Ok(Masking::Mask(biases))
    }

    /// The states `[N, L, features]` for embeddings; in a decoder with the keys and values of the encoder's
    /// states for each block, and their masking.
    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        encoded: Option<(&[Memory], &Masking)>,
        mut cache: Option<&mut KvCache>,
    ) -> Result<Tensor> {
        let (batch, length, device) = (x.dims()[0], x.dims()[1], x.device());
        let (own, bias) = match &mut cache {
            Some(cache) => {
                cache.check_batch(batch)?;
                cache.begin(length, x.dtype(), &device)?;
                let rows = self.bias_rows(&device);
                let [rows] = cache.by_position(move |cache| {
                    Ok([rows(cache.len()..cache.len() + length, &cache.key_positions()?)?])
                })?;
                (Masking::Full, Some(self.biases(&rows)?))
            }
            None => (self.masking(length, mask, &device)?, None),
        };
        let mut x = x.clone();
        let parts =
            self.block.iter().enumerate().flat_map(|(k, block)| block.layer.iter().map(move |p| (k, p)));
        for (k, part) in parts {
            let normed = part.layer_norm.forward(&x)?;
            let added = match (&part.SelfAttention, &part.EncDecAttention, &part.DenseReluDense, encoded) {
                (Some(attention), ..) => match (cache.as_deref_mut(), &bias) {
                    (Some(cache), Some(bias)) => attention.forward_cached(&normed, bias, (cache, k))?,
                    _ => attention.forward(&normed, &attention.memory(&normed)?, &own)?,
                },
                (_, Some(attention), _, Some((memories, masking))) => {
                    attention.forward(&normed, &memories[k].for_batch(OP, batch)?, masking)?
                }
                (_, _, Some(mlp), _) => mlp.forward(&normed)?,
                _ => return Err(Error::invalid(OP, "a decoder needs the encoder's states")),
            };
            x = x.add(&added)?;
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        self.final_layer_norm.forward(&x)
    }
}

/// The decoder of a [`T5`] for given states of the encoder, whose keys and values are computed once: a
/// [`LanguageModel`], so that [`generate`](crate::generate::generate) and
/// [`beam_search`](crate::generate::beam_search) work with it. The prompt is the token with which the decoder
/// begins, the padding token of most models.
pub struct T5Decoder<'a> {
    model: &'a T5,
    memories: Vec<Memory>,
    masking: Masking,
}

/// The decoder's parameters are those of the model that it belongs to.
impl Module for T5Decoder<'_> {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.shared(|visitor| visitor.field("decoder", self.model));
    }

    fn visit_mut(&mut self, _: &mut VisitorMut) {}
}

impl LanguageModel for T5Decoder<'_> {
    fn device(&self) -> Device {
        self.model.shared.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.model.config.vocab_size
    }

    fn new_cache(&self) -> KvCache {
        KvCache::new(vec![None; self.memories.len()])
    }

    fn repeats_steps(&self) -> bool {
        true
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, cache: Option<&mut KvCache>) -> Result<Tensor> {
        if ids.rank() != 2 {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        }
        let tokens = self.model.shared.forward(ids)?;
        self.model.decoder.forward(&tokens, None, Some((&self.memories, &self.masking)), cache)
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let config = &self.model.config;
        let scaled = config.scale_decoder_outputs.unwrap_or(config.tie_word_embeddings);
        let scale = if scaled { (config.d_model as f64).powf(-0.5) } else { 1.0 };
        let hidden = hidden.mul_scalar(scale);
        match &self.model.lm_head {
            Some(head) => head.forward(&hidden),
            None => nn::functional::linear(&hidden, &self.model.shared.weight, None),
        }
    }
}

/// T5 with its output layer: texts to texts.
#[derive(Module)]
pub struct T5 {
    shared: Embedding,
    encoder: Stack,
    decoder: Stack,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: T5Config,
}

impl T5 {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// An unknown activation, sizes of 0, or parameters that are missing, have another shape, or are left
    /// over.
    #[track_caller]
    pub fn new(config: &T5Config, weights: impl Into<WeightSource>) -> Result<T5> {
        T5::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &T5Config, source: &WeightSource) -> Result<T5> {
        let counts = [
            ("d_model", config.d_model),
            ("d_kv", config.d_kv),
            ("d_ff", config.d_ff),
            ("num_heads", config.num_heads),
            ("num_layers", config.num_layers),
        ];
        check_counts(OP, &counts)?;
        if config.relative_attention_num_buckets < 4 {
            return Err(Error::invalid(OP, "fewer than 4 biases by position"));
        }
        let head = || source.linear("lm_head", config.d_model, config.vocab_size, false);
        let model = T5 {
            shared: source.embedding("shared", config.vocab_size, config.d_model)?,
            encoder: Stack::new(&source.at("encoder"), config, false)?,
            decoder: Stack::new(&source.at("decoder"), config, true)?,
            lm_head: (!config.tie_word_embeddings).then(head).transpose()?,
            config: config.clone(),
        };
        source.finish(&[
            "embed_tokens.weight",
            "lm_head.weight",
            "EncDecAttention.relative_attention_bias.weight",
        ])?;
        if model.lm_head.is_none() {
            crate::weight_source::tie_output(&model.shared);
        }
        Ok(model)
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`T5::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<T5> {
        T5::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }

    /// The encoder's states `[N, L, features]` for tokens `[N, L]` and their mask `[N, L]`.
    ///
    /// # Errors
    /// Other shapes, or whatever the device reports.
    #[track_caller]
    pub fn encode(&self, ids: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        if ids.rank() != 2 {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        }
        self.encoder.forward(&self.shared.forward(ids)?, mask, None, None)
    }

    /// The decoder for the encoder's states and their mask: a language model with a cache.
    ///
    /// # Errors
    /// As [`T5::encode`].
    #[track_caller]
    pub fn decoder(&self, encoded: &Tensor, mask: Option<&Tensor>) -> Result<T5Decoder<'_>> {
        let parts = self.decoder.block.iter().flat_map(|block| &block.layer);
        let attentions = parts.filter_map(|part| part.EncDecAttention.as_ref());
        let memories = attentions.map(|attention| attention.memory(encoded)).collect::<Result<_>>()?;
        let masking = match mask {
            Some(mask) => Masking::Mask(keys_mask(OP, mask)?),
            None => Masking::Full,
        };
        Ok(T5Decoder { model: self, memories, masking })
    }

    /// The logits `[N, L, vocabulary]` of the decoder for its tokens `[N, L]`, with the encoder's states and
    /// their mask.
    ///
    /// # Errors
    /// As [`T5::encode`].
    #[track_caller]
    pub fn decode(&self, ids: &Tensor, encoded: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        self.decoder(encoded, mask)?.forward(ids)
    }

    /// [`T5::encode`] and [`T5::decode`]: the logits for tokens, their mask, and the decoder's tokens.
    ///
    /// # Errors
    /// As [`T5::encode`].
    #[track_caller]
    pub fn forward(&self, ids: &Tensor, mask: Option<&Tensor>, decoder_ids: &Tensor) -> Result<Tensor> {
        self.decode(decoder_ids, &self.encode(ids, mask)?, mask)
    }

    /// The text for the tokens of another, the most likely token at each step, without the one that ends it.
    ///
    /// # Errors
    /// No tokens, or whatever the device reports.
    #[track_caller]
    pub fn generate(&self, ids: &[u32], max_new_tokens: usize) -> Result<Vec<u32>> {
        if ids.is_empty() {
            return Err(Error::invalid(OP, "no tokens"));
        }
        let ids = row(ids, &self.shared.weight.device())?;
        let decoder = autograd::no_grad(|| self.decoder(&self.encode(&ids, None)?, None))?;
        let start = self.config.decoder_start_token_id.unwrap_or(self.config.pad_token_id);
        let stop_tokens = vec![self.config.eos_token_id];
        let config = GenerationConfig { max_new_tokens, stop_tokens, ..Default::default() };
        generate(&decoder, &[start], &config)?.map(|token| Ok(token?.id)).collect()
    }
}
