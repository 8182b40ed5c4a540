//! Scaling of matrices by powers of two, so that squares of their elements neither overflow nor underflow,
//! and products of numbers with separate exponents.

use std::borrow::Cow;

use backend_cpu::dense::{self, Job};
use ndarray::{ArrayView1, ArrayView2, s};

use super::{Real, loops};

/// A matrix times a power of two that brings its greatest magnitude between 1 and 2: the matrix itself if it
/// is there, 0, or not finite. The solvers of eigenvalues compare with numbers near 1 if a matrix is large.
pub(super) struct Scaled<'a, T: Real> {
    elements: Cow<'a, [T]>,
    size: (usize, usize),
    exponent: i32,
}

/// The rows of the triangle that is read.
pub(super) fn triangle<'a, T>(
    a: &'a ArrayView2<'_, T>,
    upper: bool,
) -> impl Iterator<Item = ArrayView1<'a, T>> + 'a {
    (0..a.nrows()).map(move |i| if upper { a.slice(s![i, i..]) } else { a.slice(s![i, ..=i]) })
}

/// The greatest magnitude.
struct Greatest<'a, T>(&'a [T]);

impl<T: Real> Job for Greatest<'_, T> {
    type Output = T;
    #[inline(always)]
    fn run(self) -> T {
        loops::greatest(self.0)
    }
}

/// The exponent of the power of two that brings a magnitude near 1; 0 if it is near enough. Products of
/// several such numbers, and of their rounding errors, are normal numbers.
pub(super) fn exponent_for<T: Real>(most: T) -> i32 {
    let exponent = exponent_to_one(most);
    if exponent.abs() <= T::MOST_EXPONENT / 6 { 0 } else { exponent }
}

/// The exponent of the power of two that brings a magnitude between 1 and 2; 0 for 0 and what is not finite.
fn exponent_to_one<T: Real>(most: T) -> i32 {
    if most == T::default() || !most.finite() {
        return 0;
    }
    let exponent = most.wide().log2().floor() as i32;
    (-exponent).clamp(-T::MOST_EXPONENT, T::MOST_EXPONENT)
}

/// 2ᵏ, for a k of at most [`Real::MOST_EXPONENT`].
pub(super) fn power_of_two<T: Real>(exponent: i32) -> T {
    T::of(2f64.powi(exponent))
}

impl<'a, T: Real> Scaled<'a, T> {
    pub(super) fn new(a: ArrayView2<'a, T>) -> Scaled<'a, T> {
        let most = a.as_slice().map_or_else(T::default, |all| dense::run(Greatest(all)));
        Scaled::by(a, exponent_to_one(most))
    }

    /// The scaled form of a symmetric matrix of which one triangle is read.
    pub(super) fn of_triangle(a: ArrayView2<'a, T>, upper: bool) -> Scaled<'a, T> {
        let most = triangle(&a, upper)
            .filter_map(|row| row.to_slice().map(loops::greatest))
            .fold(T::default(), |most, x| if x > most { x } else { most });
        Scaled::by(a, exponent_to_one(most))
    }

    fn by(a: ArrayView2<'a, T>, exponent: i32) -> Scaled<'a, T> {
        let elements = match a.to_slice() {
            Some(elements) => Cow::Borrowed(elements),
            None => Cow::Owned(a.iter().copied().collect()),
        };
        let mut scaled = Scaled { elements, size: a.dim(), exponent };
        if exponent != 0 {
            let factor = scaled.factor();
            loops::scale(scaled.elements.to_mut(), factor);
        }
        scaled
    }

    /// The scaled matrix.
    pub(super) fn view(&self) -> ArrayView2<'_, T> {
        // The number of elements is that of the matrix.
        ArrayView2::from_shape(self.size, &self.elements).unwrap_or_else(|_| ArrayView2::from(&[[]; 0]))
    }

    /// The factor that the matrix was multiplied by.
    pub(super) fn factor(&self) -> T {
        power_of_two(self.exponent)
    }

    /// The exponent of [`Scaled::factor`].
    pub(super) fn exponent(&self) -> i32 {
        self.exponent
    }

    /// Scales results that are proportional to the matrix back to the given one.
    pub(super) fn restore(&self, results: &mut [T]) {
        if self.exponent != 0 {
            loops::scale(results, power_of_two(-self.exponent));
        }
    }
}

/// A number as a mantissa in [½, 1) and an exponent of 2, so that products neither overflow nor underflow.
/// 0, infinities and NaN are stored in the mantissa.
#[derive(Clone, Copy)]
pub(super) struct Product {
    mantissa: f64,
    exponent: i64,
}

impl Product {
    pub(super) fn of<T: Real>(x: T) -> Product {
        Product { mantissa: x.wide(), exponent: 0 }.normal()
    }

    fn normal(self) -> Product {
        let Product { mantissa, exponent } = self;
        if mantissa == 0.0 || !mantissa.is_finite() {
            return self;
        }
        // A subnormal number is scaled to a normal one first.
        let is_small = mantissa.abs() < f64::MIN_POSITIVE;
        let bits = if is_small { mantissa * 2f64.powi(54) } else { mantissa }.to_bits();
        let own = ((bits >> 52) & 0x7ff) as i64 - if is_small { 1022 + 54 } else { 1022 };
        let mantissa = f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52);
        Product { mantissa, exponent: exponent + own }
    }

    pub(super) fn and(self, other: Product) -> Product {
        let mantissa = self.mantissa * other.mantissa;
        Product { mantissa, exponent: self.exponent + other.exponent }.normal()
    }

    pub(super) fn times<T: Real>(self, x: T) -> Product {
        self.and(Product::of(x))
    }

    /// Multiplied by a power of two.
    pub(super) fn raised(self, by: impl Into<i64>) -> Product {
        Product { exponent: self.exponent + by.into(), ..self }
    }

    /// The exponent; none for 0.
    pub(super) fn exponent(&self) -> Option<i64> {
        (self.mantissa != 0.0 && self.mantissa.is_finite()).then_some(self.exponent)
    }

    pub(super) fn value<T: Real>(self) -> T {
        // In two steps, of which the first stays in the range of normal numbers.
        let all = self.exponent.clamp(-2000, 2000) as i32;
        let first = all.clamp(-1000, 1000);
        T::of(self.mantissa * 2f64.powi(first) * 2f64.powi(all - first))
    }
}
