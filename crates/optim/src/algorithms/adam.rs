//! Adam and AdamW, update for update as PyTorch computes them.

use tensor_core::{Result, Tensor};

use crate::{
    ParamGroups, ParamState, Part, UpdateRule,
    rules::{Moments, betas, decayed, not_negative, or_zeros},
};

/// The settings of [`Adam`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a rate, ε or decay that is negative, NaN or
/// infinite is an error there, and so is a β outside [0, 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamConfig {
    /// The learning rate, 0.001 by default.
    pub lr: f64,
    /// β₁ and β₂: the decay rates of the running means of the gradient and its square. (0.9, 0.999) by
    /// default.
    pub betas: (f64, f64),
    /// ε: added to the denominator for numerical stability. 10⁻⁸ by default.
    pub eps: f64,
    /// λ: the L2 penalty, which adds λ·θ to the gradient. 0 by default.
    pub weight_decay: f64,
    /// AMSGrad: divides by the greatest mean square so far (Reddi, Kale, Kumar: On the convergence of Adam
    /// and beyond, 2018). Off by default.
    pub amsgrad: bool,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
    /// Decoupled weight decay, as in [`AdamW`]: multiplies the parameter by 1 − lr·λ, and adds nothing to
    /// the gradient. Off by default.
    pub decoupled_weight_decay: bool,
}

impl Default for AdamConfig {
    fn default() -> AdamConfig {
        AdamConfig {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            amsgrad: false,
            maximize: false,
            decoupled_weight_decay: false,
        }
    }
}

/// Adam: divides the mean of the gradients by the square root of the mean of their squares.
/// `torch.optim.Adam`.
///
/// For a parameter θ with gradient g at its step t, counted from 1, with m, v and w initially zero:
///
/// ```text
/// g ← −g                              if maximize
/// g ← g + λ·θ                         if weight_decay λ is not 0
/// m ← β₁·m + (1 − β₁)·g
/// v ← β₂·v + (1 − β₂)·g²
/// w ← max(w, v) if amsgrad, else v
/// θ ← θ − lr / (1 − β₁ᵗ) · m / (√w / √(1 − β₂ᵗ) + ε)
/// ```
///
/// With `decoupled_weight_decay`, θ ← θ·(1 − lr·λ) comes first, and nothing is added to the gradient.
///
/// Kingma, Ba: Adam, a method for stochastic optimization (2015).
///
/// ```
/// use autograd::TensorGrad;
/// use optim::{Adam, AdamConfig, Optimizer};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::new([4.0f32], &backend_cpu::cpu())?.requires_grad();
/// let mut adam = Adam::new([x.clone()], AdamConfig { lr: 0.5, ..Default::default() });
/// x.powi(2).sum().backward()?;
/// adam.step()?;
/// assert!((x.item::<f32>()? - 3.5).abs() < 1e-5); // the first step has length lr
/// # Ok(()) }
/// ```
pub type Adam = ParamGroups<AdamConfig>;

/// The state that [`Adam`] and [`AdamW`] keep for a parameter.
#[derive(Clone, Debug, Default)]
pub struct AdamState {
    moments: Moments,
    max_exp_avg_sq: Option<Tensor>,
}

impl ParamState for AdamState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        let mut parts = self.moments.parts();
        parts.push(("max_exp_avg_sq", Part::OptionalTensor(&mut self.max_exp_avg_sq)));
        parts
    }
}

impl UpdateRule for AdamConfig {
    const NAME: &'static str = "Adam";
    type State = AdamState;

    fn check(&self) -> Result<()> {
        self.check_for(Self::NAME)
    }

    crate::settings!(lr, betas.0, betas.1, eps, weight_decay, amsgrad, maximize, decoupled_weight_decay);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut AdamState) -> Result<Tensor> {
        let AdamConfig { lr, betas: (beta1, beta2), eps, weight_decay, .. } = *self;
        let (grad, start) =
            decayed(grad, self.maximize, parameter, lr, weight_decay, self.decoupled_weight_decay)?;
        let (t, mean, square) = state.moments.take(&grad, self.betas)?;
        let mut scale = square.clone();
        if self.amsgrad {
            scale = or_zeros(&state.max_exp_avg_sq, &grad).maximum(&square)?;
            state.max_exp_avg_sq = Some(scale.clone());
        }
        let denominator = scale.sqrt().div_scalar((1.0 - beta2.powf(t)).sqrt()).add_scalar(eps);
        start.sub(&mean.mul_scalar(lr / (1.0 - beta1.powf(t))).div(&denominator)?)
    }
}

impl AdamConfig {
    #[track_caller]
    fn check_for(&self, op: &'static str) -> Result<()> {
        let AdamConfig { lr, eps, weight_decay, .. } = *self;
        not_negative(op, [("lr", lr), ("eps", eps), ("weight_decay", weight_decay)])?;
        betas(op, self.betas)
    }
}

/// The settings of [`AdamW`], with PyTorch's names and defaults. They are checked as those of
/// [`AdamConfig`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// The learning rate, 0.001 by default.
    pub lr: f64,
    /// β₁ and β₂: the decay rates of the running means of the gradient and its square. (0.9, 0.999) by
    /// default.
    pub betas: (f64, f64),
    /// ε: added to the denominator for numerical stability. 10⁻⁸ by default.
    pub eps: f64,
    /// λ: the decoupled weight decay; each step multiplies the parameter by 1 − lr·λ. 0.01 by default.
    pub weight_decay: f64,
    /// AMSGrad: divides by the greatest mean square so far. Off by default.
    pub amsgrad: bool,
    /// Maximizes the objective instead of minimizing it. Off by default.
    pub maximize: bool,
}

impl Default for AdamWConfig {
    fn default() -> AdamWConfig {
        let AdamConfig { lr, betas, eps, amsgrad, maximize, .. } = AdamConfig::default();
        AdamWConfig { lr, betas, eps, weight_decay: 1e-2, amsgrad, maximize }
    }
}

impl From<AdamWConfig> for AdamConfig {
    fn from(config: AdamWConfig) -> AdamConfig {
        let AdamWConfig { lr, betas, eps, weight_decay, amsgrad, maximize } = config;
        AdamConfig { lr, betas, eps, weight_decay, amsgrad, maximize, decoupled_weight_decay: true }
    }
}

/// Adam with decoupled weight decay. `torch.optim.AdamW`.
///
/// As [`Adam`], but λ does not pass through the means: θ ← θ·(1 − lr·λ) comes before each step.
///
/// Loshchilov, Hutter: Decoupled weight decay regularization (2019).
pub type AdamW = ParamGroups<AdamWConfig>;

impl UpdateRule for AdamWConfig {
    const NAME: &'static str = "AdamW";
    type State = AdamState;

    fn check(&self) -> Result<()> {
        AdamConfig::from(*self).check_for(Self::NAME)
    }

    crate::settings!(lr, betas.0, betas.1, eps, weight_decay, amsgrad, maximize);

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut AdamState) -> Result<Tensor> {
        AdamConfig::from(*self).update(parameter, grad, state)
    }
}
