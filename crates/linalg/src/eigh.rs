//! Eigenvalues and eigenvectors of symmetric matrices.

use autograd::Function;
use tensor_core::{Result, Tensor};

use crate::{
    det::exactly,
    matrix::{differences, mt, product, skew, sum_of},
    routine::{Routine, apply},
};

/// Which triangle of a symmetric matrix is read. PyTorch's `UPLO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Uplo {
    /// The lower one, `'L'`.
    #[default]
    Lower,
    /// The upper one, `'U'`.
    Upper,
}

/// The eigenvalues L `[…, n]`, ascending, and eigenvectors Q `[…, n, n]`, a column each, of symmetric matrices A = Q·diag(L)·Qᵀ.
/// `torch.linalg.eigh`.
///
/// Only the triangle `uplo` is read, and the gradient is that of a symmetric matrix. Eigenvectors are known up to their sign, so only
/// what does not depend on it has a meaningful gradient; that has infinities where eigenvalues are equal.
///
/// # Errors
/// Matrices that are not square, or not of f32 or f64. When it is computed: elements that are not finite.
#[track_caller]
pub fn eigh(a: &Tensor, uplo: Uplo) -> Result<(Tensor, Tensor)> {
    apply(Eigh { upper: uplo == Uplo::Upper }, &[a])
}

/// The eigenvalues `[…, n]` of symmetric matrices, ascending. `torch.linalg.eigvalsh`.
///
/// # Errors
/// As [`eigh`].
#[track_caller]
pub fn eigvalsh(a: &Tensor, uplo: Uplo) -> Result<Tensor> {
    // The vectors are wanted for the gradient alone.
    if a.is_tracked() && tensor_core::is_grad_enabled() {
        return Ok(eigh(a, uplo)?.0);
    }
    Routine::Eigvalsh { upper: uplo == Uplo::Upper }.run_one(&[a])
}

#[derive(Debug)]
struct Eigh {
    upper: bool,
}

impl Function for Eigh {
    type Output = (Tensor, Tensor);

    fn name(&self) -> &'static str {
        "LinalgEigh"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<(Tensor, Tensor)> {
        let results: [Tensor; 2] = exactly(Routine::Eigh { upper: self.upper }.run(inputs)?)?;
        Ok(results.into())
    }

    /// Q·(diag gL + skew(Qᵀ·gQ) / 2E)·Qᵀ, with Eᵢⱼ = λⱼ − λᵢ.
    #[track_caller]
    fn backward(
        &self,
        _: &[Tensor],
        (values, q): &(Tensor, Tensor),
        (g_values, g_q): &(Option<Tensor>, Option<Tensor>),
    ) -> Result<Vec<Option<Tensor>>> {
        let of_q = match g_q {
            Some(g) => Some(skew(&mt(q)?.matmul(g)?)?.div(&differences(values)?)?.mul_scalar(0.5)),
            None => None,
        };
        let of_values = g_values.as_ref().map(|g| g.diag_embed(0, -2, -1)).transpose()?;
        let inner = sum_of([of_q, of_values])?;
        Ok(vec![inner.map(|inner| product(q, &inner, &mt(q)?)).transpose()?])
    }
}
