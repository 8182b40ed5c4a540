//! Approximate factorizations of large matrices by random projections (Halko, Martinsson and Tropp, 2009).

use tensor_core::{Error, Generator, Result, Shape, Tensor, at_caller};

use crate::{
    matrix::{mt, sizes},
    qr::{QrMode, qr},
    routine::check_matrix,
    svd::svd,
};

/// The approximate singular value decomposition A ≈ U·diag(S)·Vᵀ of A `[…, m, n]` with rank about q: U `[…,
/// m, q]`, S `[…, q]` and V `[…, n, q]`. The range of A is estimated by its product with a random matrix,
/// refined `iterations` times (PyTorch's defaults are q = 6 and 2 iterations). `torch.svd_lowrank`.
///
/// It takes products of A, and factorizations of matrices with q columns. It is exact if q is at least the
/// rank.
///
/// # Errors
/// Fewer than two axes, a dtype other than f32 and f64, a q of 0 or above m or n.
#[track_caller]
pub fn svd_lowrank(
    a: &Tensor,
    q: usize,
    iterations: usize,
    rng: &Generator,
) -> Result<(Tensor, Tensor, Tensor)> {
    at_caller(|| lowrank("linalg.svd_lowrank", a, q, iterations, rng))
}

/// Principal component analysis of rows `[…, m, n]`: [`svd_lowrank`] of A, with the columns' means
/// subtracted if `center` is set. The columns of V are the principal components, and S² / (m − 1) their
/// variances. PyTorch's defaults are a q of min(6, m, n), and centering. `torch.pca_lowrank`.
///
/// # Errors
/// As [`svd_lowrank`].
#[track_caller]
pub fn pca_lowrank(
    a: &Tensor,
    q: usize,
    center: bool,
    iterations: usize,
    rng: &Generator,
) -> Result<(Tensor, Tensor, Tensor)> {
    const OP: &str = "linalg.pca_lowrank";
    at_caller(|| {
        check_matrix(OP, a.shape(), a.dtype())?;
        let a = if center { a.sub(&a.mean_axis(-2, true)?)? } else { a.clone() };
        lowrank(OP, &a, q, iterations, rng)
    })
}

fn lowrank(
    op: &'static str,
    a: &Tensor,
    q: usize,
    iterations: usize,
    rng: &Generator,
) -> Result<(Tensor, Tensor, Tensor)> {
    let (batch, m, n) = check_matrix(op, a.shape(), a.dtype())?;
    if q == 0 || q > m.min(n) {
        let message = format!("q {q} of matrices {}: give a rank from 1 to {}", a.shape(), m.min(n));
        return Err(Error::invalid(op, message));
    }
    if m < n {
        let (u, s, v) = lowrank(op, &mt(a)?, q, iterations, rng)?;
        return Ok((v, s, u));
    }
    let shape: Shape = batch.iter().copied().chain([sizes(a).1, q]).collect();
    let start = Tensor::randn_dtype(shape, a.dtype(), &rng.on(&a.device()))?;
    let basis = |x: Tensor| Ok(qr(&x, QrMode::Reduced)?.0);
    let found = (0..iterations)
        .try_fold(basis(a.matmul(&start)?)?, |found, _| basis(a.matmul(&basis(mt(a)?.matmul(&found)?)?)?))?;
    let (u, s, vt) = svd(&mt(&found)?.matmul(a)?, false)?;
    Ok((found.matmul(&u)?, s, mt(&vt)?))
}
