//! QR by Householder reflections: right-looking by panels, whose reflections are applied as 1 − V·T·Vᵀ
//! (Schreiber and Van Loan 1989), each panel recursively by halves (Elmroth and Gustavson 2000). Signs are
//! LAPACK's.

use std::ops::Range;

use backend_cpu::dense::{self, Job, Update};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use super::{
    Real, loops,
    panel::{BASE, PANEL, blocks, elements, half, transposed},
    scale::{exponent_for, power_of_two},
};

/// The factorization A = Q·R.
pub(super) struct Qr<T> {
    /// R in the upper triangle; elements below are undefined.
    factors: Array2<T>,
    panels: Vec<Panel<T>>,
}

/// H₁·…·H_w = 1 − V·T·Vᵀ for a panel, from its first row on.
struct Panel<T> {
    /// Vᵀ, with ones on the diagonal and zeros before it.
    columns: Array2<T>,
    /// V.
    rows: Array2<T>,
    /// Upper triangular.
    t: Array2<T>,
}

impl<T: Real> Panel<T> {
    fn none() -> Panel<T> {
        Panel { columns: Array2::default((0, 0)), rows: Array2::default((0, 0)), t: Array2::default((0, 0)) }
    }

    /// Reduces columns to upper triangular form; R is written to them.
    fn of(mut columns: ArrayViewMut2<'_, T>) -> Panel<T> {
        let width = columns.ncols();
        let mut work = Work {
            columns: transposed(columns.view()),
            r: Array2::default((width, width)),
            t: Array2::default((width, width)),
        };
        work.factor(0..width);
        let Work { columns: reflections, r, t } = work;
        columns.slice_mut(s![..width, ..]).assign(&r);
        Panel { rows: transposed(reflections.view()), columns: reflections, t }
    }

    /// C −= V·Tᵀ·(Vᵀ·C), or with T if not `transposed`.
    fn reflect(&self, transposed: bool, mut c: ArrayViewMut2<'_, T>) {
        let size = (self.t.nrows(), c.ncols());
        let (mut inner, mut scaled) = (Array2::default(size), Array2::default(size));
        let t = if transposed { self.t.t() } else { self.t.view() };
        T::gemm(Update::Set, self.columns.view(), c.view(), inner.view_mut());
        T::gemm(Update::Set, t, inner.view(), scaled.view_mut());
        T::gemm(Update::Subtract, self.rows.view(), scaled.view(), c.view_mut());
    }
}

impl<T: Real> Qr<T> {
    pub(super) fn new(a: ArrayView2<'_, T>) -> Qr<T> {
        let (n, k) = (a.ncols(), a.nrows().min(a.ncols()));
        let mut factors = a.to_owned();
        let mut panels = Vec::with_capacity(k.div_ceil(PANEL));
        if k == 0 {
            return Qr { factors, panels };
        }
        let mut panel = Panel::of(factors.slice_mut(s![.., ..PANEL.min(k)]));
        let mut first = 0;
        while first < k {
            let end = first + panel.t.nrows();
            let mut made = Panel::none();
            if end < n {
                let rest = factors.slice_mut(s![first.., end..]);
                dense::share(blocks(rest, PANEL.min(k - end), &mut made), |mut block| {
                    panel.reflect(true, block.columns.view_mut());
                    if let Some(next) = block.next {
                        *next = Panel::of(block.columns.slice_mut(s![end - first.., ..]));
                    }
                });
            }
            panels.push(std::mem::replace(&mut panel, made));
            first = end;
        }
        Qr { factors, panels }
    }

    /// Writes R to a zero matrix, with as many rows as that has.
    pub(super) fn write_r(&self, mut r: ArrayViewMut2<'_, T>) {
        for (i, (mut to, from)) in r.rows_mut().into_iter().zip(self.factors.rows()).enumerate() {
            let start = i.min(from.len());
            to.slice_mut(s![start..]).assign(&from.slice(s![start..]));
        }
    }

    /// Writes the reflections' vectors below the diagonal, without their leading ones, and their factors.
    pub(super) fn write_reflections(&self, mut packed: ArrayViewMut2<'_, T>, tau: &mut [T]) {
        for (i, panel) in self.panels.iter().enumerate() {
            let first = i * PANEL;
            for (j, (vector, &factor)) in panel.columns.rows().into_iter().zip(panel.t.diag()).enumerate() {
                packed.slice_mut(s![first + j + 1.., first + j]).assign(&vector.slice(s![j + 1..]));
                tau[first + j] = factor;
            }
        }
    }

    /// Writes the first columns of Q to a zero matrix. Reflections do not change the elements above and to
    /// the left of them.
    pub(super) fn write_q(&self, q: ArrayViewMut2<'_, T>) {
        dense::share(blocks(q, 0, &mut ()), |mut block| {
            let columns = block.columns.ncols();
            block.columns.slice_mut(s![block.first.., ..]).diag_mut().fill(T::ONE);
            for (i, panel) in self.panels.iter().enumerate().rev() {
                let first = i * PANEL;
                let from = first.saturating_sub(block.first);
                if from < columns {
                    panel.reflect(false, block.columns.slice_mut(s![first.., from..]));
                }
            }
        });
    }
}

/// A panel that is being factored, column-major.
struct Work<T> {
    columns: Array2<T>,
    r: Array2<T>,
    t: Array2<T>,
}

impl<T: Real> Work<T> {
    fn factor(&mut self, columns: Range<usize>) {
        let height = self.columns.ncols();
        if columns.len() <= BASE {
            let width = self.r.ncols();
            let (panel, r, t) = (elements(&mut self.columns), elements(&mut self.r), elements(&mut self.t));
            dense::run(Columns { panel, height, columns, r, t, width });
            return;
        }
        let (start, end) = (columns.start, columns.end);
        let middle = start + half(columns.len());
        self.factor(start..middle);
        {
            let (left, right) = self.columns.view_mut().split_at(Axis(0), middle);
            let left = left.slice_move(s![start.., start..]);
            let right = right.slice_move(s![..end - middle, start..]);
            let size = (end - middle, middle - start);
            let (mut inner, mut scaled) = (Array2::default(size), Array2::default(size));
            let t = self.t.slice(s![start..middle, start..middle]);
            T::gemm(Update::Set, right.view(), left.t(), inner.view_mut());
            T::gemm(Update::Set, inner.view(), t, scaled.view_mut());
            T::gemm(Update::Subtract, scaled.view(), left.view(), right);
        }
        self.factor(middle..end);
        // T₁₂ = −T₁·(V₁ᵀ·V₂)·T₂.
        let left = self.columns.slice(s![start..middle, middle..]);
        let right = self.columns.slice(s![middle..end, middle..]);
        let size = (middle - start, end - middle);
        let (mut inner, mut scaled) = (Array2::default(size), Array2::default(size));
        T::gemm(Update::Set, left, right.t(), inner.view_mut());
        T::gemm(Update::Set, self.t.slice(s![start..middle, start..middle]), inner.view(), scaled.view_mut());
        let (mut above, below) = self.t.view_mut().split_at(Axis(0), middle);
        let t = below.slice(s![..end - middle, middle..end]);
        T::gemm(Update::Subtract, scaled.view(), t, above.slice_mut(s![start.., middle..end]));
    }
}

/// Factors columns of a panel one by one. Columns of R are moved away, to make room for those of V.
struct Columns<'a, T> {
    panel: &'a mut [T],
    height: usize,
    columns: Range<usize>,
    r: &'a mut [T],
    t: &'a mut [T],
    width: usize,
}

impl<T: Real> Job for Columns<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Columns { panel, height, columns, r, t, width } = self;
        for j in columns.clone() {
            let (left, right) = panel.split_at_mut((j + 1) * height);
            let (before, column) = left.split_at_mut(j * height);
            for i in 0..j {
                r[i * width + j] = column[i];
                column[i] = T::default();
            }
            let column = &mut column[j..];
            let (diagonal, tau) = reflection(column);
            r[j * width + j] = diagonal;
            for other in right.chunks_exact_mut(height).take(columns.end - j - 1) {
                let other = &mut other[j..];
                let factor = tau * loops::dot(column, other);
                loops::subtract(other, factor, column);
            }
            // Column j of T: −τ·T·(Vᵀ·v), and τ.
            let mut inner = [T::default(); BASE];
            for (i, earlier) in columns.clone().take(j - columns.start).zip(&mut inner) {
                *earlier = tau * loops::dot(&before[i * height + j..][..height - j], column);
            }
            for i in columns.start..j {
                let mut sum = T::default();
                for k in i..j {
                    sum += t[i * width + k] * inner[k - columns.start];
                }
                t[i * width + j] = -sum;
            }
            t[j * width + j] = tau;
        }
    }
}

/// The reflection that maps x to (β, 0, …, 0): returns β and τ, and x becomes v, with a leading 1.
///
/// If squares would overflow or underflow, x is first multiplied by a power of two, as in LAPACK's `larfg`. v
/// and τ do not depend on that factor, but they must come from the scaled β: a subnormal β has few digits,
/// and then 1 − τ·v·vᵀ is no reflection.
#[inline(always)]
fn reflection<T: Real>(x: &mut [T]) -> (T, T) {
    let (first, rest) = x.split_at_mut(1);
    let mut alpha = std::mem::replace(&mut first[0], T::ONE);
    let mut sum = loops::dot(rest, rest);
    let mut exponent = 0;
    if !(sum >= T::SAFE && (alpha * alpha + sum).finite()) {
        let most = loops::greatest(rest);
        if most == T::default() && sum == T::default() {
            // The vector is reflected already: LAPACK keeps the sign.
            return (alpha, T::default());
        }
        exponent = exponent_for(if alpha.magnitude() > most { alpha.magnitude() } else { most });
        let factor = power_of_two::<T>(exponent);
        loops::scale(rest, factor);
        alpha *= factor;
        sum = loops::dot(rest, rest);
    }
    let norm = (alpha * alpha + sum).root();
    let beta = if alpha < T::default() { norm } else { -norm };
    loops::divide(rest, alpha - beta);
    (beta * power_of_two::<T>(-exponent), (beta - alpha) / beta)
}
