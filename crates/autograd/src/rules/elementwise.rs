//! Gradients of elementwise operations: one table of derivatives. x is the input, y the output, g the
//! gradient of y.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LN_10, PI};

use tensor_core::{BinaryOp, CompareOp, Error, ErrorKind, Formula, Result, Tensor, UnaryOp};

use super::{Gradients, Step};

/// √(2π) and 1 / √(2π).
const ROOT_OF_TURN: f64 = 2.506_628_274_631_000_5;
const FRAC_1_SQRT_2PI: f64 = 0.398_942_280_401_432_7;

pub(super) fn unary(op: UnaryOp, x: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    use UnaryOp as U;
    match op {
        U::Neg => Ok(g.neg()),
        U::Abs => g.mul(&x.sign()),
        U::Exp => g.mul(y),
        // From the input, also below: where a function saturates, its result does not determine the distance
        // to the limit.
        U::Expm1 => g.mul(&x.exp()),
        U::Log => g.div(x),
        U::Log1p => g.div(&(x + 1.0)),
        U::Sqrt => g.div(&(y * 2.0)),
        U::Rsqrt => g.mul(&(y.powi(3) * -0.5)),
        U::Reciprocal => g.mul(&-y.powi(2)),
        U::Sin => g.mul(&x.cos()),
        U::Cos => g.mul(&-x.sin()),
        U::Tan => g.mul(&(y.powi(2) + 1.0)),
        // 1 − tanh² x = 4·σ(2x)·σ(−2x).
        U::Tanh => {
            let twice = x * 2.0;
            g.mul(&(twice.sigmoid().mul(&twice.neg().sigmoid())? * 4.0))
        }
        U::Sigmoid => g.mul(&x.sigmoid().mul(&x.neg().sigmoid())?),
        // A NaN input passes its gradient on, as in PyTorch.
        U::Relu => g.masked_fill(&y.le_scalar(0.0), 0.0),
        // e^(−x²) is a square, whose exponent is exact to the last bit.
        U::Erf => g.mul(&(x.unary(U::Gaussian).powi(2) * FRAC_2_SQRT_PI)),
        U::Ndtr => g.mul(&(x.unary(U::Gaussian) * FRAC_1_SQRT_2PI)),
        U::Gaussian => g.mul(&x.mul(&x.unary(U::Gaussian))?.neg()),
        // Step functions: their derivative is 0 wherever it exists.
        U::Sign | U::Floor | U::Ceil | U::Round | U::Trunc => Ok(g.zeros_like()),
        U::Not | U::IsNan | U::IsInf => Err(Error::new(ErrorKind::Autograd {
            op: "backward",
            message: format!("{} gives no floating-point values, so it has no gradient", op.name()),
        })),
    }
}

pub(super) fn formula(formula: Formula, x: &Tensor, y: &Tensor, g: &Tensor) -> Result<Tensor> {
    use Formula as F;
    // 1 − x², without cancellation near ±1.
    let below_one = || (1.0 - x).mul(&(x + 1.0));
    match formula {
        F::Asin => g.mul(&below_one()?.rsqrt()),
        F::Acos => g.mul(&-below_one()?.rsqrt()),
        F::Atan => g.div(&(x.powi(2) + 1.0)),
        F::Sinh => g.mul(&x.cosh()),
        F::Cosh => g.mul(&x.sinh()),
        // 1 / √(x² + 1); far from 0, where x² may overflow, |t| / √(1 + t²) with t = 1/x.
        F::Asinh => {
            let far = x.abs().gt_scalar(1.0);
            let inverse = x.masked_fill(&far.logical_not(), 1.0)?.reciprocal();
            let near = x.masked_fill(&far, 0.0)?;
            let beyond = inverse.abs().mul(&(inverse.powi(2) + 1.0).rsqrt())?;
            g.mul(&far.where_cond(&beyond, &(near.powi(2) + 1.0).rsqrt())?)
        }
        F::Acosh => g.mul(&(x - 1.0).rsqrt())?.mul(&(x + 1.0).rsqrt()),
        F::Atanh => g.div(&below_one()?),
        F::Exp2 => g.mul(&(y * LN_2)),
        F::Log2 => g.div(&(x * LN_2)),
        F::Log10 => g.div(&(x * LN_10)),
        // (cos πx − sinc x) / x; near 0, where that cancels, −π²·x/3·(1 − (πx)²/10 + (πx)⁴/280).
        F::Sinc => {
            let square = x.powi(2) * (PI * PI);
            let series =
                ((&square * (1.0 / 280.0) - 0.1).mul(&square)? + 1.0).mul(&(x * (PI * PI / -3.0)))?;
            let small = x.abs().lt_scalar(1e-2);
            let nonzero = x.masked_fill(&small, 1.0)?;
            let far = (&nonzero * PI).cos().sub(&nonzero.sinc())?.div(&nonzero)?;
            g.mul(&small.where_cond(&series, &far)?)
        }
        F::Erfc => g.mul(&(x.unary(UnaryOp::Gaussian).powi(2) * -FRAC_2_SQRT_PI)),
        F::Erfinv => g.mul(&(y.powi(2).exp() * FRAC_2_SQRT_PI.recip())),
        F::Lgamma => g.mul(&x.digamma()),
        F::Digamma => g.mul(&x.polygamma(1)),
        F::I0 => g.mul(&x.i1()),
        // I₀ − I₁/x, and ½ at 0.
        F::I1 => {
            let zero = x.eq_scalar(0.0);
            let nonzero = x.masked_fill(&zero, 1.0)?;
            let slope = nonzero.i0().sub(&nonzero.i1().div(&nonzero)?)?;
            g.mul(&slope.masked_fill(&zero, 0.5)?)
        }
        F::I0e => g.mul(&x.i1e().sub(&x.sign().mul(y)?)?),
        F::I1e => {
            let zero = x.eq_scalar(0.0);
            let nonzero = x.masked_fill(&zero, 1.0)?;
            let slope = nonzero.i0e().sub(&y.mul(&x.sign().add(&nonzero.reciprocal())?)?)?;
            g.mul(&slope.masked_fill(&zero, 0.5)?)
        }
        F::Erfcx => g.mul(&x.mul(y)?.mul_scalar(2.0).sub_scalar(FRAC_2_SQRT_PI)),
        // φ(x) / Φ(x), without 0 / 0.
        F::LogNdtr => g.div(&(x * -FRAC_1_SQRT_2).erfcx().mul_scalar(PI.sqrt() * FRAC_1_SQRT_2)),
        F::Ndtri => g.mul(&((y.powi(2) * 0.5).exp() * ROOT_OF_TURN)),
        F::J0 => g.mul(&-x.bessel_j1()),
        // J₀ − J₁/x, and ½ at 0.
        F::J1 => {
            let zero = x.eq_scalar(0.0);
            let nonzero = x.masked_fill(&zero, 1.0)?;
            let slope = nonzero.bessel_j0().sub(&nonzero.bessel_j1().div(&nonzero)?)?;
            g.mul(&slope.masked_fill(&zero, 0.5)?)
        }
        F::Y0 => g.mul(&-x.bessel_y1()),
        F::Y1 => g.mul(&x.bessel_y0().sub(&x.bessel_y1().div(x)?)?),
        F::K0 => g.mul(&-x.modified_bessel_k1()),
        F::K1 => g.mul(&x.modified_bessel_k0().add(&x.modified_bessel_k1().div(x)?)?.neg()),
        F::K0e => g.mul(&y.sub(&x.scaled_modified_bessel_k1())?),
        F::K1e => g.mul(&y.sub(&x.scaled_modified_bessel_k0())?.sub(&y.div(x)?)?),
        F::AiryAi => Err(Error::new(ErrorKind::Autograd {
            op: "backward",
            message: "the derivative of airy_ai is not computed, so it has no gradient".into(),
        })),
        F::Tanhshrink => g.mul(&x.tanh().powi(2)),
        F::Softsign => g.mul(&(x.abs() + 1.0).reciprocal().powi(2)),
        F::Logit => g.div(&x.mul(&(1.0 - x))?),
        F::Polygamma(n) => match n.checked_add(1) {
            Some(next) => g.mul(&x.polygamma(next)),
            None => Err(Error::new(ErrorKind::Autograd {
                op: "backward",
                message: format!("polygamma({n}) is the last that is computed, so it has no gradient"),
            })),
        },
    }
}

pub(super) fn powi(n: i32, x: &Tensor, g: &Tensor) -> Result<Tensor> {
    match n {
        0 => Ok(g.zeros_like()),
        1 => Ok(g.clone()),
        2 => super::times(g, 2.0)?.mul(x),
        _ => {
            // The least exponent minus 1 does not fit its type.
            let lower = n.checked_sub(1).map_or_else(|| x.pow_scalar(f64::from(n) - 1.0), |m| x.powi(m));
            g.mul(&(lower * f64::from(n)))
        }
    }
}

pub(super) fn binary(op: BinaryOp, step: &Step<'_>) -> Gradients {
    use BinaryOp as B;
    let (a, b, y, g) = (&step.inputs[0], &step.inputs[1], step.node, step.gradient);
    // Equal operands share the gradient; the operand that is not selected gets none.
    let winner = |loses: CompareOp| {
        g.div_scalar(2.0)
            .masked_fill(&a.ne(b)?, 0.0)?
            .add(&g.masked_fill(&a.eq(b)?.bitwise_or(&a.compare(loses, b)?)?, 0.0)?)
    };
    let (da, db) = match op {
        B::Add => (step.when(0, || Ok(g.clone()))?, step.when(1, || Ok(g.clone()))?),
        B::Sub => (step.when(0, || Ok(g.clone()))?, step.when(1, || Ok(g.neg()))?),
        B::Mul => (step.when(0, || g.mul(b))?, step.when(1, || g.mul(a))?),
        B::Div => (step.when(0, || g.div(b))?, step.when(1, || g.mul(y)?.div(b).map(|d| d.neg()))?),
        B::FloorDiv => (step.when(0, || Ok(g.zeros_like()))?, step.when(1, || Ok(g.zeros_like()))?),
        B::Remainder => {
            (step.when(0, || Ok(g.clone()))?, step.when(1, || g.mul(&a.floor_divide(b)?).map(|d| d.neg()))?)
        }
        B::Pow => (
            // b·aᵇ⁻¹, and 0 for b = 0 even where a is 0. The power comes first: g·b may overflow.
            step.when(0, || g.mul(&b.mul(&a.pow(&(b - 1.0))?)?)?.masked_fill(&b.eq_scalar(0.0), 0.0))?,
            // aᵇ·ln a, and 0 where a is 0 and b is not negative.
            step.when(1, || {
                let flat = a.eq_scalar(0.0).bitwise_and(&b.ge_scalar(0.0))?;
                g.mul(y)?.mul(&a.log())?.masked_fill(&flat, 0.0)
            })?,
        ),
        B::Maximum => (step.when(0, || winner(CompareOp::Lt))?, step.when(1, || winner(CompareOp::Gt))?),
        B::Minimum => (step.when(0, || winner(CompareOp::Gt))?, step.when(1, || winner(CompareOp::Lt))?),
        // b / (a² + b²) and −a / (a² + b²), computed without overflow of the squares; 0 at the origin, where
        // the angle is undefined.
        B::Atan2 => {
            let length = a.hypot(b)?;
            let origin = length.eq_scalar(0.0);
            let length = length.masked_fill(&origin, 1.0)?;
            (
                step.when(0, || g.mul(&b.div(&length)?)?.div(&length))?,
                step.when(1, || g.mul(&a.div(&length)?)?.div(&length).map(|d| d.neg()))?,
            )
        }
        B::And | B::Or | B::Xor | B::LeftShift | B::RightShift | B::Gcd => {
            return Err(Error::new(ErrorKind::Autograd {
                op: "backward",
                message: format!("{} gives no floating-point values, so it has no gradient", op.name()),
            }));
        }
    };
    Ok(vec![da, db])
}

/// `where`: each operand gets the gradient where it was selected.
pub(super) fn select(step: &Step<'_>) -> Gradients {
    let (condition, g) = (&step.inputs[0], step.gradient);
    let da = step.when(1, || g.masked_fill(&condition.logical_not(), 0.0))?;
    let db = step.when(2, || g.masked_fill(condition, 0.0))?;
    Ok(vec![None, da, db])
}
