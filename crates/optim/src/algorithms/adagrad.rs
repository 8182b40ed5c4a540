//! Adagrad, update for update as PyTorch computes it.

use tensor_core::{Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{descent, not_negative},
};

/// The settings of [`Adagrad`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a number that is negative, NaN or infinite is an
/// error there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdagradConfig {
    /// The learning rate, 0.01 by default.
    pub lr: f64,
    /// η: the learning rate of step t, counted from 1, is lr / (1 + (t − 1)·η). 0 by default.
    pub lr_decay: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// The initial value of the sum of squares. 0 by default.
    pub initial_accumulator_value: f64,
    /// ε: added to the denominator for numerical stability. 10⁻¹⁰ by default.
    pub eps: f64,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for AdagradConfig {
    fn default() -> AdagradConfig {
        AdagradConfig {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
        }
    }
}

/// Adagrad: divides the gradient by the square root of the sum of its past squares. `torch.optim.Adagrad`.
///
/// For a parameter θ with gradient g at its step t, counted from 1, where s starts as
/// `initial_accumulator_value`:
///
/// ```text
/// g ← −g                              if maximize
/// g ← g + λ·θ                         if weight_decay λ is not 0
/// s ← s + g²
/// θ ← θ − lr / (1 + (t − 1)·η) · g / (√s + ε)
/// ```
///
/// Duchi, Hazan, Singer: Adaptive subgradient methods for online learning and stochastic optimization (2011).
pub type Adagrad = ParamGroups<AdagradConfig>;

/// The state that [`Adagrad`] keeps for a parameter.
#[derive(Clone, Debug, Default)]
pub struct AdagradState {
    step: u64,
    sum: Option<Tensor>,
}

impl ParamState for AdagradState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![("step", Part::Count(&mut self.step)), ("sum", Part::Tensor(&mut self.sum))]
    }
}

impl UpdateRule for AdagradConfig {
    const NAME: &'static str = "Adagrad";
    type State = AdagradState;

    fn check(&self) -> Result<()> {
        let AdagradConfig { lr, lr_decay, weight_decay, initial_accumulator_value, eps, .. } = *self;
        not_negative(Self::NAME, [("lr", lr), ("lr_decay", lr_decay), ("weight_decay", weight_decay)])?;
        not_negative(Self::NAME, [("initial_accumulator_value", initial_accumulator_value), ("eps", eps)])
    }

    crate::settings!(lr, lr_decay, weight_decay, initial_accumulator_value, eps, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut AdagradState) -> Result<Tensor> {
        let grad = descent(grad, self.maximize, parameter, self.weight_decay)?;
        let rate = self.lr / (1.0 + state.step as f64 * self.lr_decay);
        state.step = state.step.saturating_add(1);
        let sum = state.sum.take().unwrap_or_else(|| grad.full_like(self.initial_accumulator_value));
        let sum = sum.add(&grad.powi(2))?;
        let next = parameter.sub(&grad.mul_scalar(rate).div(&sum.sqrt().add_scalar(self.eps))?)?;
        state.sum = Some(sum);
        Ok(next)
    }
}
