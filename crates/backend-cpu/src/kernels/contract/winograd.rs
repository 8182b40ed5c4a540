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
    gemm::{Product, Steps, Strided},
    micro_kernel::{HasMicroKernels, Update},
};
use crate::simd::{
    isa::{Isa, Job},
    vector::Float,
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
struct Spread<T> {
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
                let x = chunk[l].magnitude();
                greatest[l] = if x > greatest[l] { x } else { greatest[l] };
                sum[l] = sum[l] + x;
            }
        }
        for (l, &x) in rest.iter().enumerate() {
            let x = x.magnitude();
            greatest[l] = if x > greatest[l] { x } else { greatest[l] };
            sum[l] = sum[l] + x;
        }
        (self.greatest, self.sum) = (greatest, sum);
        self.count += numbers.len();
    }

    /// Whether all are finite, and none is much larger than the mean.
    fn is_even(&self) -> bool {
        let sum: f64 = self.sum.iter().map(|x| x.wide()).sum();
        let bound = EVEN * sum / self.count.max(1) as f64;
        bound.is_finite() && self.greatest.iter().all(|x| x.wide() <= bound)
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
        let lines = (2 * tiles.len() + 2) * SIDE * self.across();
        with_scratch::<T, _>(POINTS * (channels + rows) * count + lines, |scratch| {
            let (images, rest) = scratch.split_at_mut(POINTS * channels * count);
            let (products, lines) = rest.split_at_mut(POINTS * rows * count);
            let mut spread = Spread::new();
            for channel in 0..channels {
                let (tiles, spread, to) = (tiles.clone(), &mut spread, &mut *images);
                isa.run(Forward { of: self, image, channel, tiles, spread, lines, to, count });
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
                finite &= isa.run(Back { of: self, products, to, row, tiles: tiles.clone(), count });
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
struct Forward<'a, T> {
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

impl<T: Float> Job for Forward<'_, T> {
    type Output = ();
    // Loops by numbers, not closures, which are compiled by themselves.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) {
        let Forward { of, image, channel, tiles, spread, lines, to, count } = self;
        let across = of.across();
        let first = channel as isize * of.image[0];
        for r in 0..2 * tiles.len() + 2 {
            let line = &mut lines[r * SIDE * across..][..SIDE * across];
            let y = 2 * tiles.start + r;
            // Under the last row there is none: what is formed of it is no result.
            if y >= of.height + 2 {
                line.fill(T::ZERO);
                continue;
            }
            let from = image.wrapping_offset(first + y as isize * of.image[1]);
            // SAFETY: the caller of `Winograd::run` gives the image's elements, of which a row has two more than results.
            spread.note(unsafe { std::slice::from_raw_parts(from, of.width + 2) });
            let (whole, line) = (of.width / 2, line.as_mut_ptr());
            for t in 0..whole {
                // SAFETY: as above; the line has four numbers for each tile.
                unsafe {
                    let d = from.add(2 * t);
                    let (d0, d1, d2, d3) = (d.read(), d.add(1).read(), d.add(2).read(), d.add(3).read());
                    line.add(t).write(d0 - d2);
                    line.add(across + t).write(d1 + d2);
                    line.add(2 * across + t).write(d2 - d1);
                    line.add(3 * across + t).write(d1 - d3);
                }
            }
            if whole < across {
                // SAFETY: as above. Half of the last tile is outside the image, and forms no result.
                unsafe {
                    let d = from.add(2 * whole);
                    let (d0, d1, d2) = (d.read(), d.add(1).read(), d.add(2).read());
                    line.add(whole).write(d0 - d2);
                    line.add(across + whole).write(d1 + d2);
                    line.add(2 * across + whole).write(d2 - d1);
                    line.add(3 * across + whole).write(d1);
                }
            }
        }
        let size = of.channels * count;
        for tile in 0..tiles.len() {
            for j in 0..SIDE {
                let line = |r: usize| lines[((2 * tile + r) * SIDE + j) * across..][..across].as_ptr();
                let (l0, l1, l2, l3) = (line(0), line(1), line(2), line(3));
                let place = j * size + channel * count + tile * across;
                let out = to[place..][..(POINTS - SIDE) * size + across].as_mut_ptr();
                for t in 0..across {
                    // SAFETY: the lines have so many numbers, and each of the 16 matrices has these places.
                    unsafe {
                        let (d0, d1, d2, d3) =
                            (l0.add(t).read(), l1.add(t).read(), l2.add(t).read(), l3.add(t).read());
                        out.add(t).write(d0 - d2);
                        out.add(SIDE * size + t).write(d1 + d2);
                        out.add(2 * SIDE * size + t).write(d2 - d1);
                        out.add(3 * SIDE * size + t).write(d1 - d3);
                    }
                }
            }
        }
    }
}

/// Transforms the products of one row of the weight back: Aᵀ·m·A of each tile. Gives whether all results are finite.
struct Back<'a, T> {
    of: &'a Winograd,
    /// The row's products at the first point; those at the next one are as many further as there are rows and tiles.
    products: &'a [T],
    to: *mut T,
    row: usize,
    tiles: Range<usize>,
    count: usize,
}

impl<T: Float> Job for Back<'_, T> {
    type Output = bool;
    // As above.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) -> bool {
        let Back { of, products, to, row, tiles, count } = self;
        let (across, size, width) = (of.across(), of.rows * count, of.width);
        // Whether some result is not finite: only then is no zero left of it.
        let mut bad = false;
        for tile in tiles.clone() {
            let place = (tile - tiles.start) * across;
            let points = products[place..][..(POINTS - 1) * size + across].as_ptr();
            let begin = row * of.height * width + 2 * tile * width;
            let lines = if 2 * tile + 1 < of.height { 2 } else { 1 };
            // SAFETY: the caller of `Winograd::run` gives the results, of which these are one row or two.
            let out = unsafe { std::slice::from_raw_parts_mut(to.add(begin), lines * width) };
            let (upper, lower) = out.split_at_mut(width);
            // The four results of a tile.
            macro_rules! results {
                ($t:expr) => {{
                    let (mut s, mut d) = ([T::ZERO; SIDE], [T::ZERO; SIDE]);
                    for j in 0..SIDE {
                        // SAFETY: the products at all points were sliced to this reach.
                        let m = |i: usize| unsafe { points.add((i * SIDE + j) * size + $t).read() };
                        let (m0, m1, m2, m3) = (m(0), m(1), m(2), m(3));
                        s[j] = m0 + m1 + m2;
                        d[j] = m1 - m2 - m3;
                    }
                    ([s[0] + s[1] + s[2], s[1] - s[2] - s[3]], [d[0] + d[1] + d[2], d[1] - d[2] - d[3]])
                }};
            }
            macro_rules! note {
                ($($value:expr),*) => { $(bad |= !($value * T::ZERO == T::ZERO);)* };
            }
            let (pairs, last) = upper.as_chunks_mut::<2>();
            let (below, last_below) = lower.as_chunks_mut::<2>();
            match lines {
                2 => {
                    for (t, (pair, below)) in pairs.iter_mut().zip(below).enumerate() {
                        let (up, down) = results!(t);
                        (*pair, *below) = (up, down);
                        note!(up[0], up[1], down[0], down[1]);
                    }
                }
                _ => {
                    for (t, pair) in pairs.iter_mut().enumerate() {
                        let (up, _) = results!(t);
                        *pair = up;
                        note!(up[0], up[1]);
                    }
                }
            }
            if let Some(last) = last.first_mut() {
                let (up, down) = results!(across - 1);
                *last = up[0];
                note!(up[0]);
                if let Some(last) = last_below.first_mut() {
                    *last = down[0];
                    note!(down[0]);
                }
            }
        }
        !bad
    }
}
