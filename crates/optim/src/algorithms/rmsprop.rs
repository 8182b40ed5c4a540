//! RMSprop, update for update as PyTorch computes it.

use tensor_core::{Error, Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{descent, lerp, mean_square, not_negative, or_zeros},
};

/// The settings of [`RmsProp`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a number that is negative, NaN or infinite is an
/// error there, and so is an α above 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsPropConfig {
    /// The learning rate, 0.01 by default.
    pub lr: f64,
    /// α: the decay rate of the running mean square. 0.99 by default.
    pub alpha: f64,
    /// ε: added to the denominator for numerical stability. 10⁻⁸ by default.
    pub eps: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// μ: the momentum factor. 0 by default: no momentum.
    pub momentum: f64,
    /// Divides by the standard deviation of the gradient in place of its root mean square. Off by default.
    pub centered: bool,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for RmsPropConfig {
    fn default() -> RmsPropConfig {
        RmsPropConfig {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
        }
    }
}

/// RMSprop: divides the gradient by the square root of the running mean of its squares.
/// `torch.optim.RMSprop`.
///
/// For a parameter θ with gradient g, with v, a and b initially zero:
///
/// ```text
/// g ← −g                              if maximize
/// g ← g + λ·θ                         if weight_decay λ is not 0
/// v ← α·v + (1 − α)·g²
/// a ← α·a + (1 − α)·g                 if centered
/// d = √(v − a²) + ε if centered, else √v + ε
/// b ← μ·b + g / d, θ ← θ − lr·b       if momentum μ is not 0
/// θ ← θ − lr·g / d                    otherwise
/// ```
///
/// Hinton: Neural networks for machine learning, lecture 6e (2012); Graves: Generating sequences with
/// recurrent neural networks (2013) for the centered form.
#[doc(alias = "RMSprop")]
pub type RmsProp = ParamGroups<RmsPropConfig>;

/// The state that [`RmsProp`] keeps for a parameter.
#[derive(Clone, Debug, Default)]
pub struct RmsPropState {
    step: u64,
    square_avg: Option<Tensor>,
    grad_avg: Option<Tensor>,
    momentum_buffer: Option<Tensor>,
}

impl ParamState for RmsPropState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![
            ("step", Part::Count(&mut self.step)),
            ("square_avg", Part::Tensor(&mut self.square_avg)),
            ("grad_avg", Part::OptionalTensor(&mut self.grad_avg)),
            ("momentum_buffer", Part::OptionalTensor(&mut self.momentum_buffer)),
        ]
    }
}

impl UpdateRule for RmsPropConfig {
    const NAME: &'static str = "RmsProp";
    type State = RmsPropState;

    fn check(&self) -> Result<()> {
        let RmsPropConfig { lr, alpha, eps, weight_decay, momentum, .. } = *self;
        not_negative(Self::NAME, [("lr", lr), ("alpha", alpha), ("eps", eps)])?;
        not_negative(Self::NAME, [("weight_decay", weight_decay), ("momentum", momentum)])?;
        if alpha > 1.0 {
            return Err(Error::invalid(Self::NAME, format!("alpha {alpha}: give a number from 0 to 1")));
        }
        Ok(())
    }

    crate::settings!(lr, alpha, eps, weight_decay, momentum, centered, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut RmsPropState) -> Result<Tensor> {
        let grad = descent(grad, self.maximize, parameter, self.weight_decay)?;
        state.step = state.step.saturating_add(1);
        let square = mean_square(&state.square_avg, &grad, self.alpha)?;
        let mut spread = square.clone();
        if self.centered {
            let mean = lerp(&or_zeros(&state.grad_avg, &grad), &grad, 1.0 - self.alpha)?;
            spread = square.sub(&mean.powi(2))?;
            state.grad_avg = Some(mean);
        }
        state.square_avg = Some(square);
        let mut step = grad.div(&spread.sqrt().add_scalar(self.eps))?;
        if self.momentum > 0.0 {
            step = or_zeros(&state.momentum_buffer, &grad).mul_scalar(self.momentum).add(&step)?;
            state.momentum_buffer = Some(step.clone());
        }
        parameter.sub(&step.mul_scalar(self.lr))
    }
}
