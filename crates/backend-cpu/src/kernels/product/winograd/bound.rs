//! Dynamic range check: a bound of the error of results of Winograd's filtering, relative to the sum S of
//! the magnitudes of their own terms.
//!
//! A result is formed of the elements x of its own window alone, but multiplies them with other taps of the
//! weight w too, and those products cancel. The magnitudes that are added on the way are at most Σ_c
//! L(w_c)·B(x_c). B is the sum of the window's magnitudes. L follows from the transforms' coefficients: the
//! sum of the weight's magnitudes, with the row and the column of a corner, and the corner itself, once more;
//! the corner is the one that makes it greatest. One tap and one element at opposite corners reach this
//! bound. S is at least Σ_c m(w_c)·B(x_c), where m is the least magnitude of a tap.
//!
//! So the error is at most [`ERROR`]·S if Σ_c (m − τ·L)·B is positive, with τ = [`roundings`]·u / [`ERROR`]
//! and u the unit of rounding. This sum is a product of two matrices, as large as four of the 16 of the
//! filtering. As B is not negative, the least coefficients of a few rows of the weight stand for all of them,
//! which makes it smaller.

use super::super::{
    operands::WIDEST,
    winograd_tiles::{Piece, TAPS, Tiles},
};
use crate::simd::{isa::Job, vector::Float};

/// The greatest error of a result, as a part of the sum of the magnitudes of its terms.
const ERROR: f64 = 1e-3;
/// Rows of the weight that have one row of coefficients.
pub(super) const ROWS_TOGETHER: usize = 2;
/// Channels whose products are summed at most before the sum is added to those of other channels, which
/// bounds the roundings.
pub(super) const SUMMED_CHANNELS: usize = 64;
/// A sum of f32 products below this may have lost bits by underflow. The same bound serves f64.
const FLOOR: f64 = 1.0 / (1u128 << 116) as f64;

/// How many parts the channels are cut into.
pub(super) fn parts(channels: usize) -> usize {
    channels.div_ceil(SUMMED_CHANNELS)
}

/// The error of a result at most, in units of rounding of the magnitudes that are added.
///
/// If each rounding were as great as it can be, and all went the same way, this would be ten for the
/// transforms, one for each channel of a part, and one for each part. That cannot be: a rounding is
/// relative to the power of two below a partial sum, and partial sums grow, so that sums of equal terms
/// that are always rounded the same way have 0.36 for each channel on average. This bound is near that, and
/// above the worst case that a search finds (equal products in all channels, whose last bits are varied by
/// hill climbing): 7.7 of 32 channels, 14.5 of 64 and 24.8 of 128 in one part, so 0.22 for each channel.
/// Random numbers have less than one.
fn roundings(channels: usize) -> f64 {
    let parts = parts(channels);
    3.0 + channels.div_ceil(parts) as f64 / 3.0 + parts as f64
}

/// Makes the coefficients m − τ·L of windows, by their number of channels.
pub(super) struct Coefficients {
    scale: f64,
}

impl Coefficients {
    /// The coefficients for sums over this number of channels.
    pub(super) fn new<T: Float>(channels: usize) -> Coefficients {
        let unit = T::EPSILON.into() / 2.0;
        Coefficients { scale: roundings(channels) * unit / ERROR }
    }

    /// m − τ·L of a window. `None` if that is not finite, or so small that the transforms lose bits.
    #[inline(always)]
    pub(super) fn of<T: Float>(&self, window: &[T; TAPS]) -> Option<T> {
        let a = window.map(|x| x.abs());
        let least = a.iter().fold(a[0], |least, &x| if x < least { x } else { least });
        let [upper, middle, lower] = [0, 3, 6].map(|i| a[i] + a[i + 1] + a[i + 2]);
        let [left, right] = [0, 2].map(|j| a[j] + a[j + 3] + a[j + 6]);
        let corners = [upper + left + a[0], upper + right + a[2], lower + left + a[6], lower + right + a[8]];
        let most = corners.iter().fold(corners[0], |most, &x| if x > most { x } else { most });
        let size: f64 = (upper + middle + lower + most).into();
        let good = size == 0.0 || (size > FLOOR && size.is_finite());
        good.then(|| least - T::rounded(self.scale * size))
    }
}

/// Sums the magnitudes of the window of 3 x 3 elements of each result of a block, in all channels.
pub(super) struct Boxes<'a, T> {
    pub(super) of: &'a Tiles,
    pub(super) from: *const T,
    /// Along images, channels and rows; the elements of a row are contiguous.
    pub(super) strides: [isize; 3],
    pub(super) pieces: &'a [Piece],
    /// Room for the sums of a piece's columns of three elements: [`Boxes::room`].
    pub(super) columns: &'a mut [T],
    /// A row of [`Tiles::results`] for each channel.
    pub(super) to: &'a mut [T],
}

impl<T> Boxes<'_, T> {
    /// Numbers that the sums of a piece's columns take.
    pub(super) fn room(of: &Tiles) -> usize {
        of.results() + 4 * of.most_rows() + 2 * WIDEST
    }
}

impl<T: Float> Job for Boxes<'_, T> {
    type Output = ();
    // Loops over arrays of a register's length, which compilers keep in registers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) {
        let Boxes { of, from, strides, pieces, columns, to } = self;
        let (results, width) = (of.results(), of.width);
        let length = width + 2;
        for (channel, to) in to.chunks_exact_mut(results).enumerate() {
            let mut at = 0;
            for Piece { image, tiles, .. } in pieces {
                let rows = (2 * tiles.end).min(of.height) - 2 * tiles.start;
                let first = *image as isize * strides[0] + channel as isize * strides[1];
                let first = from.wrapping_offset(first + 2 * tiles.start as isize * strides[2]);
                let (lists, numbers) =
                    if strides[2] == length as isize { (1, rows * length) } else { (rows, length) };
                for list in 0..lists {
                    let row = |r: usize| {
                        let row = first.wrapping_offset((list + r) as isize * strides[2]);
                        // SAFETY: `is_bounded` asks for all rows of the images, two more
                        // than there are rows of results, and of `width + 2` elements; where
                        // they follow each other, all are one list.
                        unsafe { std::slice::from_raw_parts(row, numbers) }
                    };
                    let (upper, middle, lower) = (row(0), row(1), row(2));
                    let columns = &mut columns[list * length..][..numbers];
                    for x in 0..numbers {
                        columns[x] = upper[x].abs() + middle[x].abs() + lower[x].abs();
                    }
                }
                for r in 0..rows {
                    let mut x = 0;
                    while x < width {
                        // The next row overwrites what is written past the row's end; after the last row
                        // nothing reads it.
                        let sums = &columns[r * length + x..][..WIDEST + 2];
                        let to = &mut to[at + x..][..WIDEST];
                        for l in 0..WIDEST {
                            to[l] = sums[l] + sums[l + 1] + sums[l + 2];
                        }
                        x += WIDEST;
                    }
                    at += width;
                }
            }
        }
    }
}

/// Whether all of the numbers are positive, and not so small that they may have lost bits.
pub(super) struct ArePositive<'a, T>(pub(super) &'a [T]);

impl<T: Float> Job for ArePositive<'_, T> {
    type Output = bool;
    #[inline(always)]
    fn run(self) -> bool {
        let floor = T::rounded(FLOOR);
        let mut all = true;
        for &x in self.0 {
            all &= x > floor;
        }
        all
    }
}
