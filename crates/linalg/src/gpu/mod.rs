//! The routines on GPUs: programs of WGSL kernels that process all matrices of a batch at once, without a
//! copy to the host.
//!
//! The kernels are in `shaders/wgsl/linalg`; this module combines them. Factorizations go by panels of
//! [`BLOCK`] columns: a workgroup factors a panel of its matrix, and the rest of the matrix is updated in
//! tiles. Singular values and eigenvalues come from Jacobi rotations of disjoint pairs of columns, one round
//! of pairs after the other.

mod factor;
mod jacobi;
mod reflections;
mod stages;

use backend_wgpu::WgslProgram;
use tensor_core::{DType, Kernel};

use crate::routine::Routine;

/// The width of a panel, in columns.
const BLOCK: usize = 16;

/// The greatest number of rows or columns: a software adapter ends loops after 65,535 iterations, without an
/// error.
const MOST_SIDE: usize = 24_576;

/// The program of a routine, if matrices of these sizes have one.
pub(crate) fn program(routine: Routine, kernel: &Kernel) -> Option<WgslProgram> {
    let operand = kernel.operands.first()?;
    let dtype = operand.dtype;
    let (&n, rest) = operand.layout.shape().dims().split_last()?;
    let (&m, lead) = rest.split_last()?;
    let right = kernel.operands.get(1).and_then(|b| b.layout.shape().dims().last().copied()).unwrap_or(0);
    if !matches!(dtype, DType::F32 | DType::F64) || m > MOST_SIDE || n > MOST_SIDE {
        return None;
    }
    let batch = lead.iter().product();
    let of = |inputs: &[&str], outputs: &[&str]| stages::Program::new(dtype, batch, inputs, outputs);
    Some(match routine {
        Routine::Cholesky => factor::cholesky(of(&["a"], &["l"]), n),
        Routine::Lu => factor::lu(of(&["a"], &["p", "l", "u"]), m, n),
        Routine::Solve => factor::solve(of(&["a", "given"], &["x"]), n, right),
        Routine::SolveTriangular { upper, unitriangular } => {
            factor::solve_triangular(of(&["a", "given"], &["x"]), n, right, upper, unitriangular)
        }
        Routine::Inv { checked } => factor::inv(of(&["a"], &["x"]), n, checked),
        Routine::Det => factor::det(of(&["a"], &["found"]), n),
        Routine::Slogdet => factor::slogdet(of(&["a"], &["sign", "log"]), n),
        // The callers of these routines have another method.
        Routine::Cofactor | Routine::Pinv { .. } => return None,
        Routine::Qr { complete } => reflections::qr(of(&["a"], &["q", "r"]), m, n, complete),
        Routine::Ldl => factor::ldl(of(&["a"], &["ld", "pivots"]), n),
        Routine::LdlSolve => {
            let right = kernel.operands.get(2)?.layout.shape().dims().last().copied()?;
            factor::ldl_solve(of(&["ld", "pivots", "given"], &["x"]), n, right)
        }
        Routine::Geqrf => reflections::geqrf(of(&["a"], &["packed", "tau"]), m, n),
        Routine::Svd { full } => jacobi::svd(of(&["a"], &["u", "s", "vh"]), m, n, Some(full)),
        Routine::Svdvals => jacobi::svd(of(&["a"], &["s"]), m, n, None),
        Routine::Eigh { upper } => jacobi::eigh(of(&["a"], &["values", "vectors"]), n, upper, true),
        Routine::Eigvalsh { upper } => jacobi::eigh(of(&["a"], &["values"]), n, upper, false),
    })
}
