//! Feed forward layers of several experts, of which each token goes to a few.
//!
//! Shazeer et al.: Outrageously large neural networks, the sparsely-gated mixture-of-experts layer (2017).
//! Jiang et al.: Mixtral of experts (2024). `router` chooses the experts, `stacks` reads files in which one
//! tensor has the weights of all.

mod router;
mod stacks;

use nn::{Linear, Module, Visitor, VisitorMut, lora};
use tensor_core::{DType, Error, Result, Tensor};

pub(crate) use self::router::{Correction, Groups, RouterConfig};
use self::{router::Router, stacks::Stacks};
use crate::{Activation, Initial, WeightSource};

const OP: &str = "Mixture";

/// The sizes and names of a mixture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MixtureConfig {
    pub(crate) width: usize,
    pub(crate) inner: usize,
    pub(crate) experts: usize,
    /// Whether the projections of experts have biases.
    pub(crate) bias: bool,
    pub(crate) router: RouterConfig,
    /// The expert that all tokens go to.
    pub(crate) shared: Option<SharedExpert>,
    pub(crate) gate: GateFunction,
    /// The names of an expert's gate, up and down projections.
    pub(crate) names: [&'static str; 3],
}

/// An expert that all tokens go to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SharedExpert {
    /// One of these inner features, multiplied by the sigmoid of a gate (Qwen 2).
    Gated(usize),
    /// One of these inner features (DeepSeek, GLM).
    Plain(usize),
}

/// How the gate g and the values u of an expert become its inner features.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GateFunction {
    /// activation(g) · u.
    Activation(Activation),
    /// g σ(alpha g) (u + 1), with g cut at `limit`, and u at `limit` and its negative (gpt-oss).
    Clamped { alpha: f64, limit: f64 },
}

impl GateFunction {
    #[track_caller]
    fn apply(self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        match self {
            GateFunction::Activation(activation) => activation.activate(gate).mul(up),
            GateFunction::Clamped { alpha, limit } => {
                let gate = gate.clamp(f64::NEG_INFINITY, limit);
                let up = up.clamp(-limit, limit).add_scalar(1.0);
                gate.mul(&gate.mul_scalar(alpha).sigmoid())?.mul(&up)
            }
        }
    }
}

/// down(f(gate(x), up(x))), where f is the [`GateFunction`].
pub(crate) struct Expert {
    gate: Linear,
    up: Linear,
    down: Linear,
    function: GateFunction,
    names: [&'static str; 3],
}

/// The usual names of an expert's projections.
pub(crate) const USUAL_NAMES: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

impl Expert {
    #[track_caller]
    fn new(
        source: &WeightSource,
        inner: usize,
        names: [&'static str; 3],
        config: &MixtureConfig,
    ) -> Result<Expert> {
        let (width, bias) = (config.width, config.bias);
        Ok(Expert {
            gate: source.linear(names[0], width, inner, bias)?,
            up: source.linear(names[1], width, inner, bias)?,
            down: source.linear(names[2], inner, width, bias)?,
            function: config.gate,
            names,
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.function.apply(&self.gate.forward(x)?, &self.up.forward(x)?)?)
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

/// A router that chooses experts for each token, the experts, and one that all tokens go to.
#[derive(Module)]
pub(crate) struct Mixture {
    /// The router under one of two names.
    gate: Option<Router>,
    router: Option<Router>,
    experts: Vec<Expert>,
    expert_bias: Option<Tensor>,
    shared_expert: Option<Expert>,
    shared_expert_gate: Option<Linear>,
    shared_experts: Option<Expert>,
    #[module(skip)]
    config: MixtureConfig,
}

impl Mixture {
    #[track_caller]
    pub(crate) fn new(source: &WeightSource, config: &MixtureConfig) -> Result<Mixture> {
        let router = Router::new(source, config)?;
        let (gate, router) = match config.router.name {
            "router" => (None, Some(router)),
            _ => (Some(router), None),
        };
        let at = source.at("experts");
        let experts = match Stacks::find(&at, config)? {
            Some(stacks) => stacks.experts(config)?,
            None => (0..config.experts)
                .map(|k| Expert::new(&at.at(k), config.inner, config.names, config))
                .collect::<Result<_>>()?,
        };
        let shared = |name: &str, inner: usize| Expert::new(&source.at(name), inner, USUAL_NAMES, config);
        let (shared_expert, shared_expert_gate, shared_experts) = match config.shared {
            None => (None, None, None),
            Some(SharedExpert::Gated(inner)) => {
                let gate = source.linear("shared_expert_gate", config.width, 1, false)?;
                (Some(shared("shared_expert", inner)?), Some(gate), None)
            }
            Some(SharedExpert::Plain(inner)) => (None, None, Some(shared("shared_experts", inner)?)),
        };
        Ok(Mixture {
            gate,
            router,
            experts,
            expert_bias: (config.router.correction == Correction::OfMixture)
                .then(|| source.buffer("expert_bias", &[config.experts], Initial::Zeros))
                .transpose()?,
            shared_expert,
            shared_expert_gate,
            shared_experts,
            config: *config,
        })
    }

    /// The output for `[N, L, features]`. The chosen experts are read on the host, and each computes only its
    /// tokens.
    #[track_caller]
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_by(x, x)
    }

    /// The output for `x` of the experts that the router chooses by `routed`, of the same shape.
    #[track_caller]
    pub(crate) fn forward_by(&self, x: &Tensor, routed: &Tensor) -> Result<Tensor> {
        let shape = x.shape().clone();
        let width = self.config.width;
        let tokens = [shape.numel() / width.max(1), width];
        let (x, routed) = (x.reshape(tokens)?, routed.reshape(tokens)?);
        // Each token is a row, with the adapter of its text.
        let adapters = match lora::rows() {
            Some(rows) => Some(rows.repeat_interleave(x.dims()[0] / rows.numel().max(1), 0)?),
            None => None,
        };
        let out = lora::with_rows(adapters.as_ref(), || self.of_tokens(&x, &routed, adapters.as_ref()))?;
        out.reshape(shape.dims())
    }

    /// The output for tokens `[tokens, features]`, with their adapters.
    #[track_caller]
    fn of_tokens(&self, x: &Tensor, routed: &Tensor, adapters: Option<&Tensor>) -> Result<Tensor> {
        let Some(router) = self.gate.as_ref().or(self.router.as_ref()) else {
            return Err(Error::invalid(OP, "a mixture has no router"));
        };
        let (weights, chosen) = router.choose(routed, self.expert_bias.as_ref())?;
        let weights = weights.to_dtype(x.dtype())?.flatten_all();
        let chosen = chosen.detach().to_dtype(DType::I32)?.flatten_all().to_vec::<i32>()?;
        let each = self.config.router.chosen as i32;
        let device = x.device();
        let mut out = x.zeros_like();
        for (k, expert) in self.experts.iter().enumerate() {
            let places: Vec<i32> =
                (0..chosen.len()).filter(|&at| chosen[at] as usize == k).map(|at| at as i32).collect();
            if places.is_empty() {
                continue;
            }
            let count = places.len();
            let rows: Vec<i32> = places.iter().map(|place| place / each).collect();
            let rows = Tensor::from_vec(rows, [count], &device)?;
            let places = Tensor::from_vec(places, [count], &device)?;
            let own = adapters.map(|adapters| adapters.index_select(0, &rows)).transpose()?;
            let taken = x.index_select(0, &rows)?;
            let part = lora::with_rows(own.as_ref(), || expert.forward(&taken))?;
            let part = part.mul(&weights.index_select(0, &places)?.unsqueeze(1)?)?;
            out = out.index_add(0, &rows, &part)?;
        }
        if let (Some(expert), Some(gate)) = (&self.shared_expert, &self.shared_expert_gate) {
            out = out.add(&gate.forward(x)?.sigmoid().mul(&expert.forward(x)?)?)?;
        }
        if let Some(expert) = &self.shared_experts {
            out = out.add(&expert.forward(x)?)?;
        }
        Ok(out)
    }
}
