//! Feed forward layers of several experts, of which each token goes to a few.
//!
//! Shazeer et al.: Outrageously large neural networks, the sparsely-gated mixture-of-experts layer (2017).
//! Jiang et al.: Mixtral of experts (2024).

use nn::{Linear, Module, Visitor, VisitorMut};
use tensor_core::{DType, Error, Result, Tensor};

use crate::{Activation, WeightSource};

/// The sizes and names of a mixture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixtureConfig {
    pub(crate) width: usize,
    pub(crate) inner: usize,
    pub(crate) experts: usize,
    pub(crate) chosen: usize,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub(crate) normalized: bool,
    /// The features inside the expert that all tokens go to.
    pub(crate) shared: Option<usize>,
    pub(crate) activation: Activation,
    /// The names of an expert's gate, up and down projections.
    pub(crate) names: [&'static str; 3],
}

/// down(activation(gate(x)) · up(x)).
pub(crate) struct Expert {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
    names: [&'static str; 3],
}

impl Expert {
    #[track_caller]
    fn new(
        source: &WeightSource,
        inner: usize,
        names: [&'static str; 3],
        config: &MixtureConfig,
    ) -> Result<Expert> {
        Ok(Expert {
            gate: source.linear(names[0], config.width, inner, false)?,
            up: source.linear(names[1], config.width, inner, false)?,
            down: source.linear(names[2], inner, config.width, false)?,
            activation: config.activation,
            names,
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.activation.activate(&self.gate.forward(x)?).mul(&self.up.forward(x)?)?)
    }
}

impl Module for Expert {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.field(self.names[0], &self.gate);
        visitor.field(self.names[1], &self.up);
        visitor.field(self.names[2], &self.down);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.field(self.names[0], &mut self.gate);
        visitor.field(self.names[1], &mut self.up);
        visitor.field(self.names[2], &mut self.down);
    }
}

/// A gate that chooses experts for each token, and the experts. In Qwen 2 all tokens also go to a shared one,
/// which has a gate of its own.
#[derive(Module)]
pub(crate) struct Mixture {
    gate: Linear,
    experts: Vec<Expert>,
    shared_expert: Option<Expert>,
    shared_expert_gate: Option<Linear>,
    #[module(skip)]
    config: MixtureConfig,
}

impl Mixture {
    #[track_caller]
    pub(crate) fn new(source: &WeightSource, config: &MixtureConfig) -> Result<Mixture> {
        if config.chosen == 0 || config.chosen > config.experts {
            let message = format!("{} of {} experts for each token", config.chosen, config.experts);
            return Err(Error::invalid("Mixture", message));
        }
        let experts = source.at("experts");
        let expert = |k: usize| Expert::new(&experts.at(k), config.inner, config.names, config);
        let shared = |inner: usize| {
            let names = ["gate_proj", "up_proj", "down_proj"];
            Expert::new(&source.at("shared_expert"), inner, names, config)
        };
        let gate = |_| source.linear("shared_expert_gate", config.width, 1, false);
        Ok(Mixture {
            gate: source.linear("gate", config.width, config.experts, false)?,
            experts: (0..config.experts).map(expert).collect::<Result<_>>()?,
            shared_expert: config.shared.map(shared).transpose()?,
            shared_expert_gate: config.shared.map(gate).transpose()?,
            config: *config,
        })
    }

    /// The output for `[N, L, features]`. The chosen experts are read on the host, and each computes only its
    /// tokens.
    #[track_caller]
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let shape = x.shape().clone();
        let width = self.config.width;
        let x = x.reshape([shape.numel() / width.max(1), width])?;
        let chances = self.gate.forward(&x)?.to_dtype(DType::F32)?.softmax(-1)?;
        let (mut weights, chosen) = chances.topk(self.config.chosen, -1, true)?;
        if self.config.normalized {
            weights = weights.div(&weights.sum_axis(-1, true)?)?;
        }
        let weights = weights.to_dtype(x.dtype())?.flatten_all();
        let chosen = chosen.detach().to_dtype(DType::I32)?.flatten_all().to_vec::<i32>()?;
        let device = x.device();
        let mut out = x.zeros_like();
        for (k, expert) in self.experts.iter().enumerate() {
            let places: Vec<i32> =
                (0..chosen.len()).filter(|&at| chosen[at] as usize == k).map(|at| at as i32).collect();
            if places.is_empty() {
                continue;
            }
            let count = places.len();
            let rows: Vec<i32> = places.iter().map(|place| place / self.config.chosen as i32).collect();
            let rows = Tensor::from_vec(rows, [count], &device)?;
            let places = Tensor::from_vec(places, [count], &device)?;
            let part = expert.forward(&x.index_select(0, &rows)?)?;
            let part = part.mul(&weights.index_select(0, &places)?.unsqueeze(1)?)?;
            out = out.index_add(0, &rows, &part)?;
        }
        if let (Some(expert), Some(gate)) = (&self.shared_expert, &self.shared_expert_gate) {
            out = out.add(&gate.forward(&x)?.sigmoid().mul(&expert.forward(&x)?)?)?;
        }
        out.reshape(shape.dims())
    }
}
