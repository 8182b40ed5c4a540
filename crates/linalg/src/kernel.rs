//! [`Routine`] as a kernel: the shapes of its results, its implementation on the CPU, and that of `gpu`.

use backend_cpu::{CpuInput, CpuKernel, CpuOutput, dense};
use smallvec::SmallVec;
use tensor_core::{CustomKernel, DType, Error, Result, Shape, custom::Request};

use crate::{
    factor::{self, Real},
    outcome::{Fault, Outcome},
    routine::{FaultKind, Routine, check_matrix, check_square, unfit},
};

impl CustomKernel for Routine {
    fn name(&self) -> &'static str {
        match self {
            Routine::Cholesky => "linalg.cholesky",
            Routine::Lu => "linalg.lu",
            Routine::Solve => "linalg.solve",
            Routine::SolveTriangular { .. } => "linalg.solve_triangular",
            Routine::Inv { .. } => "linalg.inv",
            Routine::Pinv { .. } => "linalg.pinv",
            Routine::Det => "linalg.det",
            Routine::Slogdet => "linalg.slogdet",
            Routine::Cofactor => "linalg.det backward",
            Routine::Qr { .. } => "linalg.qr",
            Routine::Geqrf => "linalg.geqrf",
            Routine::Ldl => "linalg.ldl_factor",
            Routine::LdlSolve => "linalg.ldl_solve",
            Routine::Svd { .. } => "linalg.svd",
            Routine::Svdvals => "linalg.svdvals",
            Routine::Eigh { .. } => "linalg.eigh",
            Routine::Eigvalsh { .. } => "linalg.eigvalsh",
        }
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let op = self.name();
        let dtype = inputs[0].1;
        let (batch, m, n) = check_matrix(op, &inputs[0].0, dtype)?;
        if self.facts().is_square {
            check_square(op, &inputs[0].0)?;
        }
        let k = m.min(n);
        let of = |sizes: &[usize]| (batch.iter().chain(sizes).copied().collect::<Shape>(), dtype);
        Ok(match *self {
            Routine::Cholesky | Routine::Inv { .. } | Routine::Cofactor => vec![of(&[n, n])],
            Routine::Lu => vec![of(&[m, m]), of(&[m, k]), of(&[k, n])],
            Routine::Pinv { .. } => vec![of(&[n, m])],
            Routine::Solve | Routine::SolveTriangular { .. } => vec![inputs[1].clone()],
            Routine::Det => vec![of(&[])],
            Routine::Slogdet => vec![of(&[]), of(&[])],
            Routine::Qr { complete } => {
                let k = if complete { m } else { k };
                vec![of(&[m, k]), of(&[k, n])]
            }
            Routine::Geqrf => vec![of(&[m, n]), of(&[k])],
            Routine::Ldl => vec![of(&[n, n]), of(&[n])],
            Routine::LdlSolve => vec![inputs[2].clone()],
            Routine::Svd { full: true } => vec![of(&[m, m]), of(&[k]), of(&[n, n])],
            Routine::Svd { full: false } => vec![of(&[m, k]), of(&[k]), of(&[k, n])],
            Routine::Svdvals => vec![of(&[k])],
            Routine::Eigh { .. } => vec![of(&[n]), of(&[n, n])],
            Routine::Eigvalsh { .. } => vec![of(&[n])],
        })
    }

    fn key(&self) -> Vec<u64> {
        let (which, flags) = match *self {
            Routine::Pinv { atol, rtol } => return vec![13, atol.to_bits(), rtol.to_bits()],
            Routine::Cholesky => (0, 0),
            Routine::Lu => (1, 0),
            Routine::Solve => (2, 0),
            Routine::SolveTriangular { upper, unitriangular } => {
                (3, u64::from(upper) | u64::from(unitriangular) << 1)
            }
            Routine::Inv { checked } => (4, u64::from(checked)),
            Routine::Det => (5, 0),
            Routine::Slogdet => (6, 0),
            Routine::Cofactor => (7, 0),
            Routine::Qr { complete } => (8, u64::from(complete)),
            Routine::Svd { full } => (9, u64::from(full)),
            Routine::Svdvals => (10, 0),
            Routine::Eigh { upper } => (11, u64::from(upper)),
            Routine::Eigvalsh { upper } => (12, u64::from(upper)),
            Routine::Geqrf => (14, 0),
            Routine::Ldl => (15, 0),
            Routine::LdlSolve => (16, 0),
        };
        vec![which, flags]
    }

    fn implement(&self, request: &mut Request<'_>) {
        let routine = *self;
        request.provide(|_| {
            CpuKernel::new(move |inputs, outputs| match inputs[0].dtype() {
                DType::F32 => compute::<f32>(routine, inputs, outputs),
                DType::F64 => compute::<f64>(routine, inputs, outputs),
                dtype => Err(unfit(routine.name(), dtype)),
            })
        });
        #[cfg(feature = "wgpu")]
        request.provide_some(|kernel| crate::gpu::program(routine, kernel));
    }

    fn hint(&self) -> Option<&'static str> {
        Some(
            "a GPU has kernels for matrices of up to 24,576 rows and columns; move its inputs to the CPU, as x.to(&taper::cpu())?, and \
             its results back",
        )
    }

    fn may_fail(&self) -> bool {
        self.facts().fault != FaultKind::None
    }

    fn is_batched(&self) -> bool {
        true
    }

    /// The error for a code from the kernels of `gpu`: the order of a minor, the number of a pivot, or 1 for
    /// an element that is not finite.
    fn failure(&self, inputs: &[(Shape, DType)], code: u32, part: u32) -> Error {
        let fault = match self.facts().fault {
            FaultKind::Minor => Fault::Minor(code as usize),
            FaultKind::Pivot => Fault::Pivot(code as usize),
            FaultKind::Iteration if code == 1 => Fault::NotFinite,
            FaultKind::Iteration | FaultKind::None => Fault::NotConverged,
        };
        let is_batch = inputs.first().is_some_and(|(shape, _)| shape.rank() > 2);
        fault.error(self.name(), is_batch.then_some(part as usize))
    }
}

/// The work of a batch, in multiplications, from which threads share its matrices.
const SHARED_MIN_WORK: usize = 1 << 17;
/// Parts of a batch per thread.
const PARTS: usize = 8;

/// A part of a batch: its first matrix, the number of matrices, their results, and the first failure.
struct Part<'a, T> {
    first: usize,
    count: usize,
    outputs: Vec<&'a mut [T]>,
    failed: &'a mut Option<(usize, Fault)>,
}

/// Runs the routine on each matrix of the batch. Threads share small matrices; the computation of a large
/// one uses threads itself.
fn compute<T: Real>(routine: Routine, inputs: &[CpuInput<'_>], outputs: &mut [CpuOutput<'_>]) -> Result<()> {
    let shape = inputs[0].shape();
    let (lead, m, n) = check_matrix(routine.name(), shape, T::DTYPE)?;
    let batch: usize = lead.iter().product();
    if batch == 0 {
        return Ok(());
    }
    let given: Vec<&[T]> = inputs.iter().map(CpuInput::as_slice).collect::<Result<_>>()?;
    let mut rest: Vec<&mut [T]> = outputs.iter_mut().map(CpuOutput::as_mut_slice).collect::<Result<_>>()?;
    let threads = dense::available_threads();
    let are_shared = threads > 1 && batch >= threads && batch * m * n * m.min(n) >= SHARED_MIN_WORK;
    let count = batch.div_ceil(if are_shared { threads * PARTS } else { 1 });
    let sizes: Vec<usize> = rest.iter().map(|all| all.len() / batch).collect();
    let mut failures: Vec<Option<(usize, Fault)>> = vec![None; batch.div_ceil(count)];
    let mut parts = Vec::with_capacity(failures.len());
    for (i, failed) in failures.iter_mut().enumerate() {
        let first = i * count;
        let count = count.min(batch - first);
        let mut outputs = Vec::with_capacity(rest.len());
        for (all, size) in rest.iter_mut().zip(&sizes) {
            let (own, behind) = std::mem::take(all).split_at_mut(count * size);
            *all = behind;
            outputs.push(own);
        }
        parts.push(Part { first, count, outputs, failed });
    }
    let run = |part: Part<'_, T>| {
        let Part { first, count, mut outputs, failed } = part;
        for i in 0..count {
            let own: SmallVec<[&[T]; MAX_OPERANDS]> =
                given.iter().map(|all| own(all, first + i, batch)).collect();
            let mut to: SmallVec<[&mut [T]; MAX_OPERANDS]> =
                outputs.iter_mut().map(|all| own_mut(all, i, count)).collect();
            if let Err(fault) = one(routine, (m, n), &own, &mut to) {
                *failed = Some((first + i, fault));
                return;
            }
        }
    };
    if are_shared {
        dense::share(parts, run);
    } else {
        parts.into_iter().for_each(run);
    }
    match failures.into_iter().flatten().next() {
        Some((b, fault)) => Err(fault.error(routine.name(), (!lead.is_empty()).then_some(b))),
        None => Ok(()),
    }
}

/// The greatest number of inputs or outputs of a routine.
const MAX_OPERANDS: usize = 3;

fn own<T>(all: &[T], b: usize, batch: usize) -> &[T] {
    let size = all.len() / batch;
    &all[b * size..][..size]
}

fn own_mut<T>(all: &mut [T], b: usize, batch: usize) -> &mut [T] {
    let size = all.len() / batch;
    &mut all[b * size..][..size]
}

/// Runs the routine on one matrix.
fn one<T: Real>(
    routine: Routine,
    (m, n): (usize, usize),
    inputs: &[&[T]],
    outputs: &mut [&mut [T]],
) -> Outcome {
    let a = factor::view(inputs[0], m, n)?;
    match (routine, outputs) {
        (Routine::Cholesky, [l]) => factor::cholesky(a, l),
        (Routine::Lu, [p, l, u]) => factor::lu(a, p, l, u),
        (Routine::Solve, [x]) => factor::solve(a, inputs[1], x),
        (Routine::SolveTriangular { upper, unitriangular }, [x]) => {
            factor::solve_triangular(a, inputs[1], x, upper, unitriangular)
        }
        (Routine::Inv { checked }, [x]) => factor::inv(a, x, checked),
        (Routine::Pinv { atol, rtol }, [x]) => factor::pinv(a, x, atol, rtol),
        (Routine::Det, [det]) => factor::det(a, det),
        (Routine::Slogdet, [sign, log]) => factor::slogdet(a, sign, log),
        (Routine::Cofactor, [c]) => factor::cofactor(a, c),
        (Routine::Qr { complete }, [q, r]) => factor::qr(a, q, r, complete),
        (Routine::Ldl, [ld, pivots]) => factor::ldl(a, ld, pivots),
        (Routine::LdlSolve, [x]) => factor::ldl_solve(a, inputs[1], inputs[2], x),
        (Routine::Geqrf, [packed, tau]) => factor::geqrf(a, packed, tau),
        (Routine::Svd { full }, [u, s, vh]) => factor::svd(a, u, s, vh, full),
        (Routine::Svdvals, [s]) => factor::svdvals(a, s),
        (Routine::Eigh { upper }, [values, vectors]) => factor::eigh(a, upper, values, vectors),
        (Routine::Eigvalsh { upper }, [values]) => factor::eigvalsh(a, upper, values),
        (_, outputs) => Err(Fault::Malformed(format!("its kernel was given {} outputs", outputs.len()))),
    }
}
