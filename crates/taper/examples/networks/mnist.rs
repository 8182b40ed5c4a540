//! A small convolutional network for handwritten digits: that of PyTorch's basic MNIST example.

use taper::{
    nn::{Conv2d, Dropout, MaxPool2d},
    prelude::*,
};

/// Two convolutions, a pooling and two linear layers: `[N, 1, 28, 28]` to logits `[N, 10]`.
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
    pub(crate) fn new(rng: &Generator) -> Result<MnistNet> {
        Ok(MnistNet {
            conv1: Conv2d::new(1, 32, 3, rng)?,
            conv2: Conv2d::new(32, 64, 3, rng)?,
            pool: MaxPool2d::new(2),
            dropout1: Dropout::new(0.25, rng)?,
            fc1: Linear::new(9216, 128, rng)?,
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
