//! Pseudo-inverses. If all singular values of a matrix count, A⁺ is (Aᵀ·A)⁻¹·Aᵀ, which LU or QR computes at
//! a fraction of the cost of singular values. Bounds decide whether they all count: σ₁ ≤ ‖A‖ and σₙ = 1 /
//! ‖A⁺‖₂ ≥ 1 / ‖A⁺‖, for norms that are at least the greatest singular value.

use backend_cpu::dense::{self, Job, Scalar, Update};
use faer::linalg::solvers;
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2};

use super::{
    Real, check_finite, loops,
    lu::{LOWER, Lu, UPPER},
    panel,
    qr::Qr,
    scale::Scaled,
    to_faer,
    triangular::{self, Triangle},
    view_mut, write,
};
use crate::outcome::{Fault, Outcome};

/// Safety factor of the bounds, for the rounding errors in their computation.
const MARGIN: f64 = 1.25;
/// The number of squarings of a matrix for the bound of its norm: k squarings give (Σσᵖ)^(1/p) with p = 2ᵏ⁺¹.
const SQUARINGS: usize = 3;

/// Computes A⁺; singular values up to max(`atol`, `rtol`·σ₁) count as 0.
pub(crate) fn pinv<T: Real>(a: ArrayView2<'_, T>, x: &mut [T], atol: f64, rtol: f64) -> Outcome {
    check_finite(&a)?;
    // An inverse in f32 meets A·A⁺·A = A ten times worse than singular values do (decision 40).
    let wide = a.mapv(T::wide);
    let a = Scaled::new(wide.view());
    let mut found = vec![0.0; x.len()];
    scaled(a.view(), &mut found, atol * a.factor(), rtol)?;
    // (k·A)⁺ is A⁺/k.
    loops::scale(&mut found, a.factor());
    x.iter_mut().zip(found).for_each(|(x, found)| *x = T::of(found));
    Ok(())
}

/// [`pinv`] of a matrix whose greatest magnitude is near 1.
fn scaled(a: ArrayView2<'_, f64>, x: &mut [f64], atol: f64, rtol: f64) -> Outcome {
    let (m, n) = a.dim();
    if m >= n {
        return tall(a, view_mut(x, n, m)?, atol, rtol);
    }
    let (long, mut found) = (panel::transposed(a), Array2::default((m, n)));
    tall(long.view(), found.view_mut(), atol, rtol)?;
    dense::assign(found.t(), view_mut(x, n, m)?);
    Ok(())
}

/// A⁺ for a matrix with at least as many rows as columns.
fn tall(a: ArrayView2<'_, f64>, mut x: ArrayViewMut2<'_, f64>, atol: f64, rtol: f64) -> Outcome {
    let (m, n) = a.dim();
    if n == 0 {
        return Ok(());
    }
    // Rounding can hide singular values below this bound from the estimates.
    let known = rtol.max(m as f64 * f64::EPSILON);
    if m == n {
        let found = Lu::new(a);
        if may_count(a, &[(found.factors(), LOWER), (found.factors(), UPPER)], atol, known) {
            found.invert(x.view_mut());
            if all_count(a, x.view(), atol, known) {
                return Ok(());
            }
        }
        return through_values(a, x, None, atol, rtol);
    }
    // A = Q·R has A⁺ = R⁺·Qᵀ, and the singular values of R.
    let found = Qr::new(a);
    let (mut q, mut r) = (Array2::default((m, n)), Array2::default((n, n)));
    found.write_q(q.view_mut());
    found.write_r(r.view_mut());
    if may_count(r.view(), &[(r.view(), UPPER)], atol, known) {
        x.assign(&q.t());
        triangular::solve(r.view(), UPPER, x.view_mut());
        if all_count(r.view(), x.view(), atol, known) {
            return Ok(());
        }
    }
    through_values(r.view(), x, Some(q.view()), atol, rtol)
}

/// Steps of the power method, alternating between the matrix and its transpose.
const STEPS: usize = 4;

/// Whether all singular values may still count, judged by lower bounds of ‖A‖ and ‖A⁻¹‖. A is the product of
/// the triangles, possibly with its rows permuted.
fn may_count(
    a: ArrayView2<'_, f64>,
    triangles: &[(ArrayView2<'_, f64>, Triangle)],
    atol: f64,
    rtol: f64,
) -> bool {
    let has_pivots = |&(t, triangle): &(ArrayView2<'_, f64>, Triangle)| {
        triangle.unit || t.diag().iter().all(|&pivot| pivot != 0.0)
    };
    triangles.iter().all(has_pivots) && {
        let of_a = dense::run(Power { of: Direct(a), n: a.ncols() });
        let of_inverse = dense::run(Power { of: Inverse(triangles), n: a.ncols() });
        of_inverse * atol.max(rtol * of_a) < 1.0
    }
}

/// A square matrix as a linear map.
trait Linear {
    /// Replaces x by M·x or Mᵀ·x.
    fn apply(&self, x: &mut Vec<f64>, transposed: bool);
}

struct Direct<'a>(ArrayView2<'a, f64>);

impl Linear for Direct<'_> {
    #[inline(always)]
    fn apply(&self, x: &mut Vec<f64>, transposed: bool) {
        let rows = self.0.rows().into_iter().filter_map(|row| row.to_slice());
        if transposed {
            let mut sum = vec![0.0; x.len()];
            rows.zip(&*x).for_each(|(row, &x)| loops::subtract(&mut sum, -x, row));
            *x = sum;
        } else {
            *x = rows.map(|row| loops::dot(row, x)).collect();
        }
    }
}

/// The inverse of a product of triangles; the last factor comes first.
struct Inverse<'a>(&'a [(ArrayView2<'a, f64>, Triangle)]);

impl Linear for Inverse<'_> {
    #[inline(always)]
    fn apply(&self, x: &mut Vec<f64>, transposed: bool) {
        let count = self.0.len();
        for k in 0..count {
            let (t, triangle) = self.0[if transposed { count - 1 - k } else { k }];
            let n = x.len();
            for k in 0..n {
                // The off-diagonal elements of a row multiply values that are solved already; in the
                // transposed case, values that are solved later.
                let i = if triangle.upper != transposed { n - 1 - k } else { k };
                let row = t.row(i).to_slice().unwrap_or_default();
                let beside = if triangle.upper { i + 1..n } else { 0..i };
                if !transposed {
                    let known = loops::dot(&row[beside.clone()], &x[beside.clone()]);
                    x[i] -= known;
                }
                if !triangle.unit {
                    x[i] /= row[i];
                }
                if transposed {
                    let factor = x[i];
                    loops::subtract(&mut x[beside.clone()], factor, &row[beside]);
                }
            }
        }
    }
}

/// A lower bound of the greatest singular value of M, by the power method on Mᵀ·M; infinity on overflow.
struct Power<L> {
    of: L,
    n: usize,
}

impl<L: Linear> Job for Power<L> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        // Pseudo-random signs.
        let is_negative = |i: usize| (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 1;
        let sign = |i| if is_negative(i) { -1.0 } else { 1.0 };
        let mut x: Vec<f64> = (0..self.n).map(sign).collect();
        let (mut least, mut before) = (0.0, (self.n as f64).sqrt());
        for step in 0..STEPS {
            self.of.apply(&mut x, step % 2 == 1);
            let norm = loops::dot(&x, &x).sqrt();
            if !norm.is_finite() {
                return f64::INFINITY;
            }
            least = f64::max(least, norm / before);
            if norm == 0.0 {
                break;
            }
            loops::scale(&mut x, 1.0 / norm);
            before = 1.0;
        }
        least
    }
}

/// Whether 1 / ‖X‖ is certainly above max(`atol`, `rtol`·‖A‖), by successively more expensive bounds of the
/// norms.
fn all_count(a: ArrayView2<'_, f64>, x: ArrayView2<'_, f64>, atol: f64, rtol: f64) -> bool {
    let (mut of_a, mut of_x) = (Norm::new(a), Norm::new(x));
    for squarings in 0..=SQUARINGS {
        if of_x.most * MARGIN * atol.max(rtol * of_a.most) < 1.0 {
            return true;
        }
        if squarings < SQUARINGS {
            of_a.square();
            // One squaring is enough for the inverse: few of its singular values are near its greatest.
            if squarings == 0 {
                of_x.square();
            }
        }
    }
    false
}

/// An upper bound of the greatest singular value: (Σσᵖ)^(1/p) for p = 2, 4, 8, ….
struct Norm {
    /// The matrix, and later powers of M·Mᵀ, scaled to a greatest element of 1.
    power: Array2<f64>,
    /// The power p of singular values in the sum of the elements' squares.
    exponent: f64,
    /// The logarithm of the scale that `power` was divided by.
    scale: f64,
    most: f64,
}

impl Norm {
    fn new(a: ArrayView2<'_, f64>) -> Norm {
        let mut norm = Norm {
            power: a.as_standard_layout().into_owned(),
            exponent: 2.0,
            scale: 0.0,
            most: f64::INFINITY,
        };
        norm.bound();
        norm
    }

    /// Doubles the exponent.
    fn square(&mut self) {
        if !self.most.is_finite() {
            return;
        }
        let n = self.power.nrows();
        let mut squared = Array2::default((n, n));
        f64::gemm(Update::Set, self.power.view(), self.power.t(), squared.view_mut());
        self.power = squared;
        self.scale *= 2.0;
        self.exponent *= 2.0;
        self.bound();
    }

    fn bound(&mut self) {
        let columns = self.power.ncols();
        let Some((greatest, squares)) = dense::run(Scale { x: panel::elements(&mut self.power), columns })
        else {
            return;
        };
        self.scale += greatest.ln();
        let whole = (squares.ln() + 2.0 * self.scale) / self.exponent;
        self.most = self.most.min(whole.exp());
    }
}

/// Divides a matrix by its greatest magnitude, and returns that and the sum of squares after the division;
/// none if the greatest magnitude is 0 or too small or infinite.
struct Scale<'a> {
    x: &'a mut [f64],
    columns: usize,
}

impl Job for Scale<'_> {
    type Output = Option<(f64, f64)>;
    #[inline(always)]
    fn run(self) -> Option<(f64, f64)> {
        let greatest = loops::greatest(self.x);
        let factor = 1.0 / greatest;
        if greatest == 0.0 || !greatest.is_finite() || !factor.is_finite() {
            return None;
        }
        let mut squares = 0.0;
        for row in self.x.chunks_exact_mut(self.columns) {
            loops::scale(row, factor);
            squares += loops::dot(row, row);
        }
        Some((greatest, squares))
    }
}

/// V·S⁺·Uᵀ for a square matrix U·S·Vᵀ, times Qᵀ if there is a Q.
fn through_values(
    a: ArrayView2<'_, f64>,
    x: ArrayViewMut2<'_, f64>,
    q: Option<ArrayView2<'_, f64>>,
    atol: f64,
    rtol: f64,
) -> Outcome {
    let n = a.ncols();
    let found = solvers::Svd::new_thin(to_faer(&a).as_ref()).map_err(|_| Fault::NotConverged)?;
    let (mut u, mut v) = (Array2::default((n, n)), Array2::default((n, n)));
    write(found.U(), panel::elements(&mut u));
    write(found.V(), panel::elements(&mut v));
    let values = found.S().column_vector();
    let least = atol.max(rtol * values[0]);
    let inverted: Array1<f64> = values.iter().map(|&s| if s > least { 1.0 / s } else { 0.0 }).collect();
    v *= &inverted;
    match q {
        None => f64::gemm(Update::Set, v.view(), u.t(), x),
        Some(q) => {
            let mut inner = Array2::default((n, n));
            f64::gemm(Update::Set, v.view(), u.t(), inner.view_mut());
            f64::gemm(Update::Set, inner.view(), q.t(), x);
        }
    }
    Ok(())
}
