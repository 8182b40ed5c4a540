//! The folds of a row kernel: a reduction along one row under way, and the few terms that a fold's own loop computes of what lies in memory,
//! such as the squares of deviations from a mean, so that they are neither stored nor read again.
#![allow(unsafe_code)]

use smallvec::SmallVec;
use tensor_core::{BinaryOp, DType, ReduceOp};

use super::accumulator::Accumulator;
use crate::{
    elementwise::lower::{Code, Lowered, Src},
    memory::buffer::Memory,
    simd::{isa::Isa, loops::fold},
};

/// A reduction of one of a pass's results.
pub(super) struct RowFold {
    pub(super) op: ReduceOp,
    pub(super) dtype: DType,
    pub(super) row: u16,
}

/// What is folded, of inputs of the pass that lie in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// The elements of an input.
    Element(u16),
    /// Their squares.
    Square(u16),
    /// The squares of their differences from another input, which is one number a row.
    SquaredDifference(u16, u16),
}

/// Where the terms of a row lie.
pub(super) enum Lie {
    Elements(*const u8),
    Squares(*const u8),
    SquaredDifferences(*const u8, *const u8),
}

impl Term {
    /// The terms of a pass's fold, the `f`th of its results, if they are among those.
    pub(super) fn of(
        program: &Lowered,
        f: usize,
        fold: &RowFold,
        is_row_value: impl Fn(u16) -> bool,
    ) -> Option<Term> {
        let (src, dtype) = program.outputs[f];
        let lies = |src: Src| match src {
            Src::Input(k) => {
                let access = &program.inputs[k as usize];
                (access.contiguous && access.dtype == dtype && dtype == dtype.compute()).then_some(k)
            }
            Src::Reg(_) => None,
        };
        // A result's register is written last by the step that it is the result of.
        let made = |src: Src| match src {
            Src::Reg(r) => program.steps.iter().rfind(|step| step.dst == r),
            Src::Input(_) => None,
        };
        if let Some(k) = lies(src) {
            return Some(Term::Element(k));
        }
        let is_sum = matches!(fold.op, ReduceOp::Sum | ReduceOp::Mean) && fold.dtype == dtype;
        let step = made(src).filter(|step| is_sum && step.to == dtype && step.from == dtype)?;
        let Code::Powi(2, base) = step.code else { return None };
        if !matches!(dtype, DType::F32 | DType::F64) {
            return None;
        }
        if let Some(k) = lies(base) {
            return Some(Term::Square(k));
        }
        // The register of what is squared may have been taken for something else since.
        let at = program.steps.iter().position(|other| std::ptr::eq(other, step))?;
        let Src::Reg(r) = base else { return None };
        let difference = program.steps[..at].iter().rfind(|other| other.dst == r)?;
        let Code::Binary(BinaryOp::Sub, x, Src::Input(mean)) = difference.code else { return None };
        let is_row =
            difference.from == dtype && program.inputs[mean as usize].dtype == dtype && is_row_value(mean);
        lies(x).filter(|_| is_row).map(|k| Term::SquaredDifference(k, mean))
    }

    /// Where those of row `row` lie, whose first element is number `first`.
    pub(super) fn at(
        self,
        program: &Lowered,
        inputs: &SmallVec<[Memory; 4]>,
        row: usize,
        first: usize,
    ) -> Lie {
        let element = |k: u16, at: usize| {
            let access = &program.inputs[k as usize];
            inputs[k as usize]
                .at::<u8>(0)
                .wrapping_add((access.offset + at) * access.dtype.size())
                .cast_const()
        };
        match self {
            Term::Element(k) => Lie::Elements(element(k, first)),
            Term::Square(k) => Lie::Squares(element(k, first)),
            Term::SquaredDifference(k, mean) => {
                Lie::SquaredDifferences(element(k, first), element(mean, row))
            }
        }
    }
}

/// A row's reduction under way.
pub(super) enum Total {
    Float(f64),
    Int(i64),
}

impl Total {
    pub(super) fn start(fold: &RowFold) -> Total {
        if fold.dtype.is_float() {
            Total::Float(<f64 as Accumulator>::identity(fold.op))
        } else {
            Total::Int(<i64 as Accumulator>::identity(fold.op))
        }
    }

    /// # Safety
    /// `data` holds `n` elements of the fold's compute dtype.
    pub(super) unsafe fn add(&mut self, isa: Isa, fold: &RowFold, data: *const u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Total::Float(sum) => {
                    *sum =
                        Accumulator::join(fold.op, *sum, Accumulator::fold(isa, fold.op, fold.dtype, data, n))
                }
                Total::Int(sum) => {
                    *sum =
                        Accumulator::join(fold.op, *sum, Accumulator::fold(isa, fold.op, fold.dtype, data, n))
                }
            }
        }
    }

    /// Adds `n` terms of a row, from number `start` on.
    ///
    /// # Safety
    /// They lie in memory.
    pub(super) unsafe fn add_terms(&mut self, isa: Isa, of: &RowFold, lie: &Lie, start: usize, n: usize) {
        let from = |data: &*const u8| data.wrapping_add(start * of.dtype.compute().size());
        // x − 0 is x, but for the sign of a zero, which its square has not.
        macro_rules! squares {
            ($sets:expr, $t:ty, $data:expr, $mean:expr) => {{
                // SAFETY: each row of the tile has a mean.
                let mean = $mean.map_or(0.0, |mean: &*const u8| unsafe { mean.cast::<$t>().read() });
                let add = |a: $t, v: $t| {
                    let difference = v - mean;
                    a + difference * difference
                };
                // SAFETY: the caller's promise.
                f64::from(unsafe { fold(isa, $sets, $data.cast::<$t>(), n, 0.0 as $t, add, |a, b| a + b) })
            }};
        }
        let (data, mean) = match lie {
            // SAFETY: the caller's promise.
            Lie::Elements(data) => return unsafe { self.add(isa, of, from(data), n) },
            Lie::Squares(data) => (from(data), None),
            Lie::SquaredDifferences(data, mean) => (from(data), Some(mean)),
        };
        let sum = if of.dtype == DType::F64 {
            squares!(isa.narrow(), f64, data, mean)
        } else {
            squares!(isa, f32, data, mean)
        };
        if let Total::Float(total) = self {
            *total += sum;
        }
    }

    /// # Safety
    /// `out` has room at `row`.
    pub(super) unsafe fn finish(&self, fold: &RowFold, count: usize, out: Memory, row: usize) {
        let here = Memory { ptr: out.ptr.wrapping_add(row * out.dtype.size()), numel: 1, dtype: out.dtype };
        // SAFETY: the caller's promise.
        unsafe {
            match *self {
                Total::Float(sum) => Accumulator::finish(fold.op, out.dtype, count, &[sum], here),
                Total::Int(sum) => Accumulator::finish(fold.op, out.dtype, count, &[sum], here),
            }
        }
    }
}
