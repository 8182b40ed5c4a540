//! The distribution function of standard normal numbers and its inverse, with the digits of small shares in
//! both tails.

#![allow(clippy::excessive_precision)] // coefficients as they are published

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI, SQRT_2};

use autograd::{Function, apply};
use tensor_core::{DType, Result, Tensor};

/// Φ(z) of f32 or f64.
#[track_caller]
pub(crate) fn share_below(z: &Tensor) -> Result<Tensor> {
    apply(ShareBelow, &[z])
}

/// The z with Φ(z) = q, of f32 or f64: −∞ and ∞ at 0 and 1, and NaN beyond.
#[track_caller]
pub(crate) fn quantile(q: &Tensor) -> Result<Tensor> {
    apply(Quantile, &[q])
}

#[derive(Debug)]
struct ShareBelow;

impl Function for ShareBelow {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "NormalCdf"
    }

    /// ½·erfc(−z/√2), where what rounding takes from −z/√2 is made up for: in a tail it would be z² times as
    /// much of the result.
    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        // Beyond, all dtypes have 0 or 1.
        let z = inputs[0].clamp(-40.0, 40.0).neg();
        let is_f64 = z.dtype() == DType::F64;
        let round = |x: f64| if is_f64 { x } else { f64::from(x as f32) };
        let high = round(FRAC_1_SQRT_2);
        // 1/√2 beyond f64.
        let low = if is_f64 { -4.833_646_656_726_457e-17 } else { FRAC_1_SQRT_2 - high };
        let split = if is_f64 { 134_217_729.0 } else { 4097.0 };
        let halves = |x: f64| {
            let wide = round(x * split);
            let first = round(wide - round(wide - x));
            (first, x - first)
        };
        let (high_first, high_rest) = halves(high);
        let x = z.mul_scalar(high);
        // Dekker's product: z·high − x, of factors in two halves.
        let wide = z.mul_scalar(split);
        let first = wide.sub(&wide.sub(&z)?)?;
        let rest = z.sub(&first)?;
        let lost = first
            .mul_scalar(high_first)
            .sub(&x)?
            .add(&first.mul_scalar(high_rest))?
            .add(&rest.mul_scalar(high_first))?
            .add(&rest.mul_scalar(high_rest))?
            .add(&z.mul_scalar(low))?;
        let slope = x.powi(2).neg().exp().mul_scalar(FRAC_2_SQRT_PI);
        Ok(x.erfc().sub(&slope.mul(&lost)?)?.mul_scalar(0.5))
    }

    /// The density.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let density = inputs[0].powi(2).mul_scalar(-0.5).exp().mul_scalar(1.0 / (2.0 * PI).sqrt());
        Ok(vec![Some(density.mul(g)?)])
    }
}

#[derive(Debug)]
struct Quantile;

/// c₀ + c₁·x + c₂·x² + …
#[track_caller]
fn polynomial(x: &Tensor, coefficients: &[f64; 8]) -> Result<Tensor> {
    let [first @ .., last] = coefficients;
    let start = x.full_like(*last);
    first.iter().rev().try_fold(start, |sum, &c| Ok(sum.mul(x)?.add_scalar(c)))
}

/// The rational functions of M. J. Wichura (Applied Statistics algorithm 241, 1988) for the tails, by
/// √(−ln q) less 1.6 and less 5.
const NEAR: [[f64; 8]; 2] = [
    [
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ],
    [
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ],
];
const FAR: [[f64; 8]; 2] = [
    [
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ],
    [
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ],
];

/// The share of a tail from which the inverse of the error function has the digits.
const TAIL: f64 = 0.075;

impl Function for Quantile {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "NormalIcdf"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let q = inputs[0];
        let below = q.lt_scalar(0.5);
        // The nearer tail, exactly.
        let share = below.where_cond(q, &q.neg().add_scalar(1.0))?;
        let depth = share.log().neg().sqrt();
        let ratio =
            |x: &Tensor, [over, under]: &[[f64; 8]; 2]| polynomial(x, over)?.div(&polynomial(x, under)?);
        let (near, far) = (ratio(&depth.sub_scalar(1.6), &NEAR)?, ratio(&depth.sub_scalar(5.0), &FAR)?);
        let tail = depth.gt_scalar(5.0).where_cond(&far, &near)?;
        let tail = share.eq_scalar(0.0).where_cond(&tail.full_like(f64::INFINITY), &tail)?;
        let tail = below.where_cond(&tail.neg(), &tail)?;
        let middle = q.sub_scalar(0.5).mul_scalar(2.0).erfinv().mul_scalar(SQRT_2);
        share.ge_scalar(TAIL).where_cond(&middle, &tail)
    }

    /// One over the density.
    #[track_caller]
    fn backward(&self, _: &[Tensor], z: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(z.powi(2).mul_scalar(0.5).exp().mul_scalar((2.0 * PI).sqrt()).mul(g)?)])
    }
}
