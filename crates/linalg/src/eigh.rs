//! Eigenvalues and eigenvectors of symmetric matrices.

use autograd::Function;
use tensor_core::{Result, Tensor};

use crate::{
    det::exactly,
    matrix::{differences, mt, product, skew, sum_of, symmetric},
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

/// The square root of symmetric positive-definite matrices `[…, n, n]`: the X of that kind with X·X = A. `torch.linalg.matrix_sqrth`.
///
/// Only the lower triangle of A is read, and the gradient is symmetric; it is finite also where eigenvalues are equal.
///
/// # Errors
/// Matrices that are not square, or not of f32 or f64. A negative eigenvalue gives NaN.
///
/// ```
/// let a = tensor_core::Tensor::new([[4.0f64, 0.0], [0.0, 9.0]], &backend_cpu::cpu())?;
/// assert_eq!(linalg::matrix_sqrth(&a)?.to_vec::<f64>()?, [2.0, 0.0, 0.0, 3.0]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn matrix_sqrth(a: &Tensor) -> Result<Tensor> {
    apply(Sqrth, &[a])
}

#[derive(Debug)]
struct Sqrth;

impl Function for Sqrth {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgMatrixSqrth"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (values, q) = eigh(inputs[0], Uplo::Lower)?;
        q.mul(&values.sqrt().unsqueeze(-2)?)?.matmul(&mt(&q)?)
    }

    /// The G with X·G + G·X = g: in the basis of X's eigenvectors, each element over the sum of two eigenvalues.
    #[track_caller]
    fn backward(&self, _: &[Tensor], x: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(apply(Sylvester, &[x, &symmetric(g)?])?)])
    }
}

/// The symmetric G with X·G + G·X = C, of symmetric X and C.
#[derive(Debug)]
struct Sylvester;

impl Function for Sylvester {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgSylvester"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (values, q) = eigh(inputs[0], Uplo::Lower)?;
        let sums = values.unsqueeze(-1)?.add(&values.unsqueeze(-2)?)?;
        let inner = product(&mt(&q)?, inputs[1], &q)?.div(&sums)?;
        product(&q, &inner, &mt(&q)?)
    }

    /// C's is the solution H for g; X's is −(H·G + G·H).
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], found: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let h = apply(Sylvester, &[&inputs[0], &symmetric(g)?])?;
        let of_x = h.matmul(found)?.add(&found.matmul(&h)?)?.neg();
        Ok(vec![Some(of_x), Some(h)])
    }
}
