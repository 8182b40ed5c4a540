//! The structures of MLPerf Tiny's four networks. The tests of `taper-ship` have this file too, so it names
//! what it needs by `super`.

use super::{
    BatchNorm2d, Conv2d, ConvConfig, ConvPadding, Generator, Layer, Linear, Module, Result, Tensor, no_grad,
};

/// A network whose norms can become parts of its convolutions.
pub(crate) trait Folding: Layer + Module {
    /// Makes them parts of the convolutions.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn fold(&mut self) -> Result<()>;
}

/// A convolution with a batch norm and perhaps a ReLU after it.
#[derive(Debug, Module)]
pub(crate) struct Same {
    conv: Conv2d,
    norm: Option<BatchNorm2d>,
}

impl Same {
    /// The padding for an input of `size` is that of TensorFlow's `same`; gives the size of the output too.
    fn new(
        channels: (usize, usize),
        kernel: [usize; 2],
        (stride, groups): (usize, usize),
        size: [usize; 2],
        rng: &Generator,
    ) -> Result<(Same, [usize; 2])> {
        let out = size.map(|size| size.div_ceil(stride));
        let pads = [0, 1].map(|axis| {
            let all = ((out[axis] - 1) * stride + kernel[axis]).saturating_sub(size[axis]);
            (all / 2, all - all / 2)
        });
        let padding = ConvPadding::Each(pads);
        let config = ConvConfig { stride: [stride; 2], padding, groups, ..Default::default() };
        let conv = Conv2d::with_config(channels.0, channels.1, kernel, config, rng)?;
        let norm = Some(BatchNorm2d::new(channels.1, &conv.weight.device())?);
        Ok((Same { conv, norm }, out))
    }

    fn linear(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv.forward(x)?;
        self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.linear(x)?.relu())
    }

    /// Makes the norm a part of the convolution; it is a factor and a summand for each channel.
    fn fold(&mut self) -> Result<()> {
        let Some(norm) = self.norm.take() else { return Ok(()) };
        norm.eval();
        let device = self.conv.weight.device();
        let channels = self.conv.weight.shape()[0];
        let of = |x: f64| norm.forward(&Tensor::full([1, channels, 1, 1], x, &device)?)?.reshape([channels]);
        no_grad(|| {
            let summand = of(0.0)?;
            let factor = of(1.0)?.sub(&summand)?;
            self.conv.weight.assign(&self.conv.weight.mul(&factor.reshape([channels, 1, 1, 1])?)?)?;
            self.conv.bias.iter().try_for_each(|bias| bias.assign(&bias.mul(&factor)?.add(&summand)?))
        })
    }
}

/// A network of convolutions one after the other, a mean over the picture, and a layer of classes.
#[derive(Debug, Module)]
pub(crate) struct Chain {
    convs: Vec<Same>,
    classes: Linear,
}

impl Layer for Chain {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.convs.iter().try_fold(x.clone(), |x, conv| conv.forward(&x))?;
        self.classes.forward(&x.mean_axis((2, 3), false)?)
    }
}

impl Folding for Chain {
    fn fold(&mut self) -> Result<()> {
        self.convs.iter_mut().try_for_each(Same::fold)
    }
}

impl Chain {
    /// A first convolution, and then blocks of a convolution of each channel and one of each position, with
    /// these channels and strides.
    fn separable(
        (first, mut size): (Same, [usize; 2]),
        mut channels: usize,
        blocks: impl IntoIterator<Item = (usize, usize)>,
        classes: usize,
        rng: &Generator,
    ) -> Result<Chain> {
        let mut convs = vec![first];
        for (to, stride) in blocks {
            let (each, out) = Same::new((channels, channels), [3, 3], (stride, channels), size, rng)?;
            let (mixed, _) = Same::new((channels, to), [1, 1], (1, 1), out, rng)?;
            convs.extend([each, mixed]);
            (channels, size) = (to, out);
        }
        Ok(Chain { convs, classes: Linear::new(channels, classes, rng)? })
    }

    /// DS-CNN, for spoken words: 49 × 10 coefficients, 12 classes.
    ///
    /// # Errors
    /// Too little memory.
    pub(crate) fn words(rng: &Generator) -> Result<Chain> {
        let first = Same::new((1, 64), [10, 4], (2, 1), [49, 10], rng)?;
        Chain::separable(first, 64, [(64, 1); 4], 12, rng)
    }

    /// A quarter of MobileNet, for persons in pictures of 96 × 96: 2 classes.
    ///
    /// # Errors
    /// Too little memory.
    pub(crate) fn persons(rng: &Generator) -> Result<Chain> {
        let blocks = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)];
        let blocks = blocks.into_iter().chain([(128, 1); 5]).chain([(256, 2), (256, 1)]);
        Chain::separable(Same::new((3, 8), [3, 3], (2, 1), [96, 96], rng)?, 8, blocks, 2, rng)
    }
}

/// ResNet-8, for pictures of 32 × 32.
#[derive(Debug, Module)]
pub(crate) struct Residual {
    first: Same,
    /// Two convolutions of each block, and the one beside them where the size changes.
    blocks: Vec<(Same, Same, Option<Same>)>,
    classes: Linear,
}

impl Residual {
    /// The network, of 10 classes.
    ///
    /// # Errors
    /// Too little memory.
    pub(crate) fn pictures(rng: &Generator) -> Result<Residual> {
        let block = |(from, to): (usize, usize), stride: usize, size: usize| {
            let beside = || Same::new((from, to), [1, 1], (stride, 1), [size; 2], rng);
            let beside = if from == to { None } else { Some(beside()?.0) };
            let (first, out) = Same::new((from, to), [3, 3], (stride, 1), [size; 2], rng)?;
            Ok((first, Same::new((to, to), [3, 3], (1, 1), out, rng)?.0, beside))
        };
        Ok(Residual {
            first: Same::new((3, 16), [3, 3], (1, 1), [32; 2], rng)?.0,
            blocks: vec![block((16, 16), 1, 32)?, block((16, 32), 2, 32)?, block((32, 64), 2, 16)?],
            classes: Linear::new(64, 10, rng)?,
        })
    }
}

impl Layer for Residual {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.first.forward(x)?;
        for (first, second, beside) in &self.blocks {
            let straight = beside.as_ref().map_or_else(|| Ok(x.clone()), |beside| beside.linear(&x))?;
            x = second.linear(&first.forward(&x)?)?.add(&straight)?.relu();
        }
        self.classes.forward(&x.mean_axis((2, 3), false)?)
    }
}

impl Folding for Residual {
    fn fold(&mut self) -> Result<()> {
        self.first.fold()?;
        for (first, second, beside) in &mut self.blocks {
            [first, second].into_iter().chain(beside).try_for_each(Same::fold)?;
        }
        Ok(())
    }
}

/// The autoencoder, for the sounds of machines.
#[derive(Debug, Module)]
pub(crate) struct Autoencoder {
    layers: Vec<Linear>,
}

impl Autoencoder {
    /// The network, for 640 numbers.
    ///
    /// # Errors
    /// Too little memory.
    pub(crate) fn sounds(rng: &Generator) -> Result<Autoencoder> {
        let sizes = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640];
        let layers = sizes.windows(2).map(|s| Linear::new(s[0], s[1], rng)).collect::<Result<_>>()?;
        Ok(Autoencoder { layers })
    }
}

impl Layer for Autoencoder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (k, layer) in self.layers.iter().enumerate() {
            x = layer.forward(&x)?;
            if k + 1 < self.layers.len() {
                x = x.relu();
            }
        }
        Ok(x)
    }
}

impl Folding for Autoencoder {
    fn fold(&mut self) -> Result<()> {
        Ok(())
    }
}
