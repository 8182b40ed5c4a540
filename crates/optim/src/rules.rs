//! Helpers that several updates share: checks of settings, weight decay, running means.

use tensor_core::{Error, Result, Tensor, caller_line};

use crate::{ParamState, Part};

/// Checks that each value is finite and not negative.
#[track_caller]
pub(crate) fn not_negative<const N: usize>(op: &'static str, values: [(&str, f64); N]) -> Result<()> {
    for (name, value) in values {
        if !(value.is_finite() && value >= 0.0) {
            return Err(Error::invalid(
                op,
                format!("{name} {value}: give a finite number that is not negative"),
            ));
        }
    }
    Ok(())
}

/// Checks that both are in [0, 1).
#[track_caller]
pub(crate) fn betas(op: &'static str, betas: (f64, f64)) -> Result<()> {
    for (name, value) in [("betas.0", betas.0), ("betas.1", betas.1)] {
        if !(0.0..1.0).contains(&value) {
            let message = format!("{name} {value}: give a number from 0 on and below 1");
            return Err(Error::invalid(op, message));
        }
    }
    Ok(())
}

/// The gradient to descend: negated if `maximize` is set, plus the L2 penalty λ·θ.
pub(crate) fn descent(grad: &Tensor, maximize: bool, parameter: &Tensor, decay: f64) -> Result<Tensor> {
    let grad = if maximize { grad.neg() } else { grad.clone() };
    if decay == 0.0 { Ok(grad) } else { grad.add(&parameter.mul_scalar(decay)) }
}

/// The gradient and the parameter after weight decay: decoupled decay multiplies the parameter by 1 − lr·λ
/// and leaves the gradient alone; otherwise λ·θ is added to the gradient.
pub(crate) fn decayed(
    grad: &Tensor,
    maximize: bool,
    parameter: &Tensor,
    lr: f64,
    decay: f64,
    decoupled: bool,
) -> Result<(Tensor, Tensor)> {
    if decoupled {
        Ok((descent(grad, maximize, parameter, 0.0)?, shrunk(parameter, lr, decay)))
    } else {
        Ok((descent(grad, maximize, parameter, decay)?, parameter.clone()))
    }
}

/// θ·(1 − lr·λ).
pub(crate) fn shrunk(parameter: &Tensor, lr: f64, decay: f64) -> Tensor {
    if decay == 0.0 { parameter.clone() } else { parameter.mul_scalar(1.0 - lr * decay) }
}

/// The stored tensor, or zeros before the first step.
pub(crate) fn or_zeros(kept: &Option<Tensor>, like: &Tensor) -> Tensor {
    kept.clone().unwrap_or_else(|| like.zeros_like())
}

/// a + w·(b − a), computed from the nearer end: `torch.lerp`.
pub(crate) fn lerp(from: &Tensor, to: &Tensor, weight: f64) -> Result<Tensor> {
    let gap = to.sub(from)?;
    match weight < 0.5 {
        true => from.add(&gap.mul_scalar(weight)),
        false => to.sub(&gap.mul_scalar(1.0 - weight)),
    }
}

/// β·v + (1 − β)·g².
pub(crate) fn mean_square(kept: &Option<Tensor>, grad: &Tensor, beta: f64) -> Result<Tensor> {
    or_zeros(kept, grad).mul_scalar(beta).add(&grad.powi(2).mul_scalar(1.0 - beta))
}

/// The number of steps and the running means of the gradient and of its square: the state of Adam and its
/// variants.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    step: u64,
    exp_avg: Option<Tensor>,
    exp_avg_sq: Option<Tensor>,
}

impl Moments {
    /// Takes in a gradient: m ← β₁·m + (1 − β₁)·g and v ← β₂·v + (1 − β₂)·g². Returns the step, counted from
    /// 1, m and v.
    #[track_caller]
    pub(crate) fn take(
        &mut self,
        grad: &Tensor,
        (beta1, beta2): (f64, f64),
    ) -> Result<(f64, Tensor, Tensor)> {
        let _line = caller_line();
        let mean = lerp(&or_zeros(&self.exp_avg, grad), grad, 1.0 - beta1)?;
        let square = mean_square(&self.exp_avg_sq, grad, beta2)?;
        self.step = self.step.saturating_add(1);
        (self.exp_avg, self.exp_avg_sq) = (Some(mean.clone()), Some(square.clone()));
        Ok((self.step as f64, mean, square))
    }
}

impl ParamState for Moments {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![
            ("step", Part::Count(&mut self.step)),
            ("exp_avg", Part::Tensor(&mut self.exp_avg)),
            ("exp_avg_sq", Part::Tensor(&mut self.exp_avg_sq)),
        ]
    }
}
