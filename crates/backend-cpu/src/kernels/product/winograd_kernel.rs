//! The transforms over registers: a lane is a tile.
#![allow(unsafe_code)]

use super::{
    operands::{WIDEST, mul_add},
    winograd_tiles::{POINTS, Piece, SIDE, Tiles},
};
use crate::simd::{
    isa::Job,
    vector::{Float, Vector},
};

/// Transforms rows of tiles of all channels: Bᵀ·d·B of each, tiles of 4 x 4 elements that overlap.
pub(super) struct Forward<'a, T> {
    pub(super) of: &'a Tiles,
    pub(super) from: *const T,
    /// Along images, channels and rows.
    pub(super) strides: [isize; 3],
    pub(super) pieces: &'a [Piece],
    /// [`Tiles::line`] of the even rows, four times, and of the odd ones.
    pub(super) lines: &'a mut [T],
    /// 16 matrices of channels and tiles, and their distance from each other.
    pub(super) to: &'a mut [T],
    pub(super) slot: usize,
}

struct ForwardIn<'a, V: Vector> {
    job: Forward<'a, V::Number>,
    channels: usize,
    /// [`Tiles::line`], [`Tiles::padded`] and [`Tiles::together`], found once.
    room: usize,
    padded: usize,
    together: usize,
}

/// The elements at even places from `at` on, a register of them, and those at odd places, of which there are
/// `left` after `from`, and zeros.
///
/// # Safety
/// `left` elements can be read from `from` on.
#[inline(always)]
unsafe fn some<V: Vector>(from: *const V::Number, left: usize, at: usize) -> [V; 2] {
    // SAFETY: no load reads beyond element `left`, and `# Safety` covers those before it.
    unsafe {
        if left >= at + 2 * V::WIDTH {
            return V::load(from.add(at)).unzip(V::load(from.add(at + V::WIDTH)));
        }
        let (mut first, mut second) = (V::splat(V::Number::ZERO), V::splat(V::Number::ZERO));
        if left > at {
            first = V::load_first(from.add(at), V::WIDTH.min(left - at));
        }
        if left > at + V::WIDTH {
            second = V::load_first(from.add(at + V::WIDTH), V::WIDTH.min(left - at - V::WIDTH));
        }
        first.unzip(second)
    }
}

/// The elements at even places from `at` on, and those at odd places, of two rows that fill a register each,
/// or of four that fill a half.
///
/// # Safety
/// From `at` on, a register can be read of the first two rows if `together` is 2,
/// and half a register of all four if it is 4.
#[inline(always)]
unsafe fn pair<V: Vector>(rows: [*const V::Number; SIDE], together: usize, at: usize) -> [V; 2] {
    // SAFETY: the loads are of a register of two rows, or of half a register of four, as `# Safety` has them.
    unsafe {
        if together == 2 {
            return V::load(rows[0].add(at)).unzip(V::load(rows[1].add(at)));
        }
        let half = V::WIDTH / 2;
        let first = V::load_first(rows[0].add(at), half);
        let second = V::load_first(rows[2].add(at), half);
        let first = first.load_rest(rows[1].add(at).wrapping_sub(half), half, V::WIDTH);
        let second = second.load_rest(rows[3].add(at).wrapping_sub(half), half, V::WIDTH);
        first.unzip(second)
    }
}

/// The four numbers that four elements in a row become.
#[inline(always)]
fn points<V: Vector<Number: Float>>(d: [V; SIDE]) -> [V; SIDE] {
    [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]
}

/// Writes the [`points`] of four elements, so far apart.
///
/// # Safety
/// A register can be written at each of the four places.
#[inline(always)]
unsafe fn write_points<V: Vector<Number: Float>>(d: [V; SIDE], to: *mut V::Number, apart: usize) {
    let [p0, p1, p2, p3] = points::<V>(d);
    // SAFETY: these are the four places of `# Safety`, of which each has room for a register.
    unsafe {
        p0.store_first(to, V::WIDTH);
        p1.store_first(to.add(apart), V::WIDTH);
        p2.store_first(to.add(2 * apart), V::WIDTH);
        p3.store_first(to.add(3 * apart), V::WIDTH);
    }
}

impl<V: Vector<Number: Float>> Job for ForwardIn<'_, V> {
    type Output = ();
    // Loops, not closures, which are compiled by themselves.
    #[inline(always)]
    fn run(mut self) {
        let mut channel = 0;
        while channel < self.channels {
            // A load that spans two recent stores stalls the processor: so the rows of all
            // pieces come before the columns of any.
            let mut nth = 0;
            while nth < self.job.pieces.len() {
                self.rows(channel, nth);
                nth += 1;
            }
            let mut nth = 0;
            while nth < self.job.pieces.len() {
                self.columns(channel, nth);
                nth += 1;
            }
            channel += 1;
        }
    }
}

impl<V: Vector<Number: Float>> ForwardIn<'_, V> {
    /// Elements of a row past those of its tiles, and rows of an image past those of its tiles.
    const TILE_OVERHANG: usize = 2;

    /// Transforms the rows of a piece, each along itself.
    #[inline(always)]
    fn rows(&mut self, channel: usize, nth: usize) {
        let Forward { of, from, strides, pieces, lines, .. } = &mut self.job;
        let (across, room, together) = (of.across(), self.room, self.together);
        let piece = &pieces[nth];
        let Piece { image, tiles, .. } = piece;
        let first = *image as isize * strides[0] + channel as isize * strides[1];
        let first = from.wrapping_offset(first + 2 * tiles.start as isize * strides[2]);
        let length = of.width + Self::TILE_OVERHANG;
        // Under the last row of an image there is none, and what is formed of it is no result.
        let rows =
            (2 * tiles.len() + Self::TILE_OVERHANG).min(of.height + Self::TILE_OVERHANG - 2 * tiles.start);
        let place = of.place(piece, nth);
        let mut r = 0;
        while r < 2 * tiles.len() + Self::TILE_OVERHANG {
            // Numbers past the last tile are overwritten with the next row or piece.
            let line = &mut lines[r % 2 * SIDE * room + place + r / 2 * across..];
            let line = line[..(SIDE - 1) * room + across.next_multiple_of(WIDEST)].as_mut_ptr();
            if together > 1 {
                let mut group = [first; SIDE];
                let mut k = 0;
                while k < SIDE {
                    // Rows of one parity, the last again where there are no more.
                    let row = if r + 2 * k < rows { r + 2 * k } else { rows - 2 + r % 2 };
                    group[k] = first.wrapping_offset(row as isize * strides[2]);
                    k += 1;
                }
                // SAFETY: `forward` asks for the image's rows, of which each has the elements of its tiles, a
                // register or half of one, and two more; the line was sliced to this reach.
                unsafe {
                    let [d0, d1] = pair::<V>(group, together, 0);
                    let [d2, d3] = pair::<V>(group, together, 2);
                    write_points::<V>([d0, d1, d2, d3], line, room);
                }
                // After the even rows of this group come its odd ones, and then the next group.
                r += if r % 2 == 0 { 1 } else { 2 * together - 1 };
                continue;
            }
            let (row, end) = match r < rows {
                true => (first.wrapping_offset(r as isize * strides[2]), length),
                false => (first, 0),
            };
            let mut t = 0;
            while t < across {
                // Elements from the first tile's on: those of a register of tiles, and two more. Elements
                // past the row's end are 0.
                let left = end.saturating_sub(2 * t);
                // SAFETY: `left` elements of the row are left here, for which `forward` asks; the line was
                // sliced to three rooms and whole registers.
                unsafe {
                    let row = row.wrapping_add(2 * t);
                    let [d0, d1] = some::<V>(row, left, 0);
                    let [d2, d3] = some::<V>(row, left, 2);
                    write_points::<V>([d0, d1, d2, d3], line.add(t), room);
                }
                t += V::WIDTH;
            }
            r += 1;
        }
    }

    /// Transforms the rows of a piece down the columns of their tiles.
    #[inline(always)]
    fn columns(&mut self, channel: usize, nth: usize) {
        let Forward { of, pieces, lines, to, slot, .. } = &mut self.job;
        let (across, room, padded) = (of.across(), self.room, self.padded);
        let piece = &pieces[nth];
        let place = of.place(piece, nth);
        // A tile's third and fourth row are the first and second of the tile below it. Numbers past the
        // last tile are overwritten with the next piece or channel, or are never read.
        let n = (piece.tiles.len() * across).next_multiple_of(WIDEST);
        let first = channel * padded + piece.column;
        let mut j = 0;
        while j < SIDE {
            let even = lines[j * room + place..][..across + n].as_ptr();
            let odd = lines[(SIDE + j) * room + place..][..across + n].as_ptr();
            let to = to[j * *slot + first..][..(SIDE - 1) * SIDE * *slot + n].as_mut_ptr();
            let mut t = 0;
            while t < n {
                // SAFETY: all were sliced to this reach.
                unsafe {
                    let (d0, d1) = (V::load(even.add(t)), V::load(odd.add(t)));
                    let (d2, d3) = (V::load(even.add(across + t)), V::load(odd.add(across + t)));
                    write_points::<V>([d0, d1, d2, d3], to.add(t), SIDE * *slot);
                }
                t += V::WIDTH;
            }
            j += 1;
        }
    }
}

/// Transforms the products of one row of the weight back: Aᵀ·m·A of each tile. Gives whether all results are
/// finite.
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
                // A row of results, and the next if there is one.
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
                            // One row of tiles, or two, of each of the two registers; rows of results are two
                            // apart.
                            for k in 0..rows {
                                let (half, to) = (2 * k / together, to.wrapping_add(2 * k * width));
                                let from = 2 * k % together / 2 * width;
                                // SAFETY: `back` asks that this row of results can be written, whose `width`
                                // numbers are from number `from` on in the register.
                                unsafe { zipped[half].store_rest(to.wrapping_sub(from), from, from + width) };
                            }
                            continue;
                        }
                        // Columns of these tiles: the last may have one.
                        let columns = (2 * n).min(width - 2 * t);
                        // SAFETY: `back` asks that the row of results can be written, and it
                        // has `columns` more from column `2 * t` on.
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

/// The transforms of a kind of register: of the channels of images, whose number is given, and back to
/// images.
#[derive(Clone, Copy)]
pub(crate) struct Transforms<T> {
    pub(super) images: unsafe fn(Forward<'_, T>, usize),
    pub(super) back: unsafe fn(Back<'_, T>) -> bool,
}

impl<T: Float> Transforms<T> {
    pub(crate) const fn of<V: Vector<Number = T>>() -> Transforms<T> {
        Transforms { images: forward::<V>, back: back::<V> }
    }
}

/// # Safety
/// The processor has the register's instruction set. The elements of `channels` channels of the pieces'
/// images can be read: those of the results' rows and columns, and of two more of both.
unsafe fn forward<V: Vector<Number: Float>>(job: Forward<'_, V::Number>, channels: usize) {
    let (room, padded, together) = (job.of.line(), job.of.padded(), job.of.together(V::WIDTH));
    // SAFETY: the processor has the instruction set, by `# Safety`.
    unsafe { V::run(ForwardIn::<V> { job, channels, room, padded, together }) }
}

/// # Safety
/// The processor has the register's instruction set, and the results of the pieces can be written.
unsafe fn back<V: Vector<Number: Float>>(of: Back<'_, V::Number>) -> bool {
    // SAFETY: the processor has the instruction set, by `# Safety`.
    unsafe { V::run(BackIn::<V>(of)) }
}
