//! Reductions. The prologue runs through the block engine over an index space in one of two orders:
//!
//! - *rows*: reduced axes innermost, each block folded in interleaved lanes;
//! - *columns*: a long kept axis innermost, whole blocks of neighbouring results accumulated row by row, so that memory is
//!   read in order.
//!
//! An input reduced as it lies, with no prologue, is read in place without the engine.
//!
//! Pieces are cut by the shape alone, and joined in order, so that results are the same bits on any number of threads. Floats
//! are accumulated some 32 at a time in their own precision, and these sums joined in f64.
#![allow(unsafe_code)]

use std::sync::Arc;

use smallvec::SmallVec;
use tensor_core::{DType, Kernel, Launch, Layout, ReduceOp, Result, bf16, f16, kernel::Program};

use crate::{
    elementwise::{
        engine::{BLOCK, Evaluator, with_evaluator},
        lower::{Lowered, Src, lower},
        map::{PARALLEL, check_inputs},
        table,
    },
    memory::{
        buffer::{Bound, Memory},
        pool::Pool,
    },
    simd::{
        isa::Isa,
        loops::{accumulate, fold, fold_any_order, map2},
    },
    threads,
};

/// Elements of one result that one task folds.
const PIECE: usize = 1 << 16;
/// Rows that one task accumulates.
const ROWS: usize = 1 << 10;
/// Rows that are accumulated in f32 before they are joined in f64.
const GROUP: usize = 32;
/// Neighbouring results that are accumulated together when no block limits them: long runs of memory, read in order.
const STRIP: usize = 4096;
/// Fewer neighbouring results than this are not worth a block.
const MIN_COLUMNS: usize = 32;

/// A kernel with its index space in the order it is run.
struct Reduction {
    program: Lowered,
    /// Results before, and neighbouring results after, the reduced axes in the order of the space.
    outer: usize,
    columns: usize,
    /// Elements that go into one result.
    count: usize,
    /// Whether results are accumulated a block at a time.
    by_columns: bool,
}

fn prepare(kernel: &Kernel, program: &Program) -> Reduction {
    let (shape, axes) = (&kernel.space, kernel.reduced_axes());
    let reduced = |axis: &usize| axes.contains(axis);
    let count: usize = (0..shape.rank()).filter(reduced).map(|a| shape[a]).product();
    // The kept axes after the last reduced one of more than one element.
    let tail =
        (0..shape.rank()).rev().take_while(|a| !reduced(a) || shape[*a] == 1).last().unwrap_or(shape.rank());
    let columns: usize = (tail..shape.rank()).map(|a| shape[a]).product();
    let by_columns = columns >= MIN_COLUMNS && count > 1;
    let kept = (0..shape.rank()).filter(|a| !reduced(a));
    let order: SmallVec<[usize; 5]> = if by_columns {
        let (before, after): (Vec<usize>, Vec<usize>) = kept.partition(|&a| a < tail);
        before.into_iter().chain((0..shape.rank()).filter(reduced)).chain(after).collect()
    } else {
        kept.chain((0..shape.rank()).filter(reduced)).collect()
    };
    let ordered: SmallVec<[usize; 5]> = order.iter().map(|&a| shape[a]).collect();
    let layouts: Vec<Layout> = kernel.operands.iter().map(|operand| operand.layout.permute(&order)).collect();
    let results: usize = (0..shape.rank()).filter(|a| !reduced(a)).map(|a| shape[a]).product();
    let columns = if by_columns { columns } else { 1 };
    Reduction {
        program: lower(program, &ordered, &layouts),
        outer: results / columns.max(1),
        columns,
        count,
        by_columns,
    }
}

pub(crate) fn run(
    isa: Isa,
    pool: &Arc<Pool>,
    op: ReduceOp,
    program: &Program,
    launch: &Launch<'_>,
) -> Result<()> {
    let reduction = launch
        .compiled
        .get_or_try(|| Ok(prepare(launch.kernel, program)))?
        .ok_or_else(|| tensor_core::Error::invalid("launch", "the kernel was compiled by another backend"))?;
    let name = op.name();
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    check_inputs(name, &reduction.program, &bound.inputs, launch.scalars.len())?;
    bound.require(name, reduction.program.inputs.len(), 1)?;
    bound.require_apart(name)?;
    let dtype = program.output_dtype(0);
    let results = reduction.outer * reduction.columns;
    bound.outputs[0].require(name, dtype, results)?;
    let task = Task { isa, op, dtype, reduction, inputs: &bound.inputs, launch };
    if dtype.is_float() { task.run::<f64>(bound.outputs[0]) } else { task.run::<i64>(bound.outputs[0]) }
}

/// Where the elements to be reduced come from.
enum Blocks<'a, 'b> {
    /// The first of them and an element's size.
    InPlace(*const u8, usize),
    Computed(&'a mut Evaluator<'b>),
}

impl Blocks<'_, '_> {
    fn block_len(&self, pos: usize, end: usize) -> usize {
        match self {
            // No registers to hold: 32 elements for each lane of a fold.
            Blocks::InPlace(..) => (2 * BLOCK).min(end - pos),
            Blocks::Computed(evaluator) => evaluator.block_len(pos, end),
        }
    }

    /// Where positions `pos..pos + n` lie.
    fn block(&mut self, pos: usize, n: usize) -> Result<*const u8> {
        match self {
            Blocks::InPlace(first, size) => Ok(first.wrapping_add(pos * *size)),
            Blocks::Computed(evaluator) => Ok(evaluator.block(pos, n, &[], 0)?[0]),
        }
    }
}

struct Task<'a> {
    isa: Isa,
    op: ReduceOp,
    dtype: DType,
    reduction: &'a Reduction,
    inputs: &'a [Memory],
    launch: &'a Launch<'a>,
}

/// Rows of elements, `stride` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    data: *const u8,
    stride: usize,
    count: usize,
}

/// What partial results are held in: f64 for floats, i64 (whose low bits wrap as any integer's do) for the rest.
pub(crate) trait Wide: Copy + Send + Sync {
    fn identity(op: ReduceOp) -> Self;
    fn join(op: ReduceOp, a: Self, b: Self) -> Self;
    /// The fold of a block of the compute dtype.
    ///
    /// # Safety
    /// `data` holds `n` elements of the dtype's compute dtype.
    unsafe fn fold(isa: Isa, op: ReduceOp, dtype: DType, data: *const u8, n: usize) -> Self;
    /// Joins rows of the compute dtype to `sums`, element by element; or to `narrow` where that is its own precision, between
    /// [`Wide::open`], which empties it, and [`Wide::close`], which joins it to `sums`.
    ///
    /// # Safety
    /// Each row holds as many elements of the dtype's compute dtype as there are sums.
    unsafe fn accumulate(
        isa: Isa,
        op: ReduceOp,
        dtype: DType,
        sums: &mut [Self],
        narrow: &mut [f32],
        rows: Rows,
    );
    fn open(op: ReduceOp, dtype: DType, narrow: &mut [f32]);
    fn close(isa: Isa, op: ReduceOp, dtype: DType, sums: &mut [Self], narrow: &[f32]);
    /// # Safety
    /// `out` has room for `all.len()` elements of `dtype`.
    unsafe fn finish(op: ReduceOp, dtype: DType, count: usize, all: &[Self], out: Memory);
}

impl Task<'_> {
    fn run<W: Wide>(&self, out: Memory) -> Result<()> {
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
            pieces = r.count.div_ceil(ROWS);
            partials = vec![W::identity(self.op); results * pieces];
            self.columns(&mut partials, pieces)?;
        } else {
            pieces = r.count.div_ceil(PIECE);
            partials = vec![W::identity(self.op); results * pieces];
            self.rows(&mut partials, pieces)?;
        }
        if pieces > 1 {
            // The pieces of one result lie `columns` apart.
            for o in 0..r.outer {
                for c in 0..r.columns {
                    let first = o * pieces * r.columns + c;
                    let joined = (1..pieces).fold(partials[first], |sum, p| {
                        W::join(self.op, sum, partials[first + p * r.columns])
                    });
                    // Earlier places are done with: results move up in order.
                    partials[o * r.columns + c] = joined;
                }
            }
        }
        // SAFETY: the launch checked the output's size.
        unsafe { W::finish(self.op, self.dtype, r.count, &partials[..results], out) };
        Ok(())
    }

    /// The input's first element if it is reduced as it lies in memory.
    fn in_place(&self) -> Option<*const u8> {
        let program = &self.reduction.program;
        let Some(&(Src::Input(k), _)) = program.outputs.first() else { return None };
        let access = &program.inputs[k as usize];
        (access.contiguous && access.dtype == access.dtype.compute())
            .then(|| self.inputs[k as usize].at::<u8>(access.offset).cast_const())
    }

    fn read<R>(&self, f: impl FnOnce(&mut Blocks<'_, '_>) -> Result<R>) -> Result<R> {
        if let Some(first) = self.in_place() {
            return f(&mut Blocks::InPlace(first, self.dtype.size()));
        }
        with_evaluator(
            self.isa,
            &self.reduction.program,
            self.inputs,
            self.launch.scalars,
            &[],
            |evaluator| f(&mut Blocks::Computed(evaluator)),
        )
    }

    fn is_large(&self) -> bool {
        self.reduction.program.numel * (self.reduction.program.steps.len() + 1) >= PARALLEL
            && threads::available() > 1
    }

    fn rows<W: Wide>(&self, partials: &mut [W], pieces: usize) -> Result<()> {
        let count = self.reduction.count;
        let some = |first: usize, chunk: &mut [W]| {
            self.read(|blocks| {
                if count <= BLOCK / 2 {
                    // Several short rows a block.
                    let rows = BLOCK / count;
                    for (i, results) in chunk.chunks_mut(rows).enumerate() {
                        let pos = (first + i * rows) * count;
                        let data = blocks.block(pos, results.len() * count)?;
                        for (j, result) in results.iter_mut().enumerate() {
                            let row = data.wrapping_add(j * count * self.dtype.compute().size());
                            // SAFETY: the block holds these rows.
                            *result = unsafe { W::fold(self.isa, self.op, self.dtype, row, count) };
                        }
                    }
                    return Ok(());
                }
                for (i, result) in chunk.iter_mut().enumerate() {
                    let (row, piece) = ((first + i) / pieces, (first + i) % pieces);
                    let mut pos = row * count + piece * PIECE;
                    let end = (row * count + count).min(pos + PIECE);
                    while pos < end {
                        let n = blocks.block_len(pos, end);
                        let data = blocks.block(pos, n)?;
                        // SAFETY: the block holds n elements.
                        let folded = unsafe { W::fold(self.isa, self.op, self.dtype, data, n) };
                        *result = W::join(self.op, *result, folded);
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

    fn columns<W: Wide>(&self, partials: &mut [W], pieces: usize) -> Result<()> {
        let r = self.reduction;
        let in_place = self.in_place().is_some();
        let widest = if in_place { STRIP } else { BLOCK };
        // Strips narrow enough to go round, of whole cache lines.
        let tasks = (threads::available() * 2).div_ceil(r.outer * pieces);
        let width = widest.min(r.columns.div_ceil(tasks).next_multiple_of(64));
        let some = |first: usize, start: usize, sums: &mut [W]| {
            // `first` numbers the piece, `start` the column within it.
            let (o, piece) = (first / pieces, first % pieces);
            let rows = piece * ROWS..r.count.min((piece + 1) * ROWS);
            let pos = |row: usize| (o * r.count + row) * r.columns + start;
            self.read(|blocks| {
                // Rows that one block gives.
                let step = if in_place { GROUP } else { 1 };
                let mut narrow = [0f32; STRIP];
                for group in rows.clone().step_by(GROUP) {
                    let end = rows.end.min(group + GROUP);
                    W::open(self.op, self.dtype, &mut narrow[..sums.len()]);
                    for row in (group..end).step_by(step) {
                        let data = blocks.block(pos(row), sums.len())?;
                        let some = Rows { data, stride: r.columns, count: step.min(end - row) };
                        // SAFETY: the block holds as many elements as there are sums, and in place so do the rows after it.
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

/// The greater of two floats, or whichever is NaN: three vector instructions.
macro_rules! greater {
    ($a:expr, $v:expr) => {{
        let greater = if $v > $a { $v } else { $a };
        if $v.is_nan() { $v } else { greater }
    }};
}

/// The lesser of two floats, or whichever is NaN.
macro_rules! lesser {
    ($a:expr, $v:expr) => {{
        let lesser = if $v < $a { $v } else { $a };
        if $v.is_nan() { $v } else { lesser }
    }};
}

/// Whether floats are accumulated in f32 within a group.
fn is_narrow(op: ReduceOp, dtype: DType) -> bool {
    dtype != DType::F64 && op != ReduceOp::Prod
}

impl Wide for f64 {
    fn identity(op: ReduceOp) -> f64 {
        match op {
            ReduceOp::Prod => 1.0,
            ReduceOp::Max => f64::NEG_INFINITY,
            ReduceOp::Min => f64::INFINITY,
            _ => 0.0,
        }
    }

    #[inline(always)]
    fn join(op: ReduceOp, a: f64, b: f64) -> f64 {
        match op {
            ReduceOp::Prod => a * b,
            ReduceOp::Max => greater!(a, b),
            ReduceOp::Min => lesser!(a, b),
            _ => a + b,
        }
    }

    unsafe fn fold(isa: Isa, op: ReduceOp, dtype: DType, data: *const u8, n: usize) -> f64 {
        // `$sets` for what much is computed with.
        macro_rules! go {
            ($t:ty, $sets:expr) => {{
                let data = data.cast::<$t>();
                // SAFETY: the caller's promise.
                unsafe {
                    match op {
                        ReduceOp::Prod => {
                            f64::from(fold(isa, isa.narrow(), data, n, 1.0 as $t, |a, v| a * v, |a, b| a * b))
                        }
                        ReduceOp::Max => {
                            let pick = |a: $t, v: $t| greater!(a, v);
                            f64::from(fold(isa, $sets, data, n, <$t>::NEG_INFINITY, pick, pick))
                        }
                        ReduceOp::Min => {
                            let pick = |a: $t, v: $t| lesser!(a, v);
                            f64::from(fold(isa, $sets, data, n, <$t>::INFINITY, pick, pick))
                        }
                        _ => f64::from(fold(isa, $sets, data, n, 0.0 as $t, |a, v| a + v, |a, b| a + b)),
                    }
                }
            }};
        }
        if dtype == DType::F64 { go!(f64, isa.narrow()) } else { go!(f32, isa) }
    }

    unsafe fn accumulate(
        isa: Isa,
        op: ReduceOp,
        dtype: DType,
        sums: &mut [f64],
        narrow: &mut [f32],
        rows: Rows,
    ) {
        macro_rules! go {
            ($sets:expr, $t:ty, $to:expr, $f:expr) => {{
                let data = rows.data.cast::<$t>();
                // SAFETY: the caller's promise.
                unsafe { accumulate($sets, $to, data, rows.stride, rows.count, $f) }
            }};
        }
        let few = isa.narrow();
        let narrow = &mut narrow[..sums.len()];
        match (dtype == DType::F64, op) {
            (true, ReduceOp::Prod) => go!(few, f64, sums, |a, v| a * v),
            (true, ReduceOp::Max) => go!(few, f64, sums, |a, v| greater!(a, v)),
            (true, ReduceOp::Min) => go!(few, f64, sums, |a, v| lesser!(a, v)),
            (true, _) => go!(few, f64, sums, |a, v| a + v),
            // Products leave the range of f32 too easily.
            (false, ReduceOp::Prod) => go!(few, f32, sums, |a, v| a * f64::from(v)),
            (false, ReduceOp::Max) => go!(isa, f32, narrow, |a, v| greater!(a, v)),
            (false, ReduceOp::Min) => go!(isa, f32, narrow, |a, v| lesser!(a, v)),
            (false, _) => go!(isa, f32, narrow, |a, v| a + v),
        }
    }

    fn open(op: ReduceOp, dtype: DType, narrow: &mut [f32]) {
        if is_narrow(op, dtype) {
            narrow.fill(f64::identity(op) as f32);
        }
    }

    fn close(isa: Isa, op: ReduceOp, dtype: DType, sums: &mut [f64], narrow: &[f32]) {
        if !is_narrow(op, dtype) {
            return;
        }
        let few = isa.narrow();
        let (n, sums, narrow) = (sums.len().min(narrow.len()), sums.as_mut_ptr(), narrow.as_ptr());
        // SAFETY: both hold n elements.
        unsafe {
            match op {
                ReduceOp::Max => {
                    map2(few, sums, narrow, sums, n, |a, v| f64::join(ReduceOp::Max, a, f64::from(v)))
                }
                ReduceOp::Min => {
                    map2(few, sums, narrow, sums, n, |a, v| f64::join(ReduceOp::Min, a, f64::from(v)))
                }
                _ => map2(few, sums, narrow, sums, n, |a, v| a + f64::from(v)),
            }
        }
    }

    unsafe fn finish(op: ReduceOp, dtype: DType, count: usize, all: &[f64], out: Memory) {
        let last = |v: f64| if op == ReduceOp::Mean { v / count as f64 } else { v };
        for (i, &v) in all.iter().enumerate() {
            let v = last(v);
            // SAFETY: the caller's promise.
            unsafe {
                match dtype {
                    DType::F64 => out.at::<f64>(i).write(v),
                    DType::F16 => out.at::<f16>(i).write(f16::from_f32(v as f32)),
                    DType::BF16 => out.at::<bf16>(i).write(bf16::from_f32(v as f32)),
                    _ => out.at::<f32>(i).write(v as f32),
                }
            }
        }
    }
}

impl Wide for i64 {
    fn identity(op: ReduceOp) -> i64 {
        match op {
            ReduceOp::Prod | ReduceOp::All => 1,
            ReduceOp::Max => i64::MIN,
            ReduceOp::Min => i64::MAX,
            _ => 0,
        }
    }

    #[inline(always)]
    fn join(op: ReduceOp, a: i64, b: i64) -> i64 {
        match op {
            ReduceOp::Prod => a.wrapping_mul(b),
            ReduceOp::Max => a.max(b),
            ReduceOp::Min => a.min(b),
            ReduceOp::Any => a | b,
            ReduceOp::All => a & b,
            _ => a.wrapping_add(b),
        }
    }

    unsafe fn fold(isa: Isa, op: ReduceOp, dtype: DType, data: *const u8, n: usize) -> i64 {
        macro_rules! go {
            ($t:ty, $start:expr, $f:expr) => {{
                // SAFETY: the caller's promise.
                unsafe { fold_any_order(isa, data.cast::<$t>(), n, $start, |a, v| $f(a, i64::from(v)), $f) }
            }};
        }
        let (or, and) = (|a: i64, b: i64| a | b, |a: i64, b: i64| a & b);
        match (dtype, op) {
            (DType::I64, ReduceOp::Prod) => go!(i64, 1, i64::wrapping_mul),
            (DType::I64, ReduceOp::Max) => go!(i64, i64::MIN, i64::max),
            (DType::I64, ReduceOp::Min) => go!(i64, i64::MAX, i64::min),
            (DType::I64, ReduceOp::Any) => go!(i64, 0, or),
            (DType::I64, ReduceOp::All) => go!(i64, 1, and),
            (DType::I64, _) => go!(i64, 0, i64::wrapping_add),
            // What masks are asked.
            (DType::Bool | DType::U8, ReduceOp::Sum) => go!(u8, 0, i64::wrapping_add),
            (DType::Bool | DType::U8, ReduceOp::Any) => go!(u8, 0, or),
            (DType::Bool | DType::U8, ReduceOp::All) => go!(u8, 1, and),
            _ => {
                let mut all = i64::identity(op);
                // SAFETY: the caller's promise.
                let folded = unsafe {
                    table::as_i64(isa, dtype, [data], n, &mut |_, [wide], n| {
                        all = i64::join(op, all, i64::fold(isa, op, DType::I64, wide, n));
                        Ok(())
                    })
                };
                debug_assert!(folded.is_ok());
                all
            }
        }
    }

    unsafe fn accumulate(isa: Isa, op: ReduceOp, dtype: DType, sums: &mut [i64], _: &mut [f32], rows: Rows) {
        macro_rules! go {
            ($t:ty) => {{
                let data = rows.data.cast::<$t>();
                // SAFETY: the caller's promise.
                unsafe {
                    accumulate(isa.narrow(), sums, data, rows.stride, rows.count, |a, v| {
                        i64::join(op, a, v as i64)
                    })
                }
            }};
        }
        match dtype {
            DType::I64 => go!(i64),
            DType::I32 => go!(i32),
            DType::U32 => go!(u32),
            _ => go!(u8),
        }
    }

    fn open(_: ReduceOp, _: DType, _: &mut [f32]) {}

    fn close(_: Isa, _: ReduceOp, _: DType, _: &mut [i64], _: &[f32]) {}

    unsafe fn finish(_: ReduceOp, dtype: DType, _: usize, all: &[i64], out: Memory) {
        for (i, &v) in all.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                match dtype {
                    DType::I64 => out.at::<i64>(i).write(v),
                    DType::I32 => out.at::<i32>(i).write(v as i32),
                    DType::U32 => out.at::<u32>(i).write(v as u32),
                    DType::U8 => out.at::<u8>(i).write(v as u8),
                    _ => out.at::<bool>(i).write(v != 0),
                }
            }
        }
    }
}
