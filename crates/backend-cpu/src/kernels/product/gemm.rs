//! A product of two matrices on one thread: cut into blocks of KC terms, each into panels of columns, and
//! those into micro-tiles.
//!
//! A panel of the right operand is read again for every few rows, so panels are packed into the order that
//! they are read in, as many as the second-level cache holds, unless there are too few rows to pay for it.
//! The left operand is mostly read in place: a few of its rows stay in the first-level cache while panel
//! after panel streams by.
//!
//! An element is the sum of its blocks, each the sum of its terms in order, and the blocks depend on the
//! number of terms alone: however a result is cut among threads, its bits are the same.
#![allow(unsafe_code)]

use std::{borrow::Cow, cell::RefCell, ops::Range};

use smallvec::SmallVec;
use tensor_core::Result;

use super::{
    epilogue::Finish,
    kernel_table::{HasMicroKernels, MicroKernels},
    micro_kernel::MicroTile,
    operands::{MAX_MR, MAX_REGISTERS, Matrix, Panels, Steps, Strided, Update, WIDEST},
    tables,
    windows::Windows,
};
use crate::{
    elementwise::engine::Evaluator,
    forms::Special,
    memory::strided,
    simd::{cache::prefetch, isa::Isa},
    threads,
    tuning::{
        CACHED_RESULTS, CLOSE_ROW_BYTES, FINISHED_COLUMNS, IN_PLACE_MAX_ROWS, IN_PLACE_MAX_ROWS_CLOSE,
        KC_BYTES, PACK_LHS_MIN_PANELS, panels_bytes, window_panels_bytes,
    },
};

/// The operands and the result of matrices with `k` terms an element; the result's columns are contiguous,
/// its rows `to_row` apart.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a, T> {
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Strided<'a, T>,
    pub(crate) b: Strided<'a, T>,
    pub(crate) to: *mut T,
    pub(crate) to_row: usize,
    /// The result of [`Product::prepare`], for callers that form whole products.
    pub(crate) prepared: Option<&'a Prepared<T>>,
    /// How [`Product::run`] stores the sums; other forms set them.
    pub(crate) update: Update,
}

// SAFETY: places in memory; `run` says what must hold of them, and callers on several threads give each its
// own elements.
unsafe impl<T: Sync> Send for Product<'_, T> {}
// SAFETY: threads that share a product share its addresses; `run`, which uses them, is unsafe and says how.
unsafe impl<T: Sync> Sync for Product<'_, T> {}

/// Data that the products of a batch share, if each is formed whole.
pub(crate) struct Prepared<T> {
    /// The left operand, if all of them read one: a block of terms after the other, and in it as many rows
    /// after the others as a micro-tile has, a term's side by side.
    left: Option<Vec<T>>,
    /// How columns are read in place.
    windows: Option<Windows>,
}

/// A cache line, so that packed panels begin at one.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

thread_local! {
    /// Where panels and rows are packed to: less than two [`panels_bytes`] a thread, and less than 3 MiB
    /// for bf16.
    static PACKED: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with room for this many numbers, all of them initialised.
pub(crate) fn with_packed<T, R>(numbers: usize, f: impl FnOnce(*mut T) -> R) -> R {
    if numbers == 0 {
        return f(std::ptr::dangling_mut());
    }
    PACKED.with_borrow_mut(|lines| {
        let needed = (numbers * size_of::<T>()).div_ceil(size_of::<Line>());
        if lines.len() < needed {
            lines.resize(needed, Line([0; 8]));
        }
        f(lines.as_mut_ptr().cast())
    })
}

/// How many blocks of KC terms `k` terms make.
pub(crate) fn kc_blocks<T>(k: usize) -> usize {
    k.div_ceil(KC_BYTES / size_of::<T>()).max(1)
}

/// The terms of block `i`. All blocks but the last end at multiples of what transposes and loops take at
/// once.
pub(crate) fn kc_block<T>(k: usize, i: usize) -> Range<usize> {
    threads::part(k, 16, kc_blocks::<T>(k), i)
}

impl<T: HasMicroKernels> Product<'_, T> {
    /// Whether the right operand is read in place when this many rows are formed.
    fn reads_in_place(&self, rows: usize) -> bool {
        let Some(row) = self.b.row.even() else { return false };
        let near = row.unsigned_abs() * size_of::<T>() <= CLOSE_ROW_BYTES;
        self.b.column.is_unit() && (rows <= IN_PLACE_MAX_ROWS || near && rows <= IN_PLACE_MAX_ROWS_CLOSE)
    }

    /// How a rectangle of the result is formed.
    fn kernel(&self, isa: Isa, rows: Range<usize>, columns: Range<usize>) -> MacroKernel<'_, T> {
        let micro_kernels = T::micro_kernels(isa);
        let panels = Panels::of(columns.len(), micro_kernels.width, micro_kernels.registers());
        let windows = match self.prepared {
            Some(prepared) => prepared.windows.as_ref().map(Cow::Borrowed),
            None => self.windows(&micro_kernels, rows.len(), columns.clone()).map(Cow::Owned),
        };
        let in_place = self.reads_in_place(rows.len());
        let more = match self.update {
            Update::Set | Update::Add => Update::Add,
            Update::Subtract => Update::Subtract,
        };
        let mut kernel = MacroKernel {
            product: self,
            isa,
            micro_kernels,
            rows,
            columns,
            panels,
            windows,
            in_place,
            packed_rows: MAX_MR,
            more,
        };
        let lies = match (self.a.row, self.a.column) {
            (Steps::Even(row), Steps::Even(column)) => {
                (column == 1 && kernel.windows.is_none())
                    || (row == 1 && kernel.panels() < PACK_LHS_MIN_PANELS)
            }
            (Steps::Table(_), _) | (_, Steps::Table(_)) => false,
        };
        if lies || self.left().is_some() {
            kernel.packed_rows = 0;
        }
        kernel
    }

    /// An estimate of the time that a rectangle takes, in products of a row with a register of columns.
    pub(crate) fn cost(&self, rows: usize, columns: usize) -> usize {
        // Windows are packed less often than this says, which matters to nothing but how rectangles are cut.
        let packing = match (self.reads_in_place(rows), self.b.column.is_unit()) {
            (true, _) => 0,
            (false, true) => 8,
            (false, false) => 16,
        };
        // A row is read once, which counts for little.
        columns.div_ceil(WIDEST) * (rows + packing) + rows / 4
    }

    /// How columns are read in place, if they are.
    fn windows(&self, kernels: &MicroKernels<T>, rows: usize, columns: Range<usize>) -> Option<Windows> {
        let is_on = kernels.has_windows() && Special::Windows.is_on();
        let (Steps::Table(_), true) = (self.b.row, is_on) else { return None };
        Windows::of(self.b.column, rows, columns, kernels.width, kernels.registers())
    }

    /// The left operand, if it was packed beforehand.
    fn left(&self) -> Option<&[T]> {
        self.prepared.and_then(|prepared| prepared.left.as_deref())
    }

    /// Prepares all products of `m` rows and `n` columns whose operands have the same layout, and if
    /// `packs_left`, read one left operand.
    ///
    /// # Safety
    /// As [`Product::run`] for all `m` rows and `n` columns, except for the result, which is not accessed.
    pub(crate) unsafe fn prepare(&self, isa: Isa, m: usize, packs_left: bool) -> Prepared<T> {
        let windows = self.windows(&T::micro_kernels(isa), m, 0..self.n);
        let prepared = Prepared { left: None, windows };
        if !packs_left {
            return prepared;
        }
        let mut left = vec![T::ZERO; m * self.k];
        let product = Product { prepared: Some(&prepared), ..*self };
        let kernel = product.kernel(isa, 0..m, 0..self.n);
        for i in 0..kc_blocks::<T>(self.k) {
            let block = kernel.block(i);
            for part in 0..kernel.parts() {
                let rows = threads::part(m, 1, kernel.parts(), part);
                let to = left[block.terms.start * m + rows.start * block.terms.len()..].as_mut_ptr();
                // SAFETY: the rows can be read by `# Safety`; `left` has `m` numbers for each term, of which
                // the blocks and rows before these took those before `to`.
                unsafe { kernel.pack_rows(&block, rows, to) };
            }
        }
        Prepared { left: Some(left), ..prepared }
    }

    /// Forms a rectangle of the result, and finishes it.
    ///
    /// # Errors
    /// The errors of `finish`.
    ///
    /// # Safety
    /// The operands have these rows and columns, whose `k` terms are initialised; where tables give columns
    /// or terms, all that is in memory between two columns of a term is initialised too. The result's
    /// elements of the rectangle can be written, no other thread reads or writes them, and they do not
    /// overlap the operands. `prepared`, if there is one, was made for this instruction set, these sizes and
    /// layouts, and the rectangle is then the whole product.
    pub(crate) unsafe fn run(
        &self,
        isa: Isa,
        rows: Range<usize>,
        columns: Range<usize>,
        finish: Option<Finish<'_>>,
    ) -> Result<()> {
        if rows.is_empty() || columns.is_empty() {
            return Ok(());
        }
        let kernel = self.kernel(isa, rows, columns.clone());
        let packed_rows = kernel.packed_rows;
        let blocks: SmallVec<[Block; 4]> = (0..kc_blocks::<T>(self.k)).map(|i| kernel.block(i)).collect();
        let longest = blocks.iter().map(|block| block.terms.len()).max().unwrap_or(0);
        // Rows are packed again for each group.
        let bytes = match (self.b.row, self.b.column) {
            (Steps::Table(_), _) | (_, Steps::Table(_)) if packed_rows == 0 => window_panels_bytes(),
            (Steps::Even(_) | Steps::Table(_), _) => panels_bytes(),
        };
        let most = MAX_REGISTERS * kernel.micro_kernels.width;
        let widest = (bytes / size_of::<T>() / longest.max(1)).max(most);
        let groups = match &kernel.windows {
            // A panel of windows stays in the first-level cache while a few rows after the other pass by,
            // if those are packed. An epilogue goes by rows, and those must not be short.
            Some(_) if self.left().is_some() && finish.is_none() => kernel.panels(),
            Some(_) if self.left().is_some() => columns.len().div_ceil(FINISHED_COLUMNS),
            _ => columns.len().div_ceil(widest),
        };
        let panel_columns = match kernel.in_place {
            _ if kernel.windows.is_some() => 0,
            // The last panel reads whole registers, which may end where the operand does not.
            true => most * usize::from(!columns.len().is_multiple_of(kernel.micro_kernels.width)),
            false => kernel.panels().div_ceil(groups) * most,
        };
        let form = |finish: Finished<'_>| {
            with_packed::<T, _>((panel_columns + packed_rows) * longest, |packed| {
                let mut none = |_: Range<usize>, _: &Range<usize>| Ok(());
                let mut one = |i: usize, group: usize| {
                    let group = threads::part(kernel.panels(), 1, groups, group);
                    let finish: Finished<'_> = if i + 1 == blocks.len() { &mut *finish } else { &mut none };
                    // SAFETY: the rectangle is as `# Safety` asks. `packed` has
                    // `panel_columns + packed_rows` numbers for each term of the longest block, enough for
                    // this group's packed panels and a micro-tile's rows.
                    unsafe { kernel.group(&blocks[i], group, packed, finish) }
                };
                // The sums of a group stay in cache from block to block, but what is packed for a group must
                // not be packed again.
                let by_groups = kernel.windows.is_some() && packed_rows == 0;
                let [outer, inner] = if by_groups { [groups, blocks.len()] } else { [blocks.len(), groups] };
                for i in 0..outer {
                    for j in 0..inner {
                        if by_groups { one(j, i)? } else { one(i, j)? }
                    }
                }
                Ok(())
            })
        };
        match finish {
            None => form(&mut |_, _| Ok(())),
            Some(finish) => finish.epilogue.with(|evaluator: &mut Evaluator<'_>| {
                form(&mut |rows, columns| finish.rectangle(evaluator, self.n, rows, columns))
            }),
        }
    }
}

/// Told of rows and columns whose sums are formed.
pub(super) type Finished<'a> = &'a mut dyn FnMut(Range<usize>, &Range<usize>) -> Result<()>;

/// A rectangle of a product, and how it is formed.
struct MacroKernel<'a, T: HasMicroKernels> {
    product: &'a Product<'a, T>,
    isa: Isa,
    micro_kernels: MicroKernels<T>,
    rows: Range<usize>,
    columns: Range<usize>,
    panels: Panels,
    /// If columns are read in place by tables.
    windows: Option<Cow<'a, Windows>>,
    /// Whether panels are read in place, apart from one whose last register is partly filled.
    in_place: bool,
    /// Rows of the left operand that are packed, or 0.
    packed_rows: usize,
    /// How the sums of all blocks of terms but the first are stored.
    more: Update,
}

/// A block of terms, and how many runs of them are contiguous in the left operand and in the right one, if
/// those are packed.
struct Block {
    terms: Range<usize>,
    runs: [usize; 2],
}

/// A panel's first column in the operand, how many it has, its registers and what they hold, and whether it
/// is packed.
struct Place {
    first: usize,
    columns: usize,
    registers: usize,
    width: usize,
    packed: bool,
}

impl<T: HasMicroKernels> MacroKernel<'_, T> {
    fn block(&self, i: usize) -> Block {
        let (p, terms) = (self.product, kc_block::<T>(self.product.k, i));
        let runs = |packs: bool, steps: Steps<'_>| if packs { tables::runs(steps, terms.clone()) } else { 0 };
        let runs = [runs(self.packed_rows > 0, p.a.column), runs(self.windows.is_none(), p.b.row)];
        Block { terms, runs }
    }

    /// Adds a block of terms to the columns of some panels. Calls `finish` with rows when they are through.
    ///
    /// # Safety
    /// As [`Product::run`], and `packed` has room for the group's panels (or the last one) and the rows that
    /// are packed.
    unsafe fn group(
        &self,
        block: &Block,
        group: Range<usize>,
        packed: *mut T,
        finish: Finished<'_>,
    ) -> Result<()> {
        let (p, terms) = (self.product, &block.terms);
        let mut next = packed;
        for panel in group.clone() {
            let place = self.place(panel);
            if place.packed {
                // SAFETY: `packed` has room for all panels of the group, by `# Safety`.
                unsafe { self.pack_panel(block, &place, next) };
                next = next.wrapping_add(place.width * terms.len());
            }
        }
        let packed_a = next;
        // Even steps and tables are distinguished here, once for all micro-kernels.
        let lies = p.a.matrix().filter(|_| self.packed_rows == 0 && p.left().is_none());
        let b_lies = p.b.matrix().map(|b| Matrix { at: b.element(terms.start, 0), ..b });
        let look_ahead = lies.is_some() && p.a.column.is_unit() && group.len() >= PACK_LHS_MIN_PANELS;
        let parts = self.parts();
        let last = self.place(group.end - 1);
        let columns = self.place(group.start).first..last.first + last.columns;
        let mut unfinished = self.rows.start;
        for i in 0..parts {
            let rows = threads::part(self.rows.len(), 1, parts, i);
            let (first_row, height) = (self.rows.start + rows.start, rows.len());
            let a = match (lies, p.left()) {
                (Some(a), _) => Matrix { at: a.element(first_row, terms.start), ..a },
                (None, Some(left)) => {
                    let at = terms.start * self.rows.len() + first_row * terms.len();
                    Matrix {
                        at: left[at..at + height * terms.len()].as_ptr(),
                        row: 1,
                        column: height as isize,
                    }
                }
                (None, None) => {
                    // SAFETY: after the panels `packed` has room for `MAX_MR` rows, by `# Safety`.
                    unsafe { self.pack_rows(block, first_row..first_row + height, packed_a) };
                    Matrix { at: packed_a.cast_const(), row: 1, column: height as isize }
                }
            };
            let mut next = packed.cast_const();
            for panel in group.clone() {
                if look_ahead {
                    let ahead = first_row + height..self.rows.end.min(first_row + 2 * height);
                    self.prefetch(terms, ahead, panel - group.start, group.len());
                }
                let place = self.place(panel);
                let (b, b_term) = match b_lies.filter(|_| !place.packed) {
                    _ if self.windows.is_some() => (p.b.at, 0),
                    Some(b) => (b.element(0, place.first), b.row),
                    None => {
                        let panel = next;
                        next = next.wrapping_add(place.width * terms.len());
                        (panel, place.width as isize)
                    }
                };
                let tile = MicroTile {
                    terms: terms.len(),
                    a: a.at,
                    a_row: a.row,
                    a_term: a.column,
                    b,
                    b_term,
                    to: p.to.wrapping_add(first_row * p.to_row + place.first),
                    to_row: p.to_row,
                    // The registers of windows know which of their columns are stored.
                    last: match self.windows {
                        None => place.columns - (place.registers - 1) * self.micro_kernels.width,
                        Some(_) => self.micro_kernels.width,
                    },
                    update: if terms.start == 0 { p.update } else { self.more },
                };
                // SAFETY: these rows, columns and terms are in the rectangle. Whole registers
                // can be read: `place` packs a panel that does not fill them, and the
                // registers of windows are between two columns.
                unsafe {
                    match (&self.windows, p.b.row) {
                        (Some(windows), Steps::Table(table)) => {
                            let table = table[terms.start..].as_ptr();
                            self.micro_kernels.run_windows(height, &tile, windows.panel(panel), table);
                        }
                        (None, _) | (_, Steps::Even(_)) => {
                            self.micro_kernels.run(height, place.registers, &tile);
                        }
                    }
                };
            }
            let end = first_row + height;
            if (end - unfinished) * columns.len() >= CACHED_RESULTS || end == self.rows.end {
                finish(unfinished..end, &columns)?;
                unfinished = end;
            }
        }
        Ok(())
    }

    /// Into how many micro-tiles' rows the rows are cut.
    fn parts(&self) -> usize {
        let most = match &self.windows {
            None => self.panels.most(),
            Some(windows) => windows.most(),
        };
        self.rows.len().div_ceil(self.micro_kernels.rows(most))
    }

    /// How many panels the columns are cut into.
    fn panels(&self) -> usize {
        self.windows.as_ref().map_or(self.panels.count(), |windows| windows.count())
    }

    fn place(&self, panel: usize) -> Place {
        if let Some(windows) = &self.windows {
            let (columns, registers) = (windows.columns(panel), windows.panel(panel).len());
            let width = registers * self.micro_kernels.width;
            let first = self.columns.start + columns.start;
            return Place { first, columns: columns.len(), registers, width, packed: false };
        }
        let (first, registers) = self.panels.place(panel);
        let first = self.columns.start + first;
        let width = registers * self.micro_kernels.width;
        let columns = width.min(self.columns.end - first);
        Place { first, columns, registers, width, packed: !self.in_place || columns < width }
    }

    /// Prefetches a `part` of `parts` of the next rows of the left operand, whose terms are contiguous.
    fn prefetch(&self, terms: &Range<usize>, rows: Range<usize>, part: usize, parts: usize) {
        let a = self.product.a;
        let lines = (terms.len() * size_of::<T>()).div_ceil(size_of::<Line>());
        let per = size_of::<Line>() / size_of::<T>();
        let lines = threads::part(lines, 1, parts, part);
        for row in rows {
            let first = a.element(row, terms.start);
            for line in lines.clone() {
                prefetch::<false, _>(first.wrapping_add(line * per));
            }
        }
    }

    /// Copies a panel's terms one after the other, with zeros past its columns.
    ///
    /// # Safety
    /// As [`Product::run`] for these terms and columns; `to` has room for `place.width` numbers for each of
    /// the terms, apart from the operand.
    unsafe fn pack_panel(&self, block: &Block, place: &Place, to: *mut T) {
        let &Block { ref terms, runs: [_, runs] } = block;
        let (b, &Place { first, columns, registers, width, .. }) = (self.product.b, place);
        // SAFETY: `# Safety` allows reads of these terms and columns; `to` has `width` numbers for each term,
        // for the columns and the zeros after them.
        unsafe {
            let even = b.matrix().map(|b| Matrix { at: b.element(terms.start, first), ..b });
            if let Some(b) = even.filter(|b| b.column == 1 && columns == width) {
                return self.micro_kernels.copy(registers, terms.len(), b.at, b.row, to);
            }
            if columns < width {
                for i in 0..terms.len() {
                    std::slice::from_raw_parts_mut(to.add(i * width + columns), width - columns)
                        .fill(T::ZERO);
                }
            }
            if let Some(b) = even {
                let (from_strides, to_strides) = ([b.row, b.column], [width as isize, 1]);
                return strided::block(self.isa, [terms.len(), columns], b.at, from_strides, to, to_strides);
            }
            tables::panel(
                self.isa,
                &self.micro_kernels,
                &b,
                (terms.clone(), runs),
                first..first + columns,
                to,
                width,
            );
        }
    }

    /// Copies the terms of a few rows, a term's rows side by side.
    ///
    /// # Safety
    /// As [`Product::run`] for these terms and rows; `to` has room for all of them, apart from the operand.
    unsafe fn pack_rows(&self, block: &Block, rows: Range<usize>, to: *mut T) {
        let &Block { ref terms, runs: [runs, _] } = block;
        let a = self.product.a;
        // SAFETY: `# Safety` allows reads of these terms and rows;
        // `to` has `rows.len()` numbers for each term.
        unsafe {
            let Some(a) = a.matrix() else {
                return tables::rows(self.isa, &a, (terms.clone(), runs), rows, to);
            };
            let a = Matrix { at: a.element(rows.start, terms.start), ..a };
            let (terms, rows) = (terms.len(), rows.len());
            if a.row != 1 {
                let to_strides = [rows as isize, 1];
                return strided::block(self.isa, [terms, rows], a.at, [a.column, a.row], to, to_strides);
            }
            for i in 0..terms {
                copy_run(a.element(0, i), to.add(i * rows), rows);
            }
        }
    }
}

/// Copies a few elements that are contiguous.
///
/// # Safety
/// `n` elements may be read and written, and they do not overlap.
#[inline(always)]
unsafe fn copy_run<T: Copy>(from: *const T, to: *mut T, n: usize) {
    const AT_ONCE: usize = 4;
    let mut i = 0;
    // SAFETY: every read and write ends at element `n` at the latest, and `# Safety` allows those before it.
    unsafe {
        while i + AT_ONCE <= n {
            let some = from.add(i).cast::<[T; AT_ONCE]>().read_unaligned();
            to.add(i).cast::<[T; AT_ONCE]>().write_unaligned(some);
            i += AT_ONCE;
        }
        while i < n {
            to.add(i).write(from.add(i).read());
            i += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn panels_cover_the_columns() {
        for columns in 1..400 {
            for (width, most) in [(2, 3), (4, 2), (8, 1), (16, 3)] {
                let panels = Panels::of(columns, width, most);
                let mut next = 0;
                for panel in 0..panels.count() {
                    let (first, registers) = panels.place(panel);
                    assert!(first == next && (1..=panels.most()).contains(&registers), "{columns} {width}");
                    next += registers * width;
                }
                assert_eq!(next, columns.next_multiple_of(width));
            }
        }
        assert_eq!(Panels::of(128, 16, 3).counts, [2, 1, 0]);
        assert_eq!(Panels::of(64, 16, 3).counts, [0, 2, 0]);
    }

    pub(crate) fn numbers<T>(n: usize, mut seed: u64, number: impl Fn(f64) -> T) -> Vec<T> {
        (0..n)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                number((seed >> 40) as f64 / (1 << 24) as f64 - 0.5)
            })
            .collect()
    }

    /// The left operand's and the right one's strides, in four ways each.
    fn strides(way: usize, rows: usize, columns: usize) -> (isize, isize, usize) {
        let (r, c) = (rows as isize, columns as isize);
        match way {
            0 => (c, 1, 0),
            1 => (1, r, 0),
            2 => (2 * c + 3, 2, 0),
            _ => (-c, -1, (rows * columns).saturating_sub(1)),
        }
    }

    pub(crate) fn operand<T>(at: &[T], row: isize, column: isize) -> Strided<'_, T> {
        Strided { at: at.as_ptr(), row: Steps::Even(row), column: Steps::Even(column) }
    }

    /// The elements of a product with an operand that was prepared.
    ///
    /// # Safety
    /// All elements of the operands, and all between their columns, are in memory.
    pub(crate) unsafe fn with_prepared<T: HasMicroKernels>(
        isa: Isa,
        product: Product<'_, T>,
        m: usize,
        n: usize,
        number: impl Fn(f64) -> T,
    ) -> Vec<T> {
        let mut to = numbers(m * n, 5, number);
        // SAFETY: the operands are in memory by `# Safety`; `to` has `m * n` elements, and the run is of the
        // whole product that `prepare` was called for.
        unsafe {
            let prepared = Some(&product.prepare(isa, m, true));
            let product = Product { to: to.as_mut_ptr(), prepared, ..product };
            product.run(isa, 0..m, 0..n, None).unwrap();
        }
        to
    }

    /// A product of `[m, k]` and `[k, n]` elements into a vector of its own size.
    pub(crate) fn product<'a, T>(
        k: usize,
        n: usize,
        [a, b]: [Strided<'a, T>; 2],
        to: &mut [T],
    ) -> Product<'a, T> {
        Product { n, k, a, b, to: to.as_mut_ptr(), to_row: n, update: Update::Set, prepared: None }
    }

    fn check<T: HasMicroKernels + Into<f64> + PartialEq + std::fmt::Debug>(
        number: impl Fn(f64) -> T + Copy,
        epsilon: f64,
    ) {
        let shapes = [
            (1, 1, 1),
            (3, 5, 0),
            (8, 48, 64),
            (13, 33, 400),
            (64, 130, 784),
            (129, 47, 70),
            (330, 70, 390),
            (7, 300, 1000),
            (25, 10, 33),
        ];
        for isa in Isa::available() {
            for (at, (m, n, k)) in shapes.into_iter().enumerate() {
                // Large products are computed in four ways, with each way of one operand and of the other.
                let taken = |way: &usize| m * n * k < 1 << 18 || (way / 4 + way % 4 + at).is_multiple_of(4);
                for way in (0..16).filter(taken) {
                    let (ar, ac, a0) = strides(way / 4, m, k);
                    let (br, bc, b0) = strides(way % 4, k, n);
                    let a = numbers((m * k + 1) * 4 + k * 8, 1, number);
                    let b = numbers((k * n + 1) * 4 + n * 8, 2, number);
                    let mut c = numbers(m * n, 3, number);
                    let operands =
                        [operand(&a[a0.min(a.len())..], ar, ac), operand(&b[b0.min(b.len())..], br, bc)];
                    let product = product(k, n, operands, &mut c);
                    // SAFETY: every index is below the vectors' lengths.
                    unsafe { product.run(isa, 0..m, 0..n, None) }.unwrap();
                    // SAFETY: every index is within its vector; the product is `m` by `n`.
                    let again = unsafe { with_prepared(isa, product, m, n, number) };
                    assert_eq!(c, again, "{isa:?} {m} {n} {k} way {way}: another sum of a packed operand");
                    let mut cut = numbers(m * n, 4, number);
                    let pieces = Product { to: cut.as_mut_ptr(), ..product };
                    for rows in [0..m / 3, m / 3..m] {
                        for columns in [0..n / 2, n / 2..n] {
                            // SAFETY: every index is within its vector, and `cut` has `m * n` elements.
                            unsafe { pieces.run(isa, rows.clone(), columns, None) }.unwrap();
                        }
                    }
                    assert_eq!(c, cut, "{isa:?} {m} {n} {k} way {way}: another sum in pieces");
                    for i in 0..m {
                        for j in (i % 7..n).step_by(7) {
                            let (mut sum, mut size) = (0.0, 0.0);
                            for x in 0..k {
                                let left = a[(a0 as isize + i as isize * ar + x as isize * ac) as usize];
                                let right = b[(b0 as isize + x as isize * br + j as isize * bc) as usize];
                                sum += left.into() * right.into();
                                size += (left.into() * right.into()).abs();
                            }
                            let got: f64 = c[i * n + j].into();
                            let bound = size * epsilon * (k as f64).sqrt().max(2.0);
                            assert!(
                                (got - sum).abs() <= bound,
                                "{isa:?} {m} {n} {k} way {way} at {i}, {j}: {got}, not {sum}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn sums_are_right_and_the_same_in_pieces() {
        check::<f32>(|x| x as f32, f32::EPSILON.into());
        check::<f64>(|x| x, f64::EPSILON);
    }
}
