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

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use smallvec::SmallVec;
use tensor_core::{
    Result,
    contraction::{Contraction, Loop},
};

use super::{
    gemm::{Product, Steps, Strided, WIDEST},
    micro_kernel::{HasMicroKernels, Update, mul_add},
};
use crate::{
    elementwise::engine::with_scratch,
    memory::strided::Shared,
    simd::{
        isa::{Isa, Job},
        vector::{Float, Vector},
    },
    threads,
};

/// Elements of a transformed tile, and along each of its axes.
const POINTS: usize = 16;
const SIDE: usize = 4;
/// Elements of a window.
const TAPS: usize = 9;
/// Numbers of transformed tiles and products of a block that stay in the second-level cache.
const BLOCK: usize = 1 << 17;
/// Tiles of a block from which micro-kernels are full.
const FULL: usize = 48;
/// Channels on either side, and channels times tiles in a row, from which transforms cost less than multiplications that are saved.
const CHANNELS: usize = 32;
const WORTH: usize = 384;
/// Tiles of all images, from which that pays for the weight's transform too.
const TILES: usize = 256;
/// Windows of a weight whose transforms are worth a thread.
const GRAIN: usize = 1 << 9;

/// Parts of the sums of a weight's gradient, at most and at least, and numbers in all of them: what threads share.
const MOST_PARTS: usize = 16;
const FEWEST_PARTS: usize = 4;
const SUMS: usize = 1 << 22;

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
        let tiles = |row: &Loop, c: &Loop, [y, x]: [&Loop; 2], images: &[Loop]| Tiles {
            images: images.first().map_or(1, |axis| axis.size),
            rows: row.size,
            channels: c.size,
            height: y.size,
            width: x.size,
        };
        let along = |images: &[Loop], stride: fn(&Loop) -> isize| images.first().map_or(0, stride);
        match (&m[..], &n[..], &k[..]) {
            ([row], [y, x], [c, i, j]) if batch.len() <= 1 && along(batch, |axis| axis.lhs) == 0 => {
                let of = Convolution {
                    tiles: tiles(row, c, [y, x], batch),
                    weight: [row.lhs, c.lhs, i.lhs, j.lhs],
                    image: [along(batch, |axis| axis.rhs), c.rhs, y.rhs],
                    out: along(batch, |axis| axis.out),
                };
                (windows([y, x], [i, j]) && of.tiles.pay()).then_some(Winograd::Convolution(of))
            }
            ([row], [c, i, j], [images @ .., y, x]) if batch.is_empty() && images.len() <= 1 => {
                let of = Gradient {
                    tiles: tiles(row, c, [y, x], images),
                    image: [along(images, |axis| axis.rhs), c.rhs, y.rhs],
                    gradient: [along(images, |axis| axis.lhs), row.lhs, y.lhs],
                };
                let pays = x.lhs == 1 && of.tiles.pay() && of.parts() >= FEWEST_PARTS;
                (windows([y, x], [i, j]) && pays).then_some(Winograd::Gradient(of))
            }
            _ => None,
        }
    }
}

/// The sizes of a convolution, and how its results are cut into tiles of 2 x 2 and those into blocks: by the sizes alone, on which bits depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tiles {
    images: usize,
    rows: usize,
    channels: usize,
    height: usize,
    width: usize,
}

/// Rows of tiles of an image, and the column of a block's matrices where they begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    image: usize,
    tiles: Range<usize>,
    column: usize,
}

impl Tiles {
    /// Whether transforms cost less than multiplications that are saved.
    fn pay(&self) -> bool {
        let channels = self.rows.min(self.channels);
        let tiles = self.images * self.down() * self.across();
        channels >= CHANNELS && channels * self.across() >= WORTH && tiles >= TILES && self.height > 1
    }

    /// Tiles along a row, and rows of tiles.
    fn across(&self) -> usize {
        self.width.div_ceil(2)
    }

    fn down(&self) -> usize {
        self.height.div_ceil(2)
    }

    /// Rows of tiles of a block: as many as stay at hand, by which registers are full.
    fn block(&self) -> usize {
        let tiles = (BLOCK / ((POINTS + 1) * self.channels.max(self.rows))).max(FULL);
        let most = (tiles / self.across()).clamp(1, self.images * self.down());
        let registers = |rows: usize| (rows * self.across()).div_ceil(WIDEST);
        (1..=most).min_by(|&a, &b| (registers(a) * b).cmp(&(registers(b) * a)).then(b.cmp(&a))).unwrap_or(1)
    }

    /// The blocks of all images.
    fn blocks(&self) -> usize {
        (self.images * self.down()).div_ceil(self.block())
    }

    /// What of which images a block has.
    fn pieces(&self, block: usize) -> Pieces {
        let (down, mut row) = (self.down(), block * self.block());
        let (mut pieces, mut column, end) = (Pieces::new(), 0, self.images * down);
        let end = end.min(row + self.block());
        while row < end {
            let first = row % down;
            let tiles = first..down.min(first + end - row);
            let count = tiles.len();
            pieces.push(Piece { image: row / down, tiles, column });
            row += count;
            column += count * self.across();
        }
        pieces
    }

    /// The tiles of pieces.
    fn count(&self, pieces: &[Piece]) -> usize {
        pieces.iter().map(|piece| piece.tiles.len() * self.across()).sum()
    }

    /// Columns of a block's matrices: so many tiles, in whole registers.
    fn padded(&self) -> usize {
        (self.block() * self.across()).next_multiple_of(WIDEST)
    }

    /// Room for every second row that the tiles of a block have, transformed along itself: a number for each tile, and registers past the last.
    fn line(&self) -> usize {
        (self.block() + 1) * self.across() + 2 * WIDEST
    }

    /// Numbers from a point's matrix of so many rows to the next one's. Those of all points are visited together, and should not meet in one
    /// set of a cache.
    fn slot(&self, rows: usize) -> usize {
        rows * self.padded() + 3 * WIDEST
    }
}

type Pieces = SmallVec<[Piece; 4]>;

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

/// Transforms rows of tiles of all channels: Bᵀ·d·B of each, tiles of 4 x 4 elements that overlap; or G·g·Gᵀ of a gradient's, 2 x 2 elements.
pub(super) struct Forward<'a, T> {
    of: &'a Tiles,
    from: *const T,
    /// Along images, channels and rows.
    strides: [isize; 3],
    pieces: &'a [Piece],
    spread: &'a mut Spread<T>,
    /// [`Tiles::line`] of the even rows, four times, and of the odd ones.
    lines: &'a mut [T],
    /// 16 matrices of channels and tiles, and how far they lie from each other.
    to: &'a mut [T],
    slot: usize,
}

struct ForwardIn<'a, V: Vector, const GRADIENT: bool>(Forward<'a, V::Number>, usize);

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

/// The four numbers that four elements in a row become, or two of a gradient. The last of four is that of F(2, 3), the negative of F(3, 2)'s: sums of
/// products with a gradient's subtract it.
#[inline(always)]
fn points<V: Vector<Number: Float>, const GRADIENT: bool>(d: [V; SIDE]) -> [V; SIDE] {
    if GRADIENT {
        let half = V::splat(V::Number::HALF);
        let (first, second) = (d[0] * half, d[1] * half);
        [d[0], first + second, first - second, d[1]]
    } else {
        [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]
    }
}

impl<V: Vector<Number: Float>, const GRADIENT: bool> Job for ForwardIn<'_, V, GRADIENT> {
    type Output = ();
    // Loops, not closures, which are compiled by themselves.
    #[inline(always)]
    fn run(self) {
        let ForwardIn(Forward { of, from, strides, pieces, spread, lines, to, slot }, channels) = self;
        let (across, room, padded) = (of.across(), of.line(), of.padded());
        let more = if GRADIENT { 0 } else { 2 };
        let zero = V::splat(V::Number::ZERO);
        let mut channel = 0;
        while channel < channels {
            let mut piece = 0;
            while piece < pieces.len() {
                let Piece { image, tiles, column } = &pieces[piece];
                let first = *image as isize * strides[0] + channel as isize * strides[1];
                let mut r = 0;
                while r < 2 * tiles.len() + more {
                    let place = r % 2 * SIDE * room + r / 2 * across;
                    let line = lines[place..][..(SIDE - 1) * room + across + WIDEST].as_mut_ptr();
                    let y = 2 * tiles.start + r;
                    // Under the last row there is none: of an image, what is formed of it is no result.
                    let (row, end) = match y < of.height + more {
                        true => (from.wrapping_offset(first + y as isize * strides[2]), of.width + more),
                        false => (from, 0),
                    };
                    // SAFETY: the caller gives the elements, and a row has so many.
                    spread.note(unsafe { std::slice::from_raw_parts(row, end) });
                    let mut t = 0;
                    while t < across {
                        // Elements from the first tile's on: those of a register of tiles, and two more. What is past the row's end is 0, and what
                        // is written past the last tile is written again with the next row.
                        let left = end.saturating_sub(2 * t);
                        // SAFETY: as above; the line was sliced to this reach.
                        unsafe {
                            let row = row.wrapping_add(2 * t);
                            let [d0, d1] = some::<V>(row, left, 0).unzip(some(row, left, V::WIDTH));
                            let [d2, d3] = match GRADIENT {
                                true => [zero, zero],
                                false => some::<V>(row, left, 2).unzip(some(row, left, 2 + V::WIDTH)),
                            };
                            let [p0, p1, p2, p3] = points::<V, GRADIENT>([d0, d1, d2, d3]);
                            let line = line.add(t);
                            p0.store_first(line, V::WIDTH);
                            p1.store_first(line.add(room), V::WIDTH);
                            p2.store_first(line.add(2 * room), V::WIDTH);
                            p3.store_first(line.add(3 * room), V::WIDTH);
                        }
                        t += V::WIDTH;
                    }
                    r += 1;
                }
                // A tile's third and fourth row are the first and second of the tile below it. What is written past the last tile is written again with
                // the next piece or channel, or is read by nobody.
                let n = (tiles.len() * across).next_multiple_of(WIDEST);
                let first = channel * padded + column;
                let mut j = 0;
                while j < SIDE {
                    let even = lines[j * room..][..across + n].as_ptr();
                    let odd = lines[(SIDE + j) * room..][..across + n].as_ptr();
                    let to = to[j * slot + first..][..(SIDE - 1) * SIDE * slot + n].as_mut_ptr();
                    let mut t = 0;
                    while t < n {
                        // SAFETY: all were sliced to this reach.
                        unsafe {
                            let (d0, d1) = (V::load(even.add(t)), V::load(odd.add(t)));
                            let [d2, d3] = match GRADIENT {
                                true => [zero, zero],
                                false => [V::load(even.add(across + t)), V::load(odd.add(across + t))],
                            };
                            let [p0, p1, p2, p3] = points::<V, GRADIENT>([d0, d1, d2, d3]);
                            let to = to.add(t);
                            p0.store_first(to, V::WIDTH);
                            p1.store_first(to.add(SIDE * slot), V::WIDTH);
                            p2.store_first(to.add(2 * SIDE * slot), V::WIDTH);
                            p3.store_first(to.add(3 * SIDE * slot), V::WIDTH);
                        }
                        t += V::WIDTH;
                    }
                    j += 1;
                }
                piece += 1;
            }
            channel += 1;
        }
    }
}

/// Transforms the products of one row of the weight back: Aᵀ·m·A of each tile. Gives whether all results are finite.
pub(super) struct Back<'a, T> {
    of: &'a Tiles,
    /// The row's products at the first point; those at the next one are a slot further.
    products: &'a [T],
    slot: usize,
    to: *mut T,
    /// From image to image of the results.
    out: isize,
    row: usize,
    pieces: &'a [Piece],
}

struct BackIn<'a, V: Vector>(Back<'a, V::Number>);

impl<V: Vector<Number: Float>> Job for BackIn<'_, V> {
    type Output = bool;
    // As above.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) -> bool {
        let Back { of, products, slot, to, out, row, pieces } = self.0;
        let (across, width) = (of.across(), of.width);
        let zero = V::splat(V::Number::ZERO);
        // Sums of all results times 0, which is no number if one of them is not finite.
        let mut zeros = [zero; 8];
        let mut piece = 0;
        while piece < pieces.len() {
            let Piece { image, tiles, column } = &pieces[piece];
            let to = to.wrapping_offset(*image as isize * out);
            let mut tile = tiles.start;
            while tile < tiles.end {
                let place = column + (tile - tiles.start) * across;
                let points = products[place..][..(POINTS - 1) * slot + across].as_ptr();
                let two = 2 * tile + 1 < of.height;
                // Of the results this is one row, and the next if there is one.
                let upper = to.wrapping_add((row * of.height + 2 * tile) * width);
                let mut t = 0;
                while t < across {
                    let n = V::WIDTH.min(across - t);
                    let (mut s, mut d) = ([zero; SIDE], [zero; SIDE]);
                    for j in 0..SIDE {
                        // SAFETY: the products at all points were sliced to this reach.
                        unsafe {
                            let at = points.add(j * slot + t);
                            let m0 = V::load_first(at, n);
                            let m1 = V::load_first(at.add(SIDE * slot), n);
                            let m2 = V::load_first(at.add(2 * SIDE * slot), n);
                            let m3 = V::load_first(at.add(3 * SIDE * slot), n);
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
            piece += 1;
        }
        V::totals(zeros).iter().all(|sum| *sum == V::Number::ZERO)
    }
}

/// Transforms the sums of one row of a weight's gradient back: Aᵀ·m·A of each channel's, which are added from all parts. Gives whether all results
/// are finite.
pub(super) struct Weights<'a, T> {
    /// The row's sums at the first point, of the first part; those at the next one, and after 16 those of the next part, are `size` further.
    sums: &'a [T],
    size: usize,
    to: &'a mut [T],
}

struct WeightsIn<'a, V: Vector>(Weights<'a, V::Number>);

impl<V: Vector<Number: Float>> Job for WeightsIn<'_, V> {
    type Output = bool;
    // As above.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) -> bool {
        let Weights { sums, size, to } = self.0;
        let (channels, zero) = (to.len() / TAPS, V::splat(V::Number::ZERO));
        let mut zeros = [zero; 8];
        let mut c = 0;
        while c < channels {
            let n = V::WIDTH.min(channels - c);
            let mut m = [zero; POINTS];
            let mut first = c;
            while first < sums.len() {
                let part = sums[first..][..(POINTS - 1) * size + n].as_ptr();
                for p in 0..POINTS {
                    // SAFETY: the sums were sliced to this reach.
                    m[p] = m[p] + unsafe { V::load_first(part.add(p * size), n) };
                }
                first += POINTS * size;
            }
            // The sums of the first three, the difference of the two in the middle, the sums of these without the last.
            let mut lines = [[zero; SIDE]; 3];
            for j in 0..SIDE {
                let (both, last) = (m[SIDE + j] + m[2 * SIDE + j], m[3 * SIDE + j]);
                lines[0][j] = m[j] + both;
                lines[1][j] = m[SIDE + j] - m[2 * SIDE + j];
                lines[2][j] = both - last;
            }
            for i in 0..3 {
                let [p0, p1, p2, p3] = lines[i];
                let both = p1 + p2;
                let results = [p0 + both, p1 - p2, both - p3];
                for j in 0..3 {
                    zeros[j] = mul_add(results[j], zero, zeros[j]);
                    let mut lanes = [V::Number::ZERO; WIDEST];
                    // SAFETY: a register has room.
                    unsafe { results[j].store_first(lanes.as_mut_ptr(), V::WIDTH) };
                    for l in 0..n {
                        to[(c + l) * TAPS + i * 3 + j] = lanes[l];
                    }
                }
            }
            c += V::WIDTH;
        }
        V::totals(zeros).iter().all(|sum| *sum == V::Number::ZERO)
    }
}

/// The transforms of a kind of register: of so many channels of images, and of gradients, and back to images and to weights.
#[derive(Clone, Copy)]
pub(super) struct Transforms<T> {
    images: unsafe fn(Forward<'_, T>, usize),
    gradients: unsafe fn(Forward<'_, T>, usize),
    back: unsafe fn(Back<'_, T>) -> bool,
    weights: unsafe fn(Weights<'_, T>) -> bool,
}

impl<T: Float> Transforms<T> {
    pub(super) const fn of<V: Vector<Number = T>>() -> Transforms<T> {
        Transforms {
            images: forward::<V, false>,
            gradients: forward::<V, true>,
            back: back::<V>,
            weights: weights::<V>,
        }
    }
}

/// # Safety
/// The processor has the register's instruction set, and the elements of so many channels can be read.
unsafe fn forward<V: Vector<Number: Float>, const GRADIENT: bool>(
    of: Forward<'_, V::Number>,
    channels: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { V::run(ForwardIn::<V, GRADIENT>(of, channels)) }
}

/// # Safety
/// The processor has the register's instruction set, and the results can be written.
unsafe fn back<V: Vector<Number: Float>>(of: Back<'_, V::Number>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { V::run(BackIn::<V>(of)) }
}

/// # Safety
/// The processor has the register's instruction set.
unsafe fn weights<V: Vector<Number: Float>>(of: Weights<'_, V::Number>) -> bool {
    // SAFETY: the caller's promise.
    unsafe { V::run(WeightsIn::<V>(of)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::gemm::tests::numbers, *};

    /// Both forms, as compiled for each instruction set, are their definitions.
    fn check<T: HasMicroKernels>(number: impl Fn(f64) -> T + Copy, epsilon: f64) {
        for (images, rows, channels, height, width) in
            [(4, 33, 35, 5, 13), (2, 32, 32, 56, 30), (50, 34, 32, 2, 7)]
        {
            let tiles = Tiles { images, rows, channels, height, width };
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

    #[test]
    fn an_element_that_is_much_larger_than_the_others_is_seen() {
        let mut numbers = vec![1f32; 4007];
        let is_even = |numbers: &[f32]| {
            let mut spread = Spread::new();
            spread.note(numbers);
            spread.is_even()
        };
        assert!(is_even(&numbers) && is_even(&[0.0; 40]) && is_even(&numbers[..7]));
        for place in [0, 2000, 4006] {
            for value in [-1e6, f32::NAN, f32::INFINITY] {
                let before = std::mem::replace(&mut numbers[place], value);
                assert!(!is_even(&numbers), "{value} at {place}");
                numbers[place] = before;
            }
        }
        assert!(!is_even(&[1e-3, f32::NAN]));
    }
}
