//! ResNet, ResNeXt and wide ResNet, with torchvision's parameter names.
//!
//! He et al.: Deep residual learning for image recognition (2016). Xie et al.: Aggregated residual
//! transformations for deep neural networks (2017). Zagoruyko and Komodakis: Wide residual networks (2016).

use nn::{
    BatchNorm2d, Conv2d, ConvConfig, FrozenBatchNorm2d, Linear, Module, Sequential, Visitor, VisitorMut,
    functional::{PoolOptions, max_pool2d_with},
};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{LinearInit, check_image, conv, global_mean, initialize, layer, positive};
use crate::WeightSource;

/// The kind of a [`ResNet`]'s blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResNetBlock {
    /// Two convolutions of 3 × 3.
    Basic,
    /// Convolutions of 1 × 1, 3 × 3 and 1 × 1, with four times as many channels at the end.
    Bottleneck,
}

impl ResNetBlock {
    /// The output channels of a block, as a multiple of its planes.
    pub fn expansion(self) -> usize {
        match self {
            ResNetBlock::Basic => 1,
            ResNetBlock::Bottleneck => 4,
        }
    }
}

/// The configuration of a [`ResNet`], with torchvision's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResNetConfig {
    /// The kind of the blocks.
    pub block: ResNetBlock,
    /// The number of blocks in each of the four stages.
    pub layers: [usize; 4],
    /// The number of outputs.
    pub num_classes: usize,
    /// The number of groups of the 3 × 3 convolutions of bottlenecks.
    pub groups: usize,
    /// The channels of a group in the first stage; 64 is the original width.
    pub width_per_group: usize,
    /// Whether the last three stages have dilated convolutions instead of a stride of 2.
    pub replace_stride_with_dilation: [bool; 3],
    /// Whether the last norm of each block begins at 0, so that blocks begin as the identity.
    pub zero_init_residual: bool,
}

/// A preset of this kind, number of blocks, groups and width per group.
macro_rules! presets {
    ($($name:ident: $block:ident $layers:tt $groups:literal $width:literal;)*) => {
        impl ResNetConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`.")]
            pub fn $name() -> ResNetConfig {
                ResNetConfig::new(ResNetBlock::$block, $layers, $groups, $width)
            }
        )*}
    };
}

presets! {
    resnet18: Basic [2, 2, 2, 2] 1 64;
    resnet34: Basic [3, 4, 6, 3] 1 64;
    resnet50: Bottleneck [3, 4, 6, 3] 1 64;
    resnet101: Bottleneck [3, 4, 23, 3] 1 64;
    resnet152: Bottleneck [3, 8, 36, 3] 1 64;
    resnext50_32x4d: Bottleneck [3, 4, 6, 3] 32 4;
    resnext101_32x8d: Bottleneck [3, 4, 23, 3] 32 8;
    resnext101_64x4d: Bottleneck [3, 4, 23, 3] 64 4;
    wide_resnet50_2: Bottleneck [3, 4, 6, 3] 1 128;
    wide_resnet101_2: Bottleneck [3, 4, 23, 3] 1 128;
}

impl ResNetConfig {
    /// A configuration for the 1000 classes of ImageNet.
    pub fn new(
        block: ResNetBlock,
        layers: [usize; 4],
        groups: usize,
        width_per_group: usize,
    ) -> ResNetConfig {
        ResNetConfig {
            block,
            layers,
            num_classes: 1000,
            groups,
            width_per_group,
            replace_stride_with_dilation: [false; 3],
            zero_init_residual: false,
        }
    }
}

/// The norm after a convolution: trained, or frozen in detectors.
#[derive(Module, Debug)]
enum Norm {
    Batch(BatchNorm2d),
    Frozen(FrozenBatchNorm2d),
}

impl Norm {
    fn new(channels: usize, frozen: bool, rng: &Generator) -> Result<Norm> {
        Ok(match frozen {
            true => Norm::Frozen(FrozenBatchNorm2d::new(channels, rng.device())?),
            false => Norm::Batch(BatchNorm2d::new(channels, rng.device())?),
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Norm::Batch(norm) => norm.forward(x),
            Norm::Frozen(norm) => norm.forward(x),
        }
    }
}

/// One residual block: x + bn(conv(…)), with `downsample` for x where the shape changes.
#[derive(Module, Debug)]
struct Block {
    conv1: Conv2d,
    bn1: Norm,
    conv2: Conv2d,
    bn2: Norm,
    conv3: Option<Conv2d>,
    bn3: Option<Norm>,
    downsample: Option<Sequential>,
}

impl Block {
    fn new(
        config: &ResNetConfig,
        from: usize,
        planes: usize,
        stride: usize,
        dilation: usize,
        [project, frozen]: [bool; 2],
        rng: &Generator,
    ) -> Result<Block> {
        let to = planes * config.block.expansion();
        let norm = |channels: usize| Norm::new(channels, frozen, rng);
        let downsample = match project {
            true => Some(Sequential::new().add(conv(from, to, 1, stride, false, rng)?).add(norm(to)?)),
            false => None,
        };
        if config.block == ResNetBlock::Basic {
            return Ok(Block {
                conv1: conv(from, planes, 3, stride, false, rng)?,
                bn1: norm(planes)?,
                conv2: conv(planes, planes, 3, 1, false, rng)?,
                bn2: norm(planes)?,
                conv3: None,
                bn3: None,
                downsample,
            });
        }
        let width = planes * config.width_per_group / 64 * config.groups;
        let middle = ConvConfig {
            stride: [stride; 2],
            padding: dilation.into(),
            dilation: [dilation; 2],
            groups: config.groups,
            bias: false,
            ..Default::default()
        };
        Ok(Block {
            conv1: conv(from, width, 1, 1, false, rng)?,
            bn1: norm(width)?,
            conv2: Conv2d::with_config(width, width, 3, middle, rng)?,
            bn2: norm(width)?,
            conv3: Some(conv(width, to, 1, 1, false, rng)?),
            bn3: Some(norm(to)?),
            downsample,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut out = self.bn1.forward(&self.conv1.forward(x)?)?.relu();
        out = self.bn2.forward(&self.conv2.forward(&out)?)?;
        if let (Some(conv), Some(norm)) = (&self.conv3, &self.bn3) {
            out = norm.forward(&conv.forward(&out.relu())?)?;
        }
        let identity = match &self.downsample {
            Some(layers) => layers.forward(x)?,
            None => x.clone(),
        };
        Ok(out.add(&identity)?.relu())
    }
}

/// A [`ResNet`] without its classifier, also for detectors, where norms are frozen.
#[derive(Module, Debug)]
pub(super) struct Backbone {
    conv1: Conv2d,
    bn1: Norm,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    layer4: Vec<Block>,
}

impl Backbone {
    /// The stages of a configuration with torchvision's initial weights.
    pub(super) fn new(config: &ResNetConfig, frozen: bool, rng: &Generator) -> Result<Backbone> {
        let &ResNetConfig { block, layers, groups, width_per_group, .. } = config;
        positive("ResNet", &[("groups", groups), ("width_per_group", width_per_group)])?;
        if layers.contains(&0) {
            return Err(Error::invalid("ResNet", format!("layers {layers:?}: every stage needs a block")));
        }
        let dilated = config.replace_stride_with_dilation.contains(&true);
        if block == ResNetBlock::Basic && (groups != 1 || width_per_group != 64 || dilated) {
            let message = "basic blocks have one group, a width of 64 and no dilation; use bottlenecks";
            return Err(Error::invalid("ResNet", message));
        }
        let (mut from, mut dilation) = (64, 1);
        let mut stage = |index: usize| -> Result<Vec<Block>> {
            let planes = 64 << index;
            let (mut stride, before) = (if index == 0 { 1 } else { 2 }, dilation);
            if index > 0 && config.replace_stride_with_dilation[index - 1] {
                (dilation, stride) = (dilation * stride, 1);
            }
            let to = planes * block.expansion();
            let project = stride != 1 || from != to;
            let mut blocks = vec![Block::new(config, from, planes, stride, before, [project, frozen], rng)?];
            from = to;
            for _ in 1..layers[index] {
                blocks.push(Block::new(config, from, planes, 1, dilation, [false, frozen], rng)?);
            }
            Ok(blocks)
        };
        let [layer1, layer2, layer3, layer4] = [stage(0)?, stage(1)?, stage(2)?, stage(3)?];
        let (conv1, bn1) = (conv(3, 64, 7, 2, false, rng)?, Norm::new(64, frozen, rng)?);
        let model = Backbone { conv1, bn1, layer1, layer2, layer3, layer4 };
        initialize(&model, LinearInit::Default, rng)?;
        if config.zero_init_residual {
            for block in model.stages().into_iter().flatten() {
                if let Norm::Batch(norm) = block.bn3.as_ref().unwrap_or(&block.bn2)
                    && let Some(weight) = norm.weight()
                {
                    weight.assign(&weight.zeros_like())?;
                }
            }
        }
        Ok(model)
    }

    fn stages(&self) -> [&Vec<Block>; 4] {
        [&self.layer1, &self.layer2, &self.layer3, &self.layer4]
    }

    /// The outputs of the four stages.
    pub(super) fn forward(&self, x: &Tensor) -> Result<[Tensor; 4]> {
        check_image("ResNet", x, 3)?;
        let x = self.bn1.forward(&self.conv1.forward(x)?)?.relu();
        let options = PoolOptions { stride: Some([2; 2]), padding: [1; 2], ..Default::default() };
        let run =
            |stage: &[Block], x: &Tensor| stage.iter().try_fold(x.clone(), |x, block| block.forward(&x));
        let first = run(&self.layer1, &max_pool2d_with(&x, [3; 2], options)?)?;
        let second = run(&self.layer2, &first)?;
        let third = run(&self.layer3, &second)?;
        let fourth = run(&self.layer4, &third)?;
        Ok([first, second, third, fourth])
    }
}

/// A residual network for images `[N, 3, H, W]`: logits `[N, classes]`. torchvision's `ResNet`.
///
/// ```
/// use models::vision::{ResNet, ResNetConfig};
/// use nn::Module;
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let config = ResNetConfig { layers: [1, 0, 0, 0], num_classes: 10, ..ResNetConfig::resnet18() };
/// assert!(ResNet::new(&config, &rng).is_err()); // every stage needs a block
/// let model = ResNet::new(&ResNetConfig { layers: [1; 4], ..config }, &rng)?;
/// model.eval();
/// assert_eq!(model.forward(&Tensor::zeros([1, 3, 32, 32], rng.device())?)?.dims(), [1, 10]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ResNet {
    backbone: Backbone,
    fc: Linear,
}

impl Module for ResNet {
    fn visit(&self, visitor: &mut Visitor) {
        self.backbone.visit(visitor);
        visitor.field("fc", &self.fc);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.backbone.visit_mut(visitor);
        self.fc.visit_mut(visitor);
    }
}

impl ResNet {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// A stage without blocks, no classes, groups or width, basic blocks with groups, another width or
    /// dilation, parameters that do not match, or too little memory.
    pub fn new(config: &ResNetConfig, weights: impl Into<WeightSource>) -> Result<ResNet> {
        weights.into().network(|rng| ResNet::initial(config, rng))
    }

    fn initial(config: &ResNetConfig, rng: &Generator) -> Result<ResNet> {
        positive("ResNet", &[("num_classes", config.num_classes)])?;
        let backbone = Backbone::new(config, false, rng)?;
        Ok(ResNet { backbone, fc: Linear::new(512 * config.block.expansion(), config.num_classes, rng)? })
    }

    /// The outputs of the four stages, `[N, 64, H/4, W/4]` to `[N, 512, H/32, W/32]`, with four times the
    /// channels for bottlenecks.
    ///
    /// # Errors
    /// An input that is no image of three channels.
    pub fn features(&self, x: &Tensor) -> Result<[Tensor; 4]> {
        self.backbone.forward(x)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// An input that is no image of three channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [.., last] = self.features(x)?;
        self.fc.forward(&global_mean(&last)?)
    }
}

layer!(Norm, ResNet);
