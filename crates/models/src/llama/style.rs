//! How the models of the family differ: one row each.

/// How the models of the family differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Style {
    pub(super) model_type: &'static str,
    /// Queries, keys and values have biases, the output projection has none.
    pub(super) qkv_bias: bool,
    /// The output projection has no bias, also if `attention_bias` is true.
    pub(super) no_output_bias: bool,
    pub(super) qk_norm: QkNorm,
    /// Embeddings are scaled by √features and tied, and the usual activation is GELU.
    pub(super) gemma: bool,
    /// Norms multiply by 1 + weight.
    pub(super) plus_one: bool,
    pub(super) norms: Norms,
    /// Queries, keys and values are one projection.
    pub(super) fused_qkv: bool,
    /// Gate and up are one projection.
    pub(super) fused_gate_up: bool,
    pub(super) windows: Windows,
    /// A `rope_scaling` is only for layers without a window.
    pub(super) unscaled_windows: bool,
    /// The experts' names, and how they are chosen.
    pub(super) experts: Experts,
    /// Each head has a key of a learned score and without a value.
    pub(super) sinks: bool,
    /// Keys and values come from few features, which the cache keeps.
    pub(super) latent: bool,
    /// Layers have the gated delta rule in place of attention, and attention has gates.
    pub(super) delta: bool,
    /// The projections of such layers are two, not four.
    pub(super) joint_delta: bool,
    /// Neighbours rotate, not features of both halves.
    pub(super) neighbours: bool,
    /// The part of a head's features that rotates, if the configuration does not say it.
    pub(super) rotated_part: Option<f64>,
    /// Some layers do not rotate.
    pub(super) no_rope: bool,
    /// The architecture in GGUF files; empty if those are not read.
    pub(super) gguf: &'static str,
    /// GGUF's converter puts the halves of queries and keys in turns.
    pub(super) interleaved: bool,
}

/// Which queries and keys are normalized.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum QkNorm {
    None,
    /// The ones of each head.
    Heads,
    /// The ones of each head, if `use_qk_norm`.
    HeadsIfAsked,
    /// The ones of all heads together.
    Whole,
}

/// Where the norms of a layer are, and their names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Norms {
    /// Before attention and before the feed forward part.
    Before,
    /// Before and behind both, with the names of Gemma 2.
    Sandwich,
    /// Before and behind both, with the names of GLM 4.
    GlmSandwich,
    /// Behind both.
    Behind,
}

/// Mixtures of experts of the family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Experts {
    None,
    Mixtral,
    Qwen2,
    Qwen3,
    Qwen3_5,
    GptOss,
    DeepSeek2,
    /// Also those of GLM 4.5.
    DeepSeek3,
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
    /// Layers that do not rotate, if `use_sliding_window`.
    WithoutRope,
}

const PLAIN: Style = Style {
    model_type: "llama",
    qkv_bias: false,
    no_output_bias: false,
    qk_norm: QkNorm::None,
    gemma: false,
    plus_one: false,
    norms: Norms::Before,
    fused_qkv: false,
    fused_gate_up: false,
    windows: Windows::None,
    unscaled_windows: false,
    experts: Experts::None,
    sinks: false,
    latent: false,
    delta: false,
    joint_delta: false,
    neighbours: false,
    rotated_part: None,
    no_rope: false,
    gguf: "llama",
    interleaved: false,
};

const QWEN3_5: Style = Style {
    qk_norm: QkNorm::Heads,
    plus_one: true,
    delta: true,
    rotated_part: Some(0.25),
    gguf: "",
    ..PLAIN
};

/// The rows. Several may have the same architecture in GGUF files; the first of them is the usual one.
pub(super) const STYLES: &[Style] = &[
    Style { interleaved: true, ..PLAIN },
    Style { model_type: "mistral", windows: Windows::All, gguf: "mistral", ..PLAIN },
    Style { model_type: "qwen2", qkv_bias: true, windows: Windows::Later, gguf: "qwen2", ..PLAIN },
    Style { model_type: "qwen3", qk_norm: QkNorm::Heads, windows: Windows::Later, gguf: "qwen3", ..PLAIN },
    Style { model_type: "gemma", gemma: true, plus_one: true, gguf: "gemma", ..PLAIN },
    Style {
        model_type: "gemma2",
        gemma: true,
        plus_one: true,
        norms: Norms::Sandwich,
        windows: Windows::ButEach(2),
        gguf: "gemma2",
        ..PLAIN
    },
    Style {
        model_type: "gemma3_text",
        gemma: true,
        plus_one: true,
        norms: Norms::Sandwich,
        qk_norm: QkNorm::Heads,
        windows: Windows::ButEach(6),
        gguf: "gemma3",
        ..PLAIN
    },
    Style {
        model_type: "phi3",
        fused_qkv: true,
        fused_gate_up: true,
        windows: Windows::All,
        gguf: "phi3",
        ..PLAIN
    },
    Style {
        model_type: "glm4",
        no_output_bias: true,
        norms: Norms::GlmSandwich,
        fused_gate_up: true,
        neighbours: true,
        rotated_part: Some(0.5),
        gguf: "glm4",
        ..PLAIN
    },
    Style { model_type: "olmo2", qk_norm: QkNorm::Whole, norms: Norms::Behind, gguf: "olmo2", ..PLAIN },
    Style {
        model_type: "olmo3",
        qk_norm: QkNorm::Whole,
        norms: Norms::Behind,
        windows: Windows::ButEach(4),
        unscaled_windows: true,
        gguf: "olmo2",
        ..PLAIN
    },
    Style { model_type: "granite", gguf: "granite", interleaved: true, ..PLAIN },
    Style {
        model_type: "smollm3",
        no_rope: true,
        windows: Windows::WithoutRope,
        gguf: "smollm3",
        interleaved: true,
        ..PLAIN
    },
    Style {
        model_type: "mixtral",
        experts: Experts::Mixtral,
        windows: Windows::All,
        interleaved: true,
        ..PLAIN
    },
    Style {
        model_type: "qwen2_moe",
        qkv_bias: true,
        experts: Experts::Qwen2,
        windows: Windows::Later,
        gguf: "qwen2moe",
        ..PLAIN
    },
    Style {
        model_type: "qwen3_moe",
        qk_norm: QkNorm::Heads,
        experts: Experts::Qwen3,
        windows: Windows::Later,
        gguf: "qwen3moe",
        ..PLAIN
    },
    Style { model_type: "qwen3_5_text", gguf: "qwen35", ..QWEN3_5 },
    Style { model_type: "qwen3_5_moe_text", experts: Experts::Qwen3_5, gguf: "qwen35moe", ..QWEN3_5 },
    Style {
        model_type: "qwen3_next",
        experts: Experts::Qwen2,
        joint_delta: true,
        gguf: "qwen3next",
        ..QWEN3_5
    },
    Style {
        model_type: "gpt_oss",
        experts: Experts::GptOss,
        sinks: true,
        windows: Windows::ButEach(2),
        gguf: "gpt-oss",
        ..PLAIN
    },
    Style {
        model_type: "glm4_moe",
        no_output_bias: true,
        qk_norm: QkNorm::HeadsIfAsked,
        experts: Experts::DeepSeek3,
        rotated_part: Some(0.5),
        gguf: "glm4moe",
        ..PLAIN
    },
    Style {
        model_type: "deepseek_v2",
        experts: Experts::DeepSeek2,
        latent: true,
        neighbours: true,
        gguf: "deepseek2",
        ..PLAIN
    },
    Style {
        model_type: "deepseek_v3",
        experts: Experts::DeepSeek3,
        latent: true,
        neighbours: true,
        gguf: "deepseek2",
        ..PLAIN
    },
];
