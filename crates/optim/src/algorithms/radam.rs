//! RAdam, update for update as PyTorch computes it.

use tensor_core::{Result, Tensor};

use crate::{
    ParamGroups, UpdateRule,
    rules::{Moments, betas, decayed, not_negative},
};

/// The settings of [`RAdam`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a rate, ε or decay that is negative, NaN or
/// infinite is an error there, and so is a β outside [0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RAdamConfig {
    /// The learning rate, 0.001 by default.
    pub lr: f64,
    /// β₁ and β₂: the decay rates of the running means of the gradient and its square. (0.9, 0.999) by
    /// default.
    pub betas: (f64, f64),
    /// ε: added to the denominator for numerical stability. 10⁻⁸ by default.
    pub eps: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// Decoupled weight decay, as in [`AdamW`](crate::AdamW): multiplies the parameter by 1 − lr·λ, and adds
    /// nothing to the gradient. Off by default.
    pub decoupled_weight_decay: bool,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for RAdamConfig {
    fn default() -> RAdamConfig {
        RAdamConfig {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled_weight_decay: false,
            maximize: false,
        }
    }
}

/// RAdam: rectifies the first steps of Adam, when the mean square is still uncertain. `torch.optim.RAdam`.
///
/// For a parameter θ with gradient g at its step t, counted from 1, with m and v initially zero:
///
/// ```text
/// g ← −g                              if maximize
/// g ← g + λ·θ                         if weight_decay λ is not 0; θ ← θ·(1 − lr·λ) if it is decoupled
/// m ← β₁·m + (1 − β₁)·g
/// v ← β₂·v + (1 − β₂)·g²
/// ρ∞ = 2 / (1 − β₂) − 1
/// ρ = ρ∞ − 2·t·β₂ᵗ / (1 − β₂ᵗ)
/// r = √((ρ − 4)·(ρ − 2)·ρ∞ / ((ρ∞ − 4)·(ρ∞ − 2)·ρ))
/// θ ← θ − lr / (1 − β₁ᵗ) · m · r·√(1 − β₂ᵗ) / (√v + ε)   if ρ > 5
/// θ ← θ − lr / (1 − β₁ᵗ) · m                             otherwise
/// ```
///
/// Liu and others: On the variance of the adaptive learning rate and beyond (2020).
pub type RAdam = ParamGroups<RAdamConfig>;

impl UpdateRule for RAdamConfig {
    const NAME: &'static str = "RAdam";
    type State = Moments;

    fn check(&self) -> Result<()> {
        let RAdamConfig { lr, eps, weight_decay, .. } = *self;
        not_negative(Self::NAME, [("lr", lr), ("eps", eps), ("weight_decay", weight_decay)])?;
        betas(Self::NAME, self.betas)
    }

    crate::settings!(lr, betas.0, betas.1, eps, weight_decay, decoupled_weight_decay, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut Moments) -> Result<Tensor> {
        let RAdamConfig { lr, betas: (beta1, beta2), eps, weight_decay, .. } = *self;
        let (grad, start) =
            decayed(grad, self.maximize, parameter, lr, weight_decay, self.decoupled_weight_decay)?;
        let (t, mean, square) = state.take(&grad, self.betas)?;
        let correction2 = 1.0 - beta2.powf(t);
        let limit = 2.0 / (1.0 - beta2) - 1.0;
        let rho = limit - 2.0 * t * beta2.powf(t) / correction2;
        let mut step = mean.mul_scalar(lr / (1.0 - beta1.powf(t)));
        if rho > 5.0 {
            let rectified =
                (rho - 4.0) * (rho - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * rho) * correction2;
            step = step.mul_scalar(rectified.sqrt()).div(&square.sqrt().add_scalar(eps))?;
        }
        start.sub(&step)
    }
}
