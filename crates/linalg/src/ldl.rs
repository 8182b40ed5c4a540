//! The LDLᵀ factorization of symmetric indefinite matrices.

use autograd::Function;
use tensor_core::{DType, Error, ErrorKind, Result, Tensor, at_caller};

use crate::{
    routine::{Routine, apply, check_matrix, check_square, exactly},
    solve::fitting,
};

/// The LDLᵀ factorization A = P·L·D·Lᵀ·Pᵀ of symmetric matrices `[…, n, n]` that need not be definite, with
/// the pivoting of Bunch and Kaufman: L and D in one matrix `[…, n, n]`, and i32 pivots `[…, n]`, for
/// [`ldl_solve`]. `torch.linalg.ldl_factor`.
///
/// Only the lower triangle of A is read. D has diagonal blocks of one or two rows, and L, without its unit
/// diagonal, is below them. A pivot is the row, counted from 1, that the row was exchanged with; for a block
/// of two rows it is negative, and the same for both. There is no gradient, as in PyTorch: use
/// [`solve`](crate::solve).
///
/// # Errors
/// Matrices that are not square, or not f32 or f64.
#[track_caller]
pub fn ldl_factor(a: &Tensor) -> Result<(Tensor, Tensor)> {
    at_caller(|| {
        let [ld, pivots]: [Tensor; 2] = exactly(Routine::Ldl.run(&[&a.detach()])?)?;
        Ok((ld, pivots.to_dtype(DType::I32)?))
    })
}

/// X with A·X = B for B `[…, n, r]`, from A's factors and pivots ([`ldl_factor`]). The batch axes broadcast.
/// `torch.linalg.ldl_solve`.
///
/// B has a gradient, which PyTorch's does not; the factors have none. A singular A gives infinities and NaN.
///
/// # Errors
/// Factors that are not square, pivots of another shape or that are no integers, sizes that do not fit, two
/// dtypes or dtypes other than f32 and f64. On a CPU, when it is computed: pivots that are no row numbers.
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

    /// A is symmetric, so the gradient of B is A⁻¹·g.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None, None, Some(apply(LdlSolve, &[&inputs[0], &inputs[1], g])?)])
    }
}
