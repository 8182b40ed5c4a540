//! Eigenvalues and eigenvectors of symmetric matrices.

use autograd::{Function, TensorGrad};
use tensor_core::{Result, Tensor, caller_line, set_grad_enabled};

use crate::{
    matrix::{balance, differences, epsilon, greatest, mt, over_pairs, product, skew, sum_of, symmetric},
    routine::{Routine, apply, exactly},
};

/// The triangle of a symmetric matrix that is read. PyTorch's `UPLO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Uplo {
    /// The lower triangle, `'L'`.
    #[default]
    Lower,
    /// The upper triangle, `'U'`.
    Upper,
}

/// The eigenvalues L `[…, n]`, ascending, and the eigenvectors Q `[…, n, n]`, as columns, of symmetric
/// matrices A = Q·diag(L)·Qᵀ. `torch.linalg.eigh`.
///
/// Only the triangle `uplo` is read, and the gradient is symmetric. Eigenvectors are unique up to their
/// sign, so only functions that do not depend on it have a meaningful gradient. If eigenvalues are equal,
/// functions of L alone have their gradient, and so has a function of Q alone that depends only on the space
/// that their eigenvectors span, such as a projection on it. Other functions, and functions of L and Q
/// together, get infinities or NaN there: for Q·f(L)·Qᵀ use [`symmetric_function`].
///
/// # Errors
/// Matrices that are not square, or not f32 or f64. When it is computed: elements that are not finite.
#[track_caller]
pub fn eigh(a: &Tensor, uplo: Uplo) -> Result<(Tensor, Tensor)> {
    let _line = caller_line();
    apply(Eigh { upper: uplo == Uplo::Upper }, &[a])
}

/// The eigenvalues `[…, n]` of symmetric matrices, ascending. `torch.linalg.eigvalsh`.
///
/// # Errors
/// As [`eigh`].
#[track_caller]
pub fn eigvalsh(a: &Tensor, uplo: Uplo) -> Result<Tensor> {
    // The eigenvectors are needed for the gradient only.
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

    #[track_caller]
    fn backward(
        &self,
        _: &[Tensor],
        (values, q): &(Tensor, Tensor),
        (g_values, g_q): &(Option<Tensor>, Option<Tensor>),
    ) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![gradient(values, q, g_values.as_ref(), g_q.as_ref())?])
    }
}

/// The gradient of A from those of its eigenvalues and eigenvectors: Q·(diag gL + skew(Qᵀ·gQ) / 2E)·Qᵀ, with
/// Eᵢⱼ = λⱼ − λᵢ.
#[track_caller]
fn gradient(
    values: &Tensor,
    q: &Tensor,
    g_values: Option<&Tensor>,
    g_q: Option<&Tensor>,
) -> Result<Option<Tensor>> {
    if values.numel() == 0 {
        return Ok(Some(q.zeros_like()));
    }
    let of_q = match g_q {
        Some(g) => {
            let scale = balance(&values.abs().amax(-1, true)?)?;
            let inner = mt(q)?.matmul(g)?;
            let gaps = differences(&values.mul(&scale)?)?;
            let pairs = over_pairs(&skew(&inner)?, &gaps, &greatest(&inner)?, g_values.is_some())?;
            Some(pairs.mul(&scale.unsqueeze(-1)?.mul_scalar(0.5))?)
        }
        None => None,
    };
    let of_values = g_values.map(|g| g.diag_embed(0, -2, -1)).transpose()?;
    let inner = sum_of([of_q, of_values])?;
    inner.map(|inner| product(q, &inner, &mt(q)?)).transpose()
}

/// f(A) = Q·f(L)·Qᵀ of symmetric matrices `[…, n, n]`, for a function f that maps each of the eigenvalues
/// `[…, n]` on its own: a reciprocal, logarithm, any power. One triangle of A is read. `scipy.linalg.funm`
/// for symmetric matrices.
///
/// The gradient is symmetric, and right also where eigenvalues are equal and the gradients of [`eigh`]'s
/// results are undefined: for two eigenvalues it uses (f(λⱼ) − f(λᵢ)) / (λⱼ − λᵢ), and the derivative of f
/// if they are close (Daleckii and Krein, 1965). Second derivatives are those of [`eigh`].
///
/// # Errors
/// Matrices that are not square, or not f32 or f64; the errors of f. When it is computed: elements that are
/// not finite.
///
/// ```
/// let a = tensor_core::Tensor::new([[2.0f32, 1.0], [1.0, 2.0]], &backend_cpu::cpu())?;
/// let inverse = linalg::symmetric_function(&a, linalg::Uplo::Lower, |x| Ok(x.reciprocal()))?;
/// assert!(inverse.allclose(&linalg::inv(&a)?, 1e-5, 0.0)?);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn symmetric_function(
    a: &Tensor,
    uplo: Uplo,
    f: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    Ok(apply(Symmetric { upper: uplo == Uplo::Upper, f: Box::new(f) }, &[a])?.0)
}

/// A function that maps each eigenvalue on its own.
type Pointwise = dyn Fn(&Tensor) -> Result<Tensor> + Send + Sync;

struct Symmetric {
    upper: bool,
    f: Box<Pointwise>,
}

impl std::fmt::Debug for Symmetric {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Symmetric").field("upper", &self.upper).finish_non_exhaustive()
    }
}

/// Nodes and weights of the Gauss-Legendre rule of five points on [−1, 1].
const GAUSS: [(f64, f64); 5] = [
    (0.0, 0.568_888_888_888_888_9),
    (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
    (0.906_179_845_938_664, 0.236_926_885_056_189_1),
    (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
];

/// Relative distance of two eigenvalues up to which the mean of the derivative replaces the quotient of
/// differences.
const NEAR_SHARE: f64 = 0.1;

impl Symmetric {
    /// f′, recorded if `t` is.
    #[track_caller]
    fn derivative(&self, t: &Tensor) -> Result<Tensor> {
        let is_recorded = tensor_core::is_grad_enabled() && t.is_tracked();
        let t = if is_recorded { t.clone() } else { t.detach().requires_grad() };
        let y = set_grad_enabled(true, || Ok::<_, tensor_core::Error>((self.f)(&t)?.sum()))?;
        if !y.is_tracked() {
            return Ok(t.zeros_like());
        }
        let found = autograd::grad(&[y], &[&t], is_recorded)?.pop().flatten();
        Ok(found.unwrap_or_else(|| t.zeros_like()))
    }

    /// (f(λⱼ) − f(λᵢ)) / (λⱼ − λᵢ), and the mean of f′ between the two if they are close.
    #[track_caller]
    fn divided_differences(&self, values: &Tensor) -> Result<Tensor> {
        let gaps = differences(values)?;
        let sizes = values.detach().abs();
        let both = sizes.unsqueeze(-2)?.maximum(&sizes.unsqueeze(-1)?)?.mul_scalar(NEAR_SHARE);
        let least = sizes.amax(-1, true)?.unsqueeze(-1)?.mul_scalar(epsilon(values).sqrt());
        let is_near = gaps.detach().abs().le(&both.maximum(&least)?)?;
        let half = is_near.where_cond(&gaps.mul_scalar(0.5), &gaps.zeros_like())?;
        let middle = values.unsqueeze(-1)?.add(&half)?;
        let mut mean = None;
        for (place, weight) in GAUSS {
            let term = self.derivative(&middle.add(&half.mul_scalar(place))?)?.mul_scalar(weight * 0.5);
            mean = sum_of([mean, Some(term)])?;
        }
        let quotient =
            differences(&(self.f)(values)?)?.div(&is_near.where_cond(&gaps.ones_like(), &gaps)?)?;
        match mean {
            Some(mean) => is_near.where_cond(&mean, &quotient),
            None => Ok(quotient),
        }
    }
}

type Three<T> = (T, T, T);

impl Function for Symmetric {
    /// f(A), and the eigenvalues and eigenvectors that it was computed from.
    type Output = Three<Tensor>;

    fn name(&self) -> &'static str {
        "LinalgSymmetricFunction"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Three<Tensor>> {
        let [values, q]: [Tensor; 2] = exactly(Routine::Eigh { upper: self.upper }.run(inputs)?)?;
        let found = q.mul(&(self.f)(&values)?.unsqueeze(-2)?)?.matmul(&mt(&q)?)?;
        Ok((found, values, q))
    }

    #[track_caller]
    fn backward(
        &self,
        _: &[Tensor],
        (_, values, q): &Three<Tensor>,
        (g, g_values, g_q): &Three<Option<Tensor>>,
    ) -> Result<Vec<Option<Tensor>>> {
        let parts = if g_values.is_some() || g_q.is_some() {
            gradient(values, q, g_values.as_ref(), g_q.as_ref())?
        } else {
            None
        };
        let Some(g) = g else { return Ok(vec![parts]) };
        if values.numel() == 0 {
            return Ok(vec![Some(g.zeros_like())]);
        }
        let inner = product(&mt(q)?, &symmetric(g)?, q)?.mul(&self.divided_differences(values)?)?;
        let whole = product(q, &inner, &mt(q)?)?;
        Ok(vec![sum_of([Some(whole), parts])?])
    }
}

/// The square root of symmetric positive-definite matrices `[…, n, n]`: the symmetric positive-definite X
/// with X·X = A. `torch.linalg.matrix_sqrth`.
///
/// Only the lower triangle of A is read. The gradient is symmetric, and finite also if eigenvalues are
/// equal.
///
/// # Errors
/// Matrices that are not square, or not f32 or f64. A negative eigenvalue gives NaN.
///
/// ```
/// let a = tensor_core::Tensor::new([[4.0f64, 0.0], [0.0, 9.0]], &backend_cpu::cpu())?;
/// assert_eq!(linalg::matrix_sqrth(&a)?.to_vec::<f64>()?, [2.0, 0.0, 0.0, 3.0]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn matrix_sqrth(a: &Tensor) -> Result<Tensor> {
    let _line = caller_line();
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

    /// The G with X·G + G·X = g: in the basis of X's eigenvectors, each element divided by the sum of two
    /// eigenvalues.
    #[track_caller]
    fn backward(&self, _: &[Tensor], x: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(apply(Sylvester, &[x, &symmetric(g)?])?)])
    }
}

/// The symmetric solution G of X·G + G·X = C, for symmetric X and C.
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

    /// The gradient of C is the solution H for g, that of X is −(H·G + G·H).
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], found: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let h = apply(Sylvester, &[&inputs[0], &symmetric(g)?])?;
        let of_x = h.matmul(found)?.add(&found.matmul(&h)?)?.neg();
        Ok(vec![Some(of_x), Some(h)])
    }
}
