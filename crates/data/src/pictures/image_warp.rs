//! Rotations and other affine maps of an [`Image`], and RandAugment, with torchvision's formulas.

use tensor_core::{Error, Result};

use crate::{Draws, Image};

/// How a warped picture takes its pixels. `transforms.InterpolationMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest pixel.
    #[default]
    Nearest,
    /// The mean of four pixels, weighted by their distances.
    Bilinear,
}

/// An affine map of a picture: a shear, a rotation and a scale about the center, and a translation.
/// `functional.affine`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// The rotation in degrees, clockwise. 0 by default.
    pub angle: f64,
    /// The translation in pixels: to the right, and down. None by default.
    pub translate: (f64, f64),
    /// The scale. 1 by default.
    pub scale: f64,
    /// The shear in degrees, parallel to the x axis and to the y axis. None by default.
    pub shear: (f64, f64),
    /// The fixed point of rotation, scale and shear, as (x, y) in pixels; the middle of the picture by
    /// default.
    pub center: Option<(f64, f64)>,
    /// How pixels are taken.
    pub interpolation: Interpolation,
    /// The colour outside the picture. Black by default.
    pub fill: [u8; 3],
}

impl Default for Affine {
    fn default() -> Affine {
        Affine {
            angle: 0.0,
            translate: (0.0, 0.0),
            scale: 1.0,
            shear: (0.0, 0.0),
            center: None,
            interpolation: Interpolation::Nearest,
            fill: [0; 3],
        }
    }
}

/// How [`Image::rotate`] turns a picture, with torchvision's names and defaults. An [`Interpolation`] stands
/// for a rotation with it and the other defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rotation {
    /// How pixels are taken.
    pub interpolation: Interpolation,
    /// Whether the result is as large as the whole turned picture needs. It is as large as the picture by
    /// default. It assumes a rotation about the middle.
    pub expand: bool,
    /// The fixed point, as (x, y) in pixels; the middle of the picture by default.
    pub center: Option<(f64, f64)>,
    /// The colour outside the picture. Black by default.
    pub fill: [u8; 3],
}

impl From<Interpolation> for Rotation {
    fn from(interpolation: Interpolation) -> Rotation {
        Rotation { interpolation, ..Default::default() }
    }
}

impl Affine {
    /// The inverse map about the middle of the picture: source = M · (x, y, 1).
    fn inverse(&self, height: usize, width: usize) -> [[f64; 3]; 2] {
        let middle = (width as f64 / 2.0, height as f64 / 2.0);
        let center = self.center.map_or((0.0, 0.0), |(x, y)| (x - middle.0, y - middle.1));
        let [angle, sx, sy] = [self.angle, self.shear.0, self.shear.1].map(f64::to_radians);
        let a = (angle - sy).cos() / sy.cos();
        let b = -(angle - sy).cos() * sx.tan() / sy.cos() - angle.sin();
        let c = (angle - sy).sin() / sy.cos();
        let d = -(angle - sy).sin() * sx.tan() / sy.cos() + angle.cos();
        let (back_x, back_y) = (center.0 + self.translate.0, center.1 + self.translate.1);
        let row = |x: f64, y: f64, center: f64| {
            let (x, y) = (x / self.scale, y / self.scale);
            [x, y, center - x * back_x - y * back_y]
        };
        [row(d, -b, center.0), row(-c, a, center.1)]
    }
}

impl Image {
    /// The picture under an affine map, in a picture of the same size. `functional.affine`.
    ///
    /// ```
    /// use data::{Affine, Image};
    /// # fn main() -> tensor_core::Result<()> {
    /// let image = Image::from_bytes(1, 3, vec![1, 1, 1, 2, 2, 2, 3, 3, 3])?;
    /// let moved = image.affine(&Affine { translate: (1.0, 0.0), ..Default::default() })?;
    /// assert_eq!(moved.bytes(), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A number that is not finite, a scale that is not above 0, or a shear of 90 degrees or more.
    #[track_caller]
    pub fn affine(&self, map: &Affine) -> Result<Image> {
        self.warped("Image::affine", map, false)
    }

    /// The picture under a map, in a picture of the same size or, with `expand`, one that holds all of it.
    #[track_caller]
    fn warped(&self, op: &'static str, map: &Affine, expand: bool) -> Result<Image> {
        let (cx, cy) = map.center.unwrap_or_default();
        let shears = [map.shear.0, map.shear.1];
        let numbers = [map.angle, map.translate.0, map.translate.1, map.scale, cx, cy, shears[0], shears[1]];
        if numbers.iter().any(|x| !x.is_finite())
            || map.scale <= 0.0
            || shears.iter().any(|shear| shear.abs() >= 90.0)
        {
            let message =
                format!("{map:?}: give finite numbers, a scale above 0 and shears below 90 degrees");
            return Err(Error::invalid(op, message));
        }
        let (height, width) = (self.height(), self.width());
        let [row_x, row_y] = map.inverse(height, width);
        let (high, wide) = match expand {
            true => (expanded(row_y, [width, height], 1), expanded(row_x, [width, height], 0)),
            false => (height, width),
        };
        crate::pictures::image_folder::checked(op, (high, wide))?;
        let mut out = vec![0; 3 * high * wide];
        for (at, pixel) in out.chunks_exact_mut(3).enumerate() {
            // Pixels are at their middles, and the origin is the middle of the picture.
            let x = (at % wide) as f64 + 0.5 - wide as f64 / 2.0;
            let y = (at / wide) as f64 + 0.5 - high as f64 / 2.0;
            let along =
                |row: [f64; 3], size: usize| row[0] * x + row[1] * y + row[2] + size as f64 / 2.0 - 0.5;
            let (x, y) = (along(row_x, width), along(row_y, height));
            pixel.copy_from_slice(&match map.interpolation {
                Interpolation::Nearest => self.pixel_or(steady(x), steady(y), map.fill),
                Interpolation::Bilinear => self.between(x, y, map.fill),
            });
        }
        Image::from_bytes(high, wide, out)
    }

    /// The pixel at a whole position, or `fill` outside.
    fn pixel_or(&self, x: f64, y: f64, fill: [u8; 3]) -> [u8; 3] {
        let inside = |at: f64, size: usize| (at >= 0.0 && at < size as f64).then_some(at as usize);
        match (inside(x, self.width()), inside(y, self.height())) {
            (Some(x), Some(y)) => {
                let at = 3 * (y * self.width() + x);
                let bytes = self.bytes();
                [bytes[at], bytes[at + 1], bytes[at + 2]]
            }
            _ => fill,
        }
    }

    /// The bilinear mean at a position, with black around the picture. Another colour is blended as in
    /// torchvision: such a mean is weighted once more by its share inside, and the rest is `fill`.
    fn between(&self, x: f64, y: f64, fill: [u8; 3]) -> [u8; 3] {
        let (left, top) = (x.floor(), y.floor());
        let (right, low) = (x - left, y - top);
        let corners = [
            (left, top, (1.0 - right) * (1.0 - low)),
            (left + 1.0, top, right * (1.0 - low)),
            (left, top + 1.0, (1.0 - right) * low),
            (left + 1.0, top + 1.0, right * low),
        ];
        let inside =
            |x: f64, y: f64| x >= 0.0 && y >= 0.0 && x < self.width() as f64 && y < self.height() as f64;
        let (mut sums, mut share) = ([0.0; 3], 0.0);
        for (x, y, weight) in corners {
            if inside(x, y) {
                let pixel = self.pixel_or(x, y, fill);
                sums.iter_mut().zip(pixel).for_each(|(sum, byte)| *sum += weight * f64::from(byte));
                share += weight;
            }
        }
        let blended = |k: usize| {
            let color = f64::from(fill[k]);
            let mean = if fill == [0; 3] { sums[k] } else { (sums[k] - color) * share + color };
            mean.round_ties_even() as u8
        };
        [0, 1, 2].map(blended)
    }

    /// The picture turned counter-clockwise by an angle in degrees, in a picture of the same size or, with
    /// `expand`, one that holds all of it. `functional.rotate`.
    ///
    /// ```
    /// use data::{Image, Interpolation, Rotation};
    /// # fn main() -> tensor_core::Result<()> {
    /// let image = Image::from_bytes(20, 40, vec![255; 2400])?;
    /// let turned = image.rotate(30.0, Interpolation::Bilinear)?;
    /// assert_eq!((turned.height(), turned.width()), (20, 40));
    /// let whole = image.rotate(30.0, Rotation { expand: true, ..Default::default() })?;
    /// assert_eq!((whole.height(), whole.width()), (38, 46));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// An angle or a center that is not finite; a result of more than 65,535 pixels each way.
    #[track_caller]
    pub fn rotate(&self, degrees: f64, how: impl Into<Rotation>) -> Result<Image> {
        self.rotated("Image::rotate", degrees, how.into())
    }

    #[track_caller]
    fn rotated(&self, op: &'static str, degrees: f64, how: Rotation) -> Result<Image> {
        let Rotation { interpolation, expand, center, fill } = how;
        let map = Affine { angle: -degrees, center, interpolation, fill, ..Default::default() };
        self.warped(op, &map, expand)
    }

    /// Turns the picture by a random angle from −degrees to degrees. `transforms.RandomRotation`.
    ///
    /// # Errors
    /// An angle that is negative or not finite, and the errors of [`Image::rotate`].
    #[track_caller]
    pub fn random_rotation(
        &self,
        degrees: f64,
        how: impl Into<Rotation>,
        draws: &mut Draws,
    ) -> Result<Image> {
        const OP: &str = "Image::random_rotation";
        if !(degrees.is_finite() && degrees >= 0.0) {
            let message = format!("{degrees} degrees: give a finite angle that is not negative");
            return Err(Error::invalid(OP, message));
        }
        self.rotated(OP, degrees * (2.0 * draws.uniform() - 1.0), how.into())
    }

    /// Adds a border of `padding` pixels on each side, as `RandomCrop(size, padding)` does before it crops.
    /// `functional.pad`.
    ///
    /// # Errors
    /// A picture of more than 65,535 pixels each way.
    #[track_caller]
    pub fn pad(&self, padding: usize, fill: [u8; 3]) -> Result<Image> {
        let size = |side: usize| side.saturating_add(padding.saturating_mul(2));
        let size = (size(self.height()), size(self.width()));
        self.framed("Image::pad", (padding, padding), size, fill)
    }

    /// The picture in a larger one of one colour, with its corner at this position.
    #[track_caller]
    pub(crate) fn framed(
        &self,
        op: &'static str,
        (top, left): (usize, usize),
        (height, width): (usize, usize),
        fill: [u8; 3],
    ) -> Result<Image> {
        crate::pictures::image_folder::checked(op, (height, width))?;
        let mut bytes = fill.repeat(height * width);
        for (y, row) in self.bytes().chunks_exact(3 * self.width()).enumerate() {
            let start = 3 * ((y + top) * width + left);
            bytes[start..start + row.len()].copy_from_slice(row);
        }
        Image::from_bytes(height, width, bytes)
    }

    /// Applies `num_ops` random operations of one strength in turn, out of fourteen: identity, shears,
    /// translations, rotation, brightness, saturation, contrast, sharpness, posterize, solarize,
    /// autocontrast, equalize. `transforms.RandAugment`.
    ///
    /// Cubuk, Zoph, Shlens, Le: RandAugment, practical automated data augmentation with a reduced search
    /// space (2019).
    ///
    /// ```
    /// use data::{Draws, Image, RandAugment};
    /// # fn main() -> tensor_core::Result<()> {
    /// let image = Image::from_bytes(2, 2, vec![100; 12])?;
    /// let changed = image.rand_augment(&RandAugment::default(), &mut Draws::of(42, 0, 0))?;
    /// assert_eq!((changed.height(), changed.width()), (2, 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A magnitude that is not below the number of bins, or less than two bins.
    #[track_caller]
    pub fn rand_augment(&self, settings: &RandAugment, draws: &mut Draws) -> Result<Image> {
        let mut image = self.clone();
        for _ in 0..settings.num_ops {
            let operation = Augmentation::ALL[draws.below(Augmentation::ALL.len() as u64) as usize];
            let sign = if operation.is_signed() && draws.chance(0.5) { -1.0 } else { 1.0 };
            let strength = settings.strength(operation, image.height(), image.width())?;
            image = image.augmented(operation, sign * strength, settings.interpolation, settings.fill)?;
        }
        Ok(image)
    }

    /// One operation of RandAugment, with its own strength (an angle, pixels, bits …). torchvision's
    /// `_apply_op`.
    ///
    /// # Errors
    /// A strength outside the range of the operation.
    #[track_caller]
    pub fn augmented(
        &self,
        operation: Augmentation,
        strength: f64,
        interpolation: Interpolation,
        fill: [u8; 3],
    ) -> Result<Image> {
        let map = Affine { interpolation, fill, ..Default::default() };
        let shear = strength.atan().to_degrees();
        let corner = Some((0.0, 0.0));
        match operation {
            Augmentation::Identity => Ok(self.clone()),
            Augmentation::ShearX => self.affine(&Affine { shear: (shear, 0.0), center: corner, ..map }),
            Augmentation::ShearY => self.affine(&Affine { shear: (0.0, shear), center: corner, ..map }),
            Augmentation::TranslateX => self.affine(&Affine { translate: (strength.trunc(), 0.0), ..map }),
            Augmentation::TranslateY => self.affine(&Affine { translate: (0.0, strength.trunc()), ..map }),
            Augmentation::Rotate => {
                self.rotate(strength, Rotation { interpolation, fill, ..Default::default() })
            }
            Augmentation::Brightness => self.adjust_brightness(1.0 + strength),
            Augmentation::Color => self.adjust_saturation(1.0 + strength),
            Augmentation::Contrast => self.adjust_contrast(1.0 + strength),
            Augmentation::Sharpness => self.adjust_sharpness(1.0 + strength),
            Augmentation::Posterize => self.posterize(strength as u32),
            Augmentation::Solarize => self.solarize(strength),
            Augmentation::AutoContrast => Ok(self.autocontrast()),
            Augmentation::Equalize => Ok(self.equalize()),
        }
    }
}

/// The pixels along an axis that hold a whole rotated picture: from the least to the greatest position of its
/// corners, without fractions below 10⁻⁴, as torchvision computes it.
fn expanded(row: [f64; 3], size: [usize; 2], axis: usize) -> usize {
    let [width, height] = size.map(|side| side as f64 / 2.0);
    let corners = [(-width, -height), (-width, height), (width, height), (width, -height)];
    let positions = corners.map(|(x, y)| row[0] * x + row[1] * y + row[2] + size[axis] as f64 / 2.0);
    let cut = |position: f64| (position * 1e4).trunc() / 1e4;
    let least = positions.iter().copied().fold(f64::INFINITY, f64::min);
    let most = positions.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (cut(most).ceil() - cut(least).floor()) as usize
}

/// A number that is rounded to the nearest whole one, ties to even, after rounding errors below 10⁻⁴ are
/// removed: torchvision computes positions in f32, which decides ties by chance.
fn steady(value: f64) -> f64 {
    ((value * 1e4).round() / 1e4).round_ties_even()
}

/// The settings of [`Image::rand_augment`], with torchvision's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandAugment {
    /// The number of operations. 2 by default.
    pub num_ops: usize,
    /// The strength of all operations, from 0 to `num_magnitude_bins` − 1. 9 by default.
    pub magnitude: usize,
    /// The number of strengths. 31 by default.
    pub num_magnitude_bins: usize,
    /// How warped pictures take their pixels.
    pub interpolation: Interpolation,
    /// The colour outside the picture. Black by default.
    pub fill: [u8; 3],
}

impl Default for RandAugment {
    fn default() -> RandAugment {
        RandAugment {
            num_ops: 2,
            magnitude: 9,
            num_magnitude_bins: 31,
            interpolation: Interpolation::Nearest,
            fill: [0; 3],
        }
    }
}

impl RandAugment {
    /// The strength of an operation for a picture of this size.
    ///
    /// # Errors
    /// A magnitude that is not below the number of bins, or less than two bins.
    #[track_caller]
    pub fn strength(&self, operation: Augmentation, height: usize, width: usize) -> Result<f64> {
        let (bin, bins) = (self.magnitude, self.num_magnitude_bins);
        if bins < 2 || bin >= bins {
            let message = format!("magnitude {bin} of {bins}: give two bins or more, and a magnitude below");
            return Err(Error::invalid("RandAugment", message));
        }
        // As torch.linspace gives it, in f32 and from both ends: a rounding decides a pixel.
        let of = |greatest: f64| {
            let (greatest, last) = (greatest as f32, bins - 1);
            let step = greatest / last as f32;
            f64::from(match 2 * bin < bins {
                true => step * bin as f32,
                false => greatest - step * (last - bin) as f32,
            })
        };
        Ok(match operation {
            Augmentation::ShearX | Augmentation::ShearY => of(0.3),
            Augmentation::TranslateX => of(150.0 / 331.0 * width as f64),
            Augmentation::TranslateY => of(150.0 / 331.0 * height as f64),
            Augmentation::Rotate => of(30.0),
            Augmentation::Brightness
            | Augmentation::Color
            | Augmentation::Contrast
            | Augmentation::Sharpness => of(0.9),
            Augmentation::Posterize => {
                8.0 - (bin as f32 / ((bins - 1) as f32 / 4.0)).round_ties_even() as f64
            }
            Augmentation::Solarize => 255.0 - of(255.0),
            Augmentation::Identity | Augmentation::AutoContrast | Augmentation::Equalize => 0.0,
        })
    }
}

/// The operations of [`RandAugment`], in torchvision's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Augmentation {
    /// No change.
    Identity,
    /// A shear along the x axis.
    ShearX,
    /// A shear along the y axis.
    ShearY,
    /// A translation to the right.
    TranslateX,
    /// A translation down.
    TranslateY,
    /// A rotation about the middle.
    Rotate,
    /// [`Image::adjust_brightness`].
    Brightness,
    /// [`Image::adjust_saturation`].
    Color,
    /// [`Image::adjust_contrast`].
    Contrast,
    /// [`Image::adjust_sharpness`].
    Sharpness,
    /// [`Image::posterize`].
    Posterize,
    /// [`Image::solarize`].
    Solarize,
    /// [`Image::autocontrast`].
    AutoContrast,
    /// [`Image::equalize`].
    Equalize,
}

impl Augmentation {
    /// All operations.
    pub const ALL: [Augmentation; 14] = [
        Augmentation::Identity,
        Augmentation::ShearX,
        Augmentation::ShearY,
        Augmentation::TranslateX,
        Augmentation::TranslateY,
        Augmentation::Rotate,
        Augmentation::Brightness,
        Augmentation::Color,
        Augmentation::Contrast,
        Augmentation::Sharpness,
        Augmentation::Posterize,
        Augmentation::Solarize,
        Augmentation::AutoContrast,
        Augmentation::Equalize,
    ];

    /// Whether the strength may be negative.
    fn is_signed(self) -> bool {
        use Augmentation as A;
        match self {
            A::ShearX | A::ShearY | A::TranslateX | A::TranslateY | A::Rotate => true,
            A::Brightness | A::Color | A::Contrast | A::Sharpness => true,
            A::Identity | A::Posterize | A::Solarize | A::AutoContrast | A::Equalize => false,
        }
    }
}
