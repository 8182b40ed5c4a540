//! Resemblyzer's encoder of voices, with its parameter names.
//!
//! Wan et al.: Generalized end-to-end loss for speaker verification (2018).

use nn::{Linear, Lstm, Module, Parameter, RnnConfig, functional::normalize};
use tensor_core::{Error, Generator, Result, Tensor};

use crate::WeightSource;

/// The mel channels of a frame.
const MEL_CHANNELS: usize = 40;

/// The width of hidden states and embeddings.
const WIDTH: usize = 256;

/// The number of LSTM layers.
const LAYERS: usize = 3;

/// An LSTM of three layers and a linear layer: an embedding of the voice in an utterance. Resemblyzer's
/// `VoiceEncoder`.
///
/// `pretrained.pt` is a checkpoint of a training; its part `model_state` loads into this module.
#[derive(Module, Debug)]
pub struct VoiceEncoder {
    lstm: Lstm,
    linear: Linear,
    /// The factor of similarities in the loss.
    pub similarity_weight: Parameter,
    /// The term that the loss adds to similarities.
    pub similarity_bias: Parameter,
}

impl VoiceEncoder {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// Parameters that do not match, or too little memory.
    pub fn new(weights: impl Into<WeightSource>) -> Result<VoiceEncoder> {
        weights.into().network(VoiceEncoder::initial)
    }

    fn initial(rng: &Generator) -> Result<VoiceEncoder> {
        let config = RnnConfig { num_layers: LAYERS, batch_first: true, ..Default::default() };
        let number = |value: f64| Parameter::new(Tensor::full([1], value, rng.device())?);
        Ok(VoiceEncoder {
            lstm: Lstm::with_config(MEL_CHANNELS, WIDTH, config, rng)?,
            linear: Linear::new(WIDTH, WIDTH, rng)?,
            similarity_weight: number(10.0)?,
            similarity_bias: number(-5.0)?,
        })
    }

    /// The embeddings `[N, 256]`, of length 1 and at least 0, of mel spectrograms `[N, frames, 40]`, a frame
    /// every 10 ms; Resemblyzer takes 160 frames at a time. Two voices are compared by the product of their
    /// embeddings.
    ///
    /// # Errors
    /// Spectrograms of another shape.
    pub fn forward(&self, mels: &Tensor) -> Result<Tensor> {
        if mels.rank() != 3 || mels.dims()[2] != MEL_CHANNELS {
            let message = format!("mel spectrograms are [N, frames, {MEL_CHANNELS}], not {}", mels.shape());
            return Err(Error::invalid("VoiceEncoder", message));
        }
        let (_, (hidden, _)) = self.lstm.forward(mels, None)?;
        normalize(&self.linear.forward(&hidden.select(0, LAYERS - 1)?)?.relu(), 2.0, -1, 1e-12)
    }
}
