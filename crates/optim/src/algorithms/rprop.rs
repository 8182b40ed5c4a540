//! Resilient backpropagation, update for update as PyTorch computes it.

use tensor_core::{Error, Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{descent, not_negative, or_zeros},
};

/// The settings of [`Rprop`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a number that is negative, NaN or infinite is an
/// error there, and so are η₋ ≥ 1, η₊ ≤ 1, and step sizes out of order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RpropConfig {
    /// The initial step size of each element. 0.01 by default.
    pub lr: f64,
    /// η₋ and η₊: the factors of a step size after the gradient's sign has changed, and after it has not.
    /// (0.5, 1.2) by default.
    pub etas: (f64, f64),
    /// The least and the greatest step size. (10⁻⁶, 50) by default.
    pub step_sizes: (f64, f64),
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for RpropConfig {
    fn default() -> RpropConfig {
        RpropConfig { lr: 0.01, etas: (0.5, 1.2), step_sizes: (1e-6, 50.0), maximize: false }
    }
}

/// Steps against the gradient's sign, with a step size for each element that grows while the sign stays the
/// same. It is for full-batch gradients. `torch.optim.Rprop`.
///
/// For each element θ with gradient g, with the last gradient p = 0 and the step size Δ = lr initially:
///
/// ```text
/// g ← −g                    if maximize
/// Δ ← min(η₊·Δ, Δmax)       if g·p > 0
/// Δ ← max(η₋·Δ, Δmin), g ← 0   if g·p < 0
/// θ ← θ − Δ·sign(g)
/// p ← g
/// ```
///
/// Riedmiller, Braun: A direct adaptive method for faster backpropagation learning (1993).
pub type Rprop = ParamGroups<RpropConfig>;

/// The state that [`Rprop`] keeps for a parameter.
#[derive(Clone, Debug, Default)]
pub struct RpropState {
    step: u64,
    prev: Option<Tensor>,
    step_size: Option<Tensor>,
}

impl ParamState for RpropState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![
            ("step", Part::Count(&mut self.step)),
            ("prev", Part::Tensor(&mut self.prev)),
            ("step_size", Part::Tensor(&mut self.step_size)),
        ]
    }
}

impl UpdateRule for RpropConfig {
    const NAME: &'static str = "Rprop";
    type State = RpropState;

    fn check(&self) -> Result<()> {
        let RpropConfig { lr, etas: (minus, plus), step_sizes: (least, greatest), .. } = *self;
        let sizes = [("step_sizes.0", least), ("step_sizes.1", greatest)];
        not_negative(Self::NAME, [("lr", lr)])?;
        not_negative(Self::NAME, sizes)?;
        if !(minus > 0.0 && minus < 1.0 && plus > 1.0 && plus.is_finite()) {
            let message = format!("etas {minus}, {plus}: give one between 0 and 1, and one above 1");
            return Err(Error::invalid(Self::NAME, message));
        }
        if least > greatest {
            let message = format!("step_sizes {least}, {greatest}: give the least first");
            return Err(Error::invalid(Self::NAME, message));
        }
        Ok(())
    }

    crate::settings!(lr, etas.0, etas.1, step_sizes.0, step_sizes.1, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut RpropState) -> Result<Tensor> {
        let RpropConfig { lr, etas: (minus, plus), step_sizes: (least, greatest), maximize } = *self;
        let grad = descent(grad, maximize, parameter, 0.0)?;
        state.step = state.step.saturating_add(1);
        // A product of signs neither overflows nor underflows.
        let turn = grad.sign().mul(&or_zeros(&state.prev, &grad).sign())?;
        let (stays, turns) = (turn.gt_scalar(0.0), turn.lt_scalar(0.0));
        let size = state.step_size.clone().unwrap_or_else(|| grad.full_like(lr));
        let factor = stays.where_cond(&size.full_like(plus), &size.full_like(1.0))?;
        let factor = turns.where_cond(&size.full_like(minus), &factor)?;
        let size = size.mul(&factor)?.clamp(least, greatest);
        let grad = turns.where_cond(&grad.zeros_like(), &grad)?;
        let next = parameter.sub(&grad.sign().mul(&size)?)?;
        (state.prev, state.step_size) = (Some(grad), Some(size));
        Ok(next)
    }
}
