//! Systems of equations, and the inverse.

use autograd::Function;
use tensor_core::{Axes, Error, ErrorKind, Result, Shape, Tensor, at_caller, caller_line};

use crate::{
    matrix::{broadcast_batch, mt, sizes},
    routine::{Routine, apply, check_matrix, check_square},
};

/// X with A·X = B for square A `[…, n, n]`. `torch.linalg.solve`. B is `[…, n, r]`, or a batch of vectors:
/// `[n]`, or A's shape without its last axis. The batch axes broadcast. [`solve_with`] also solves X·A = B.
///
/// # Errors
/// A that is not square, sizes that do not fit, two dtypes or dtypes other than f32 and f64. When it is
/// computed: a singular A.
///
/// ```
/// # fn main() -> tensor_core::Result<()> {
/// # let device = backend_cpu::cpu();
/// use tensor_core::Tensor;
///
/// let a = Tensor::new([[2.0, 0.0], [0.0, 4.0]], &device)?;
/// let x = linalg::solve(&a, &Tensor::new([2.0, 2.0], &device)?)?;
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.5]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn solve(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    solve_with(a, b, true)
}

/// X with A·X = B, or X·A = B if not `left`, for square A `[…, n, n]`. `torch.linalg.solve`.
///
/// B is `[…, n, r]` (`[…, r, n]` if not `left`), or a batch of vectors: `[n]`, or A's shape without its last
/// axis. The batch axes broadcast.
///
/// # Errors
/// A that is not square, sizes that do not fit, two dtypes or dtypes other than f32 and f64. When it is
/// computed: a singular A.
#[track_caller]
#[doc(alias = "solve")]
pub fn solve_with(a: &Tensor, b: &Tensor, left: bool) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "linalg.solve";
    check_matrix(OP, a.shape(), a.dtype())?;
    check_square(OP, a.shape())?;
    let is_vector = b.rank() == 1 || (b.rank() + 1 == a.rank() && b.dims() == &a.dims()[..a.rank() - 1]);
    if is_vector {
        let (a, b) = (if left { a.clone() } else { mt(a)? }, b.unsqueeze(-1)?);
        return apply(Solve, &fitting(OP, &a, &b)?)?.squeeze(-1);
    }
    if left {
        apply(Solve, &fitting(OP, a, b)?)
    } else {
        mt(&apply(Solve, &fitting(OP, &mt(a)?, &mt_of(OP, b)?)?)?)
    }
}

/// The transpose of a user's operand.
#[track_caller]
fn mt_of(op: &'static str, b: &Tensor) -> Result<Tensor> {
    check_matrix(op, b.shape(), b.dtype())?;
    mt(b)
}

/// A and B with a common batch, if they have the same number of rows.
#[track_caller]
pub(crate) fn fitting(op: &'static str, a: &Tensor, b: &Tensor) -> Result<[Tensor; 2]> {
    check_matrix(op, b.shape(), b.dtype())?;
    if a.dtype() != b.dtype() {
        let hint = "both must be of one dtype; cast one with .to_dtype".into();
        return Err(Error::new(ErrorKind::DTypeMismatch { op, lhs: a.dtype(), rhs: b.dtype(), hint }));
    }
    let (n, rows) = (sizes(a).0, sizes(b).0);
    if n != rows {
        let hint = format!("the right-hand side must have {n} rows as the matrix, and has {rows}");
        let (lhs, rhs) = (a.shape().clone(), b.shape().clone());
        return Err(Error::new(ErrorKind::ShapeMismatch { op, lhs, rhs, hint }));
    }
    let (a, b) = broadcast_batch(op, a, b)?;
    Ok([a, b])
}

/// The inverse of a tensor whose first `ind` axes have as many elements as the others: `tensordot(inverse,
/// a, ind)` is the identity. The inverse has the other axes first. `torch.linalg.tensorinv`.
///
/// # Errors
/// An `ind` of 0, groups of axes with different numbers of elements; a dtype other than f32 and f64. When it
/// is computed: a singular tensor.
#[track_caller]
pub fn tensorinv(a: &Tensor, ind: usize) -> Result<Tensor> {
    const OP: &str = "linalg.tensorinv";
    at_caller(|| {
        if ind == 0 || ind > a.rank() {
            let message =
                format!("the first {ind} axes of {}: give a number from 1 to {}", a.shape(), a.rank());
            return Err(Error::invalid(OP, message));
        }
        let (first, others) = a.dims().split_at(ind);
        let (m, n): (usize, usize) = (first.iter().product(), others.iter().product());
        if m != n {
            let message = format!(
                "the first {ind} axes of {} have {m} elements and the others {n}; they must have as many",
                a.shape()
            );
            return Err(Error::invalid(OP, message));
        }
        let shape: Shape = others.iter().chain(first).copied().collect();
        inv(&a.reshape([m, n])?)?.reshape(shape)
    })
}

/// X with `tensordot(a, x, x.rank())` = B: A's first axes are those of B, and its other axes, with as many
/// elements, those of X. `torch.linalg.tensorsolve`; with `dims` it is [`tensorsolve_axes`].
///
/// # Errors
/// A that does not begin with B's axes, or whose other axes have another number of elements; two dtypes or
/// dtypes other than f32 and f64. When it is computed: a singular A.
#[track_caller]
pub fn tensorsolve(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    const OP: &str = "linalg.tensorsolve";
    at_caller(|| {
        let misfit = |hint: String| {
            let (lhs, rhs) = (a.shape().clone(), b.shape().clone());
            Error::new(ErrorKind::ShapeMismatch { op: OP, lhs, rhs, hint })
        };
        let Some(others) = a.dims().strip_prefix(b.dims()) else {
            return Err(misfit("the first must begin with the axes of the second".into()));
        };
        let (m, n): (usize, usize) = (b.numel(), others.iter().product());
        if m != n {
            return Err(misfit(format!(
                "the first's other axes have {n} elements, and must have {m} as the second"
            )));
        }
        let x = solve(&a.reshape([m, n])?, &b.reshape([m])?)?;
        x.reshape(others.iter().copied().collect::<Shape>())
    })
}

/// [`tensorsolve`] of A with `axes` moved behind its others, in this order: they are the axes of X.
/// `torch.linalg.tensorsolve` with `dims`.
///
/// # Errors
/// As [`tensorsolve`]; axes that A does not have, or repeated ones.
#[track_caller]
pub fn tensorsolve_axes(a: &Tensor, b: &Tensor, axes: impl Into<Axes>) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| {
        let count = a.shape().axes(&axes, "linalg.tensorsolve_axes")?.len();
        let last: Vec<usize> = (a.rank() - count..a.rank()).collect();
        tensorsolve(&a.movedim(axes, last)?, b)
    })
}

#[derive(Debug)]
struct Solve;

impl Function for Solve {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgSolve"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Routine::Solve.run_one(inputs)
    }

    /// The gradient of B is A⁻ᵀ·g, and that of A is −(A⁻ᵀ·g)·Xᵀ.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], x: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let of_b = apply(Solve, &[&mt(&inputs[0])?, g])?;
        let of_a = of_b.matmul(&mt(x)?)?.mul_scalar(-1.0);
        Ok(vec![Some(of_a), Some(of_b)])
    }
}

/// X with A·X = B, or X·A = B if not `left`, for triangular A `[…, n, n]`. The other triangle of A is not
/// read; nor is its diagonal, taken to be 1, if `unitriangular` is set. `torch.linalg.solve_triangular`.
///
/// B is `[…, n, r]` (`[…, r, n]` if not `left`). The batch axes broadcast. A zero on the diagonal gives
/// infinities and NaN.
///
/// # Errors
/// A that is not square, sizes that do not fit, two dtypes or dtypes other than f32 and f64.
#[track_caller]
pub fn solve_triangular(
    a: &Tensor,
    b: &Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
) -> Result<Tensor> {
    const OP: &str = "linalg.solve_triangular";
    check_matrix(OP, a.shape(), a.dtype())?;
    check_square(OP, a.shape())?;
    if left {
        let [a, b] = fitting(OP, a, b)?;
        triangular(&a, &b, upper, unitriangular)
    } else {
        let [a, b] = fitting(OP, &mt(a)?, &mt_of(OP, b)?)?;
        mt(&triangular(&a, &b, !upper, unitriangular)?)
    }
}

/// [`solve_triangular`] from the left, for operands that fit.
#[track_caller]
pub(crate) fn triangular(a: &Tensor, b: &Tensor, upper: bool, unitriangular: bool) -> Result<Tensor> {
    let _line = caller_line();
    apply(SolveTriangular { upper, unitriangular }, &[a, b])
}

#[derive(Clone, Copy, Debug)]
struct SolveTriangular {
    upper: bool,
    unitriangular: bool,
}

impl Function for SolveTriangular {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgSolveTriangular"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let SolveTriangular { upper, unitriangular } = *self;
        Routine::SolveTriangular { upper, unitriangular }.run_one(inputs)
    }

    /// As for [`Solve`], with the triangle of A's gradient that is read.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], x: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let of_b = triangular(&mt(&inputs[0])?, g, !self.upper, self.unitriangular)?;
        let of_a = of_b.matmul(&mt(x)?)?.mul_scalar(-1.0);
        let first = i32::from(self.unitriangular);
        let of_a = if self.upper { of_a.triu(first)? } else { of_a.tril(-first)? };
        Ok(vec![Some(of_a), Some(of_b)])
    }
}

/// The inverse A⁻¹ of square matrices `[…, n, n]`. `torch.linalg.inv`.
///
/// [`solve`] is faster and more exact than a product with an inverse.
///
/// # Errors
/// Matrices that are not square, or not f32 or f64. When it is computed: a singular matrix.
#[track_caller]
pub fn inv(a: &Tensor) -> Result<Tensor> {
    let _line = caller_line();
    apply(Inv { checked: true }, &[a])
}

/// As [`inv`], with infinities in place of the inverse of a singular matrix.
#[track_caller]
pub(crate) fn inv_or_infinite(a: &Tensor) -> Result<Tensor> {
    apply(Inv { checked: false }, &[a])
}

#[derive(Debug)]
struct Inv {
    checked: bool,
}

impl Function for Inv {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinalgInv"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Routine::Inv { checked: self.checked }.run_one(inputs)
    }

    /// −A⁻ᵀ·g·A⁻ᵀ.
    #[track_caller]
    fn backward(&self, _: &[Tensor], inverse: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let it = mt(inverse)?;
        Ok(vec![Some(it.matmul(g)?.matmul(&it)?.mul_scalar(-1.0))])
    }
}

/// Aⁿ for square matrices, by repeated squaring; powers of the inverse for negative n, and the identity for
/// 0. `torch.linalg.matrix_power`.
///
/// # Errors
/// Matrices that are not square, or not f32 or f64. When it is computed: a singular matrix, for n < 0.
#[track_caller]
pub fn matrix_power(a: &Tensor, n: i32) -> Result<Tensor> {
    const OP: &str = "linalg.matrix_power";
    check_matrix(OP, a.shape(), a.dtype())?;
    check_square(OP, a.shape())?;
    let mut left = n.unsigned_abs();
    if left == 0 {
        return Tensor::eye(sizes(a).0, (a.dtype(), &a.device()))?.expand(a.dims());
    }
    let mut square = if n < 0 { inv(a)? } else { a.clone() };
    let mut power: Option<Tensor> = None;
    loop {
        if left & 1 == 1 {
            power = Some(match &power {
                Some(power) => power.matmul(&square)?,
                None => square.clone(),
            });
        }
        left >>= 1;
        match power {
            Some(power) if left == 0 => return Ok(power),
            _ => square = square.matmul(&square)?,
        }
    }
}
