//! The LDLᵀ factorization of symmetric matrices that need not be definite.

use autograd::Function;
use tensor_core::{DType, Error, ErrorKind, Result, Tensor, at_caller};

use crate::{
    routine::{Routine, apply, check_matrix, check_square, exactly},
    solve::fitting,
};

/// L and D in one matrix `[…, n, n]`, and pivots `[…, n]` of i32, with A = P·L·D·Lᵀ·Pᵀ, of symmetric matrices
/// `[…, n, n]` that need not be definite, by the pivots of Bunch and Kaufman, for [`ldl_solve`].
/// `torch.linalg.ldl_factor`.
///
/// Only the lower triangle of A is read. D has blocks of one or two rows on the diagonal, and L, whose ones
/// are left out, is below them. A pivot is the row, counted from 1, that the row changed places with; it is
/// negative, and the same for both, where two rows are a block. No gradient flows back, nor does it in
/// PyTorch: use [`solve`](crate::solve).
///
/// # Errors
/// Matrices that are not square, or not of f32 or f64.
#[track_caller]
pub fn ldl_factor(a: &Tensor) -> Result<(Tensor, Tensor)> {
    at_caller(|| {
        let [ld, pivots]: [Tensor; 2] = exactly(Routine::Ldl.run(&[&a.detach()])?)?;
        Ok((ld, pivots.to_dtype(DType::I32)?))
    })
}

/// X with A·X = B for B `[…, n, r]`, of A's factors and pivots ([`ldl_factor`]). The batch axes broadcast.
/// `torch.linalg.ldl_solve`.
///
/// The gradient is that of B, which PyTorch does not have; none flows back to the factors. A singular A gives
/// infinities and NaN.
///
/// # Errors
/// Factors that are not square, pivots of another shape or that are no integers, sizes that do not fit, two
/// dtypes or other ones than f32 and f64. On a CPU, when it is computed, pivots that name no row.
///
/// ```
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let a = Tensor::new([[0.0f64, 2.0], [2.0, 0.0]], &cpu)?;
/// let (ld, pivots) = linalg::ldl_factor(&a)?;
/// let x = linalg::ldl_solve(&ld, &pivots, &Tensor::new([[2.0f64], [4.0]], &cpu)?)?;
/// assert_eq!(x.to_vec::<f64>()?, [2.0, 1.0]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn ldl_solve(ld: &Tensor, pivots: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "linalg.ldl_solve";
    at_caller(|| {
        check_matrix(OP, ld.shape(), ld.dtype())?;
        check_square(OP, ld.shape())?;
        if pivots.dims() != &ld.dims()[..ld.rank() - 1] || !pivots.dtype().is_int() {
            let hint = "give the factors and the pivots, integers, of one ldl_factor".into();
            let (lhs, rhs) = (ld.shape().clone(), pivots.shape().clone());
            return Err(Error::new(ErrorKind::ShapeMismatch { op: OP, lhs, rhs, hint }));
        }
        let [ld, b] = fitting(OP, ld, b)?;
        let pivots = pivots.expand(&ld.dims()[..ld.rank() - 1])?.to_dtype(ld.dtype())?;
        apply(LdlSolve, &[ld.detach(), pivots, b])
    })
}

#[derive(Debug)]
struct LdlSolve;

impl Function for LdlSolve {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgLdlSolve"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Routine::LdlSolve.run_one(inputs)
    }

    /// A is symmetric: B's is A⁻¹·g.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None, None, Some(apply(LdlSolve, &[&inputs[0], &inputs[1], g])?)])
    }
}
