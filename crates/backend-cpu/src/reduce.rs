//! Reductions. The prologue runs through the block engine over an index space in one of two orders:
//!
//! - *rows*: reduced axes innermost, each block folded in 32 interleaved lanes;
//! - *columns*: a long kept axis innermost, whole blocks of neighbouring results accumulated row by row, so that memory is
//!   read in order.
//!
//! Pieces are cut by the shape alone, and joined in order, so that results are the same bits on any number of threads. Floats
//! are joined in f64.
#![allow(unsafe_code)]

use std::sync::Arc;

use rayon::prelude::*;
use smallvec::SmallVec;
use tensor_core::{DType, Launch, Layout, ReduceOp, Result, bf16, f16, kernel::ReduceKernel};

use crate::{
    buffer::{Bound, Memory},
    engine::{BLOCK, Evaluator, with_evaluator},
    isa::Isa,
    loops::{fold, map2},
    lower::{Lowered, lower},
    map::{PARALLEL, check_inputs},
    pool::Pool,
    threads,
};

/// Elements of one result that one task folds.
const PIECE: usize = 1 << 16;
/// Rows that one task accumulates.
const ROWS: usize = 1 << 10;
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

fn prepare(kernel: &ReduceKernel) -> Reduction {
    let shape = &kernel.shape;
    let reduced = |axis: &usize| kernel.axes.contains(axis);
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
    let layouts: Vec<Layout> = kernel.inputs.iter().map(|l| l.permute(&order)).collect();
    let results: usize = (0..shape.rank()).filter(|a| !reduced(a)).map(|a| shape[a]).product();
    let columns = if by_columns { columns } else { 1 };
    Reduction {
        program: lower(&kernel.program, &ordered, &layouts),
        outer: results / columns.max(1),
        columns,
        count,
        by_columns,
    }
}

pub(crate) fn run(isa: Isa, pool: &Arc<Pool>, kernel: &ReduceKernel, launch: &Launch<'_>) -> Result<()> {
    let reduction = launch
        .compiled
        .get_or_try(|| Ok(prepare(kernel)))?
        .ok_or_else(|| tensor_core::Error::invalid("launch", "the kernel was compiled by another backend"))?;
    let name = kernel.op.name();
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    check_inputs(name, &reduction.program, &bound.inputs, launch.scalars.len())?;
    bound.require(name, reduction.program.inputs.len(), 1)?;
    bound.require_apart(name)?;
    let dtype = kernel.program.output_dtype(0);
    let results = reduction.outer * reduction.columns;
    bound.outputs[0].require(name, dtype, results)?;
    let task = Task { isa, op: kernel.op, dtype, reduction, inputs: &bound.inputs, launch };
    if dtype.is_float() { task.run::<f64>(bound.outputs[0]) } else { task.run::<i64>(bound.outputs[0]) }
}

struct Task<'a> {
    isa: Isa,
    op: ReduceOp,
    dtype: DType,
    reduction: &'a Reduction,
    inputs: &'a [Memory],
    launch: &'a Launch<'a>,
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
    /// Joins a block of the compute dtype to `sums`, element by element.
    ///
    /// # Safety
    /// As `fold`, for `sums.len()` elements.
    unsafe fn join_block(isa: Isa, op: ReduceOp, dtype: DType, sums: &mut [Self], data: *const u8);
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

    fn evaluator<R>(&self, f: impl FnOnce(&mut Evaluator<'_>) -> Result<R>) -> Result<R> {
        with_evaluator(self.isa, &self.reduction.program, self.inputs, self.launch.scalars, &[], f)
    }

    fn is_large(&self) -> bool {
        self.reduction.program.numel * (self.reduction.program.steps.len() + 1) >= PARALLEL
            && threads::available() > 1
    }

    fn rows<W: Wide>(&self, partials: &mut [W], pieces: usize) -> Result<()> {
        let count = self.reduction.count;
        let some = |first: usize, chunk: &mut [W]| {
            self.evaluator(|evaluator| {
                if count <= BLOCK / 2 {
                    // Several short rows a block.
                    let rows = BLOCK / count;
                    for (i, results) in chunk.chunks_mut(rows).enumerate() {
                        let pos = (first + i * rows) * count;
                        let data = evaluator.block(pos, results.len() * count, &[], 0)?[0];
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
                        let n = evaluator.block_len(pos, end);
                        let data = evaluator.block(pos, n, &[], 0)?[0];
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
        let size = partials.len().div_ceil(threads::available() * 4).max(1);
        partials.par_chunks_mut(size).enumerate().try_for_each(|(i, chunk)| some(i * size, chunk))
    }

    fn columns<W: Wide>(&self, partials: &mut [W], pieces: usize) -> Result<()> {
        let r = self.reduction;
        let narrow = BLOCK.min(r.columns.div_ceil(threads::available()).next_multiple_of(64));
        let some = |first: usize, start: usize, sums: &mut [W]| {
            // `first` numbers the piece, `start` the column within it.
            let (o, piece) = (first / pieces, first % pieces);
            self.evaluator(|evaluator| {
                for row in piece * ROWS..r.count.min((piece + 1) * ROWS) {
                    let pos = (o * r.count + row) * r.columns + start;
                    let data = evaluator.block(pos, sums.len(), &[], 0)?[0];
                    // SAFETY: the block holds as many elements as there are sums.
                    unsafe { W::join_block(self.isa, self.op, self.dtype, sums, data) };
                }
                Ok(())
            })
        };
        let work: Vec<(usize, usize, &mut [W])> = partials
            .chunks_mut(r.columns)
            .enumerate()
            .flat_map(|(i, piece)| {
                piece.chunks_mut(narrow).enumerate().map(move |(j, sums)| (i, j * narrow, sums))
            })
            .collect();
        if self.is_large() {
            work.into_par_iter().try_for_each(|(i, start, sums)| some(i, start, sums))
        } else {
            work.into_iter().try_for_each(|(i, start, sums)| some(i, start, sums))
        }
    }
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
            ReduceOp::Max => {
                if a > b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            ReduceOp::Min => {
                if a < b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            _ => a + b,
        }
    }

    unsafe fn fold(isa: Isa, op: ReduceOp, dtype: DType, data: *const u8, n: usize) -> f64 {
        macro_rules! go {
            ($t:ty) => {{
                let data = data.cast::<$t>();
                // SAFETY: the caller's promise.
                unsafe {
                    match op {
                        ReduceOp::Prod => {
                            f64::from(fold(isa, data, n, 1.0 as $t, |a, v| a * v, |a, b| a * b))
                        }
                        ReduceOp::Max => {
                            let pick = |a: $t, v: $t| if a > v || a.is_nan() { a } else { v };
                            f64::from(fold(isa, data, n, <$t>::NEG_INFINITY, pick, pick))
                        }
                        ReduceOp::Min => {
                            let pick = |a: $t, v: $t| if a < v || a.is_nan() { a } else { v };
                            f64::from(fold(isa, data, n, <$t>::INFINITY, pick, pick))
                        }
                        _ => f64::from(fold(isa, data, n, 0.0 as $t, |a, v| a + v, |a, b| a + b)),
                    }
                }
            }};
        }
        if dtype == DType::F64 { go!(f64) } else { go!(f32) }
    }

    unsafe fn join_block(isa: Isa, op: ReduceOp, dtype: DType, sums: &mut [f64], data: *const u8) {
        macro_rules! go {
            ($t:ty) => {{
                let (n, sums, data) = (sums.len(), sums.as_mut_ptr(), data.cast::<$t>());
                // SAFETY: the caller's promise; sums and data lie apart.
                unsafe {
                    match op {
                        ReduceOp::Prod => map2(isa, sums, data, sums, n, |a: f64, v: $t| a * f64::from(v)),
                        ReduceOp::Max => map2(isa, sums, data, sums, n, |a: f64, v: $t| {
                            let v = f64::from(v);
                            if a > v || a.is_nan() { a } else { v }
                        }),
                        ReduceOp::Min => map2(isa, sums, data, sums, n, |a: f64, v: $t| {
                            let v = f64::from(v);
                            if a < v || a.is_nan() { a } else { v }
                        }),
                        _ => map2(isa, sums, data, sums, n, |a: f64, v: $t| a + f64::from(v)),
                    }
                }
            }};
        }
        if dtype == DType::F64 { go!(f64) } else { go!(f32) }
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
            ($t:ty) => {
                // SAFETY: the caller's promise.
                unsafe {
                    match op {
                        ReduceOp::Prod => fold(
                            isa,
                            data.cast::<$t>(),
                            n,
                            1i64,
                            |a, v| a.wrapping_mul(v as i64),
                            i64::wrapping_mul,
                        ),
                        ReduceOp::Max => {
                            fold(isa, data.cast::<$t>(), n, i64::MIN, |a, v| a.max(v as i64), i64::max)
                        }
                        ReduceOp::Min => {
                            fold(isa, data.cast::<$t>(), n, i64::MAX, |a, v| a.min(v as i64), i64::min)
                        }
                        ReduceOp::Any => {
                            fold(isa, data.cast::<$t>(), n, 0i64, |a, v| a | v as i64, |a, b| a | b)
                        }
                        ReduceOp::All => {
                            fold(isa, data.cast::<$t>(), n, 1i64, |a, v| a & v as i64, |a, b| a & b)
                        }
                        _ => fold(
                            isa,
                            data.cast::<$t>(),
                            n,
                            0i64,
                            |a, v| a.wrapping_add(v as i64),
                            i64::wrapping_add,
                        ),
                    }
                }
            };
        }
        match dtype {
            DType::I64 => go!(i64),
            DType::I32 => go!(i32),
            DType::U32 => go!(u32),
            _ => go!(u8),
        }
    }

    unsafe fn join_block(isa: Isa, op: ReduceOp, dtype: DType, sums: &mut [i64], data: *const u8) {
        let (n, sums) = (sums.len(), sums.as_mut_ptr());
        macro_rules! go {
            ($t:ty) => {
                // SAFETY: the caller's promise.
                unsafe {
                    map2(isa, sums, data.cast::<$t>(), sums, n, |a: i64, v: $t| i64::join(op, a, v as i64))
                }
            };
        }
        match dtype {
            DType::I64 => go!(i64),
            DType::I32 => go!(i32),
            DType::U32 => go!(u32),
            _ => go!(u8),
        }
    }

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
