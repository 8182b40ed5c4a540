//! Decoders from GGUF files whose names and metadata are those of llama.cpp's converter, written here from
//! the fixtures: they compute what the models from folders compute.

use models::{LanguageModel, Llama, LlamaConfig, WeightSource, load_language_model};
use nn::{Module, StateDict};
use serde_json::Value;
use tensor_core::{Generator, GgmlType, Tensor};
use weights::{GgufArray, GgufValue, GgufWriter};

use crate::{
    devices,
    fixture::{Fixture, floats},
    gguf::{NAMES, interleaved},
};

/// Counts of a configuration, and their keys in the metadata.
const COUNTS: &[(&str, &str)] = &[
    ("/num_hidden_layers", "block_count"),
    ("/hidden_size", "embedding_length"),
    ("/intermediate_size", "feed_forward_length"),
    ("/max_position_embeddings", "context_length"),
    ("/num_attention_heads", "attention.head_count"),
    ("/num_key_value_heads", "attention.head_count_kv"),
    ("/head_dim", "attention.key_length"),
    ("/sliding_window", "attention.sliding_window"),
    ("/num_experts", "expert_count"),
    ("/num_local_experts", "expert_count"),
    ("/n_routed_experts", "expert_count"),
    ("/num_experts_per_tok", "expert_used_count"),
    ("/moe_intermediate_size", "expert_feed_forward_length"),
    ("/n_shared_experts", "expert_shared_count"),
    ("/shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    ("/n_group", "expert_group_count"),
    ("/topk_group", "expert_group_used_count"),
    ("/first_k_dense_replace", "leading_dense_block_count"),
    ("/q_lora_rank", "attention.q_lora_rank"),
    ("/kv_lora_rank", "attention.kv_lora_rank"),
    ("/qk_rope_head_dim", "rope.dimension_count"),
    ("/conv_L_cache", "shortconv.l_cache"),
    ("/linear_conv_kernel_dim", "ssm.conv_kernel"),
    ("/linear_key_head_dim", "ssm.state_size"),
    ("/linear_num_key_heads", "ssm.group_count"),
    ("/linear_num_value_heads", "ssm.time_step_rank"),
    ("/num_dense_layers", "leading_dense_block_count"),
    ("/v_head_dim", "attention.value_length_mla"),
    ("/rope_parameters/original_max_position_embeddings", "rope.scaling.original_context_length"),
    (
        "/rope_parameters/full_attention/original_max_position_embeddings",
        "rope.scaling.original_context_length",
    ),
];

/// Other numbers.
const NUMBERS: &[(&str, &str)] = &[
    ("/norm_eps", "attention.layer_norm_rms_epsilon"),
    ("/rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("/rope_parameters/rope_theta", "rope.freq_base"),
    ("/rope_parameters/factor", "rope.scaling.factor"),
    ("/rope_parameters/full_attention/factor", "rope.scaling.factor"),
    ("/routed_scaling_factor", "expert_weights_scale"),
    ("/embedding_multiplier", "embedding_scale"),
    ("/residual_multiplier", "residual_scale"),
    ("/attention_multiplier", "attention.scale"),
    ("/logits_scaling", "logit_scale"),
];

/// The names of parts that differ between the families, after those of [`NAMES`].
const MORE_NAMES: &[(&str, &str)] = &[
    (".mlp.gate.weight", ".ffn_gate_inp.weight"),
    (".mlp.router.", ".ffn_gate_inp."),
    (".block_sparse_moe.gate.", ".ffn_gate_inp."),
    (".mlp.gate.e_score_correction_bias", ".exp_probs_b.bias"),
    (".self_attn.sinks", ".attn_sinks.weight"),
    (".mlp.gate_up_proj.", ".ffn_up."),
    (".mlp.shared_expert_gate.", ".ffn_gate_inp_shexp."),
    (".mlp.shared_expert.gate_proj.", ".ffn_gate_shexp."),
    (".mlp.shared_expert.up_proj.", ".ffn_up_shexp."),
    (".mlp.shared_expert.down_proj.", ".ffn_down_shexp."),
    (".mlp.shared_experts.gate_proj.", ".ffn_gate_shexp."),
    (".mlp.shared_experts.up_proj.", ".ffn_up_shexp."),
    (".mlp.shared_experts.down_proj.", ".ffn_down_shexp."),
    (".self_attn.q_a_proj.", ".attn_q_a."),
    (".self_attn.q_a_layernorm.", ".attn_q_a_norm."),
    (".self_attn.q_b_proj.", ".attn_q_b."),
    (".self_attn.kv_a_proj_with_mqa.", ".attn_kv_a_mqa."),
    (".self_attn.kv_a_layernorm.", ".attn_kv_a_norm."),
    (".self_attn.kv_b_proj.", ".attn_kv_b."),
    ("model.embedding_norm.", "token_embd_norm."),
    (".linear_attn.in_proj_qkv.", ".attn_qkv."),
    (".linear_attn.in_proj_ba.", ".ssm_ba."),
    (".linear_attn.in_proj_z.", ".attn_gate."),
    (".linear_attn.in_proj_a.", ".ssm_alpha."),
    (".linear_attn.in_proj_b.", ".ssm_beta."),
    (".linear_attn.conv1d.", ".ssm_conv1d."),
    (".linear_attn.norm.", ".ssm_norm."),
    (".linear_attn.out_proj.", ".ssm_out."),
    (".linear_attn.dt_bias", ".ssm_dt.bias"),
    (".linear_attn.A_log", ".ssm_a"),
    (".operator_norm.", ".attn_norm."),
    (".self_attn.out_proj.", ".attn_output."),
    (".self_attn.q_layernorm.", ".attn_q_norm."),
    (".self_attn.k_layernorm.", ".attn_k_norm."),
    (".conv.conv.", ".shortconv.conv."),
    (".conv.in_proj.", ".shortconv.in_proj."),
    (".conv.out_proj.", ".shortconv.out_proj."),
    (".feed_forward.w1.", ".ffn_gate."),
    (".feed_forward.w3.", ".ffn_up."),
    (".feed_forward.w2.", ".ffn_down."),
    (".feed_forward.gate.", ".ffn_gate_inp."),
    (".feed_forward.expert_bias", ".exp_probs_b.bias"),
    (".post_self_attn_layernorm.", ".post_attention_norm."),
    (".post_mlp_layernorm.", ".post_ffw_norm."),
];

/// The state of a fixture with one tensor for all experts, as the converter makes it.
fn stacked(state: StateDict) -> StateDict {
    let mut all = StateDict::new();
    for (name, tensor) in &state {
        let Some((layer, part)) = [".mlp.experts.", ".block_sparse_moe.experts.", ".feed_forward.experts."]
            .iter()
            .find_map(|within| name.split_once(within))
        else {
            all.insert(name.clone(), tensor.clone());
            continue;
        };
        let renamed = |part: &str, leaf: &str| format!("{layer}.ffn_{part}_exps.{leaf}");
        match part {
            "gate_up_proj" => {
                let rows = tensor.transpose(1, 2).unwrap();
                all.insert(renamed("gate", "weight"), rows.slice_step(1, 0.., 2).unwrap());
                all.insert(renamed("up", "weight"), rows.slice_step(1, 1.., 2).unwrap());
            }
            "gate_up_proj_bias" => {
                all.insert(renamed("gate", "bias"), tensor.slice_step(1, 0.., 2).unwrap());
                all.insert(renamed("up", "bias"), tensor.slice_step(1, 1.., 2).unwrap());
            }
            "down_proj" => drop(all.insert(renamed("down", "weight"), tensor.transpose(1, 2).unwrap())),
            // Blocks and their scales are written by the caller.
            _ if part.ends_with("_blocks") || part.ends_with("_scales") => {}
            "down_proj_bias" => drop(all.insert(renamed("down", "bias"), tensor.clone())),
            _ => {
                let (number, part) = part.split_once('.').unwrap();
                let kind = match part {
                    "gate_proj.weight" | "w1.weight" => "gate",
                    "up_proj.weight" | "w3.weight" => "up",
                    _ => "down",
                };
                if number != "0" {
                    continue;
                }
                let each = |k: usize| state.get(&name.replace(".experts.0.", &format!(".experts.{k}.")));
                let experts: Vec<&Tensor> = (0..).map_while(each).collect();
                all.insert(renamed(kind, "weight"), Tensor::stack(&experts, 0).unwrap());
            }
        }
    }
    all
}

/// A tensor of a layer with the gated delta rule, whose heads of values the converter orders by their number
/// among those of a key first.
fn heads_apart(name: &str, tensor: &Tensor, config: &Value) -> Tensor {
    let count = |field: &str| config[field].as_u64().unwrap() as usize;
    let (keys, values) = (count("linear_num_key_heads"), count("linear_num_value_heads"));
    let (before, size, axis) = match name.rsplit_once("linear_attn.").unwrap().1 {
        "in_proj_qkv.weight" | "conv1d.weight" => {
            (2 * keys * count("linear_key_head_dim"), count("linear_value_head_dim"), 0)
        }
        "in_proj_z.weight" => (0, count("linear_value_head_dim"), 0),
        "out_proj.weight" => (0, count("linear_value_head_dim"), 1),
        "norm.weight" => return tensor.clone(),
        _ => (0, 1, 0),
    };
    let per_key = values / keys;
    let head = |at: usize| at % keys * per_key + at / keys;
    let rows = (0..values * size).map(|row| before + head(row / size) * size + row % size);
    let order: Vec<i32> = (0..before).chain(rows).map(|row| row as i32).collect();
    let length = order.len();
    let order = Tensor::from_vec(order, [length], &tensor.device()).unwrap();
    let tensor = tensor.index_select(axis, &order).unwrap();
    match name {
        _ if name.ends_with("A_log") => tensor.exp().neg(),
        _ if name.ends_with("conv1d.weight") => tensor.squeeze(1).unwrap(),
        _ => tensor,
    }
}

/// The parts for queries, keys and values, and those for gates, of a projection whose parts alternate by
/// heads of keys.
fn without_turns(tensor: &Tensor, config: &Value) -> [Tensor; 2] {
    let count = |field: &str| config[field].as_u64().unwrap() as usize;
    let (heads, values) = (count("linear_num_key_heads"), count("linear_num_value_heads"));
    let (key, value) = (count("linear_key_head_dim"), values / heads * count("linear_value_head_dim"));
    let by_heads = tensor.reshape([heads, 2 * key + 2 * value, tensor.dims()[1]]).unwrap();
    let part = |from: usize, size: usize| {
        by_heads.narrow(1, from, size).unwrap().reshape([heads * size, tensor.dims()[1]]).unwrap()
    };
    let mixed = [part(0, key), part(key, key), part(2 * key, value)];
    [Tensor::concat(&mixed, 0).unwrap(), part(2 * key + value, value)]
}

/// A fixture's model as a GGUF file.
fn written(fixture: &Fixture, architecture: &str, config: &Value, split: bool) -> tempfile::TempDir {
    let key = |name: &str| format!("{architecture}.{name}");
    let mut writer = GgufWriter::new().metadata("general.architecture", architecture);
    for (field, name) in COUNTS {
        if let Some(count) = config.pointer(field).and_then(Value::as_u64) {
            writer = writer.metadata(&key(name), count as u32);
        }
    }
    for (field, name) in NUMBERS {
        if let Some(number) = config.pointer(field).and_then(Value::as_f64) {
            writer = writer.metadata(&key(name), number as f32);
        }
    }
    let is_yarn = config["rope_parameters"].to_string().contains("yarn");
    if is_yarn {
        writer = writer.metadata(&key("rope.scaling.type"), "yarn");
    }
    if let Some(factor) = config.pointer("/rope_parameters/mscale_all_dim").and_then(Value::as_f64) {
        writer = writer.metadata(&key("rope.scaling.yarn_log_multiplier"), 0.1 * factor as f32);
    }
    let is_latent = architecture == "deepseek2";
    if is_latent {
        let features =
            config["qk_nope_head_dim"].as_u64().unwrap() + config["qk_rope_head_dim"].as_u64().unwrap();
        writer = writer.metadata(&key("attention.key_length_mla"), features as u32);
    }
    if let Some(part) = config.pointer("/rope_parameters/partial_rotary_factor").and_then(Value::as_f64) {
        let rotated = part * config["head_dim"].as_f64().unwrap();
        writer = writer.metadata(&key("rope.dimension_count"), rotated as u32);
    }
    if ["deepseek_v3", "glm4_moe"].contains(&config["model_type"].as_str().unwrap()) {
        writer =
            writer.metadata(&key("expert_gating_func"), 2u32).metadata(&key("expert_weights_norm"), true);
    }
    let has_delta = architecture.starts_with("qwen35") || architecture == "qwen3next";
    if has_delta {
        let sizes =
            ["linear_value_head_dim", "linear_num_value_heads"].map(|name| config[name].as_u64().unwrap());
        writer = writer.metadata(&key("ssm.inner_size"), (sizes[0] * sizes[1]) as u32);
    }
    let own_norm = has_delta || ["gpt-oss", "glm4moe", "olmo2"].contains(&architecture);
    let after = if own_norm { ".post_attention_norm." } else { ".ffn_norm." };
    let state = weights::open(fixture.folder()).unwrap().state_dict(&backend_cpu::cpu()).unwrap();
    for (name, tensor) in stacked(state) {
        let mut renamed = name.replace(".post_attention_layernorm.", after);
        for (from, to) in NAMES.iter().chain(MORE_NAMES) {
            renamed = renamed.replace(from, to);
        }
        let rotates = name.contains("q_proj") || name.contains("k_proj");
        let tensor = match architecture {
            "llama" | "granite" | "smollm3" if rotates => interleaved(&tensor),
            "qwen3next" if name.ends_with("in_proj_qkvz.weight") => {
                let [mixed, gates] = without_turns(&tensor, config);
                writer = writer.tensor(&renamed.replace("linear_attn.in_proj_qkvz", "attn_gate"), &gates);
                renamed = renamed.replace("linear_attn.in_proj_qkvz", "attn_qkv");
                mixed
            }
            "qwen3next" if name.ends_with("A_log") => tensor.exp().neg(),
            "qwen3next" if name.ends_with("conv1d.weight") => tensor.squeeze(1).unwrap(),
            "qwen3next" if name.contains(".linear_attn.") => tensor,
            _ if name.contains(".linear_attn.") => heads_apart(&name, &tensor, config),
            _ if has_delta && name.ends_with("norm.weight") => tensor.add_scalar(1.0),
            _ if name.ends_with(".conv.conv.weight") => tensor.squeeze(1).unwrap(),
            _ if name.contains("shared_expert_gate") => tensor.squeeze(0).unwrap(),
            _ => tensor,
        };
        if split && renamed.contains("attn_kv_b") {
            let heads = config["num_attention_heads"].as_u64().unwrap() as usize;
            let plain = config["qk_nope_head_dim"].as_u64().unwrap() as usize;
            let (rows, rank) = (tensor.dims()[0] / heads, tensor.dims()[1]);
            let matrices = tensor.reshape([heads, rows, rank]).unwrap();
            let keys = matrices.narrow(1, 0, plain).unwrap().transpose(1, 2).unwrap();
            let values = matrices.narrow(1, plain, rows - plain).unwrap();
            writer = writer.tensor(&renamed.replace("kv_b", "k_b"), &keys);
            writer = writer.tensor(&renamed.replace("kv_b", "v_b"), &values);
            continue;
        }
        writer = writer.tensor(&renamed, &tensor);
    }
    let folder = tempfile::tempdir().unwrap();
    writer.save(folder.path().join("model.gguf")).unwrap();
    folder
}

/// The fixture with values of its configuration that GGUF files have no keys for.
fn opened(name: &str, changes: &[(&str, Value)]) -> (Fixture, Value) {
    let fixture = Fixture::open(name);
    let path = fixture.folder().join("config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for (field, value) in changes {
        *config.pointer_mut(field).unwrap() = value.clone();
    }
    std::fs::write(path, config.to_string()).unwrap();
    (fixture, config)
}

/// A fixture, its architecture in GGUF files, and what changes in its configuration.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, Value)]);

#[test]
fn files_of_the_newer_families_give_the_logits_of_folders() {
    let device = backend_cpu::cpu();
    let plain_swiglu = [("/swiglu_alpha", 1.702.into()), ("/swiglu_limit", 7.0.into())];
    let one_mscale = [("/rope_parameters/mscale", 0.9.into())];
    let fourth = [("/no_rope_layers", Value::Null), ("/no_rope_layer_interval", 4.into())];
    let adjusted = [("/intermediate_size", 32.into()), ("/block_auto_adjust_ff_dim", false.into())];
    // The last of four layers has no window.
    let sliding = Value::from("sliding_attention");
    let windows = [("/layer_types", vec![sliding.clone(), sliding].into())];
    let cases: &[Case<'_>] = &[
        ("mixtral", "llama", &[]),
        ("qwen2_moe", "qwen2moe", &[]),
        ("qwen3_moe", "qwen3moe", &[]),
        ("gpt_oss", "gpt-oss", &plain_swiglu),
        ("glm4", "glm4", &[]),
        ("glm4_moe", "glm4moe", &[]),
        ("deepseek_v2", "deepseek2", &one_mscale),
        ("deepseek_v3", "deepseek2", &[]),
        ("olmo2", "olmo2", &[]),
        ("olmo3", "olmo2", &windows),
        ("granite", "granite", &[]),
        ("smollm3", "smollm3", &fourth),
        ("qwen3_5", "qwen35", &[]),
        ("qwen3_5_moe", "qwen35moe", &[]),
        ("qwen3_next", "qwen3next", &[]),
        ("lfm2", "lfm2", &adjusted),
        ("lfm2_moe", "lfm2moe", &[]),
    ];
    for (name, architecture, changes) in cases {
        let (fixture, config) = opened(name, changes);
        let ids = fixture.input("ids", &device);
        let model = load_language_model(fixture.folder(), &device).unwrap();
        let expected = floats(&model.forward(&ids).unwrap());
        // Newer files of DeepSeek have two tensors for keys and values.
        for split in [false, true].into_iter().take(if *architecture == "deepseek2" { 2 } else { 1 }) {
            let folder = written(&fixture, architecture, &config, split);
            let model = load_language_model(folder.path().join("model.gguf"), &device).unwrap();
            taper_testing::assert_close(
                &floats(&model.forward(&ids).unwrap()),
                &expected,
                (1e-4, 1e-5),
                name,
            );
        }
    }
}

/// The names of Gemma 4's parts, as gguf's `get_tensor_name_map` has them, and those that the converter names
/// itself.
const GEMMA4_NAMES: &[(&str, &str)] = &[
    ("self_attn.o_proj.", "attn_output."),
    ("_proj.", "."),
    ("embed_tokens_per_layer.", "per_layer_token_embd."),
    ("per_layer_model_projection.", "per_layer_model_proj."),
    ("per_layer_projection_norm.", "per_layer_proj_norm."),
    ("embed_tokens.", "token_embd."),
    ("post_attention_layernorm.", "post_attention_norm."),
    ("post_feedforward_layernorm.", "post_ffw_norm."),
    ("post_feedforward_layernorm_", "post_ffw_norm_"),
    ("pre_feedforward_layernorm_2.", "pre_ffw_norm_2."),
    ("pre_feedforward_layernorm.", "ffn_norm."),
    ("input_layernorm.", "attn_norm."),
    ("post_per_layer_input_norm.", "post_norm."),
    ("per_layer_input_gate.", "inp_gate."),
    ("per_layer_projection.", "proj."),
    ("layer_scalar", "layer_output_scale.weight"),
    ("self_attn.", "attn_"),
    ("mlp.", "ffn_"),
    ("router.proj.", "ffn_gate_inp."),
    ("router.scale", "ffn_gate_inp.scale"),
    ("router.per_expert_scale", "ffn_down_exps.scale"),
    ("experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("experts.down_proj", "ffn_down_exps.weight"),
    ("layers.", "blk."),
    ("model.norm.", "output_norm."),
    ("model.", ""),
];

/// Files of Gemma 4 have arrays with a number for each layer, sizes of both kinds of layers, and the part of
/// a head that rotates as a tensor.
#[test]
fn files_of_gemma_4_give_the_logits_of_folders() {
    for (name, device) in ["gemma4", "gemma4_dense", "gemma4_moe"].into_iter().zip(devices().iter().cycle()) {
        let (fixture, config) = opened(name, &[]);
        let ids = fixture.input("ids", device);
        let expected = floats(&load_language_model(fixture.folder(), device).unwrap().forward(&ids).unwrap());
        let count = |field: &str| config[field].as_u64().unwrap_or(0) as u32;
        let slides: Vec<bool> = config["layer_types"]
            .as_array()
            .unwrap()
            .iter()
            .map(|kind| kind == "sliding_attention")
            .collect();
        let layers = slides.len();
        let first_shared = layers - count("num_kv_shared_layers") as usize;
        // The reference writes the sizes of layers without a window as those of single layers.
        let global = |field: &str| {
            let own = config.pointer(&format!("/per_layer_config/1/{field}")).and_then(Value::as_u64);
            own.map_or(count(field), |own| own as u32)
        };
        let heads = "num_key_value_heads";
        let groups = slides.iter().map(|&slides| if slides { count(heads) } else { global(heads) });
        let is_double = config["use_double_wide_mlp"] == true;
        let inner = (0..layers)
            .map(|k| count("intermediate_size") * if is_double && k >= first_shared { 2 } else { 1 });
        let rope = |kind: &str, field: &str| {
            config.pointer(&format!("/rope_parameters/{kind}_attention/{field}")).and_then(Value::as_f64)
        };
        let key = |name: &str| format!("gemma4.{name}");
        let mut writer = GgufWriter::new()
            .metadata("general.architecture", "gemma4")
            .metadata(
                &key("attention.sliding_window_pattern"),
                GgufValue::Array(GgufArray::Bool(slides.clone())),
            )
            .metadata(&key("attention.head_count_kv"), groups.collect::<Vec<u32>>())
            .metadata(&key("attention.key_length"), global("head_dim"))
            .metadata(&key("feed_forward_length"), inner.collect::<Vec<u32>>())
            .metadata(&key("rope.freq_base"), rope("full", "rope_theta").unwrap() as f32)
            .metadata(&key("rope.freq_base_swa"), rope("sliding", "rope_theta").unwrap() as f32);
        for (field, name) in [
            ("num_hidden_layers", "block_count"),
            ("hidden_size", "embedding_length"),
            ("max_position_embeddings", "context_length"),
            ("num_attention_heads", "attention.head_count"),
            ("head_dim", "attention.key_length_swa"),
            ("sliding_window", "attention.sliding_window"),
            ("num_kv_shared_layers", "attention.shared_kv_layers"),
            ("hidden_size_per_layer_input", "embedding_length_per_layer_input"),
            ("head_dim", "rope.dimension_count_swa"),
            ("num_experts", "expert_count"),
            ("top_k_experts", "expert_used_count"),
            ("moe_intermediate_size", "expert_feed_forward_length"),
        ] {
            writer = writer.metadata(&key(name), count(field));
        }
        for (field, name) in [
            ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ] {
            if let Some(number) = config[field].as_f64() {
                writer = writer.metadata(&key(name), number as f32);
            }
        }
        let half = global("head_dim") as usize / 2;
        let rotated = (rope("full", "partial_rotary_factor").unwrap() * half as f64) as usize;
        let divisors: Vec<f32> = (0..half).map(|k| if k < rotated { 1.0 } else { 1e30 }).collect();
        let cpu = backend_cpu::cpu();
        writer = writer.tensor("rope_freqs.weight", &Tensor::from_vec(divisors, [half], &cpu).unwrap());
        for (name, tensor) in weights::open(fixture.folder()).unwrap().state_dict(&cpu).unwrap() {
            let renamed = GEMMA4_NAMES.iter().fold(name, |name, (from, to)| name.replace(from, to));
            writer = writer.tensor(&renamed, &tensor);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        writer.save(&path).unwrap();
        let model = load_language_model(&path, device).unwrap();
        let found = floats(&model.forward(&ids).unwrap());
        taper_testing::assert_close(&found, &expected, (1e-4, 1e-5), name);
    }
}

#[test]
fn files_of_gemma_4_that_contradict_themselves_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let table = Tensor::zeros([4, 8], &backend_cpu::cpu()).unwrap();
    let pattern = GgufValue::Array(GgufArray::Bool(vec![true, false]));
    let file = |groups: Vec<u32>, layers: u32| {
        let writer = GgufWriter::new()
            .metadata("general.architecture", "gemma4")
            .metadata("gemma4.block_count", layers)
            .metadata("gemma4.attention.sliding_window_pattern", pattern.clone())
            .metadata("gemma4.attention.head_count_kv", groups)
            .metadata("gemma4.feed_forward_length", 8u32);
        writer.tensor("token_embd.weight", &table).save(&path).unwrap();
        load_language_model(&path, &backend_cpu::cpu()).err().unwrap().to_string()
    };
    let error = file(vec![1, 1], 3);
    assert!(error.contains("sliding_window_pattern"), "{error}");
    let error = file(vec![1, 1, 1], 2);
    assert!(error.contains("gemma4.attention.head_count_kv of its 2 layers"), "{error}");
    let error = file(vec![1, 1], 2);
    assert!(error.contains("gemma4.attention.key_length"), "{error}");
}

/// gpt-oss in MXFP4: a folder as it is released, and a GGUF file. The weights of experts stay in blocks.
#[test]
fn experts_in_blocks_stay_in_blocks() {
    let plain_swiglu = [("/swiglu_alpha", 1.702.into()), ("/swiglu_limit", 7.0.into())];
    let (fixture, config) = opened("gpt_oss_mxfp4", &plain_swiglu);
    for device in devices() {
        let model = Llama::from_folder(fixture.folder(), &device).unwrap();
        let name = "model.layers.1.mlp.experts.3.up_proj.weight";
        let is_mxfp4 = |model: &Llama| {
            let format = model.state_dict()[name].block_format();
            format.is_some_and(|format| format.name() == "mxfp4")
        };
        assert!(is_mxfp4(&model));
        let ids = fixture.input("ids", &device);
        let expected = floats(&model.forward(&ids).unwrap());
        let state = model.state_dict();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        // The file of the dense parts, and the blocks of all experts.
        let dense = written(&fixture, "gpt-oss", &config, false);
        let dense = weights::open(dense.path().join("model.gguf")).unwrap();
        let mut writer = GgufWriter::new();
        for (key, value) in dense.gguf_metadata() {
            writer = writer.metadata(key, value.clone());
        }
        for tensor in dense.names().filter(|name| !name.contains("proj_")) {
            writer = writer.tensor(tensor, &dense.tensor(tensor, &backend_cpu::cpu()).unwrap());
        }
        for (layer, part) in (0..2).flat_map(|layer| ["gate", "up", "down"].map(|part| (layer, part))) {
            let of = |k: usize| &state[&format!("model.layers.{layer}.mlp.experts.{k}.{part}_proj.weight")];
            let bytes: Vec<u8> = (0..4).flat_map(|k| of(k).block_bytes().unwrap()).collect();
            let count = bytes.len();
            let bytes = Tensor::from_vec(bytes, [count], &backend_cpu::cpu()).unwrap();
            let shape = [4, of(0).dims()[0], of(0).dims()[1]];
            let stored = format!("blk.{layer}.ffn_{part}_exps.weight");
            writer = writer.blocks(&stored, GgmlType::MXFP4.block_type(), &shape, &bytes);
        }
        writer.save(&path).unwrap();
        let model = Llama::from_folder(&path, &device).unwrap();
        assert!(is_mxfp4(&model));
        let found = floats(&model.forward(&ids).unwrap());
        taper_testing::assert_close(&found, &expected, (1e-4, 1e-5), &format!("blocks on {device}"));
    }
}

/// Qwen 3.5 as it is released: gate and up of all experts are one tensor.
#[test]
fn experts_of_one_tensor_are_split() {
    let (fixture, device) = (Fixture::open("qwen3_5_moe"), backend_cpu::cpu());
    let mut state = fixture.weights(&device);
    for layer in 0..2 {
        let at = format!("model.layers.{layer}.mlp.experts");
        let mut all = |part: &str| -> Vec<Tensor> {
            (0..4).map(|k| state.remove(&format!("{at}.{k}.{part}_proj.weight")).unwrap()).collect()
        };
        let (gate, up, down) = (all("gate"), all("up"), all("down"));
        let both = |k: usize| Tensor::concat(&[&gate[k], &up[k]], 0).unwrap();
        let joint = Tensor::stack(&[both(0), both(1), both(2), both(3)], 0).unwrap();
        state.insert(format!("{at}.gate_up_proj"), joint);
        state.insert(format!("{at}.down_proj"), Tensor::stack(&down, 0).unwrap());
    }
    nn::save_safetensors(fixture.folder().join("model.safetensors"), &state).unwrap();
    let model = Llama::from_folder(fixture.folder(), &device).unwrap();
    let logits = model.forward(&fixture.input("ids", &device)).unwrap();
    taper_testing::assert_close(&floats(&logits), &fixture.output("logits"), (1e-3, 1e-4), "one tensor");
}

/// With a cache, latent attention reads parts of a weight, also of one in blocks.
#[test]
fn latent_attention_reads_parts_of_blocks() {
    let config = LlamaConfig {
        model_type: "deepseek_v2".into(),
        vocab_size: 40,
        hidden_size: 32,
        intermediate_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        kv_lora_rank: 32,
        qk_nope_head_dim: 8,
        qk_rope_head_dim: 4,
        v_head_dim: 6,
        ..Default::default()
    };
    for device in devices() {
        let random = Llama::new(&config, &Generator::seed(3, &device)).unwrap();
        let quantized = |(name, tensor): (String, Tensor)| match name.contains("kv_b_proj") {
            true => (name, tensor.quantize(GgmlType::Q8_0, None).unwrap()),
            false => (name, tensor),
        };
        let state: StateDict = random.state_dict().into_iter().map(quantized).collect();
        let model = Llama::new(&config, WeightSource::state_dict(state, &device)).unwrap();
        assert!(model.state_dict()["model.layers.1.self_attn.kv_b_proj.weight"].block_format().is_some());
        let ids = Tensor::from_vec((0..12).map(|k| 3 + 7 * k % 37).collect::<Vec<i32>>(), [1, 12], &device)
            .unwrap();
        let expected = floats(&model.forward(&ids).unwrap());
        let mut cache = model.new_cache();
        let mut at = 0;
        for length in [9, 1, 2] {
            let part = ids.narrow(1, at, length).unwrap();
            at += length;
            let found = floats(&autograd::no_grad(|| model.next_logits(&part, &mut cache)).unwrap());
            let what = format!("the logits at {at} on {device}");
            taper_testing::assert_close(&found, &expected[(at - 1) * 40..at * 40], (1e-4, 1e-5), &what);
        }
    }
}
