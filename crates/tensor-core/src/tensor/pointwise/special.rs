//! Special functions: those of the normal distribution, Bessel and Airy functions, the Hurwitz zeta
//! function, and orthogonal polynomials. Names are those of `torch.special`. Integers and bools give the
//! default dtype.

use crate::tensor::{Operand, Tensor};
use crate::{base::error::Result, elements::scalar::Scalar, kernels::formula::Formula};

macro_rules! formulas {
    ($($(#[$doc:meta])* $name:ident = $formula:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor { self.formula($formula) }
        )*}
    };
}

formulas! {
    /// e^(x²)·erfc x, which does not underflow for large x as [`Tensor::erfc`] does.
    /// `torch.special.erfcx`.
    erfcx = Formula::Erfcx;
    /// ln Φ(x), also where [`Tensor::ndtr`] is 0. `torch.special.log_ndtr`.
    log_ndtr = Formula::LogNdtr;
    /// The inverse of [`Tensor::ndtr`]: ∓∞ at 0 and 1, NaN outside [0, 1]. `torch.special.ndtri`.
    ndtri = Formula::Ndtri;
    /// J₀(x), the Bessel function of the first kind of order 0. `torch.special.bessel_j0`.
    bessel_j0 = Formula::J0;
    /// J₁(x), the Bessel function of the first kind of order 1. `torch.special.bessel_j1`.
    bessel_j1 = Formula::J1;
    /// Y₀(x), the Bessel function of the second kind of order 0: −∞ at 0, NaN for negative x.
    /// `torch.special.bessel_y0`.
    bessel_y0 = Formula::Y0;
    /// Y₁(x), the Bessel function of the second kind of order 1: −∞ at 0, NaN for negative x.
    /// `torch.special.bessel_y1`.
    bessel_y1 = Formula::Y1;
    /// K₀(x), the modified Bessel function of the second kind of order 0: ∞ at 0, NaN for negative x.
    /// `torch.special.modified_bessel_k0`.
    modified_bessel_k0 = Formula::K0;
    /// K₁(x), the modified Bessel function of the second kind of order 1: ∞ at 0, NaN for negative x.
    /// `torch.special.modified_bessel_k1`.
    modified_bessel_k1 = Formula::K1;
    /// eˣ·K₀(x), which does not underflow for large x. `torch.special.scaled_modified_bessel_k0`.
    scaled_modified_bessel_k0 = Formula::K0e;
    /// eˣ·K₁(x), which does not underflow for large x. `torch.special.scaled_modified_bessel_k1`.
    scaled_modified_bessel_k1 = Formula::K1e;
    /// Ai(x), the Airy function: the solution of y″ = x·y that vanishes for large x. It has no gradient,
    /// as in PyTorch. `torch.special.airy_ai`.
    airy_ai = Formula::AiryAi;
}

impl Tensor {
    /// Σ over k ≥ 0 of 1/(q + k)ˢ, the Hurwitz zeta function of s (this tensor) and q, broadcast: ∞ at s
    /// = 1 and at q = 0, NaN for s < 1 and for q < 0. Computed by ten terms and the Euler–Maclaurin
    /// formula. `torch.special.zeta`, which also accepts negative q.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn zeta(&self, q: impl Into<Operand>) -> Result<Tensor> {
        self.zeta_by(q.into())
    }

    #[track_caller]
    fn zeta_by(&self, q: Operand) -> Result<Tensor> {
        // The coefficients B₂ₖ / (2k)!.
        const B: [f64; 11] = [
            1.0 / 12.0,
            -1.0 / 720.0,
            1.0 / 30_240.0,
            -1.0 / 1_209_600.0,
            1.0 / 47_900_160.0,
            -691.0 / 1_307_674_368_000.0,
            1.0 / 74_724_249_600.0,
            -3617.0 / 10_670_622_842_880_000.0,
            8.586_062_056_277_845e-15,
            -2.174_868_698_558_062e-16,
            5.509_002_828_360_229e-18,
        ];
        const TERMS: i32 = 10;
        let (s, q, dtype) = self.real_pair("zeta", q)?;
        let defined = s.gt_scalar(1.0).bitwise_and(&q.gt_scalar(0.0))?;
        let held = |x: &Tensor, at: f64| defined.where_cond(x, &x.constant(Scalar::Float(at)));
        let (x, v) = (held(&s, 2.0)?, held(&q, 1.0)?);
        let falls = x.neg();
        let mut sum = v.pow(&falls)?;
        for k in 1..TERMS {
            sum = sum.add(&v.add_scalar(k).pow(&falls)?)?;
        }
        let w = v.add_scalar(TERMS);
        let (last, inverse) = (w.pow(&falls)?, w.reciprocal());
        let rest = w.div(&x.sub_scalar(1.0))?.add_scalar(0.5);
        // The factor s·(s + 1) … (s + 2k)·B₂ₖ / (2k)! / w^(2k + 1).
        let mut rising = x.mul(&inverse)?;
        let mut series = rising.mul_scalar(B[0]);
        for (k, b) in (1i32..).zip(&B[1..]) {
            let next = x.add_scalar(2 * k - 1).mul(&x.add_scalar(2 * k))?.mul(&inverse)?.mul(&inverse)?;
            rising = rising.mul(&next)?;
            series = series.add(&rising.mul_scalar(*b))?;
        }
        // Where the powers underflow to 0, their factors may be infinite.
        let tail = last.mul(&rest.add(&series)?)?.masked_fill(&last.eq_scalar(0.0), 0.0)?;
        let pole = s.eq_scalar(1.0).bitwise_or(&s.gt_scalar(1.0).bitwise_and(&q.eq_scalar(0.0))?)?;
        let value = defined.where_cond(&sum.add(&tail)?, &sum.constant(Scalar::Float(f64::NAN)))?;
        value.masked_fill(&pole, f64::INFINITY)?.to_dtype(dtype)
    }

    /// x · ln(1 + y), broadcast, accurate near 0; 0 where x is 0, unless y is NaN. `torch.special.xlog1py`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn xlog1py(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.xlog1py_by(rhs.into())
    }

    #[track_caller]
    fn xlog1py_by(&self, rhs: Operand) -> Result<Tensor> {
        let (x, y, dtype) = self.real_pair("xlog1py", rhs)?;
        // These arguments would give 0 times an infinity or a NaN.
        let unbounded = y.le_scalar(-1.0).bitwise_or(&y.isinf())?;
        let zero = x.eq_scalar(0.0).bitwise_and(&unbounded)?;
        x.mul(&y.masked_fill(&zero, 0.0)?.log1p())?.to_dtype(dtype)
    }

    /// −x·ln x, an entropy term: 0 at 0, where no gradient flows, and −∞ for negative x.
    /// `torch.special.entr`.
    #[track_caller]
    pub fn entr(&self) -> Tensor {
        let this = self.floating();
        let x = this.cast_unchecked(this.dtype().compute());
        let positive = x.gt_scalar(0.0).choose(&x, &x.constant(1.0.into()));
        let inner = positive.with_same(crate::kernels::operators::BinaryOp::Mul, &positive.log()).neg();
        let below = x.lt_scalar(0.0).choose(&x.constant(f64::NEG_INFINITY.into()), &inner);
        let out = x.isnan().choose(&x, &below);
        out.cast_unchecked(this.dtype())
    }

    /// sin x / x, the spherical Bessel function of order 0: 1 at 0, and 0 at infinity.
    /// `torch.special.spherical_bessel_j0`.
    #[track_caller]
    pub fn spherical_bessel_j0(&self) -> Tensor {
        use crate::kernels::operators::BinaryOp::{Div, Mul};
        let this = self.floating();
        let x = this.cast_unchecked(this.dtype().compute());
        // The series 1 − x²/6 + x⁴/120 …, whose derivatives do not cancel.
        let near = x.abs().lt_scalar(0.5);
        let small = near.choose(&x, &x.constant(0.0.into()));
        let square = small.powi(2);
        const TERMS: u32 = 7;
        let coefficient = |k: u32| {
            let factorial: f64 = (2..=2 * k + 1).map(f64::from).product();
            if k.is_multiple_of(2) { 1.0 / factorial } else { -1.0 / factorial }
        };
        let mut series = square.full_like(coefficient(TERMS));
        for k in (0..TERMS).rev() {
            series = series.with_same(Mul, &square).add_scalar(coefficient(k));
        }
        let infinite = x.isinf();
        let large = near.choose(&x.constant(1.0.into()), &infinite.choose(&x.constant(1.0.into()), &x));
        let ratio = large.sin().with_same(Div, &large);
        let far = infinite.choose(&x.constant(0.0.into()), &ratio);
        near.choose(&series, &far).cast_unchecked(this.dtype())
    }
}

/// pₙ by the recurrence pₖ₊₁ = (a·x + b)·pₖ − c·pₖ₋₁, where a, b, c depend on k, p₀ is 1 and p₁ is given.
#[track_caller]
fn recurrence(
    x: &Tensor,
    n: u32,
    first: impl Fn(&Tensor) -> Tensor,
    step: impl Fn(f64) -> [f64; 3],
) -> Tensor {
    let this = x.floating();
    let x = this.cast_unchecked(this.dtype().compute());
    let (mut before, mut now) = (x.full_like(1.0), first(&x));
    if n == 0 {
        return before.cast_unchecked(this.dtype());
    }
    for k in 1..n {
        let [a, b, c] = step(f64::from(k));
        let rising = x.mul_scalar(a).add_scalar(b).with_same(crate::kernels::operators::BinaryOp::Mul, &now);
        let next = rising.with_same(crate::kernels::operators::BinaryOp::Sub, &before.mul_scalar(c));
        (before, now) = (now, next);
    }
    now.cast_unchecked(this.dtype())
}

macro_rules! polynomials {
    ($($(#[$doc:meta])* $name:ident = ($a:literal, $b:literal), $step:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// Computed by its recurrence, in n steps.
            #[track_caller]
            pub fn $name(&self, n: u32) -> Tensor {
                recurrence(self, n, |x| x.mul_scalar($a).add_scalar($b), $step)
            }
        )*}
    };
}

polynomials! {
    /// Tₙ(x), the Chebyshev polynomial of the first kind: cos(n·arccos x) within ±1.
    /// `torch.special.chebyshev_polynomial_t`.
    chebyshev_polynomial_t = (1.0, 0.0), |_| [2.0, 0.0, 1.0];
    /// Uₙ(x), the Chebyshev polynomial of the second kind. `torch.special.chebyshev_polynomial_u`.
    chebyshev_polynomial_u = (2.0, 0.0), |_| [2.0, 0.0, 1.0];
    /// Vₙ(x), the Chebyshev polynomial of the third kind. `torch.special.chebyshev_polynomial_v`.
    chebyshev_polynomial_v = (2.0, -1.0), |_| [2.0, 0.0, 1.0];
    /// Wₙ(x), the Chebyshev polynomial of the fourth kind. `torch.special.chebyshev_polynomial_w`.
    chebyshev_polynomial_w = (2.0, 1.0), |_| [2.0, 0.0, 1.0];
    /// Tₙ(2x − 1), for x from 0 to 1. `torch.special.shifted_chebyshev_polynomial_t`.
    shifted_chebyshev_polynomial_t = (2.0, -1.0), |_| [4.0, -2.0, 1.0];
    /// Uₙ(2x − 1), for x from 0 to 1. `torch.special.shifted_chebyshev_polynomial_u`.
    shifted_chebyshev_polynomial_u = (4.0, -2.0), |_| [4.0, -2.0, 1.0];
    /// Vₙ(2x − 1), for x from 0 to 1. `torch.special.shifted_chebyshev_polynomial_v`.
    shifted_chebyshev_polynomial_v = (4.0, -3.0), |_| [4.0, -2.0, 1.0];
    /// Wₙ(2x − 1), for x from 0 to 1. `torch.special.shifted_chebyshev_polynomial_w`.
    shifted_chebyshev_polynomial_w = (4.0, -1.0), |_| [4.0, -2.0, 1.0];
    /// Hₙ(x), the physicist's Hermite polynomial. `torch.special.hermite_polynomial_h`.
    hermite_polynomial_h = (2.0, 0.0), |k| [2.0, 0.0, 2.0 * k];
    /// Heₙ(x), the probabilist's Hermite polynomial. `torch.special.hermite_polynomial_he`.
    hermite_polynomial_he = (1.0, 0.0), |k| [1.0, 0.0, k];
    /// Lₙ(x), the Laguerre polynomial. `torch.special.laguerre_polynomial_l`.
    laguerre_polynomial_l = (-1.0, 1.0), |k| [-1.0 / (k + 1.0), (2.0 * k + 1.0) / (k + 1.0), k / (k + 1.0)];
    /// Pₙ(x), the Legendre polynomial. `torch.special.legendre_polynomial_p`.
    legendre_polynomial_p = (1.0, 0.0), |k| [(2.0 * k + 1.0) / (k + 1.0), 0.0, k / (k + 1.0)];
}
