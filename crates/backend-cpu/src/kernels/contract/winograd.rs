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

    /// Notes numbers, some of them twice.
    #[inline(always)]
    fn note(&mut self, numbers: &[T]) {
        let (mut greatest, mut sum) = (self.greatest, self.sum);
        let (chunks, rest) = numbers.as_chunks::<LANES>();
        let last = numbers.last_chunk::<LANES>().filter(|_| !rest.is_empty());
        for chunk in chunks.iter().chain(last) {
            for l in 0..LANES {
                let x = chunk[l].abs();
                greatest[l] = if x > greatest[l] { x } else { greatest[l] };
                sum[l] = sum[l] + x;
            }
            self.count += LANES;
        }
        if chunks.is_empty() {
            for (l, x) in rest.iter().map(|x| x.abs()).enumerate() {
                greatest[l] = if x > greatest[l] { x } else { greatest[l] };
                sum[l] = sum[l] + x;
            }
            self.count += rest.len();
        }
        (self.greatest, self.sum) = (greatest, sum);
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

    fn down(&self) -> usize {
        self.height.div_ceil(2)
    }

    /// Rows of tiles of a block: as many as stay at hand, by which registers are full. They depend on the sizes alone, and so do the results.
    fn block(&self) -> usize {
        let tiles = (BLOCK / ((POINTS + 1) * self.channels.max(self.rows))).max(FULL);
        let most = (tiles / self.across()).clamp(1, self.down());
        let registers = |rows: usize| (rows * self.across()).div_ceil(WIDEST);
        (1..=most).min_by(|&a, &b| (registers(a) * b).cmp(&(registers(b) * a)).then(b.cmp(&a))).unwrap_or(1)
    }

    /// Columns of a block's matrices: so many tiles, in whole registers.
    fn padded(&self) -> usize {
        (self.block() * self.across()).next_multiple_of(WIDEST)
    }

    /// Room for every second row that the tiles of a block have, transformed along itself: a number for each tile, and registers past the last.
    fn line(&self) -> usize {
        (self.block() + 1) * self.across() + 2 * WIDEST
    }

    /// Numbers from a point's matrix to the next one's. Those of all points are visited together, and should not meet in one set of a cache.
    fn slot(&self) -> usize {
        self.channels.max(self.rows) * self.padded() + 3 * WIDEST
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
        let lines = 2 * SIDE * self.line();
        let (slot, padded) = (self.slot(), self.padded());
        let Transforms { forward, back } = T::micro_kernels(isa).winograd;
        with_scratch::<T, _>((POINTS + 1) * slot + lines, |scratch| {
            let (points, lines) = scratch.split_at_mut((POINTS + 1) * slot);
            let mut spread = Spread::new();
            for channel in 0..channels {
                // The images of a point lie where the products of the next one will.
                let (tiles, spread, to) = (tiles.clone(), &mut spread, &mut points[slot..]);
                // SAFETY: the registers are the processor's, and the rest is the caller's promise.
                unsafe { forward(Forward { of: self, image, channel, tiles, spread, lines, to }) };
            }
            if !spread.is_even() {
                return Ok(false);
            }
            let n = (tiles.len() * self.across()).next_multiple_of(WIDEST);
            for (point, weight) in weight.chunks_exact(rows * channels).enumerate() {
                let (products, images) = points[point * slot..].split_at_mut(slot);
                let product = Product {
                    n,
                    k: channels,
                    a: Strided {
                        at: weight.as_ptr(),
                        row: Steps::Even(channels as isize),
                        column: Steps::Even(1),
                    },
                    b: Strided { at: images.as_ptr(), row: Steps::Even(padded as isize), column: Steps::Even(1) },
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
                finite &= unsafe { back(Back { of: self, products, to, row, tiles: tiles.clone() }) };
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
    /// [`Winograd::line`] of the even rows, four times, and of the odd ones.
    lines: &'a mut [T],
    /// 16 matrices of channels and tiles.
    to: &'a mut [T],
}

/// A register of the elements from `at` on, of which there are `left` after `from`, and zeros.
///
/// # Safety
/// So many can be read.
#[inline(always)]
unsafe fn some<V: Vector>(from: *const V::Number, left: usize, at: usize) -> V {
    match left.saturating_sub(at).min(V::WIDTH) {
        0 => V::splat(V::Number::ZERO),
        // SAFETY: the caller's promise.
        n => unsafe { V::load_first(from.add(at), n) },
    }
}

struct ForwardIn<'a, V: Vector>(Forward<'a, V::Number>);

impl<V: Vector<Number: Float>> Job for ForwardIn<'_, V> {
    type Output = ();
    // Loops, not closures, which are compiled by themselves.
    #[inline(always)]
    fn run(self) {
        let Forward { of, image, channel, tiles, spread, lines, to } = self.0;
        let (across, room, size) = (of.across(), of.line(), of.slot());
        let first = channel as isize * of.image[0];
        for r in 0..2 * tiles.len() + 2 {
            let place = r % 2 * SIDE * room + r / 2 * across;
            let line = lines[place..][..(SIDE - 1) * room + across + WIDEST].as_mut_ptr();
            let y = 2 * tiles.start + r;
            // Under the last row there is none: what is formed of it is no result.
            let (from, end) = match y < of.height + 2 {
                true => (image.wrapping_offset(first + y as isize * of.image[1]), of.width + 2),
                false => (image, 0),
            };
            // SAFETY: the caller of `Winograd::run` gives the image's elements, of which a row has two more than results.
            spread.note(unsafe { std::slice::from_raw_parts(from, end) });
            let mut t = 0;
            while t < across {
                // Elements from the first tile's on: those of a register of tiles, and two more. What is past the row's end is 0, and what
                // is written past the last tile is written again with the next row.
                let left = end.saturating_sub(2 * t);
                // SAFETY: as above; the line was sliced to this reach.
                unsafe {
                    let from = from.wrapping_add(2 * t);
                    let [d0, d1] = some::<V>(from, left, 0).unzip(some(from, left, V::WIDTH));
                    let [d2, d3] = some::<V>(from, left, 2).unzip(some(from, left, 2 + V::WIDTH));
                    let line = line.add(t);
                    (d0 - d2).store_first(line, V::WIDTH);
                    (d1 + d2).store_first(line.add(room), V::WIDTH);
                    (d2 - d1).store_first(line.add(2 * room), V::WIDTH);
                    (d1 - d3).store_first(line.add(3 * room), V::WIDTH);
                }
                t += V::WIDTH;
            }
        }
        // A tile's third and fourth row are the first and second of the tile below it.
        let n = (tiles.len() * across).next_multiple_of(WIDEST);
        for j in 0..SIDE {
            let even = lines[j * room..][..across + n].as_ptr();
            let odd = lines[(SIDE + j) * room..][..across + n].as_ptr();
            let to = to[j * size + channel * of.padded()..][..3 * SIDE * size + n].as_mut_ptr();
            let mut t = 0;
            while t < n {
                // SAFETY: all were sliced to this reach.
                unsafe {
                    let (d0, d1) = (V::load(even.add(t)), V::load(odd.add(t)));
                    let (d2, d3) = (V::load(even.add(across + t)), V::load(odd.add(across + t)));
                    let to = to.add(t);
                    (d0 - d2).store_first(to, V::WIDTH);
                    (d1 + d2).store_first(to.add(SIDE * size), V::WIDTH);
                    (d2 - d1).store_first(to.add(2 * SIDE * size), V::WIDTH);
                    (d1 - d3).store_first(to.add(3 * SIDE * size), V::WIDTH);
                }
                t += V::WIDTH;
            }
        }
    }
}

/// Transforms the products of one row of the weight back: Aᵀ·m·A of each tile. Gives whether all results are finite.
pub(super) struct Back<'a, T> {
    of: &'a Winograd,
    /// The row's products at the first point; those at the next one are a slot further.
    products: &'a [T],
    to: *mut T,
    row: usize,
    tiles: Range<usize>,
}

struct BackIn<'a, V: Vector>(Back<'a, V::Number>);

impl<V: Vector<Number: Float>> Job for BackIn<'_, V> {
    type Output = bool;
    // As above.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) -> bool {
        let Back { of, products, to, row, tiles } = self.0;
        let (across, size, width) = (of.across(), of.slot(), of.width);
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
