//! Muon, step for step as PyTorch computes it.

use tensor_core::{Error, Result, Tensor};

use crate::{
    Choice, ParamGroups, ParamState, Part, UpdateRule,
    rules::{lerp, not_negative, or_zeros, shrunk},
};

/// The adjustment of the learning rate to the shape of a matrix [A, B].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdjustLr {
    /// lr·√max(1, A / B), as Jordan defines it. The default.
    #[default]
    Original,
    /// lr·0.2·√max(A, B), so that learning rates and weight decays tuned for [`AdamW`](crate::AdamW) can be
    /// reused (Liu and others: Muon is scalable for LLM training, 2025).
    MatchRmsAdamW,
    /// lr·√(A / B) (Bernstein: Deriving Muon, 2025).
    SpectralUnclamped,
}

impl AdjustLr {
    const ALL: [AdjustLr; 3] = [AdjustLr::Original, AdjustLr::MatchRmsAdamW, AdjustLr::SpectralUnclamped];

    fn factor(self, rows: f64, columns: f64) -> f64 {
        match self {
            AdjustLr::Original => (rows / columns).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamW => 0.2 * rows.max(columns).sqrt(),
            AdjustLr::SpectralUnclamped => (rows / columns).sqrt(),
        }
    }
}

impl Choice for AdjustLr {
    fn number(&self) -> u64 {
        *self as u64
    }

    fn choose(&mut self, number: u64) -> bool {
        let found = AdjustLr::ALL.into_iter().find(|way| way.number() == number);
        *self = found.unwrap_or_default();
        found.is_some()
    }
}

/// The settings of [`Muon`], with PyTorch's names and defaults.
///
/// [`Optimizer::step`](crate::Optimizer::step) checks them: a number that is negative, NaN or infinite is an
/// error there (a coefficient may be negative), and so are a momentum above 1 and 100 iterations or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// The learning rate, 0.001 by default.
    pub lr: f64,
    /// λ: the decoupled weight decay; each step multiplies the parameter by 1 − lr·λ. 0.1 by default.
    pub weight_decay: f64,
    /// μ: the decay rate of the mean gradient. 0.95 by default.
    pub momentum: f64,
    /// Nesterov momentum. On by default.
    pub nesterov: bool,
    /// The coefficients a, b and c of the Newton-Schulz iteration. (3.4445, −4.775, 2.0315) by default.
    pub ns_coefficients: (f64, f64, f64),
    /// ε: the least norm that the matrix is divided by. 10⁻⁷ by default.
    pub eps: f64,
    /// The number of Newton-Schulz iterations, 5 by default.
    pub ns_steps: u64,
    /// The adjustment of the learning rate to the shape of the matrix.
    pub adjust_lr_fn: AdjustLr,
}

impl Default for MuonConfig {
    fn default() -> MuonConfig {
        MuonConfig {
            lr: 1e-3,
            weight_decay: 0.1,
            momentum: 0.95,
            nesterov: true,
            ns_coefficients: (3.4445, -4.775, 2.0315),
            eps: 1e-7,
            ns_steps: 5,
            adjust_lr_fn: AdjustLr::Original,
        }
    }
}

/// Muon: orthogonalizes the momentum of a matrix, approximately, and steps by it. `torch.optim.Muon`.
///
/// It is for the matrices of hidden layers. Give embeddings, the last layer and all parameters that are not
/// matrices to another optimizer, such as [`AdamW`](crate::AdamW): a parameter that is no matrix is an error
/// of [`Optimizer::step`](crate::Optimizer::step).
///
/// For a parameter θ of shape [A, B] with gradient g, with m initially zero:
///
/// ```text
/// m ← μ·m + (1 − μ)·g
/// x = μ·m + (1 − μ)·g if nesterov, else m
/// x ← xᵀ                              if A > B
/// x ← x / max(‖x‖, ε)
/// s = x·xᵀ, x ← a·x + (b·s + c·s²)·x  ns_steps times
/// x ← xᵀ                              if A > B
/// θ ← θ·(1 − lr·λ) − lr·r·x           with the factor r of adjust_lr_fn
/// ```
///
/// PyTorch iterates in bfloat16, this implementation in the parameter's dtype (f32 for half precision), so
/// the two agree to about 2⁻⁸, bfloat16's precision.
///
/// Jordan and others: Muon, an optimizer for hidden layers in neural networks (2024).
pub type Muon = ParamGroups<MuonConfig>;

/// The state that [`Muon`] keeps for a parameter.
#[derive(Clone, Debug, Default)]
pub struct MuonState {
    momentum_buffer: Option<Tensor>,
}

impl ParamState for MuonState {
    fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
        vec![("momentum_buffer", Part::Tensor(&mut self.momentum_buffer))]
    }
}

impl UpdateRule for MuonConfig {
    const NAME: &'static str = "Muon";
    type State = MuonState;

    fn check(&self) -> Result<()> {
        let MuonConfig { lr, weight_decay, momentum, ns_coefficients: (a, b, c), eps, ns_steps, .. } = *self;
        let name = Self::NAME;
        not_negative(
            name,
            [("lr", lr), ("weight_decay", weight_decay), ("momentum", momentum), ("eps", eps)],
        )?;
        if momentum > 1.0 {
            return Err(Error::invalid(name, format!("momentum {momentum}: give a number from 0 to 1")));
        }
        if ![a, b, c].iter().all(|c| c.is_finite()) {
            return Err(Error::invalid(name, format!("ns_coefficients {a}, {b}, {c}: give finite numbers")));
        }
        if ns_steps >= 100 {
            return Err(Error::invalid(name, format!("ns_steps {ns_steps}: give less than 100")));
        }
        Ok(())
    }

    fn check_parameter(&self, parameter: &Tensor) -> Result<()> {
        if parameter.rank() == 2 {
            return Ok(());
        }
        let message = format!(
            "a parameter of shape {}: only matrices [A, B] are updated; give the others to another optimizer, such as AdamW",
            parameter.shape()
        );
        Err(Error::invalid(Self::NAME, message))
    }

    crate::settings!(
        lr,
        weight_decay,
        momentum,
        nesterov,
        ns_coefficients.0,
        ns_coefficients.1,
        ns_coefficients.2,
        eps,
        ns_steps,
        adjust_lr_fn
    );

    fn update(&self, parameter: &Tensor, grad: &Tensor, state: &mut MuonState) -> Result<Tensor> {
        let MuonConfig { lr, weight_decay, momentum, .. } = *self;
        let mean = lerp(&or_zeros(&state.momentum_buffer, grad), grad, 1.0 - momentum)?;
        let step = if self.nesterov { lerp(grad, &mean, momentum)? } else { mean.clone() };
        state.momentum_buffer = Some(mean);
        let (rows, columns) = (parameter.dims()[0], parameter.dims()[1]);
        if parameter.numel() == 0 {
            return Ok(parameter.clone());
        }
        let step = if rows > columns { self.orthogonal(&step.t()?)?.t()? } else { self.orthogonal(&step)? };
        let rate = lr * self.adjust_lr_fn.factor(rows as f64, columns as f64);
        shrunk(parameter, lr, weight_decay).sub(&step.mul_scalar(rate))
    }
}

impl MuonConfig {
    /// The Newton-Schulz iteration for a matrix with no more rows than columns: it moves the singular values
    /// close to 1.
    fn orthogonal(&self, matrix: &Tensor) -> Result<Tensor> {
        let (a, b, c) = self.ns_coefficients;
        let norm = matrix.vector_norm(2, .., false)?.maximum_scalar(self.eps);
        let mut x = matrix.div(&norm)?;
        for _ in 0..self.ns_steps {
            let gram = x.matmul(&x.t()?)?;
            let factor = gram.mul_scalar(b).add(&gram.matmul(&gram)?.mul_scalar(c))?;
            x = x.mul_scalar(a).add(&factor.matmul(&x)?)?;
        }
        Ok(x)
    }
}
