//! A product of two matrices of bf16 on one thread, with sums in f32, where the processor multiplies
//! [pairs](Pairs) of terms.
//!
//! Both operands are packed into [strips](super::kernel) of tiles, with zeros past their terms, rows
//! and columns: some columns of the right one into the second-level cache, then two strips of rows at a
//! time. A block of their terms stays in the first-level cache while the columns stream by. Sums of two
//! strips of rows wait in a scratch, and are rounded once.
//!
//! The blocks of terms depend on their number alone: however a result is cut among threads, its bits are the
//! same.
#![allow(unsafe_code)]

use std::{
    arch::x86_64::{
        _mm256_loadu_si256, _mm512_cvtepu16_epi32, _mm512_or_si512, _mm512_slli_epi32, _mm512_storeu_si512,
    },
    ops::Range,
};

use smallvec::SmallVec;
use tensor_core::{Result, bf16};

use super::{
    super::{
        epilogue::Finish,
        gemm::{Finished, with_packed},
        operands::{Steps, Strided},
    },
    kernel::{Block, STRIP, TERMS, TILE, WIDTH},
};
use crate::{
    elementwise::engine::Evaluator,
    memory::strided,
    simd::{bf16::Pairs, isa::Isa},
    threads,
    tuning::{BF16_KC_TERMS, CACHED_RESULTS, bf16_columns_bytes},
};

/// Tiles of terms that are worked through at once: two strips of rows are a third of the first-level cache.
const AT_ONCE: usize = 8;
/// The most strips of columns that are packed at once.
const MOST_STRIPS: usize = 64;
/// By how many strips a group may be larger than its share: groups begin at even ones.
const GROUP_EXCESS_STRIPS: usize = 2;
/// Bytes between strips, so that their tiles are not all in the same sets of the first-level cache.
const STRIP_GAP_BYTES: usize = 64;
/// Rows and columns that are worked through together; rectangles had best begin at their multiples.
pub(crate) const UNIT: usize = 2 * STRIP;

/// Where sums go: rows are contiguous, and follow each other.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// To sums in f32, for an epilogue or for more blocks of terms.
    Sums(*mut f32),
    /// Rounded.
    Rounded(*mut bf16),
}

/// As [`Product`](super::super::gemm::Product), of bf16.
#[derive(Clone, Copy)]
pub(crate) struct Bf16Product<'a> {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Strided<'a, bf16>,
    pub(crate) b: Strided<'a, bf16>,
    pub(crate) to: Target,
}

/// An estimate of the time that a rectangle takes: whole strips, and copies of both operands.
pub(crate) fn cost(rows: usize, columns: usize) -> usize {
    columns.next_multiple_of(UNIT) * (rows.next_multiple_of(UNIT) + 2 * UNIT) + UNIT * rows
}

impl Bf16Product<'_> {
    /// Forms a rectangle of the result, and finishes it.
    ///
    /// # Errors
    /// The errors of `finish`.
    ///
    /// # Safety
    /// The operands have these rows and columns, whose `k` terms are initialised. The result's elements of
    /// the rectangle can be written, no other thread reads or writes them, and they do not overlap the
    /// operands. More than [`BF16_KC_TERMS`] terms, and what is finished, go to sums.
    pub(crate) unsafe fn run(
        &self,
        isa: Isa,
        pairs: Pairs,
        rows: Range<usize>,
        columns: Range<usize>,
        finish: Option<Finish<'_>>,
    ) -> Result<()> {
        if rows.is_empty() || columns.is_empty() {
            return Ok(());
        }
        let blocks = self.k.div_ceil(BF16_KC_TERMS).max(1);
        let longest = (0..blocks).map(|i| self.terms(blocks, i).len()).max().unwrap_or(0).div_ceil(TERMS);
        let strip = longest * TILE + STRIP_GAP_BYTES;
        let strips = columns.len().div_ceil(STRIP);
        let most = (bf16_columns_bytes() / strip / 2 * 2).clamp(2, MOST_STRIPS - GROUP_EXCESS_STRIPS);
        let groups = strips.div_ceil(most);
        // Whole pairs of strips, but for the last.
        let group = |i: usize| threads::part(strips, 2, groups, i);
        let widest = (0..groups).map(|i| group(i).len()).max().unwrap_or(0);
        let scratch = widest.div_ceil(2) * UNIT * WIDTH * size_of::<f32>();
        let macro_kernel = MacroKernel { product: self, isa, pairs, strip };
        let form = |finish: Finished<'_>| {
            with_packed::<u8, _>((widest + 2) * strip + scratch, |packed| {
                let place = Place {
                    columns: packed,
                    rows: packed.wrapping_add(widest * strip),
                    sums: packed.wrapping_add((widest + 2) * strip).cast(),
                };
                pairs.with_tiles(|| {
                    for i in 0..blocks {
                        for g in 0..groups {
                            let strips = group(g);
                            let some = columns.start + strips.start * STRIP
                                ..columns.end.min(columns.start + strips.end * STRIP);
                            let mut none = |_: Range<usize>, _: &Range<usize>| Ok(());
                            let finish: Finished<'_> = if i + 1 == blocks { &mut *finish } else { &mut none };
                            // SAFETY: the rectangle is as `# Safety` asks, and tiles are
                            // in place. `place` has room for the widest group's strips,
                            // two strips of rows, and the sums of both.
                            unsafe {
                                macro_kernel.group(&place, self.terms(blocks, i), &rows, some, finish)?
                            };
                        }
                    }
                    Ok(())
                })
            })
        };
        match finish {
            None => form(&mut |_, _| Ok(())),
            Some(finish) => finish.epilogue.with(|evaluator: &mut Evaluator<'_>| {
                form(&mut |rows, columns| finish.rectangle(evaluator, self.n, rows, columns))
            }),
        }
    }

    /// The terms of block `i`.
    fn terms(&self, blocks: usize, i: usize) -> Range<usize> {
        threads::part(self.k, TERMS, blocks, i)
    }
}

/// The addresses of packed strips and of sums.
struct Place {
    columns: *mut u8,
    rows: *mut u8,
    sums: *mut f32,
}

struct MacroKernel<'a> {
    product: &'a Bf16Product<'a>,
    isa: Isa,
    pairs: Pairs,
    /// Bytes from strip to strip.
    strip: usize,
}

impl MacroKernel<'_> {
    /// Adds a block of terms to some columns, and calls `finish` with rows that are through.
    ///
    /// # Safety
    /// As [`Bf16Product::run`], within [`Pairs::with_tiles`]. The place has room for the columns' strips, at
    /// most [`MOST_STRIPS`] of them, for two strips of rows, and for their sums.
    unsafe fn group(
        &self,
        place: &Place,
        terms: Range<usize>,
        rows: &Range<usize>,
        columns: Range<usize>,
        finish: Finished<'_>,
    ) -> Result<()> {
        let (p, strip) = (self.product, self.strip);
        let (left, right) = (
            Side { at: p.a.at, term: p.a.column, other: p.a.row, strip, isa: self.isa },
            Side { at: p.b.at, term: p.b.row, other: p.b.column, strip, isa: self.isa },
        );
        // SAFETY: `place.columns` has room for the columns' strips, by `# Safety`. `Pairs` imply AVX-512.
        unsafe { right.pack_columns(&terms, &columns, place.columns) };
        let tiles = terms.len().div_ceil(TERMS);
        let mut unfinished = rows.start;
        for first in rows.clone().step_by(UNIT) {
            let some = first..rows.end.min(first + UNIT);
            // SAFETY: `UNIT` rows are two strips, for which `place.rows` has room by
            // `# Safety`; `Pairs` imply AVX-512. Each block has at least one tile of the strips
            // that were packed, and sums of its own in `place`.
            unsafe {
                left.pack_rows(&terms, &some, place.rows);
                for tile in (0..tiles).step_by(AT_ONCE) {
                    let end = tiles.min(tile + AT_ONCE);
                    for (i, first) in columns.clone().step_by(UNIT).enumerate() {
                        let these = first..columns.end.min(first + UNIT);
                        let strips = [&some, &these].map(|range| range.len().div_ceil(STRIP));
                        let pair_of = |at: *mut u8| [at.cast_const(), at.wrapping_add(strip).cast_const()];
                        let block = Block {
                            tiles: end - tile,
                            a: pair_of(place.rows.wrapping_add(tile * TILE)),
                            b: pair_of(place.columns.wrapping_add(2 * i * strip + tile * TILE)),
                            sums: place.sums.wrapping_add(i * UNIT * WIDTH),
                            add: tile > 0,
                        };
                        self.pairs.run(strips[0], strips[1], &block);
                        if end == tiles {
                            self.store(block.sums, &some, &these, terms.start > 0);
                        }
                    }
                }
            }
            if (some.end - unfinished) * columns.len() >= CACHED_RESULTS || some.end == rows.end {
                finish(unfinished..some.end, &columns)?;
                unfinished = some.end;
            }
        }
        Ok(())
    }

    /// Stores the sums of a few rows and columns, or adds them to what is there.
    ///
    /// # Safety
    /// As [`Bf16Product::run`]; `sums` has rows of [`WIDTH`] for these rows,
    /// and there are no more columns than that.
    unsafe fn store(&self, sums: *const f32, rows: &Range<usize>, columns: &Range<usize>, add: bool) {
        for (r, row) in rows.clone().enumerate() {
            let at = row * self.product.n + columns.start;
            // SAFETY: `sums` has a row of at least as many numbers as there are columns, and the result has
            // these elements, by `# Safety`; `Pairs` imply AVX-512.
            unsafe {
                let sums = std::slice::from_raw_parts(sums.add(r * WIDTH), columns.len());
                match self.product.to {
                    Target::Sums(to) => {
                        let to = std::slice::from_raw_parts_mut(to.add(at), columns.len());
                        match add {
                            true => to.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum),
                            false => to.copy_from_slice(sums),
                        }
                    }
                    Target::Rounded(to) => {
                        round(sums, std::slice::from_raw_parts_mut(to.add(at), columns.len()))
                    }
                }
            }
        }
    }
}

/// Rounds to nearest, ties to even; NaN stays NaN.
///
/// # Safety
/// The processor has AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn round(from: &[f32], to: &mut [bf16]) {
    for (from, to) in from.iter().zip(to) {
        let bits = from.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        *to = bf16::from_bits(if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded } as u16);
    }
}

/// An operand as it is packed: terms, and rows or columns.
struct Side<'a> {
    at: *const bf16,
    term: Steps<'a>,
    other: Steps<'a>,
    strip: usize,
    isa: Isa,
}

/// Positions that are contiguous: the first of them, how many, and the distance of the first.
type Run = (usize, usize, isize);

/// The runs of some positions.
fn runs(steps: Steps<'_>, range: Range<usize>) -> SmallVec<[Run; 4]> {
    if steps.even() == Some(1) {
        return SmallVec::from_slice(&[(0, range.len(), range.start as isize)]);
    }
    let mut all: SmallVec<[Run; 4]> = SmallVec::new();
    for (i, position) in range.enumerate() {
        let offset = steps.at(position);
        match all.last_mut() {
            Some((_, n, first)) if *first + *n as isize == offset => *n += 1,
            Some(_) | None => all.push((i, 1, offset)),
        }
    }
    all
}

/// How long the runs of some positions are, about.
fn run_length(steps: Steps<'_>, range: &Range<usize>) -> usize {
    let sample = range.start..range.end.min(range.start + 4 * TERMS);
    sample.len() / runs(steps, sample.clone()).len().max(1)
}

/// Sixteen positions of 32 terms, or 32 terms of sixteen positions.
type Lines<const N: usize, const M: usize> = [[bf16; N]; M];

impl Side<'_> {
    /// Whether terms rather than rows or columns are contiguous.
    fn along_terms(&self, terms: &Range<usize>, others: &Range<usize>) -> bool {
        run_length(self.term, terms) >= run_length(self.other, others).min(STRIP)
    }

    /// Packs columns: in each tile a pair's 16 columns side by side.
    ///
    /// # Safety
    /// These terms of the columns can be read; `to` has room for their strips, at most [`MOST_STRIPS`] of
    /// them, and is apart from them. The processor has AVX-512.
    unsafe fn pack_columns(&self, terms: &Range<usize>, columns: &Range<usize>, to: *mut u8) {
        let tiles = terms.len().div_ceil(TERMS);
        // SAFETY: terms and columns are some of those of `# Safety`; `lines` has room for the `n` tiles of a
        // strip's columns, and `to` for each tile of each strip.
        unsafe {
            if !self.along_terms(terms, columns) {
                return self.zip_columns(terms, columns, to);
            }
            // Some tiles at a time, for longer runs.
            let mut lines: [Lines<TERMS, STRIP>; AT_ONCE] = [[[bf16::ZERO; TERMS]; STRIP]; AT_ONCE];
            for (s, first) in columns.clone().step_by(STRIP).enumerate() {
                let some = first..columns.end.min(first + STRIP);
                for tile in (0..tiles).step_by(AT_ONCE) {
                    let n = AT_ONCE.min(tiles - tile);
                    let these = terms.start + tile * TERMS..terms.end.min(terms.start + (tile + n) * TERMS);
                    self.lines(&these, &some, lines.as_mut_ptr().cast());
                    for (i, lines) in lines[..n].iter().enumerate() {
                        let to = to.add(s * self.strip + (tile + i) * TILE);
                        self.transpose(lines.as_ptr().cast(), to.cast());
                    }
                }
            }
        }
    }

    /// Packs up to two strips of rows: in each tile a row's 16 pairs side by side.
    ///
    /// # Safety
    /// These terms of at most two strips of rows can be read; `to` has room for their strips, and is apart
    /// from them. The processor has AVX-512.
    unsafe fn pack_rows(&self, terms: &Range<usize>, rows: &Range<usize>, to: *mut u8) {
        let along = self.along_terms(terms, rows);
        let tiles = terms.len().div_ceil(TERMS);
        // SAFETY: terms and rows are some of those of `# Safety`; `tile` has room for a tile of each of two
        // strips, and `to` for each tile of each strip.
        unsafe {
            if along {
                for (s, first) in rows.clone().step_by(STRIP).enumerate() {
                    let some = first..rows.end.min(first + STRIP);
                    self.lines(terms, &some, to.add(s * self.strip));
                }
                return;
            }
            let mut tile = [[0u8; TILE]; 2];
            let apart = Side { strip: TILE, ..*self };
            for t in 0..tiles {
                let some = terms.start + t * TERMS..terms.end.min(terms.start + (t + 1) * TERMS);
                apart.zip_columns(&some, rows, tile.as_mut_ptr().cast());
                for (s, tile) in tile[..rows.len().div_ceil(STRIP)].iter().enumerate() {
                    self.transpose(tile.as_ptr().cast(), to.add(s * self.strip + t * TILE).cast());
                }
            }
        }
    }

    /// Sixteen lines of 32 terms each for every tile: one for each position, and zeros past them.
    ///
    /// # Safety
    /// These terms of the positions, at most [`STRIP`] of them, can be read; `to` has room for the tiles, and
    /// is aligned for bf16 and apart from them.
    unsafe fn lines(&self, terms: &Range<usize>, others: &Range<usize>, to: *mut u8) {
        let tiles = terms.len().div_ceil(TERMS);
        let line = TERMS * size_of::<bf16>();
        // SAFETY: each position has a line in each tile, of `TERMS` elements: its terms, which can be read by
        // `# Safety`, and zeros; the lines after the last position fill the tile.
        unsafe {
            if self.term.even() == Some(1) {
                let whole = terms.len() / TERMS;
                for (r, other) in others.clone().enumerate() {
                    let from = self.at.wrapping_offset(self.other.at(other)).wrapping_add(terms.start);
                    for t in 0..whole {
                        let line = from.add(t * TERMS).cast::<[u64; 8]>().read_unaligned();
                        to.add(t * TILE + r * size_of_val(&line)).cast::<[u64; 8]>().write_unaligned(line);
                    }
                    if whole < tiles {
                        let last = to.add(whole * TILE + r * line).cast::<bf16>();
                        let n = terms.len() - whole * TERMS;
                        std::ptr::copy_nonoverlapping(from.add(whole * TERMS), last, n);
                        std::slice::from_raw_parts_mut(last.add(n), TERMS - n).fill(bf16::ZERO);
                    }
                }
            } else {
                for t in 0..tiles {
                    let some = terms.start + t * TERMS..terms.end.min(terms.start + (t + 1) * TERMS);
                    let runs = runs(self.term, some.clone());
                    for (r, other) in others.clone().enumerate() {
                        let from = self.at.wrapping_offset(self.other.at(other));
                        let to = to.add(t * TILE + r * line).cast::<bf16>();
                        copy_runs(&runs, from, to);
                        std::slice::from_raw_parts_mut(to.add(some.len()), TERMS - some.len())
                            .fill(bf16::ZERO);
                    }
                }
            }
            for t in 0..tiles {
                let to = to.add(t * TILE + others.len() * line);
                to.write_bytes(0, (STRIP - others.len()) * line);
            }
        }
    }

    /// Tiles from terms whose positions are contiguous: the elements of two terms are put into pairs, with
    /// zeros past them.
    ///
    /// # Safety
    /// These terms of the columns can be read; `to` has room for their strips, at most [`MOST_STRIPS`] of
    /// them, and is apart from them. The processor has AVX-512.
    unsafe fn zip_columns(&self, terms: &Range<usize>, columns: &Range<usize>, to: *mut u8) {
        let strips = columns.len().div_ceil(STRIP);
        let runs = runs(self.other, columns.clone());
        let mut copies: [Lines<STRIP, MOST_STRIPS>; 2] = [[[bf16::ZERO; STRIP]; MOST_STRIPS]; 2];
        let mut next = terms.clone();
        for pair in 0..terms.len().div_ceil(TERMS) * STRIP {
            // Where two terms' elements are contiguous in memory, the strips that are whole are read there.
            let mut rows = [std::ptr::null(); 2];
            let mut whole = 0;
            for (row, copy) in rows.iter_mut().zip(&mut copies) {
                let copy = copy.as_mut_ptr().cast::<bf16>();
                *row = copy.cast_const();
                // SAFETY: the runs are of the columns, which can be read for this term by `# Safety`; `copy`
                // has room for `MOST_STRIPS` strips, and there are no more.
                unsafe {
                    match (next.next(), runs.as_slice()) {
                        (Some(term), &[(_, n, first)]) => {
                            let from = self.at.wrapping_offset(self.term.at(term) + first);
                            whole = n / STRIP;
                            *row = from;
                            let tail = whole * STRIP;
                            std::ptr::copy_nonoverlapping(from.wrapping_add(tail), copy.add(tail), n - tail);
                        }
                        (Some(term), _) => {
                            copy_runs(&runs, self.at.wrapping_offset(self.term.at(term)), copy);
                        }
                        (None, _) => {
                            copy.write_bytes(0, strips * STRIP);
                            // Both rows are read where they were copied to.
                            *row = copy.cast_const();
                        }
                    }
                }
            }
            let copied: [*const bf16; 2] = copies.each_ref().map(|copy| copy.as_ptr().cast());
            let to = to.wrapping_add(pair * 64);
            // SAFETY: the first `whole` strips are in memory, and the others in the copies, with zeros past
            // the last column; `# Safety` gives `to` room for a line of each, and the processor AVX-512.
            unsafe {
                zip(rows, to, self.strip, 0..whole);
                zip(copied, to, self.strip, whole..strips);
            }
        }
    }

    /// A tile of 16 lines of 16 pairs, or of pairs' lines, the other way round.
    ///
    /// # Safety
    /// Both are whole tiles and do not overlap.
    unsafe fn transpose(&self, from: *const u32, to: *mut u32) {
        let side = STRIP as isize;
        // SAFETY: both are whole tiles by `# Safety`, and `block` moves those by unaligned loads and stores.
        unsafe { strided::block(self.isa, [STRIP, STRIP], from, [1, side], to, [side, 1]) };
    }
}

/// # Safety
/// The elements of each run can be read, at its distance from `from`; `to` has room for them at their
/// positions, and is apart from them.
unsafe fn copy_runs(runs: &[Run], from: *const bf16, to: *mut bf16) {
    for &(at, n, offset) in runs {
        // SAFETY: by `# Safety`, the run's `n` elements can be read, and `n` written from position `at` on.
        unsafe { std::ptr::copy_nonoverlapping(from.wrapping_offset(offset), to.add(at), n) };
    }
}

/// Writes the elements of two rows of some strips side by side.
///
/// # Safety
/// Both rows hold the strips, and `to` has room for a line of each. The processor has AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn zip(rows: [*const bf16; 2], to: *mut u8, apart: usize, strips: Range<usize>) {
    for s in strips {
        // SAFETY: both rows hold strip `s`, `to` has a line for it, and
        // the processor has AVX-512, by `# Safety`.
        unsafe {
            let [low, high] =
                rows.map(|row| _mm512_cvtepu16_epi32(_mm256_loadu_si256(row.add(s * STRIP).cast())));
            let both = _mm512_or_si512(low, _mm512_slli_epi32::<16>(high));
            _mm512_storeu_si512(to.add(s * apart).cast(), both);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::simd::bf16::Bf16;

    fn numbers(n: usize, mut seed: u64) -> Vec<bf16> {
        (0..n)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                bf16::from_f64((seed >> 40) as f64 / (1 << 24) as f64 - 0.5)
            })
            .collect()
    }

    /// Distances of `n` positions: side by side, apart, backwards, or in runs of seven.
    enum Way {
        Even(isize),
        Table(Vec<isize>),
    }

    impl Way {
        fn steps(&self) -> Steps<'_> {
            match self {
                Way::Even(step) => Steps::Even(*step),
                Way::Table(table) => Steps::Table(table),
            }
        }
    }

    /// An operand's ways along rows and columns, the index of its first element, and how many elements
    /// there are.
    fn ways(way: usize, rows: usize, columns: usize) -> (Way, Way, usize, usize) {
        let (r, c) = (rows as isize, columns as isize);
        let windows = |n: usize| (0..n).map(|i| (i / 7 * 9 + i % 7) as isize).collect::<Vec<_>>();
        match way {
            0 => (Way::Even(c), Way::Even(1), 0, rows * columns),
            1 => (Way::Even(1), Way::Even(r), 0, rows * columns),
            2 => (Way::Even(-c - 3), Way::Even(-1), rows * (columns + 3), rows * (columns + 3) + 1),
            3 => (Way::Even(2 * c + 1), Way::Even(2), 0, rows * (2 * columns + 1)),
            4 => (Way::Even(2 * c), Way::Table(windows(columns)), 0, rows * 2 * columns + columns + 9),
            _ => (Way::Table(windows(rows)), Way::Even(2 * r), 0, columns * 2 * rows + rows + 9),
        }
    }

    fn forms() -> Vec<(Isa, Pairs)> {
        let all = Isa::available().into_iter();
        all.flat_map(|isa| {
            Bf16::available(isa).into_iter().filter_map(move |form| Some((isa, form.pairs()?)))
        })
        .collect()
    }

    /// Each form against sums in f64, with operands in every way; and the same bits in pieces, and as a
    /// rounded result.
    #[test]
    fn sums_are_right_and_the_same_in_pieces() {
        let forms = forms();
        if forms.is_empty() {
            eprintln!("this processor multiplies no pairs of bf16: products are widened");
        }
        let shapes = [
            (2, 2, 1),
            (3, 5, 7),
            (16, 16, 32),
            (33, 40, 31),
            (70, 17, 300),
            (50, 1090, 65),
            (5, 9, BF16_KC_TERMS + 50),
        ];
        for (isa, pairs) in forms {
            for (m, n, k) in shapes {
                for way in 0..36 {
                    if k > BF16_KC_TERMS && way % 7 != 0 {
                        continue;
                    }
                    let (ar, ac, a0, a_len) = ways(way / 6, m, k);
                    let (br, bc, b0, b_len) = ways(way % 6, k, n);
                    let (a, b) = (numbers(a_len, 1), numbers(b_len, 2));
                    let of = |to| Bf16Product {
                        n,
                        k,
                        a: Strided { at: a[a0..].as_ptr(), row: ar.steps(), column: ac.steps() },
                        b: Strided { at: b[b0..].as_ptr(), row: br.steps(), column: bc.steps() },
                        to,
                    };
                    let (mut sums, mut cut) = (vec![f32::NAN; m * n], vec![f32::NAN; m * n]);
                    let (whole, pieces) =
                        (of(Target::Sums(sums.as_mut_ptr())), of(Target::Sums(cut.as_mut_ptr())));
                    // SAFETY: every index is below the vectors' lengths.
                    unsafe { whole.run(isa, pairs, 0..m, 0..n, None) }.unwrap();
                    for rows in [0..m / 3, m / 3..m] {
                        for columns in [0..n / 2, n / 2..n] {
                            // SAFETY: every index is within its vector, and `cut` has `m * n` elements.
                            unsafe { pieces.run(isa, pairs, rows.clone(), columns, None) }.unwrap();
                        }
                    }
                    assert!(
                        sums.iter().zip(&cut).all(|(x, y)| x.to_bits() == y.to_bits()),
                        "{pairs:?} {m} {n} {k} way {way}: another sum in pieces"
                    );
                    if k <= BF16_KC_TERMS {
                        let mut rounded = vec![bf16::NAN; m * n];
                        let whole = of(Target::Rounded(rounded.as_mut_ptr()));
                        // SAFETY: every index is within its vector, and `rounded` has `m * n` elements.
                        unsafe { whole.run(isa, pairs, 0..m, 0..n, None) }.unwrap();
                        assert!(rounded.iter().zip(&sums).all(|(&x, &sum)| x == bf16::from_f32(sum)));
                    }
                    for i in 0..m {
                        for j in (i % 7..n).step_by(if n > 100 { 97 } else { 7 }) {
                            let (mut sum, mut size) = (0.0, 0.0);
                            for x in 0..k {
                                let at = |first: usize, offset: isize| (first as isize + offset) as usize;
                                let left = a[at(a0, ar.steps().at(i) + ac.steps().at(x))].to_f64();
                                let right = b[at(b0, br.steps().at(x) + bc.steps().at(j))].to_f64();
                                sum += left * right;
                                size += (left * right).abs();
                            }
                            let got = f64::from(sums[i * n + j]);
                            let bound = size * f64::from(f32::EPSILON) * (k as f64).sqrt().max(2.0);
                            assert!(
                                (got - sum).abs() <= bound,
                                "{pairs:?} {m} {n} {k} way {way} at {i}, {j}: {got}, not {sum}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Infinities and NaN pass, and padding adds nothing to them; denormal terms are zero.
    #[test]
    fn special_numbers_pass() {
        for (isa, pairs) in forms() {
            let a = [1.0, f32::INFINITY, 0.0, f32::NAN, 1e-39, 1.0].map(bf16::from_f32);
            let b = [2.0, 1.0, 1.0, 0.0, 1.0, 0.0].map(bf16::from_f32);
            let mut out = [bf16::ZERO; 6];
            let even = |at: &[bf16], row, column| Strided {
                at: at.as_ptr(),
                row: Steps::Even(row),
                column: Steps::Even(column),
            };
            // Three rows of two terms, and two columns.
            let product = Bf16Product {
                n: 2,
                k: 2,
                a: even(&a, 2, 1),
                b: even(&b[..4], 2, 1),
                to: Target::Rounded(out.as_mut_ptr()),
            };
            // SAFETY: all elements are in the arrays.
            unsafe { product.run(isa, pairs, 0..3, 0..2, None) }.unwrap();
            let got = out.map(bf16::to_f32);
            assert_eq!(got[0], f32::INFINITY, "{pairs:?}");
            assert!(got[1].is_nan() && got[2].is_nan() && got[3].is_nan(), "{pairs:?} {got:?}");
            // 1e-39 · 2 + 1 · 1, and 1e-39 · 1 + 1 · 0.
            assert_eq!(got[4..], [1.0, 0.0], "{pairs:?}");
        }
    }
}
