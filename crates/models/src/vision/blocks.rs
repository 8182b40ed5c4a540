//! Parts that several networks share, with torchvision's names: a convolution with its norm and activation,
//! squeeze-and-excitation, layer norm over channels, perceptrons.

use nn::{
    BatchNorm2d, BatchNormConfig, Conv2d, ConvConfig, Dropout, LayerNorm, LayerNormConfig, Linear, Module,
    Sequential, Visitor, VisitorMut,
    init::{self, Fan, Nonlinearity},
};
use tensor_core::{Error, Generator, Result, Tensor};

pub(crate) use crate::{
    as_layer::layer,
    config::{Activation, check_counts as positive},
};

/// A convolution, a batch norm and an activation, as layers 0, 1 and 2. torchvision's
/// `Conv2dNormActivation`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvNormActivation {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) groups: usize,
    pub(crate) dilation: usize,
    pub(crate) norm: BatchNormConfig,
    pub(crate) activation: Option<Activation>,
}

impl Default for ConvNormActivation {
    fn default() -> ConvNormActivation {
        let (norm, activation) = (BatchNormConfig::default(), Some(Activation::Relu));
        ConvNormActivation { kernel: 3, stride: 1, groups: 1, dilation: 1, norm, activation }
    }
}

impl ConvNormActivation {
    /// The layers from `from` to `to` channels; the padding keeps the size for a stride of 1.
    pub(crate) fn layers(self, from: usize, to: usize, rng: &Generator) -> Result<Sequential> {
        let ConvNormActivation { kernel, stride, groups, dilation, norm, activation } = self;
        let config = ConvConfig {
            stride: [stride; 2],
            padding: (kernel.saturating_sub(1) / 2 * dilation).into(),
            dilation: [dilation; 2],
            groups,
            bias: false,
            ..Default::default()
        };
        let conv = Conv2d::with_config(from, to, kernel, config, rng)?;
        let layers = Sequential::new().add(conv).add(BatchNorm2d::with_config(to, norm, rng.device())?);
        Ok(match activation {
            Some(activation) => layers.add(activation),
            None => layers,
        })
    }
}

/// A square convolution with a padding that keeps the size for a stride of 1.
pub(crate) fn conv(
    from: usize,
    to: usize,
    kernel: usize,
    stride: usize,
    bias: bool,
    rng: &Generator,
) -> Result<Conv2d> {
    let padding = (kernel.saturating_sub(1) / 2).into();
    let config = ConvConfig { stride: [stride; 2], padding, bias, ..Default::default() };
    Conv2d::with_config(from, to, kernel, config, rng)
}

/// The convolution of square patches that do not overlap: `[N, from, H, W]` to `[N, to, H / size, W /
/// size]`.
pub(crate) fn patches(from: usize, to: usize, size: usize, bias: bool, rng: &Generator) -> Result<Conv2d> {
    Conv2d::with_config(from, to, size, ConvConfig { stride: [size; 2], bias, ..Default::default() }, rng)
}

/// The scale of each channel from the mean of all channels: x · σ(fc2(δ(fc1(mean of x)))). torchvision's
/// `SqueezeExcitation`.
///
/// Hu et al.: Squeeze-and-excitation networks (2018).
#[derive(Module, Debug)]
pub(crate) struct SqueezeExcitation {
    fc1: Conv2d,
    fc2: Conv2d,
    activation: Activation,
    scale_activation: Activation,
}

impl SqueezeExcitation {
    pub(crate) fn new(
        channels: usize,
        squeezed: usize,
        activation: Activation,
        scale_activation: Activation,
        rng: &Generator,
    ) -> Result<SqueezeExcitation> {
        let (fc1, fc2) = (Conv2d::new(channels, squeezed, 1, rng)?, Conv2d::new(squeezed, channels, 1, rng)?);
        Ok(SqueezeExcitation { fc1, fc2, activation, scale_activation })
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let scale = self.activation.activate(&self.fc1.forward(&x.mean_axis([2, 3], true)?)?);
        x.mul(&self.scale_activation.activate(&self.fc2.forward(&scale)?))
    }
}

/// Layer norm over the channels of `[N, C, H, W]`. torchvision's `LayerNorm2d`.
#[derive(Debug)]
pub(crate) struct LayerNorm2d(pub(crate) LayerNorm);

impl LayerNorm2d {
    pub(crate) fn new(channels: usize, eps: f64, rng: &Generator) -> Result<LayerNorm2d> {
        Ok(LayerNorm2d(layer_norm(channels, eps, rng)?))
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(&x.permute([0, 2, 3, 1])?)?.permute([0, 3, 1, 2])
    }
}

impl Module for LayerNorm2d {
    fn visit(&self, visitor: &mut Visitor) {
        self.0.visit(visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.0.visit_mut(visitor);
    }
}

/// A permutation of axes, as a layer. torchvision's `Permute`.
#[derive(Module, Debug)]
pub(crate) struct Permute(pub(crate) [usize; 4]);

impl Permute {
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.permute(self.0)
    }
}

layer!(SqueezeExcitation, LayerNorm2d, Permute);

/// Modules that are named by a prefix and their number, as `encoder_layer_0` and so on.
#[derive(Debug)]
pub(crate) struct Numbered<M> {
    prefix: String,
    first: usize,
    pub(crate) list: Vec<M>,
}

impl<M> Numbered<M> {
    /// The modules, the first of which has the number `first`.
    pub(crate) fn new(prefix: impl Into<String>, first: usize, list: Vec<M>) -> Numbered<M> {
        Numbered { prefix: prefix.into(), first, list }
    }
}

impl<M: Module> Module for Numbered<M> {
    fn visit(&self, visitor: &mut Visitor) {
        for (number, module) in (self.first..).zip(&self.list) {
            visitor.field(&format!("{}{number}", self.prefix), module);
        }
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.list.visit_mut(visitor);
    }
}

/// Layer norm over the last axis.
pub(crate) fn layer_norm(features: usize, eps: f64, rng: &Generator) -> Result<LayerNorm> {
    LayerNorm::with_config([features], LayerNormConfig { eps, ..Default::default() }, rng.device())
}

/// The tokens `[N, H · W, C]` of patches `[N, C, H, W]`.
pub(crate) fn tokens(patches: &Tensor) -> Result<Tensor> {
    patches.flatten(2, 3)?.transpose(1, 2)
}

/// Two linear layers, each followed by dropout, with an activation between them; the linear ones are layers
/// 0 and 3. torchvision's `MLP`.
pub(crate) fn mlp(
    features: usize,
    hidden: usize,
    activation: Activation,
    dropout: f64,
    rng: &Generator,
) -> Result<Sequential> {
    Ok(Sequential::new()
        .add(Linear::new(features, hidden, rng)?)
        .add(activation)
        .add(Dropout::new(dropout, rng)?)
        .add(Linear::new(hidden, features, rng)?)
        .add(Dropout::new(dropout, rng)?))
}

/// The mean of each channel of `[N, C, H, W]`: `[N, C]`.
pub(crate) fn global_mean(x: &Tensor) -> Result<Tensor> {
    x.mean_axis([2, 3], false)
}

/// The multiple of `divisor` nearest to `value`, at least `divisor`, and not below 90 % of `value`.
/// torchvision's `_make_divisible`.
pub(crate) fn make_divisible(value: f64, divisor: usize) -> usize {
    let divisor = divisor as f64;
    let rounded = (((value + divisor / 2.0) / divisor).floor() * divisor).max(divisor);
    (if rounded < 0.9 * value { rounded + divisor } else { rounded }) as usize
}

/// The initial values of the linear layers of a network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinearInit {
    /// PyTorch's default.
    Default,
    /// A normal distribution with this deviation, and biases of 0.
    Normal(f64),
    /// A uniform distribution on (−1/√outputs, 1/√outputs), and biases of 0.
    UniformByOutputs,
}

/// Sets the initial values of convolutions, by Kaiming's normal scheme for the backward pass, and those of
/// linear layers.
pub(crate) fn initialize(module: &dyn Module, linear: LinearInit, rng: &Generator) -> Result<()> {
    module.apply(&mut |name, parameter| {
        let shape = parameter.shape().clone();
        let outputs = shape.dims().first().copied().unwrap_or(1);
        let value = match (shape.rank(), linear) {
            (4, _) => init::kaiming_normal(shape, Fan::Out, Nonlinearity::Relu, rng)?,
            (_, LinearInit::Default) => return Ok(()),
            (2, LinearInit::Normal(std)) => init::normal(shape, 0.0, std, rng)?,
            (2, LinearInit::UniformByOutputs) => {
                let bound = 1.0 / (outputs as f64).sqrt();
                init::uniform(shape, -bound, bound, rng)?
            }
            _ if name.ends_with("bias") => parameter.zeros_like(),
            _ => return Ok(()),
        };
        parameter.assign(&value)
    })
}

/// Fails unless an input is `[N, channels, size, size]`.
pub(crate) fn check_image_of_size(
    model: &'static str,
    x: &Tensor,
    channels: usize,
    size: usize,
) -> Result<()> {
    check_image(model, x, channels)?;
    if x.dims()[2..] == [size; 2] {
        return Ok(());
    }
    let message = format!("an image {} does not have the configured size {size} × {size}", x.shape());
    Err(Error::invalid(model, message))
}

/// Fails unless an input is `[N, channels, H, W]`.
pub(crate) fn check_image(model: &'static str, x: &Tensor, channels: usize) -> Result<()> {
    match *x.dims() {
        [_, found, _, _] if found == channels => Ok(()),
        _ => {
            let message = format!("the input is an image [N, {channels}, H, W], not {}", x.shape());
            Err(Error::invalid(model, message))
        }
    }
}
