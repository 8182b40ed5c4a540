//! The singular value decomposition.

use autograd::Function;
use tensor_core::{Result, Tensor, at_caller, caller_line};

use crate::{
    matrix::{balance, differences, greatest, mt, over_pairs, product, sizes, skew, sum_of, symmetric},
    routine::{Routine, apply, exactly},
};

/// The singular value decomposition A = U·diag(S)·Vᵀ of A `[…, m, n]`, as U, S and Vᵀ, with k = min(m, n): S
/// `[…, k]` is descending and not negative, U `[…, m, k]` and Vᵀ `[…, k, n]` have orthonormal columns and
/// rows; with `full_matrices` U is `[…, m, m]` and Vᵀ `[…, n, n]`. `torch.linalg.svd`.
///
/// Pairs of singular vectors are unique up to their sign, so only functions that do not depend on it have a
/// meaningful gradient. If singular values are equal, a function of U and V that does not distinguish their
/// vectors, such as the matrix U·Vᵀ nearest to A, has its gradient. Other functions, and functions of U, V
/// and S together, get infinities or NaN there, and also where singular values of a matrix that is not
/// square are 0. Functions of S alone have their gradient everywhere, except that the sign for a singular
/// value of 0 is not determined. The vectors that `full_matrices` adds have no gradient.
///
/// # Errors
/// Fewer than two axes, or a dtype other than f32 and f64. When it is computed: elements that are not
/// finite.
#[track_caller]
pub fn svd(a: &Tensor, full_matrices: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let _line = caller_line();
    apply(Svd { full: full_matrices }, &[a])
}

/// The singular values `[…, min(m, n)]`, descending. `torch.linalg.svdvals`.
///
/// # Errors
/// As [`svd`].
#[track_caller]
pub fn svdvals(a: &Tensor) -> Result<Tensor> {
    // The singular vectors are needed for the gradient only.
    if a.is_tracked() && tensor_core::is_grad_enabled() {
        return Ok(svd(a, false)?.1);
    }
    Routine::Svdvals.run_one(&[a])
}

/// The polar decomposition A = U·P, or A = P·U if `left`, of A `[…, m, n]`: U `[…, m, n]` has orthonormal
/// columns, or rows if it is wide, and P `[…, n, n]` (`[…, m, m]` if `left`) is symmetric positive
/// semi-definite. For square matrices, U is the nearest rotation or reflection. `scipy.linalg.polar`.
///
/// The gradient is right also if singular values are equal; it has infinities if two of them, or one of a
/// matrix that is not square, are 0.
///
/// # Errors
/// As [`svd`].
#[track_caller]
pub fn polar(a: &Tensor, left: bool) -> Result<(Tensor, Tensor)> {
    at_caller(|| {
        let (u, _, vh) = svd(a, false)?;
        let u = u.matmul(&vh)?;
        // P = Uᵀ·A, or A·Uᵀ: functions of the singular vectors alone, which have a gradient if singular
        // values are equal.
        let p = if left { a.matmul(&mt(&u)?)? } else { mt(&u)?.matmul(a)? };
        Ok((u, symmetric(&p)?))
    })
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

    /// U·(skew pairs + diag gS)·Vᵀ, where the pair of i and j has (X·sⱼ + Y·sᵢ) / (sⱼ² − sᵢ²) with X =
    /// skew(Uᵀ·gU) and Y = skew(Vᵀ·gV), plus the parts of gU and gV outside the spaces that U and V span: (1
    /// − U·Uᵀ)·gU·S⁻¹·Vᵀ + U·S⁻¹·gVᵀ·(1 − V·Vᵀ).
    ///
    /// A pair is written as ½·((X + Y) / (sⱼ − sᵢ) + (X − Y) / (sⱼ + sᵢ)): if singular values are equal, X +
    /// Y cancels for a function that does not distinguish their vectors.
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
        if k == 0 {
            return Ok(vec![Some(inputs[0].zeros_like())]);
        }
        // Singular values are scaled near 1 here, so that their products do not overflow.
        let scale = balance(&s.amax(-1, true)?)?;
        let near = s.mul(&scale)?;
        let across = s.unsqueeze(-2)?;
        let inner_u = g_u.as_ref().map(|g| mt(&u)?.matmul(g)).transpose()?;
        let inner_v = g_vh.as_ref().map(|g| vh.matmul(&mt(g)?)).transpose()?;
        let mut of_pairs = None;
        let sizes = [&inner_u, &inner_v].map(|inner| inner.as_ref().map(greatest).transpose());
        let [size_u, size_v] = sizes;
        if let Some(size) = sum_of([size_u?, size_v?])? {
            let x = inner_u.as_ref().map(skew).transpose()?;
            let y = inner_v.as_ref().map(skew).transpose()?;
            let minus_y = y.as_ref().map(Tensor::neg);
            let by_values = g_s.is_some();
            let apart = sum_of([x.clone(), y])?
                .map(|sum| over_pairs(&sum, &differences(&near)?, &size, by_values))
                .transpose()?;
            let sums = near.unsqueeze(-2)?.add(&near.unsqueeze(-1)?)?;
            let together = sum_of([x, minus_y])?
                .map(|difference| over_pairs(&difference, &sums, &size, by_values))
                .transpose()?;
            let half = scale.unsqueeze(-1)?.mul_scalar(0.5);
            of_pairs = sum_of([apart, together])?.map(|pairs| pairs.mul(&half)).transpose()?;
        }
        let of_s = g_s.as_ref().map(|g| g.diag_embed(0, -2, -1)).transpose()?;
        let inner = sum_of([of_pairs, of_s])?.map(|inner| product(&u, &inner, &vh)).transpose()?;
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
