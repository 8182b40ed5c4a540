//! [`DecoderStack`]: the layers of a decoder with its positions, and [`ConditionedDecoder`].

use nn::{Embedding, LayerNorm, Module, Visitor, VisitorMut};
use tensor_core::{Device, Error, Result, Tensor};

use super::{DecoderLayer, LayerConfig};
use crate::{
    KvCache, LanguageModel, Masking, WeightSource,
    attention::{PositionTable, keys_mask},
    projected_attention::Memory,
};

/// Differences between the decoders that share [`DecoderStack`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecoderParts {
    pub(crate) layers: usize,
    /// The greatest number of tokens.
    pub(crate) positions: usize,
    /// The row of the table of positions that the first token has.
    pub(crate) offset: usize,
    /// The rows of a table of tokens that belongs to the decoder: the encoder has none.
    pub(crate) vocabulary: Option<usize>,
    /// Whether a norm follows the embeddings.
    pub(crate) embedding_norm: bool,
    /// Whether a norm follows the last layer.
    pub(crate) last_norm: bool,
    /// The factor of embeddings of tokens.
    pub(crate) scale: f64,
}

/// The layers of a decoder with its learned positions.
#[derive(Module, Debug)]
pub(crate) struct DecoderStack {
    pub(crate) embed_tokens: Option<Embedding>,
    embed_positions: Embedding,
    layers: Vec<DecoderLayer>,
    layernorm_embedding: Option<LayerNorm>,
    layer_norm: Option<LayerNorm>,
    #[module(skip)]
    parts: DecoderParts,
    #[module(skip)]
    config: LayerConfig,
}

impl DecoderStack {
    /// The greatest number of tokens.
    pub(crate) fn positions(&self) -> usize {
        self.parts.positions
    }

    #[track_caller]
    pub(crate) fn new(
        source: &WeightSource,
        config: &LayerConfig,
        parts: &DecoderParts,
    ) -> Result<DecoderStack> {
        let norm = |there: bool, name: &str| there.then(|| config.norm(source, name)).transpose();
        let tokens = |rows: usize| source.embedding("embed_tokens", rows, config.width);
        let rows = parts.positions + parts.offset;
        let layers = (0..parts.layers).map(|k| DecoderLayer::new(&source.at("layers").at(k), config));
        Ok(DecoderStack {
            embed_tokens: parts.vocabulary.map(tokens).transpose()?,
            embed_positions: source.embedding("embed_positions", rows, config.width)?,
            layers: layers.collect::<Result<_>>()?,
            layernorm_embedding: norm(parts.embedding_norm, "layernorm_embedding")?,
            layer_norm: norm(parts.last_norm, "layer_norm")?,
            parts: *parts,
            config: *config,
        })
    }

    /// This decoder for the encoder's states `[N, S, width]` and their mask `[N, S]`; `tokens` is the table
    /// of embeddings, and `output` `[vocabulary, width]` the output layer, to which `bias` `[1, vocabulary]`
    /// is added.
    #[track_caller]
    pub(crate) fn conditioned<'a>(
        &'a self,
        [tokens, output]: [&'a Tensor; 2],
        bias: Option<&'a Tensor>,
        encoded: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<ConditionedDecoder<'a>> {
        let memories = self.layers.iter().map(|layer| layer.memory(encoded)).collect::<Result<_>>()?;
        let masking = match mask {
            Some(mask) => Masking::Mask(keys_mask(self.config.model, mask)?),
            None => Masking::Full,
        };
        Ok(ConditionedDecoder { stack: self, tokens, output, bias, memories, masking })
    }
}

/// The decoder of a [`Bart`](crate::Bart) or [`Whisper`](crate::audio::Whisper) for given states of the
/// encoder, whose keys and values are computed once. It is a [`LanguageModel`], so that
/// [`generate`](crate::generate::generate) and [`beam_search`](crate::generate::beam_search) work with it;
/// the prompt is the token with which the decoder begins. With the states of several inputs, row k of a batch
/// of tokens answers to input k; with those of one, all rows answer to it.
#[derive(Debug)]
pub struct ConditionedDecoder<'a> {
    stack: &'a DecoderStack,
    tokens: &'a Tensor,
    output: &'a Tensor,
    bias: Option<&'a Tensor>,
    memories: Vec<Memory>,
    masking: Masking,
}

/// The decoder's parameters are those of the model that it belongs to.
impl Module for ConditionedDecoder<'_> {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.shared(|visitor| visitor.field("decoder", self.stack));
    }

    fn visit_mut(&mut self, _: &mut VisitorMut) {}
}

impl LanguageModel for ConditionedDecoder<'_> {
    fn device(&self) -> Device {
        self.tokens.device()
    }

    fn vocab_size(&self) -> usize {
        self.output.dims()[0]
    }

    fn new_cache(&self) -> KvCache {
        KvCache::new(vec![None; self.memories.len()])
    }

    fn repeats_steps(&self) -> bool {
        true
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, mut cache: Option<&mut KvCache>) -> Result<Tensor> {
        let (stack, model) = (self.stack, self.stack.config.model);
        let &[batch, length] = ids.dims() else {
            return Err(Error::invalid(model, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        if let Some(cache) = &mut cache {
            cache.check_batch(batch)?;
            cache.begin(length, self.tokens.dtype(), &ids.device())?;
        }
        let table = PositionTable { model, count: stack.parts.positions, offset: stack.parts.offset };
        let at = KvCache::position_rows(cache.as_deref_mut(), table, length, &ids.device())?;
        let mut x = nn::functional::embedding(ids, self.tokens)?.mul_scalar(stack.parts.scale);
        x = x.add(&stack.embed_positions.forward(&at)?)?;
        if let Some(norm) = &stack.layernorm_embedding {
            x = norm.forward(&x)?;
        }
        for (k, (layer, memory)) in stack.layers.iter().zip(&self.memories).enumerate() {
            let cache = cache.as_deref_mut().map(|cache| (cache, k));
            x = layer.forward(&x, &memory.for_batch(model, batch)?, &self.masking, cache)?;
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        match &stack.layer_norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = nn::functional::linear(hidden, self.output, None)?;
        match self.bias {
            Some(bias) => logits.add(bias),
            None => Ok(logits),
        }
    }
}
