//! Colours of an [`Image`]: brightness, contrast, saturation, hue, sharpness, and what RandAugment does to
//! histograms. Formulas and roundings are those of torchvision for tensors of u8.

use image::RgbImage;
use tensor_core::{Error, Result};

use crate::{Draws, Image};

/// The ranges of [`Image::color_jitter`], 0 for no change. `transforms.ColorJitter`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColorJitter {
    /// A factor from 1 − b (at least 0) to 1 + b multiplies the brightness.
    pub brightness: f64,
    /// A factor from 1 − c (at least 0) to 1 + c multiplies the contrast.
    pub contrast: f64,
    /// A factor from 1 − s (at least 0) to 1 + s multiplies the saturation.
    pub saturation: f64,
    /// A part of the circle of hues, from −h to h, is added to the hue; at most 0.5.
    pub hue: f64,
}

/// Channel values between 0 and 255, cut off to whole numbers as torchvision's cast does.
fn byte(value: f32) -> u8 {
    value as u8 // saturates
}

/// ratio · a + (1 − ratio) · b, in f32.
fn blend(ratio: f64, a: u8, b: f32) -> u8 {
    byte(ratio as f32 * f32::from(a) + (1.0 - ratio) as f32 * b)
}

/// 0.2989 R + 0.587 G + 0.114 B.
fn gray(pixel: &[u8]) -> u8 {
    let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(f32::from);
    byte(0.2989 * red + 0.587 * green + 0.114 * blue)
}

/// Hue, saturation and value from 0 to 1.
fn to_hsv(pixel: &[u8]) -> [f32; 3] {
    let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(|channel| f32::from(channel) / 255.0);
    let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
    let range = most - least;
    if range == 0.0 {
        return [0.0, 0.0, most];
    }
    let [rc, gc, bc] = [red, green, blue].map(|channel| (most - channel) / range);
    let hue = if most == red {
        bc - gc
    } else if most == green {
        2.0 + rc - bc
    } else {
        4.0 + gc - rc
    };
    [(hue / 6.0 + 1.0) % 1.0, range / most, most]
}

fn to_rgb([hue, saturation, value]: [f32; 3]) -> [u8; 3] {
    let sector = (hue * 6.0).floor();
    let part = hue * 6.0 - sector;
    let p = (value * (1.0 - saturation)).clamp(0.0, 1.0);
    let q = (value * (1.0 - saturation * part)).clamp(0.0, 1.0);
    let t = (value * (1.0 - saturation * (1.0 - part))).clamp(0.0, 1.0);
    let rgb = match sector as i32 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    };
    // So that 1 becomes 255, and each byte has an equal part of the range.
    rgb.map(|channel| byte(channel * (255.0 + 1.0 - 1e-3)))
}

impl Image {
    /// The picture with each byte of channel `c` replaced by `f(byte, c)`.
    fn by_channel(&self, f: impl Fn(u8, usize) -> u8) -> Image {
        let mut out = self.clone();
        out.pixels_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = f(*byte, at % 3));
        out
    }

    fn by_pixel(&self, f: impl Fn(&[u8]) -> [u8; 3]) -> Image {
        let mut out = self.clone();
        for pixel in out.pixels_mut().chunks_exact_mut(3) {
            let new = f(pixel);
            pixel.copy_from_slice(&new);
        }
        out
    }

    /// Multiplies the brightness: each channel is factor · x, at most 255. `functional.adjust_brightness`.
    ///
    /// # Errors
    /// A factor that is negative or not finite.
    #[track_caller]
    pub fn adjust_brightness(&self, factor: f64) -> Result<Image> {
        check_factor("Image::adjust_brightness", factor)?;
        Ok(self.by_channel(|byte, _| blend(factor, byte, 0.0)))
    }

    /// Multiplies the contrast: factor · x + (1 − factor) · m, with the mean m of the gray picture.
    /// `functional.adjust_contrast`.
    ///
    /// # Errors
    /// A factor that is negative or not finite.
    #[track_caller]
    pub fn adjust_contrast(&self, factor: f64) -> Result<Image> {
        check_factor("Image::adjust_contrast", factor)?;
        let sum: u64 = self.bytes().chunks_exact(3).map(|pixel| u64::from(gray(pixel))).sum();
        let mean = (sum as f64 / (self.height() * self.width()) as f64) as f32;
        Ok(self.by_channel(|byte, _| blend(factor, byte, mean)))
    }

    /// Multiplies the saturation: factor · x + (1 − factor) · g, with the gray value g of the pixel.
    /// `functional.adjust_saturation`.
    ///
    /// # Errors
    /// A factor that is negative or not finite.
    #[track_caller]
    pub fn adjust_saturation(&self, factor: f64) -> Result<Image> {
        check_factor("Image::adjust_saturation", factor)?;
        Ok(self.by_pixel(|pixel| {
            let gray = f32::from(gray(pixel));
            [0, 1, 2].map(|channel| blend(factor, pixel[channel], gray))
        }))
    }

    /// Adds a part of the circle to the hue: −0.5 and 0.5 give the complementary colours, 0 the picture
    /// itself. `functional.adjust_hue`.
    ///
    /// # Errors
    /// A part outside [−0.5, 0.5].
    #[track_caller]
    pub fn adjust_hue(&self, part: f64) -> Result<Image> {
        if !(-0.5..=0.5).contains(&part) {
            return Err(Error::invalid("Image::adjust_hue", format!("{part}: give -0.5 to 0.5")));
        }
        Ok(self.by_pixel(|pixel| {
            let [hue, saturation, value] = to_hsv(pixel);
            to_rgb([(hue + part as f32).rem_euclid(1.0), saturation, value])
        }))
    }

    /// factor · x + (1 − factor) · s, with the picture s smoothed by the filter [1 1 1; 1 5 1; 1 1 1] / 13,
    /// whose border is not smoothed. `functional.adjust_sharpness`.
    ///
    /// # Errors
    /// A factor that is negative or not finite.
    #[track_caller]
    pub fn adjust_sharpness(&self, factor: f64) -> Result<Image> {
        check_factor("Image::adjust_sharpness", factor)?;
        let (height, width, old) = (self.height(), self.width(), self.bytes());
        let mut out = self.clone();
        if height <= 2 || width <= 2 {
            return Ok(out);
        }
        let row = 3 * width;
        let new = out.pixels_mut();
        for (at, (new, &byte)) in new.iter_mut().zip(old).enumerate() {
            let (y, x) = (at / row, at % row / 3);
            let inner = y > 0 && y < height - 1 && x > 0 && x < width - 1;
            let smooth = if inner {
                let neighbours = [at - row, at, at + row].map(|middle| {
                    [middle - 3, middle, middle + 3].map(|at| u32::from(old[at])).iter().sum::<u32>()
                });
                // The middle counts five times. No sum is a multiple of 13 and a half.
                let sum = neighbours.iter().sum::<u32>() + 4 * u32::from(byte);
                (sum as f32 / 13.0).round()
            } else {
                f32::from(byte)
            };
            *new = blend(factor, byte, smooth);
        }
        Ok(out)
    }

    /// The gray picture, in three equal channels: 0.2989 R + 0.587 G + 0.114 B.
    /// `functional.rgb_to_grayscale(…, 3)`.
    #[must_use]
    pub fn grayscale(&self) -> Image {
        self.by_pixel(|pixel| [gray(pixel); 3])
    }

    /// The gray picture with this probability. `transforms.RandomGrayscale`, whose default is 0.1.
    #[must_use]
    pub fn random_grayscale(self, probability: f64, draws: &mut Draws) -> Image {
        if draws.chance(probability) { self.grayscale() } else { self }
    }

    /// 255 − x. `functional.invert`.
    #[must_use]
    pub fn invert(&self) -> Image {
        self.by_channel(|byte, _| 255 - byte)
    }

    /// Keeps the upper bits of each channel. `functional.posterize`.
    ///
    /// # Errors
    /// More than 8 bits.
    #[track_caller]
    pub fn posterize(&self, bits: u32) -> Result<Image> {
        if bits > 8 {
            return Err(Error::invalid("Image::posterize", format!("{bits} bits of a channel: give 0 to 8")));
        }
        let mask = (0xff00u32 >> bits) as u8;
        Ok(self.by_channel(|byte, _| byte & mask))
    }

    /// Inverts the channels that are at least `threshold`, from 0 to 255. `functional.solarize`.
    ///
    /// # Errors
    /// A threshold above 255.
    #[track_caller]
    pub fn solarize(&self, threshold: f64) -> Result<Image> {
        if threshold.is_nan() || threshold > 255.0 {
            return Err(Error::invalid("Image::solarize", format!("threshold {threshold}: give 0 to 255")));
        }
        Ok(self.by_channel(|byte, _| if f64::from(byte) >= threshold { 255 - byte } else { byte }))
    }

    /// Stretches each channel to the range from 0 to 255. `functional.autocontrast`.
    #[must_use]
    pub fn autocontrast(&self) -> Image {
        let extremes = [0, 1, 2].map(|channel| {
            let values = || self.bytes().iter().skip(channel).step_by(3).copied();
            (values().min().unwrap_or(0), values().max().unwrap_or(0))
        });
        self.by_channel(|value, channel| {
            let (least, most) = extremes[channel];
            if least == most {
                return value;
            }
            // PyTorch divides a number by a tensor in two roundings.
            byte(f32::from(value - least) * (f32::from(most - least).recip() * 255.0))
        })
    }

    /// Spreads the histogram of each channel evenly. `functional.equalize`.
    #[must_use]
    pub fn equalize(&self) -> Image {
        let tables = [0, 1, 2].map(|channel| {
            let mut counts = [0u64; 256];
            self.bytes().iter().skip(channel).step_by(3).for_each(|&byte| counts[usize::from(byte)] += 1);
            let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
            let step = counts[..last].iter().sum::<u64>() / 255;
            let mut before = 0;
            let mut table = [0u8; 256];
            for (value, count) in counts.iter().enumerate() {
                // A byte becomes the number of pixels below it, in steps.
                table[value] = match (step, value) {
                    (0, _) => value as u8,
                    (_, 0) => 0,
                    _ => ((before + step / 2) / step).min(255) as u8,
                };
                before += count;
            }
            table
        });
        self.by_channel(|byte, channel| tables[channel][usize::from(byte)])
    }

    /// Changes brightness, contrast, saturation and hue by random amounts, in a random order.
    /// `transforms.ColorJitter`.
    ///
    /// ```
    /// use data::{ColorJitter, Draws, Image};
    /// # fn main() -> tensor_core::Result<()> {
    /// let image = Image::from_bytes(1, 2, vec![10, 200, 30, 90, 90, 250])?;
    /// let jitter = ColorJitter { brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1 };
    /// let changed = image.color_jitter(&jitter, &mut Draws::of(42, 0, 0))?;
    /// assert_eq!(changed, image.color_jitter(&jitter, &mut Draws::of(42, 0, 0))?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A range that is negative or not finite, or a hue above 0.5.
    #[track_caller]
    pub fn color_jitter(&self, ranges: &ColorJitter, draws: &mut Draws) -> Result<Image> {
        let ColorJitter { brightness, contrast, saturation, hue } = *ranges;
        let factors = [brightness, contrast, saturation];
        if factors.iter().any(|range| !(range.is_finite() && *range >= 0.0)) || !(0.0..=0.5).contains(&hue) {
            let message = format!("{ranges:?}: give finite ranges from 0 on, and a hue of at most 0.5");
            return Err(Error::invalid("Image::color_jitter", message));
        }
        let mut order = [0, 1, 2, 3];
        for i in (1..order.len()).rev() {
            order.swap(i, draws.below(i as u64 + 1) as usize);
        }
        let mut between = |low: f64, high: f64| low + (high - low) * draws.uniform();
        let [b, c, s] = factors.map(|range| between((1.0 - range).max(0.0), 1.0 + range));
        let h = between(-hue, hue);
        let mut image = self.clone();
        for step in order {
            image = match step {
                0 if brightness > 0.0 => image.adjust_brightness(b)?,
                1 if contrast > 0.0 => image.adjust_contrast(c)?,
                2 if saturation > 0.0 => image.adjust_saturation(s)?,
                3 if hue > 0.0 => image.adjust_hue(h)?,
                _ => image,
            };
        }
        Ok(image)
    }

    /// The bytes of the pixels, to be changed in place.
    pub(crate) fn pixels_mut(&mut self) -> &mut [u8] {
        let pixels: &mut RgbImage = &mut self.0;
        pixels
    }
}

#[track_caller]
fn check_factor(op: &'static str, factor: f64) -> Result<()> {
    if factor.is_finite() && factor >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid(op, format!("a factor of {factor}: give a finite one that is not negative")))
}
