//! Convolutions of 3 x 3 windows at stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3): 16 multiplications for four results, where their
//! definition takes 36. Tiles of 4 x 4 elements and the weight are transformed by additions, multiplied as 16 products of matrices over
//! the channels, and transformed back. The gradient of the weight is F(3 x 3, 2 x 2) of the same tiles, 16 products over them.
//!
//! Lavin and Gray: Fast algorithms for convolutional neural networks (2016).
//!
//! A transformed tile mixes elements that no one result depends on together, and a large one leaves its rounding in results that do not see
//! it. So tiles of which one element is much larger than the others are formed by their definition, and so are those with a result that
//! is not finite: an infinity stays where it belongs, and nothing overflows that need not.
#![allow(unsafe_code)]

mod spread;
mod tiles;
mod transforms;

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use tensor_core::{
    Result,
    contraction::{Contraction, Loop},
};

pub(super) use self::transforms::Transforms;
use self::{
    spread::Spread,
    tiles::Tiles,
    transforms::{Back, Forward, Weights},
};
use super::{
    gemm::{Product, Steps, Strided, WIDEST},
    micro_kernel::{HasMicroKernels, Update},
};
use crate::{
    elementwise::engine::with_scratch,
    memory::strided::Shared,
    simd::{isa::Isa, vector::Float},
    threads,
};

/// Elements of a transformed tile, and along each of its axes.
const POINTS: usize = 16;
const SIDE: usize = 4;
/// Elements of a window.
const TAPS: usize = 9;
/// Windows of a weight whose transforms are worth a thread.
const GRAIN: usize = 1 << 9;

/// Parts of the sums of a weight's gradient, at most and at least, and numbers in all of them: what threads share.
const MOST_PARTS: usize = 16;
const FEWEST_PARTS: usize = 4;
const SUMS: usize = 1 << 22;

/// A convolution, or the gradient of its weight, that is formed so.
pub(super) enum Winograd {
    Convolution(Convolution),
    Gradient(Gradient),
}

impl Winograd {
    /// Of a contraction that is one, where it pays.
    pub(super) fn of(contraction: &Contraction) -> Option<Winograd> {
        let Contraction { batch, m, n, k, .. } = contraction;
        let windows = |[y, x]: [&Loop; 2], [i, j]: [&Loop; 2]| {
            [i.size, j.size] == [3, 3] && x.rhs == 1 && j.rhs == 1 && i.rhs == y.rhs
        };
        let tiles = |row: &Loop, c: &Loop, [y, x]: [&Loop; 2], images: &[Loop]| {
            let images = images.first().map_or(1, |axis| axis.size);
            Tiles::new(images, [row.size, c.size], [y.size, x.size])
        };
        let along = |images: &[Loop], stride: fn(&Loop) -> isize| images.first().map_or(0, stride);
        match (&m[..], &n[..], &k[..]) {
            ([row], [y, x], [c, i, j])
                if windows([y, x], [i, j]) && batch.len() <= 1 && along(batch, |axis| axis.lhs) == 0 =>
            {
                let of = Convolution {
                    tiles: tiles(row, c, [y, x], batch),
                    weight: [row.lhs, c.lhs, i.lhs, j.lhs],
                    image: [along(batch, |axis| axis.rhs), c.rhs, y.rhs],
                    out: along(batch, |axis| axis.out),
                };
                of.tiles.pay().then_some(Winograd::Convolution(of))
            }
            ([row], [c, i, j], [images @ .., y, x])
                if windows([y, x], [i, j]) && batch.is_empty() && images.len() <= 1 =>
            {
                let of = Gradient {
                    tiles: tiles(row, c, [y, x], images),
                    image: [along(images, |axis| axis.rhs), c.rhs, y.rhs],
                    gradient: [along(images, |axis| axis.lhs), row.lhs, y.lhs],
                };
                let pays = x.lhs == 1 && of.tiles.pay() && of.parts() >= FEWEST_PARTS;
                pays.then_some(Winograd::Gradient(of))
            }
            _ => None,
        }
    }
}

/// The strides of `out[b][k][y][x] = Σ weight[k][c][i][j] · image[b][c][y + i][x + j]`.
pub(super) struct Convolution {
    tiles: Tiles,
    /// The weight's strides, along k, c, i and j.
    weight: [isize; 4],
    /// The images' strides, along b, c and y; the elements of a row lie side by side.
    image: [isize; 3],
    /// From image to image of the result.
    out: isize,
}

impl Convolution {
    /// The blocks of all images.
    pub(super) fn blocks(&self) -> usize {
        self.tiles.blocks()
    }

    /// The images and the columns of their products, rows of an image after the other, that a block forms.
    pub(super) fn columns(&self, block: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let Tiles { height, width, .. } = self.tiles;
        let row = move |tile: usize| (2 * tile).min(height) * width;
        let pieces = self.tiles.pieces(block).into_iter();
        pieces.map(move |piece| (piece.image, row(piece.tiles.start)..row(piece.tiles.end)))
    }

    /// Numbers from a row of the transformed weight to the next: all 16 points of it, and a line, lest rows that are read together meet in one set
    /// of a cache.
    fn weight_row(&self) -> usize {
        POINTS * self.tiles.channels + WIDEST
    }

    /// The transformed weight: a row of channels for each of the 16 points, one row of the result after the other. `None` if one is too uneven.
    ///
    /// # Safety
    /// All elements of the weight can be read.
    pub(super) unsafe fn transformed<T: Float>(&self, weight: *const T) -> Option<Vec<T>> {
        let Tiles { rows, channels, .. } = self.tiles;
        let [row, channel, down, across] = self.weight;
        let mut out = vec![T::ZERO; rows * self.weight_row()];
        let even = AtomicBool::new(true);
        let from = Shared(weight.cast_mut());
        let one = |k: usize, out: &mut [T]| {
            let mut spread = Spread::new();
            // G·g: the first, half the sums, half the differences, the last.
            let points = |g: [T; 3]| {
                let (ends, middle) = ((g[0] + g[2]) * T::HALF, g[1] * T::HALF);
                [g[0], ends + middle, ends - middle, g[2]]
            };
            for c in 0..channels {
                let first = k as isize * row + c as isize * channel;
                let window: [T; TAPS] = std::array::from_fn(|tap| {
                    let at = first + (tap / 3) as isize * down + (tap % 3) as isize * across;
                    // SAFETY: the caller's promise.
                    unsafe { from.at(at).read() }
                });
                spread.note(&window);
                let columns = [0, 1, 2].map(|j| points([window[j], window[3 + j], window[6 + j]]));
                for i in 0..SIDE {
                    let line = points([columns[0][i], columns[1][i], columns[2][i]]);
                    for (j, value) in line.into_iter().enumerate() {
                        out[(i * SIDE + j) * channels + c] = value;
                    }
                }
            }
            even.fetch_and(spread.is_even(), Ordering::Relaxed);
        };
        if threads::worth(rows * channels, GRAIN) == 1 {
            out.chunks_mut(self.weight_row()).enumerate().for_each(|(k, out)| one(k, out));
        } else {
            threads::share_chunks(&mut out, self.weight_row(), one);
        }
        even.load(Ordering::Relaxed).then_some(out)
    }

    /// Forms a block of results. Gives whether they are good; if not, they are to be formed by their definition.
    ///
    /// # Errors
    /// None that is met here: those of products that nothing finishes.
    ///
    /// # Safety
    /// All elements of the images can be read, and the block's results written; nobody else does. `weight` is [`Convolution::transformed`].
    pub(super) unsafe fn run<T: HasMicroKernels>(
        &self,
        isa: Isa,
        weight: &[T],
        image: *const T,
        to: *mut T,
        block: usize,
    ) -> Result<bool> {
        let of = &self.tiles;
        let Tiles { rows, channels, .. } = *of;
        let pieces = &of.pieces(block);
        let (slot, padded) = (of.slot(channels.max(rows)), of.padded());
        let Transforms { images, back, .. } = T::micro_kernels(isa).winograd;
        with_numbers::<T, _>((POINTS + 1) * slot + 2 * SIDE * of.line(), |scratch| {
            let (points, lines) = scratch.split_at_mut((POINTS + 1) * slot);
            let mut spread = Spread::new();
            // The tiles of a point lie where the products of the next one will.
            let forward = Forward {
                of,
                from: image,
                strides: self.image,
                pieces,
                spread: &mut spread,
                lines,
                to: &mut points[slot..],
                slot,
            };
            // SAFETY: the registers are the processor's, and the rest is the caller's promise.
            unsafe { images(forward, channels) };
            if !spread.is_even() {
                return Ok(false);
            }
            let n = of.count(pieces).next_multiple_of(WIDEST);
            for point in 0..POINTS {
                let (products, images) = points[point * slot..].split_at_mut(slot);
                let product = Product {
                    n,
                    k: channels,
                    a: matrix(&weight[point * channels..], self.weight_row(), 1),
                    b: matrix(images, padded, 1),
                    to: products.as_mut_ptr(),
                    to_row: padded,
                    update: Update::Set,
                    prepared: None,
                };
                // SAFETY: both operands and the result are parts of the scratch and of the weight, apart, and of these sizes.
                unsafe { product.run(isa, 0..rows, 0..n, None)? };
            }
            let mut finite = true;
            for row in 0..rows {
                let products = &points[row * padded..];
                // SAFETY: as above.
                finite &= unsafe { back(Back { of, products, slot, to, out: self.out, row, pieces }) };
            }
            Ok(finite)
        })
    }
}

/// The strides of `out[k][c][i][j] = Σ gradient[b][k][y][x] · image[b][c][y + i][x + j]`, whose sums over tiles are F(3 x 3, 2 x 2).
pub(super) struct Gradient {
    tiles: Tiles,
    /// The images' strides, along b, c and y, and the gradient's, along b, k and y; the elements of a row lie side by side in both.
    image: [isize; 3],
    gradient: [isize; 3],
}

impl Gradient {
    /// Into how many sums the blocks of all images are cut, which are added in their order.
    pub(super) fn parts(&self) -> usize {
        let Tiles { rows, channels, .. } = self.tiles;
        self.tiles.blocks().min(MOST_PARTS).min(SUMS / (POINTS * rows * channels))
    }

    /// The sums of a part: a matrix of rows and channels for each of the 16 points.
    pub(super) fn sums(&self) -> usize {
        POINTS * self.tiles.rows * self.tiles.channels
    }

    /// Forms the sums of a part. Gives whether they are good; if not, the gradient is to be formed by its definition.
    ///
    /// # Errors
    /// None that is met here: those of products that nothing finishes.
    ///
    /// # Safety
    /// All elements of the gradient and of the images can be read, and `to` has room for [`Gradient::sums`], which nobody else uses.
    pub(super) unsafe fn run<T: HasMicroKernels>(
        &self,
        isa: Isa,
        gradient: *const T,
        image: *const T,
        to: *mut T,
        part: usize,
    ) -> Result<bool> {
        let of = &self.tiles;
        let Tiles { rows, channels, .. } = *of;
        let padded = of.padded();
        let slots = [of.slot(rows), of.slot(channels)];
        let Transforms { images, gradients, .. } = T::micro_kernels(isa).winograd;
        with_numbers::<T, _>(POINTS * (slots[0] + slots[1]) + 2 * SIDE * of.line(), |scratch| {
            let (lefts, rest) = scratch.split_at_mut(POINTS * slots[0]);
            let (rights, lines) = rest.split_at_mut(POINTS * slots[1]);
            for (nth, block) in threads::part(of.blocks(), 1, self.parts(), part).enumerate() {
                let pieces = &of.pieces(block);
                let k = of.count(pieces);
                let mut spreads = [Spread::new(), Spread::new()];
                let [left, right] = &mut spreads;
                let left = Forward {
                    of,
                    from: gradient,
                    strides: self.gradient,
                    pieces,
                    spread: left,
                    lines,
                    to: lefts,
                    slot: slots[0],
                };
                // SAFETY: the registers are the processor's, and the rest is the caller's promise.
                unsafe { gradients(left, rows) };
                let right = Forward {
                    of,
                    from: image,
                    strides: self.image,
                    pieces,
                    spread: right,
                    lines,
                    to: rights,
                    slot: slots[1],
                };
                // SAFETY: as above.
                unsafe { images(right, channels) };
                if !spreads.iter().all(Spread::is_even) {
                    return Ok(false);
                }
                for point in 0..POINTS {
                    let product = Product {
                        n: channels,
                        k,
                        a: matrix(&lefts[point * slots[0]..], padded, 1),
                        b: matrix(&rights[point * slots[1]..], 1, padded),
                        to: to.wrapping_add(point * rows * channels),
                        to_row: channels,
                        update: Update::adds(nth > 0),
                        prepared: None,
                    };
                    // SAFETY: both operands are parts of the scratch, the result is the caller's, and all are of these sizes.
                    unsafe { product.run(isa, 0..rows, 0..channels, None)? };
                }
            }
            Ok(true)
        })
    }

    /// Adds the sums of all parts for a row of the result, and transforms them back. Gives whether all results are finite.
    ///
    /// # Safety
    /// `to` is the result's first element, and nobody else uses this row of it. There are so many parts of sums.
    pub(super) unsafe fn row<T: HasMicroKernels>(
        &self,
        isa: Isa,
        sums: &[T],
        to: *mut T,
        row: usize,
    ) -> bool {
        let Tiles { rows, channels, .. } = self.tiles;
        // SAFETY: the caller's promise.
        let to = unsafe {
            std::slice::from_raw_parts_mut(to.wrapping_add(row * channels * TAPS), channels * TAPS)
        };
        let weights = T::micro_kernels(isa).winograd.weights;
        // SAFETY: the registers are the processor's.
        unsafe { weights(Weights { sums: &sums[row * channels..], size: rows * channels, to }) }
    }
}

/// A matrix in memory.
fn matrix<T>(of: &[T], row: usize, column: usize) -> Strided<'_, T> {
    Strided { at: of.as_ptr(), row: Steps::Even(row as isize), column: Steps::Even(column as isize) }
}

/// So many numbers of this thread's scratch memory, for as long as `f` takes.
fn with_numbers<T: Float, R>(numbers: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    const { assert!(align_of::<T>() <= align_of::<u64>()) };
    with_scratch((numbers * size_of::<T>()).div_ceil(size_of::<u64>()), |words| {
        // SAFETY: there are as many bytes, initialised, and every bit pattern is a number of these types.
        f(unsafe { std::slice::from_raw_parts_mut(words.cast(), numbers) })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::gemm::tests::numbers, *};

    /// Both forms, as compiled for each instruction set, are their definitions.
    fn check<T: HasMicroKernels>(number: impl Fn(f64) -> T + Copy, epsilon: f64) {
        for (images, rows, channels, height, width) in [
            (4, 33, 35, 5, 13),
            (2, 32, 32, 56, 30),
            (50, 34, 32, 2, 7),
            (8, 32, 33, 10, 8),
            (5, 33, 32, 6, 16),
        ] {
            let tiles = Tiles::new(images, [rows, channels], [height, width]);
            let [down, across] = [height + 2, width + 2].map(|size| size as isize);
            let weight = numbers(rows * channels * TAPS, 1, number);
            let image = numbers(images * channels * (height + 2) * (width + 2), 2, number);
            let gradient = numbers(images * rows * height * width, 3, number);
            let pixel = |b: usize, c: usize, y: usize, x: usize| -> f64 {
                image[((b * channels + c) * (height + 2) + y) * (width + 2) + x].into()
            };
            let convolution = Convolution {
                tiles,
                weight: [(channels * TAPS) as isize, TAPS as isize, 3, 1],
                image: [channels as isize * down * across, down * across, across],
                out: (rows * height * width) as isize,
            };
            let of = Gradient {
                tiles,
                image: [channels as isize * down * across, down * across, across],
                gradient: [(rows * height * width) as isize, (height * width) as isize, width as isize],
            };
            for isa in Isa::available() {
                let mut out = numbers(images * rows * height * width, 4, number);
                // SAFETY: all elements lie in the vectors.
                unsafe {
                    let transformed = convolution.transformed(weight.as_ptr()).unwrap();
                    for block in 0..convolution.blocks() {
                        let (from, to) = (image.as_ptr(), out.as_mut_ptr());
                        assert!(convolution.run(isa, &transformed, from, to, block).unwrap());
                    }
                }
                for (at, &found) in out.iter().enumerate().step_by(11) {
                    let (b, k) = (at / (rows * height * width), at / (height * width) % rows);
                    let (y, x) = (at / width % height, at % width);
                    let term = |i: usize| -> f64 {
                        let (c, tap) = (i / TAPS, i % TAPS);
                        weight[k * channels * TAPS + i].into() * pixel(b, c, y + tap / 3, x + tap % 3)
                    };
                    let expected: f64 = (0..channels * TAPS).map(term).sum();
                    let found: f64 = found.into();
                    assert!(
                        (found - expected).abs() < 100.0 * epsilon,
                        "{isa:?}: {at} is {found}, not {expected}"
                    );
                }
                let mut sums = numbers(of.parts() * of.sums(), 5, number);
                let mut out = numbers(rows * channels * TAPS, 6, number);
                // SAFETY: as above.
                unsafe {
                    for part in 0..of.parts() {
                        let to = sums[part * of.sums()..].as_mut_ptr();
                        assert!(of.run(isa, gradient.as_ptr(), image.as_ptr(), to, part).unwrap());
                    }
                    for row in 0..rows {
                        assert!(of.row(isa, &sums, out.as_mut_ptr(), row));
                    }
                }
                for (at, &found) in out.iter().enumerate().step_by(17) {
                    let (k, c, tap) = (at / (channels * TAPS), at / TAPS % channels, at % TAPS);
                    let term = |i: usize| -> f64 {
                        let (b, y, x) = (i / (height * width), i / width % height, i % width);
                        let left: f64 = gradient[((b * rows + k) * height + y) * width + x].into();
                        left * pixel(b, c, y + tap / 3, x + tap % 3)
                    };
                    let expected: f64 = (0..images * height * width).map(term).sum();
                    let found: f64 = found.into();
                    assert!(
                        (found - expected).abs() < 500.0 * epsilon,
                        "{isa:?}: {at} is {found}, not {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn convolutions_and_gradients_are_their_definitions() {
        check::<f32>(|x| x as f32, f32::EPSILON.into());
        check::<f64>(|x| x, f64::EPSILON);
    }
}
