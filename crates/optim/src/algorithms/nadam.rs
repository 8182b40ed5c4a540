//! NAdam, update for update as PyTorch computes it.

use tensor_core::{Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{Moments, betas, decayed, not_negative},
};

/// The settings of [`NAdam`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a rate, ε or decay that is negative, NaN or
/// infinite is an error there, and so is a β outside [0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NAdamConfig {
    /// The learning rate, 0.002 by default.
    pub lr: f64,
    /// β₁ and β₂: the decay rates of the running means of the gradient and its square. (0.9, 0.999) by
    /// default.
    pub betas: (f64, f64),
    /// ε: added to the denominator for numerical stability. 10⁻⁸ by default.
    pub eps: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// ψ: the rate at which the momentum approaches β₁. 0.004 by default.
    pub momentum_decay: f64,
    /// Decoupled weight decay, as in [`AdamW`](crate::AdamW): multiplies the parameter by 1 − lr·λ, and adds
    /// nothing to the gradient. Off by default.
    pub decoupled_weight_decay: bool,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for NAdamConfig {
    fn default() -> NAdamConfig {
        NAdamConfig {
            lr: 2e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            momentum_decay: 4e-3,
            decoupled_weight_decay: false,
            maximize: false,
        }
    }
}

/// Adam with Nesterov's momentum. `torch.optim.NAdam`.
///
/// For a parameter θ with gradient g at its step t, counted from 1, with m and v initially zero:
///
/// ```text
/// g ← −g                              if maximize
/// g ← g + λ·θ                         if weight_decay λ is not 0; θ ← θ·(1 − lr·λ) if it is decoupled
/// μₜ = β₁·(1 − 0.96^(t·ψ) / 2)
/// m ← β₁·m + (1 − β₁)·g
/// v ← β₂·v + (1 − β₂)·g²
/// d = √(v / (1 − β₂ᵗ)) + ε
/// θ ← θ − lr·(1 − μₜ) / (1 − μ₁⋯μₜ) · g / d − lr·μₜ₊₁ / (1 − μ₁⋯μₜ₊₁) · m / d
/// ```
///
/// Dozat: Incorporating Nesterov momentum into Adam (2016).
pub type NAdam = ParamGroups<NAdamConfig>;

/// The state that [`NAdam`] keeps for a parameter.
#[derive(Clone, Debug)]
pub struct NAdamState {
    moments: Moments,
    /// μ₁⋯μₜ.
    mu_product: f64,
}

impl Default for NAdamState {
    fn default() -> NAdamState {
        NAdamState { moments: Moments::default(), mu_product: 1.0 }
    }
}

impl ParamState for NAdamState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        let mut parts = self.moments.parts();
        parts.push(("mu_product", Part::Float(&mut self.mu_product)));
        parts
    }
}

impl UpdateRule for NAdamConfig {
    const NAME: &'static str = "NAdam";
    type State = NAdamState;

    fn check(&self) -> Result<()> {
        let NAdamConfig { lr, eps, weight_decay, momentum_decay, .. } = *self;
        let decays = [("weight_decay", weight_decay), ("momentum_decay", momentum_decay)];
        not_negative(Self::NAME, [("lr", lr), ("eps", eps)])?;
        not_negative(Self::NAME, decays)?;
        betas(Self::NAME, self.betas)
    }

    crate::settings!(
        lr,
        betas.0,
        betas.1,
        eps,
        weight_decay,
        momentum_decay,
        decoupled_weight_decay,
        maximize
    );

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut NAdamState) -> Result<Tensor> {
        let NAdamConfig { lr, betas: (beta1, beta2), eps, weight_decay, momentum_decay, .. } = *self;
        let (grad, start) =
            decayed(grad, self.maximize, parameter, lr, weight_decay, self.decoupled_weight_decay)?;
        let (t, mean, square) = state.moments.take(&grad, self.betas)?;
        let momentum = |t: f64| beta1 * (1.0 - 0.5 * 0.96f64.powf(t * momentum_decay));
        let (mu, mu_next) = (momentum(t), momentum(t + 1.0));
        state.mu_product *= mu;
        let denominator = square.div_scalar(1.0 - beta2.powf(t)).sqrt().add_scalar(eps);
        let by_grad = grad.mul_scalar(lr * (1.0 - mu) / (1.0 - state.mu_product));
        let by_mean = mean.mul_scalar(lr * mu_next / (1.0 - state.mu_product * mu_next));
        start.sub(&by_grad.div(&denominator)?)?.sub(&by_mean.div(&denominator)?)
    }
}
