//! A small vision transformer for images of 8x8 pixels: patches of 2x2 pixels are the tokens, and their
//! positions are learned. Dosovitskiy et al.: An image is worth 16x16 words (2020).

use taper::{
    nn::{LayerNorm, Parameter, TransformerConfig, TransformerEncoder},
    prelude::*,
};

/// The patches of a row. Images are 8x8 pixels: 4x4 patches of 2x2.
const SIDE: usize = 4;
/// The side of a patch.
const PATCH: usize = 2;

/// Maps images `[N, 1, 8, 8]` to logits `[N, 10]`.
#[derive(Debug, Module)]
pub(crate) struct VisionTransformer {
    patches: Linear,
    positions: Parameter,
    /// The class token, which collects the information for the decision.
    class: Parameter,
    encoder: TransformerEncoder,
    norm: LayerNorm,
    head: Linear,
}

impl VisionTransformer {
    /// Features per patch, 16 in each attention head, and the number of layers.
    pub(crate) fn new(width: usize, layers: usize, rng: &Generator) -> Result<VisionTransformer> {
        let config = TransformerConfig {
            dim_feedforward: 2 * width,
            batch_first: true,
            norm_first: true,
            ..Default::default()
        };
        Ok(VisionTransformer {
            patches: Linear::new(PATCH * PATCH, width, rng)?,
            positions: Parameter::new(Tensor::randn((SIDE * SIDE, width), rng)? * 0.02)?,
            class: Parameter::new(Tensor::zeros((1, 1, width), rng.device())?)?,
            encoder: TransformerEncoder::new(layers, width, (width / 16).max(1), config, rng)?,
            norm: LayerNorm::new([width], rng.device())?,
            head: Linear::new(width, 10, rng)?,
        })
    }
}

impl Layer for VisionTransformer {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        // Merges rows and columns of patches, and the pixels of each patch: [N, 16, 4].
        let pixels = images.reshape((-1, SIDE, PATCH, SIDE, PATCH))?.permute([0, 1, 3, 2, 4])?;
        let words = self.patches.forward(&pixels.reshape((-1, SIDE * SIDE, PATCH * PATCH))?)?;
        let words = words.add(&self.positions)?;
        let class = self.class.expand([words.dims()[0], 1, words.dims()[2]])?;
        let seen = self.encoder.forward(&Tensor::concat(&[&class, &words], 1)?)?;
        self.head.forward(&self.norm.forward(&seen.select(1, 0)?)?)
    }
}
