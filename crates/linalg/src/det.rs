//! Determinants.

use autograd::Function;
use tensor_core::{Result, Tensor, at_caller, caller_line};

use crate::{
    matrix::{balance_matrix, mt, sizes, times_power_of_two},
    routine::{Routine, apply, exactly},
    solve::inv,
    svd::svd,
};

/// The determinants `[…]` of square matrices `[…, n, n]`. `torch.linalg.det`.
///
/// The gradient also exists for singular matrices; second derivatives need an inverse.
///
/// # Errors
/// Matrices that are not square, or not f32 or f64.
#[track_caller]
pub fn det(a: &Tensor) -> Result<Tensor> {
    let _line = caller_line();
    apply(Det, &[a])
}

/// A number for each matrix, as matrices `[…, 1, 1]`.
#[track_caller]
fn as_matrix(x: &Tensor) -> Result<Tensor> {
    x.unsqueeze(-1)?.unsqueeze(-1)
}

#[derive(Debug)]
struct Det;

impl Function for Det {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgDet"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Routine::Det.run_one(inputs)
    }

    /// The matrix of cofactors, times g.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(apply(Cofactor, &[&inputs[0]])?.mul(&as_matrix(g)?)?)])
    }
}

/// The cofactors det(U)·det(V) · U·diag(Πⱼ≠ᵢ sⱼ)·Vᵀ, which exist for singular matrices too; NaN for a matrix
/// with elements that are not finite.
#[track_caller]
fn by_singular_values(a: &Tensor) -> Result<Tensor> {
    let (n, _) = sizes(a);
    let finite = as_matrix(&a.isfinite().all_axis([-2, -1], false)?)?;
    let (u, s, vh) = svd(&finite.where_cond(a, &a.zeros_like())?, true)?;
    // Mantissas near 1 and exponents of the singular values, so that products neither overflow nor
    // underflow.
    let (fraction, exponent) = s.frexp()?;
    let low = fraction.lt_scalar(std::f64::consts::FRAC_1_SQRT_2);
    let fraction = low.where_cond(&fraction.mul_scalar(2.0), &fraction)?;
    let exponent = exponent.to_dtype(s.dtype())?.sub(&low.to_dtype(s.dtype())?)?;
    // Products of those before and those after each, which avoid a division.
    let one = s.narrow(-1, 0, n.min(1))?.ones_like();
    let rest = n.saturating_sub(1);
    let before = Tensor::concat(&[one.clone(), fraction.narrow(-1, 0, rest)?], -1)?.cumprod(-1)?;
    let after =
        Tensor::concat(&[one, fraction.flip([-1])?.narrow(-1, 0, rest)?], -1)?.cumprod(-1)?.flip([-1])?;
    let others = exponent.sum_axis(-1, true)?.sub(&exponent)?;
    // Sums of products are computed in a scale in which the greatest is near 1.
    let shift = if n == 0 { others.clone() } else { others.amax(-1, true)? };
    let products = times_power_of_two(&before.mul(&after)?, &others.sub(&shift)?)?;
    let sign = Routine::Det.run_one(&[&u])?.mul(&Routine::Det.run_one(&[&vh])?)?.sign();
    let scaled = u.mul(&products.mul(&sign.unsqueeze(-1)?)?.unsqueeze(-2)?)?;
    let found = times_power_of_two(&scaled.matmul(&vh)?, &shift.unsqueeze(-1)?)?;
    finite.where_cond(&found, &found.full_like(f64::NAN))
}

#[derive(Debug)]
struct Cofactor;

impl Function for Cofactor {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgCofactor"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        // A device without any of these routines reports the error for this one.
        if Routine::Cofactor.runs(inputs)? || !(Routine::Svd { full: true }).runs(inputs)? {
            return Routine::Cofactor.run_one(inputs);
        }
        by_singular_values(inputs[0])
    }

    /// C = det A · A⁻ᵀ, whose gradient is A⁻ᵀ·(⟨g, C⟩ − gᵀ·C) for invertible A.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], c: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        if c.numel() == 0 {
            return Ok(vec![Some(c.zeros_like())]);
        }
        // Computed for the matrix times k: its cofactors are C·kⁿ⁻¹, and the result scales with kⁿ⁻².
        let k = balance_matrix(&inputs[0])?;
        let near = inputs[0].mul(&k)?;
        let (it, c) = (mt(&inv(&near)?)?, apply(Cofactor, &[&near])?);
        let inner = as_matrix(&g.mul(&c)?.sum_axis([-2, -1], false)?)?;
        let found = it.mul(&inner)?.sub(&c.matmul(&mt(g)?)?.matmul(&it)?)?;
        let power = k.log2().round().mul_scalar(2.0 - sizes(&c).0 as f64);
        Ok(vec![Some(times_power_of_two(&found, &power)?)])
    }
}

/// The sign of the determinant (0 for a singular matrix) and the logarithm of its magnitude (−∞ for a
/// singular matrix), each `[…]`. `torch.linalg.slogdet`.
///
/// The sign has no gradient; that of the logarithm is A⁻ᵀ.
///
/// # Errors
/// Matrices that are not square, or not f32 or f64. When the gradient is computed: a singular matrix.
#[track_caller]
pub fn slogdet(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let _line = caller_line();
    apply(Slogdet, &[a])
}

/// The logarithm of the determinant, `[…]`: −∞ for a singular matrix, and NaN for a negative determinant.
/// `torch.logdet`.
///
/// # Errors
/// As [`slogdet`].
#[track_caller]
pub fn logdet(a: &Tensor) -> Result<Tensor> {
    at_caller(|| {
        let (sign, log) = slogdet(a)?;
        log.masked_fill(&sign.lt_scalar(0.0), f64::NAN)
    })
}

#[derive(Debug)]
struct Slogdet;

impl Function for Slogdet {
    type Output = (Tensor, Tensor);

    fn name(&self) -> &'static str {
        "LinalgSlogdet"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<(Tensor, Tensor)> {
        let results: [Tensor; 2] = exactly(Routine::Slogdet.run(inputs)?)?;
        Ok(results.into())
    }

    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        _: &(Tensor, Tensor),
        (_, log): &(Option<Tensor>, Option<Tensor>),
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(g) = log else { return Ok(vec![Some(inputs[0].zeros_like())]) };
        Ok(vec![Some(mt(&inv(&inputs[0])?)?.mul(&as_matrix(g)?)?)])
    }
}
