//! Inner loops over slices, compiled for the device's instruction set, and their vector type.
//!
//! They multiply and add in separate steps and in a fixed order, so results are bitwise the same on every
//! CPU.

use backend_cpu::dense::Job;

use super::Real;

/// The number of partial sums of a dot product.
const LANES: usize = 32;

/// y −= factor·x.
#[inline(always)]
pub(super) fn subtract<T: Real>(y: &mut [T], factor: T, x: &[T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y -= factor * x;
    }
}

#[inline(always)]
pub(super) fn scale<T: Real>(x: &mut [T], factor: T) {
    for x in x {
        *x *= factor;
    }
}

#[inline(always)]
pub(super) fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let mut sums = [T::default(); LANES];
    for (x, y) in x.iter().zip(y) {
        for l in 0..LANES {
            sums[l] += x[l] * y[l];
        }
    }
    for (l, (&x, &y)) in x_rest.iter().zip(y_rest).enumerate() {
        sums[l] += x * y;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            let other = sums[l + width];
            sums[l] += other;
        }
        width /= 2;
    }
    sums[0]
}

/// The greatest magnitude, ignoring NaN; 0 for an empty slice.
#[inline(always)]
pub(super) fn greatest<T: Real>(x: &[T]) -> T {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut most = [T::default(); LANES];
    for x in chunks {
        for l in 0..LANES {
            let x = x[l].magnitude();
            most[l] = if x > most[l] { x } else { most[l] };
        }
    }
    for &x in rest.iter() {
        let x = x.magnitude();
        most[0] = if x > most[0] { x } else { most[0] };
    }
    let mut found = most[0];
    for &x in &most[1..] {
        found = if x > found { x } else { found };
    }
    found
}

/// The index of the first element of greatest magnitude; if all others are 0, that of the first NaN.
#[inline(always)]
pub(super) fn pivot<T: Real>(x: &[T]) -> usize {
    let most = greatest(x);
    let mut i = 0;
    if most > T::default() {
        while i < x.len() {
            if x[i].magnitude() == most {
                return i;
            }
            i += 1;
        }
    } else {
        while i < x.len() {
            if x[i] != T::default() {
                return i;
            }
            i += 1;
        }
    }
    0
}

/// 1/x, if that is finite and not subnormal.
#[inline(always)]
pub(super) fn reciprocal<T: Real>(x: T) -> Option<T> {
    let found = T::ONE / x;
    if found.finite() && found.magnitude() >= T::SMALLEST_NORMAL { Some(found) } else { None }
}

/// x /= by, as a product with the reciprocal if that is exact enough to use.
#[inline(always)]
pub(super) fn divide<T: Real>(x: &mut [T], by: T) {
    match reciprocal(by) {
        Some(factor) => scale(x, factor),
        None => {
            for x in x {
                *x /= by;
            }
        }
    }
}

/// Columns of a right-hand side that stay in registers while solved rows are subtracted.
const REGISTER_COLUMNS: usize = 64;
const NARROW: usize = 16;

/// Solves T·X = B in place, for a small triangle that is stored row-major; its other triangle is not read.
pub(super) struct Substitute<'a, T> {
    pub(super) triangle: &'a [T],
    /// The number of rows and columns of the triangle.
    pub(super) order: usize,
    pub(super) x: &'a mut [T],
    pub(super) columns: usize,
    pub(super) upper: bool,
    pub(super) unit: bool,
}

impl<T: Real> Substitute<'_, T> {
    /// The row that is solved in step i.
    #[inline(always)]
    fn row(&self, i: usize) -> usize {
        if self.upper { self.order - 1 - i } else { i }
    }

    /// Solves the `W` columns from `first` on.
    #[inline(always)]
    fn some<const W: usize>(&mut self, first: usize) {
        for i in 0..self.order {
            let row = self.row(i);
            let line = &self.triangle[row * self.order..][..self.order];
            let mut sums = [T::default(); W];
            sums.copy_from_slice(&self.x[row * self.columns + first..][..W]);
            for k in 0..i {
                let k = self.row(k);
                let (factor, above) = (line[k], &self.x[k * self.columns + first..][..W]);
                for l in 0..W {
                    sums[l] -= factor * above[l];
                }
            }
            if !self.unit {
                for sum in &mut sums {
                    *sum /= line[row];
                }
            }
            self.x[row * self.columns + first..][..W].copy_from_slice(&sums);
        }
    }
}

impl<T: Real> Substitute<'_, T> {
    /// Solves the few columns from `first` on: each row is subtracted from all later ones, which gives the
    /// same order of summation without a chain of dependent additions.
    #[inline(always)]
    fn rest(&mut self, first: usize) {
        for i in 0..self.order {
            let row = self.row(i);
            let start = row * self.columns;
            if !self.unit {
                let diagonal = self.triangle[row * self.order + row];
                for x in &mut self.x[start + first..][..self.columns - first] {
                    *x /= diagonal;
                }
            }
            for column in first..self.columns {
                let x = self.x[start + column];
                for k in i + 1..self.order {
                    let k = self.row(k);
                    self.x[k * self.columns + column] -= self.triangle[k * self.order + row] * x;
                }
            }
        }
    }
}

impl<T: Real> Job for Substitute<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(mut self) {
        let mut first = 0;
        while first + REGISTER_COLUMNS <= self.columns {
            self.some::<REGISTER_COLUMNS>(first);
            first += REGISTER_COLUMNS;
        }
        while first + NARROW <= self.columns {
            self.some::<NARROW>(first);
            first += NARROW;
        }
        self.rest(first);
    }
}
