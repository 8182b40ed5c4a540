//! Products with an operand in blocks. With a few vectors, its rows are decoded in registers; otherwise some
//! of its rows or columns are decoded at a time, multiplied as a matrix like any other, and forgotten. No
//! decoded copy of the operand is ever whole.
#![allow(unsafe_code)]

use std::{cell::RefCell, ops::Range};

use smallvec::SmallVec;
use tensor_core::{GgmlType, Result, contraction::Loop};

use super::{
    super::{
        batch::share_among,
        gemm::Product,
        gemv::VectorProduct,
        kernel_table::HasMicroKernels,
        matrices::{Parts, Source, product},
        operands::{Steps, Strided, Update, WIDEST, offset},
    },
    block_kernel::{BlockDots, BlockRows, Panel, ROWS},
    rounded_kernel::{Rounded, RoundedDots},
};
use crate::{
    memory::{blocks::Blocks, buffer::Memory},
    rounding::int8_activations,
    simd::{bytes::ByteForm, isa::Isa},
    threads,
    tuning::{
        BLOCK_GRAIN, BLOCK_VECTORS, DECODED_ELEMENTS, DECODED_SIDE, MICRO_KERNEL_GRAIN, TRANSPOSED_MAX_ROWS,
    },
};

/// Parts of the rows for each thread, so that a delayed one does not delay the whole.
const PARTS_OF_THREAD: usize = 4;

/// A type that decoded numbers are multiplied in.
pub(crate) trait Decoded: HasMicroKernels + Send + Sync {
    const IS_F32: bool;
    /// Calls `f` with memory for decoded numbers, which each thread keeps.
    fn with_decoded<R>(f: impl FnOnce(&mut Vec<Self>) -> R) -> R;
    /// Decodes elements that follow each other from `start` on.
    fn decode(blocks: &Blocks<'_>, start: usize, out: &mut [Self]);
}

impl Decoded for f32 {
    const IS_F32: bool = true;

    fn with_decoded<R>(f: impl FnOnce(&mut Vec<f32>) -> R) -> R {
        DECODED.with_borrow_mut(f)
    }

    fn decode(blocks: &Blocks<'_>, start: usize, out: &mut [f32]) {
        blocks.decode(start, out);
    }
}

impl Decoded for f64 {
    const IS_F32: bool = false;

    fn with_decoded<R>(f: impl FnOnce(&mut Vec<f64>) -> R) -> R {
        DECODED_WIDE.with_borrow_mut(f)
    }

    fn decode(blocks: &Blocks<'_>, start: usize, out: &mut [f64]) {
        RUN.with_borrow_mut(|run| {
            run.resize(out.len(), 0.0);
            blocks.decode(start, run);
            out.iter_mut().zip(&*run).for_each(|(to, &x)| *to = x.into());
        });
    }
}

thread_local! {
    static RUN: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static DECODED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static DECODED_WIDE: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// The operand in blocks, as a matrix of outer positions (rows of the left operand, columns of the right one)
/// and terms.
struct Operand<'a> {
    blocks: Blocks<'a>,
    /// The element at outer position 0 and term 0.
    first: isize,
    outer: Steps<'a>,
    terms: Steps<'a>,
}

impl Operand<'_> {
    fn element(&self, outer: usize, term: usize) -> isize {
        self.first + self.outer.at(outer) + self.terms.at(term)
    }

    /// Decodes elements that follow each other from `start` on.
    fn run<T: Decoded>(&self, start: isize, out: &mut [T]) {
        T::decode(&self.blocks, start as usize, out);
    }

    /// Whether neighbours along the outer axis follow each other, and those along the terms do not.
    fn follows_outer(&self) -> bool {
        self.outer.even() == Some(1) && self.terms.even() != Some(1)
    }

    /// Decodes a rectangle: into rows of terms, or, where [`Operand::follows_outer`] holds, into rows of
    /// outer positions.
    fn decode<T: Decoded>(&self, outer: &Range<usize>, terms: &Range<usize>, to: &mut Vec<T>) {
        // A panel's last registers may reach past its last column.
        let numel = outer.len() * terms.len() + WIDEST;
        to.resize(to.len().max(numel), T::ZERO);
        if self.follows_outer() {
            for (row, term) in to.chunks_exact_mut(outer.len()).zip(terms.clone()) {
                self.run(self.element(outer.start, term), row);
            }
            return;
        }
        let follows = self.terms.even() == Some(1);
        for (row, position) in to.chunks_exact_mut(terms.len()).zip(outer.clone()) {
            if follows {
                self.run(self.element(position, terms.start), row);
                continue;
            }
            for (x, term) in row.iter_mut().zip(terms.clone()) {
                self.run(self.element(position, term), std::slice::from_mut(x));
            }
        }
    }
}

/// How many of `outer` positions and `terms` terms are decoded at a time.
fn rectangle(follows_outer: bool, outer: usize, terms: usize) -> [usize; 2] {
    if follows_outer {
        let outer = outer.min(DECODED_SIDE);
        return [outer, (DECODED_ELEMENTS / outer).max(1)];
    }
    // Whole rows of terms: sums are then those of one product.
    let most = (DECODED_ELEMENTS / terms.max(1)).max(WIDEST);
    [most / WIDEST * WIDEST, terms]
}

/// The products of a batch, one of whose operands is in blocks; or both are, of which the right one is then
/// decoded whole.
pub(crate) fn float<T: Decoded>(parts: &Parts<'_>) -> Result<()> {
    let Parts { isa, of, lhs, rhs, sums, epilogue } = *parts;
    let (m, n, k) = (of.m, of.n, of.k);
    let mut whole;
    let (left, blocks, rhs) = match (lhs.blocks, rhs.blocks) {
        (Some(left), Some(right)) => {
            let numel = rhs.layout.span().1;
            whole = Vec::new();
            let everything =
                Operand { blocks: right, first: 0, outer: Steps::Even(0), terms: Steps::Even(1) };
            everything.decode::<T>(&(0..1), &(0..numel), &mut whole);
            let memory = Memory { ptr: whole.as_mut_ptr().cast(), numel, dtype: sums.dtype };
            (true, left, Source { memory, blocks: None, ..rhs })
        }
        (Some(left), None) => (true, left, rhs),
        (None, Some(right)) => (false, right, rhs),
        (None, None) => return Ok(()),
    };
    let (source, steps, stride): (_, _, fn(&Loop) -> isize) = match left {
        true => (lhs, &of.lhs, |axis| axis.lhs),
        false => (rhs, &of.rhs, |axis| axis.rhs),
    };
    let [outer, terms] = match (left, steps) {
        (true, [rows, terms]) => [rows, terms],
        (false, [terms, columns]) => [columns, terms],
    };
    let side = if left { m } else { n };
    let operand = |b: usize| Operand {
        blocks,
        first: source.layout.offset() as isize + offset(&of.batch, b, stride),
        outer: outer.steps(),
        terms: terms.steps(),
    };
    let [step, terms_step] = rectangle(operand(0).follows_outer(), side, k);
    // Both in blocks: the right one is decoded here.
    let parts = &Parts { rhs, ..*parts };
    if let Some(format) = dots_format::<T>(parts, &operand(0), left) {
        for b in 0..of.batches {
            // SAFETY: `run` checked both layouts and the output against their buffers, and elements are f32.
            unsafe { few_vectors(parts, &operand(b), left, format, b) };
        }
        return epilogue.map_or(Ok(()), |epilogue| epilogue.run(0..of.batches * m * n));
    }
    let transposed = Transposed::of(parts, left || operand(0).follows_outer());
    // All threads get as many parts, and as large ones; the sums are cut as they are on one thread.
    let threads = threads::worth(of.multiplications(), MICRO_KERNEL_GRAIN);
    let across = side.div_ceil(step).max(1).next_multiple_of(threads);
    let step = side.div_ceil(across).next_multiple_of(WIDEST).max(WIDEST);
    let across = side.div_ceil(step);
    let task = |i: usize, decoded: &mut Vec<T>| -> Result<()> {
        let (b, part) = (i / across, i % across);
        let outer = part * step..side.min((part + 1) * step);
        // SAFETY: `run` checked both layouts and the output against their buffers; parts of the result are
        // apart.
        let whole = unsafe { product::<T>(of, lhs, rhs, sums, b) };
        let operand = operand(b);
        for start in (0..k).step_by(terms_step) {
            let terms = start..k.min(start + terms_step);
            operand.decode(&outer, &terms, decoded);
            let [along_outer, along_terms] = match operand.follows_outer() {
                true => [1, outer.len()],
                false => [terms.len(), 1],
            };
            let (along_outer, along_terms) =
                (Steps::Even(along_outer as isize), Steps::Even(along_terms as isize));
            let update = if start == 0 { Update::Set } else { Update::Add };
            let at = decoded.as_ptr();
            let mut piece = Product { k: terms.len(), update, ..whole };
            if let Some(transposed) = &transposed {
                let a = Strided { at, row: along_outer, column: along_terms };
                let to = whole.to.wrapping_add(outer.start);
                // SAFETY: `decoded` has all rows and terms of `a`, and these results are the task's own.
                unsafe { transposed.multiply(isa, Product { a, to, ..piece }, b, outer.len())? };
                continue;
            }
            let shifted;
            let rows = if left {
                piece.a = Strided { at, row: along_outer, column: along_terms };
                piece.to = whole.to.wrapping_add(outer.start * whole.to_row);
                shifted = Shifted::of(&whole.b.row, start);
                piece.b =
                    Strided { at: shifted.first(whole.b.at), row: shifted.steps(), column: whole.b.column };
                outer.len()
            } else {
                piece.b = Strided { at, row: along_terms, column: along_outer };
                piece.n = outer.len();
                piece.to = whole.to.wrapping_add(outer.start);
                shifted = Shifted::of(&whole.a.column, start);
                piece.a =
                    Strided { at: shifted.first(whole.a.at), row: whole.a.row, column: shifted.steps() };
                m
            };
            // SAFETY: `run` checked the other operand and the output, of which this part is the task's own;
            // `decoded` has all of the piece's terms and outer positions.
            unsafe { multiply(isa, &piece, rows)? };
        }
        Ok(())
    };
    share_among(threads, of.batches * across, |i| T::with_decoded(|decoded| task(i, decoded)))?;
    epilogue.map_or(Ok(()), |epilogue| epilogue.run(0..of.batches * m * n))
}

/// The other operand of products with few rows, transposed: decoded rows are then the left operand, which is
/// read in place, and need not be packed as columns.
struct Transposed<T> {
    /// The numbers of all rows at each term, for each product of the batch.
    columns: Vec<T>,
    rows: usize,
}

impl<T: Decoded> Transposed<T> {
    /// None if the products have other sizes, or `is_left` says that another form takes them.
    fn of(parts: &Parts<'_>, is_left: bool) -> Option<Transposed<T>> {
        let Parts { of, lhs, rhs, sums, .. } = *parts;
        if is_left || !(2..=TRANSPOSED_MAX_ROWS).contains(&of.m) {
            return None;
        }
        let mut columns = Vec::with_capacity(of.batches * of.k * of.m);
        for b in 0..of.batches {
            // SAFETY: `run` checked both layouts and the output against their buffers.
            let whole = unsafe { product::<T>(of, lhs, rhs, sums, b) };
            for term in 0..of.k {
                // SAFETY: the rows and terms are within the left operand, whose layout was checked.
                columns.extend((0..of.m).map(|row| unsafe { whole.a.element(row, term).read() }));
            }
        }
        Some(Transposed { columns, rows: of.m })
    }

    /// Multiplies `decoded` rows, the left operand of `piece`, with product `b`'s columns. The results of a
    /// decoded row are `piece.to_row` apart, and those of neighbouring rows follow each other.
    ///
    /// # Safety
    /// As [`Product::run`] for the left operand, whose terms are all of the product's; the results can be
    /// written, and nothing else accesses them.
    unsafe fn multiply(&self, isa: Isa, piece: Product<'_, T>, b: usize, decoded: usize) -> Result<()> {
        let (m, k) = (self.rows, piece.k);
        let mut sums = vec![T::ZERO; decoded * m];
        let columns = &self.columns[b * k * m..][..k * m];
        let right = Strided { at: columns.as_ptr(), row: Steps::Even(m as isize), column: Steps::Even(1) };
        let product = Product { n: m, b: right, to: sums.as_mut_ptr(), to_row: m, ..piece };
        // SAFETY: the left operand is as `# Safety` asks, the right one has `m` columns of `k` terms, and
        // `sums` has room for all results.
        unsafe { product.run(isa, 0..decoded, 0..m, None)? };
        for (i, sums) in sums.chunks_exact(m).enumerate() {
            for (row, &sum) in sums.iter().enumerate() {
                // SAFETY: these are the results of the decoded rows, by `# Safety`.
                unsafe { piece.to.wrapping_add(row * piece.to_row + i).write(sum) };
            }
        }
        Ok(())
    }
}

/// The format of a matrix whose rows are whole blocks, if a product of it with vectors is one of so few
/// that decoding its rows in registers pays, in f32.
fn dots_format<T: Decoded>(parts: &Parts<'_>, operand: &Operand<'_>, left: bool) -> Option<GgmlType> {
    let of = parts.of;
    let vectors = if left { of.n } else { of.m };
    let (_, format) = operand.blocks.ggml().filter(|_| T::IS_F32 && vectors <= BLOCK_VECTORS)?;
    let block = format.block_elements();
    let whole = |step: isize| step >= 0 && (step as usize).is_multiple_of(block);
    // The first elements of a batch are apart by other axes.
    let batch = of.batch.iter().all(|axis| whole(if left { axis.lhs } else { axis.rhs }));
    let fits = operand.terms.even() == Some(1)
        && of.k.is_multiple_of(block)
        && whole(operand.first)
        && operand.outer.even().is_some_and(whole)
        && batch;
    fits.then_some(format)
}

/// Product `b` of a batch, whose matrix's rows are decoded in registers.
///
/// # Safety
/// The layouts and the output's size were checked against the buffers, elements are f32, and [`dots_format`]
/// gave the format for this operand; nothing else accesses the product's results.
unsafe fn few_vectors(parts: &Parts<'_>, operand: &Operand<'_>, left: bool, format: GgmlType, b: usize) {
    let Parts { isa, of, lhs, rhs, sums, .. } = *parts;
    let Some((bytes, _)) = operand.blocks.ggml() else { return };
    // SAFETY: the layouts and the output were checked by `# Safety`; the blocks' address is not read.
    let whole = unsafe { product::<f32>(of, lhs, rhs, sums, b) };
    let (from, outer, terms, vectors, rows) = match left {
        true => (whole.b.at, whole.b.column, whole.b.row, of.n, of.m),
        false => (whole.a.at, whole.a.row, whole.a.column, of.m, of.n),
    };
    let starts: SmallVec<[*const f32; BLOCK_VECTORS]> =
        (0..vectors).map(|v| from.wrapping_offset(outer.at(v))).collect();
    let mut spread = Vec::new();
    if terms.even() != Some(1) {
        for &start in &starts {
            // SAFETY: `i` is below `k`, so this is an element of the vector, in the checked layout.
            spread.extend((0..of.k).map(|i| unsafe { start.wrapping_offset(terms.at(i)).read() }));
        }
    }
    let x: SmallVec<[&[f32]; BLOCK_VECTORS]> = match spread.is_empty() {
        // SAFETY: the terms are contiguous where none were spread, and
        // the checked layout has `k` of each vector.
        true => starts.iter().map(|&start| unsafe { std::slice::from_raw_parts(start, of.k) }).collect(),
        false => spread.chunks_exact(of.k).collect(),
    };
    let in_bytes = |elements: isize| elements as usize / format.block_elements() * format.block_bytes();
    let (to_row, to_vector) = if left { (whole.to_row, 1) } else { (1, whole.to_row) };
    let block_rows = BlockRows {
        first: bytes.as_ptr().wrapping_add(in_bytes(operand.first)),
        row_bytes: in_bytes(operand.outer.even().unwrap_or(0)),
        to: whole.to,
        to_row,
        to_vector,
    };
    let parts = match threads::worth(rows * of.k * vectors, BLOCK_GRAIN) {
        1 => 1,
        threads => threads * PARTS_OF_THREAD,
    };
    if int8_activations() {
        let rounded = Rounded::new(isa, &x);
        let (dots, form) = (RoundedDots { x: &rounded, rows: block_rows }, ByteForm::best(isa));
        threads::share(parts, |i| {
            // SAFETY: `dots_format` found whole blocks in all rows, which the checked layout spans, and the
            // vectors have `k` elements each; `form` is of `isa`, and the parts are apart.
            unsafe { dots.run(form, format, &threads::part(rows, ROWS, parts, i)) }
        });
        return;
    }
    let dots = BlockDots { x: &Panel::new(&x), rows: block_rows };
    threads::share(parts, |i| {
        // SAFETY: `dots_format` found whole blocks in all rows, which the checked layout spans, and the
        // vectors have `k` elements each; the parts are apart.
        unsafe { dots.run(isa, format, &threads::part(rows, ROWS, parts, i)) }
    });
}

/// The steps along terms from a term on.
struct Shifted<'a> {
    steps: Steps<'a>,
    first: isize,
}

impl<'a> Shifted<'a> {
    fn of(steps: &Steps<'a>, start: usize) -> Shifted<'a> {
        match *steps {
            Steps::Even(step) => Shifted { steps: Steps::Even(step), first: step * start as isize },
            Steps::Table(table) => Shifted { steps: Steps::Table(&table[start..]), first: 0 },
        }
    }

    fn first<T>(&self, at: *const T) -> *const T {
        at.wrapping_offset(self.first)
    }

    fn steps(&self) -> Steps<'a> {
        self.steps
    }
}

/// One product of `rows` rows.
///
/// # Safety
/// As [`Product::run`] asks for all columns of `rows` rows.
unsafe fn multiply<T: Decoded>(isa: Isa, piece: &Product<'_, T>, rows: usize) -> Result<()> {
    // A vector's results are contiguous.
    let vector = VectorProduct::of(rows, piece.n, &piece.a, &piece.b)
        .filter(|_| piece.update == Update::Set && (rows == 1 || piece.to_row == 1));
    // SAFETY: the product is as `# Safety` asks, and a vector is only kept where its results are contiguous.
    unsafe {
        match vector {
            Some(vector) => vector.run(isa, piece.k, piece.to, rows * piece.n),
            None => piece.run(isa, 0..rows, 0..piece.n, None)?,
        }
    }
    Ok(())
}
