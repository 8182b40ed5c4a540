//! The small convolutional network of PyTorch's basic MNIST example.

use taper::{
    nn::{Conv2d, Dropout, MaxPool2d},
    prelude::*,
};

/// Two convolutions, a pooling and two linear layers; maps images `[N, 1, S, S]` to logits `[N, 10]`.
#[derive(Debug, Module)]
pub(crate) struct MnistNet {
    conv1: Conv2d,
    conv2: Conv2d,
    pool: MaxPool2d,
    dropout1: Dropout,
    fc1: Linear,
    dropout2: Dropout,
    fc2: Linear,
}

impl MnistNet {
    /// For MNIST's 28x28 pixels.
    pub(crate) fn new(rng: &Generator) -> Result<MnistNet> {
        MnistNet::with_size(28, rng)
    }

    /// For images of `size` by `size` pixels, at least 6: each convolution makes a side two pixels shorter,
    /// and the pooling halves it.
    pub(crate) fn with_size(size: usize, rng: &Generator) -> Result<MnistNet> {
        let side = size.saturating_sub(4) / 2;
        Ok(MnistNet {
            conv1: Conv2d::new(1, 32, 3, rng)?,
            conv2: Conv2d::new(32, 64, 3, rng)?,
            pool: MaxPool2d::new(2),
            dropout1: Dropout::new(0.25, rng)?,
            fc1: Linear::new(64 * side * side, 128, rng)?,
            dropout2: Dropout::new(0.5, rng)?,
            fc2: Linear::new(128, 10, rng)?,
        })
    }
}

impl Layer for MnistNet {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(images)?.relu();
        let x = self.conv2.forward(&x)?.relu();
        let x = self.dropout1.forward(&self.pool.forward(&x)?)?.flatten(1, -1)?;
        let x = self.dropout2.forward(&self.fc1.forward(&x)?.relu())?;
        self.fc2.forward(&x)
    }
}
