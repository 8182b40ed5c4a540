//! The configuration of the family, and the table of how its models differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tensor_core::{Error, Result};

use super::OP;
use crate::{Activation, Rope, RopeScaling, config::check_counts, mixture::MixtureConfig};

/// The configuration of a model of the family, with the names and defaults of `transformers`. `model_type`
/// says which one it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlamaConfig {
    /// `llama`, `mistral`, `qwen2`, `qwen3`, `gemma`, `gemma2`, `gemma3_text`, `phi3`, `mixtral`, `qwen2_moe`
    /// or `qwen3_moe`.
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
    /// The heads of keys and values; as many as queries have by default.
    pub num_key_value_heads: Option<usize>,
    /// The features of a head: `hidden_size / num_attention_heads` by default.
    pub head_dim: Option<usize>,
    /// The activation of the feed forward layers.
    pub hidden_act: Option<Activation>,
    /// The same in Gemma's configurations, where it precedes `hidden_act`.
    pub hidden_activation: Option<Activation>,
    /// The greatest number of positions.
    pub max_position_embeddings: usize,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// The base of rotary positions.
    pub rope_theta: f64,
    /// The base of layers with a sliding window, if it differs (Gemma 3).
    pub rope_local_base_freq: Option<f64>,
    /// The scaling of rotary positions, as it was written before version 5 of `transformers`.
    pub rope_scaling: Option<RopeScaling>,
    /// The scaling of rotary positions.
    pub rope_parameters: Option<RopeParameters>,
    /// The part of a head's features that rotates.
    pub partial_rotary_factor: Option<f64>,
    /// Whether the projections of attention have biases.
    pub attention_bias: bool,
    /// Whether the feed forward layers have biases.
    pub mlp_bias: bool,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: Option<bool>,
    /// The number of keys that a query sees in layers with a window.
    pub sliding_window: Option<usize>,
    /// Whether there are such layers (Qwen).
    pub use_sliding_window: Option<bool>,
    /// The first layer with a window (Qwen).
    pub max_window_layers: usize,
    /// `full_attention` or `sliding_attention` for each layer.
    pub layer_types: Option<Vec<String>>,
    /// The period of layers without a window: the last of each group has none (Gemma 3).
    pub sliding_window_pattern: Option<usize>,
    /// Scores are divided by the root of this number (Gemma 2 and 3).
    pub query_pre_attn_scalar: Option<f64>,
    /// The soft cap of scores (Gemma 2).
    pub attn_logit_softcapping: Option<f64>,
    /// The soft cap of logits (Gemma 2).
    pub final_logit_softcapping: Option<f64>,
    /// The context of the training, for Phi-3's positions.
    pub original_max_position_embeddings: Option<usize>,
    /// The number of experts, in models that have some.
    pub num_experts: Option<usize>,
    /// The same in Mixtral's configurations.
    pub num_local_experts: Option<usize>,
    /// The experts that each token goes to.
    pub num_experts_per_tok: usize,
    /// The features inside an expert; `intermediate_size` by default.
    pub moe_intermediate_size: Option<usize>,
    /// The features inside the expert that all tokens go to (Qwen 2).
    pub shared_expert_intermediate_size: Option<usize>,
    /// Whether the weights of the chosen experts are divided by their sum (Qwen).
    pub norm_topk_prob: bool,
    /// The period of layers with experts: the last of each group has some (Qwen).
    pub decoder_sparse_step: usize,
    /// Layers without experts (Qwen).
    pub mlp_only_layers: Vec<usize>,
}

/// The scaling of rotary positions: one, or one for each type of layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RopeParameters {
    /// By the type of a layer, such as `sliding_attention`.
    ByLayer(BTreeMap<String, RopeScaling>),
    /// The same for all layers.
    One(RopeScaling),
}

impl Default for LlamaConfig {
    fn default() -> LlamaConfig {
        LlamaConfig {
            model_type: "llama".into(),
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            hidden_act: None,
            hidden_activation: None,
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope_theta: 1e4,
            rope_local_base_freq: None,
            rope_scaling: None,
            rope_parameters: None,
            partial_rotary_factor: None,
            attention_bias: false,
            mlp_bias: false,
            tie_word_embeddings: None,
            sliding_window: None,
            use_sliding_window: None,
            max_window_layers: 0,
            layer_types: None,
            sliding_window_pattern: None,
            query_pre_attn_scalar: None,
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
            original_max_position_embeddings: None,
            num_experts: None,
            num_local_experts: None,
            num_experts_per_tok: 2,
            moe_intermediate_size: None,
            shared_expert_intermediate_size: None,
            norm_topk_prob: false,
            decoder_sparse_step: 1,
            mlp_only_layers: Vec::new(),
        }
    }
}

/// How the models of the family differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Style {
    pub(super) model_type: &'static str,
    /// Queries, keys and values have biases, the output projection has none.
    pub(super) qkv_bias: bool,
    /// Queries and keys of each head are normalized.
    pub(super) qk_norm: bool,
    /// Norms multiply by 1 + weight, embeddings are scaled by √features, and embeddings are tied.
    pub(super) gemma: bool,
    /// There is a norm after attention and after the feed forward layer, besides those before.
    pub(super) sandwich: bool,
    /// Queries, keys and values are one projection, and so are gate and up.
    pub(super) fused: bool,
    pub(super) windows: Windows,
    /// The experts' names, and whether there is a shared one.
    pub(super) experts: Experts,
    /// The architecture in GGUF files; empty if those are not read.
    pub(super) gguf: &'static str,
}

/// Mixtures of experts of the family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Experts {
    None,
    Mixtral,
    Qwen2,
    Qwen3,
}

/// Which layers have a window where the configuration does not list them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Windows {
    None,
    All,
    /// From `max_window_layers` on, if `use_sliding_window`.
    Later,
    /// All but the last of each group of this size (or of `sliding_window_pattern`).
    ButEach(usize),
}

const PLAIN: Style = Style {
    model_type: "llama",
    qkv_bias: false,
    qk_norm: false,
    gemma: false,
    sandwich: false,
    fused: false,
    windows: Windows::None,
    experts: Experts::None,
    gguf: "llama",
};

pub(super) const STYLES: &[Style] = &[
    PLAIN,
    Style { model_type: "mistral", windows: Windows::All, gguf: "mistral", ..PLAIN },
    Style { model_type: "qwen2", qkv_bias: true, windows: Windows::Later, gguf: "qwen2", ..PLAIN },
    Style { model_type: "qwen3", qk_norm: true, windows: Windows::Later, gguf: "qwen3", ..PLAIN },
    Style { model_type: "gemma", gemma: true, gguf: "gemma", ..PLAIN },
    Style {
        model_type: "gemma2",
        gemma: true,
        sandwich: true,
        windows: Windows::ButEach(2),
        gguf: "gemma2",
        ..PLAIN
    },
    Style {
        model_type: "gemma3_text",
        gemma: true,
        sandwich: true,
        qk_norm: true,
        windows: Windows::ButEach(6),
        gguf: "gemma3",
        ..PLAIN
    },
    Style { model_type: "phi3", fused: true, windows: Windows::All, gguf: "phi3", ..PLAIN },
    Style { model_type: "mixtral", experts: Experts::Mixtral, windows: Windows::All, gguf: "", ..PLAIN },
    Style {
        model_type: "qwen2_moe",
        qkv_bias: true,
        experts: Experts::Qwen2,
        windows: Windows::Later,
        gguf: "",
        ..PLAIN
    },
    Style {
        model_type: "qwen3_moe",
        qk_norm: true,
        experts: Experts::Qwen3,
        windows: Windows::Later,
        gguf: "",
        ..PLAIN
    },
];

impl LlamaConfig {
    #[track_caller]
    pub(super) fn style(&self) -> Result<Style> {
        match STYLES.iter().find(|style| style.model_type == self.model_type) {
            Some(style) => Ok(*style),
            None => {
                let names: Vec<&str> = STYLES.iter().map(|style| style.model_type).collect();
                let message = format!("model_type \"{}\" is none of {}", self.model_type, names.join(", "));
                Err(Error::invalid(OP, message))
            }
        }
    }

    /// The heads of keys and values.
    pub fn key_value_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// The features of a head.
    pub fn head_features(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    pub(super) fn is_tied(&self, style: Style) -> bool {
        self.tie_word_embeddings.unwrap_or(style.gemma)
    }

    /// The window of each layer.
    #[track_caller]
    pub(super) fn windows(&self) -> Result<Vec<Option<usize>>> {
        let style = self.style()?;
        let slides = |layer: usize| match (&self.layer_types, style.windows) {
            (Some(types), _) => types.get(layer).is_some_and(|name| name == "sliding_attention"),
            (None, Windows::None) => false,
            (None, Windows::All) => true,
            (None, Windows::Later) => {
                self.use_sliding_window == Some(true) && layer >= self.max_window_layers
            }
            (None, Windows::ButEach(n)) => {
                !(layer + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(n))
            }
        };
        Ok((0..self.num_hidden_layers).map(|layer| self.sliding_window.filter(|_| slides(layer))).collect())
    }

    /// The rotary positions of layers without and with a window.
    #[track_caller]
    pub(super) fn ropes(&self) -> Result<[Rope; 2]> {
        let mut scalings = [("full_attention", self.rope_theta), ("sliding_attention", self.rope_theta)].map(
            |(name, base)| {
                let found = match &self.rope_parameters {
                    Some(RopeParameters::ByLayer(by_layer)) => by_layer.get(name).cloned(),
                    Some(RopeParameters::One(one)) => Some(one.clone()),
                    None => self.rope_scaling.clone(),
                };
                (found.unwrap_or_default(), base)
            },
        );
        if let (Some(base), None) = (self.rope_local_base_freq, &self.rope_parameters) {
            scalings[1] = (RopeScaling::default(), base);
        }
        let [full, sliding] = scalings.map(|(mut scaling, base)| {
            scaling.partial_rotary_factor = scaling.partial_rotary_factor.or(self.partial_rotary_factor);
            scaling.original_max_position_embeddings =
                scaling.original_max_position_embeddings.or(self.original_max_position_embeddings);
            Rope::new(self.head_features(), base, self.max_position_embeddings, &scaling)
        });
        Ok([full?, sliding?])
    }

    /// The mixture of experts of a layer, if it has one.
    #[track_caller]
    pub(super) fn mixture(&self, layer: usize) -> Result<Option<MixtureConfig>> {
        let style = self.style()?;
        let step = self.decoder_sparse_step.max(1);
        let is_sparse = style.experts == Experts::Mixtral
            || ((layer + 1).is_multiple_of(step) && !self.mlp_only_layers.contains(&layer));
        let (Some(experts), true) =
            (self.num_experts.or(self.num_local_experts), is_sparse && style.experts != Experts::None)
        else {
            return Ok(None);
        };
        Ok(Some(MixtureConfig {
            width: self.hidden_size,
            inner: self.moe_intermediate_size.unwrap_or(self.intermediate_size),
            experts,
            chosen: self.num_experts_per_tok,
            normalized: self.norm_topk_prob || style.experts == Experts::Mixtral,
            shared: self.shared_expert_intermediate_size.filter(|_| style.experts == Experts::Qwen2),
            activation: self.hidden_act.unwrap_or_default(),
            names: match style.experts {
                Experts::Mixtral => ["w1", "w3", "w2"],
                Experts::None | Experts::Qwen2 | Experts::Qwen3 => ["gate_proj", "up_proj", "down_proj"],
            },
        }))
    }

    #[track_caller]
    pub(super) fn check(&self) -> Result<()> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.key_value_heads()),
            ("num_hidden_layers", self.num_hidden_layers),
            ("vocab_size", self.vocab_size),
            ("intermediate_size", self.intermediate_size),
            ("head_dim", self.head_features()),
        ];
        check_counts(OP, &sizes)?;
        if !self.num_attention_heads.is_multiple_of(self.key_value_heads()) {
            let (heads, groups) = (self.num_attention_heads, self.key_value_heads());
            return Err(Error::invalid(OP, format!("{groups} key-value heads do not divide {heads} heads")));
        }
        Ok(())
    }
}
