//! The LU factorization.

use autograd::Function;
use tensor_core::{Result, Tensor, at_caller, caller_line};

use crate::{
    matrix::{mt, sizes},
    routine::{Routine, apply, check_matrix, check_square, exactly},
    solve::{fitting, solve_triangular, triangular},
};

/// The LU factorization A = P·L·U with partial pivoting: for A `[…, m, n]` and k = min(m, n), a permutation
/// P `[…, m, m]`, L `[…, m, k]` lower triangular with a unit diagonal, and U `[…, k, n]` upper triangular.
/// `torch.linalg.lu`.
///
/// # Errors
/// Fewer than two axes, or a dtype other than f32 and f64. The gradient of a singular A has infinities.
#[track_caller]
pub fn lu(a: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let _line = caller_line();
    apply(Lu, &[a])
}

/// X with A·X = B, or X·A = B if not `left`, from the factors P, L and U of a square A ([`lu`]), which can
/// be reused; with `adjoint`, Aᵀ replaces A. B is `[…, n, r]` (`[…, r, n]` if not `left`), and the batch
/// axes broadcast. `torch.linalg.lu_solve`, which takes L and U in one matrix.
///
/// # Errors
/// Factors that are not square, sizes that do not fit, two dtypes or dtypes other than f32 and f64.
#[track_caller]
pub fn lu_solve(p: &Tensor, l: &Tensor, u: &Tensor, b: &Tensor, left: bool, adjoint: bool) -> Result<Tensor> {
    const OP: &str = "linalg.lu_solve";
    at_caller(|| {
        for factor in [p, l, u] {
            check_matrix(OP, factor.shape(), factor.dtype())?;
            check_square(OP, factor.shape())?;
        }
        check_matrix(OP, b.shape(), b.dtype())?;
        // X·A = B is Aᵀ·Xᵀ = Bᵀ.
        let given = if left { b.clone() } else { mt(b)? };
        for factor in [p, l, u] {
            let _ = fitting(OP, factor, &given)?;
        }
        let found = if adjoint == left {
            // Aᵀ = Uᵀ·Lᵀ·Pᵀ.
            let inner = solve_triangular(&mt(u)?, &given, false, true, false)?;
            p.matmul(&solve_triangular(&mt(l)?, &inner, true, true, true)?)?
        } else {
            let inner = solve_triangular(l, &mt(p)?.matmul(&given)?, false, true, true)?;
            solve_triangular(u, &inner, true, true, false)?
        };
        if left { Ok(found) } else { mt(&found) }
    })
}

#[derive(Debug)]
struct Lu;

type Three<T> = (T, T, T);

impl Function for Lu {
    type Output = Three<Tensor>;

    fn name(&self) -> &'static str {
        "LinalgLu"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Three<Tensor>> {
        let results: [Tensor; 3] = exactly(Routine::Lu.run(inputs)?)?;
        Ok(results.into())
    }

    /// For the leading square parts: P·L⁻ᵀ·(strictly lower of Lᵀ·gL + upper of gU·Uᵀ)·U⁻ᵀ. The remaining
    /// rows or columns are solved with these.
    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        (p, l, u): &Three<Tensor>,
        (_, of_l, of_u): &Three<Option<Tensor>>,
    ) -> Result<Vec<Option<Tensor>>> {
        let (m, n) = sizes(&inputs[0]);
        let k = m.min(n);
        let g_l = of_l.clone().unwrap_or_else(|| l.zeros_like());
        let g_u = of_u.clone().unwrap_or_else(|| u.zeros_like());
        let (l1, u1) = (l.narrow(-2, 0, k)?, u.narrow(-1, 0, k)?);
        let mut lower = mt(&l1)?.matmul(&g_l.narrow(-2, 0, k)?)?;
        let mut upper = g_u.narrow(-1, 0, k)?.matmul(&mt(&u1)?)?;
        if m < n {
            let rest = |t: &Tensor| t.narrow(-1, k, n - k);
            lower = lower.sub(&rest(&g_u)?.matmul(&mt(&rest(u)?)?)?)?;
        }
        if m > n {
            let rest = |t: &Tensor| t.narrow(-2, k, m - k);
            upper = upper.sub(&mt(&rest(l)?)?.matmul(&rest(&g_l)?)?)?;
        }
        let middle = lower.tril(-1)?.add(&upper.triu(0)?)?;
        // X·U⁻ᵀ, by rows.
        let by_u = |x: &Tensor| mt(&triangular(&u1, &mt(x)?, true, false)?);
        let by_l = |x: &Tensor| triangular(&mt(&l1)?, x, true, true);
        let square = by_l(&by_u(&middle)?)?;
        let whole = if m < n {
            Tensor::concat(&[square, by_l(&g_u.narrow(-1, k, n - k)?)?], -1)?
        } else if m > n {
            Tensor::concat(&[square, by_u(&g_l.narrow(-2, k, m - k)?)?], -2)?
        } else {
            square
        };
        Ok(vec![Some(p.matmul(&whole)?)])
    }
}
