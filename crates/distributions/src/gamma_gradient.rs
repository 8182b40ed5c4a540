//! Gamma draws that gradients flow through: the derivative of a draw in its concentration at a fixed
//! quantile.

use autograd::{Function, apply};
use tensor_core::{Generator, Result, Tensor};

/// Logarithms of gamma draws, one for each element of α, differentiable in α. In logarithms, draws of a
/// small α do not underflow to 0.
#[track_caller]
pub(crate) fn log_draws(concentration: &Tensor, rng: &Generator) -> Result<Tensor> {
    let draws = concentration.log_standard_gamma(rng)?;
    apply(LogGamma { draws }, &[concentration])
}

/// The draws as a differentiable function of α.
#[derive(Debug)]
struct LogGamma {
    draws: Tensor,
}

impl Function for LogGamma {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LogGamma"
    }

    fn forward(&self, _: &[&Tensor]) -> Result<Tensor> {
        Ok(self.draws.clone())
    }

    #[track_caller]
    fn backward(&self, inputs: &[Tensor], draws: &Tensor, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(slope(&inputs[0], draws)?.mul(g)?)])
    }
}

/// The derivative of ln x in α at a fixed quantile, −∂P/∂α / (x·∂P/∂x), where P(α, x) is the gamma
/// distribution function. α and ln x have one shape.
///
/// The formulas and coefficients are those of PyTorch (`torch._standard_gamma_grad`, over x), within 5·10⁻⁴
/// of it: a series for small x, Rice's saddle-point expansion for large α, and between them a fitted
/// fraction.
#[track_caller]
fn slope(alpha: &Tensor, log: &Tensor) -> Result<Tensor> {
    let x = log.exp();
    let small = x.lt_scalar(0.8);
    let large = alpha.gt_scalar(8.0).bitwise_and(&small.logical_not())?;
    let near =
        x.ge(&alpha.mul_scalar(0.9))?.bitwise_and(&x.le(&alpha.mul_scalar(1.1))?)?.bitwise_and(&large)?;
    let far = large.bitwise_and(&near.logical_not())?;
    let rest = small.bitwise_or(&large)?.logical_not();
    // Each formula is computed for all elements, with substitute numbers outside its range, so that the
    // values that are not selected are no NaN.
    let pick =
        |holds: &Tensor, values: &Tensor, otherwise: f64| values.masked_fill(&holds.logical_not(), otherwise);
    let of_small = series(&pick(&small, alpha, 1.0)?, &pick(&small, log, -1.0)?);
    let of_near = centre(&pick(&near, alpha, 10.0)?, &pick(&near, &x, 10.0)?);
    let of_far = saddle(&pick(&far, alpha, 10.0)?, &pick(&far, &x, 5.0)?)?;
    let of_rest = fitted(&pick(&rest, alpha, 1.0)?, &pick(&rest, &x, 1.0)?);
    let moved = near.where_cond(&of_near, &far.where_cond(&of_far, &of_rest)?)?;
    small.where_cond(&of_small, &moved.div(&x)?)
}

/// Taylor's series of P around 0, divided by x, for α and ln x.
fn series(alpha: &Tensor, log: &Tensor) -> Tensor {
    let x = log.exp();
    let mut term = alpha.ones_like();
    let (mut once, mut twice) = (alpha.reciprocal(), alpha.powi(-2));
    for i in 1..=5 {
        term = term * &x * (-1.0 / f64::from(i));
        let below = alpha + f64::from(i);
        once += &term / &below;
        twice += &term / below.powi(2);
    }
    x.exp() * (twice - (log - alpha.digamma()) * once)
}

/// The formula for a large α and x within a tenth of it, divided by α⁴ in two parts that do not overflow.
fn centre(alpha: &Tensor, x: &Tensor) -> Tensor {
    let first = (alpha * (alpha * 12.0 + 1.0) * 24.0 + 1.0) / alpha.powi(2);
    let second = alpha.powi(2) * 1440.0 + x * (53.0 - x * 120.0) * 6.0 - x.powi(2) / alpha * 65.0
        + alpha * (x * 3600.0 + 107.0);
    first * (second / alpha.powi(2)) * (1.0 / 1_244_160.0)
}

/// The saddle-point formula, for a large α and x farther from it.
fn saddle(alpha: &Tensor, x: &Tensor) -> Result<Tensor> {
    let ratio = (x / alpha).log();
    let apart = alpha - x;
    let root = (alpha * 8.0).sqrt();
    let straight = &root / &apart;
    let bent = (&apart.neg() - alpha * &ratio).powf(-1.5);
    let both = apart.gt_scalar(0.0).where_cond(&(&straight - &bent), &(&straight + &bent))?;
    let inner = ratio * both - (2.0 / alpha).sqrt() * (alpha + x) / apart.powi(2);
    let stirling = 1.0 + (1.0 + (alpha * 24.0).reciprocal()) / (alpha * 12.0);
    Ok(stirling * x * inner.neg() / root)
}

/// Coefficients of u⁰, u¹ and u²: of v⁰ to v³ in the numerator, and in the denominator.
const FITTED: [[f64; 8]; 3] = [
    [0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1.0, 0.32668115, 0.10406089, 0.0014179084],
    [
        0.53487893,
        0.1298071,
        0.065735949,
        -0.0015649758,
        0.16639465,
        0.020070113,
        -0.0035938915,
        -0.00058392623,
    ],
    [
        0.040121004,
        -0.0065914022,
        -0.0026286047,
        -0.0013441777,
        0.017050642,
        -0.0021309326,
        0.00085092367,
        -1.5247877e-07,
    ],
];

/// A fitted fraction in u = ln(x/α) and v = ln α.
fn fitted(alpha: &Tensor, x: &Tensor) -> Tensor {
    let (u, v) = ((x / alpha).log(), alpha.log());
    let of_u = |i: usize| (&u * FITTED[2][i] + FITTED[1][i]) * &u + FITTED[0][i];
    let of_v = |i: usize| ((of_u(i + 3) * &v + of_u(i + 2)) * &v + of_u(i + 1)) * &v + of_u(i);
    (of_v(0) / of_v(4)).exp()
}

#[cfg(test)]
mod tests {
    use super::slope;
    use tensor_core::{DType, Result, Tensor};

    /// (α, x, derivative): `torch._standard_gamma_grad(α, x)` in f64, with cases for every formula.
    const KNOWN: [(f64, f64, f64); 13] = [
        (0.05, 1e-12, 5.426635224931092e-10),
        (0.3, 0.2, 1.212037267121426),
        (0.3, 1.5, 3.212833391896362),
        (2.0, 0.5, 0.498024107967495),
        (5.0, 3.0, 0.7918785927616308),
        (5.0, 9.0, 1.36723910864937),
        (20.0, 10.0, 0.6988779184588811),
        (20.0, 20.5, 1.020861154529901),
        (20.0, 35.0, 1.316729730694234),
        (300.0, 290.0, 0.9836942452582513),
        (300.0, 400.0, 1.15136939168507),
        (0.5, 0.79, 1.682710166715339),
        (7.5, 0.81, 0.2750282169676406),
    ];

    #[test]
    fn slopes_are_pytorchs() -> Result<()> {
        let cpu = backend_cpu::cpu();
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-4)] {
            let column = |of: fn(&(f64, f64, f64)) -> f64| {
                Tensor::from_vec(KNOWN.iter().map(of).collect::<Vec<f64>>(), [13], &cpu)?.to_dtype(dtype)
            };
            let (alpha, x) = (column(|k| k.0)?, column(|k| k.1)?);
            let found = slope(&alpha, &x.log())?.mul(&x)?.to_f64_vec()?;
            for ((alpha, x, known), found) in KNOWN.iter().zip(found) {
                assert!(
                    (found / known - 1.0).abs() < tolerance,
                    "{alpha}, {x} in {dtype}: {found} for {known}"
                );
            }
        }
        Ok(())
    }
}
