//! Adamax, update for update as PyTorch computes it.

use tensor_core::{Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{betas, descent, lerp, not_negative, or_zeros},
};

/// The settings of [`Adamax`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a rate, ε or decay that is negative, NaN or
/// infinite is an error there, and so is a β outside [0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamaxConfig {
    /// The learning rate, 0.002 by default.
    pub lr: f64,
    /// β₁ and β₂: the decay rates of the running mean and of the running maximum of gradients. (0.9, 0.999)
    /// by default.
    pub betas: (f64, f64),
    /// ε: added to the magnitude of each gradient. 10⁻⁸ by default.
    pub eps: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for AdamaxConfig {
    fn default() -> AdamaxConfig {
        AdamaxConfig { lr: 2e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, maximize: false }
    }
}

/// Adam with a decaying maximum of the gradient's magnitude (the ∞-norm) in place of the mean square.
/// `torch.optim.Adamax`.
///
/// For a parameter θ with gradient g at its step t, counted from 1, with m and u initially zero:
///
/// ```text
/// g ← −g                              if maximize
/// g ← g + λ·θ                         if weight_decay λ is not 0
/// m ← β₁·m + (1 − β₁)·g
/// u ← max(β₂·u, |g| + ε)
/// θ ← θ − lr / (1 − β₁ᵗ) · m / u
/// ```
///
/// Kingma, Ba: Adam, a method for stochastic optimization (2015), section 7.
pub type Adamax = ParamGroups<AdamaxConfig>;

/// The state that [`Adamax`] keeps for a parameter.
#[derive(Clone, Debug, Default)]
pub struct AdamaxState {
    step: u64,
    exp_avg: Option<Tensor>,
    exp_inf: Option<Tensor>,
}

impl ParamState for AdamaxState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![
            ("step", Part::Count(&mut self.step)),
            ("exp_avg", Part::Tensor(&mut self.exp_avg)),
            ("exp_inf", Part::Tensor(&mut self.exp_inf)),
        ]
    }
}

impl UpdateRule for AdamaxConfig {
    const NAME: &'static str = "Adamax";
    type State = AdamaxState;

    fn check(&self) -> Result<()> {
        let AdamaxConfig { lr, eps, weight_decay, .. } = *self;
        not_negative(Self::NAME, [("lr", lr), ("eps", eps), ("weight_decay", weight_decay)])?;
        betas(Self::NAME, self.betas)
    }

    crate::settings!(lr, betas.0, betas.1, eps, weight_decay, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut AdamaxState) -> Result<Tensor> {
        let AdamaxConfig { lr, betas: (beta1, beta2), eps, weight_decay, maximize } = *self;
        let grad = descent(grad, maximize, parameter, weight_decay)?;
        state.step = state.step.saturating_add(1);
        let mean = lerp(&or_zeros(&state.exp_avg, &grad), &grad, 1.0 - beta1)?;
        let greatest =
            or_zeros(&state.exp_inf, &grad).mul_scalar(beta2).maximum(&grad.abs().add_scalar(eps))?;
        let rate = lr / (1.0 - beta1.powf(state.step as f64));
        let next = parameter.sub(&mean.mul_scalar(rate).div(&greatest)?)?;
        (state.exp_avg, state.exp_inf) = (Some(mean), Some(greatest));
        Ok(next)
    }
}
