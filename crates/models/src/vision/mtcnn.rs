//! The three networks of MTCNN, which finds faces, with facenet-pytorch's parameter names.
//!
//! Zhang et al.: Joint face detection and alignment using multi-task cascaded convolutional networks (2016).

use nn::{
    Conv2d, Linear, Module, Prelu,
    functional::{PoolOptions, max_pool2d_with},
};
use tensor_core::{Generator, Result, Tensor};

use super::blocks::check_image;
use crate::WeightSource;

/// A convolution without padding, its activation, and a max pool with a stride of 2 if `window` is given.
fn stage(conv: &Conv2d, prelu: &Prelu, window: Option<usize>, x: &Tensor) -> Result<Tensor> {
    let x = prelu.forward(&conv.forward(x)?)?;
    match window {
        Some(window) => {
            let options = PoolOptions { stride: Some([2; 2]), ceil_mode: true, ..Default::default() };
            max_pool2d_with(&x, [window; 2], options)
        }
        None => Ok(x),
    }
}

/// The features `[N, C, H, W]` as `[N, W · H · C]`, the order of the dense layers' weights.
fn flat(x: &Tensor) -> Result<Tensor> {
    x.permute([0, 3, 2, 1])?.flatten(1, -1)
}

/// The findings of [`PNet`] at each position.
#[derive(Clone, Debug)]
pub struct Proposals {
    /// The probabilities of no face and of a face, `[N, 2, H, W]`.
    pub probability: Tensor,
    /// The offsets of the box's corners, relative to its size: left, top, right, bottom, `[N, 4, H, W]`.
    pub offsets: Tensor,
}

/// The first network: proposes faces of 12 × 12 pixels at each second position of images `[N, 3, H, W]`.
/// facenet-pytorch's `PNet`.
#[derive(Module, Debug)]
pub struct PNet {
    conv1: Conv2d,
    prelu1: Prelu,
    conv2: Conv2d,
    prelu2: Prelu,
    conv3: Conv2d,
    prelu3: Prelu,
    conv4_1: Conv2d,
    conv4_2: Conv2d,
}

impl PNet {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// Parameters that do not match, or too little memory.
    pub fn new(weights: impl Into<WeightSource>) -> Result<PNet> {
        weights.into().network(PNet::initial)
    }

    fn initial(rng: &Generator) -> Result<PNet> {
        let prelu = |channels: usize| Prelu::new(channels, rng.device());
        Ok(PNet {
            conv1: Conv2d::new(3, 10, 3, rng)?,
            prelu1: prelu(10)?,
            conv2: Conv2d::new(10, 16, 3, rng)?,
            prelu2: prelu(16)?,
            conv3: Conv2d::new(16, 32, 3, rng)?,
            prelu3: prelu(32)?,
            conv4_1: Conv2d::new(32, 2, 1, rng)?,
            conv4_2: Conv2d::new(32, 4, 1, rng)?,
        })
    }

    /// The proposals for images `[N, 3, H, W]` of values between −1 and 1, at least 12 × 12.
    ///
    /// # Errors
    /// An input that is no image of three channels, or too small.
    pub fn forward(&self, x: &Tensor) -> Result<Proposals> {
        check_image("PNet", x, 3)?;
        let x = stage(&self.conv1, &self.prelu1, Some(2), x)?;
        let x = stage(&self.conv2, &self.prelu2, None, &x)?;
        let x = stage(&self.conv3, &self.prelu3, None, &x)?;
        let probability = self.conv4_1.forward(&x)?.softmax(1)?;
        Ok(Proposals { probability, offsets: self.conv4_2.forward(&x)? })
    }
}

/// The findings of [`RNet`] in each candidate.
#[derive(Clone, Debug)]
pub struct Refined {
    /// The probabilities of no face and of a face, `[N, 2]`.
    pub probability: Tensor,
    /// The offsets of the box's corners, relative to its size: left, top, right, bottom, `[N, 4]`.
    pub offsets: Tensor,
}

/// The second network: judges candidates of 24 × 24 pixels. facenet-pytorch's `RNet`.
#[derive(Module, Debug)]
pub struct RNet {
    conv1: Conv2d,
    prelu1: Prelu,
    conv2: Conv2d,
    prelu2: Prelu,
    conv3: Conv2d,
    prelu3: Prelu,
    dense4: Linear,
    prelu4: Prelu,
    dense5_1: Linear,
    dense5_2: Linear,
}

impl RNet {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// Parameters that do not match, or too little memory.
    pub fn new(weights: impl Into<WeightSource>) -> Result<RNet> {
        weights.into().network(RNet::initial)
    }

    fn initial(rng: &Generator) -> Result<RNet> {
        let prelu = |channels: usize| Prelu::new(channels, rng.device());
        Ok(RNet {
            conv1: Conv2d::new(3, 28, 3, rng)?,
            prelu1: prelu(28)?,
            conv2: Conv2d::new(28, 48, 3, rng)?,
            prelu2: prelu(48)?,
            conv3: Conv2d::new(48, 64, 2, rng)?,
            prelu3: prelu(64)?,
            dense4: Linear::new(576, 128, rng)?,
            prelu4: prelu(128)?,
            dense5_1: Linear::new(128, 2, rng)?,
            dense5_2: Linear::new(128, 4, rng)?,
        })
    }

    /// The judgement of candidates `[N, 3, 24, 24]` of values between −1 and 1.
    ///
    /// # Errors
    /// An input of another shape.
    pub fn forward(&self, x: &Tensor) -> Result<Refined> {
        check_image("RNet", x, 3)?;
        let x = stage(&self.conv1, &self.prelu1, Some(3), x)?;
        let x = stage(&self.conv2, &self.prelu2, Some(3), &x)?;
        let x = stage(&self.conv3, &self.prelu3, None, &x)?;
        let x = self.prelu4.forward(&self.dense4.forward(&flat(&x)?)?)?;
        Ok(Refined {
            probability: self.dense5_1.forward(&x)?.softmax(1)?,
            offsets: self.dense5_2.forward(&x)?,
        })
    }
}

/// The findings of [`ONet`] in each candidate.
#[derive(Clone, Debug)]
pub struct Face {
    /// The probabilities of no face and of a face, `[N, 2]`.
    pub probability: Tensor,
    /// The offsets of the box's corners, relative to its size: left, top, right, bottom, `[N, 4]`.
    pub offsets: Tensor,
    /// The eyes, the nose and the corners of the mouth, relative to the box: five x, then five y, `[N, 10]`.
    pub landmarks: Tensor,
}

/// The third network: judges candidates of 48 × 48 pixels, and finds five points. facenet-pytorch's `ONet`.
#[derive(Module, Debug)]
pub struct ONet {
    conv1: Conv2d,
    prelu1: Prelu,
    conv2: Conv2d,
    prelu2: Prelu,
    conv3: Conv2d,
    prelu3: Prelu,
    conv4: Conv2d,
    prelu4: Prelu,
    dense5: Linear,
    prelu5: Prelu,
    dense6_1: Linear,
    dense6_2: Linear,
    dense6_3: Linear,
}

impl ONet {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// Parameters that do not match, or too little memory.
    pub fn new(weights: impl Into<WeightSource>) -> Result<ONet> {
        weights.into().network(ONet::initial)
    }

    fn initial(rng: &Generator) -> Result<ONet> {
        let prelu = |channels: usize| Prelu::new(channels, rng.device());
        Ok(ONet {
            conv1: Conv2d::new(3, 32, 3, rng)?,
            prelu1: prelu(32)?,
            conv2: Conv2d::new(32, 64, 3, rng)?,
            prelu2: prelu(64)?,
            conv3: Conv2d::new(64, 64, 3, rng)?,
            prelu3: prelu(64)?,
            conv4: Conv2d::new(64, 128, 2, rng)?,
            prelu4: prelu(128)?,
            dense5: Linear::new(1152, 256, rng)?,
            prelu5: prelu(256)?,
            dense6_1: Linear::new(256, 2, rng)?,
            dense6_2: Linear::new(256, 4, rng)?,
            dense6_3: Linear::new(256, 10, rng)?,
        })
    }

    /// The judgement of candidates `[N, 3, 48, 48]` of values between −1 and 1.
    ///
    /// # Errors
    /// An input of another shape.
    pub fn forward(&self, x: &Tensor) -> Result<Face> {
        check_image("ONet", x, 3)?;
        let x = stage(&self.conv1, &self.prelu1, Some(3), x)?;
        let x = stage(&self.conv2, &self.prelu2, Some(3), &x)?;
        let x = stage(&self.conv3, &self.prelu3, Some(2), &x)?;
        let x = stage(&self.conv4, &self.prelu4, None, &x)?;
        let x = self.prelu5.forward(&self.dense5.forward(&flat(&x)?)?)?;
        Ok(Face {
            probability: self.dense6_1.forward(&x)?.softmax(1)?,
            offsets: self.dense6_2.forward(&x)?,
            landmarks: self.dense6_3.forward(&x)?,
        })
    }
}
