//! Reductions of a few strided terms, such as those of pooling: the results of a row are computed together,
//! term by term, with each term read in place.
#![allow(unsafe_code)]

use tensor_core::{DType, Kernel, ReduceOp, collapse, kernel::Instr, kernel::Program};

use crate::{
    forms::Special,
    memory::buffer::Memory,
    simd::isa::{Isa, Job, Sets},
    threads,
    tuning::{CACHED_RESULTS, F32_SUM_TERMS, MIN_LOOP_ELEMENTS, SERIAL_STEPS},
};

/// A reduction, arranged as rows of results.
pub(crate) struct FewTerms {
    op: ReduceOp,
    /// The axes outside a row, with the operand's strides.
    lead: Vec<(usize, isize)>,
    rows: usize,
    /// The results in a row, and the distance between the first terms of neighbouring results.
    length: usize,
    stride: isize,
    /// The offset of each term from the first.
    terms: Vec<isize>,
    offset: usize,
}

impl FewTerms {
    /// The reduction in this form, if it is the best one: for floats that are reduced without a prologue
    /// and of which no row is contiguous in memory.
    pub(crate) fn of(kernel: &Kernel, op: ReduceOp, program: &Program) -> Option<FewTerms> {
        let taken = match op {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min => true,
            ReduceOp::Mean | ReduceOp::Prod | ReduceOp::Any | ReduceOp::All => false,
        };
        let ([operand], [Instr::Load(0)]) = (&kernel.operands[..], &program.instrs[..]) else { return None };
        if !Special::FewTerms.is_on()
            || !taken
            || operand.dtype != DType::F32
            || program.outputs.as_slice() != [0]
        {
            return None;
        }
        let (space, strides) = (&kernel.space, operand.layout.strides());
        let reduced = kernel.reduced_axes();
        let count: usize = reduced.iter().map(|&axis| space[axis]).product();
        let kept: Vec<usize> = (0..space.rank()).filter(|axis| !reduced.contains(axis)).collect();
        let sizes: Vec<usize> = kept.iter().map(|&axis| space[axis]).collect();
        let along: Vec<isize> = kept.iter().map(|&axis| strides[axis]).collect();
        let merged = collapse(&sizes, &[&along]);
        let (&length, lead) = merged.shape.split_last()?;
        let (&stride, lead_strides) = merged.strides[0].split_last()?;
        if !(2..=F32_SUM_TERMS).contains(&count)
            || length < MIN_LOOP_ELEMENTS
            || (stride == 1 && length >= CACHED_RESULTS)
        {
            return None;
        }
        let mut terms = vec![0];
        for &axis in &reduced {
            let steps = |from: isize| (0..space[axis] as isize).map(move |i| from + i * strides[axis]);
            terms = terms.into_iter().flat_map(steps).collect();
        }
        Some(FewTerms {
            op,
            rows: lead.iter().product(),
            lead: lead.iter().copied().zip(lead_strides.iter().copied()).collect(),
            length,
            stride,
            terms,
            offset: operand.layout.offset(),
        })
    }

    /// The number of results.
    pub(crate) fn results(&self) -> usize {
        self.rows * self.length
    }

    /// # Safety
    /// The kernel's operand is within `input`, and `out` has room for its results; both have the
    /// reduction's dtype and do not overlap.
    pub(crate) unsafe fn run(&self, isa: Isa, input: Memory, out: Memory) {
        let pieces = self.length.div_ceil(CACHED_RESULTS);
        let piece = |at: usize| {
            let (row, start) = (at / pieces, at % pieces * CACHED_RESULTS);
            let mut from = self.offset as isize + start as isize * self.stride;
            let mut rest = row;
            for &(size, stride) in self.lead.iter().rev() {
                from += (rest % size) as isize * stride;
                rest /= size;
            }
            let strip = Strip {
                from: input.at::<f32>(0).cast_const().wrapping_offset(from),
                terms: &self.terms,
                stride: self.stride,
                to: out.at::<f32>(row * self.length + start),
                n: CACHED_RESULTS.min(self.length - start),
            };
            // NaN is propagated, as by `Accumulator`.
            match self.op {
                ReduceOp::Max => strip.reduce(isa, f32::NEG_INFINITY, |a, v| {
                    let greater = if v > a { v } else { a };
                    if v.is_nan() { v } else { greater }
                }),
                ReduceOp::Min => strip.reduce(isa, f32::INFINITY, |a, v| {
                    let lesser = if v < a { v } else { a };
                    if v.is_nan() { v } else { lesser }
                }),
                ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod | ReduceOp::Any | ReduceOp::All => {
                    strip.reduce(isa, 0.0, |a, v| a + v)
                }
            }
        };
        let count = self.rows * pieces;
        if self.results() * self.terms.len() < SERIAL_STEPS || threads::available() == 1 {
            (0..count).for_each(piece);
        } else {
            threads::share_ranges(count, 1, |range| range.for_each(piece));
        }
    }
}

/// Neighbouring results, whose first terms start at `from`, `stride` apart.
#[derive(Clone, Copy)]
struct Strip<'a> {
    from: *const f32,
    terms: &'a [isize],
    stride: isize,
    to: *mut f32,
    n: usize,
}

impl Strip<'_> {
    fn reduce(self, isa: Isa, start: f32, f: impl Fn(f32, f32) -> f32 + Copy) {
        match self.stride {
            1 => isa.run(Reduce::<_, 1> { strip: self, start, f }),
            2 => isa.run(Reduce::<_, 2> { strip: self, start, f }),
            _ => isa.narrow().run(Reduce::<_, 0> { strip: self, start, f }),
        }
    }
}

/// A strip whose stride is `S`, or any stride if `S` is 0.
struct Reduce<'a, F, const S: isize> {
    strip: Strip<'a>,
    start: f32,
    f: F,
}

impl<F: Fn(f32, f32) -> f32 + Copy, const S: isize> Reduce<'_, F, S> {
    /// Adds `R` terms, from number `first` on, to all results.
    ///
    /// # Safety
    /// For each result i < n, the addresses `from + terms[t] + i * stride` hold initialised terms, and `to`
    /// has room for it. Results do not overlap terms, and the terms before `first` have been added.
    #[inline(always)]
    unsafe fn terms<const R: usize>(&self, first: usize) {
        let Strip { from, terms, stride, to, n } = self.strip;
        let stride = if S == 0 { stride } else { S };
        let from: [*const f32; R] = std::array::from_fn(|r| from.wrapping_offset(terms[first + r]));
        for i in 0..n {
            // SAFETY: result i and its terms are in memory by `# Safety`. A result is read only if an
            // earlier call wrote it: `first` is above 0.
            unsafe {
                let mut result = if first == 0 { self.start } else { to.add(i).read() };
                for from in from {
                    result = (self.f)(result, from.offset(i as isize * stride).read());
                }
                to.add(i).write(result);
            }
        }
    }
}

impl<F: Fn(f32, f32) -> f32 + Copy, const S: isize> Job for Reduce<'_, F, S> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let count = self.strip.terms.len();
        let mut first = 0;
        // SAFETY: only `FewTerms::run` makes strips: by its `# Safety` the operand and the results are in
        // memory. The loops add the terms in order, each once.
        unsafe {
            while first + 3 <= count {
                self.terms::<3>(first);
                first += 3;
            }
            while first < count {
                self.terms::<1>(first);
                first += 1;
            }
        }
    }
}
