//! Norms of matrices, and condition numbers.

use tensor_core::{Result, Tensor, caller_line};

use crate::{
    routine::{check_matrix, check_square},
    solve::inv_or_infinite,
    svd::svdvals,
};

/// A norm of matrices. PyTorch's `ord`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MatrixNorm {
    /// √Σaᵢⱼ², `'fro'`.
    #[default]
    Frobenius,
    /// The sum of the singular values, `'nuc'`.
    Nuclear,
    /// The greatest row sum of magnitudes, `inf`.
    Inf,
    /// The least row sum of magnitudes, `-inf`.
    NegInf,
    /// The greatest column sum of magnitudes, `1`.
    One,
    /// The least column sum of magnitudes, `-1`.
    NegOne,
    /// The greatest singular value, `2`.
    Two,
    /// The least singular value, `-2`.
    NegTwo,
}

/// The norms `[…]` of matrices `[…, m, n]`; with `keepdim`, `[…, 1, 1]`. `torch.linalg.matrix_norm` over the
/// last two axes.
///
/// # Errors
/// Fewer than two axes, a dtype other than f32 and f64, or no elements to take an extreme of.
#[track_caller]
pub fn matrix_norm(a: &Tensor, norm: MatrixNorm, keepdim: bool) -> Result<Tensor> {
    check_matrix("linalg.matrix_norm", a.shape(), a.dtype())?;
    let value = match norm {
        MatrixNorm::Frobenius => return a.vector_norm(2, [-2, -1], keepdim),
        MatrixNorm::Nuclear => svdvals(a)?.sum_axis(-1, false)?,
        MatrixNorm::Inf => a.abs().sum_axis(-1, false)?.amax(-1, false)?,
        MatrixNorm::NegInf => a.abs().sum_axis(-1, false)?.amin(-1, false)?,
        MatrixNorm::One => a.abs().sum_axis(-2, false)?.amax(-1, false)?,
        MatrixNorm::NegOne => a.abs().sum_axis(-2, false)?.amin(-1, false)?,
        MatrixNorm::Two => svdvals(a)?.amax(-1, false)?,
        MatrixNorm::NegTwo => svdvals(a)?.amin(-1, false)?,
    };
    if keepdim { value.unsqueeze(-1)?.unsqueeze(-1) } else { Ok(value) }
}

/// The condition number `[…]` in a norm, ‖A‖·‖A⁻¹‖; for `Two` (PyTorch's default, `None`) and `NegTwo` σ₁/σₖ
/// and σₖ/σ₁, of matrices that need not be square. It is infinite for a singular matrix.
/// `torch.linalg.cond`.
///
/// # Errors
/// Fewer than two axes, a dtype other than f32 and f64, or a matrix that is not square with another norm.
#[track_caller]
pub fn cond(a: &Tensor, norm: MatrixNorm) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "linalg.cond";
    check_matrix(OP, a.shape(), a.dtype())?;
    match norm {
        MatrixNorm::Two | MatrixNorm::NegTwo => {
            let s = svdvals(a)?;
            let (most, least) = (s.amax(-1, false)?, s.amin(-1, false)?);
            if norm == MatrixNorm::Two { most.div(&least) } else { least.div(&most) }
        }
        MatrixNorm::Frobenius
        | MatrixNorm::Nuclear
        | MatrixNorm::Inf
        | MatrixNorm::NegInf
        | MatrixNorm::One
        | MatrixNorm::NegOne => {
            check_square(OP, a.shape())?;
            matrix_norm(a, norm, false)?.mul(&matrix_norm(&inv_or_infinite(a)?, norm, false)?)
        }
    }
}
