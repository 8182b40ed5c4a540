//! The Cholesky factorization.

use autograd::Function;
use tensor_core::{Result, Tensor, at_caller, caller_line};

use crate::{
    matrix::{mt, sizes, symmetric, with_ones},
    routine::{Routine, apply, check_matrix, check_square},
    solve::{fitting, triangular},
};

/// The Cholesky factor L with A = L·Lᵀ, lower triangular with a positive diagonal, of symmetric
/// positive-definite matrices `[…, n, n]`; with `upper`, Lᵀ. `torch.linalg.cholesky`.
///
/// Only the lower triangle of A is read, and the gradient is symmetric.
///
/// # Errors
/// Matrices that are not square, or not f32 or f64. When it is computed: a matrix that is not
/// positive-definite.
///
/// ```
/// let a = tensor_core::Tensor::new([[4.0f64, 2.0], [2.0, 10.0]], &backend_cpu::cpu())?;
/// assert_eq!(linalg::cholesky(&a, false)?.to_vec::<f64>()?, [2.0, 0.0, 1.0, 3.0]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn cholesky(a: &Tensor, upper: bool) -> Result<Tensor> {
    let _line = caller_line();
    let l = apply(Cholesky, &[a])?;
    if upper { mt(&l) } else { Ok(l) }
}

/// X with A·X = B, for the Cholesky factor L with A = L·Lᵀ (`upper`: U with A = Uᵀ·U) `[…, n, n]`, whose
/// other triangle is not read, and B `[…, n, r]`. The batch axes broadcast. `torch.cholesky_solve`, whose
/// first argument is B.
///
/// # Errors
/// A factor that is not square, sizes that do not fit, two dtypes or dtypes other than f32 and f64.
#[track_caller]
pub fn cholesky_solve(b: &Tensor, factor: &Tensor, upper: bool) -> Result<Tensor> {
    const OP: &str = "linalg.cholesky_solve";
    at_caller(|| {
        check_matrix(OP, factor.shape(), factor.dtype())?;
        check_square(OP, factor.shape())?;
        let [factor, b] = fitting(OP, factor, b)?;
        let (lower, raised) = if upper { (mt(&factor)?, factor) } else { (factor.clone(), mt(&factor)?) };
        triangular(&raised, &triangular(&lower, &b, false, false)?, true, false)
    })
}

/// A⁻¹ from the Cholesky factor L with A = L·Lᵀ (`upper`: U with A = Uᵀ·U) `[…, n, n]`, whose other triangle
/// is not read. `torch.cholesky_inverse`.
///
/// # Errors
/// A factor that is not square, or not f32 or f64.
#[track_caller]
pub fn cholesky_inverse(factor: &Tensor, upper: bool) -> Result<Tensor> {
    const OP: &str = "linalg.cholesky_inverse";
    at_caller(|| {
        check_matrix(OP, factor.shape(), factor.dtype())?;
        check_square(OP, factor.shape())?;
        let eye = Tensor::eye(sizes(factor).0, (factor.dtype(), &factor.device()))?.expand(factor.dims())?;
        let lower = if upper { mt(factor)? } else { factor.clone() };
        let inverse = triangular(&lower, &eye, false, false)?;
        mt(&inverse)?.matmul(&inverse)
    })
}

#[derive(Debug)]
struct Cholesky;

impl Function for Cholesky {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgCholesky"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Routine::Cholesky.run_one(inputs)
    }

    /// L⁻ᵀ·Φ(Lᵀ·g)·L⁻¹, symmetrized, where Φ keeps the lower triangle and halves the diagonal.
    #[track_caller]
    fn backward(&self, _: &[Tensor], l: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let phi = mt(l)?.matmul(&g.tril(0)?)?.tril(0)?;
        let halves = with_ones(&phi.zeros_like())?.mul_scalar(-0.5).add_scalar(1.0);
        let phi = phi.mul(&halves)?;
        let lt = mt(l)?;
        // L⁻ᵀ·Φ, then its product with L⁻¹ from the right.
        let left = triangular(&lt, &phi, true, false)?;
        let whole = mt(&triangular(&lt, &mt(&left)?, true, false)?)?;
        Ok(vec![Some(symmetric(&whole)?)])
    }
}
