//! Stochastic gradient descent, update for update as PyTorch computes it.

use tensor_core::{Error, Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{descent, not_negative},
};

/// The settings of [`Sgd`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them, since they may change between steps: a rate,
/// momentum or decay that is negative, NaN or infinite is an error there, and so is Nesterov momentum without
/// momentum or with dampening.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdConfig {
    /// The learning rate, 0.001 by default.
    pub lr: f64,
    /// μ: the momentum factor. 0 by default: no momentum.
    pub momentum: f64,
    /// τ: the dampening; the momentum takes in (1 − τ)·g. 0 by default.
    pub dampening: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// Nesterov momentum. Off by default.
    pub nesterov: bool,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for SgdConfig {
    fn default() -> SgdConfig {
        SgdConfig {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    }
}

/// Stochastic gradient descent with momentum. `torch.optim.SGD`.
///
/// For a parameter θ with gradient g:
///
/// ```text
/// g ← −g                                if maximize
/// g ← g + λ·θ                           if weight_decay λ is not 0
/// b ← μ·b + (1 − τ)·g, at first b ← g   if momentum μ is not 0
/// g ← g + μ·b if nesterov, else b       if momentum μ is not 0
/// θ ← θ − lr·g
/// ```
pub type Sgd = ParamGroups<SgdConfig>;

/// The state that [`Sgd`] keeps for a parameter.
#[derive(Clone, Debug, Default)]
pub struct SgdState {
    momentum_buffer: Option<Tensor>,
}

impl ParamState for SgdState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![("momentum_buffer", Part::OptionalTensor(&mut self.momentum_buffer))]
    }
}

impl UpdateRule for SgdConfig {
    const NAME: &'static str = "Sgd";
    type State = SgdState;

    fn check(&self) -> Result<()> {
        let SgdConfig { lr, momentum, dampening, weight_decay, nesterov, .. } = *self;
        not_negative(Self::NAME, [("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)])?;
        if !dampening.is_finite() {
            return Err(Error::invalid(Self::NAME, format!("dampening {dampening}: give a finite number")));
        }
        if nesterov && (momentum == 0.0 || dampening != 0.0) {
            let message = format!(
                "nesterov with momentum {momentum} and dampening {dampening}: it needs a momentum above 0 and a \
                 dampening of 0"
            );
            return Err(Error::invalid(Self::NAME, message));
        }
        Ok(())
    }

    crate::settings!(lr, momentum, dampening, weight_decay, nesterov, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut SgdState) -> Result<Tensor> {
        let mut step = descent(grad, self.maximize, parameter, self.weight_decay)?;
        if self.momentum != 0.0 {
            let buffer = match &state.momentum_buffer {
                None => step.detach(),
                Some(last) => last.mul_scalar(self.momentum).add(&step.mul_scalar(1.0 - self.dampening))?,
            };
            step = if self.nesterov { step.add(&buffer.mul_scalar(self.momentum))? } else { buffer.clone() };
            state.momentum_buffer = Some(buffer);
        }
        parameter.sub(&step.mul_scalar(self.lr))
    }
}
