//! The configuration of Gemma 4's decoder.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tensor_core::{Error, Result};

use super::OP;
use crate::{
    Activation, Rope, RopeScaling,
    config::check_counts,
    mixture::{Correction, GateFunction, MixtureConfig, RouterConfig, USUAL_NAMES},
};

/// The configuration, with the names and defaults of `transformers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gemma4Config {
    /// `gemma4_text`.
    pub model_type: String,
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    pub hidden_size: usize,
    /// The features inside a feed forward layer.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The heads of queries.
    pub num_attention_heads: usize,
    /// The heads of keys and values in layers with a window.
    pub num_key_value_heads: usize,
    /// The features of a head in layers with a window.
    pub head_dim: usize,
    /// The features of a head in the other layers.
    pub global_head_dim: usize,
    /// The heads of keys and values in the other layers, if `attention_k_eq_v`.
    pub num_global_key_value_heads: Option<usize>,
    /// The sizes of single layers, by their numbers; the two fields above are then not read.
    pub per_layer_config: Option<BTreeMap<String, Gemma4LayerConfig>>,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// The greatest number of positions.
    pub max_position_embeddings: usize,
    /// The rotary positions by the type of a layer.
    pub rope_parameters: Option<BTreeMap<String, RopeScaling>>,
    /// Whether the projections of attention have biases.
    pub attention_bias: bool,
    /// The number of keys that a query sees in layers with a window.
    pub sliding_window: usize,
    /// `full_attention` or `sliding_attention` for each layer; by default the last of each six has no window.
    pub layer_types: Option<Vec<String>>,
    /// Whether layers without a window have no values, but the keys before their norm.
    pub attention_k_eq_v: bool,
    /// The last layers, which read the keys and values of earlier ones.
    pub num_kv_shared_layers: usize,
    /// Whether those layers have twice the features inside their feed forward layers.
    pub use_double_wide_mlp: bool,
    /// The features that each layer gets for a token from a table of its own; 0 for none.
    pub hidden_size_per_layer_input: usize,
    /// The rows of these tables.
    pub vocab_size_per_layer_input: usize,
    /// The soft cap of logits.
    pub final_logit_softcapping: Option<f64>,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: bool,
    /// The activation of the feed forward layers, the only one that is known.
    pub hidden_activation: String,
    /// `vision` if tokens of pictures see each other; tokens of texts do not.
    pub use_bidirectional_attention: Option<String>,
    /// Whether each layer has a mixture of experts beside its feed forward layer.
    pub enable_moe_block: bool,
    /// The number of experts.
    pub num_experts: Option<usize>,
    /// The experts that each token goes to.
    pub top_k_experts: Option<usize>,
    /// The features inside an expert.
    pub moe_intermediate_size: Option<usize>,
}

/// The sizes of a layer that differ from the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gemma4LayerConfig {
    /// The features of a head.
    pub head_dim: Option<usize>,
    /// The heads of keys and values.
    pub num_key_value_heads: Option<usize>,
}

impl Default for Gemma4Config {
    fn default() -> Gemma4Config {
        Gemma4Config {
            model_type: "gemma4_text".into(),
            vocab_size: 262_144,
            hidden_size: 2304,
            intermediate_size: 9216,
            num_hidden_layers: 30,
            num_attention_heads: 8,
            num_key_value_heads: 4,
            head_dim: 256,
            global_head_dim: 512,
            num_global_key_value_heads: None,
            per_layer_config: None,
            rms_norm_eps: 1e-6,
            max_position_embeddings: 131_072,
            rope_parameters: None,
            attention_bias: false,
            sliding_window: 512,
            layer_types: None,
            attention_k_eq_v: false,
            num_kv_shared_layers: 0,
            use_double_wide_mlp: false,
            hidden_size_per_layer_input: 256,
            vocab_size_per_layer_input: 262_144,
            final_logit_softcapping: None,
            tie_word_embeddings: true,
            hidden_activation: KNOWN_ACTIVATION.into(),
            use_bidirectional_attention: None,
            enable_moe_block: false,
            num_experts: None,
            top_k_experts: None,
            moe_intermediate_size: None,
        }
    }
}

const KNOWN_ACTIVATION: &str = "gelu_pytorch_tanh";
/// The period of layers without a window by default.
const PERIOD: usize = 6;

/// The sizes of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LayerSizes {
    pub(super) slides: bool,
    pub(super) features: usize,
    pub(super) groups: usize,
    /// There is no projection of values.
    pub(super) keys_are_values: bool,
    /// The layer whose keys and values this one reads, if it has none.
    pub(super) source: Option<usize>,
    /// The features inside the feed forward layer.
    pub(super) inner: usize,
}

impl Gemma4Config {
    fn slides(&self, layer: usize) -> bool {
        match &self.layer_types {
            _ if layer + 1 == self.num_hidden_layers => false,
            Some(types) => types.get(layer).is_some_and(|name| name == "sliding_attention"),
            None => !(layer + 1).is_multiple_of(PERIOD),
        }
    }

    /// The first layer that reads the keys and values of another one.
    pub(super) fn first_shared(&self) -> usize {
        self.num_hidden_layers.saturating_sub(self.num_kv_shared_layers)
    }

    #[track_caller]
    pub(super) fn layer(&self, layer: usize) -> Result<LayerSizes> {
        let slides = self.slides(layer);
        let own = self.per_layer_config.as_ref().and_then(|all| all.get(&layer.to_string()));
        let own = own.cloned().unwrap_or_default();
        // Without the list, what differs is by the type of a layer.
        let by_type = self.per_layer_config.is_none() && !slides;
        let global_groups = self.num_global_key_value_heads.filter(|_| by_type && self.attention_k_eq_v);
        let features = if by_type { self.global_head_dim } else { self.head_dim };
        let sizes = LayerSizes {
            slides,
            features: own.head_dim.unwrap_or(features),
            groups: own.num_key_value_heads.or(global_groups).unwrap_or(self.num_key_value_heads),
            keys_are_values: self.attention_k_eq_v && !slides,
            source: match layer < self.first_shared() {
                true => None,
                false => match (0..self.first_shared()).rev().find(|&k| self.slides(k) == slides) {
                    Some(source) => Some(source),
                    None => {
                        let message =
                            format!("layer {layer} has no layer before it whose keys it could read");
                        return Err(Error::invalid(OP, message));
                    }
                },
            },
            inner: match layer >= self.first_shared() && self.use_double_wide_mlp {
                true => 2 * self.intermediate_size,
                false => self.intermediate_size,
            },
        };
        check_counts(OP, &[("head_dim", sizes.features), ("num_key_value_heads", sizes.groups)])?;
        if !self.num_attention_heads.is_multiple_of(sizes.groups) {
            let message =
                format!("{} key-value heads do not divide {} heads", sizes.groups, self.num_attention_heads);
            return Err(Error::invalid(OP, message));
        }
        Ok(sizes)
    }

    /// The mixture of each layer, if there is one.
    #[track_caller]
    pub(super) fn mixture(&self) -> Result<Option<MixtureConfig>> {
        if !self.enable_moe_block {
            return Ok(None);
        }
        let (Some(experts), Some(chosen), Some(inner)) =
            (self.num_experts, self.top_k_experts, self.moe_intermediate_size)
        else {
            let message = "enable_moe_block without num_experts, top_k_experts and moe_intermediate_size";
            return Err(Error::invalid(OP, message));
        };
        check_counts(OP, &[("num_experts", experts), ("moe_intermediate_size", inner)])?;
        Ok(Some(MixtureConfig {
            width: self.hidden_size,
            inner,
            experts,
            bias: false,
            router: RouterConfig {
                name: "router",
                bias: false,
                chosen,
                sigmoid: false,
                correction: Correction::None,
                groups: None,
                normalized: true,
                least_sum: 0.0,
                scale: 1.0,
                scaled: Some(self.rms_norm_eps),
            },
            shared: None,
            gate: GateFunction::Activation(Activation::GeluTanh),
            names: USUAL_NAMES,
        }))
    }

    /// The rotary positions of a layer.
    #[track_caller]
    pub(super) fn rope(&self, sizes: &LayerSizes) -> Result<Rope> {
        let name = if sizes.slides { "sliding_attention" } else { "full_attention" };
        let usual = match sizes.slides {
            true => RopeScaling { rope_theta: Some(1e4), ..Default::default() },
            false => RopeScaling {
                rope_type: Some("proportional".into()),
                partial_rotary_factor: Some(0.25),
                rope_theta: Some(1e6),
                ..Default::default()
            },
        };
        let scaling = self.rope_parameters.as_ref().and_then(|all| all.get(name).cloned()).unwrap_or(usual);
        let rope = Rope::new(sizes.features, 1e4, self.max_position_embeddings, &scaling)?;
        match rope.has_long_frequencies() {
            true => Err(Error::invalid(OP, "positions of the kind longrope are not known for this model")),
            false => Ok(rope),
        }
    }

    #[track_caller]
    pub(super) fn check(&self) -> Result<()> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("sliding_window", self.sliding_window),
            ("vocab_size_per_layer_input", self.vocab_size_per_layer_input),
            ("hidden_size_per_layer_input", self.hidden_size_per_layer_input.max(1)),
        ];
        check_counts(OP, &sizes)?;
        let wrong = |message: String| Err(Error::invalid(OP, message));
        if self.model_type != "gemma4_text" {
            return wrong(format!("model_type \"{}\" is not gemma4_text", self.model_type));
        }
        if self.hidden_activation != KNOWN_ACTIVATION {
            return wrong(format!(
                "hidden_activation is {}: only {KNOWN_ACTIVATION} is known",
                self.hidden_activation
            ));
        }
        if let Some(other) = self.use_bidirectional_attention.as_deref().filter(|name| *name != "vision") {
            return wrong(format!("use_bidirectional_attention is {other}: a decoder sees no later tokens"));
        }
        let Some(types) = &self.layer_types else { return Ok(()) };
        if let Some(other) =
            types.iter().find(|name| *name != "full_attention" && *name != "sliding_attention")
        {
            return wrong(format!(
                "a layer of the type \"{other}\", not full_attention or sliding_attention"
            ));
        }
        if types.len() != self.num_hidden_layers {
            return wrong(format!("{} layer_types for {} layers", types.len(), self.num_hidden_layers));
        }
        Ok(())
    }
}
