//! The pseudo-inverse, least squares and the rank.

use autograd::{Function, no_grad};
use tensor_core::{Error, ErrorKind, Result, Tensor, at_caller, caller_line};

use crate::{
    eigh::{Uplo, eigh, eigvalsh},
    matrix::{balance, balance_matrix, epsilon, mt, sizes},
    qr::{QrMode, qr},
    routine::{Routine, apply, check_matrix, check_square},
    svd::{svd, svdvals},
};

/// The tolerance for singular values: those up to max(`atol`, `rtol`·σ₁) count as 0, where σ₁ is the
/// greatest.
///
/// If `rtol` is not given, it is 0 with an `atol` above 0, and otherwise max(m, n)·ε, with the machine
/// epsilon ε of the dtype. A number converts to an `rtol` (`rcond`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// The absolute tolerance; 0 by default.
    pub atol: Option<f64>,
    /// The tolerance relative to the greatest singular value.
    pub rtol: Option<f64>,
}

impl From<f64> for Tolerance {
    fn from(rtol: f64) -> Tolerance {
        Tolerance { atol: None, rtol: Some(rtol) }
    }
}

impl Tolerance {
    /// `atol` and `rtol` for matrices of the size and dtype of `a`.
    fn of(self, a: &Tensor) -> (f64, f64) {
        let (m, n) = sizes(a);
        let atol = self.atol.unwrap_or(0.0);
        (atol, self.rtol.unwrap_or(if atol > 0.0 { 0.0 } else { m.max(n) as f64 * epsilon(a) }))
    }

    /// Whether singular values (or magnitudes of eigenvalues) of matrices like `a` count.
    #[track_caller]
    fn counts(self, a: &Tensor, s: &Tensor) -> Result<Tensor> {
        let (atol, rtol) = self.of(a);
        if s.dim(-1)? == 0 {
            return Ok(s.gt_scalar(0.0));
        }
        let greatest = s.amax(-1, true)?;
        // A fraction of a small number may underflow, so small numbers are scaled up. Great ones are not
        // scaled down, because small values beside them would underflow.
        let scale = balance(&greatest)?.maximum_scalar(1.0);
        let least = greatest.mul(&scale)?.mul_scalar(rtol).maximum(&scale.mul_scalar(atol))?;
        s.mul(&scale)?.gt(&least)
    }
}

/// The Moore-Penrose inverse A⁺ `[…, n, m]` of A `[…, m, n]`. With `hermitian`, A is symmetric and its lower
/// triangle is read. `torch.linalg.pinv`.
///
/// The four Moore-Penrose conditions hold on every device to ε·κ·(8·√max(m, n) + 16), relative to the
/// greatest element of their right-hand sides (or to 1): ε is the machine epsilon of the dtype, and κ is
/// ‖A‖·‖A⁺‖ in Frobenius norms, each at least 1. This covers wide, tall, rank-deficient and zero matrices;
/// empty matrices have an empty pseudo-inverse.
///
/// # Errors
/// Fewer than two axes, `hermitian` matrices that are not square, or a dtype other than f32 and f64. When it
/// is computed: elements that are not finite.
#[track_caller]
pub fn pinv(a: &Tensor, tolerance: impl Into<Tolerance>, hermitian: bool) -> Result<Tensor> {
    pinv_by(a, tolerance.into(), hermitian)
}

#[track_caller]
fn pinv_by(a: &Tensor, tolerance: Tolerance, hermitian: bool) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "linalg.pinv";
    check_matrix(OP, a.shape(), a.dtype())?;
    if hermitian {
        check_square(OP, a.shape())?;
    }
    apply(Pinv { tolerance, hermitian }, &[a])
}

#[derive(Debug)]
struct Pinv {
    tolerance: Tolerance,
    hermitian: bool,
}

/// 1/s if s counts, else 0.
#[track_caller]
fn inverted(s: &Tensor, counts: &Tensor) -> Result<Tensor> {
    counts.where_cond(&s.reciprocal(), &s.zeros_like())
}

/// Whether a QR factorization first makes the singular values cheaper: LAPACK's ratio.
fn is_long(m: usize, n: usize) -> bool {
    n > 0 && 6 * m >= 11 * n
}

impl Pinv {
    /// R⁺ from its singular values, which are those of `a`.
    #[track_caller]
    fn through_values(&self, a: &Tensor, r: &Tensor) -> Result<Tensor> {
        let (u, s, vh) = svd(r, false)?;
        let scaled = inverted(&s, &self.tolerance.counts(a, &s)?)?;
        mt(&vh)?.mul(&scaled.unsqueeze(-2)?)?.matmul(&mt(&u)?)
    }
}

impl Function for Pinv {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgPinv"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let a = inputs[0];
        if self.hermitian {
            let (values, q) = eigh(a, Uplo::Lower)?;
            let scaled = inverted(&values, &self.tolerance.counts(a, &values.abs())?)?;
            return q.mul(&scaled.unsqueeze(-2)?)?.matmul(&mt(&q)?);
        }
        let (atol, rtol) = self.tolerance.of(a);
        let routine = Routine::Pinv { atol, rtol };
        if routine.runs(&[a])? {
            return routine.run_one(&[a]);
        }
        let (m, n) = sizes(a);
        // A = Q·R has A⁺ = R⁺·Qᵀ and the singular values of R, a smaller matrix if A is tall.
        if is_long(m, n) {
            let (q, r) = qr(a, QrMode::Reduced)?;
            self.through_values(a, &r)?.matmul(&mt(&q)?)
        } else if is_long(n, m) {
            let (q, r) = qr(&mt(a)?, QrMode::Reduced)?;
            q.matmul(&mt(&self.through_values(a, &r)?)?)
        } else {
            self.through_values(a, a)
        }
    }

    /// The gradient at constant rank (Golub and Pereyra 1973): −A⁺ᵀ·g·A⁺ᵀ + (1 − A·A⁺)·gᵀ·A⁺·A⁺ᵀ +
    /// A⁺ᵀ·A⁺·gᵀ·(1 − A⁺·A).
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], p: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        if p.numel() == 0 {
            return Ok(vec![Some(inputs[0].zeros_like())]);
        }
        // Computed for the matrix times k, whose pseudo-inverse is A⁺/k, so that the products below do not
        // overflow.
        let k = balance_matrix(&inputs[0])?;
        let (a, p) = (&inputs[0].mul(&k)?, &p.div(&k)?);
        let (pt, gt) = (mt(p)?, mt(g)?);
        let direct = pt.matmul(g)?.matmul(&pt)?;
        let right = gt.matmul(p)?.matmul(&pt)?;
        let right = right.sub(&a.matmul(&p.matmul(&right)?)?)?;
        let left = pt.matmul(&p.matmul(&gt)?)?;
        let left = left.sub(&left.matmul(p)?.matmul(a)?)?;
        Ok(vec![Some(right.add(&left)?.sub(&direct)?.mul(&k)?.mul(&k)?)])
    }
}

/// The rank `[…]`: the number of singular values that count, i64 (i32 on devices without i64). With
/// `hermitian`, matrices are symmetric and their lower triangle is read. `torch.linalg.matrix_rank`.
///
/// # Errors
/// As [`pinv`].
#[track_caller]
pub fn matrix_rank(a: &Tensor, tolerance: impl Into<Tolerance>, hermitian: bool) -> Result<Tensor> {
    rank_by(a, tolerance.into(), hermitian)
}

#[track_caller]
fn rank_by(a: &Tensor, tolerance: Tolerance, hermitian: bool) -> Result<Tensor> {
    const OP: &str = "linalg.matrix_rank";
    check_matrix(OP, a.shape(), a.dtype())?;
    if hermitian {
        check_square(OP, a.shape())?;
    }
    let magnitudes = || if hermitian { Ok(eigvalsh(a, Uplo::Lower)?.abs()) } else { svdvals(a) };
    let s = at_caller(|| no_grad(magnitudes))?;
    how_many(&tolerance.counts(a, &s)?)
}

/// The number of true elements along the last axis, i64 (i32 on devices without i64).
#[track_caller]
fn how_many(counts: &Tensor) -> Result<Tensor> {
    counts.sum_axis(-1, false)
}

/// The results of [`lstsq`]: the named tuple of `torch.linalg.lstsq`.
#[derive(Clone, Debug)]
pub struct Lstsq {
    /// The solution X `[…, n, r]`: among all minimizers of ‖A·X − B‖, the one with the least norm.
    pub solution: Tensor,
    /// ‖A·X − B‖² for each column, `[…, r]`, if m > n and A has full rank; of shape `[0]` if m ≤ n.
    pub residuals: Tensor,
    /// The rank of A `[…]`, as [`matrix_rank`] gives it.
    pub rank: Tensor,
    /// The singular values of A, `[…, min(m, n)]`.
    pub singular_values: Tensor,
}

/// The least-squares solution X, which minimizes ‖A·X − B‖, for A `[…, m, n]` and B `[…, m, r]` or, as
/// vectors, `[…, m]`. It uses the singular values, as LAPACK's `gelsd`. `torch.linalg.lstsq`.
///
/// The solution and the residuals have gradients. Every matrix has residuals: PyTorch returns none if one
/// matrix of the batch is rank-deficient.
///
/// # Errors
/// Sizes that do not fit, two dtypes or dtypes other than f32 and f64. When it is computed: elements that
/// are not finite.
#[track_caller]
pub fn lstsq(a: &Tensor, b: &Tensor, rcond: Option<f64>) -> Result<Lstsq> {
    const OP: &str = "linalg.lstsq";
    check_matrix(OP, a.shape(), a.dtype())?;
    let is_vector = b.rank() + 1 == a.rank();
    let columns = if is_vector { b.unsqueeze(-1)? } else { b.clone() };
    let (m, n) = sizes(a);
    if columns.rank() < 2 || sizes(&columns).0 != m {
        let hint = format!("the right-hand side must have {m} rows as the matrix");
        let (lhs, rhs) = (a.shape().clone(), b.shape().clone());
        return Err(Error::new(ErrorKind::ShapeMismatch { op: OP, lhs, rhs, hint }));
    }
    let tolerance = Tolerance { atol: None, rtol: rcond };
    let solution = pinv_by(a, tolerance, false)?.matmul(&columns)?;
    let residuals = if m > n {
        a.matmul(&solution)?.sub(&columns)?.powi(2).sum_axis(-2, false)?
    } else {
        Tensor::zeros([0], (a.dtype(), &a.device()))?
    };
    let singular_values = at_caller(|| no_grad(|| svdvals(a)))?;
    let rank = how_many(&tolerance.counts(a, &singular_values)?)?;
    let solution = if is_vector { solution.squeeze(-1)? } else { solution };
    Ok(Lstsq { solution, residuals, rank, singular_values })
}
