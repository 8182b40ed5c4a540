//! The configuration of the family, and the table of how its models differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tensor_core::{Error, Result};

use super::{
    OP,
    style::{Experts, STYLES, Style, Windows},
};
use crate::{
    Activation, Rope, RopeScaling,
    config::check_counts,
    mixture::{Correction, GateFunction, Groups, MixtureConfig, RouterConfig, SharedExpert, USUAL_NAMES},
};

/// The configuration of a model of the family, with the names and defaults of `transformers`. `model_type`
/// says which one it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlamaConfig {
    /// `llama`, `mistral`, `qwen2`, `qwen3`, `gemma`, `gemma2`, `gemma3_text`, `phi3`, `glm4`, `olmo2`,
    /// `olmo3`, `granite`, `smollm3`, `qwen3_5_text`, or with experts `qwen3_next`,
    /// `qwen3_5_moe_text`, `mixtral`, `qwen2_moe`, `qwen3_moe`, `gpt_oss`,
    /// `glm4_moe`, `deepseek_v2` or `deepseek_v3`.
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
    /// The number of experts in the configurations of DeepSeek and GLM.
    pub n_routed_experts: Option<usize>,
    /// The expert that all tokens go to has this multiple of an expert's inner features (DeepSeek, GLM).
    pub n_shared_experts: Option<usize>,
    /// The groups of experts (DeepSeek, GLM).
    pub n_group: Option<usize>,
    /// The groups whose experts a token may go to.
    pub topk_group: Option<usize>,
    /// How experts are chosen: `greedy` or `group_limited_greedy` (DeepSeek 2), `noaux_tc` (DeepSeek 3).
    pub topk_method: Option<String>,
    /// How the scores of experts are computed: `softmax` (DeepSeek 2) or `sigmoid` (DeepSeek 3).
    pub scoring_func: Option<String>,
    /// The factor of the weights of the chosen experts.
    pub routed_scaling_factor: f64,
    /// The first layers, which have no experts.
    pub first_k_dense_replace: usize,
    /// The period of layers with experts behind those; only 1 is known.
    pub moe_layer_freq: usize,
    /// The factor inside the sigmoid of an expert's gate (gpt-oss).
    pub swiglu_alpha: f64,
    /// The bound of an expert's inner features (gpt-oss).
    pub swiglu_limit: f64,
    /// Whether queries and keys of each head are normalized (GLM).
    pub use_qk_norm: bool,
    /// The features from which keys and values of all heads are computed (DeepSeek).
    pub kv_lora_rank: usize,
    /// The features from which queries are computed; none for a plain projection (DeepSeek).
    pub q_lora_rank: Option<usize>,
    /// The features of a query and a key that do not rotate (DeepSeek).
    pub qk_nope_head_dim: usize,
    /// The features of a query and a key that rotate; a position's keys share them (DeepSeek).
    pub qk_rope_head_dim: usize,
    /// The features of a value (DeepSeek).
    pub v_head_dim: usize,
    /// Whether neighbours rotate, not features of both halves (DeepSeek 3); they do by default.
    pub rope_interleave: Option<bool>,
    /// Layers of another kind behind the others, which predict later tokens and are not read.
    pub num_nextn_predict_layers: usize,
    /// The heads of keys in layers with the gated delta rule (Qwen 3 Next and 3.5).
    pub linear_num_key_heads: usize,
    /// Their heads of values.
    pub linear_num_value_heads: usize,
    /// The features of their keys.
    pub linear_key_head_dim: usize,
    /// The features of their values.
    pub linear_value_head_dim: usize,
    /// The steps that their convolution sees.
    pub linear_conv_kernel_dim: usize,
    /// Whether the heads of values that share a key are as far apart as there are keys, as in GGUF files;
    /// otherwise they are neighbours.
    pub linear_heads_apart: bool,
    /// The period of layers with attention among them, where `layer_types` is not there.
    pub full_attention_interval: usize,
    /// The factor of embeddings (Granite).
    pub embedding_multiplier: Option<f64>,
    /// The factor of what each layer adds (Granite).
    pub residual_multiplier: Option<f64>,
    /// The factor of scores (Granite).
    pub attention_multiplier: Option<f64>,
    /// Logits are divided by this number (Granite).
    pub logits_scaling: Option<f64>,
    /// 1 for each layer whose positions rotate, 0 for others (SmolLM 3).
    pub no_rope_layers: Option<Vec<usize>>,
    /// The period of layers without rotation, by default (SmolLM 3).
    pub no_rope_layer_interval: usize,
}

/// Added to the sum by which the weights of experts are divided, as in the reference of DeepSeek 3.
const LEAST_SUM: f64 = 1e-20;

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
            n_routed_experts: None,
            n_shared_experts: None,
            n_group: None,
            topk_group: None,
            topk_method: None,
            scoring_func: None,
            routed_scaling_factor: 1.0,
            first_k_dense_replace: 0,
            moe_layer_freq: 1,
            swiglu_alpha: 1.702,
            swiglu_limit: 7.0,
            use_qk_norm: false,
            kv_lora_rank: 512,
            q_lora_rank: None,
            qk_nope_head_dim: 128,
            qk_rope_head_dim: 64,
            v_head_dim: 128,
            rope_interleave: None,
            num_nextn_predict_layers: 0,
            linear_num_key_heads: 16,
            linear_num_value_heads: 32,
            linear_key_head_dim: 128,
            linear_value_head_dim: 128,
            linear_conv_kernel_dim: 4,
            linear_heads_apart: false,
            full_attention_interval: 4,
            embedding_multiplier: None,
            residual_multiplier: None,
            attention_multiplier: None,
            logits_scaling: None,
            no_rope_layers: None,
            no_rope_layer_interval: 4,
        }
    }
}

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
            (None, Windows::WithoutRope) => {
                self.use_sliding_window == Some(true) && !self.rotates(style, layer)
            }
        };
        Ok((0..self.num_hidden_layers).map(|layer| self.sliding_window.filter(|_| slides(layer))).collect())
    }

    /// The rotary positions of layers without and with a window.
    #[track_caller]
    pub(super) fn ropes(&self) -> Result<[Rope; 2]> {
        let style = self.style()?;
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
        let local = self.rope_local_base_freq.or(style.unscaled_windows.then_some(self.rope_theta));
        if let (Some(base), None) = (local, &self.rope_parameters) {
            scalings[1] = (RopeScaling::default(), base);
        }
        let [full, sliding] = scalings.map(|(mut scaling, base)| {
            scaling.partial_rotary_factor =
                scaling.partial_rotary_factor.or(self.partial_rotary_factor).or(style.rotated_part);
            scaling.original_max_position_embeddings =
                scaling.original_max_position_embeddings.or(self.original_max_position_embeddings);
            let features = if style.latent { self.qk_rope_head_dim } else { self.head_features() };
            Rope::new(features, base, self.max_position_embeddings, &scaling)
        });
        Ok([full?, sliding?])
    }

    /// Whether the positions of a layer rotate.
    pub(super) fn rotates(&self, style: Style, layer: usize) -> bool {
        match &self.no_rope_layers {
            _ if !style.no_rope => true,
            Some(layers) => layers.get(layer) != Some(&0),
            None => !(layer + 1).is_multiple_of(self.no_rope_layer_interval.max(1)),
        }
    }

    /// Whether a layer has the gated delta rule in place of attention.
    pub(super) fn has_delta(&self, style: Style, layer: usize) -> bool {
        match &self.layer_types {
            _ if !style.delta => false,
            Some(types) => types.get(layer).is_some_and(|name| name == "linear_attention"),
            None => !(layer + 1).is_multiple_of(self.full_attention_interval.max(1)),
        }
    }

    /// The factor of the products of queries and keys.
    pub(super) fn attention_scale(&self) -> f64 {
        let features = self.query_pre_attn_scalar.unwrap_or(self.head_features() as f64);
        self.attention_multiplier.unwrap_or(features.powf(-0.5))
    }

    /// The mixture of experts of a layer, if it has one.
    #[track_caller]
    pub(super) fn mixture(&self, layer: usize) -> Result<Option<MixtureConfig>> {
        let kind = self.style()?.experts;
        let step = self.decoder_sparse_step.max(1);
        let is_sparse = match kind {
            Experts::None => false,
            Experts::Mixtral | Experts::Qwen3_5 | Experts::GptOss => true,
            Experts::Qwen2 | Experts::Qwen3 => {
                (layer + 1).is_multiple_of(step) && !self.mlp_only_layers.contains(&layer)
            }
            Experts::DeepSeek2 | Experts::DeepSeek3 => layer >= self.first_k_dense_replace,
        };
        let count = self.num_experts.or(self.num_local_experts).or(self.n_routed_experts);
        let (Some(experts), true) = (count, is_sparse) else { return Ok(None) };
        let inner = self.moe_intermediate_size.unwrap_or(self.intermediate_size);
        let is_gpt_oss = kind == Experts::GptOss;
        let groups = |best: usize| {
            let groups = (self.n_group.unwrap_or(1), self.topk_group.unwrap_or(1));
            (groups.0 > 1).then_some(Groups { count: groups.0, kept: groups.1, best })
        };
        let shared_plain = || self.n_shared_experts.filter(|&count| count > 0).map(|count| count * inner);
        let router = RouterConfig {
            name: if is_gpt_oss { "router" } else { "gate" },
            bias: is_gpt_oss,
            chosen: self.num_experts_per_tok,
            sigmoid: kind == Experts::DeepSeek3,
            correction: match kind {
                Experts::DeepSeek3 => Correction::OfRouter,
                Experts::None | Experts::Mixtral | Experts::Qwen2 | Experts::Qwen3 => Correction::None,
                Experts::Qwen3_5 | Experts::GptOss | Experts::DeepSeek2 => Correction::None,
            },
            groups: match kind {
                Experts::DeepSeek2 if self.topk_method.as_deref() == Some("group_limited_greedy") => {
                    groups(1)
                }
                Experts::DeepSeek3 => groups(2),
                Experts::None | Experts::Mixtral | Experts::Qwen2 | Experts::Qwen3 => None,
                Experts::Qwen3_5 | Experts::GptOss | Experts::DeepSeek2 => None,
            },
            normalized: match kind {
                Experts::Mixtral | Experts::Qwen3_5 | Experts::GptOss => true,
                Experts::None | Experts::DeepSeek2 => false,
                Experts::Qwen2 | Experts::Qwen3 | Experts::DeepSeek3 => self.norm_topk_prob,
            },
            least_sum: LEAST_SUM,
            scale: self.routed_scaling_factor,
            scaled: None,
        };
        Ok(Some(MixtureConfig {
            width: self.hidden_size,
            inner,
            experts,
            bias: is_gpt_oss,
            router,
            shared: match kind {
                Experts::Qwen2 | Experts::Qwen3_5 => {
                    self.shared_expert_intermediate_size.map(SharedExpert::Gated)
                }
                Experts::DeepSeek2 | Experts::DeepSeek3 => shared_plain().map(SharedExpert::Plain),
                Experts::None | Experts::Mixtral | Experts::Qwen3 | Experts::GptOss => None,
            },
            gate: match is_gpt_oss {
                true => GateFunction::Clamped { alpha: self.swiglu_alpha, limit: self.swiglu_limit },
                false => GateFunction::Activation(self.hidden_act.unwrap_or_default()),
            },
            names: if kind == Experts::Mixtral { ["w1", "w3", "w2"] } else { USUAL_NAMES },
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
        let of_experts = [
            ("num_experts", self.num_experts),
            ("num_local_experts", self.num_local_experts),
            ("n_routed_experts", self.n_routed_experts),
            ("n_shared_experts", self.n_shared_experts.filter(|&count| count > 0)),
            ("moe_intermediate_size", self.moe_intermediate_size),
            ("shared_expert_intermediate_size", self.shared_expert_intermediate_size),
        ];
        let given: Vec<(&str, usize)> =
            of_experts.iter().filter_map(|(name, count)| Some((*name, (*count)?))).collect();
        check_counts(OP, &given)?;
        let wrong = |message: String| Err(Error::invalid(OP, message));
        if !self.num_attention_heads.is_multiple_of(self.key_value_heads()) {
            let (heads, groups) = (self.num_attention_heads, self.key_value_heads());
            return wrong(format!("{groups} key-value heads do not divide {heads} heads"));
        }
        let style = self.style()?;
        if let Some(types) = &self.layer_types {
            let known = if style.delta { "linear_attention" } else { "sliding_attention" };
            if let Some(other) = types.iter().find(|name| *name != "full_attention" && *name != known) {
                return wrong(format!("a layer of the type \"{other}\", not full_attention or {known}"));
            }
            if types.len() < self.num_hidden_layers {
                return wrong(format!("{} layer_types for {} layers", types.len(), self.num_hidden_layers));
            }
        }
        if style.latent {
            let sizes = [
                ("kv_lora_rank", self.kv_lora_rank),
                ("q_lora_rank", self.q_lora_rank.unwrap_or(1)),
                ("qk_nope_head_dim", self.qk_nope_head_dim),
                ("qk_rope_head_dim", self.qk_rope_head_dim),
                ("v_head_dim", self.v_head_dim),
            ];
            check_counts(OP, &sizes)?;
        }
        if style.delta {
            let sizes = [
                ("linear_num_key_heads", self.linear_num_key_heads),
                ("linear_num_value_heads", self.linear_num_value_heads),
                ("linear_key_head_dim", self.linear_key_head_dim),
                ("linear_value_head_dim", self.linear_value_head_dim),
                ("linear_conv_kernel_dim", self.linear_conv_kernel_dim),
            ];
            check_counts(OP, &sizes)?;
            let (keys, values) = (self.linear_num_key_heads, self.linear_num_value_heads);
            if !values.is_multiple_of(keys) {
                return wrong(format!("{keys} heads of keys do not divide {values} heads of values"));
            }
            if self.hidden_act.is_some_and(|act| act != Activation::Silu) {
                return wrong("hidden_act of layers with the gated delta rule is silu".into());
            }
        }
        // The values of fields that say how experts are chosen.
        let choices: &[(&str, &[&str])] = match style.experts {
            Experts::DeepSeek2 => {
                &[("topk_method", &["greedy", "group_limited_greedy"]), ("scoring_func", &["softmax"])]
            }
            Experts::DeepSeek3 => &[("topk_method", &["noaux_tc"]), ("scoring_func", &["sigmoid"])],
            Experts::None | Experts::Mixtral | Experts::Qwen2 | Experts::Qwen3 => &[],
            Experts::Qwen3_5 | Experts::GptOss => &[],
        };
        for (name, known) in choices {
            let value = if *name == "topk_method" { &self.topk_method } else { &self.scoring_func };
            if let Some(value) = value.as_deref().filter(|value| !known.contains(value)) {
                return wrong(format!("{name} \"{value}\" is none of {}", known.join(", ")));
            }
        }
        if self.moe_layer_freq != 1 {
            return wrong(format!("moe_layer_freq is {}: only 1 is known", self.moe_layer_freq));
        }
        if style.experts == Experts::DeepSeek2 && self.norm_topk_prob {
            return wrong("norm_topk_prob of DeepSeek 2 has no known meaning: give false".into());
        }
        if style.experts == Experts::GptOss && self.hidden_act.is_some_and(|act| act != Activation::Silu) {
            return wrong("hidden_act of gpt-oss is silu".into());
        }
        Ok(())
    }
}
