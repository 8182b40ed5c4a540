//! Factorizations of one matrix by faer, on the thread that asks for them. Matrices come and go as row-major slices.

use faer::{
    Mat, MatMut, MatRef, Side,
    linalg::{solvers, triangular_solve},
    traits::RealField,
};
use tensor_core::Element;

use crate::routine::Outcome;

/// The element types that there are kernels for.
pub(crate) trait Real:
    Element
    + RealField
    + PartialOrd
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Neg<Output = Self>
{
    const ONE: Self;
    fn finite(self) -> bool;
    fn magnitude(self) -> Self;
    fn ln(self) -> f64;
    fn of(value: f64) -> Self;
}

macro_rules! real {
    ($($t:ident)*) => {$(
        impl Real for $t {
            const ONE: $t = 1.0;
            fn finite(self) -> bool { self.is_finite() }
            fn magnitude(self) -> $t { self.abs() }
            fn ln(self) -> f64 { f64::from(self).ln() }
            fn of(value: f64) -> $t { value as $t }
        }
    )*};
}
real!(f32 f64);

/// A row-major slice as a matrix.
pub(crate) fn view<T: Real>(elements: &[T], rows: usize, columns: usize) -> MatRef<'_, T> {
    MatRef::from_row_major_slice(elements, rows, columns)
}

fn view_mut<T: Real>(elements: &mut [T], rows: usize, columns: usize) -> MatMut<'_, T> {
    MatMut::from_row_major_slice_mut(elements, rows, columns)
}

/// Copies a matrix out.
fn write<T: Real>(from: MatRef<'_, T>, to: &mut [T]) {
    view_mut(to, from.nrows(), from.ncols()).copy_from(from);
}

fn is_finite<T: Real>(a: MatRef<'_, T>) -> bool {
    (0..a.ncols()).all(|j| (0..a.nrows()).all(|i| a[(i, j)].finite()))
}

/// # Errors
/// A matrix with elements that are not finite, of which an iteration would not end.
fn check_finite<T: Real>(a: MatRef<'_, T>) -> Outcome {
    match is_finite(a) {
        true => Ok(()),
        false => {
            Err("the matrix has elements that are not finite, so that the algorithm would not converge"
                .into())
        }
    }
}

fn not_converged() -> String {
    "the algorithm did not converge".into()
}

pub(crate) fn cholesky<T: Real>(a: MatRef<'_, T>, l: &mut [T]) -> Outcome {
    let minor = |order: usize| {
        format!("the matrix is not positive-definite: its leading minor of order {order} is not positive")
    };
    let found = solvers::Llt::new(a, Side::Lower).map_err(|error| match error {
        faer::linalg::cholesky::llt::factor::LltError::NonPositivePivot { index } => minor(index + 1),
    })?;
    let factor = found.L();
    // NaN is not.
    let is_positive =
        |i: usize| factor[(i, i)].partial_cmp(&T::default()) == Some(std::cmp::Ordering::Greater);
    if let Some(bad) = (0..a.nrows()).find(|&i| !is_positive(i)) {
        return Err(minor(bad + 1));
    }
    write(factor, l);
    Ok(())
}

/// P·A = L·U: row i of P·A is row `rows[i]` of A.
struct Lu<T> {
    l: Mat<T>,
    u: Mat<T>,
    rows: Vec<usize>,
}

impl<T: Real> Lu<T> {
    fn new(a: MatRef<'_, T>) -> Lu<T> {
        let found = solvers::PartialPivLu::new(a);
        // A pivot of 0 divides; such a matrix has factors all the same.
        if is_finite(found.L()) && is_finite(found.U()) || !is_finite(a) {
            let rows = found.P().arrays().0.to_vec();
            return Lu { l: found.L().to_owned(), u: found.U().to_owned(), rows };
        }
        Lu::with_zero_pivots(a)
    }

    /// Row by row, leaving out columns without a pivot.
    fn with_zero_pivots(a: MatRef<'_, T>) -> Lu<T> {
        let (m, n) = a.shape();
        let k = m.min(n);
        let mut work = a.to_owned();
        let mut rows: Vec<usize> = (0..m).collect();
        for j in 0..k {
            let mut pivot = j;
            for i in j + 1..m {
                if work[(i, j)].magnitude() > work[(pivot, j)].magnitude() {
                    pivot = i;
                }
            }
            if pivot != j {
                rows.swap(pivot, j);
                for c in 0..n {
                    let upper = work[(j, c)];
                    work[(j, c)] = work[(pivot, c)];
                    work[(pivot, c)] = upper;
                }
            }
            if work[(j, j)] == T::default() {
                continue;
            }
            for i in j + 1..m {
                let factor = work[(i, j)] / work[(j, j)];
                work[(i, j)] = factor;
                for c in j + 1..n {
                    let above = work[(j, c)];
                    work[(i, c)] -= factor * above;
                }
            }
        }
        let at = |i: usize, j: usize| work[(i, j)];
        let below = |i: usize, j: usize| match i.cmp(&j) {
            std::cmp::Ordering::Greater => at(i, j),
            std::cmp::Ordering::Equal => T::ONE,
            std::cmp::Ordering::Less => T::default(),
        };
        let l = Mat::from_fn(m, k, below);
        let u = Mat::from_fn(k, n, |i, j| if i <= j { at(i, j) } else { T::default() });
        Lu { l, u, rows }
    }

    /// 1 or −1: the determinant of P.
    fn sign(&self) -> T {
        let mut seen = vec![false; self.rows.len()];
        let mut odd = false;
        for start in 0..seen.len() {
            let mut at = start;
            let mut length = 0;
            while !seen[at] {
                seen[at] = true;
                at = self.rows[at];
                length += 1;
            }
            odd ^= length > 0 && length % 2 == 0;
        }
        if odd { -T::ONE } else { T::ONE }
    }

    /// # Errors
    /// A singular matrix.
    fn check(&self) -> Outcome {
        match (0..self.u.nrows()).find(|&i| self.u[(i, i)] == T::default()) {
            Some(i) => Err(format!(
                "the matrix is singular: pivot {} of its LU factorization is 0; linalg::lstsq or linalg::pinv has an answer for it",
                i + 1
            )),
            None => Ok(()),
        }
    }

    /// X in A·X = B.
    fn solve(&self, b: &[T], x: &mut [T]) {
        let n = self.rows.len();
        if n == 0 || b.is_empty() {
            return;
        }
        let r = b.len() / n;
        let b = view(b, n, r);
        let mut found = Mat::from_fn(n, r, |i, j| b[(self.rows[i], j)]);
        let par = faer::Par::Seq;
        triangular_solve::solve_unit_lower_triangular_in_place(self.l.as_ref(), found.as_mut(), par);
        triangular_solve::solve_upper_triangular_in_place(self.u.as_ref(), found.as_mut(), par);
        write(found.as_ref(), x);
    }
}

pub(crate) fn lu<T: Real>(a: MatRef<'_, T>, p: &mut [T], l: &mut [T], u: &mut [T]) -> Outcome {
    let found = Lu::new(a);
    let m = a.nrows();
    found.rows.iter().enumerate().for_each(|(i, &row)| p[row * m + i] = T::ONE);
    write(found.l.as_ref(), l);
    write(found.u.as_ref(), u);
    Ok(())
}

pub(crate) fn solve<T: Real>(a: MatRef<'_, T>, b: &[T], x: &mut [T]) -> Outcome {
    let found = Lu::new(a);
    found.check()?;
    found.solve(b, x);
    Ok(())
}

pub(crate) fn inv<T: Real>(a: MatRef<'_, T>, x: &mut [T], checked: bool) -> Outcome {
    let n = a.nrows();
    let found = Lu::new(a);
    match found.check() {
        Err(message) if checked => return Err(message),
        Err(_) => {
            x.fill(T::of(f64::INFINITY));
            return Ok(());
        }
        Ok(()) => {}
    }
    let mut identity = vec![T::default(); n * n];
    (0..n).for_each(|i| identity[i * n + i] = T::ONE);
    found.solve(&identity, x);
    Ok(())
}

pub(crate) fn solve_triangular<T: Real>(
    a: MatRef<'_, T>,
    b: &[T],
    x: &mut [T],
    upper: bool,
    unitriangular: bool,
) -> Outcome {
    let n = a.nrows();
    if n == 0 || b.is_empty() {
        return Ok(());
    }
    x.copy_from_slice(b);
    let x = view_mut(x, n, b.len() / n);
    let par = faer::Par::Seq;
    match (upper, unitriangular) {
        (false, false) => triangular_solve::solve_lower_triangular_in_place(a, x, par),
        (false, true) => triangular_solve::solve_unit_lower_triangular_in_place(a, x, par),
        (true, false) => triangular_solve::solve_upper_triangular_in_place(a, x, par),
        (true, true) => triangular_solve::solve_unit_upper_triangular_in_place(a, x, par),
    }
    Ok(())
}

pub(crate) fn det<T: Real>(a: MatRef<'_, T>, det: &mut [T]) -> Outcome {
    let found = Lu::new(a);
    det[0] = (0..a.nrows()).fold(found.sign(), |product, i| product * found.u[(i, i)]);
    Ok(())
}

pub(crate) fn slogdet<T: Real>(a: MatRef<'_, T>, sign: &mut [T], log: &mut [T]) -> Outcome {
    let found = Lu::new(a);
    let mut product = found.sign();
    let mut sum = 0.0;
    for i in 0..a.nrows() {
        let pivot = found.u[(i, i)];
        if pivot < T::default() {
            product = -product;
        } else if pivot == T::default() {
            product = T::default();
        }
        sum += pivot.magnitude().ln();
    }
    (sign[0], log[0]) = (product, T::of(sum));
    Ok(())
}

/// ∂det A / ∂A = det(U)·det(V) · U·diag(Πⱼ≠ᵢ sⱼ)·Vᵀ, which a singular matrix has as well.
pub(crate) fn cofactor<T: Real>(a: MatRef<'_, T>, c: &mut [T]) -> Outcome {
    let n = a.nrows();
    if !is_finite(a) {
        c.fill(T::of(f64::NAN));
        return Ok(());
    }
    let found = solvers::Svd::new(a).map_err(|_| not_converged())?;
    let s = found.S().column_vector();
    let orientation = |q: MatRef<'_, T>| {
        let lu = Lu::new(q);
        (0..n).fold(lu.sign(), |product, i| if lu.u[(i, i)] < T::default() { -product } else { product })
    };
    let sign = orientation(found.U()) * orientation(found.V());
    // Products before and after each, so that none is divided by.
    let (mut before, mut after) = (vec![sign; n], vec![T::ONE; n]);
    for i in 1..n {
        before[i] = before[i - 1] * s[i - 1];
        after[n - 1 - i] = after[n - i] * s[n - i];
    }
    let scaled = Mat::from_fn(n, n, |i, j| found.U()[(i, j)] * (before[j] * after[j]));
    write((&scaled * found.V().transpose()).as_ref(), c);
    Ok(())
}

pub(crate) fn qr<T: Real>(a: MatRef<'_, T>, q: &mut [T], r: &mut [T], complete: bool) -> Outcome {
    let (m, n) = a.shape();
    if m.min(n) == 0 {
        // Nothing is reflected.
        let columns = if complete { m } else { 0 };
        write(Mat::<T>::identity(m, columns).as_ref(), q);
        return Ok(());
    }
    let found = solvers::Qr::new(a);
    if complete {
        write(found.compute_Q().as_ref(), q);
        // The rows below are zero.
        write(found.R(), &mut r[..m.min(n) * n]);
    } else {
        write(found.compute_thin_Q().as_ref(), q);
        write(found.thin_R(), r);
    }
    Ok(())
}

pub(crate) fn svd<T: Real>(a: MatRef<'_, T>, u: &mut [T], s: &mut [T], vh: &mut [T], full: bool) -> Outcome {
    check_finite(a)?;
    let found = if full { solvers::Svd::new(a) } else { solvers::Svd::new_thin(a) };
    let found = found.map_err(|_| not_converged())?;
    write(found.U(), u);
    write(found.V().transpose(), vh);
    write(found.S().column_vector().as_mat(), s);
    Ok(())
}

pub(crate) fn svdvals<T: Real>(a: MatRef<'_, T>, s: &mut [T]) -> Outcome {
    check_finite(a)?;
    let values = a.singular_values().map_err(|_| not_converged())?;
    s.copy_from_slice(&values);
    Ok(())
}

fn side(upper: bool) -> Side {
    if upper { Side::Upper } else { Side::Lower }
}

/// The triangle that is read, mirrored.
fn check_triangle<T: Real>(a: MatRef<'_, T>, upper: bool) -> Outcome {
    let at = |i: usize, j: usize| if upper { a[(j, i)] } else { a[(i, j)] };
    let finite = (0..a.nrows()).all(|i| (0..=i).all(|j| at(i, j).finite()));
    if finite { Ok(()) } else { check_finite(a) }
}

pub(crate) fn eigh<T: Real>(a: MatRef<'_, T>, upper: bool, values: &mut [T], vectors: &mut [T]) -> Outcome {
    check_triangle(a, upper)?;
    let found = solvers::SelfAdjointEigen::new(a, side(upper)).map_err(|_| not_converged())?;
    write(found.S().column_vector().as_mat(), values);
    write(found.U(), vectors);
    Ok(())
}

pub(crate) fn eigvalsh<T: Real>(a: MatRef<'_, T>, upper: bool, values: &mut [T]) -> Outcome {
    check_triangle(a, upper)?;
    let found = a.self_adjoint_eigenvalues(side(upper)).map_err(|_| not_converged())?;
    values.copy_from_slice(&found);
    Ok(())
}
