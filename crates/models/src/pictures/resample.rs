//! Resampling of bytes: a filter across, then one down, in whole numbers as the Python package Pillow does.
//! Its version 13 goes down first for some sizes, where its bytes differ.

/// The digits of a coefficient behind the point, in bits.
const PRECISION_BITS: u32 = 32 - 8 - 2;

/// A filter of resampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// A triangle.
    Bilinear,
    /// Cubic polynomials with a = −0.5.
    Bicubic,
    /// A sinc under a window of three lobes.
    Lanczos,
}

impl Filter {
    /// The filter with Pillow's number.
    pub(super) fn of_number(number: u64) -> Option<Filter> {
        match number {
            1 => Some(Filter::Lanczos),
            2 => Some(Filter::Bilinear),
            3 => Some(Filter::Bicubic),
            _ => None,
        }
    }

    /// The distance from the middle at which the filter ends.
    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        let far = x.abs();
        match self {
            Filter::Bilinear => (1.0 - far).max(0.0),
            Filter::Bicubic => match far {
                _ if far < 1.0 => (1.5 * far - 2.5) * far * far + 1.0,
                _ if far < 2.0 => -0.5 * (((far - 5.0) * far + 8.0) * far - 4.0),
                _ => 0.0,
            },
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * std::f64::consts::PI).sin() / (x * std::f64::consts::PI) }
}

/// The inputs of each output, from the first on, with their coefficients.
fn coefficients(inputs: usize, outputs: usize, filter: Filter) -> Vec<(usize, Vec<i32>)> {
    let scale = inputs as f64 / outputs as f64;
    // A picture that shrinks is smoothed.
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let row = |k: usize| {
        let centre = (k as f64 + 0.5) * scale;
        let first = (centre - support + 0.5).max(0.0) as usize;
        let end = ((centre + support + 0.5) as usize).min(inputs);
        let weights = (first..end).map(|x| filter.at((x as f64 - centre + 0.5) / stretch));
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        let whole = |weight: f64| {
            let scaled = weight / if sum == 0.0 { 1.0 } else { sum } * f64::from(1 << PRECISION_BITS);
            (scaled + 0.5f64.copysign(scaled)) as i32
        };
        (first, weights.into_iter().map(whole).collect())
    };
    (0..outputs).map(row).collect()
}

/// The byte of a sum of bytes times coefficients.
fn byte(sum: i32) -> u8 {
    (sum >> PRECISION_BITS).clamp(0, 255) as u8
}

/// RGB bytes `[height, width, 3]` as a picture of another size.
pub(super) fn resized(
    bytes: Vec<u8>,
    [height, width]: [usize; 2],
    [new_height, new_width]: [usize; 2],
    filter: Filter,
) -> Vec<u8> {
    const HALF: i32 = 1 << (PRECISION_BITS - 1);
    let mut bytes = bytes;
    if new_width != width {
        let columns = coefficients(width, new_width, filter);
        let mut across = Vec::with_capacity(height * new_width * 3);
        for row in bytes.chunks_exact(width * 3) {
            for (first, weights) in &columns {
                let mut sums = [HALF; 3];
                for (pixel, weight) in row[first * 3..].chunks_exact(3).zip(weights) {
                    sums.iter_mut().zip(pixel).for_each(|(sum, byte)| *sum += i32::from(*byte) * weight);
                }
                across.extend(sums.map(byte));
            }
        }
        bytes = across;
    }
    if new_height != height {
        let line = new_width * 3;
        let mut down = Vec::with_capacity(new_height * line);
        for (first, weights) in coefficients(height, new_height, filter) {
            let mut sums = vec![HALF; line];
            for (row, weight) in bytes[first * line..].chunks_exact(line).zip(&weights) {
                sums.iter_mut().zip(row).for_each(|(sum, byte)| *sum += i32::from(*byte) * weight);
            }
            down.extend(sums.into_iter().map(byte));
        }
        bytes = down;
    }
    bytes
}
