//! RegNetX and RegNetY, with torchvision's parameter names.
//!
//! Radosavovic et al.: Designing network design spaces (2020).

use nn::{Linear, Module, Sequential, init};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{
    Activation, ConvNormActivation, Numbered, SqueezeExcitation, check_image, global_mean, layer,
    make_divisible, positive,
};
use crate::WeightSource;

/// The configuration of a [`RegNet`]: the parameters of the linear rule for widths, u = w_0 + w_a · block,
/// which is rounded to powers of w_m and then to multiples of 8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RegNetConfig {
    /// The number of blocks.
    pub depth: usize,
    /// The width of the first block, a multiple of 8.
    pub w_0: usize,
    /// The slope of widths.
    pub w_a: f64,
    /// The ratio of widths of neighbouring stages, above 1.
    pub w_m: f64,
    /// The channels of a group.
    pub group_width: usize,
    /// The channels between the convolutions of squeeze-and-excitation, as a share of a block's input:
    /// RegNetY has it.
    pub se_ratio: Option<f64>,
    /// The channels of the first convolution.
    pub stem_width: usize,
    /// The number of outputs.
    pub num_classes: usize,
}

/// Presets: depth, w_0, w_a, w_m, group width, share of squeeze-and-excitation.
macro_rules! presets {
    ($($name:ident: $depth:literal $w_0:literal $w_a:literal $w_m:literal $group:literal $se:expr;)*) => {
        impl RegNetConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`.")]
            pub fn $name() -> RegNetConfig {
                RegNetConfig {
                    depth: $depth,
                    w_0: $w_0,
                    w_a: $w_a,
                    w_m: $w_m,
                    group_width: $group,
                    se_ratio: $se,
                    stem_width: 32,
                    num_classes: 1000,
                }
            }
        )*}
    };
}

presets! {
    regnet_y_400mf: 16 48 27.89 2.09 8 Some(0.25);
    regnet_y_800mf: 14 56 38.84 2.4 16 Some(0.25);
    regnet_y_1_6gf: 27 48 20.71 2.65 24 Some(0.25);
    regnet_y_3_2gf: 21 80 42.63 2.66 24 Some(0.25);
    regnet_y_8gf: 17 192 76.82 2.19 56 Some(0.25);
    regnet_y_16gf: 18 200 106.23 2.48 112 Some(0.25);
    regnet_y_32gf: 20 232 115.89 2.53 232 Some(0.25);
    regnet_y_128gf: 27 456 160.83 2.52 264 Some(0.25);
    regnet_x_400mf: 22 24 24.48 2.54 16 None;
    regnet_x_800mf: 16 56 35.73 2.28 16 None;
    regnet_x_1_6gf: 18 80 34.01 2.25 24 None;
    regnet_x_3_2gf: 25 88 26.31 2.25 48 None;
    regnet_x_8gf: 23 80 49.56 2.88 120 None;
    regnet_x_16gf: 22 216 55.59 2.1 128 None;
    regnet_x_32gf: 23 320 69.86 2.0 168 None;
}

/// The blocks of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stage {
    depth: usize,
    width: usize,
    group_width: usize,
}

impl RegNetConfig {
    /// The stages that the rule for widths gives. torchvision computes it in f32.
    fn stages(&self) -> Result<Vec<Stage>> {
        const MODEL: &str = "RegNet";
        let counts = [
            ("depth", self.depth),
            ("w_0", self.w_0),
            ("group_width", self.group_width),
            ("stem_width", self.stem_width),
            ("num_classes", self.num_classes),
        ];
        positive(MODEL, &counts)?;
        let rule = self.w_a >= 0.0 && self.w_a.is_finite() && self.w_m > 1.0 && self.w_m.is_finite();
        if !rule || !self.w_0.is_multiple_of(8) {
            let message = format!(
                "w_0 {}, w_a {}, w_m {}: w_0 is a multiple of 8, w_a at least 0 and w_m above 1",
                self.w_0, self.w_a, self.w_m
            );
            return Err(Error::invalid(MODEL, message));
        }
        let mut stages: Vec<Stage> = Vec::new();
        for block in 0..self.depth {
            let linear = block as f32 * self.w_a as f32 + self.w_0 as f32;
            let power = ((linear / self.w_0 as f32).ln() / self.w_m.ln() as f32).round_ties_even();
            let width = (self.w_0 as f32 * (self.w_m as f32).powf(power) / 8.0).round_ties_even() * 8.0;
            let width = width as usize;
            match stages.last_mut() {
                Some(last) if last.width == width => last.depth += 1,
                _ => stages.push(Stage { depth: 1, width, group_width: self.group_width.min(width) }),
            }
        }
        for stage in &mut stages {
            stage.width = make_divisible(stage.width as f64, stage.group_width);
        }
        Ok(stages)
    }
}

/// Convolutions of 1 × 1, 3 × 3 and 1 × 1 with squeeze-and-excitation. torchvision's `BottleneckTransform`.
#[derive(Module, Debug)]
struct Transform {
    a: Sequential,
    b: Sequential,
    se: Option<SqueezeExcitation>,
    c: Sequential,
}

/// A residual block. torchvision's `ResBottleneckBlock`.
#[derive(Module, Debug)]
struct Block {
    proj: Option<Sequential>,
    f: Transform,
}

impl Block {
    fn new(
        from: usize,
        stage: Stage,
        stride: usize,
        se_ratio: Option<f64>,
        rng: &Generator,
    ) -> Result<Block> {
        let (to, conv) = (stage.width, ConvNormActivation { kernel: 1, ..Default::default() });
        let linear = ConvNormActivation { activation: None, ..conv };
        let project = from != to || stride != 1;
        let middle =
            ConvNormActivation { kernel: 3, stride, groups: to / stage.group_width, ..Default::default() };
        let squeeze = |share: f64| {
            let squeezed = (share * from as f64).round_ties_even() as usize;
            SqueezeExcitation::new(to, squeezed, Activation::Relu, Activation::Sigmoid, rng)
        };
        Ok(Block {
            proj: project
                .then(|| ConvNormActivation { stride, ..linear }.layers(from, to, rng))
                .transpose()?,
            f: Transform {
                a: conv.layers(from, to, rng)?,
                b: middle.layers(to, to, rng)?,
                se: se_ratio.map(squeeze).transpose()?,
                c: linear.layers(to, to, rng)?,
            },
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut out = self.f.b.forward(&self.f.a.forward(x)?)?;
        if let Some(se) = &self.f.se {
            out = se.forward(&out)?;
        }
        out = self.f.c.forward(&out)?;
        let shortcut = match &self.proj {
            Some(proj) => proj.forward(x)?,
            None => x.clone(),
        };
        Ok(shortcut.add(&out)?.relu())
    }
}

/// A residual network whose widths follow a linear rule, for images `[N, 3, H, W]`: logits `[N, classes]`.
/// torchvision's `RegNet`.
#[derive(Module, Debug)]
pub struct RegNet {
    stem: Sequential,
    trunk_output: Numbered<Numbered<Block>>,
    fc: Linear,
}

impl RegNet {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// Counts of 0, a `w_0` that is no multiple of 8, a negative slope, a ratio of at most 1, parameters that
    /// do not match, or too little memory.
    pub fn new(config: &RegNetConfig, weights: impl Into<WeightSource>) -> Result<RegNet> {
        weights.into().network(|rng| RegNet::initial(config, rng))
    }

    fn initial(config: &RegNetConfig, rng: &Generator) -> Result<RegNet> {
        let stem = ConvNormActivation { stride: 2, ..Default::default() };
        let stem = stem.layers(3, config.stem_width, rng)?;
        let (mut from, mut stages) = (config.stem_width, Vec::new());
        for (number, stage) in (1..).zip(config.stages()?) {
            let mut blocks = Vec::new();
            for index in 0..stage.depth {
                let stride = if index == 0 { 2 } else { 1 };
                blocks.push(Block::new(from, stage, stride, config.se_ratio, rng)?);
                from = stage.width;
            }
            stages.push(Numbered::new(format!("block{number}-"), 0, blocks));
        }
        let trunk_output = Numbered::new("block", 1, stages);
        let model = RegNet { stem, trunk_output, fc: Linear::new(from, config.num_classes, rng)? };
        model.apply(&mut |name, parameter| {
            let shape = parameter.shape().clone();
            match *shape.dims() {
                [outputs, _, height, width] => {
                    let std = (2.0 / (outputs * height * width) as f64).sqrt();
                    parameter.assign(&init::normal(shape, 0.0, std, rng)?)
                }
                [_, _] => parameter.assign(&init::normal(shape, 0.0, 0.01, rng)?),
                _ if name == "fc.bias" => parameter.assign(&parameter.zeros_like()),
                _ => Ok(()),
            }
        })?;
        Ok(model)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// An input that is no image of three channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("RegNet", x, 3)?;
        let mut x = self.stem.forward(x)?;
        for block in self.trunk_output.list.iter().flat_map(|stage| &stage.list) {
            x = block.forward(&x)?;
        }
        self.fc.forward(&global_mean(&x)?)
    }
}

layer!(RegNet);
