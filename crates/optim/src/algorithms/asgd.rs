//! Averaged stochastic gradient descent, update for update as PyTorch computes it.

use tensor_core::{Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{descent, lerp, not_negative, or_zeros, shrunk},
};

/// The settings of [`Asgd`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a number that is negative, NaN or infinite is an
/// error there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AsgdConfig {
    /// The learning rate of the first step. 0.01 by default.
    pub lr: f64,
    /// Λ: the decay term of parameters and learning rate. 10⁻⁴ by default.
    pub lambd: f64,
    /// α: the exponent of the learning rate's decay. 0.75 by default.
    pub alpha: f64,
    /// The step at which averaging starts. 10⁶ by default.
    pub t0: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for AsgdConfig {
    fn default() -> AsgdConfig {
        AsgdConfig { lr: 0.01, lambd: 1e-4, alpha: 0.75, t0: 1e6, weight_decay: 0.0, maximize: false }
    }
}

/// Gradient descent with a decaying learning rate, which also averages the parameters from a step on.
/// `torch.optim.ASGD`.
///
/// For a parameter θ with gradient g at its step t, counted from 1, with η = lr and μ = 1 initially:
///
/// ```text
/// g ← −g                              if maximize
/// g ← g + λ·θ                         if weight_decay λ is not 0
/// θ ← θ·(1 − Λ·η) − η·g
/// a ← a + μ·(θ − a)
/// η ← lr / (1 + Λ·lr·t)^α
/// μ ← 1 / max(1, t − t0)
/// ```
///
/// The mean a is `state.0.ax` of the state dict. Polyak, Juditsky: Acceleration of stochastic approximation
/// by averaging (1992).
#[doc(alias = "ASGD")]
pub type Asgd = ParamGroups<AsgdConfig>;

/// The state that [`Asgd`] keeps for a parameter.
#[derive(Clone, Debug)]
pub struct AsgdState {
    step: u64,
    /// The learning rate of the next step; none before the first.
    eta: f64,
    /// The weight of the next value in the mean.
    mu: f64,
    ax: Option<Tensor>,
}

impl Default for AsgdState {
    fn default() -> AsgdState {
        AsgdState { step: 0, eta: 0.0, mu: 1.0, ax: None }
    }
}

impl ParamState for AsgdState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![
            ("step", Part::Count(&mut self.step)),
            ("eta", Part::Float(&mut self.eta)),
            ("mu", Part::Float(&mut self.mu)),
            ("ax", Part::Tensor(&mut self.ax)),
        ]
    }
}

impl UpdateRule for AsgdConfig {
    const NAME: &'static str = "Asgd";
    type State = AsgdState;

    fn check(&self) -> Result<()> {
        let AsgdConfig { lr, lambd, alpha, t0, weight_decay, .. } = *self;
        let others = [("alpha", alpha), ("t0", t0), ("weight_decay", weight_decay)];
        not_negative(Self::NAME, [("lr", lr), ("lambd", lambd)])?;
        not_negative(Self::NAME, others)
    }

    crate::settings!(lr, lambd, alpha, t0, weight_decay, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut AsgdState) -> Result<Tensor> {
        let AsgdConfig { lr, lambd, alpha, t0, weight_decay, maximize } = *self;
        let grad = descent(grad, maximize, parameter, weight_decay)?;
        let eta = if state.step == 0 { lr } else { state.eta };
        state.step = state.step.saturating_add(1);
        let next = shrunk(parameter, eta, lambd).sub(&grad.mul_scalar(eta))?;
        // A separate tensor even where it equals the parameter, because each is overwritten in place.
        state.ax = Some(lerp(&or_zeros(&state.ax, &next), &next, state.mu)?);
        let step = state.step as f64;
        state.eta = lr / (1.0 + lambd * lr * step).powf(alpha);
        state.mu = 1.0 / (step - t0).max(1.0);
        Ok(next)
    }
}
