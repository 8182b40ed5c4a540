//! Decoders: logits, the loss of the next token, gradients.

use autograd::TensorGrad;
use models::{Gemma4, Gpt2, GptNeoX, LanguageModel, Lfm2, Llama, Mamba, Rwkv7, load_language_model};
use nn::{Module, StateDict, cross_entropy, save_safetensors};
use optim::{Optimizer, Sgd, SgdConfig};
use tensor_core::{Device, Result, Tensor};

use crate::fixture::{Fixture, Run, floats, parameters};

/// The mean cross entropy of each token after those before it.
pub(crate) fn next_token_loss(logits: &Tensor, ids: &Tensor) -> Result<Tensor> {
    let (rows, length) = (ids.dims()[0], ids.dims()[1]);
    let classes = logits.dims()[2];
    let logits = logits.narrow(1, 0, length - 1)?.reshape([rows * (length - 1), classes])?;
    cross_entropy(&logits, &ids.narrow(1, 1, length - 1)?.flatten_all())
}

fn run<M: LanguageModel + Module>(model: &M, fixture: &Fixture, device: &Device) -> Result<Run> {
    let ids = fixture.input("ids", device);
    let logits = model.forward(&ids)?;
    let loss = next_token_loss(&logits, &ids)?;
    Ok(Run { outputs: vec![("logits", logits)], loss, parameters: parameters(model) })
}

macro_rules! decoders {
    ($($model:ident: $($name:ident)*;)*) => {$($(
        #[test]
        fn $name() {
            Fixture::open(stringify!($name))
                .check(1e-4, |fixture, device| run(&$model::from_folder(fixture.folder(), device)?, fixture, device));
        }
    )*)*};
}

decoders! {
    Llama: llama llama_biases llama3_rope llama_linear_rope llama_dynamic_rope llama_yarn_rope
    mistral qwen2 qwen3 gemma gemma2 gemma3 phi3 phi3_longrope
        mixtral qwen2_moe qwen3_moe
        gpt_oss gpt_oss_mxfp4 glm4 glm4_moe deepseek_v2 deepseek_v3
        olmo2 olmo3 granite smollm3 qwen3_5 qwen3_5_moe qwen3_next;
    Lfm2: lfm2 lfm2_moe;
    Gemma4: gemma4 gemma4_dense gemma4_moe;
    Gpt2: gpt2;
    GptNeoX: gpt_neox gpt_neox_sequential;
    Mamba: mamba mamba_biases;
    Rwkv7: rwkv7;
}

#[test]
fn a_folder_says_which_model_it_has() {
    let device = backend_cpu::cpu();
    for name in ["qwen3", "gpt_oss", "lfm2_moe", "gpt2", "gpt_neox", "mamba"] {
        let fixture = Fixture::open(name);
        let model = load_language_model(fixture.folder(), &device).unwrap();
        let logits = model.forward(&fixture.input("ids", &device)).unwrap();
        taper_testing::assert_close(&floats(&logits), &fixture.output("logits"), (1e-3, 1e-4), name);
    }
    let error = load_language_model(Fixture::open("bert_classifier").folder(), &device).err().unwrap();
    assert!(error.to_string().contains("\"bert\"; known are llama"), "{error}");
}

/// The decoder of a model that also reads pictures, with the names of both versions of such files.
#[test]
fn a_decoder_inside_of_a_larger_model_is_read() {
    let device = backend_cpu::cpu();
    for (name, model_type, decoder, head) in [
        ("qwen3_5", "qwen3_5", "model.language_model.", "lm_head."),
        ("gemma3", "gemma3", "language_model.model.", "language_model.lm_head."),
        ("mistral", "mistral3", "language_model.model.", "language_model.lm_head."),
    ] {
        let fixture = Fixture::open(name);
        let path = fixture.folder().join("config.json");
        let inner: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let config = serde_json::json!({"model_type": model_type, "text_config": inner});
        std::fs::write(&path, config.to_string()).unwrap();
        let renamed = |name: String| match name.strip_prefix("lm_head.") {
            Some(rest) => format!("{head}{rest}"),
            None => name.replacen("model.", decoder, 1),
        };
        let mut state: StateDict =
            fixture.weights(&device).into_iter().map(|(name, tensor)| (renamed(name), tensor)).collect();
        let eye = if decoder.starts_with("model.") {
            "model.visual.patch.weight"
        } else {
            "vision_tower.patch.weight"
        };
        state.insert(eye.into(), Tensor::ones([2, 2], &device).unwrap());
        save_safetensors(fixture.folder().join("model.safetensors"), &state).unwrap();
        let model = load_language_model(fixture.folder(), &device).unwrap();
        let logits = model.forward(&fixture.input("ids", &device)).unwrap();
        taper_testing::assert_close(&floats(&logits), &fixture.output("logits"), (1e-3, 1e-4), name);
    }
}

/// Fields that a configuration leaves out have the values of its own model.
#[test]
fn fields_that_are_left_out_have_the_defaults_of_their_model() {
    let device = backend_cpu::cpu();
    for (name, fields) in [
        ("gpt_oss", &["attention_bias", "rms_norm_eps"][..]),
        ("glm4_moe", &["norm_topk_prob", "rms_norm_eps", "n_shared_experts", "first_k_dense_replace"]),
        ("deepseek_v3", &["norm_topk_prob", "rope_interleave"]),
        ("qwen3_next", &["norm_topk_prob", "full_attention_interval"]),
        ("smollm3", &["rope_parameters", "tie_word_embeddings"]),
    ] {
        let fixture = Fixture::open(name);
        let path = fixture.folder().join("config.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        fields.iter().for_each(|field| drop(config.as_object_mut().unwrap().remove(*field)));
        std::fs::write(&path, config.to_string()).unwrap();
        let model = Llama::from_folder(fixture.folder(), &device).unwrap();
        let logits = model.forward(&fixture.input("ids", &device)).unwrap();
        taper_testing::assert_close(&floats(&logits), &fixture.output("logits"), (1e-3, 1e-4), name);
    }
}

#[test]
fn values_that_would_change_the_computation_are_refused() {
    let device = backend_cpu::cpu();
    for (name, field, value, message) in [
        ("gpt_oss", "hidden_act", serde_json::json!("gelu"), "hidden_act of gpt-oss is silu"),
        (
            "gpt_oss",
            "layer_types",
            serde_json::json!(["sliding_attention", "chunked_attention"]),
            "chunked_attention",
        ),
        ("gpt_oss", "num_experts_per_tok", serde_json::json!(5), "5 of 4 experts"),
        ("deepseek_v2", "topk_method", serde_json::json!("best"), "topk_method \"best\" is none of greedy"),
        ("deepseek_v2", "norm_topk_prob", serde_json::json!(true), "norm_topk_prob"),
        (
            "deepseek_v3",
            "scoring_func",
            serde_json::json!("softmax"),
            "scoring_func \"softmax\" is none of sigmoid",
        ),
        ("deepseek_v3", "moe_layer_freq", serde_json::json!(2), "moe_layer_freq is 2"),
        ("glm4_moe", "n_group", serde_json::json!(3), "8 experts in 3 groups"),
        ("glm4_moe", "topk_group", serde_json::json!(1), "3 experts of 1 groups with 2 each"),
        ("qwen3_5", "linear_num_key_heads", serde_json::json!(3), "3 heads of keys do not divide 4"),
        (
            "qwen3_5",
            "layer_types",
            serde_json::json!(["linear_attention", "sliding_attention"]),
            "sliding_attention",
        ),
        (
            "lfm2",
            "layer_types",
            serde_json::json!(["conv", "linear", "conv"]),
            "a layer of the type \"linear\"",
        ),
    ] {
        let fixture = Fixture::open(name);
        let path = fixture.folder().join("config.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        config[field] = value;
        std::fs::write(&path, config.to_string()).unwrap();
        let error = load_language_model(fixture.folder(), &device).err().unwrap().to_string();
        assert!(error.contains(message), "{name}: {error}");
    }
}

#[test]
fn a_model_of_another_configuration_is_refused() {
    let (fixture, device) = (Fixture::open("llama"), backend_cpu::cpu());
    let path = fixture.folder().join("config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    let refused = |from: &str, to: &str, message: &str| {
        assert!(config.contains(from), "{config}");
        std::fs::write(&path, config.replace(from, to)).unwrap();
        let error = Llama::from_folder(fixture.folder(), &device).err().unwrap().to_string();
        assert!(error.contains(message), "{error}");
    };
    refused("\"llama\"", "\"lama\"", "model_type \"lama\" is none of llama");
    refused("\"hidden_size\": 32", "\"hidden_size\": 64", "this configuration needs [40, 64]");
    refused(
        "\"num_hidden_layers\": 2",
        "\"num_hidden_layers\": 1",
        "tensors that belong to no part of this model",
    );
    refused("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "model.layers.2");
    refused("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "do not divide");
    refused("\"hidden_size\": 32", "\"hidden_size\": \"wide\"", "config.json");
}

#[test]
fn a_step_of_training_lowers_the_loss() {
    let (fixture, device) = (Fixture::open("llama"), backend_cpu::cpu());
    let model = Llama::from_folder(fixture.folder(), &device).unwrap();
    let ids = fixture.input("ids", &device);
    let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: 0.05, ..Default::default() });
    let mut losses = Vec::new();
    for _ in 0..5 {
        sgd.zero_grad();
        let loss = next_token_loss(&model.forward(&ids).unwrap(), &ids).unwrap();
        loss.backward().unwrap();
        sgd.step().unwrap();
        losses.push(floats(&loss)[0]);
    }
    assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
}
