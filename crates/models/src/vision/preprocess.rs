//! Pictures as networks need them: resized, and with colours relative to those of the training.

use nn::functional::{InterpolateMode, InterpolateOptions, interpolate_with};
use tensor_core::{Error, Result, Tensor};

/// Resizing, cropping and normalization of a picture. The preset of a network's weights:
/// `torchvision.transforms._presets.ImageClassification`.
///
/// | function | networks |
/// |---|---|
/// | [`Preprocess::imagenet`] | torchvision's, DINOv2 (with a crop of 224) |
/// | [`Preprocess::half`] | timm's ViT with the weights of Google |
/// | [`Preprocess::clip`] | CLIP |
/// | [`Preprocess::siglip`] | SigLIP |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preprocess {
    /// The smaller side of the picture after resizing.
    pub resize: usize,
    /// The height and width of the part in the middle that is kept.
    pub crop: usize,
    /// Whether the interpolation is bicubic; otherwise it is bilinear. Pictures that shrink are smoothed.
    pub bicubic: bool,
    /// The mean of each colour.
    pub mean: [f64; 3],
    /// The standard deviation of each colour.
    pub std: [f64; 3],
}

impl Preprocess {
    /// A picture of 224 × 224 from one of 256, with the colours of ImageNet.
    pub fn imagenet() -> Preprocess {
        let (mean, std) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
        Preprocess { resize: 256, crop: 224, bicubic: false, mean, std }
    }

    /// A picture of 224 × 224 from one of 248, with values between −1 and 1.
    pub fn half() -> Preprocess {
        Preprocess { resize: 248, crop: 224, bicubic: true, mean: [0.5; 3], std: [0.5; 3] }
    }

    /// A picture of 224 × 224 with the colours of CLIP's training.
    pub fn clip() -> Preprocess {
        let mean = [0.481_454_66, 0.457_827_5, 0.408_210_73];
        let std = [0.268_629_54, 0.261_302_58, 0.275_777_11];
        Preprocess { resize: 224, crop: 224, bicubic: true, mean, std }
    }

    /// A picture of 224 × 224 with values between −1 and 1, without a margin.
    pub fn siglip() -> Preprocess {
        Preprocess { resize: 224, ..Preprocess::half() }
    }

    /// The picture `[3, H, W]` of values between 0 and 1 as a batch of one, `[1, 3, crop, crop]`. A picture
    /// that is smaller than the crop gets black borders.
    ///
    /// # Errors
    /// A picture of another shape, sizes of 0, or deviations of 0.
    pub fn apply(&self, picture: &Tensor) -> Result<Tensor> {
        let &Preprocess { resize, crop, bicubic, mean, std } = self;
        let &[3, height, width] = picture.dims() else {
            let message = format!("a picture has the shape [3, H, W], not {}", picture.shape());
            return Err(Error::invalid("Preprocess", message));
        };
        if [resize, crop, height, width].contains(&0) || std.contains(&0.0) {
            let message =
                format!("{self:?} of a picture {}: give sizes and deviations above 0", picture.shape());
            return Err(Error::invalid("Preprocess", message));
        }
        let short = height.min(width);
        let size = [height, width].map(|side| if side == short { resize } else { side * resize / short });
        let mode = if bicubic { InterpolateMode::Bicubic } else { InterpolateMode::Bilinear };
        let options = InterpolateOptions { mode, antialias: true, ..Default::default() };
        let mut x = interpolate_with(&picture.unsqueeze(0)?, size, options)?;
        if bicubic {
            x = x.clamp(0.0, 1.0);
        }
        let border = |side: usize| {
            let missing = crop.saturating_sub(side);
            (missing / 2, missing - missing / 2)
        };
        x = x.pad(&[(0, 0), (0, 0), border(size[0]), border(size[1])], 0.0)?;
        for (axis, side) in [(2, size[0].max(crop)), (3, size[1].max(crop))] {
            // torchvision rounds half of the margin to the nearest even number.
            let before = ((side - crop) as f64 / 2.0).round_ties_even() as usize;
            x = x.narrow(axis, before, crop)?;
        }
        let colours = |values: [f64; 3]| -> Result<Tensor> {
            let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            Tensor::from_vec(values, [3, 1, 1], &x.device())?.to_dtype(x.dtype())
        };
        x.sub(&colours(mean)?)?.div(&colours(std)?)
    }
}
