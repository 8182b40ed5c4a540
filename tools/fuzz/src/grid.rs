//! Numbers on a grid: multiples of a power of two with a bound on their size. Sums and products of such
//! numbers are exact in a float as long as they fit its significand, in any order of the operations, so
//! every device must give the same result.

use taper::{DType, Scalar};

/// Multiples of 2^`lowest` up to `max` in size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    lowest: i32,
    max: f64,
}

impl Grid {
    /// The coarsest grid that holds these; those that are not finite are passed over.
    pub(crate) fn of(values: &[Scalar]) -> Grid {
        let mut grid = Grid { lowest: i32::MAX, max: 0.0 };
        for v in values.iter().map(|v| v.as_f64()).filter(|v| v.is_finite() && *v != 0.0) {
            grid.lowest = grid.lowest.min(lowest_bit(v));
            grid.max = grid.max.max(v.abs());
        }
        if grid.max == 0.0 {
            grid.lowest = 0;
        }
        grid
    }

    pub(crate) fn plus(self, other: Grid) -> Grid {
        Grid { lowest: self.lowest.min(other.lowest), max: self.max + other.max }
    }

    pub(crate) fn times(self, other: Grid) -> Grid {
        Grid { lowest: self.lowest + other.lowest, max: self.max * other.max }
    }

    /// Sums of `n` of these.
    pub(crate) fn sum(self, n: usize) -> Grid {
        Grid { lowest: self.lowest, max: self.max * n.max(1) as f64 }
    }

    /// Products of up to `n` of these.
    pub(crate) fn product(self, n: usize) -> Grid {
        let n = n.max(1) as i32;
        Grid { lowest: self.lowest.min(0).saturating_mul(n), max: self.max.max(1.0).powi(n) }
    }

    /// Whether every number of the grid is one of the dtype. Far from the ends of its range, where devices
    /// differ.
    pub(crate) fn fits(self, dtype: DType) -> bool {
        let Some(format) = dtype.float_format() else { return true };
        // The oracle computes in f64 itself.
        let (most_bits, far) = if dtype == DType::F64 { (50, 900) } else { (24, 100) };
        let bits = (format.digits as i32).min(most_bits);
        let least = format.min_exponent.max(-far);
        let greatest = (format.greatest.log2().floor() as i32).min(far);
        self.lowest >= least
            && self.max < 2f64.powi(greatest)
            && self.max <= 2f64.powi((self.lowest + bits).min(greatest))
    }
}

/// The exponent of the lowest bit that is set.
fn lowest_bit(v: f64) -> i32 {
    let bits = v.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32;
    let fraction = bits & ((1 << 52) - 1);
    let (significand, exponent) =
        if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    exponent + significand.trailing_zeros() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_bits() {
        for (v, bit) in [(1.0, 0), (0.75, -2), (-96.0, 5), (f64::from_bits(1), -1074), (0.1, -55)] {
            assert_eq!(lowest_bit(v), bit, "{v}");
        }
    }

    #[test]
    fn sums_of_eighths_fit_f32_and_soon_not_bf16() {
        let grid = Grid::of(&[Scalar::Float(1.875), Scalar::Float(-0.125), Scalar::Float(f64::NAN)]);
        assert!(grid.fits(DType::BF16) && grid.sum(1000).fits(DType::F32));
        assert!(!grid.sum(1000).fits(DType::BF16));
        assert!(grid.times(grid).fits(DType::BF16) && !grid.product(9).fits(DType::F32));
    }
}
