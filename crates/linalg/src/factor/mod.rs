//! Factorizations of one matrix. Matrices are passed as row-major slices.
//!
//! Factorizations that consist mostly of products are our own, on top of the backend's matrix products:
//! [`lu`](self::lu), [`cholesky`](self::cholesky), [`qr`](self::qr) and [`triangular`] systems, and so
//! [`pinv`](self::pinv) if all singular values count. faer computes singular values and eigenvalues, on the
//! calling thread.

mod cholesky;
mod ldl;
mod loops;
mod lu;
mod panel;
mod pinv;
mod qr;
mod scale;
mod small;
mod triangular;

use backend_cpu::dense::{Scalar, Update};
use faer::{Mat, MatRef, Side, linalg::solvers};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use tensor_core::Element;

pub(crate) use self::pinv::pinv;
use self::{
    lu::Lu,
    qr::Qr,
    scale::{Product, Scaled},
    triangular::Triangle,
};
use crate::outcome::{Fault, Outcome};

/// The element types that have kernels.
pub(crate) trait Real:
    Element
    + Scalar
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
    + std::ops::SubAssign
    + std::ops::MulAssign
    + std::ops::DivAssign
{
    const ONE: Self;
    /// The least normal number.
    const SMALLEST_NORMAL: Self;
    /// Sums of squares from this value on have lost nothing to underflow.
    const SAFE: Self;
    /// The greatest k for which 2ᵏ and 2⁻ᵏ are both normal numbers.
    const MOST_EXPONENT: i32;
    fn finite(self) -> bool;
    fn magnitude(self) -> Self;
    fn root(self) -> Self;
    fn wide(self) -> f64;
    fn of(value: f64) -> Self;
}

macro_rules! real {
    ($($t:ident)*) => {$(
        impl Real for $t {
            const ONE: $t = 1.0;
            const SMALLEST_NORMAL: $t = $t::MIN_POSITIVE;
            const SAFE: $t = $t::MIN_POSITIVE / $t::EPSILON / $t::EPSILON;
            const MOST_EXPONENT: i32 = $t::MAX_EXP - 2;
            #[inline(always)]
            fn finite(self) -> bool { self.is_finite() }
            #[inline(always)]
            fn magnitude(self) -> $t { self.abs() }
            #[inline(always)]
            fn root(self) -> $t { self.sqrt() }
            #[inline(always)]
            fn wide(self) -> f64 { f64::from(self) }
            fn of(value: f64) -> $t { value as $t }
        }
    )*};
}
real!(f32 f64);

/// A row-major slice as a matrix.
///
/// # Errors
/// A slice of another size.
pub(crate) fn view<T: Real>(elements: &[T], rows: usize, columns: usize) -> Result<ArrayView2<'_, T>, Fault> {
    ArrayView2::from_shape((rows, columns), elements).map_err(|error| Fault::Malformed(error.to_string()))
}

fn view_mut<T: Real>(elements: &mut [T], rows: usize, columns: usize) -> Result<ArrayViewMut2<'_, T>, Fault> {
    ArrayViewMut2::from_shape((rows, columns), elements).map_err(|error| Fault::Malformed(error.to_string()))
}

/// The matrix as a faer matrix, in f64. faer's singular values and eigenvalues of f32 are off by some 40
/// units in the last place of the greatest, and LAPACK's by one; in f64 they take a third longer.
fn to_faer<T: Real>(a: &ArrayView2<'_, T>) -> Mat<f64> {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| a[(i, j)].wide())
}

/// Copies a faer matrix to a slice.
fn write<T: Real>(from: MatRef<'_, f64>, to: &mut [T]) {
    let columns = from.ncols();
    for (k, to) in to.iter_mut().enumerate() {
        *to = T::of(from[(k / columns, k % columns)]);
    }
}

fn is_finite<T: Real>(a: &ArrayView2<'_, T>) -> bool {
    a.iter().all(|x| x.finite())
}

/// # Errors
/// A matrix with elements that are not finite, for which an iteration would not end.
fn check_finite<T: Real>(a: &ArrayView2<'_, T>) -> Outcome {
    if is_finite(a) { Ok(()) } else { Err(Fault::NotFinite) }
}

pub(crate) fn cholesky<T: Real>(a: ArrayView2<'_, T>, l: &mut [T]) -> Outcome {
    let n = a.nrows();
    let mut l = view_mut(l, n, n)?;
    for (i, (mut to, from)) in l.rows_mut().into_iter().zip(a.rows()).enumerate() {
        to.slice_mut(s![..=i]).assign(&from.slice(s![..=i]));
    }
    cholesky::cholesky(l.view_mut()).map_err(|pivot| Fault::Minor(pivot + 1))?;
    for (i, mut row) in l.rows_mut().into_iter().enumerate() {
        row.slice_mut(s![i + 1..]).fill(T::default());
    }
    Ok(())
}

pub(crate) fn lu<T: Real>(a: ArrayView2<'_, T>, p: &mut [T], l: &mut [T], u: &mut [T]) -> Outcome {
    let (m, n) = a.dim();
    let found = Lu::new(a);
    found.rows().into_iter().enumerate().for_each(|(i, row)| p[row * m + i] = T::ONE);
    found.write(view_mut(l, m, m.min(n))?, view_mut(u, m.min(n), n)?);
    Ok(())
}

/// # Errors
/// A singular matrix.
fn check<T: Real>(lu: &Lu<T>) -> Outcome {
    match lu.pivots().position(|pivot| pivot == T::default()) {
        Some(i) => Err(Fault::Pivot(i + 1)),
        None => Ok(()),
    }
}

/// The number of columns of a right-hand side with this number of rows.
fn columns<T>(b: &[T], rows: usize) -> usize {
    b.len().checked_div(rows).unwrap_or(0)
}

pub(crate) fn solve<T: Real>(a: ArrayView2<'_, T>, b: &[T], x: &mut [T]) -> Outcome {
    let n = a.nrows();
    let found = Lu::new(a);
    check(&found)?;
    x.copy_from_slice(b);
    found.solve(view_mut(x, n, columns(b, n))?);
    Ok(())
}

pub(crate) fn inv<T: Real>(a: ArrayView2<'_, T>, x: &mut [T], checked: bool) -> Outcome {
    let n = a.nrows();
    let found = Lu::new(a);
    match check(&found) {
        Err(fault) if checked => return Err(fault),
        Err(_) => x.fill(T::of(f64::INFINITY)),
        Ok(()) => found.invert(view_mut(x, n, n)?),
    }
    Ok(())
}

pub(crate) fn solve_triangular<T: Real>(
    a: ArrayView2<'_, T>,
    b: &[T],
    x: &mut [T],
    upper: bool,
    unit: bool,
) -> Outcome {
    let n = a.nrows();
    x.copy_from_slice(b);
    triangular::solve(a, Triangle { upper, unit }, view_mut(x, n, columns(b, n))?);
    Ok(())
}

/// The determinant of P, 1 or −1.
fn sign<T: Real>(lu: &Lu<T>) -> T {
    if lu.is_odd() { -T::ONE } else { T::ONE }
}

pub(crate) fn det<T: Real>(a: ArrayView2<'_, T>, det: &mut [T]) -> Outcome {
    let found = Lu::upper(a);
    let product = found.pivots().fold(Product::of(sign(&found)), Product::times);
    det[0] = product.value();
    Ok(())
}

pub(crate) fn slogdet<T: Real>(a: ArrayView2<'_, T>, sign: &mut [T], log: &mut [T]) -> Outcome {
    let found = Lu::upper(a);
    let mut product = self::sign(&found);
    let mut sum = 0.0;
    for pivot in found.pivots() {
        if pivot < T::default() {
            product = -product;
        } else if pivot == T::default() {
            product = T::default();
        }
        sum += pivot.magnitude().wide().ln();
    }
    (sign[0], log[0]) = (product, T::of(sum));
    Ok(())
}

/// ∂det A / ∂A = det(U)·det(V) · U·diag(Πⱼ≠ᵢ sⱼ)·Vᵀ, which exists for singular matrices too.
pub(crate) fn cofactor<T: Real>(a: ArrayView2<'_, T>, c: &mut [T]) -> Outcome {
    let n = a.nrows();
    if !is_finite(&a) {
        c.fill(T::of(f64::NAN));
        return Ok(());
    }
    let a = Scaled::new(a);
    let found = solvers::Svd::new(to_faer(&a.view()).as_ref()).map_err(|_| Fault::NotConverged)?;
    let array = |q: MatRef<'_, f64>| Array2::from_shape_fn((n, n), |(i, j)| T::of(q[(i, j)]));
    let (mut u, v) = (array(found.U()), array(found.V()));
    let orientation = |q: ArrayView2<'_, T>| {
        let lu = Lu::upper(q);
        lu.pivots().fold(sign(&lu), |product, pivot| if pivot < T::default() { -product } else { product })
    };
    let sign = orientation(u.view()) * orientation(v.view());
    let s: Vec<Product> =
        found.S().column_vector().iter().map(|&s| Product::of(T::of(s)).raised(-a.exponent())).collect();
    // Products of those before and those after each, which avoid a division.
    let (mut before, mut after) = (vec![Product::of(sign); n], vec![Product::of(T::ONE); n]);
    for i in 1..n {
        before[i] = before[i - 1].and(s[i - 1]);
        after[n - 1 - i] = after[n - i].and(s[n - i]);
    }
    let products: Vec<Product> =
        before.iter().zip(&after).map(|(&before, &after)| before.and(after)).collect();
    // Sums of products are computed in a scale in which the greatest is near 1.
    let shift = products.iter().filter_map(Product::exponent).max().unwrap_or(0);
    let factors: Vec<T> = products.iter().map(|product| product.raised(-shift).value()).collect();
    u.indexed_iter_mut().for_each(|((_, j), u)| *u *= factors[j]);
    T::gemm(Update::Set, u.view(), v.t(), view_mut(c, n, n)?);
    for c in c.iter_mut() {
        *c = Product::of(*c).raised(shift).value();
    }
    Ok(())
}

pub(crate) fn qr<T: Real>(a: ArrayView2<'_, T>, q: &mut [T], r: &mut [T], complete: bool) -> Outcome {
    let (m, n) = a.dim();
    let k = if complete { m } else { m.min(n) };
    let found = Qr::new(a);
    found.write_r(view_mut(r, k, n)?);
    found.write_q(view_mut(q, m, k)?);
    Ok(())
}

pub(crate) fn ldl<T: Real>(a: ArrayView2<'_, T>, ld: &mut [T], pivots: &mut [T]) -> Outcome {
    let n = a.nrows();
    let mut ld = view_mut(ld, n, n)?;
    for (i, (mut to, from)) in ld.rows_mut().into_iter().zip(a.rows()).enumerate() {
        to.slice_mut(s![..=i]).assign(&from.slice(s![..=i]));
        to.slice_mut(s![i + 1..]).fill(T::default());
    }
    ldl::factor(&mut ld, pivots);
    Ok(())
}

pub(crate) fn ldl_solve<T: Real>(ld: ArrayView2<'_, T>, pivots: &[T], b: &[T], x: &mut [T]) -> Outcome {
    let n = ld.nrows();
    x.copy_from_slice(b);
    ldl::solve(&ld, pivots, view_mut(x, n, columns(b, n))?)
}

pub(crate) fn geqrf<T: Real>(a: ArrayView2<'_, T>, packed: &mut [T], tau: &mut [T]) -> Outcome {
    let (m, n) = a.dim();
    let found = Qr::new(a);
    found.write_r(view_mut(packed, m, n)?);
    found.write_reflections(view_mut(packed, m, n)?, tau);
    Ok(())
}

pub(crate) fn svd<T: Real>(
    a: ArrayView2<'_, T>,
    u: &mut [T],
    s: &mut [T],
    vh: &mut [T],
    full: bool,
) -> Outcome {
    check_finite(&a)?;
    let a = Scaled::new(a);
    let matrix = a.view();
    let given = to_faer(&matrix);
    let found = if full { solvers::Svd::new(given.as_ref()) } else { solvers::Svd::new_thin(given.as_ref()) };
    let found = found.map_err(|_| Fault::NotConverged)?;
    write(found.U(), u);
    write(found.V().transpose(), vh);
    write(found.S().column_vector().as_mat(), s);
    a.restore(s);
    Ok(())
}

pub(crate) fn svdvals<T: Real>(a: ArrayView2<'_, T>, s: &mut [T]) -> Outcome {
    check_finite(&a)?;
    let a = Scaled::new(a);
    let values = to_faer(&a.view()).singular_values().map_err(|_| Fault::NotConverged)?;
    s.iter_mut().zip(values).for_each(|(s, value)| *s = T::of(value));
    a.restore(s);
    Ok(())
}

fn side(upper: bool) -> Side {
    if upper { Side::Upper } else { Side::Lower }
}

/// # Errors
/// Elements of the triangle that is read that are not finite.
fn check_triangle<T: Real>(a: &ArrayView2<'_, T>, upper: bool) -> Outcome {
    let finite = scale::triangle(a, upper).all(|row| row.iter().all(|x| x.finite()));
    if finite { Ok(()) } else { check_finite(a) }
}

pub(crate) fn eigh<T: Real>(
    a: ArrayView2<'_, T>,
    upper: bool,
    values: &mut [T],
    vectors: &mut [T],
) -> Outcome {
    check_triangle(&a, upper)?;
    let a = Scaled::of_triangle(a, upper);
    let found = solvers::SelfAdjointEigen::new(to_faer(&a.view()).as_ref(), side(upper))
        .map_err(|_| Fault::NotConverged)?;
    write(found.S().column_vector().as_mat(), values);
    a.restore(values);
    write(found.U(), vectors);
    Ok(())
}

pub(crate) fn eigvalsh<T: Real>(a: ArrayView2<'_, T>, upper: bool, values: &mut [T]) -> Outcome {
    check_triangle(&a, upper)?;
    let a = Scaled::of_triangle(a, upper);
    let found = to_faer(&a.view()).self_adjoint_eigenvalues(side(upper)).map_err(|_| Fault::NotConverged)?;
    values.iter_mut().zip(found).for_each(|(value, found)| *value = T::of(found));
    a.restore(values);
    Ok(())
}
