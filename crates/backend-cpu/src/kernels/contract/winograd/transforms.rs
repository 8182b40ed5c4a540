//! The transforms over registers: a lane is a tile, or a channel of a weight's gradient.
#![allow(unsafe_code)]

use super::{
    super::{gemm::WIDEST, micro_kernel::mul_add},
    POINTS, SIDE, TAPS,
    spread::Spread,
    tiles::{Piece, Tiles},
};
use crate::simd::{
    isa::Job,
    vector::{Float, Vector},
};

/// Transforms rows of tiles of all channels: Bᵀ·d·B of each, tiles of 4 x 4 elements that overlap; or G·g·Gᵀ of a gradient's, 2 x 2 elements.
pub(super) struct Forward<'a, T> {
    pub(super) of: &'a Tiles,
    pub(super) from: *const T,
    /// Along images, channels and rows.
    pub(super) strides: [isize; 3],
    pub(super) pieces: &'a [Piece],
    pub(super) spread: &'a mut Spread<T>,
    /// [`Tiles::line`] of the even rows, four times, and of the odd ones.
    pub(super) lines: &'a mut [T],
    /// 16 matrices of channels and tiles, and how far they lie from each other.
    pub(super) to: &'a mut [T],
    pub(super) slot: usize,
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

/// A register of what lies side by side from `first` on, and in its upper half from `second` on.
///
/// # Safety
/// Half a register can be read from each.
#[inline(always)]
unsafe fn halves<V: Vector>(first: *const V::Number, second: *const V::Number) -> V {
    let half = V::WIDTH / 2;
    // SAFETY: the caller's promise.
    unsafe { V::load_first(first, half).load_rest(second.wrapping_sub(half), half, V::WIDTH) }
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
        let together = of.together(V::WIDTH);
        let zero = V::splat(V::Number::ZERO);
        let mut channel = 0;
        while channel < channels {
            let mut nth = 0;
            while nth < pieces.len() {
                let Piece { image, tiles, .. } = &pieces[nth];
                let first = *image as isize * strides[0] + channel as isize * strides[1];
                let first = from.wrapping_offset(first + 2 * tiles.start as isize * strides[2]);
                // Under the last row of an image there is none, and what is formed of it is no result.
                let rows = (2 * tiles.len() + more).min(of.height + more - 2 * tiles.start);
                if strides[2] == (of.width + more) as isize {
                    // SAFETY: the caller gives the elements of these rows, which follow each other.
                    spread.note(unsafe { std::slice::from_raw_parts(first, rows * (of.width + more)) });
                } else {
                    let mut r = 0;
                    while r < rows {
                        let row = first.wrapping_offset(r as isize * strides[2]);
                        // SAFETY: as above, of one row.
                        spread.note(unsafe { std::slice::from_raw_parts(row, of.width + more) });
                        r += 1;
                    }
                }
                let place = of.place(&pieces[nth], nth);
                let mut r = 0;
                while r < 2 * tiles.len() + more {
                    let line = lines[r % 2 * SIDE * room + place + r / 2 * across..]
                        [..(SIDE - 1) * room + across.next_multiple_of(WIDEST)]
                        .as_mut_ptr();
                    if together > 1 {
                        // Rows of one parity, of which a register holds as many, the last again where there are no more.
                        let row = |k: usize| {
                            let row = if r + 2 * k < rows { r + 2 * k } else { rows - 2 + r % 2 };
                            first.wrapping_offset(row as isize * strides[2])
                        };
                        // SAFETY: the caller gives the elements, and a row of tiles is a part of a register; the line was sliced to this reach.
                        unsafe {
                            let (d0, d1, d2, d3);
                            if together == 2 {
                                [d0, d1] = V::load(row(0)).unzip(V::load(row(1)));
                                [d2, d3] = match GRADIENT {
                                    true => [zero, zero],
                                    false => V::load(row(0).add(2)).unzip(V::load(row(1).add(2))),
                                };
                            } else {
                                let (a, b, c, d) = (row(0), row(1), row(2), row(3));
                                [d0, d1] = halves::<V>(a, b).unzip(halves(c, d));
                                [d2, d3] = match GRADIENT {
                                    true => [zero, zero],
                                    false => {
                                        halves::<V>(a.add(2), b.add(2)).unzip(halves(c.add(2), d.add(2)))
                                    }
                                };
                            }
                            let [p0, p1, p2, p3] = points::<V, GRADIENT>([d0, d1, d2, d3]);
                            p0.store_first(line, V::WIDTH);
                            p1.store_first(line.add(room), V::WIDTH);
                            p2.store_first(line.add(2 * room), V::WIDTH);
                            p3.store_first(line.add(3 * room), V::WIDTH);
                        }
                        // After the even rows of this group come its odd ones, and then the next group.
                        r += if r % 2 == 0 { 1 } else { 2 * together - 1 };
                        continue;
                    }
                    let (row, end) = match r < rows {
                        true => (first.wrapping_offset(r as isize * strides[2]), of.width + more),
                        false => (first, 0),
                    };
                    let mut t = 0;
                    while t < across {
                        // Elements from the first tile's on: those of a register of tiles, and two more. What is past the row's end is 0, and what
                        // is written past the last tile is written again with the next row.
                        let left = end.saturating_sub(2 * t);
                        // SAFETY: as above; the line was sliced to this reach.
                        unsafe {
                            let row = row.wrapping_add(2 * t);
                            let (a, b, mut c, mut d);
                            (c, d) = (zero, zero);
                            if left >= 2 * V::WIDTH + more {
                                (a, b) = (V::load(row), V::load(row.add(V::WIDTH)));
                                if !GRADIENT {
                                    (c, d) = (V::load(row.add(2)), V::load(row.add(2 + V::WIDTH)));
                                }
                            } else {
                                (a, b) = (some(row, left, 0), some(row, left, V::WIDTH));
                                if !GRADIENT {
                                    (c, d) = (some(row, left, 2), some(row, left, 2 + V::WIDTH));
                                }
                            }
                            let ([d0, d1], [d2, d3]) = (a.unzip(b), c.unzip(d));
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
                nth += 1;
            }
            // A tile's third and fourth row are the first and second of the tile below it. What is written past the last tile is written again with
            // the next piece or channel, or is read by nobody. Lines that were written just now are not read at once, as a processor waits for
            // two stores that it needs parts of.
            let mut nth = 0;
            while nth < pieces.len() {
                let place = of.place(&pieces[nth], nth);
                let n = (pieces[nth].tiles.len() * across).next_multiple_of(WIDEST);
                let first = channel * padded + pieces[nth].column;
                let mut j = 0;
                while j < SIDE {
                    let even = lines[j * room + place..][..across + n].as_ptr();
                    let odd = lines[(SIDE + j) * room + place..][..across + n].as_ptr();
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
                nth += 1;
            }
            channel += 1;
        }
    }
}

/// Transforms the products of one row of the weight back: Aᵀ·m·A of each tile. Gives whether all results are finite.
pub(super) struct Back<'a, T> {
    pub(super) of: &'a Tiles,
    /// The row's products at the first point; those at the next one are a slot further.
    pub(super) products: &'a [T],
    pub(super) slot: usize,
    pub(super) to: *mut T,
    /// From image to image of the results.
    pub(super) out: isize,
    pub(super) row: usize,
    pub(super) pieces: &'a [Piece],
}

struct BackIn<'a, V: Vector>(Back<'a, V::Number>);

impl<V: Vector<Number: Float>> Job for BackIn<'_, V> {
    type Output = bool;
    // As above.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) -> bool {
        let Back { of, products, slot, to, out, row, pieces } = self.0;
        let (across, width, together) = (of.across(), of.width, of.together(V::WIDTH));
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
                // Rows of tiles of a register.
                let rows = together.min(tiles.end - tile);
                let points = products[place..][..(POINTS - 1) * slot + rows * across].as_ptr();
                let two = 2 * tile + 1 < of.height;
                // Of the results this is one row, and the next if there is one.
                let upper = to.wrapping_add((row * of.height + 2 * tile) * width);
                let mut t = 0;
                while t < across {
                    let n = V::WIDTH.min(rows * across - t);
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
                        let zipped = left.zip(right);
                        zeros[2 * line] = mul_add(left, zero, zeros[2 * line]);
                        zeros[2 * line + 1] = mul_add(right, zero, zeros[2 * line + 1]);
                        let to = upper.wrapping_add(line * width);
                        if together > 1 {
                            // One row of tiles, or two, of each of the two registers; rows of results lie two apart.
                            for k in 0..together.min(rows) {
                                let (half, to) = (2 * k / together, to.wrapping_add(2 * k * width));
                                let from = 2 * k % together / 2 * width;
                                // SAFETY: the caller gives room for this row, which is from here on in the register.
                                unsafe { zipped[half].store_rest(to.wrapping_sub(from), from, from + width) };
                            }
                            continue;
                        }
                        // Columns of these tiles: the last may have one.
                        let columns = (2 * n).min(width - 2 * t);
                        // SAFETY: as above, of so many columns.
                        unsafe {
                            let to = to.add(2 * t);
                            zipped[0].store_first(to, columns.min(V::WIDTH));
                            if columns > V::WIDTH {
                                zipped[1].store_first(to.add(V::WIDTH), columns - V::WIDTH);
                            }
                        }
                    }
                    t += V::WIDTH;
                }
                tile += together;
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
    pub(super) sums: &'a [T],
    pub(super) size: usize,
    pub(super) to: &'a mut [T],
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
pub(crate) struct Transforms<T> {
    pub(super) images: unsafe fn(Forward<'_, T>, usize),
    pub(super) gradients: unsafe fn(Forward<'_, T>, usize),
    pub(super) back: unsafe fn(Back<'_, T>) -> bool,
    pub(super) weights: unsafe fn(Weights<'_, T>) -> bool,
}

impl<T: Float> Transforms<T> {
    pub(crate) const fn of<V: Vector<Number = T>>() -> Transforms<T> {
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
