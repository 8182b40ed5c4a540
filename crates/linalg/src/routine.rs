//! The routines by name, and the checks of their inputs; `kernel` has their implementations. Gradients are
//! with the functions that call them.

use std::sync::Arc;

use autograd::Function;
use tensor_core::{CustomKernel, DType, Error, Result, Shape, Tensor, at_caller, caller_line};

/// A computation on each matrix of a batch; matrices are in the last two axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Routine {
    /// `[n, n]` → L `[n, n]`; reads the lower triangle.
    Cholesky,
    /// `[m, n]` → P `[m, m]`, L `[m, k]`, U `[k, n]`, with k = min(m, n).
    Lu,
    /// `[n, n]`, `[n, r]` → `[n, r]`.
    Solve,
    /// `[n, n]`, `[n, r]` → `[n, r]`; reads one triangle.
    SolveTriangular { upper: bool, unitriangular: bool },
    /// `[n, n]` → `[n, n]`; if not `checked`, a singular matrix gives infinities.
    Inv { checked: bool },
    /// `[m, n]` → `[n, m]`; singular values up to max(atol, rtol·σ₁) count as 0.
    Pinv { atol: f64, rtol: f64 },
    /// `[n, n]` → `[]`.
    Det,
    /// `[n, n]` → the sign `[]` and the logarithm `[]`.
    Slogdet,
    /// `[n, n]` → `[n, n]`: the gradient of the determinant.
    Cofactor,
    /// `[m, n]` → Q `[m, k]`, R `[k, n]`, with k = min(m, n), or k = m if `complete`.
    Qr { complete: bool },
    /// `[m, n]` → R and reflections `[m, n]`, τ `[k]`.
    Geqrf,
    /// `[n, n]` → LD `[n, n]`, pivots `[n]`; reads the lower triangle.
    Ldl,
    /// LD `[n, n]`, pivots `[n]`, `[n, r]` → `[n, r]`.
    LdlSolve,
    /// `[m, n]` → U `[m, k]`, S `[k]`, Vᵀ `[k, n]`; if `full`, U is `[m, m]` and Vᵀ `[n, n]`.
    Svd { full: bool },
    /// `[m, n]` → `[k]`.
    Svdvals,
    /// `[n, n]` → `[n]`, `[n, n]`; reads one triangle.
    Eigh { upper: bool },
    /// `[n, n]` → `[n]`; reads one triangle.
    Eigvalsh { upper: bool },
}

/// The function's value, attributed to the line of the user's program.
#[track_caller]
pub(crate) fn apply<F: Function, T: AsRef<Tensor>>(function: F, inputs: &[T]) -> Result<F::Output> {
    at_caller(|| autograd::apply(function, inputs))
}

impl Routine {
    /// The results for these tensors.
    #[track_caller]
    pub(crate) fn run(self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        at_caller(|| Tensor::custom_kernel(Arc::new(self), inputs))
    }

    /// Whether the tensors' device has kernels for them.
    #[track_caller]
    pub(crate) fn runs(self, inputs: &[&Tensor]) -> Result<bool> {
        Tensor::has_custom_kernel(Arc::new(self), inputs)
    }

    /// The result of a routine with a single result.
    #[track_caller]
    pub(crate) fn run_one(self, inputs: &[&Tensor]) -> Result<Tensor> {
        let _line = caller_line();
        let mut results = self.run(inputs)?;
        results.pop().ok_or_else(|| Error::invalid(self.name(), "it has no results"))
    }

    /// The facts of the routine.
    pub(crate) fn facts(self) -> Facts {
        let facts = |is_square, fault| Facts { is_square, fault };
        match self {
            Routine::Cholesky => facts(true, FaultKind::Minor),
            Routine::Lu => facts(false, FaultKind::None),
            Routine::Solve | Routine::Inv { checked: true } => facts(true, FaultKind::Pivot),
            Routine::Inv { checked: false } => facts(true, FaultKind::None),
            Routine::SolveTriangular { .. } | Routine::Det | Routine::Slogdet => facts(true, FaultKind::None),
            Routine::Cofactor | Routine::Ldl | Routine::LdlSolve => facts(true, FaultKind::None),
            Routine::Qr { .. } | Routine::Geqrf => facts(false, FaultKind::None),
            Routine::Pinv { .. } | Routine::Svd { .. } | Routine::Svdvals => {
                facts(false, FaultKind::Iteration)
            }
            Routine::Eigh { .. } | Routine::Eigvalsh { .. } => facts(true, FaultKind::Iteration),
        }
    }
}

/// The facts of a routine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Whether the matrix must be square.
    pub(crate) is_square: bool,
    /// The meaning of the code of a failure.
    pub(crate) fault: FaultKind,
}

/// The failures of a routine, by what the code of one says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FaultKind {
    /// It cannot fail.
    None,
    /// The order of a minor that is not positive.
    Minor,
    /// The number of a pivot that is zero.
    Pivot,
    /// 1 for an element that is not finite; others for an iteration that does not converge.
    Iteration,
}

/// The leading axes and the two sizes, if there are kernels for the matrix.
///
/// # Errors
/// Fewer than two axes, or a dtype other than f32 and f64.
#[track_caller]
pub(crate) fn check_matrix<'a>(
    op: &'static str,
    shape: &'a Shape,
    dtype: DType,
) -> Result<(&'a [usize], usize, usize)> {
    let [batch @ .., m, n] = shape.dims() else {
        return Err(Error::invalid(
            op,
            format!(
                "shape {shape} is no matrix; two axes are needed, and any number before them for a batch"
            ),
        ));
    };
    match dtype {
        DType::F32 | DType::F64 => Ok((batch, *m, *n)),
        dtype => Err(unfit(op, dtype)),
    }
}

/// # Errors
/// A matrix that is not square.
#[track_caller]
pub(crate) fn check_square(op: &'static str, shape: &Shape) -> Result<()> {
    match shape.dims() {
        [.., m, n] if m == n => Ok(()),
        _ => Err(Error::invalid(
            op,
            format!("a matrix of shape {shape} is not square; its last two sizes must be equal"),
        )),
    }
}

#[track_caller]
pub(crate) fn unfit(op: &'static str, dtype: DType) -> Error {
    let message =
        format!("a matrix of {dtype} has no such kernel; cast it with .to_dtype(DType::F32)? or DType::F64");
    Error::invalid(op, message)
}

/// The results as an array; their number is the routine's.
#[track_caller]
pub(crate) fn exactly<const N: usize>(results: Vec<Tensor>) -> Result<[Tensor; N]> {
    let _line = caller_line();
    let count = results.len();
    results.try_into().map_err(|_| Error::invalid("linalg", format!("{count} results for {N}")))
}
