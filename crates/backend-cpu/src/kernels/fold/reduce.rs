//! Reductions. The block engine runs the prologue over an index space in one of two orders:
//!
//! - *rows*: reduced axes innermost, each block folded in interleaved lanes;
//! - *columns*: a long kept axis innermost; whole blocks of neighbouring results are accumulated row by
//!   row, so that memory is read in order.
//!
//! An input without a prologue is read in place, without the engine; so is the input of a long sum of
//! squares or of a sum that skips NaN: see `row_fold`. A few strided terms, as in pooling, are read in
//! place too: see `few_terms`.
//!
//! Pieces are cut by the shape alone and joined in order, so results have the same bits for any number of
//! threads. Floats are accumulated about 32 at a time in their own precision, and these partial sums are
//! joined in f64.
#![allow(unsafe_code)]

use std::sync::Arc;

use smallvec::SmallVec;
use tensor_core::{
    DType, Kernel, Launch, ReduceOp, Result,
    kernel::{Operand, Program},
};

use super::{
    accumulator::{Accumulator, RowBlock},
    few_terms::FewTerms,
    row_fold::{RowFold, Term},
};
use crate::{
    elementwise::{
        engine::{Evaluator, offset_of, with_evaluator},
        indexed::NamedRows,
        lower::{Access, Lowered, Src, lower},
        map::check_inputs,
    },
    memory::{
        buffer::{Bound, Memory, compiled},
        pool::Pool,
    },
    simd::isa::Isa,
    threads,
    tuning::{
        BLOCK_POSITIONS, CACHED_RESULTS, F32_SUM_TERMS, MIN_BLOCK_RESULTS, SERIAL_STEPS, SUM_PIECE_ELEMENTS,
        SUM_PIECE_ROWS,
    },
};

/// A kernel with its index space in the order in which it runs.
struct Reduction {
    program: Lowered,
    /// The results before the reduced axes, and the neighbouring results after them, in the order of the
    /// space.
    outer: usize,
    columns: usize,
    /// Elements that go into one result.
    count: usize,
    /// Whether results are accumulated a block at a time.
    by_columns: bool,
    /// A term that the fold's own loop computes, instead of the engine.
    term: Option<Term>,
    /// The reduction as a sum of few strided terms, if that is faster.
    few_terms: Option<FewTerms>,
}

fn prepare(kernel: &Kernel, op: ReduceOp, program: &Program) -> Result<Reduction> {
    let (shape, axes) = (&kernel.space, kernel.reduced_axes());
    let reduced = |axis: &usize| axes.contains(axis);
    let count: usize = (0..shape.rank()).filter(reduced).map(|a| shape[a]).product();
    // The kept axes after the last reduced axis of more than one element.
    let tail =
        (0..shape.rank()).rev().take_while(|a| !reduced(a) || shape[*a] == 1).last().unwrap_or(shape.rank());
    let columns: usize = (tail..shape.rank()).map(|a| shape[a]).product();
    let by_columns = columns >= MIN_BLOCK_RESULTS && count > 1;
    let kept = (0..shape.rank()).filter(|a| !reduced(a));
    let order: SmallVec<[usize; 5]> = if by_columns {
        let (before, after): (Vec<usize>, Vec<usize>) = kept.partition(|&a| a < tail);
        before.into_iter().chain((0..shape.rank()).filter(reduced)).chain(after).collect()
    } else {
        kept.chain((0..shape.rank()).filter(reduced)).collect()
    };
    let ordered: SmallVec<[usize; 5]> = order.iter().map(|&a| shape[a]).collect();
    let permuted = |operand: &Operand| Operand { layout: operand.layout.permute(&order), ..operand.clone() };
    let operands: Vec<Operand> = kernel.operands.iter().map(permuted).collect();
    let results: usize = (0..shape.rank()).filter(|a| !reduced(a)).map(|a| shape[a]).product();
    let columns = if by_columns { columns } else { 1 };
    let lowered = lower(program, &ordered, &operands, |_| false)?;
    let fold = RowFold { op, dtype: program.output_dtype(0), row: 0 };
    let in_order = |access: &Access| access.contiguous || lowered.is_read_by_rows(access);
    let term = Term::of(&lowered, 0, &fold, in_order, |_| false);
    let term =
        term.filter(|term| !by_columns && count > BLOCK_POSITIONS / 2 && !matches!(term, Term::Element(_)));
    Ok(Reduction {
        program: lowered,
        term,
        outer: results / columns.max(1),
        columns,
        count,
        by_columns,
        few_terms: FewTerms::of(kernel, op, program),
    })
}

pub(crate) fn run(
    isa: Isa,
    pool: &Arc<Pool>,
    op: ReduceOp,
    program: &Program,
    launch: &Launch<'_>,
) -> Result<()> {
    let reduction = compiled(launch, || prepare(launch.kernel, op, program))?;
    let name = op.name();
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    check_inputs(name, &reduction.program, &bound.inputs, launch.scalars.len())?;
    bound.require(name, reduction.program.inputs.len(), 1)?;
    bound.require_apart(name)?;
    let dtype = program.output_dtype(0);
    let results = reduction.outer * reduction.columns;
    bound.outputs[0].require(name, dtype, results)?;
    if let Some(few) = &reduction.few_terms {
        debug_assert_eq!(few.results(), results);
        // SAFETY: `check_inputs` checked the operand's span, `Memory::require` that the output holds the
        // results, and `require_apart` that it is not the input.
        unsafe { few.run(isa, bound.inputs[0], bound.outputs[0]) };
        return Ok(());
    }
    let task = Reducer { isa, op, dtype, reduction, inputs: &bound.inputs, launch };
    let Some(term) = reduction.term else {
        // SAFETY: `Reducer` passes blocks of `n` elements of the compute dtype, and `floats` is called only
        // for a float dtype.
        let floats = |data, n| unsafe { f64::fold(isa, op, dtype, data, n) };
        // SAFETY: `Reducer` passes blocks of `n` elements of the compute dtype.
        let integers = |data, n| unsafe { i64::fold(isa, op, dtype, data, n) };
        return match dtype.is_float() {
            true => task.run::<f64>(bound.outputs[0], &floats),
            false => task.run::<i64>(bound.outputs[0], &integers),
        };
    };
    let of_term = |data, n| {
        // Never a mean: that is a row kernel's.
        let source = term.source(data, std::ptr::null(), launch.scalars);
        // SAFETY: `Reducer` passes `n` elements of the term's input, which is f32 or f64 as `dtype`; the
        // term reads no mean.
        unsafe { source.sum(isa, dtype, 0, n) }
    };
    task.run::<f64>(bound.outputs[0], &of_term)
}

/// Folds `n` elements of a block.
type BlockFold<'a, W> = &'a (dyn Fn(*const u8, usize) -> W + Sync);

/// The source of the elements to reduce.
enum Blocks<'a, 'b> {
    /// Contiguous elements: the address of the first, and an element's size.
    InPlace(*const u8, usize),
    /// Rows of contiguous elements at different addresses.
    InRows(&'a Lowered, &'a Access, Memory),
    /// Rows that indices select.
    Named(NamedRows<'a>, &'a Launch<'a>),
    /// Elements computed by the engine, and whether it prefetches.
    Computed(&'a mut Evaluator<'b>, bool),
}

impl Blocks<'_, '_> {
    fn block_len(&self, pos: usize, end: usize) -> usize {
        match self {
            // No registers are needed, so blocks are larger: 32 elements for each lane of a fold.
            Blocks::InPlace(..) => (2 * BLOCK_POSITIONS).min(end - pos),
            Blocks::InRows(program, ..) => {
                let inner = program.inner();
                (inner - pos % inner).min(2 * BLOCK_POSITIONS).min(end - pos)
            }
            // Whole strips of columns, as requested.
            Blocks::Named(..) => end - pos,
            Blocks::Computed(evaluator, _) => evaluator.block_len(pos, end),
        }
    }

    /// The address of positions `pos..pos + n`; the next block will probably begin at `next`.
    fn block(&mut self, pos: usize, n: usize, next: usize) -> Result<*const u8> {
        match self {
            Blocks::InPlace(first, size) => Ok(first.wrapping_add(pos * *size)),
            Blocks::InRows(program, access, memory) => {
                let inner = program.inner();
                let at = offset_of(access, &program.dims, pos / inner, pos % inner);
                Ok(memory.at::<u8>(0).wrapping_add(at * access.dtype.size()).cast_const())
            }
            Blocks::Named(rows, launch) => {
                // SAFETY: `run` called `check_inputs`, and the positions are within the space.
                unsafe { rows.at(pos, n) }.map_err(|index| launch.index_error(rows.operand(), index))
            }
            Blocks::Computed(evaluator, far) => {
                if *far {
                    evaluator.look_ahead(&[], next);
                }
                evaluator.block(pos, n, &[], 0)?;
                evaluator.result(0)
            }
        }
    }
}

struct Reducer<'a> {
    isa: Isa,
    op: ReduceOp,
    dtype: DType,
    reduction: &'a Reduction,
    inputs: &'a [Memory],
    launch: &'a Launch<'a>,
}

impl Reducer<'_> {
    fn run<W: Accumulator>(&self, out: Memory, fold: BlockFold<'_, W>) -> Result<()> {
        let r = self.reduction;
        let results = r.outer * r.columns;
        if results == 0 {
            return Ok(());
        }
        let mut partials: Vec<W>;
        let pieces;
        if r.count == 0 {
            pieces = 1;
            partials = vec![W::identity(self.op); results];
        } else if r.by_columns {
            pieces = r.count.div_ceil(SUM_PIECE_ROWS);
            partials = vec![W::identity(self.op); results * pieces];
            self.columns(&mut partials, pieces)?;
        } else {
            pieces = r.count.div_ceil(SUM_PIECE_ELEMENTS);
            partials = vec![W::identity(self.op); results * pieces];
            self.rows(&mut partials, pieces, fold)?;
        }
        if pieces > 1 {
            // The pieces of one result are `columns` apart.
            for o in 0..r.outer {
                for c in 0..r.columns {
                    let first = o * pieces * r.columns + c;
                    let joined = (1..pieces).fold(partials[first], |sum, p| {
                        W::join(self.op, sum, partials[first + p * r.columns])
                    });
                    // Earlier positions are no longer needed: results move up in order.
                    partials[o * r.columns + c] = joined;
                }
            }
        }
        // SAFETY: `run` checked that the output is of this dtype and holds `results` elements; `W` is f64
        // for a float dtype.
        unsafe { W::finish(self.op, self.dtype, r.count, &partials[..results], out) };
        Ok(())
    }

    /// The input that is reduced in place, without a prologue.
    fn input(&self) -> Option<u16> {
        match (self.reduction.term, self.reduction.program.outputs.first()) {
            (Some(term), _) => Some(term.input()),
            (None, Some(&(Src::Input(k), _))) => Some(k),
            (None, _) => None,
        }
    }

    /// The address of its first element, if all elements are contiguous.
    fn in_place(&self) -> Option<*const u8> {
        let program = &self.reduction.program;
        let k = self.input()?;
        let access = &program.inputs[k as usize];
        (access.contiguous && !access.dtype.is_narrow())
            .then(|| self.inputs[k as usize].at::<u8>(access.offset).cast_const())
    }

    fn read<R>(&self, f: impl FnOnce(&mut Blocks<'_, '_>) -> Result<R>) -> Result<R> {
        if let Some(first) = self.in_place() {
            return f(&mut Blocks::InPlace(first, self.dtype.size()));
        }
        let program = &self.reduction.program;
        if !self.reduction.by_columns
            && self.reduction.count > BLOCK_POSITIONS / 2
            && let Some(k) = self.input()
            && let Some(access) = program.inputs.get(k as usize)
            && program.is_read_by_rows(access)
        {
            return f(&mut Blocks::InRows(program, access, self.inputs[k as usize]));
        }
        // Sums of columns read whole rows.
        if self.reduction.by_columns
            && program.inner() == self.reduction.columns
            && let Some(rows) = NamedRows::of(program, self.inputs)
        {
            return f(&mut Blocks::Named(rows, self.launch));
        }
        // With a single step that reads rows in order, prefetches have no computation to overlap with.
        let far = program.is_far() && program.steps.len() > 1;
        with_evaluator(self.isa, program, self.inputs, self.launch, &[], |evaluator| {
            f(&mut Blocks::Computed(evaluator, far))
        })
    }

    fn is_large(&self) -> bool {
        self.reduction.program.numel * (self.reduction.program.steps.len() + 1) >= SERIAL_STEPS
            && threads::available() > 1
    }

    fn rows<W: Accumulator>(&self, partials: &mut [W], pieces: usize, fold: BlockFold<'_, W>) -> Result<()> {
        let count = self.reduction.count;
        let some = |first: usize, chunk: &mut [W]| {
            self.read(|blocks| {
                if count <= BLOCK_POSITIONS / 2 {
                    // A block holds several short rows.
                    let rows = BLOCK_POSITIONS / count;
                    for (i, results) in chunk.chunks_mut(rows).enumerate() {
                        let (pos, n) = ((first + i * rows) * count, results.len() * count);
                        let data = blocks.block(pos, n, pos + n)?;
                        for (j, result) in results.iter_mut().enumerate() {
                            let row = data.wrapping_add(j * count * self.dtype.register().size());
                            *result = fold(row, count);
                        }
                    }
                    return Ok(());
                }
                for (i, result) in chunk.iter_mut().enumerate() {
                    let (row, piece) = ((first + i) / pieces, (first + i) % pieces);
                    let mut pos = row * count + piece * SUM_PIECE_ELEMENTS;
                    let end = (row * count + count).min(pos + SUM_PIECE_ELEMENTS);
                    while pos < end {
                        let n = blocks.block_len(pos, end);
                        let data = blocks.block(pos, n, pos + n)?;
                        *result = W::join(self.op, *result, fold(data, n));
                        pos += n;
                    }
                }
                Ok(())
            })
        };
        if !self.is_large() {
            return some(0, partials);
        }
        let size = threads::piece(partials.len(), 1);
        threads::try_share_chunks(partials, size, |i, chunk| some(i * size, chunk))
    }

    fn columns<W: Accumulator>(&self, partials: &mut [W], pieces: usize) -> Result<()> {
        let r = self.reduction;
        let in_place = self.in_place().is_some();
        let widest = if in_place { CACHED_RESULTS } else { BLOCK_POSITIONS };
        // Strips narrow enough for all threads, of whole cache lines.
        let tasks = (threads::available() * 2).div_ceil(r.outer * pieces);
        let width = widest.min(r.columns.div_ceil(tasks).next_multiple_of(64));
        let some = |first: usize, start: usize, sums: &mut [W]| {
            // `first` numbers the piece, `start` the column within it.
            let (o, piece) = (first / pieces, first % pieces);
            let rows = piece * SUM_PIECE_ROWS..r.count.min((piece + 1) * SUM_PIECE_ROWS);
            let pos = |row: usize| (o * r.count + row) * r.columns + start;
            self.read(|blocks| {
                // The rows of one block.
                let step = if in_place { F32_SUM_TERMS } else { 1 };
                let mut narrow = [0f32; CACHED_RESULTS];
                for group in rows.clone().step_by(F32_SUM_TERMS) {
                    let end = rows.end.min(group + F32_SUM_TERMS);
                    W::open(self.op, self.dtype, &mut narrow[..sums.len()]);
                    for row in (group..end).step_by(step) {
                        let data = blocks.block(pos(row), sums.len(), pos(row + step))?;
                        let some = RowBlock { data, stride: r.columns, count: step.min(end - row) };
                        // SAFETY: the block holds as many elements as there are sums; if it is read in
                        // place, so do the rows after it. `W` is f64 for a float dtype.
                        unsafe { W::accumulate(self.isa, self.op, self.dtype, sums, &mut narrow, some) };
                    }
                    W::close(self.isa, self.op, self.dtype, sums, &narrow);
                }
                Ok(())
            })
        };
        let mut work: Vec<(usize, usize, &mut [W])> = partials
            .chunks_mut(r.columns)
            .enumerate()
            .flat_map(|(i, piece)| {
                piece.chunks_mut(width).enumerate().map(move |(j, sums)| (i, j * width, sums))
            })
            .collect();
        if self.is_large() {
            threads::try_share_chunks(&mut work, 1, |_, one| {
                one.iter_mut().try_for_each(|(i, start, sums)| some(*i, *start, sums))
            })
        } else {
            work.into_iter().try_for_each(|(i, start, sums)| some(i, start, sums))
        }
    }
}
