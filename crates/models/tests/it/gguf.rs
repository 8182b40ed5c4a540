//! Models from GGUF files: names, the order of rows, norms, and weights that stay in blocks.

use autograd::TensorGrad;
use models::{LanguageModel, Llama};
use nn::{Module, StateDict};
use tensor_core::{DType, Device, GgmlType, Tensor, f16};
use weights::GgufWriter;

use crate::{
    devices,
    fixture::{Fixture, floats},
};

/// The names that llama.cpp's converter gives.
pub(crate) const NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens.", "token_embd."),
    ("model.norm.", "output_norm."),
    ("lm_head.", "output."),
    ("model.layers.", "blk."),
    (".self_attn.q_proj.", ".attn_q."),
    (".self_attn.k_proj.", ".attn_k."),
    (".self_attn.v_proj.", ".attn_v."),
    (".self_attn.o_proj.", ".attn_output."),
    (".self_attn.q_norm.", ".attn_q_norm."),
    (".self_attn.k_norm.", ".attn_k_norm."),
    (".mlp.gate_proj.", ".ffn_gate."),
    (".mlp.up_proj.", ".ffn_up."),
    (".mlp.down_proj.", ".ffn_down."),
    (".input_layernorm.", ".attn_norm."),
    (".pre_feedforward_layernorm.", ".ffn_norm."),
    (".post_feedforward_layernorm.", ".post_ffw_norm."),
];

/// Rows 0, 4, 1, 5, … of each head of 8, as the converter puts them for the architecture `llama`.
pub(crate) fn interleaved(tensor: &Tensor) -> Tensor {
    let rows = tensor.dims()[0];
    let order: Vec<i32> = (0..rows).map(|row| (row / 8 * 8 + row % 8 / 2 + row % 2 * 4) as i32).collect();
    tensor.index_select(0, &Tensor::from_vec(order, [rows], &tensor.device()).unwrap()).unwrap()
}

/// A fixture's weights as a GGUF file, with its numbers as metadata; `change` may change the tensors.
fn written(
    fixture: &Fixture,
    architecture: &str,
    features: u32,
    change: impl Fn(&str, Tensor) -> Tensor,
) -> (tempfile::TempDir, std::path::PathBuf) {
    let state = weights::open(fixture.folder()).unwrap().state_dict(&backend_cpu::cpu()).unwrap();
    let is_gemma = architecture.starts_with("gemma");
    let key = |name: &str| format!("{architecture}.{name}");
    let mut writer = GgufWriter::new()
        .metadata("general.architecture", architecture)
        .metadata(&key("block_count"), 2u32)
        .metadata(&key("embedding_length"), 32u32)
        .metadata(&key("feed_forward_length"), 40u32)
        .metadata(&key("context_length"), 64u32)
        .metadata(&key("attention.head_count"), 4u32)
        .metadata(&key("attention.head_count_kv"), 2u32)
        .metadata(&key("attention.key_length"), features)
        .metadata(&key("attention.layer_norm_rms_epsilon"), 1e-6f32)
        .metadata(&key("rope.freq_base"), 1e4f32);
    for (name, tensor) in state {
        let mut renamed = name.clone();
        let is_norm = renamed.ends_with("norm.weight");
        // Gemma 2 and 3 have a norm of that name behind attention, others before the feed forward layer.
        let after = if is_gemma { ".post_attention_norm." } else { ".ffn_norm." };
        renamed = renamed.replace(".post_attention_layernorm.", after);
        for (from, to) in NAMES {
            renamed = renamed.replace(from, to);
        }
        let tensor = match name.as_str() {
            name if architecture == "llama" && (name.contains("q_proj") || name.contains("k_proj")) => {
                interleaved(&tensor)
            }
            _ if is_gemma && is_norm => tensor.add_scalar(1.0),
            _ => tensor,
        };
        writer = writer.tensor(&renamed, &change(&name, tensor));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    writer.save(&path).unwrap();
    (folder, path)
}

fn logits(model: &Llama, fixture: &Fixture, device: &Device) -> Vec<f64> {
    floats(&autograd::no_grad(|| model.forward(&fixture.input("ids", device))).unwrap())
}

#[test]
fn a_gguf_file_gives_the_reference_s_logits_and_state() {
    let device = backend_cpu::cpu();
    for (name, architecture, features) in [("llama", "llama", 8), ("qwen3", "qwen3", 12)] {
        let fixture = Fixture::open(name);
        let (_folder, path) = written(&fixture, architecture, features, |_, tensor| tensor);
        let model = Llama::from_folder(&path, &device).unwrap();
        let expected = fixture.output("logits");
        taper_testing::assert_close(&logits(&model, &fixture, &device), &expected, (1e-3, 1e-4), name);
        let reference = Llama::from_folder(fixture.folder(), &device).unwrap().state_dict();
        for (name, tensor) in model.state_dict() {
            assert_eq!(floats(&tensor), floats(&reference[&name]), "{name}");
        }
    }
}

#[test]
fn the_norms_of_gemma_lose_the_one_that_the_converter_adds() {
    let (device, fixture) = (backend_cpu::cpu(), Fixture::open("gemma2"));
    let (_folder, path) = written(&fixture, "gemma2", 12, |_, tensor| tensor);
    let model = Llama::from_folder(&path, &device).unwrap();
    let reference = Llama::from_folder(fixture.folder(), &device).unwrap().state_dict();
    let found = model.state_dict();
    assert_eq!(found.len(), reference.len());
    for (name, tensor) in found {
        taper_testing::assert_close(&floats(&tensor), &floats(&reference[&name]), (0.0, 1e-6), &name);
    }
}

/// Numbers in blocks of Q8_0: a scale in f16, and 32 bytes.
pub(crate) fn in_blocks(tensor: &Tensor) -> Tensor {
    let numbers = floats(tensor);
    let mut bytes = Vec::new();
    for block in numbers.chunks_exact(32) {
        let most = block.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let scale = f16::from_f64(most / 127.0);
        bytes.extend(scale.to_le_bytes());
        bytes.extend(block.iter().map(|x| (x / f64::from(scale)).round().clamp(-127.0, 127.0) as i8 as u8));
    }
    Tensor::from_blocks(GgmlType::Q8_0, tensor.dims(), DType::F32, &bytes, &tensor.device()).unwrap()
}

#[test]
fn weights_in_blocks_stay_in_blocks() {
    let fixture = Fixture::open("llama");
    let blocky = |_: &str, tensor: Tensor| {
        if tensor.rank() == 2 && tensor.dims()[1] == 32 { in_blocks(&tensor) } else { tensor }
    };
    let (_folder, path) = written(&fixture, "llama", 8, blocky);
    let (_other, dense) = written(&fixture, "llama", 8, |name, tensor| blocky(name, tensor).dequantize());
    for device in devices() {
        let model = Llama::from_folder(&path, &device).unwrap();
        let kept: StateDict = model.state_dict();
        assert!(kept["model.layers.1.self_attn.q_proj.weight"].block_format().is_some());
        assert!(kept["model.embed_tokens.weight"].block_format().is_some());
        let reference = Llama::from_folder(&dense, &device).unwrap();
        let what = format!("blocks on {device}");
        let expected = logits(&reference, &fixture, &device);
        taper_testing::assert_close(&logits(&model, &fixture, &device), &expected, (1e-4, 1e-5), &what);
        // The parameters that are not in blocks are trained.
        let loss = model.forward(&fixture.input("ids", &device)).unwrap().powi(2).mean();
        loss.backward().unwrap();
        let trained = model.named_parameters();
        let with_gradient = trained.iter().filter(|(_, tensor)| tensor.grad().is_some()).count();
        assert_eq!(
            with_gradient,
            trained.iter().filter(|(_, tensor)| tensor.block_format().is_none()).count()
        );
    }
}

#[test]
fn metadata_that_is_missing_or_unknown_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let refused = |writer: GgufWriter, message: &str| {
        writer.save(&path).unwrap();
        let error = Llama::from_folder(&path, &backend_cpu::cpu()).err().unwrap().to_string();
        assert!(error.contains(message) && error.contains("model.gguf"), "{error}");
    };
    refused(GgufWriter::new(), "general.architecture");
    refused(GgufWriter::new().metadata("general.architecture", "rwkv"), "\"rwkv\", which is none of llama");
    refused(GgufWriter::new().metadata("general.architecture", "llama"), "llama.attention.head_count");
}
