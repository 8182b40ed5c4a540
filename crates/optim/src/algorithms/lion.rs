//! Lion, as its authors define it.

use tensor_core::{Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{betas, descent, lerp, not_negative, or_zeros, shrunk},
};

/// The settings of [`Lion`], with the defaults of its authors.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a rate or decay that is negative, NaN or infinite
/// is an error there, and so is a β outside [0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionConfig {
    /// The learning rate, 0.0001 by default: three to ten times smaller than for [`AdamW`](crate::AdamW).
    pub lr: f64,
    /// β₁: the weight of the momentum in a step; β₂: the decay rate of the momentum. (0.9, 0.99) by default.
    pub betas: (f64, f64),
    /// λ: the decoupled weight decay; each step multiplies the parameter by 1 − lr·λ. 0 by default; use
    /// three to ten times the value for [`AdamW`](crate::AdamW).
    pub weight_decay: f64,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for LionConfig {
    fn default() -> LionConfig {
        LionConfig { lr: 1e-4, betas: (0.9, 0.99), weight_decay: 0.0, maximize: false }
    }
}

/// Steps by the sign of the momentum: every element moves by the learning rate. PyTorch does not have it.
///
/// For a parameter θ with gradient g, with m initially zero:
///
/// ```text
/// g ← −g                              if maximize
/// θ ← θ·(1 − lr·λ)                    if weight_decay λ is not 0
/// θ ← θ − lr·sign(β₁·m + (1 − β₁)·g)
/// m ← β₂·m + (1 − β₂)·g
/// ```
///
/// Chen and others: Symbolic discovery of optimization algorithms (2023).
pub type Lion = ParamGroups<LionConfig>;

/// The state that [`Lion`] keeps for a parameter.
#[derive(Clone, Debug, Default)]
pub struct LionState {
    exp_avg: Option<Tensor>,
}

impl ParamState for LionState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![("exp_avg", Part::Tensor(&mut self.exp_avg))]
    }
}

impl UpdateRule for LionConfig {
    const NAME: &'static str = "Lion";
    type State = LionState;

    fn check(&self) -> Result<()> {
        not_negative(Self::NAME, [("lr", self.lr), ("weight_decay", self.weight_decay)])?;
        betas(Self::NAME, self.betas)
    }

    crate::settings!(lr, betas.0, betas.1, weight_decay, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut LionState) -> Result<Tensor> {
        let LionConfig { lr, betas: (beta1, beta2), weight_decay, maximize } = *self;
        let grad = descent(grad, maximize, parameter, 0.0)?;
        let last = or_zeros(&state.exp_avg, &grad);
        let step = lerp(&last, &grad, 1.0 - beta1)?.sign();
        state.exp_avg = Some(lerp(&last, &grad, 1.0 - beta2)?);
        shrunk(parameter, lr, weight_decay).sub(&step.mul_scalar(lr))
    }
}
