//! Convolutions of 3 x 3 windows at stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3): 16
//! multiplications for four results, where their definition takes 36. Tiles of 4 x 4 elements and the weight
//! are transformed by additions, multiplied as 16 products of matrices over the channels, and transformed
//! back.
//!
//! Lavin and Gray: Fast algorithms for convolutional neural networks (2016).
//!
//! A transformed window mixes elements with taps that they are not multiplied by in a result, and a large one
//! leaves its rounding in results whose own terms are small. So a block of tiles is formed by its definition
//! where the error is not [bounded](bound) relative to each result's terms, and so is one with a result that
//! is not finite: an infinity stays where it belongs, and nothing overflows that need not.
#![allow(unsafe_code)]

mod bound;

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use tensor_core::{
    Result,
    contraction::{Contraction, Loop},
};

use self::bound::{ArePositive, Boxes, Coefficients, ROWS_TOGETHER};
use super::{
    gemm::Product,
    kernel_table::HasMicroKernels,
    operands::{Steps, Strided, Update, WIDEST},
    winograd_kernel::{Back, Forward, Transforms},
    winograd_tiles::{POINTS, SIDE, TAPS, Tiles},
};
use crate::{
    elementwise::engine::with_scratch,
    memory::strided::Shared,
    simd::{isa::Isa, vector::Float},
    threads,
    tuning::WINOGRAD_WINDOW_GRAIN,
};

/// A convolution that is formed so. The strides of `out[b][k][y][x] = Σ weight[k][c][i][j] · image[b][c][y +
/// i][x + j]`.
pub(super) struct Convolution {
    tiles: Tiles,
    /// The weight's strides, along k, c, i and j.
    weight: [isize; 4],
    /// The images' strides, along b, c and y; the elements of a row are contiguous.
    image: [isize; 3],
    /// From image to image of the result.
    out: isize,
}

impl Convolution {
    /// Recognises a 3x3 stride-1 convolution, if profitable.
    pub(super) fn of(contraction: &Contraction) -> Option<Convolution> {
        let Contraction { batch, m, n, k, .. } = contraction;
        let ([row], [y, x], [c, i, j]) = (&m[..], &n[..], &k[..]) else { return None };
        let windows = [i.size, j.size] == [3, 3] && x.rhs == 1 && j.rhs == 1 && i.rhs == y.rhs;
        let along = |stride: fn(&Loop) -> isize| batch.first().map_or(0, stride);
        if !windows || batch.len() > 1 || along(|axis| axis.lhs) != 0 {
            return None;
        }
        let images = batch.first().map_or(1, |axis| axis.size);
        let of = Convolution {
            tiles: Tiles::new(images, [row.size, c.size], [y.size, x.size]),
            weight: [row.lhs, c.lhs, i.lhs, j.lhs],
            image: [along(|axis| axis.rhs), c.rhs, y.rhs],
            out: along(|axis| axis.out),
        };
        of.tiles.pay().then_some(of)
    }

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

    /// Numbers from a row of the transformed weight to the next: all 16 points of it, the coefficients of its
    /// bound, and a line, lest rows that are read together meet in one set of a cache.
    fn weight_row(&self) -> usize {
        (POINTS + 1) * self.tiles.channels + WIDEST
    }

    /// The transformed weight: a row of channels for each of the 16 points, and one of [`Coefficients`], one
    /// row of the result after the other. The first of [`ROWS_TOGETHER`] rows has the least coefficients of
    /// all of them. `None` if some row cannot have a bound, whatever the images.
    ///
    /// # Safety
    /// All elements of the weight can be read.
    pub(super) unsafe fn transformed<T: Float>(&self, weight: *const T) -> Option<Vec<T>> {
        let Tiles { rows, channels, .. } = self.tiles;
        let [row, channel, down, across] = self.weight;
        let mut out = vec![T::ZERO; rows * self.weight_row()];
        let (good, coefficients) = (AtomicBool::new(true), Coefficients::new::<T>(channels));
        let from = Shared(weight.cast_mut());
        let one = |k: usize, out: &mut [T]| {
            // G·g: the first, half the sums, half the differences, the last.
            let points = |g: [T; 3]| {
                let (ends, middle) = ((g[0] + g[2]) * T::HALF, g[1] * T::HALF);
                [g[0], ends + middle, ends - middle, g[2]]
            };
            for c in 0..channels {
                let first = k as isize * row + c as isize * channel;
                let window: [T; TAPS] = std::array::from_fn(|tap| {
                    let at = first + (tap / 3) as isize * down + (tap % 3) as isize * across;
                    // SAFETY: row, channel and tap are the weight's, all of which can be read by `# Safety`.
                    unsafe { from.at(at).read() }
                });
                match coefficients.of(&window) {
                    Some(value) => out[POINTS * channels + c] = value,
                    None => good.store(false, Ordering::Relaxed),
                }
                let columns = [0, 1, 2].map(|j| points([window[j], window[3 + j], window[6 + j]]));
                for i in 0..SIDE {
                    let line = points([columns[0][i], columns[1][i], columns[2][i]]);
                    for (j, value) in line.into_iter().enumerate() {
                        out[(i * SIDE + j) * channels + c] = value;
                    }
                }
            }
        };
        if threads::worth(rows * channels, WINOGRAD_WINDOW_GRAIN) == 1 {
            out.chunks_mut(self.weight_row()).enumerate().for_each(|(k, out)| one(k, out));
        } else {
            threads::share_chunks(&mut out, self.weight_row(), one);
        }
        let mut good = good.load(Ordering::Relaxed);
        for together in out.chunks_mut(ROWS_TOGETHER * self.weight_row()) {
            let (first, others) = together.split_at_mut(self.weight_row());
            let least = &mut first[POINTS * channels..][..channels];
            for other in others.chunks(self.weight_row()) {
                for (least, &value) in least.iter_mut().zip(&other[POINTS * channels..]) {
                    *least = if value < *least { value } else { *least };
                }
            }
            good &= least.iter().any(|value| *value > T::ZERO);
        }
        good.then_some(out)
    }

    /// Forms a block of results. Gives whether they are good; if not, they are to be formed by their
    /// definition.
    ///
    /// # Errors
    /// None that is met here: those of products that nothing finishes.
    ///
    /// # Safety
    /// All elements of the images can be read; the block's results can be written, and no other thread
    /// accesses them. `weight` is [`Convolution::transformed`].
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
        let size = ((POINTS + 1) * slot).max((channels + rows.div_ceil(ROWS_TOGETHER)) * of.results());
        let rest = (2 * SIDE * of.line()).max(Boxes::<T>::room(of));
        with_numbers::<T, _>(size + rest, |scratch| {
            let (points, lines) = scratch.split_at_mut(size);
            // SAFETY: `is_bounded` reads the images and the transformed weight, which `# Safety` covers.
            if !unsafe { self.is_bounded(isa, weight, image, block, points, lines)? } {
                return Ok(false);
            }
            // The tiles of a point occupy the memory of the next point's products.
            let forward = Forward {
                of,
                from: image,
                strides: self.image,
                pieces,
                lines,
                to: &mut points[slot..],
                slot,
            };
            // SAFETY: `images` is compiled for `isa`, and `# Safety` covers all channels of the images.
            unsafe { images(forward, channels) };
            let (n, parts) = (of.count(pieces).next_multiple_of(WIDEST), bound::parts(channels));
            for point in 0..POINTS {
                let (products, images) = points[point * slot..].split_at_mut(slot);
                for part in 0..parts {
                    let summed = threads::part(channels, WIDEST, parts, part);
                    let product = Product {
                        n,
                        k: summed.len(),
                        a: matrix(&weight[point * channels + summed.start..], self.weight_row(), 1),
                        b: matrix(&images[summed.start * padded..], padded, 1),
                        to: products.as_mut_ptr(),
                        to_row: padded,
                        update: Update::adds(part > 0),
                        prepared: None,
                    };
                    // SAFETY: both operands and the result are parts of the scratch and of the weight, apart,
                    // and of these sizes.
                    unsafe { product.run(isa, 0..rows, 0..n, None)? };
                }
            }
            let mut finite = true;
            for row in 0..rows {
                let products = &points[row * padded..];
                // SAFETY: `back` is compiled for `isa`, and the results of
                // these pieces can be written by `# Safety`.
                finite &= unsafe { back(Back { of, products, slot, to, out: self.out, row, pieces }) };
            }
            Ok(finite)
        })
    }

    /// Whether the error of all results of a block is [bounded](bound). An infinite image may pass, and then
    /// has results that are not finite.
    ///
    /// # Errors
    /// As [`Convolution::run`].
    ///
    /// # Safety
    /// As [`Convolution::run`]; nothing is written but the scratch.
    unsafe fn is_bounded<T: HasMicroKernels>(
        &self,
        isa: Isa,
        weight: &[T],
        image: *const T,
        block: usize,
        scratch: &mut [T],
        columns: &mut [T],
    ) -> Result<bool> {
        let of = &self.tiles;
        let Tiles { rows, channels, .. } = *of;
        let (boxes, sums) = scratch.split_at_mut(channels * of.results());
        let pieces = &of.pieces(block);
        isa.run(Boxes { of, from: image, strides: self.image, pieces, columns, to: boxes });
        let n = self.columns(block).map(|(_, columns)| columns.len()).sum();
        let rows = rows.div_ceil(ROWS_TOGETHER);
        let product = Product {
            n,
            k: channels,
            a: matrix(&weight[POINTS * channels..], ROWS_TOGETHER * self.weight_row(), 1),
            b: matrix(boxes, of.results(), 1),
            to: sums.as_mut_ptr(),
            to_row: of.results(),
            update: Update::Set,
            prepared: None,
        };
        // SAFETY: both operands and the result are parts of the scratch and of the weight, apart,
        // and of these sizes.
        unsafe { product.run(isa, 0..rows, 0..n, None)? };
        let mut rows = sums.chunks(of.results()).take(rows);
        Ok(rows.all(|sums| isa.run(ArePositive(&sums[..n]))))
    }
}

/// A matrix in memory.
fn matrix<T>(of: &[T], row: usize, column: usize) -> Strided<'_, T> {
    Strided { at: of.as_ptr(), row: Steps::Even(row as isize), column: Steps::Even(column as isize) }
}

/// Calls `f` with this many numbers of this thread's scratch memory.
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

    /// A convolution of images that follow one another, and numbers of its weight and its images,
    /// borders included.
    struct Case {
        of: Convolution,
        weight: usize,
        image: usize,
    }

    impl Case {
        fn new([images, rows, channels, height, width]: [usize; 5]) -> Case {
            let [down, across] = [height + 2, width + 2].map(|size| size as isize);
            let of = Convolution {
                tiles: Tiles::new(images, [rows, channels], [height, width]),
                weight: [(channels * TAPS) as isize, TAPS as isize, 3, 1],
                image: [channels as isize * down * across, down * across, across],
                out: (rows * height * width) as isize,
            };
            Case { of, weight: rows * channels * TAPS, image: images * channels * (height + 2) * (width + 2) }
        }

        /// The results, which are 0 in blocks that are not good, and which blocks are good. No block is good
        /// if the weight has no transform.
        fn run<T: HasMicroKernels>(&self, isa: Isa, weight: &[T], image: &[T]) -> (Vec<T>, Vec<bool>) {
            let Tiles { images, rows, height, width, .. } = self.of.tiles;
            assert_eq!([weight.len(), image.len()], [self.weight, self.image]);
            let mut out = vec![T::ZERO; images * rows * height * width];
            // SAFETY: every index is below the vectors' lengths.
            let transformed = unsafe { self.of.transformed(weight.as_ptr()) };
            let mut good = vec![false; self.of.blocks()];
            let Some(transformed) = transformed else { return (out, good) };
            for (block, good) in good.iter_mut().enumerate() {
                // SAFETY: every index is below the vectors' lengths, and `transformed` is of this weight.
                *good = unsafe {
                    self.of.run(isa, &transformed, image.as_ptr(), out.as_mut_ptr(), block).unwrap()
                };
                if !*good {
                    for (image, columns) in self.of.columns(block) {
                        for row in 0..rows {
                            let first = (image * rows + row) * height * width;
                            out[first + columns.start..first + columns.end].fill(T::ZERO);
                        }
                    }
                }
            }
            (out, good)
        }

        /// A result by its definition, and the sum of its terms' magnitudes.
        fn expected<T: Float>(&self, weight: &[T], image: &[T], at: usize) -> (f64, f64) {
            let Tiles { rows, channels, height, width, .. } = self.of.tiles;
            let (b, k) = (at / (rows * height * width), at / (height * width) % rows);
            let (y, x) = (at / width % height, at % width);
            let terms = (0..channels * TAPS).map(|i| -> f64 {
                let (c, tap) = (i / TAPS, i % TAPS);
                let row = (b * channels + c) * (height + 2) + y + tap / 3;
                let pixel: f64 = image[row * (width + 2) + x + tap % 3].into();
                weight[k * channels * TAPS + i].into() * pixel
            });
            terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
        }
    }

    /// The code for each instruction set gives results by their definition.
    fn check<T: HasMicroKernels>(number: impl Fn(f64) -> T + Copy, epsilon: f64) {
        for sizes in [
            [4, 33, 35, 5, 13],
            [2, 32, 32, 56, 30],
            [50, 34, 32, 2, 7],
            [8, 32, 33, 10, 8],
            [5, 33, 130, 6, 16],
        ] {
            let case = Case::new(sizes);
            let weight = numbers(case.weight, 1, number);
            let image = numbers(case.image, 2, number);
            for isa in Isa::available() {
                let (out, good) = case.run(isa, &weight, &image);
                assert!(good.iter().all(|good| *good), "{isa:?}: {sizes:?}: {good:?}");
                for (at, &found) in out.iter().enumerate().step_by(11) {
                    let (found, (expected, _)): (f64, _) = (found.into(), case.expected(&weight, &image, at));
                    assert!(
                        (found - expected).abs() < 100.0 * epsilon,
                        "{isa:?}: {at} is {found}, not {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn convolutions_are_their_definition() {
        check::<f32>(|x| x as f32, f32::EPSILON.into());
        check::<f64>(|x| x, f64::EPSILON);
    }

    /// Numbers of about a normal distribution.
    fn normal(n: usize, seed: u64) -> Vec<f32> {
        let uniform = numbers(8 * n, seed, |x| x as f32);
        uniform.chunks(8).map(|some| some.iter().sum()).collect()
    }

    /// Normal weights pass the bound, with images that are normal, or half zeros as after a relu, within a
    /// border of zeros or without one. With nine tenths of zeros most blocks do.
    #[test]
    fn ordinary_numbers_are_formed_by_fewer_products() {
        let isa = Isa::available()[0];
        for sizes in [[1, 64, 64, 56, 56], [8, 32, 32, 16, 16], [8, 64, 64, 8, 8], [1, 128, 128, 28, 28]] {
            let case = Case::new(sizes);
            let [.., height, width] = sizes;
            let weight = normal(case.weight, 1);
            for (seed, border) in [(2, false), (3, true)] {
                for kept in [1.0, 0.5, 0.1] {
                    let mut image = normal(case.image, seed);
                    if kept < 1.0 {
                        let by = numbers(case.image, 9, |x| x + 0.5 < 2.0 * kept);
                        image.iter_mut().zip(by).for_each(|(x, by)| *x = if by { x.max(0.0) } else { 0.0 });
                    }
                    for (i, x) in image.iter_mut().enumerate() {
                        let (row, column) = (i / (width + 2) % (height + 2), i % (width + 2));
                        let within = (1..=height).contains(&row) && (1..=width).contains(&column);
                        *x = if border && !within { 0.0 } else { *x };
                    }
                    let (_, good) = case.run(isa, &weight, &image);
                    let [most, count] = [good.len(), good.iter().filter(|good| **good).count()];
                    // At the corners of few channels the magnitudes of some terms may be too small by chance.
                    let least = if kept < 0.5 { most * 3 / 4 } else { most };
                    assert!(count >= least, "{sizes:?}, border {border}, {kept} of all: {count} of {most}");
                }
            }
        }
    }

    /// Products are the same in all channels, so that all roundings go the same way, and one tap and one
    /// element are greater than the others. No result of a good block is wrong by more than the bound.
    #[test]
    fn roundings_that_go_the_same_way_stay_within_the_bound() {
        let isa = Isa::available()[0];
        let case = Case::new([1, 32, 64, 16, 16]);
        let mut worst = 0f64;
        let (mut any, mut all) = (false, true);
        for (nth, least) in
            (0..20).flat_map(|nth| [0.3, 0.1, 0.03, 0.02, 0.01, 1e-3].map(|least| (nth, least)))
        {
            let [mut taps, mut elements] = [1, 2].map(|of| numbers(32 * TAPS, 97 * nth + of, |x| x as f32));
            taps.iter_mut().enumerate().for_each(|(i, x)| {
                let great = i % TAPS == nth as usize % TAPS;
                *x = if great { 1.5 + *x } else { least * (1.0 + 0.1 * *x) };
            });
            elements.truncate(25);
            elements
                .iter_mut()
                .enumerate()
                .for_each(|(i, x)| *x = if i == 12 { 1.5 + *x } else { *x * 1e-6 });
            let weight: Vec<f32> =
                (0..case.weight).map(|i| taps[i / (64 * TAPS) * TAPS + i % TAPS]).collect();
            let image: Vec<f32> =
                (0..case.image).map(|i| elements[i / 18 % 18 % 5 * 5 + i % 18 % 5]).collect();
            let (out, good) = case.run(isa, &weight, &image);
            for (block, good) in good.iter().enumerate() {
                (any, all) = (any || *good, all && *good);
                if !good {
                    continue;
                }
                for (_, columns) in case.of.columns(block) {
                    for at in (0..32)
                        .flat_map(|row| columns.clone().map(move |column| row * 256 + column))
                        .step_by(5)
                    {
                        let (expected, size) = case.expected(&weight, &image, at);
                        worst = worst.max((f64::from(out[at]) - expected).abs() / size);
                    }
                }
            }
        }
        assert!(any && !all);
        assert!(worst < 1e-3, "{worst}");
    }

    /// Weights of one tap, weights with a row of zeros, images of zeros, and numbers that underflow or are
    /// not finite.
    #[test]
    fn what_has_no_bound_is_not_formed_so() {
        let isa = Isa::available()[0];
        let case = Case::new([4, 32, 32, 16, 16]);
        let (weight, image) = (normal(case.weight, 1), normal(case.image, 2));
        let none = |weight: &[f32], image: &[f32]| !case.run(isa, weight, image).1.contains(&true);
        assert!(!none(&weight, &image));
        for tap in 0..TAPS {
            let one = |i: usize, x: f32| if i % TAPS == tap { x } else { 0.0 };
            assert!(none(&weight.iter().enumerate().map(|(i, &x)| one(i, x)).collect::<Vec<_>>(), &image));
        }
        for row in [0, 31] {
            let kept = |i: usize, x: f32| if i / (32 * TAPS) == row { 0.0 } else { x };
            assert!(none(&weight.iter().enumerate().map(|(i, &x)| kept(i, x)).collect::<Vec<_>>(), &image));
        }
        for value in [0.0, f32::NAN, f32::INFINITY] {
            assert!(none(&weight, &vec![value; case.image]), "{value}");
        }
        for scale in [1e-38, 1e-42] {
            assert!(none(&weight.iter().map(|x| x * scale).collect::<Vec<_>>(), &image), "{scale}");
            assert!(none(&weight, &image.iter().map(|x| x * scale).collect::<Vec<_>>()), "{scale}");
        }
        for value in [f32::NAN, f32::INFINITY, f32::MAX] {
            let mut weight = weight.clone();
            weight[7 * 32 * TAPS + 40] = value;
            assert!(none(&weight, &image), "{value}");
        }
    }
}
