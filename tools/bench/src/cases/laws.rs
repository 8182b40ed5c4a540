//! Laws of results that are not the only right ones, or that a matrix's condition makes inexact.

use taper::Tensor;

use crate::expression::Equation;

type Equations = taper::Result<Vec<Equation>>;

/// Relative residual of a stable algorithm in f32; the unit roundoff is 6·10⁻⁸.
const BACKWARD: f64 = 1e-7;
/// How far the product of a matrix of orthonormal columns and its transpose may be from the identity.
const ORTHONORMAL: f64 = 1e-4;

fn equation(what: &'static str, got: Tensor, want: &Tensor, allowed: f64) -> Equation {
    Equation { what, got, want: want.clone(), allowed }
}

/// The root of the sum of all squares.
fn norm(x: &Tensor) -> taper::Result<f64> {
    x.square().sum().sqrt().item_f64()
}

/// Qᵀ·Q = 1.
fn orthonormal_columns(what: &'static str, q: &Tensor) -> taper::Result<Equation> {
    let product = q.transpose(-2, -1)?.matmul(q)?;
    let n = product.dims().last().copied().unwrap_or(0);
    let identity = Tensor::eye(n, &q.device())?.to_dtype(q.dtype())?.expand(product.shape())?;
    Ok(equation(what, product, &identity, ORTHONORMAL))
}

pub(super) fn is_qr(x: &[Tensor], r: &[Tensor]) -> Equations {
    Ok(vec![
        orthonormal_columns("Qᵀ·Q", &r[0])?,
        equation("R below its diagonal", r[1].tril(-1)?, &r[1].zeros_like(), 0.0),
        equation("Q·R", r[0].matmul(&r[1])?, &x[0], 1e-4),
    ])
}

/// A·V = V·λ, with λ ascending.
pub(super) fn is_eigh(x: &[Tensor], r: &[Tensor]) -> Equations {
    let (values, vectors) = (&r[0], &r[1]);
    Ok(vec![
        equation("the order of the eigenvalues", values.sort(-1, false)?.0, values, 0.0),
        orthonormal_columns("Vᵀ·V", vectors)?,
        equation("A·V", x[0].matmul(vectors)?, &vectors.mul(values)?, BACKWARD * norm(&x[0])?),
    ])
}

/// U·S·Vᵀ = A, with S descending from 0 on.
pub(super) fn is_svd(x: &[Tensor], r: &[Tensor]) -> Equations {
    let (u, s, vh) = (&r[0], &r[1], &r[2]);
    let allowed = 1e-4 + 1e-6 * s.abs().max()?.item_f64()?;
    Ok(vec![
        equation("the order of the singular values", s.abs().sort(-1, true)?.0, s, 0.0),
        orthonormal_columns("Uᵀ·U", u)?,
        orthonormal_columns("Vᵀ·V", &vh.transpose(-2, -1)?)?,
        equation("U·S·Vᵀ", u.mul(&s.unsqueeze(-2)?)?.matmul(vh)?, &x[0], allowed),
    ])
}

/// A·X = B, up to the rounding of what is added.
pub(super) fn solves(x: &[Tensor], r: &[Tensor]) -> Equations {
    let allowed = 1e-4 + BACKWARD * norm(&x[0])? * norm(&r[0])?;
    Ok(vec![equation("A·X", x[0].matmul(&r[0])?, &x[1], allowed)])
}

/// A·X·A = A. That A·X is 1 cannot be asked for: a singular value below the tolerance counts as 0.
pub(super) fn is_pseudo_inverse(x: &[Tensor], r: &[Tensor]) -> Equations {
    let product = x[0].matmul(&r[0])?.matmul(&x[0])?;
    Ok(vec![equation("A·X·A", product, &x[0], 100.0 * BACKWARD * norm(&x[0])?)])
}

/// The greatest elements in descending order, each at its index.
pub(super) fn is_chosen(x: &[Tensor], r: &[Tensor]) -> Equations {
    let (values, indices) = (&r[0], &r[1]);
    let k = values.dims().last().copied().unwrap_or(0);
    let sorted = x[0].sort(-1, true)?.0.narrow(-1, 0, k)?;
    Ok(vec![
        equation("a value", values.clone(), &sorted, 0.0),
        equation("the element at an index", x[0].gather(-1, indices)?, values, 0.0),
    ])
}

/// Half of the elements are 0, and the others are doubled.
pub(super) fn is_half_dropped(x: &[Tensor], r: &[Tensor]) -> Equations {
    let kept = r[0].ne_scalar(0.0).to_dtype(r[0].dtype())?;
    let share = kept.mean();
    // Five standard deviations.
    let allowed = 2.5 / (x[0].numel() as f64).sqrt();
    Ok(vec![
        equation("a kept element", r[0].clone(), &x[0].mul_scalar(2.0).mul(&kept)?, 0.0),
        equation("the share of kept elements", share.clone(), &share.ones_like().mul_scalar(0.5), allowed),
    ])
}
