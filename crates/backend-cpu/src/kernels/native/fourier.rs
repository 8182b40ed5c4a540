//! Fourier transforms with `rustfft` and `realfft`; threads share the rows. Plans (the factors of a length
//! and its twiddle factors) are kept from launch to launch. Rows go through a plan in groups whose size
//! depends only on the length, so an element's bits do not depend on the number of threads.
#![allow(unsafe_code)]

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use realfft::{ComplexToReal, FftError, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftNum, FftPlanner, num_complex::Complex};
use smallvec::SmallVec;
use tensor_core::{CustomKernel, Error, Fourier, FourierKind, Launch, Layout, Result};

use super::custom::{Native, for_float};
use crate::{
    CpuBackend,
    memory::{
        buffer::{Bound, CpuBuffer, Memory},
        lines::Walk,
        pool::Pool,
    },
    threads,
    tuning::{COSTLY_ELEMENT_GRAIN, FOURIER_GROUP_NUMBERS, FOURIER_PLAN_LENGTHS, FOURIER_PLANS},
};

/// Rows that are gathered together at least: as many complex numbers in f32 as a cache line has.
const SIDE_BY_SIDE: usize = 8;

impl Native for Fourier {
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        for_float!(self, launch, typed(backend, *self, launch))
    }
}

fn typed<T: Real>(backend: &CpuBackend, of: Fourier, launch: &Launch<'_>) -> Result<()> {
    let (pool, layout) = (&backend.pool, &launch.kernel.operands[0].layout);
    let numel = layout.numel();
    if numel == 0 {
        return Ok(());
    }
    let bound = Bound::of_launch(pool, launch)?;
    let (n, bins) = (of.length, of.length / 2 + 1);
    let (taken, given) = match of.kind {
        FourierKind::Forward | FourierKind::Inverse => (2 * n, 2 * n),
        FourierKind::RealToHalf => (n, 2 * bins),
        FourierKind::HalfToReal => (2 * bins, n),
    };
    let plan = plan::<T>(of.kind, n);
    let spread = (!layout.is_contiguous()).then(|| Spread::of(layout, of.kind));
    let (from, to) = (bound.inputs[0], bound.outputs[0]);
    let rows = Rows { of, plan: &plan, from, offset: layout.offset(), spread, to, taken, given };
    let (count, group) = (numel / taken, (FOURIER_GROUP_NUMBERS / n).max(1));
    // The number of rows gathered together, in whole groups.
    let gathered = if rows.spread.is_some() { group * SIDE_BY_SIDE.div_ceil(group) } else { group };
    // SAFETY: `check_custom` and `of_launch` checked the sizes of both buffers; ranges have different rows.
    let some = |range| unsafe { rows.transform(pool, range, group, gathered) };
    let multiplications = count.saturating_mul(n).saturating_mul(2 * (n.ilog2() as usize + 1));
    match multiplications >= 2 * COSTLY_ELEMENT_GRAIN {
        true => threads::try_share_ranges(count, gathered, some),
        false => some(0..count),
    }
}

/// Rows of numbers, and the plan that transforms them.
struct Rows<'a, T: Real> {
    of: Fourier,
    plan: &'a FftPlan<T>,
    from: Memory,
    /// The offset of the first row.
    offset: usize,
    /// The layout of rows that are not contiguous.
    spread: Option<Spread<'a>>,
    to: Memory,
    /// The real numbers in an input row and in an output row.
    taken: usize,
    given: usize,
}

impl<T: Real> Rows<'_, T> {
    /// Transforms some rows, a group at a time.
    ///
    /// # Safety
    /// Both buffers have these rows, the input's initialised. Nothing else accesses these rows of the
    /// output, which is not the input.
    unsafe fn transform(
        &self,
        pool: &Arc<Pool>,
        rows: Range<usize>,
        group: usize,
        gathered: usize,
    ) -> Result<()> {
        let (n, bins) = (self.of.length, self.of.length / 2 + 1);
        // Room for a row that may be overwritten, and the plan's scratch, in complex numbers.
        let (own, besides) = match self.plan {
            FftPlan::Complex(plan) => (0, plan.get_immutable_scratch_len()),
            FftPlan::RealToHalf(plan) => (bins, plan.get_scratch_len()),
            FftPlan::HalfToReal(plan) => (bins, plan.get_scratch_len()),
        };
        let scratch = CpuBuffer::new(pool, self.from.dtype, 2 * (own + besides))?;
        let scratch = scratch.memory().at::<T>(0);
        // SAFETY: the buffer has that many numbers, is aligned for them, and lives until this function
        // returns; all-zero bytes are a valid number.
        let scratch: &mut [Complex<T>] = unsafe {
            scratch.write_bytes(0, 2 * (own + besides));
            std::slice::from_raw_parts_mut(scratch.cast(), own + besides)
        };
        let (own, besides) = scratch.split_at_mut(own);
        let room = if self.spread.is_some() { gathered.min(rows.len()) * self.taken } else { 0 };
        let room = CpuBuffer::new(pool, self.from.dtype, room)?;
        for start in rows.clone().step_by(group) {
            let count = group.min(rows.end - start);
            let done = start - rows.start;
            let first = self.from.at::<T>(self.offset).cast_const();
            // SAFETY: the input has these rows by `# Safety`; `room` is as large as `gathered` rows, or all
            // of them if they are fewer, and `gather` writes them before they are read.
            let from = unsafe {
                match &self.spread {
                    None => first.add(start * self.taken),
                    Some(spread) => {
                        let room = room.memory().at::<T>(0);
                        if done.is_multiple_of(gathered) {
                            spread.gather(first, start..rows.end.min(start + gathered), room);
                        }
                        room.add(done % gathered * self.taken).cast_const()
                    }
                }
            };
            let (taken, given) = (count * self.taken, count * self.given);
            // SAFETY: by `# Safety` these rows are within both buffers, and the output is not the input.
            // The output is zeroed before a slice covers it.
            let (from, to) = unsafe {
                let to = self.to.at::<T>(start * self.given);
                to.write_bytes(0, given);
                (std::slice::from_raw_parts(from, taken), std::slice::from_raw_parts_mut(to, given))
            };
            match self.plan {
                FftPlan::Complex(plan) => {
                    plan.process_immutable_with_scratch(complex(from), complex_mut(to), besides);
                }
                FftPlan::RealToHalf(plan) => {
                    let signal = &mut real_mut(own)[..n];
                    for (from, to) in from.chunks_exact(n).zip(complex_mut(to).chunks_exact_mut(bins)) {
                        signal.copy_from_slice(from);
                        plan.process_with_scratch(signal, to, besides).map_err(|e| self.misfit(&e))?;
                        self.weigh(to);
                    }
                }
                FftPlan::HalfToReal(plan) => {
                    for (from, to) in complex(from).chunks_exact(bins).zip(to.chunks_exact_mut(n)) {
                        own.copy_from_slice(from);
                        self.weigh(own);
                        // Frequencies 0 and n/2 have no mirror image; their imaginary parts are zero.
                        own[0].im = T::ZERO;
                        if n.is_multiple_of(2) {
                            own[n / 2].im = T::ZERO;
                        }
                        plan.process_with_scratch(own, to, besides).map_err(|e| self.misfit(&e))?;
                    }
                }
            }
            if self.of.factor != 1.0 {
                let factor = T::of(self.of.factor);
                to.iter_mut().for_each(|x| *x = *x * factor);
            }
        }
        Ok(())
    }

    /// Multiplies the frequencies of a half spectrum that have a mirror image.
    fn weigh(&self, half: &mut [Complex<T>]) {
        if self.of.mirrored != 1.0 {
            let weight = T::of(self.of.mirrored);
            let end = self.of.length.div_ceil(2);
            half[1..end].iter_mut().for_each(|x| *x = Complex::new(x.re * weight, x.im * weight));
        }
    }

    fn misfit(&self, error: &FftError) -> Error {
        Error::invalid(self.of.name(), format!("its plan does not fit its rows: {error}"))
    }
}

/// The layout of rows that are not contiguous.
struct Spread<'a> {
    /// The axes of the batch.
    dims: &'a [usize],
    strides: &'a [isize],
    /// The numbers in a row, their stride, and the stride between real and imaginary parts for complex
    /// rows.
    count: usize,
    along: isize,
    pair: Option<isize>,
}

impl Spread<'_> {
    fn of(layout: &Layout, kind: FourierKind) -> Spread<'_> {
        let (dims, strides) = (layout.shape().dims(), layout.strides());
        let axis = dims.len() - if kind == FourierKind::RealToHalf { 1 } else { 2 };
        let pair = strides.get(axis + 1).copied();
        Spread {
            dims: &dims[..axis],
            strides: &strides[..axis],
            count: dims[axis],
            along: strides[axis],
            pair,
        }
    }

    /// Gathers rows into contiguous memory.
    ///
    /// # Safety
    /// The rows are initialised and in memory at `first`; `to` has room for them, apart from that memory.
    unsafe fn gather<T: Copy>(&self, first: *const T, rows: Range<usize>, to: *mut T) {
        let mut walk = Walk::new(self.dims, self.strides, rows.start);
        let starts: SmallVec<[isize; 16]> = rows
            .map(|_| {
                let at = walk.offset;
                walk.next();
                at
            })
            .collect();
        let taken = self.count * if self.pair.is_some() { 2 } else { 1 };
        let side_by_side =
            self.strides.last().is_some_and(|next| next.unsigned_abs() < self.along.unsigned_abs());
        // SAFETY: row r has a number j < `count` by `# Safety`, and `to` has `taken` numbers for the row.
        let number = |r: usize, start: isize, j: usize| unsafe {
            let from = first.offset(start + j as isize * self.along);
            match self.pair {
                None => to.add(r * taken + j).write(from.read()),
                Some(pair) => {
                    let to = to.add(r * taken + 2 * j);
                    to.write(from.read());
                    to.add(1).write(from.offset(pair).read());
                }
            }
        };
        if side_by_side {
            for j in 0..self.count {
                starts.iter().enumerate().for_each(|(r, &start)| number(r, start, j));
            }
        } else {
            for (r, &start) in starts.iter().enumerate() {
                (0..self.count).for_each(|j| number(r, start, j));
            }
        }
    }
}

/// Pairs of real numbers as complex numbers.
fn complex<T: Real>(pairs: &[T]) -> &[Complex<T>] {
    // SAFETY: a complex number is a `repr(C)` struct of two such numbers, and `pairs` has two for each.
    unsafe { std::slice::from_raw_parts(pairs.as_ptr().cast(), pairs.len() / 2) }
}

/// Pairs of real numbers as mutable complex numbers.
fn complex_mut<T: Real>(pairs: &mut [T]) -> &mut [Complex<T>] {
    // SAFETY: a complex number is a `repr(C)` struct of two such numbers; the result keeps the borrow.
    unsafe { std::slice::from_raw_parts_mut(pairs.as_mut_ptr().cast(), pairs.len() / 2) }
}

/// Complex numbers as pairs of real numbers.
fn real_mut<T: Real>(numbers: &mut [Complex<T>]) -> &mut [T] {
    // SAFETY: a complex number is a `repr(C)` struct of two such numbers; the result keeps the borrow.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len() * 2) }
}

/// A plan for one length.
enum FftPlan<T> {
    Complex(Arc<dyn Fft<T>>),
    RealToHalf(Arc<dyn RealToComplex<T>>),
    HalfToReal(Arc<dyn ComplexToReal<T>>),
}

/// Recently used plans, the latest at the end.
struct FftPlans<T>(Vec<(FourierKind, usize, Arc<FftPlan<T>>)>);

/// The plan of a kind and a length: a kept one, or a new one, which evicts the least recently used plans.
fn plan<T: Real>(kind: FourierKind, n: usize) -> Arc<FftPlan<T>> {
    let mut plans = T::plans().lock().unwrap_or_else(PoisonError::into_inner);
    let plans = &mut plans.0;
    if let Some(at) = plans.iter().position(|(other, length, _)| (*other, *length) == (kind, n)) {
        plans[at..].rotate_left(1);
    } else {
        let plan = match kind {
            FourierKind::Forward => FftPlan::Complex(FftPlanner::new().plan_fft_forward(n)),
            FourierKind::Inverse => FftPlan::Complex(FftPlanner::new().plan_fft_inverse(n)),
            FourierKind::RealToHalf => FftPlan::RealToHalf(RealFftPlanner::new().plan_fft_forward(n)),
            FourierKind::HalfToReal => FftPlan::HalfToReal(RealFftPlanner::new().plan_fft_inverse(n)),
        };
        plans.push((kind, n, Arc::new(plan)));
        let mut sum: usize = plans.iter().map(|(_, length, _)| length).sum();
        while plans.len() > 1 && (plans.len() > FOURIER_PLANS || sum > FOURIER_PLAN_LENGTHS) {
            sum -= plans.remove(0).1;
        }
    }
    Arc::clone(&plans[plans.len() - 1].2)
}

/// f32 and f64.
trait Real: FftNum {
    const ZERO: Self;
    fn of(x: f64) -> Self;
    fn plans() -> &'static Mutex<FftPlans<Self>>;
}

macro_rules! real {
    ($($t:ty)*) => { $(
        impl Real for $t {
            const ZERO: $t = 0.0;
            fn of(x: f64) -> $t {
                x as $t
            }
            fn plans() -> &'static Mutex<FftPlans<$t>> {
                static PLANS: Mutex<FftPlans<$t>> = Mutex::new(FftPlans(Vec::new()));
                &PLANS
            }
        }
    )* };
}
real!(f32 f64);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::f64::consts::PI;

    use taper_testing::{assert_close, numbers, of};
    use tensor_core::{DType, Tensor};

    use super::*;
    use crate::cpu;

    const KINDS: [FourierKind; 4] =
        [FourierKind::Forward, FourierKind::Inverse, FourierKind::RealToHalf, FourierKind::HalfToReal];

    /// The defining sum, for one row.
    fn sum(of: Fourier, row: &[f64]) -> Vec<f64> {
        let n = of.length;
        let turns: Vec<(f64, f64)> = (0..n).map(|k| (2.0 * PI * k as f64 / n as f64).sin_cos()).collect();
        let weight = |k: usize| if k == 0 || 2 * k == n { 1.0 } else { of.mirrored };
        let whole: Vec<(f64, f64)> = match of.kind {
            FourierKind::Forward | FourierKind::Inverse => row.chunks(2).map(|x| (x[0], x[1])).collect(),
            FourierKind::RealToHalf => row.iter().map(|&x| (x, 0.0)).collect(),
            FourierKind::HalfToReal => {
                let at = |k: usize| (row[2 * k] * weight(k), row[2 * k + 1] * weight(k));
                (0..n).map(|k| if 2 * k <= n { at(k) } else { (at(n - k).0, -at(n - k).1) }).collect()
            }
        };
        let (count, sign) = match of.kind {
            FourierKind::Forward => (n, -1.0),
            FourierKind::Inverse | FourierKind::HalfToReal => (n, 1.0),
            FourierKind::RealToHalf => (n / 2 + 1, -1.0),
        };
        let term = |k: usize, j: usize| {
            let (sin, cos) = turns[j * k % n];
            let ((re, im), sin) = (whole[j], sign * sin);
            (re * cos - im * sin, re * sin + im * cos)
        };
        let at = |k: usize| (0..n).map(|j| term(k, j)).fold((0.0, 0.0), |s, t| (s.0 + t.0, s.1 + t.1));
        let factor = |k: usize| match of.kind {
            FourierKind::RealToHalf => of.factor * weight(k),
            FourierKind::Forward | FourierKind::Inverse | FourierKind::HalfToReal => of.factor,
        };
        let found = (0..count).map(|k| (at(k).0 * factor(k), at(k).1 * factor(k)));
        match of.kind {
            FourierKind::HalfToReal => found.map(|x| x.0).collect(),
            FourierKind::Forward | FourierKind::Inverse | FourierKind::RealToHalf => {
                found.flat_map(|x| [x.0, x.1]).collect()
            }
        }
    }

    fn shape(kind: FourierKind, rows: usize, n: usize) -> Vec<usize> {
        match kind {
            FourierKind::Forward | FourierKind::Inverse => vec![rows, n, 2],
            FourierKind::RealToHalf => vec![rows, n],
            FourierKind::HalfToReal => vec![rows, n / 2 + 1, 2],
        }
    }

    fn check(transform: Fourier, rows: usize, dtype: DType) {
        let (kind, n) = (transform.kind, transform.length);
        let shape = shape(kind, rows, n);
        let values: Vec<f64> =
            numbers(shape.iter().product(), n as u64).into_iter().map(|v| f64::from(v as f32)).collect();
        let x = of(&values, &shape, dtype, &cpu()).unwrap();
        let found = transform.apply(&x).unwrap().to_f64_vec().unwrap();
        let exact: Vec<f64> =
            values.chunks(values.len() / rows).flat_map(|row| sum(transform, row)).collect();
        // Rounding errors grow with the logarithm of the length and results with its root; the f64
        // reference rounds too.
        let unit = if dtype == DType::F64 { 4e-16 * n as f64 } else { 4e-7 };
        let within = unit * 4.0 * transform.factor.abs() * (n as f64).sqrt() * (n as f64).ln().max(1.0);
        assert_close(&found, &exact, (0.0, within), &format!("{rows} of {transform:?}, {dtype}"));
    }

    #[test]
    fn every_length_is_the_sum() {
        for kind in KINDS {
            for n in (1..=64).chain([67, 97, 100, 127, 163, 251, 326, 509, 512, 1009, 1024]) {
                for dtype in [DType::F32, DType::F64] {
                    check(Fourier::new(kind, n, 1.0), 3, dtype);
                }
                let weighted = Fourier { kind, length: n, factor: -0.75, mirrored: 2.0 };
                check(weighted, 2, DType::F64);
                check(weighted.adjoint(), 1, DType::F32);
            }
        }
    }

    /// Enough rows for every thread, in groups of which the last is incomplete.
    #[test]
    fn rows_that_lie_apart_have_the_bits_of_rows_together() {
        let base = of(&numbers(24 * 37 * 60 * 2, 5), &[24, 37, 60, 2], DType::F32, &cpu()).unwrap();
        let views = [
            base.permute([0, 2, 1, 3]).unwrap(),
            base.permute([1, 2, 0, 3]).unwrap().flip([0, 2]).unwrap(),
            base.permute([3, 0, 2, 1]).unwrap().slice_step(2, 1..60, 2).unwrap().narrow(3, 3, 2).unwrap(),
            base.select(0, 3).unwrap().narrow(1, 5, 1).unwrap().expand([37, 30, 2]).unwrap(),
        ];
        for (k, view) in views.iter().enumerate() {
            let n = view.dims()[view.rank() - 2];
            for kind in [FourierKind::Forward, FourierKind::RealToHalf] {
                let is_real = kind == FourierKind::RealToHalf;
                let x = if is_real { view.select(-1, 1).unwrap() } else { view.clone() };
                let of = Fourier::new(kind, n, 0.5);
                let both =
                    [x.clone(), x.contiguous().unwrap()].map(|x| of.apply(&x).unwrap().to_f64_vec().unwrap());
                assert!(both[0] == both[1], "view {k}, {kind:?}");
            }
        }
    }

    #[test]
    fn threads_share_rows() {
        for kind in KINDS {
            for (rows, n) in [(4001, 6), (1003, 15), (67, 300), (3, 2500)] {
                check(Fourier::new(kind, n, 1.0 / n as f64), rows, DType::F64);
            }
        }
    }

    #[test]
    fn an_empty_batch_and_what_is_no_number() {
        for kind in KINDS {
            let none = Tensor::zeros(shape(kind, 0, 12), (DType::F32, &cpu())).unwrap();
            let found = Fourier::new(kind, 12, 1.0).apply(&none).unwrap();
            assert_eq!(found.to_vec::<f32>().unwrap(), [0.0f32; 0]);
        }
        // The imaginary part of a frequency without a mirror image is ignored.
        let half = [3.0, f64::NAN, 0.0, 0.0, 1.0, f64::INFINITY];
        let half = of(&half, &[3, 2], DType::F64, &cpu()).unwrap();
        let found = Fourier::new(FourierKind::HalfToReal, 4, 1.0).apply(&half).unwrap();
        assert_eq!(found.to_vec::<f64>().unwrap(), [4.0, 2.0, 4.0, 2.0]);
    }

    #[test]
    fn plans_are_kept_and_not_for_ever() {
        let first = plan::<f64>(FourierKind::Forward, 77);
        assert!(Arc::ptr_eq(&first, &plan::<f64>(FourierKind::Forward, 77)));
        assert!(!Arc::ptr_eq(&first, &plan::<f64>(FourierKind::Inverse, 77)));
        for n in 1..=2 * FOURIER_PLANS {
            plan::<f64>(FourierKind::Inverse, n);
        }
        let held = |length: usize| {
            let plans = f64::plans().lock().unwrap();
            assert!(plans.0.len() <= FOURIER_PLANS);
            plans.0.iter().any(|(kind, n, _)| (*kind, *n) == (FourierKind::Forward, length))
        };
        assert!(!held(77));
        // A plan longer than the limit of all lengths is kept alone.
        plan::<f64>(FourierKind::Forward, FOURIER_PLAN_LENGTHS + 1);
        assert!(f64::plans().lock().unwrap().0.len() <= FOURIER_PLANS);
        plan::<f64>(FourierKind::Forward, 78);
        assert!(!held(FOURIER_PLAN_LENGTHS + 1));
    }
}
