//! The folds of a row kernel: the running reduction of one row, and the terms that a fold's own loop
//! computes from memory, such as squared deviations from a mean, so that they are neither stored nor read
//! again. Reductions use these terms too.
#![allow(unsafe_code)]

use tensor_core::{BinaryOp, CompareOp, DType, ReduceOp, Scalar};

use super::accumulator::Accumulator;
use crate::{
    elementwise::lower::{Access, Code, Lowered, Src},
    memory::buffer::Memory,
    simd::{isa::Isa, loops::fold},
};

/// A reduction of one of a pass's results.
pub(super) struct RowFold {
    pub(super) op: ReduceOp,
    pub(super) dtype: DType,
    pub(super) row: u16,
}

/// The term that is folded, computed from contiguous inputs of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// The elements of an input.
    Element(u16),
    /// The squares of an input's elements.
    Square(u16),
    /// The squares of an input's differences from another input, which is one number for each row.
    SquaredDifference(u16, u16),
    /// An input's elements, with NaN replaced by a scalar.
    Numbers(u16, u16),
}

/// The addresses of the terms of a row.
pub(super) enum TermSource {
    Elements(*const u8),
    Squares(*const u8),
    SquaredDifferences(*const u8, *const u8),
    Numbers(*const u8, Scalar),
}

impl Term {
    /// The term of a pass's fold, for its `f`th result, if it is one of these. `in_order` tells which
    /// inputs have contiguous rows.
    pub(super) fn of(
        program: &Lowered,
        f: usize,
        fold: &RowFold,
        in_order: impl Fn(&Access) -> bool,
        is_row_value: impl Fn(u16) -> bool,
    ) -> Option<Term> {
        let (src, dtype) = program.outputs[f];
        let input_of = |src: Src| match src {
            Src::Input(k) => {
                let access = &program.inputs[k as usize];
                (in_order(access) && access.dtype == dtype && !dtype.is_narrow()).then_some(k)
            }
            Src::Reg(_) => None,
        };
        // The last step that writes a result's register computes the result.
        let made = |src: Src| match src {
            Src::Reg(r) => program.steps.iter().rfind(|step| step.dst == r),
            Src::Input(_) => None,
        };
        if let Some(k) = input_of(src) {
            return Some(Term::Element(k));
        }
        let is_sum = matches!(fold.op, ReduceOp::Sum | ReduceOp::Mean) && fold.dtype == dtype;
        let step = made(src).filter(|step| is_sum && step.to == dtype && step.from == dtype)?;
        if !matches!(dtype, DType::F32 | DType::F64) {
            return None;
        }
        let base = match step.code {
            Code::Powi(2, base) => base,
            // The patterns x == x ? x : scalar, and x != x ? scalar : x.
            Code::Choose(CompareOp::Eq, [x, same, x1, Src::Reg(r)])
            | Code::Choose(CompareOp::Ne, [x, same, Src::Reg(r), x1])
                if x == same && x == x1 && (r as usize) < program.scalars.len() =>
            {
                return input_of(x).map(|k| Term::Numbers(k, r));
            }
            Code::Arange { .. } | Code::Random { .. } | Code::Unary(..) | Code::Powi(..) => return None,
            Code::Binary(..) | Code::Compare(..) | Code::Select(..) | Code::Choose(..) => return None,
            Code::Cast(_) | Code::LoadAt(_) => return None,
        };
        if let Some(k) = input_of(base) {
            return Some(Term::Square(k));
        }
        // The register of the squared value may have been reused since.
        let at = program.steps.iter().position(|other| std::ptr::eq(other, step))?;
        let Src::Reg(r) = base else { return None };
        let difference = program.steps[..at].iter().rfind(|other| other.dst == r)?;
        let Code::Binary(BinaryOp::Sub, x, Src::Input(mean)) = difference.code else { return None };
        let is_row =
            difference.from == dtype && program.inputs[mean as usize].dtype == dtype && is_row_value(mean);
        input_of(x).filter(|_| is_row).map(|k| Term::SquaredDifference(k, mean))
    }

    /// The input whose elements the term reads.
    pub(super) fn input(self) -> u16 {
        let (Term::Element(k) | Term::Square(k) | Term::SquaredDifference(k, _) | Term::Numbers(k, _)) = self;
        k
    }

    /// The addresses of the terms of row `row`, whose first element is number `first`.
    pub(super) fn at(
        self,
        program: &Lowered,
        inputs: &[Memory],
        scalars: &[Scalar],
        row: usize,
        first: usize,
    ) -> TermSource {
        let element = |k: u16, at: usize| {
            let access = &program.inputs[k as usize];
            inputs[k as usize]
                .at::<u8>(0)
                .wrapping_add((access.offset + at) * access.dtype.size())
                .cast_const()
        };
        let mean = match self {
            Term::SquaredDifference(_, mean) => element(mean, row),
            Term::Element(_) | Term::Square(_) | Term::Numbers(..) => std::ptr::null(),
        };
        self.source(element(self.input(), first), mean, scalars)
    }

    /// The terms of the elements at `data`; `mean` is the number that squared differences are taken from.
    pub(super) fn source(self, data: *const u8, mean: *const u8, scalars: &[Scalar]) -> TermSource {
        match self {
            Term::Element(_) => TermSource::Elements(data),
            Term::Square(_) => TermSource::Squares(data),
            Term::SquaredDifference(..) => TermSource::SquaredDifferences(data, mean),
            Term::Numbers(_, other) => TermSource::Numbers(data, scalars[other as usize]),
        }
    }
}

impl TermSource {
    /// The sum of `n` terms of a row, from number `start` on.
    ///
    /// # Safety
    /// Each address of elements holds `start + n` initialised numbers of `dtype`: f32 or f64, or the
    /// compute type of another float. The address of a mean holds one.
    pub(super) unsafe fn sum(&self, isa: Isa, dtype: DType, start: usize, n: usize) -> f64 {
        macro_rules! go {
            ($sets:expr, $t:ty, $bits:ty) => {{
                let from = |data: &*const u8| data.cast::<$t>().wrapping_add(start);
                macro_rules! sum {
                    ($data:expr, $add:expr) => {
                        // SAFETY: by `# Safety` there are `start + n` numbers behind `$data`; `$t` is f64
                        // for F64, else f32.
                        f64::from(unsafe { fold(isa, $sets, from($data), n, 0.0 as $t, $add, |a, b| a + b) })
                    };
                }
                match self {
                    TermSource::Elements(data) => sum!(data, |a: $t, v: $t| a + v),
                    TermSource::Squares(data) => sum!(data, |a: $t, v: $t| a + v * v),
                    TermSource::SquaredDifferences(data, mean) => {
                        // SAFETY: the address of a mean holds one number by `# Safety`.
                        let mean = unsafe { mean.cast::<$t>().read() };
                        let add = |a: $t, v: $t| {
                            let difference = v - mean;
                            a + difference * difference
                        };
                        sum!(data, add)
                    }
                    TermSource::Numbers(data, other) => {
                        // Uses masks: the compiler would turn a conditional into a load and keep the sums
                        // in memory.
                        let other = (other.as_f64() as $t).to_bits();
                        let add = |a: $t, v: $t| {
                            let mask = <$bits>::from(!v.is_nan()).wrapping_neg();
                            a + <$t>::from_bits(v.to_bits() & mask | other & !mask)
                        };
                        sum!(data, add)
                    }
                }
            }};
        }
        if dtype == DType::F64 { go!(isa.narrow(), f64, u64) } else { go!(isa, f32, u32) }
    }
}

/// The running reduction of a row.
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
        // SAFETY: `data` holds `n` elements by `# Safety`; only a float dtype has a `Total::Float`, by
        // `Total::start`.
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
    /// An address of elements in `source` holds `start + n` initialised ones of the fold's compute dtype;
    /// the address of a mean holds one.
    pub(super) unsafe fn add_terms(
        &mut self,
        isa: Isa,
        of: &RowFold,
        source: &TermSource,
        start: usize,
        n: usize,
    ) {
        if let TermSource::Elements(data) = source {
            // SAFETY: `n` elements of the compute dtype follow the first `start` elements, by `# Safety`.
            return unsafe { self.add(isa, of, data.wrapping_add(start * of.dtype.register().size()), n) };
        }
        if let Total::Float(total) = self {
            // SAFETY: by `# Safety` the source holds `start + n` elements of the compute dtype; a
            // `Total::Float` has a float dtype.
            *total += unsafe { source.sum(isa, of.dtype, start, n) };
        }
    }

    /// # Safety
    /// `out` has an element number `row`.
    pub(super) unsafe fn finish(&self, fold: &RowFold, count: usize, out: Memory, row: usize) {
        let here = Memory { ptr: out.ptr.wrapping_add(row * out.dtype.size()), numel: 1, dtype: out.dtype };
        // SAFETY: `here` is element `row` of `out`, which exists by `# Safety`, and has the dtype of `out`.
        unsafe {
            match *self {
                Total::Float(sum) => Accumulator::finish(fold.op, out.dtype, count, &[sum], here),
                Total::Int(sum) => Accumulator::finish(fold.op, out.dtype, count, &[sum], here),
            }
        }
    }
}
