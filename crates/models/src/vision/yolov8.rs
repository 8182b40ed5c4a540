//! YOLOv8, which finds objects in one pass, with ultralytics' parameter names; its boxes, and the
//! suppression of those that overlap.
//!
//! Jocher et al.: Ultralytics YOLOv8 (2023). Li et al.: Generalized focal loss (2020), for the distributions
//! of distances.

use std::path::Path;

use nn::{
    BatchNorm2d, BatchNormConfig, Conv2d, ConvConfig, Module, Parameter, Sequential,
    functional::{PoolOptions, interpolate, max_pool2d_with},
};
use tensor_core::{Device, Error, Generator, Result, Tensor, file::file_error};
use weights::WeightFile;

use super::{
    blocks::{check_image, layer, positive},
    boxes::{Corners, Detection, batched_nms},
};
use crate::WeightSource;

/// The configuration of a [`YoloV8`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YoloV8Config {
    /// The factor of the numbers of bottlenecks.
    pub depth: f64,
    /// The factor of channels.
    pub width: f64,
    /// The largest number of channels before that factor.
    pub max_channels: usize,
    /// The number of classes; 80 in COCO.
    pub classes: usize,
}

/// Presets: factors of depth and width, largest number of channels.
macro_rules! presets {
    ($($name:ident: $depth:literal $width:literal $most:literal;)*) => {
        impl YoloV8Config {$(
            #[doc = concat!("ultralytics' `", stringify!($name), "`.")]
            pub fn $name() -> YoloV8Config {
                YoloV8Config { depth: $depth, width: $width, max_channels: $most, classes: 80 }
            }
        )*}
    };
}

presets! {
    yolov8n: 0.33 0.25 1024;
    yolov8s: 0.33 0.5 1024;
    yolov8m: 0.67 0.75 768;
    yolov8l: 1.0 1.0 512;
    yolov8x: 1.0 1.25 512;
}

impl YoloV8Config {
    /// The configuration of a file's weights: the preset with as many channels, and the number of classes.
    ///
    /// # Errors
    /// A `File` error for a file without the tensors that say so, or with other sizes.
    #[track_caller]
    pub fn of_weights(file: &WeightFile) -> Result<YoloV8Config> {
        let rows = |name: &str| match file.info(name).and_then(|info| info.shape().dims().first()) {
            Some(&rows) => Ok(rows),
            None => Err(file_error(file.path(), format!("has no \"{name}\", as YOLOv8 has"))),
        };
        let (channels, classes) = (rows("model.0.conv.weight")?, rows("model.22.cv3.0.2.weight")?);
        let presets = [
            YoloV8Config::yolov8n(),
            YoloV8Config::yolov8s(),
            YoloV8Config::yolov8m(),
            YoloV8Config::yolov8l(),
            YoloV8Config::yolov8x(),
        ];
        match presets.into_iter().find(|preset| preset.channels(64) == channels) {
            Some(preset) => Ok(YoloV8Config { classes, ..preset }),
            None => {
                let message = format!("has {channels} channels at first; YOLOv8 has 16, 32, 48, 64 or 80");
                Err(file_error(file.path(), message))
            }
        }
    }

    fn channels(&self, count: usize) -> usize {
        ((count.min(self.max_channels) as f64 * self.width / 8.0).ceil() * 8.0) as usize
    }

    fn repeats(&self, count: usize) -> usize {
        ((count as f64 * self.depth).round_ties_even() as usize).max(1)
    }
}

const MODEL: &str = "YoloV8";
/// The number of distances that the side of a box may have, in cells.
const DISTANCES: usize = 16;
/// The pixels of a cell in the three grids.
const STRIDES: [usize; 3] = [8, 16, 32];

/// A convolution, a norm and SiLU. ultralytics' `Conv`.
#[derive(Module, Debug)]
struct Conv {
    conv: Conv2d,
    bn: BatchNorm2d,
}

impl Conv {
    fn new(from: usize, to: usize, kernel: usize, stride: usize, rng: &Generator) -> Result<Conv> {
        let padding = (kernel / 2).into();
        let config = ConvConfig { stride: [stride; 2], padding, bias: false, ..Default::default() };
        let norm = BatchNormConfig { eps: 1e-3, momentum: Some(0.03), ..Default::default() };
        let bn = BatchNorm2d::with_config(to, norm, rng.device())?;
        Ok(Conv { conv: Conv2d::with_config(from, to, kernel, config, rng)?, bn })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.bn.forward(&self.conv.forward(x)?)?.silu())
    }
}

#[derive(Module, Debug)]
struct Bottleneck {
    cv1: Conv,
    cv2: Conv,
    shortcut: bool,
}

/// A part of the channels passes several bottlenecks, whose results are all read. ultralytics' `C2f`.
#[derive(Module, Debug)]
struct C2f {
    cv1: Conv,
    cv2: Conv,
    m: Vec<Bottleneck>,
}

impl C2f {
    fn new(from: usize, to: usize, count: usize, shortcut: bool, rng: &Generator) -> Result<C2f> {
        let half = to / 2;
        let bottleneck = |_| {
            let (cv1, cv2) = (Conv::new(half, half, 3, 1, rng)?, Conv::new(half, half, 3, 1, rng)?);
            Ok(Bottleneck { cv1, cv2, shortcut })
        };
        Ok(C2f {
            cv1: Conv::new(from, 2 * half, 1, 1, rng)?,
            cv2: Conv::new((2 + count) * half, to, 1, 1, rng)?,
            m: (0..count).map(bottleneck).collect::<Result<_>>()?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut parts = self.cv1.forward(x)?.chunk(2, 1)?;
        for Bottleneck { cv1, cv2, shortcut } in &self.m {
            let Some(last) = parts.last() else { break };
            let out = cv2.forward(&cv1.forward(last)?)?;
            let out = if *shortcut { last.add(&out)? } else { out };
            parts.push(out);
        }
        self.cv2.forward(&Tensor::concat(&parts, 1)?)
    }
}

/// Three max pools one after the other, whose results are all read. ultralytics' `SPPF`.
#[derive(Module, Debug)]
struct Sppf {
    cv1: Conv,
    cv2: Conv,
}

impl Sppf {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let options = PoolOptions { stride: Some([1; 2]), padding: [2; 2], ..Default::default() };
        let first = self.cv1.forward(x)?;
        let second = max_pool2d_with(&first, [5; 2], options)?;
        let third = max_pool2d_with(&second, [5; 2], options)?;
        let fourth = max_pool2d_with(&third, [5; 2], options)?;
        self.cv2.forward(&Tensor::concat(&[first, second, third, fourth], 1)?)
    }
}

/// The numbers 0 to 15 as a weight, so that a product with it is the mean of a distribution. It is not
/// trained.
#[derive(Module, Debug)]
struct Means {
    weight: Parameter,
}

#[derive(Module, Debug)]
struct Dfl {
    conv: Means,
}

/// The head: distributions of distances (`cv2`) and classes (`cv3`) for the cells of three grids.
#[derive(Module, Debug)]
struct Detect {
    cv2: Vec<Sequential>,
    cv3: Vec<Sequential>,
    dfl: Dfl,
}

impl Detect {
    fn new(channels: [usize; 3], classes: usize, rng: &Generator) -> Result<Detect> {
        let (boxes, scores) = ((channels[0] / 4).max(4 * DISTANCES), channels[0].max(classes.min(100)));
        let branch = |from: usize, middle: usize, to: usize| -> Result<Sequential> {
            Ok(Sequential::new()
                .add(Conv::new(from, middle, 3, 1, rng)?)
                .add(Conv::new(middle, middle, 3, 1, rng)?)
                .add(Conv2d::new(middle, to, 1, rng)?))
        };
        let weight = Tensor::arange(0.0, DISTANCES as f64, 1.0, rng.device())?;
        let weight = Parameter::new(weight.reshape([1, DISTANCES, 1, 1])?)?;
        weight.set_requires_grad(false)?;
        let all = |middle: usize, to: usize| -> Result<Vec<Sequential>> {
            channels.iter().map(|from| branch(*from, middle, to)).collect()
        };
        Ok(Detect {
            cv2: all(boxes, 4 * DISTANCES)?,
            cv3: all(scores, classes)?,
            dfl: Dfl { conv: Means { weight } },
        })
    }

    /// The boxes and scores of all cells, `[N, 4 + classes, cells]`.
    fn forward(&self, features: [&Tensor; 3]) -> Result<Tensor> {
        let (mut distances, mut scores, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for (level, x) in features.into_iter().enumerate() {
            distances.push(self.cv2[level].forward(x)?.flatten(2, 3)?);
            scores.push(self.cv3[level].forward(x)?.flatten(2, 3)?);
            let [height, width] = [x.dims()[2], x.dims()[3]];
            let stride = STRIDES[level] as f32;
            cells.extend(
                (0..height * width)
                    .map(|cell| [(cell % width) as f32 + 0.5, (cell / width) as f32 + 0.5, stride]),
            );
        }
        let (distances, scores) = (Tensor::concat(&distances, 2)?, Tensor::concat(&scores, 2)?);
        let (n, count) = (distances.dims()[0], cells.len());
        let shares = distances.reshape([n, 4, DISTANCES, count])?.softmax(2)?;
        let means = shares.mul(&self.dfl.conv.weight.reshape([DISTANCES, 1])?)?.sum_axis(2, false)?;
        let cells =
            Tensor::from_vec(cells.concat(), [count, 3], &scores.device())?.t()?.to_dtype(scores.dtype())?;
        let (centers, strides) = (cells.narrow(0, 0, 2)?, cells.narrow(0, 2, 1)?);
        let (before, after) = (means.narrow(1, 0, 2)?, means.narrow(1, 2, 2)?);
        let middle = centers.add(&after.sub(&before)?.div_scalar(2.0))?;
        let boxes = Tensor::concat(&[middle, before.add(&after)?], 1)?.mul(&strides)?;
        Tensor::concat(&[boxes, scores.sigmoid()], 1)
    }
}

/// The layers with the numbers of ultralytics' list; those without parameters have none here.
#[derive(Module, Debug)]
struct Layers {
    #[module(rename = "0")]
    stem: Conv,
    #[module(rename = "1")]
    down2: Conv,
    #[module(rename = "2")]
    stage2: C2f,
    #[module(rename = "3")]
    down3: Conv,
    #[module(rename = "4")]
    stage3: C2f,
    #[module(rename = "5")]
    down4: Conv,
    #[module(rename = "6")]
    stage4: C2f,
    #[module(rename = "7")]
    down5: Conv,
    #[module(rename = "8")]
    stage5: C2f,
    #[module(rename = "9")]
    sppf: Sppf,
    #[module(rename = "12")]
    up4: C2f,
    #[module(rename = "15")]
    up3: C2f,
    #[module(rename = "16")]
    down3_again: Conv,
    #[module(rename = "18")]
    out4: C2f,
    #[module(rename = "19")]
    down4_again: Conv,
    #[module(rename = "21")]
    out5: C2f,
    #[module(rename = "22")]
    detect: Detect,
}

/// A convolutional network over three scales, for images `[N, 3, H, W]` of values between 0 and 1.
/// ultralytics' `DetectionModel` of `yolov8.yaml`.
#[derive(Module, Debug)]
pub struct YoloV8 {
    model: Layers,
    classes: usize,
}

impl YoloV8 {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// No classes, factors that are not above 0, parameters that do not match, or too little memory.
    pub fn new(config: &YoloV8Config, weights: impl Into<WeightSource>) -> Result<YoloV8> {
        weights.into().network(|rng| YoloV8::initial(config, rng))
    }

    fn initial(config: &YoloV8Config, rng: &Generator) -> Result<YoloV8> {
        positive(MODEL, &[("classes", config.classes), ("max_channels", config.max_channels)])?;
        if ![config.depth, config.width].iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            let message = format!("depth {} and width {}: give factors above 0", config.depth, config.width);
            return Err(Error::invalid(MODEL, message));
        }
        let [c1, c2, c3, c4, c5] = [64, 128, 256, 512, 1024].map(|count| config.channels(count));
        let down = |from: usize, to: usize| Conv::new(from, to, 3, 2, rng);
        let stage = |from: usize, to: usize, count: usize, shortcut: bool| {
            C2f::new(from, to, config.repeats(count), shortcut, rng)
        };
        let model = Layers {
            stem: down(3, c1)?,
            down2: down(c1, c2)?,
            stage2: stage(c2, c2, 3, true)?,
            down3: down(c2, c3)?,
            stage3: stage(c3, c3, 6, true)?,
            down4: down(c3, c4)?,
            stage4: stage(c4, c4, 6, true)?,
            down5: down(c4, c5)?,
            stage5: stage(c5, c5, 3, true)?,
            sppf: Sppf {
                cv1: Conv::new(c5, c5 / 2, 1, 1, rng)?,
                cv2: Conv::new(4 * (c5 / 2), c5, 1, 1, rng)?,
            },
            up4: stage(c5 + c4, c4, 3, false)?,
            up3: stage(c4 + c3, c3, 3, false)?,
            down3_again: down(c3, c3)?,
            out4: stage(c3 + c4, c4, 3, false)?,
            down4_again: down(c4, c4)?,
            out5: stage(c4 + c5, c5, 3, false)?,
            detect: Detect::new([c3, c4, c5], config.classes, rng)?,
        };
        Ok(YoloV8 { model, classes: config.classes })
    }

    /// A network with the weights of a file, which say its size: a state dict of ultralytics' model, saved
    /// by `torch.save(YOLO("yolov8n.pt").model.state_dict(), path)` or as safetensors.
    ///
    /// # Errors
    /// A file that cannot be read or whose tensors are not those of YOLOv8.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, device: &Device) -> Result<YoloV8> {
        let file = weights::open(path)?;
        let model = YoloV8::new(&YoloV8Config::of_weights(&file)?, WeightSource::file(file, device))?;
        model.eval();
        Ok(model)
    }

    /// The boxes and scores of all cells, `[N, 4 + classes, cells]`, for images `[N, 3, H, W]` whose sides
    /// are multiples of 32: center x, center y, width and height in pixels, and the probability of each
    /// class.
    ///
    /// # Errors
    /// An input of another shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image(MODEL, x, 3)?;
        if x.dims()[2..].iter().any(|side| *side == 0 || !side.is_multiple_of(32)) {
            let message = format!("an image {}: its sides are multiples of 32", x.shape());
            return Err(Error::invalid(MODEL, message));
        }
        let m = &self.model;
        let x = m.stage2.forward(&m.down2.forward(&m.stem.forward(x)?)?)?;
        let x3 = m.stage3.forward(&m.down3.forward(&x)?)?;
        let x4 = m.stage4.forward(&m.down4.forward(&x3)?)?;
        let x5 = m.sppf.forward(&m.stage5.forward(&m.down5.forward(&x4)?)?)?;
        let beside = |x: &Tensor, other: &Tensor| Tensor::concat(&[x, other], 1);
        let twice = |x: &Tensor| interpolate(x, 2.0);
        let up4 = m.up4.forward(&beside(&twice(&x5)?, &x4)?)?;
        let out3 = m.up3.forward(&beside(&twice(&up4)?, &x3)?)?;
        let out4 = m.out4.forward(&beside(&m.down3_again.forward(&out3)?, &up4)?)?;
        let out5 = m.out5.forward(&beside(&m.down4_again.forward(&out4)?, &x5)?)?;
        m.detect.forward([&out3, &out4, &out5])
    }

    /// The objects in each image of a result of [`YoloV8::forward`], the most probable first: cells whose
    /// best class has a probability above `confidence`, without those that overlap a better one of the same
    /// class by more than `iou`, at most `limit` for each image.
    ///
    /// # Errors
    /// A result of another shape, or a value that cannot be computed.
    pub fn detections(
        &self,
        predictions: &Tensor,
        confidence: f32,
        iou: f32,
        limit: usize,
    ) -> Result<Vec<Vec<Detection>>> {
        let rows = 4 + self.classes;
        if predictions.rank() != 3 || predictions.dims()[1] != rows {
            let message = format!("predictions are [N, {rows}, cells], not {}", predictions.shape());
            return Err(Error::invalid(MODEL, message));
        }
        let values = predictions.transpose(1, 2)?.to_vec::<f32>()?;
        let cells = predictions.dims()[2];
        values.chunks((cells * rows).max(1)).map(|image| found(image, rows, confidence, iou, limit)).collect()
    }
}

/// The objects of one image, from a row of box and probabilities for each cell.
fn found(image: &[f32], rows: usize, confidence: f32, iou: f32, limit: usize) -> Result<Vec<Detection>> {
    let mut candidates = Vec::new();
    for cell in image.chunks_exact(rows) {
        let (place, scores) = cell.split_at(4);
        let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let Some((class, &score)) = best.filter(|(_, score)| **score > confidence) else { continue };
        let [x, y, width, height] = [place[0], place[1], place[2] / 2.0, place[3] / 2.0];
        candidates.push(Detection { corners: [x - width, y - height, x + width, y + height], class, score });
    }
    let corners: Vec<Corners> = candidates.iter().map(|found| found.corners).collect();
    let scores: Vec<f32> = candidates.iter().map(|found| found.score).collect();
    let classes: Vec<usize> = candidates.iter().map(|found| found.class).collect();
    let kept = batched_nms(&corners, &scores, &classes, iou)?;
    Ok(kept.into_iter().take(limit).map(|index| candidates[index]).collect())
}

layer!(Conv, YoloV8);
