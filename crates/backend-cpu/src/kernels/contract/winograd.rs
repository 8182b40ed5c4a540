//! Convolutions of 3 x 3 windows at stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3): 16 multiplications for four results, where their
//! definition takes 36. Tiles of 4 x 4 elements and the weight are transformed by additions, multiplied as 16 products of matrices over
//! the channels, and transformed back.
//!
//! Lavin and Gray: Fast algorithms for convolutional neural networks (2016).
//!
//! A transformed tile mixes elements that no one result depends on together, and a large one leaves its rounding in results that do not see
//! it. So tiles of which one element is much larger than the others are formed by their definition, and so are those with a result that
//! is not finite: an infinity stays where it belongs, and nothing overflows that need not.
#![allow(unsafe_code)]

use std::{cell::RefCell, ops::Range};

use tensor_core::{Result, contraction::Contraction};

use super::{
    gemm::{Product, Steps, Strided, WIDEST},
    micro_kernel::{HasMicroKernels, Update, mul_add},
};
use crate::simd::{
    isa::{Isa, Job},
    vector::{Float, Vector},
};

/// Elements of a transformed tile, and along each of its axes.
const POINTS: usize = 16;
const SIDE: usize = 4;
/// Numbers of transformed tiles and products of a block that stay in the second-level cache.
const BLOCK: usize = 1 << 17;
/// Tiles of a block from which micro-kernels are full.
const FULL: usize = 48;
/// Channels on either side, and tiles in a row, from which transforms cost less than multiplications that are saved.
const CHANNELS: usize = 16;
const TILES: usize = 6;

/// How many times the mean magnitude an element may have.
const EVEN: f64 = 1000.0;

/// The greatest magnitude of numbers, and the sum of all, in parts.
pub(super) struct Spread<T> {
    greatest: [T; LANES],
    sum: [T; LANES],
    count: usize,
}

const LANES: usize = 16;

impl<T: Float> Spread<T> {
    fn new() -> Spread<T> {
        Spread { greatest: [T::ZERO; LANES], sum: [T::ZERO; LANES], count: 0 }
    }

    #[inline(always)]
    fn note(&mut self, numbers: &[T]) {
        let (mut greatest, mut sum) = (self.greatest, self.sum);
        let (chunks, rest) = numbers.as_chunks::<LANES>();
        for chunk in chunks {
            for l in 0..LANES {
                let x = chunk[l].abs();
                greatest[l] = if x > greatest[l] { x } else { greatest[l] };
                sum[l] = sum[l] + x;
            }
        }
        for (l, &x) in rest.iter().enumerate() {
            let x = x.abs();
            greatest[l] = if x > greatest[l] { x } else { greatest[l] };
            sum[l] = sum[l] + x;
        }
        (self.greatest, self.sum) = (greatest, sum);
        self.count += numbers.len();
    }

    /// Whether all are finite, and none is much larger than the mean.
    fn is_even(&self) -> bool {
        let sum: f64 = self.sum.iter().map(|&x| x.into()).sum();
        let bound = EVEN * sum / self.count.max(1) as f64;
        bound.is_finite() && self.greatest.iter().all(|&x| x.into() <= bound)
    }
}

/// The sizes and strides of such a convolution: `out[k][y][x] = Σ weight[k][c][i][j] · image[c][y + i][x + j]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Winograd {
    rows: usize,
    channels: usize,
    height: usize,
    width: usize,
    /// The weight's strides, along k, c, i and j.
    weight: [isize; 4],
    /// The image's strides, along c and y; the elements of a row lie side by side.
    image: [isize; 2],
}

impl Winograd {
    /// Of a contraction that is one, over images of a batch that share the weight, where it pays.
    pub(super) fn of(contraction: &Contraction) -> Option<Winograd> {
        let Contraction { batch, m, n, k, .. } = contraction;
        let ([row], [y, x], [c, i, j]) = (&m[..], &n[..], &k[..]) else { return None };
        let windows = [i.size, j.size] == [3, 3] && x.rhs == 1 && j.rhs == 1 && i.rhs == y.rhs;
        let shared = batch.iter().all(|axis| axis.lhs == 0);
        let pays = row.size >= CHANNELS && c.size >= CHANNELS && x.size.div_ceil(2) >= TILES && y.size > 1;
        (windows && shared && pays).then_some(Winograd {
            rows: row.size,
            channels: c.size,
            height: y.size,
            width: x.size,
            weight: [row.lhs, c.lhs, i.lhs, j.lhs],
            image: [c.rhs, y.rhs],
        })
    }

    /// Tiles along a row, and rows of tiles.
    fn across(&self) -> usize {
        self.width.div_ceil(2)
    }

    /// The same in whole registers.
    fn room(&self) -> usize {
        self.across().next_multiple_of(WIDEST)
    }

    fn down(&self) -> usize {
        self.height.div_ceil(2)
    }

    /// Rows of tiles of a block: they depend on the sizes alone, and so do the results.
    fn block(&self) -> usize {
        let tiles = (BLOCK / (POINTS * (self.channels + self.rows))).max(FULL);
        (tiles / self.across()).clamp(1, self.down())
    }

    /// The blocks of an image.
    pub(super) fn blocks(&self) -> usize {
        self.down().div_ceil(self.block())
    }

    /// The columns of the product, rows of the image after the other, that a block forms.
    pub(super) fn columns(&self, block: usize) -> Range<usize> {
        let row = |tile: usize| (2 * tile).min(self.height) * self.width;
        let first = block * self.block();
        row(first)..row((first + self.block()).min(self.down()))
    }

    /// The transformed weight: a matrix of rows and channels for each of the 16 points. `None` of one that is too uneven.
    ///
    /// # Safety
    /// All elements of the weight can be read.
    pub(super) unsafe fn transformed<T: Float>(&self, weight: *const T) -> Option<Vec<T>> {
        let mut spread = Spread::new();
        let (size, half) = (self.rows * self.channels, T::HALF);
        let mut out = vec![T::ZERO; POINTS * size];
        // G·g: the first, half the sums, half the differences, the last.
        let points = |g: [T; 3]| {
            let (ends, middle) = ((g[0] + g[2]) * half, g[1] * half);
            [g[0], ends + middle, ends - middle, g[2]]
        };
        for at in 0..size {
            let (k, c) = (at / self.channels, at % self.channels);
            let [row, channel, down, across] = self.weight;
            // SAFETY: the caller's promise.
            let element = |i: usize, j: usize| unsafe {
                let first = k as isize * row + c as isize * channel;
                weight.wrapping_offset(first + i as isize * down + j as isize * across).read()
            };
            let columns = [0, 1, 2].map(|j| {
                let own = [element(0, j), element(1, j), element(2, j)];
                spread.note(&own);
                points(own)
            });
            for i in 0..SIDE {
                let line = points([columns[0][i], columns[1][i], columns[2][i]]);
                for (j, value) in line.into_iter().enumerate() {
                    out[(i * SIDE + j) * size + at] = value;
                }
            }
        }
        spread.is_even().then_some(out)
    }

    /// Forms a block of an image's results. Gives whether they are good; if not, they are to be formed by their definition.
    ///
    /// # Errors
    /// None that is met here: those of products that nothing finishes.
    ///
    /// # Safety
    /// All elements of the image can be read, and the block's results written; nobody else does. `weight` is [`Winograd::transformed`].
    pub(super) unsafe fn run<T: HasMicroKernels>(
        &self,
        isa: Isa,
        weight: &[T],
        image: *const T,
        to: *mut T,
        block: usize,
    ) -> Result<bool> {
        let Winograd { rows, channels, .. } = *self;
        let tiles = block * self.block()..((block + 1) * self.block()).min(self.down());
        let count = tiles.len() * self.across();
        let lines = (2 * tiles.len() + 2) * SIDE * self.room();
        let Transforms { forward, back } = T::micro_kernels(isa).winograd;
        with_scratch::<T, _>(POINTS * (channels + rows) * count + lines, |scratch| {
            let (images, rest) = scratch.split_at_mut(POINTS * channels * count);
            let (products, lines) = rest.split_at_mut(POINTS * rows * count);
            let mut spread = Spread::new();
            for channel in 0..channels {
                let (tiles, spread, to) = (tiles.clone(), &mut spread, &mut *images);
                // SAFETY: the registers are the processor's, and the rest is the caller's promise.
                unsafe { forward(Forward { of: self, image, channel, tiles, spread, lines, to, count }) };
            }
            if !spread.is_even() {
                return Ok(false);
            }
            for point in 0..POINTS {
                let of = &weight[point * rows * channels..];
                let product = Product {
                    n: count,
                    k: channels,
                    a: Strided {
                        at: of.as_ptr(),
                        row: Steps::Even(channels as isize),
                        column: Steps::Even(1),
                    },
                    b: Strided {
                        at: images[point * channels * count..].as_ptr(),
                        row: Steps::Even(count as isize),
                        column: Steps::Even(1),
                    },
                    to: products[point * rows * count..].as_mut_ptr(),
                    to_row: count,
                    update: Update::Set,
                    prepared: None,
                };
                // SAFETY: both operands and the result are parts of the scratch and of the weight, apart, and of these sizes.
                unsafe { product.run(isa, 0..rows, 0..count, None)? };
            }
            let mut finite = true;
            for row in 0..rows {
                let products = &products[row * count..];
                // SAFETY: as above.
                finite &= unsafe { back(Back { of: self, products, to, row, tiles: tiles.clone(), count }) };
            }
            Ok(finite)
        })
    }
}

/// Room for so many numbers, on this thread, for as long as `f` takes.
fn with_scratch<T: Float, R>(numbers: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    thread_local! {
        static SCRATCH: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|words| {
        let needed = (numbers * size_of::<T>()).div_ceil(size_of::<u64>());
        if words.len() < needed {
            words.resize(needed, 0);
        }
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        // SAFETY: there are as many bytes, initialised, and every bit pattern is a number of these types.
        f(unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), numbers) })
    })
}

/// Transforms rows of tiles of one channel: Bᵀ·d·B of each.
pub(super) struct Forward<'a, T> {
    of: &'a Winograd,
    image: *const T,
    channel: usize,
    tiles: Range<usize>,
    spread: &'a mut Spread<T>,
    /// Room for the rows that the tiles have, each transformed along itself: four numbers for each tile.
    lines: &'a mut [T],
    /// 16 matrices of channels and tiles.
    to: &'a mut [T],
    count: usize,
}

struct ForwardIn<'a, V: Vector>(Forward<'a, V::Number>);

impl<V: Vector<Number: Float>> Job for ForwardIn<'_, V> {
    type Output = ();
    // Loops, not closures, which are compiled by themselves.
    #[inline(always)]
    fn run(self) {
        let Forward { of, image, channel, tiles, spread, lines, to, count } = self.0;
        let (across, room) = (of.across(), of.room());
        let first = channel as isize * of.image[0];
        for r in 0..2 * tiles.len() + 2 {
            let line = &mut lines[r * SIDE * room..][..SIDE * room];
            let y = 2 * tiles.start + r;
            // Under the last row there is none: what is formed of it is no result.
            if y >= of.height + 2 {
                line.fill(V::Number::ZERO);
                continue;
            }
            let from = image.wrapping_offset(first + y as isize * of.image[1]);
            let (line, end) = (line.as_mut_ptr(), of.width + 2);
            // SAFETY: the caller of `Winograd::run` gives the image's elements, of which a row has two more than results.
            spread.note(unsafe { std::slice::from_raw_parts(from, end) });
            let mut t = 0;
            while t < across {
                // Elements from the first tile's on: those of a register of tiles, and two more.
                let left = end - 2 * t;
                let mut last = [V::Number::ZERO; 2 * WIDEST + 2];
                // SAFETY: as above; what is past the row's end is 0. The line has room for whole registers.
                unsafe {
                    let from = match left < 2 * V::WIDTH + 2 {
                        true => {
                            last.as_mut_ptr().copy_from_nonoverlapping(from.add(2 * t), left);
                            last.as_ptr()
                        }
                        false => from.add(2 * t),
                    };
                    let [d0, d1] = V::load(from).unzip(V::load(from.add(V::WIDTH)));
                    let [d2, d3] = V::load(from.add(2)).unzip(V::load(from.add(2 + V::WIDTH)));
                    let line = line.add(t);
                    (d0 - d2).store_first(line, V::WIDTH);
                    (d1 + d2).store_first(line.add(room), V::WIDTH);
                    (d2 - d1).store_first(line.add(2 * room), V::WIDTH);
                    (d1 - d3).store_first(line.add(3 * room), V::WIDTH);
                }
                t += V::WIDTH;
            }
        }
        let size = of.channels * count;
        for tile in 0..tiles.len() {
            for j in 0..SIDE {
                let line = lines[(2 * tile * SIDE + j) * room..][..3 * SIDE * room + room].as_ptr();
                let place = j * size + channel * count + tile * across;
                let to = to[place..][..3 * SIDE * size + across].as_mut_ptr();
                let mut t = 0;
                while t < across {
                    let n = V::WIDTH.min(across - t);
                    // SAFETY: four rows lie so far apart in the lines, and have room for whole registers; each of the 16 matrices has these places.
                    unsafe {
                        let (line, to) = (line.add(t), to.add(t));
                        let (d0, d1) = (V::load(line), V::load(line.add(SIDE * room)));
                        let (d2, d3) =
                            (V::load(line.add(2 * SIDE * room)), V::load(line.add(3 * SIDE * room)));
                        (d0 - d2).store_first(to, n);
                        (d1 + d2).store_first(to.add(SIDE * size), n);
                        (d2 - d1).store_first(to.add(2 * SIDE * size), n);
                        (d1 - d3).store_first(to.add(3 * SIDE * size), n);
                    }
                    t += V::WIDTH;
                }
            }
        }
    }
}

/// Transforms the products of one row of the weight back: Aᵀ·m·A of each tile. Gives whether all results are finite.
pub(super) struct Back<'a, T> {
    of: &'a Winograd,
    /// The row's products at the first point; those at the next one are as many further as there are rows and tiles.
    products: &'a [T],
    to: *mut T,
    row: usize,
    tiles: Range<usize>,
    count: usize,
}

struct BackIn<'a, V: Vector>(Back<'a, V::Number>);

impl<V: Vector<Number: Float>> Job for BackIn<'_, V> {
    type Output = bool;
    // As above.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) -> bool {
        let Back { of, products, to, row, tiles, count } = self.0;
        let (across, size, width) = (of.across(), of.rows * count, of.width);
        let zero = V::splat(V::Number::ZERO);
        // Sums of all results times 0, which is no number if one of them is not finite.
        let mut zeros = [zero; 8];
        let mut tile = tiles.start;
        while tile < tiles.end {
            let place = (tile - tiles.start) * across;
            let points = products[place..][..(POINTS - 1) * size + across].as_ptr();
            let two = 2 * tile + 1 < of.height;
            // SAFETY: the caller of `Winograd::run` gives the results, of which this is one row, and the next if there is one.
            let upper = unsafe { to.add((row * of.height + 2 * tile) * width) };
            let mut t = 0;
            while t < across {
                let n = V::WIDTH.min(across - t);
                let (mut s, mut d) = ([zero; SIDE], [zero; SIDE]);
                for j in 0..SIDE {
                    // SAFETY: the products at all points were sliced to this reach.
                    unsafe {
                        let at = points.add(j * size + t);
                        let m0 = V::load_first(at, n);
                        let m1 = V::load_first(at.add(SIDE * size), n);
                        let m2 = V::load_first(at.add(2 * SIDE * size), n);
                        let m3 = V::load_first(at.add(3 * SIDE * size), n);
                        s[j] = m0 + m1 + m2;
                        d[j] = m1 - m2 - m3;
                    }
                }
                let results =
                    [s[0] + s[1] + s[2], s[1] - s[2] - s[3], d[0] + d[1] + d[2], d[1] - d[2] - d[3]];
                let lines = if two { 2 } else { 1 };
                for line in 0..lines {
                    let (left, right) = (results[2 * line], results[2 * line + 1]);
                    let [first, second] = left.zip(right);
                    // Columns of these tiles: the last may have one.
                    let columns = (2 * n).min(width - 2 * t);
                    // SAFETY: as above, of so many columns.
                    unsafe {
                        let to = upper.add(line * width + 2 * t);
                        first.store_first(to, columns.min(V::WIDTH));
                        if columns > V::WIDTH {
                            second.store_first(to.add(V::WIDTH), columns - V::WIDTH);
                        }
                    }
                    zeros[2 * line] = mul_add(left, zero, zeros[2 * line]);
                    zeros[2 * line + 1] = mul_add(right, zero, zeros[2 * line + 1]);
                }
                t += V::WIDTH;
            }
            tile += 1;
        }
        V::totals(zeros).iter().all(|sum| *sum == V::Number::ZERO)
    }
}

/// The transforms of a kind of register.
#[derive(Clone, Copy)]
pub(super) struct Transforms<T> {
    forward: unsafe fn(Forward<'_, T>),
    back: unsafe fn(Back<'_, T>) -> bool,
}

impl<T: Float> Transforms<T> {
    pub(super) const fn of<V: Vector<Number = T>>() -> Transforms<T> {
        Transforms { forward: forward::<V>, back: back::<V> }
    }
}

/// # Safety
/// The processor has the register's instruction set; the rest is [`Winograd::run`]'s.
unsafe fn forward<V: Vector<Number: Float>>(of: Forward<'_, V::Number>) {
    // SAFETY: the caller's promise.
    unsafe { V::run(ForwardIn::<V>(of)) }
}

/// # Safety
/// As [`forward`].
unsafe fn back<V: Vector<Number: Float>>(of: Back<'_, V::Number>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { V::run(BackIn::<V>(of)) }
}
