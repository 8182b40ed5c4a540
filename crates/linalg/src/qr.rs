//! The QR factorization.

use autograd::Function;
use tensor_core::{Error, ErrorKind, Result, Tensor, at_caller, caller_line};

use crate::{
    matrix::{mt, sizes, with_ones},
    routine::{Routine, apply, check_matrix, exactly},
    solve::triangular,
};

/// The shape of Q.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum QrMode {
    /// Q `[…, m, k]` and R `[…, k, n]` with k = min(m, n).
    #[default]
    Reduced,
    /// Q `[…, m, m]` and R `[…, m, n]`.
    Complete,
}

/// The QR factorization A = Q·R of A `[…, m, n]`: Q has orthonormal columns, and R is upper triangular.
/// `torch.linalg.qr`.
///
/// The signs of R's diagonal are those of Householder reflections.
///
/// # Errors
/// Fewer than two axes, or a dtype other than f32 and f64. A complete Q has no gradient if m > n. Gradients
/// are infinite if the first k columns of A are linearly dependent.
#[track_caller]
pub fn qr(a: &Tensor, mode: QrMode) -> Result<(Tensor, Tensor)> {
    let _line = caller_line();
    apply(Qr { complete: mode == QrMode::Complete }, &[a])
}

/// The first n columns of H₁·H₂·…·Hₖ with Hᵢ = I − τᵢ·vᵢ·vᵢᵀ, from the reflections in the columns of A `[…,
/// m, n]`, m ≥ n, and τ `[…, k]`, k ≤ n: vᵢ is 0 above position i, 1 there, and has A's elements below.
/// `torch.linalg.householder_product`.
///
/// It takes one product for each reflection, on every device.
///
/// # Errors
/// Fewer than two axes, more columns than rows, more reflections than columns, batch axes that differ, a
/// dtype other than f32 and f64.
#[track_caller]
pub fn householder_product(a: &Tensor, tau: &Tensor) -> Result<Tensor> {
    const OP: &str = "linalg.householder_product";
    at_caller(|| {
        let (batch, m, n) = check_matrix(OP, a.shape(), a.dtype())?;
        let fits = match tau.dims() {
            [lead @ .., k] => lead == batch && *k <= n && n <= m && tau.dtype() == a.dtype(),
            [] => false,
        };
        if !fits {
            let hint = "give [..., m, n] with n up to m, and [..., k] with k up to n, of one batch and dtype"
                .to_string();
            let (lhs, rhs) = (a.shape().clone(), tau.shape().clone());
            return Err(Error::new(ErrorKind::ShapeMismatch { op: OP, lhs, rhs, hint }));
        }
        let k = tau.dims()[tau.rank() - 1];
        let wanted = Tensor::eye(m, (a.dtype(), &a.device()))?.narrow(-1, 0, n)?.expand(a.dims())?;
        let vectors = a.tril(-1)?.add(&wanted)?;
        (0..k).rev().try_fold(wanted, |q, i| {
            let v = vectors.narrow(-1, i, 1)?;
            let scaled = v.mul(&tau.narrow(-1, i, 1)?.unsqueeze(-1)?)?;
            q.sub(&scaled.matmul(&mt(&v)?.matmul(&q)?)?)
        })
    })
}

/// The QR factorization of A `[…, m, n]` in LAPACK's form, for [`householder_product`] and [`ormqr`]: the
/// first result has R in the upper triangle and the vectors of the reflections, without their leading ones,
/// below it; the second has their factors τ `[…, min(m, n)]`. `torch.geqrf`. There is no gradient, as in
/// PyTorch: use [`qr`].
///
/// # Errors
/// Fewer than two axes, or a dtype other than f32 and f64.
#[track_caller]
pub fn geqrf(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let results: [Tensor; 2] = exactly(Routine::Geqrf.run(&[&a.detach()])?)?;
    Ok(results.into())
}

/// Q·C, or C·Q if not `left`, with Qᵀ in place of Q if `transpose` is set. Q `[…, m, m]` = H₁·H₂·…·Hₖ is
/// given by the reflections in the columns of A `[…, m, k′]` and their factors τ `[…, k]`, k ≤ k′ and m, as
/// [`geqrf`] returns them. C is `[…, m, r]` (`[…, r, m]` if not `left`). `torch.ormqr`.
///
/// It takes one product for each reflection, on every device.
///
/// # Errors
/// Fewer than two axes, sizes that do not fit, batch axes that differ, two dtypes or dtypes other than f32
/// and f64.
#[track_caller]
pub fn ormqr(a: &Tensor, tau: &Tensor, c: &Tensor, left: bool, transpose: bool) -> Result<Tensor> {
    const OP: &str = "linalg.ormqr";
    at_caller(|| {
        let (batch, m, n) = check_matrix(OP, a.shape(), a.dtype())?;
        let (of_c, rows, columns) = check_matrix(OP, c.shape(), c.dtype())?;
        let fits = match tau.dims() {
            [lead @ .., k] => lead == batch && *k <= n && *k <= m && tau.dtype() == a.dtype(),
            [] => false,
        };
        if !fits {
            let hint =
                "give [..., m, n], and [..., k] with k up to m and n, of one batch and dtype".to_string();
            let (lhs, rhs) = (a.shape().clone(), tau.shape().clone());
            return Err(Error::new(ErrorKind::ShapeMismatch { op: OP, lhs, rhs, hint }));
        }
        if of_c != batch || c.dtype() != a.dtype() || m != if left { rows } else { columns } {
            let which = if left { "rows" } else { "columns" };
            let hint =
                format!("the matrix must have {m} {which}, and the batch and dtype of the reflections");
            let (lhs, rhs) = (a.shape().clone(), c.shape().clone());
            return Err(Error::new(ErrorKind::ShapeMismatch { op: OP, lhs, rhs, hint }));
        }
        let k = tau.dims()[tau.rank() - 1];
        let ones = Tensor::eye(m, (a.dtype(), &a.device()))?.narrow(-1, 0, k)?;
        let vectors = a.narrow(-1, 0, k)?.tril(-1)?.add(&ones)?;
        // C·Q is (Qᵀ·Cᵀ)ᵀ, and Qᵀ = Hₖ·…·H₁.
        let given = if left { c.clone() } else { mt(c)? };
        let is_reversed = transpose == left;
        let found = (0..k).try_fold(given, |c, step| {
            let i = if is_reversed { step } else { k - 1 - step };
            let v = vectors.narrow(-1, i, 1)?;
            let scaled = v.mul(&tau.narrow(-1, i, 1)?.unsqueeze(-1)?)?;
            c.sub(&scaled.matmul(&mt(&v)?.matmul(&c)?)?)
        })?;
        if left { Ok(found) } else { mt(&found) }
    })
}

#[derive(Debug)]
struct Qr {
    complete: bool,
}

impl Function for Qr {
    type Output = (Tensor, Tensor);

    fn name(&self) -> &'static str {
        "LinalgQr"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<(Tensor, Tensor)> {
        let results: [Tensor; 2] = exactly(Routine::Qr { complete: self.complete }.run(inputs)?)?;
        Ok(results.into())
    }

    /// (gQ + Q·S)·R⁻ᵀ, where S is symmetric with the upper triangle of gR·Rᵀ − Qᵀ·gQ. For a wide A = (A₁
    /// A₂), this holds for the square A₁, and A₂ = Q·R₂ is a product.
    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        (q, r): &(Tensor, Tensor),
        (of_q, of_r): &(Option<Tensor>, Option<Tensor>),
    ) -> Result<Vec<Option<Tensor>>> {
        let (m, n) = sizes(&inputs[0]);
        if self.complete && m > n {
            let message = format!(
                "the complete QR factorization of matrices with more rows than columns ({m} x {n}) has no gradient; use QrMode::Reduced"
            );
            return Err(Error::new(ErrorKind::Autograd { op: "linalg.qr", message }));
        }
        let mut g_q = of_q.clone().unwrap_or_else(|| q.zeros_like());
        let g_r = of_r.clone().unwrap_or_else(|| r.zeros_like());
        let k = m.min(n);
        let (r1, g_r1) = (r.narrow(-1, 0, k)?, g_r.narrow(-1, 0, k)?);
        let mut beside = None;
        if m < n {
            let (a2, g_r2) = (inputs[0].narrow(-1, k, n - k)?, g_r.narrow(-1, k, n - k)?);
            g_q = g_q.add(&a2.matmul(&mt(&g_r2)?)?)?;
            beside = Some(q.matmul(&g_r2)?);
        }
        let x = g_r1.matmul(&mt(&r1)?)?.sub(&mt(q)?.matmul(&g_q)?)?.triu(0)?;
        let halves = with_ones(&x.zeros_like())?.mul_scalar(-0.5).add_scalar(1.0);
        let s = x.add(&mt(&x)?)?.mul(&halves)?;
        let left = g_q.add(&q.matmul(&s)?)?;
        let square = mt(&triangular(&r1, &mt(&left)?, true, false)?)?;
        Ok(vec![Some(match beside {
            Some(beside) => Tensor::concat(&[square, beside], -1)?,
            None => square,
        })])
    }
}
