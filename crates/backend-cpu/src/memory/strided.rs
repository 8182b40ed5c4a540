//! Copies between strided layouts. If source and target are contiguous along different axes (a transpose),
//! elements go through a small tile, so that each cache line is read once and written once.
#![allow(unsafe_code)]

use std::{array::from_fn, ops::Range};

use tensor_core::{Collapsed, collapse};

use crate::{
    simd::isa::{Isa, Job},
    threads,
    tuning::{BAND_COLUMNS, LONG_ROW_ELEMENTS, SERIAL_STEPS, TILE_MIN_COLUMNS},
};

/// Rows and columns of a tile: a cache line of 4-byte elements each way.
pub(crate) const TILE: usize = 16;

/// An address that threads may share; each thread writes its own elements.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub(crate) *mut T);
// SAFETY: the owner gives threads disjoint elements to write, and no thread writes elements that are read.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: a shared reference only gives the address, and no thread accesses elements that another writes.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline(always)]
    pub(crate) fn at(self, offset: isize) -> *mut T {
        self.0.wrapping_offset(offset)
    }
}

/// A copy of rows and columns: the first element of both sides, and their row and column strides. All
/// positions are within memory that the caller of [`block`] or [`copy`] holds.
struct Plane<T> {
    isa: Isa,
    rows: Range<usize>,
    columns: usize,
    from: *const T,
    sr: isize,
    sc: isize,
    to: *mut T,
    dr: isize,
    dc: isize,
}

impl<T: Copy + Default> Job for Plane<T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let transposed = self.sr == 1 && self.dc == 1;
        let in_parts = transposes_in_registers::<T>(self.isa);
        for band in (0..self.columns).step_by(BAND_COLUMNS) {
            let end = self.columns.min(band + BAND_COLUMNS);
            for r in self.rows.clone().step_by(TILE) {
                let height = TILE.min(self.rows.end - r);
                for c in (band..end).step_by(TILE) {
                    let width = TILE.min(end - c);
                    let from = self.from.wrapping_offset(r as isize * self.sr + c as isize * self.sc);
                    let to = self.to.wrapping_offset(r as isize * self.dr + c as isize * self.dc);
                    // SAFETY: rows r..r + height and columns c..c + width are positions of the plane, within
                    // the caller's memory; a transposed plane has contiguous columns and rows.
                    unsafe {
                        let whole = height == TILE && width == TILE;
                        if !transposed || !whole && !in_parts {
                            self.tile(from, to, height, width);
                            continue;
                        }
                        let columns = from_fn(|j| from.wrapping_offset(j as isize * self.sc));
                        if whole {
                            transpose::<true, _>(self.isa, columns, [TILE; 2], to, self.dr);
                        } else {
                            transpose::<false, _>(self.isa, columns, [height, width], to, self.dr);
                        }
                    }
                }
            }
        }
    }
}

impl<T: Copy + Default> Plane<T> {
    /// # Safety
    /// `height` rows and `width` columns from both addresses on are within the caller's memory; neither
    /// number is greater than [`TILE`].
    #[inline(always)]
    unsafe fn tile(&self, from: *const T, to: *mut T, height: usize, width: usize) {
        let mut tile = [T::default(); TILE * TILE];
        for j in 0..width {
            for i in 0..height {
                let at = i as isize * self.sr + j as isize * self.sc;
                // SAFETY: i < height and j < width: a position within the caller's memory, by `# Safety`.
                tile[i * TILE + j] = unsafe { from.wrapping_offset(at).read() };
            }
        }
        for i in 0..height {
            for j in 0..width {
                let at = i as isize * self.dr + j as isize * self.dc;
                // SAFETY: i < height and j < width: a position within the caller's memory, by `# Safety`.
                unsafe { to.wrapping_offset(at).write(tile[i * TILE + j]) };
            }
        }
    }
}

/// Whether [`transpose`] has a form in registers, which also suits tiles that are not whole.
pub(crate) fn transposes_in_registers<T>(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = isa.is_avx512();
    #[cfg(not(target_arch = "x86_64"))]
    let has = cfg!(all(target_arch = "wasm32", target_feature = "simd128"));
    let _ = isa;
    has && size_of::<T>() == 4
}

/// Writes contiguous columns, which start at the given addresses, as rows at `to`, `dr` elements apart.
/// With `WHOLE` there are [`TILE`] rows and columns.
///
/// # Safety
/// The first `width` columns are valid for reads of `height` elements, and the `height` rows at `to` for
/// writes of `width`; neither number is greater than [`TILE`], and with `WHOLE` both are equal to it.
#[inline(always)]
pub(crate) unsafe fn transpose<const WHOLE: bool, T: Copy + Default>(
    isa: Isa,
    columns: [*const T; TILE],
    [height, width]: [usize; 2],
    to: *mut T,
    dr: isize,
) {
    #[cfg(target_arch = "x86_64")]
    if transposes_in_registers::<T>(isa) {
        let columns = columns.map(<*const T>::cast);
        // SAFETY: `transposes_in_registers` checked AVX-512 and the size; `# Safety` gives columns and rows.
        return unsafe { transpose_avx512::<WHOLE>(columns, [height, width], to.cast(), dr) };
    }
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    if transposes_in_registers::<T>(isa) {
        let columns = columns.map(<*const T>::cast);
        // SAFETY: `transposes_in_registers` checked the size; `# Safety` gives columns and rows.
        return unsafe { transpose_fours(columns, [height, width], to.cast(), dr) };
    }
    let _ = isa;
    let mut tile = [[T::default(); TILE]; TILE];
    // SAFETY: j < width and i < height, or both are below `TILE` with `WHOLE`: `# Safety` gives these.
    unsafe {
        if WHOLE {
            // Whole cache lines both ways, of a size known at compile time.
            for j in 0..TILE {
                tile[j] = columns[j].cast::<[T; TILE]>().read_unaligned();
            }
            // Indexed, because the row of one is the column of the other.
            #[allow(clippy::needless_range_loop)]
            for i in 0..TILE {
                let row: [T; TILE] = from_fn(|j| tile[j][i]);
                to.wrapping_offset(i as isize * dr).cast::<[T; TILE]>().write_unaligned(row);
            }
        } else {
            for (j, column) in columns.iter().enumerate().take(width) {
                for i in 0..height {
                    to.wrapping_offset(i as isize * dr).add(j).write(column.add(i).read());
                }
            }
        }
    }
}

/// [`transpose`] in squares of four columns and rows, a register for each.
///
/// # Safety
/// As [`transpose`].
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[inline(always)]
unsafe fn transpose_fours(columns: [*const f32; TILE], [height, width]: [usize; 2], to: *mut f32, dr: isize) {
    use crate::simd::{F32x4, vector::Vector};
    const SIDE: usize = F32x4::WIDTH;
    for (j, columns) in columns.chunks(SIDE).enumerate() {
        let columns = &columns[..SIDE.min(width.saturating_sub(j * SIDE))];
        for i in (0..height).step_by(SIDE) {
            let row = |k: usize| to.wrapping_offset((i + k) as isize * dr).wrapping_add(j * SIDE);
            // SAFETY: the columns below `width` and rows below `height` are those that `# Safety` gives.
            unsafe {
                match columns {
                    &[a, b, c, d] if i + SIDE <= height => {
                        let [a, b, c, d] = [a, b, c, d].map(|column| F32x4::load(column.add(i)));
                        let ([first, second], [third, fourth]) = (a.zip(c), b.zip(d));
                        for (k, rows) in [first.zip(third), second.zip(fourth)].into_iter().enumerate() {
                            rows[0].store_first(row(2 * k), SIDE);
                            rows[1].store_first(row(2 * k + 1), SIDE);
                        }
                    }
                    some => {
                        for k in 0..SIDE.min(height - i) {
                            for (at, column) in some.iter().enumerate() {
                                row(k).add(at).write(column.add(i + k).read());
                            }
                        }
                    }
                }
            }
        }
    }
}

/// [`transpose`] with a register for each column or row: interleaves pairs of columns, then pairs of pairs,
/// and then moves quarters of registers to their places.
///
/// # Safety
/// As [`transpose`].
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn transpose_avx512<const WHOLE: bool>(
    columns: [*const i32; TILE],
    [height, width]: [usize; 2],
    to: *mut i32,
    dr: isize,
) {
    use std::arch::x86_64::{
        _mm512_loadu_si512, _mm512_mask_storeu_epi32, _mm512_maskz_loadu_epi32, _mm512_setzero_si512,
        _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
        _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    };
    let first = |n: usize| ((1u32 << n) - 1) as u16;
    let mut a = [_mm512_setzero_si512(); TILE];
    for (j, column) in a.iter_mut().enumerate() {
        // SAFETY: `# Safety` gives `TILE` elements of each column with `WHOLE`; else a masked load reads only
        // the `height` elements that it gives.
        unsafe {
            if WHOLE {
                *column = _mm512_loadu_si512(columns[j].cast());
            } else if j < width {
                *column = _mm512_maskz_loadu_epi32(first(height), columns[j]);
            }
        }
    }
    let mut b = a;
    for i in (0..TILE).step_by(2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for i in (0..TILE).step_by(4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    // Even and odd quarters.
    const EVEN: i32 = 0x88;
    const ODD: i32 = 0xdd;
    for k in 0..4 {
        b[k] = _mm512_shuffle_i32x4::<EVEN>(a[k], a[k + 4]);
        b[k + 4] = _mm512_shuffle_i32x4::<ODD>(a[k], a[k + 4]);
        b[k + 8] = _mm512_shuffle_i32x4::<EVEN>(a[k + 8], a[k + 12]);
        b[k + 12] = _mm512_shuffle_i32x4::<ODD>(a[k + 8], a[k + 12]);
    }
    for k in 0..8 {
        a[k] = _mm512_shuffle_i32x4::<EVEN>(b[k], b[k + 8]);
        a[k + 8] = _mm512_shuffle_i32x4::<ODD>(b[k], b[k + 8]);
    }
    for (i, row) in a.iter().enumerate() {
        let to = to.wrapping_offset(i as isize * dr);
        // SAFETY: `# Safety` gives room for `TILE` elements in each row with `WHOLE`; else a masked store
        // writes only the `width` elements that it gives room for.
        unsafe {
            if WHOLE {
                _mm512_storeu_si512(to.cast(), *row);
            } else if i < height {
                _mm512_mask_storeu_epi32(to, first(width), *row);
            }
        }
    }
}

/// A copy of rows that are contiguous on both sides and so short that a `memcpy` call for each would take
/// longer than the copy.
struct ShortRows<T> {
    rows: usize,
    columns: usize,
    from: *const T,
    sr: isize,
    to: *mut T,
    dr: isize,
}

impl<T: Copy> Job for ShortRows<T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for r in 0..self.rows as isize {
            let (from, to) = (self.from.wrapping_offset(r * self.sr), self.to.wrapping_offset(r * self.dr));
            let mut done = 0;
            // SAFETY: both sides have `columns` elements in each row, within memory that the caller of
            // `block` or `copy` holds; `done` + `$n` is at most `columns`.
            unsafe {
                macro_rules! pieces {
                    ($n:expr) => {
                        while self.columns - done >= $n {
                            let piece = from.add(done).cast::<[T; $n]>().read_unaligned();
                            to.add(done).cast::<[T; $n]>().write_unaligned(piece);
                            done += $n;
                        }
                    };
                }
                pieces!(TILE);
                pieces!(4);
                pieces!(1);
            }
        }
    }
}

/// A copy of rows with so few columns that a tile would be mostly empty.
struct NarrowRows<T> {
    rows: usize,
    columns: usize,
    from: *const T,
    sr: isize,
    sc: isize,
    to: *mut T,
    dr: isize,
    dc: isize,
}

impl<T: Copy> Job for NarrowRows<T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for c in 0..self.columns as isize {
            let (from, to) = (self.from.wrapping_offset(c * self.sc), self.to.wrapping_offset(c * self.dc));
            for r in 0..self.rows as isize {
                // SAFETY: r and c are below their counts: a position in memory that `copy`'s caller holds.
                unsafe { to.wrapping_offset(r * self.dr).write(from.wrapping_offset(r * self.sr).read()) };
            }
        }
    }
}

/// A copy of rows of `C` columns between an interleaved side, where rows follow each other without gaps,
/// and a side where each column is contiguous and the columns are `apart` elements apart. Non-overlapping
/// windows need such copies.
struct Interleave<T, const C: usize> {
    rows: usize,
    from: *const T,
    to: *mut T,
    apart: isize,
    /// Whether `from` is the interleaved side.
    split: bool,
}

impl<T: Copy, const C: usize> Job for Interleave<T, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        // SAFETY: `interleaved` checked this form of the plane: `rows` rows of `C` columns are within the
        // memory of both sides, which do not overlap.
        unsafe {
            if self.split {
                let columns: [*mut T; C] = from_fn(|c| self.to.wrapping_offset(c as isize * self.apart));
                for r in 0..self.rows {
                    for (c, column) in columns.iter().enumerate() {
                        column.add(r).write(self.from.add(r * C + c).read());
                    }
                }
            } else {
                let columns: [*const T; C] = from_fn(|c| self.from.wrapping_offset(c as isize * self.apart));
                for r in 0..self.rows {
                    for (c, column) in columns.iter().enumerate() {
                        self.to.add(r * C + c).write(column.add(r).read());
                    }
                }
            }
        }
    }
}

impl<T: Copy + Default> Plane<T> {
    /// Copies with a loop for two to four columns that are interleaved on one side. Returns false if the
    /// copy does not have this form.
    fn interleaved(&self) -> bool {
        let columns = self.columns as isize;
        let merges = self.sr == 1 && self.dc == 1 && self.dr == columns;
        let split = self.dr == 1 && self.sc == 1 && self.sr == columns;
        if !merges && !split {
            return false;
        }
        macro_rules! go {
            ($c:literal) => {{
                let from = self.from.wrapping_offset(self.rows.start as isize * self.sr);
                let to = self.to.wrapping_offset(self.rows.start as isize * self.dr);
                let apart = if split { self.dc } else { self.sc };
                self.isa.run(Interleave::<T, $c> { rows: self.rows.len(), from, to, apart, split });
                true
            }};
        }
        match self.columns {
            2 => go!(2),
            3 => go!(3),
            4 => go!(4),
            _ => false,
        }
    }
}

/// Copies a block of `rows` rows and `columns` columns on the calling thread. Strides are row stride and
/// column stride.
///
/// # Safety
/// Every position of both is within memory that the caller holds: `from` for reading, `to` for writing.
/// They do not overlap, and no two positions of `to` are the same element.
pub(crate) unsafe fn block<T: Copy + Default>(
    isa: Isa,
    [rows, columns]: [usize; 2],
    from: *const T,
    [sr, sc]: [isize; 2],
    to: *mut T,
    [dr, dc]: [isize; 2],
) {
    if sc == 1 && dc == 1 && columns <= LONG_ROW_ELEMENTS {
        isa.run(ShortRows { rows, columns, from, sr, to, dr });
    } else if sc == 1 && dc == 1 {
        for r in 0..rows as isize {
            // SAFETY: `# Safety` gives `columns` elements, side by side, in row r < rows of both sides, which
            // do not overlap.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.wrapping_offset(r * sr),
                    to.wrapping_offset(r * dr),
                    columns,
                );
            }
        }
    } else {
        isa.run(Plane { isa, rows: 0..rows, columns, from, sr, sc, to, dr, dc });
    }
}

/// Copies `shape` elements from `src` to `dst`, both given by the address of their first element and their
/// strides.
///
/// # Safety
/// Every position of both is within memory that the caller holds: `src` for reading, `dst` for writing.
/// They do not overlap, and no two positions of `dst` are the same element.
pub(crate) unsafe fn copy<T: Copy + Default + Send + Sync>(
    isa: Isa,
    shape: &[usize],
    src: *const T,
    src_strides: &[isize],
    dst: *mut T,
    dst_strides: &[isize],
) {
    let Collapsed { shape: dims, strides } = collapse(shape, &[src_strides, dst_strides]);
    let (from, to) = (Shared(src.cast_mut()), Shared(dst));
    let numel: usize = dims.iter().product();
    if numel == 0 {
        return;
    }
    let (src_strides, dst_strides) = (strides[0].as_slice(), strides[1].as_slice());
    let inner = match dims.len() {
        0 => 0,
        1 => 1,
        // Contiguous rows are copied, or filled with one element.
        n if matches!(src_strides[n - 1], 0 | 1)
            && dst_strides[n - 1] == 1
            && dims[n - 1] > LONG_ROW_ELEMENTS =>
        {
            1
        }
        _ => 2,
    };
    let outer = dims.len() - inner;
    let (head, tail) = dims.split_at(outer);
    let blocks: usize = head.iter().product();
    // Copies one block of the innermost one or two axes, at the position given by the outer axes; `rows` is
    // the part of its rows.
    let block: &(dyn Fn(usize, Range<usize>) + Sync) = &|b, rows| {
        let (mut s, mut d, mut rest) = (0isize, 0isize, b);
        for axis in (0..outer).rev() {
            let i = (rest % head[axis]) as isize;
            rest /= head[axis];
            s += i * src_strides[axis];
            d += i * dst_strides[axis];
        }
        // SAFETY: `b` and `rows` select positions of the shape, which are within both sides, apart, by
        // `# Safety`; calls at the same time have other blocks or rows, and positions of `dst` are distinct.
        unsafe {
            match tail {
                [] => to.at(d).write(from.at(s).read()),
                [_] => {
                    let (ss, ds) = (src_strides[outer], dst_strides[outer]);
                    let (s, d) = (s + rows.start as isize * ss, d + rows.start as isize * ds);
                    if ss == 1 && ds == 1 {
                        std::ptr::copy_nonoverlapping(from.at(s).cast_const(), to.at(d), rows.len());
                    } else if ss == 0 && ds == 1 {
                        std::slice::from_raw_parts_mut(to.at(d), rows.len()).fill(from.at(s).read());
                    } else {
                        (0..rows.len() as isize)
                            .for_each(|i| to.at(d + i * ds).write(from.at(s + i * ss).read()));
                    }
                }
                _ => {
                    let columns = tail[1];
                    let (sr, sc) = (src_strides[outer], src_strides[outer + 1]);
                    let (dr, dc) = (dst_strides[outer], dst_strides[outer + 1]);
                    let (from, to) = (from.at(s).cast_const(), to.at(d));
                    if sc == 1 && dc == 1 {
                        let skip = rows.start as isize;
                        let (from, to) = (from.wrapping_offset(skip * sr), to.wrapping_offset(skip * dr));
                        isa.run(ShortRows { rows: rows.len(), columns, from, sr, to, dr });
                        return;
                    }
                    if columns < TILE_MIN_COLUMNS && dr.unsigned_abs() > columns {
                        let (from, to) = (
                            from.wrapping_offset(rows.start as isize * sr),
                            to.wrapping_offset(rows.start as isize * dr),
                        );
                        isa.run(NarrowRows { rows: rows.len(), columns, from, sr, sc, to, dr, dc });
                        return;
                    }
                    let plane = Plane { isa, rows: rows.clone(), columns, from, sr, sc, to, dr, dc };
                    if !plane.interleaved() {
                        isa.run(plane);
                    }
                }
            }
        }
    };
    let rows = tail.first().copied().unwrap_or(1);
    if numel < SERIAL_STEPS || threads::available() == 1 {
        (0..blocks).for_each(|b| block(b, 0..rows));
    } else if blocks > 1 {
        let piece = (SERIAL_STEPS * blocks / numel / 4).max(blocks / (threads::available() * 16)).max(1);
        threads::share(blocks.div_ceil(piece), |i| {
            (i * piece..blocks.min((i + 1) * piece)).for_each(|b| block(b, 0..rows));
        });
    } else {
        threads::share_ranges(rows, TILE, |some| block(0, some));
    }
}
