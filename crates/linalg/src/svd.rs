//! The singular value decomposition.

use autograd::Function;
use tensor_core::{Result, Tensor};

use crate::{
    det::exactly,
    matrix::{differences, mt, product, sizes, skew, sum_of},
    routine::{Routine, apply},
};

/// U, S and Vᵀ with A = U·diag(S)·Vᵀ, for A `[…, m, n]` and k = min(m, n): S `[…, k]` is descending and not negative, U `[…, m, k]` and
/// Vᵀ `[…, k, n]` have orthonormal columns and rows; with `full_matrices` U is `[…, m, m]` and Vᵀ `[…, n, n]`. `torch.linalg.svd`.
///
/// Pairs of singular vectors are known up to their sign, so only what does not depend on it has a meaningful gradient. That of U and V has
/// infinities where singular values are equal, or 0 in a matrix that is not square; gradients of what `full_matrices` adds are left out.
///
/// # Errors
/// Fewer than two axes, or another dtype than f32 and f64. When it is computed: elements that are not finite.
#[track_caller]
pub fn svd(a: &Tensor, full_matrices: bool) -> Result<(Tensor, Tensor, Tensor)> {
    apply(Svd { full: full_matrices }, &[a])
}

/// The singular values `[…, min(m, n)]`, descending. `torch.linalg.svdvals`.
///
/// # Errors
/// As [`svd`].
#[track_caller]
pub fn svdvals(a: &Tensor) -> Result<Tensor> {
    // The vectors are wanted for the gradient alone.
    if a.is_tracked() && tensor_core::is_grad_enabled() {
        return Ok(svd(a, false)?.1);
    }
    Routine::Svdvals.run_one(&[a])
}

#[derive(Debug)]
struct Svd {
    full: bool,
}

type Three<T> = (T, T, T);

impl Function for Svd {
    type Output = Three<Tensor>;

    fn name(&self) -> &'static str {
        "LinalgSvd"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Three<Tensor>> {
        let results: [Tensor; 3] = exactly(Routine::Svd { full: self.full }.run(inputs)?)?;
        Ok(results.into())
    }

    /// U·((skew(Uᵀ·gU)·S + S·skew(Vᵀ·gV)) / E + diag gS)·Vᵀ with Eᵢⱼ = sⱼ² − sᵢ², and what of gU and gV is outside the spaces that
    /// U and V span: (1 − U·Uᵀ)·gU·S⁻¹·Vᵀ + U·S⁻¹·gVᵀ·(1 − V·Vᵀ).
    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        (u, s, vh): &Three<Tensor>,
        (g_u, g_s, g_vh): &Three<Option<Tensor>>,
    ) -> Result<Vec<Option<Tensor>>> {
        let (m, n) = sizes(&inputs[0]);
        let k = m.min(n);
        let columns = |t: &Tensor| t.narrow(-1, 0, k);
        let rows = |t: &Tensor| t.narrow(-2, 0, k);
        let (u, vh) = (columns(u)?, rows(vh)?);
        let g_u = g_u.as_ref().map(columns).transpose()?;
        let g_vh = g_vh.as_ref().map(rows).transpose()?;
        let (across, down) = (s.unsqueeze(-2)?, s.unsqueeze(-1)?);
        let e = differences(&s.mul(s)?)?;
        let of_u = g_u.as_ref().map(|g| skew(&mt(&u)?.matmul(g)?)?.mul(&across)?.div(&e)).transpose()?;
        let of_v = g_vh.as_ref().map(|g| skew(&vh.matmul(&mt(g)?)?)?.mul(&down)?.div(&e)).transpose()?;
        let of_s = g_s.as_ref().map(|g| g.diag_embed(0, -2, -1)).transpose()?;
        let inner = sum_of([of_u, of_v, of_s])?.map(|inner| product(&u, &inner, &vh)).transpose()?;
        let beyond = |basis: &Tensor, g: &Tensor| g.sub(&basis.matmul(&mt(basis)?.matmul(g)?)?);
        let beyond_u = match &g_u {
            Some(g) if m > k => Some(beyond(&u, g)?.div(&across)?.matmul(&vh)?),
            _ => None,
        };
        let beyond_v = match &g_vh {
            Some(g) if n > k => Some(u.div(&across)?.matmul(&mt(&beyond(&mt(&vh)?, &mt(g)?)?)?)?),
            _ => None,
        };
        Ok(vec![sum_of([inner, beyond_u, beyond_v])?])
    }
}
