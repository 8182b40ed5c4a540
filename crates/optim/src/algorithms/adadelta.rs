//! Adadelta, update for update as PyTorch computes it.

use tensor_core::{Error, Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{descent, mean_square, not_negative, or_zeros},
};

/// The settings of [`Adadelta`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a number that is negative, NaN or infinite is an
/// error there, and so is a ρ above 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdadeltaConfig {
    /// The learning rate, 1 by default.
    pub lr: f64,
    /// ρ: the decay rate of the running mean squares. 0.9 by default.
    pub rho: f64,
    /// ε: added under both square roots. 10⁻⁶ by default.
    pub eps: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for AdadeltaConfig {
    fn default() -> AdadeltaConfig {
        AdadeltaConfig { lr: 1.0, rho: 0.9, eps: 1e-6, weight_decay: 0.0, maximize: false }
    }
}

/// Adadelta: the step is the gradient times the root mean square of past steps over that of past gradients.
/// `torch.optim.Adadelta`.
///
/// For a parameter θ with gradient g, with v and u initially zero:
///
/// ```text
/// g ← −g                              if maximize
/// g ← g + λ·θ                         if weight_decay λ is not 0
/// v ← ρ·v + (1 − ρ)·g²
/// δ = √(u + ε) / √(v + ε) · g
/// u ← ρ·u + (1 − ρ)·δ²
/// θ ← θ − lr·δ
/// ```
///
/// Zeiler: Adadelta, an adaptive learning rate method (2012).
pub type Adadelta = ParamGroups<AdadeltaConfig>;

/// The state that [`Adadelta`] keeps for a parameter.
#[derive(Clone, Debug, Default)]
pub struct AdadeltaState {
    step: u64,
    square_avg: Option<Tensor>,
    acc_delta: Option<Tensor>,
}

impl ParamState for AdadeltaState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![
            ("step", Part::Count(&mut self.step)),
            ("square_avg", Part::Tensor(&mut self.square_avg)),
            ("acc_delta", Part::Tensor(&mut self.acc_delta)),
        ]
    }
}

impl UpdateRule for AdadeltaConfig {
    const NAME: &'static str = "Adadelta";
    type State = AdadeltaState;

    fn check(&self) -> Result<()> {
        let AdadeltaConfig { lr, rho, eps, weight_decay, .. } = *self;
        not_negative(Self::NAME, [("lr", lr), ("rho", rho), ("eps", eps), ("weight_decay", weight_decay)])?;
        if rho > 1.0 {
            return Err(Error::invalid(Self::NAME, format!("rho {rho}: give a number from 0 to 1")));
        }
        Ok(())
    }

    crate::settings!(lr, rho, eps, weight_decay, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut AdadeltaState) -> Result<Tensor> {
        let grad = descent(grad, self.maximize, parameter, self.weight_decay)?;
        state.step = state.step.saturating_add(1);
        let square = mean_square(&state.square_avg, &grad, self.rho)?;
        let root = |of: &Tensor| of.add_scalar(self.eps).sqrt();
        let delta = root(&or_zeros(&state.acc_delta, &grad)).div(&root(&square))?.mul(&grad)?;
        state.acc_delta = Some(mean_square(&state.acc_delta, &delta, self.rho)?);
        state.square_avg = Some(square);
        parameter.sub(&delta.mul_scalar(self.lr))
    }
}
