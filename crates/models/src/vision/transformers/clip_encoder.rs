//! The transformer that CLIP and SigLIP share, and its embeddings of texts, with transformers' names.

use nn::{Embedding, LayerNorm, Linear, Module};
use tensor_core::{Device, Error, Generator, Result, Tensor};

use crate::{
    Masking,
    config::Activation,
    projected_attention::ProjectedAttention,
    vision::blocks::{layer_norm, positive},
};

/// The sizes of an [`Encoder`], and the model that errors name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncoderConfig {
    pub(crate) model: &'static str,
    pub(crate) width: usize,
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) activation: Activation,
    pub(crate) eps: f64,
}

/// A perceptron with one hidden layer.
#[derive(Module, Debug)]
pub(crate) struct Mlp {
    fc1: Linear,
    fc2: Linear,
    activation: Activation,
}

impl Mlp {
    pub(crate) fn new(config: EncoderConfig, rng: &Generator) -> Result<Mlp> {
        let EncoderConfig { model, width, hidden, activation, .. } = config;
        positive(model, &[("intermediate_size", hidden)])?;
        Ok(Mlp { fc1: Linear::new(width, hidden, rng)?, fc2: Linear::new(hidden, width, rng)?, activation })
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc2.forward(&self.activation.activate(&self.fc1.forward(x)?))
    }
}

#[derive(Module, Debug)]
struct EncoderLayer {
    self_attn: ProjectedAttention,
    layer_norm1: LayerNorm,
    mlp: Mlp,
    layer_norm2: LayerNorm,
}

/// Layers of attention and perceptrons, each after a norm and added to its input.
#[derive(Module, Debug)]
pub(crate) struct Encoder {
    layers: Vec<EncoderLayer>,
}

impl Encoder {
    pub(crate) fn new(config: EncoderConfig, rng: &Generator) -> Result<Encoder> {
        let EncoderConfig { model, width, heads, eps, .. } = config;
        let layer = |_| {
            Ok(EncoderLayer {
                self_attn: ProjectedAttention::new(model, width, heads, rng)?,
                layer_norm1: layer_norm(width, eps, rng)?,
                mlp: Mlp::new(config, rng)?,
                layer_norm2: layer_norm(width, eps, rng)?,
            })
        };
        Ok(Encoder { layers: (0..config.layers).map(layer).collect::<Result<_>>()? })
    }

    pub(crate) fn forward(&self, x: &Tensor, masking: &Masking) -> Result<Tensor> {
        let mut x = x.clone();
        for layer in &self.layers {
            let y = layer.layer_norm1.forward(&x)?;
            x = x.add(&layer.self_attn.forward(&y, &y, masking)?)?;
            x = x.add(&layer.mlp.forward(&layer.layer_norm2.forward(&x)?)?)?;
        }
        Ok(x)
    }
}

/// The embeddings of tokens and of their positions.
#[derive(Module, Debug)]
pub(crate) struct TextEmbeddings {
    token_embedding: Embedding,
    position_embedding: Embedding,
    #[module(skip)]
    model: &'static str,
}

impl TextEmbeddings {
    /// Embeddings of a vocabulary, for this many positions, of this width.
    pub(crate) fn new(
        model: &'static str,
        [vocabulary, positions, width]: [usize; 3],
        rng: &Generator,
    ) -> Result<TextEmbeddings> {
        positive(model, &[("vocab_size", vocabulary), ("max_position_embeddings", positions)])?;
        positive(model, &[("hidden_size", width)])?;
        let token_embedding = Embedding::new(vocabulary, width, rng)?;
        Ok(TextEmbeddings {
            token_embedding,
            position_embedding: Embedding::new(positions, width, rng)?,
            model,
        })
    }

    pub(crate) fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let positions = self.position_embedding.weight.dims()[0];
        let &[_, length] = ids.dims() else {
            return Err(Error::invalid(
                self.model,
                format!("ids have the shape [N, L], not {}", ids.shape()),
            ));
        };
        if length > positions {
            let message = format!("a text of {length} tokens: there are {positions} positions");
            return Err(Error::invalid(self.model, message));
        }
        self.token_embedding.forward(ids)?.add(&self.position_embedding.weight.narrow(0, 0, length)?)
    }
}

/// The whole numbers below `count`, of the device's dtype for indices.
pub(crate) fn position_ids(count: usize, device: &Device) -> Result<Tensor> {
    Tensor::arange(0, count as i64, 1, (device.int_dtype(), device))
}
