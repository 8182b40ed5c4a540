//! `taper inspect` of weights, folders and networks.

use std::fs;

use taper::{
    GgmlType,
    prelude::*,
    weights::{GgufArray, GgufValue, GgufWriter},
};

use crate::common::{at, json, printed, refused, repository, tiny_llama};

#[test]
fn a_gguf_file_has_its_metadata_and_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "model.gguf");
    let device = taper::cpu();
    let weight = Tensor::ones([2, 64], &device).unwrap().quantize(GgmlType::Q4_0, None).unwrap();
    let tokens: Vec<String> = (0..20).map(|k| format!("t{k}")).collect();
    GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("llama.block_count", 2u32)
        .metadata("tokens", GgufValue::Array(GgufArray::Text(tokens)))
        .tensor("blk.weight", &weight)
        .tensor("norm.weight", &Tensor::ones([64], &device).unwrap())
        .save(&path)
        .unwrap();
    let text = printed(&["inspect", &path]);
    for part in ["GGUF", "llama.block_count = 2", "general.architecture = llama", "Q4_0   [2, 64]", "72 B"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("2 tensors, 192 elements"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 160), "{text}");

    let found = json(&["inspect", &path, "--json"]);
    assert_eq!(found["metadata"]["llama.block_count"], 2);
    assert_eq!(found["metadata"]["tokens"][19], "t19");
    assert_eq!((&found["tensors"][0]["type"], &found["tensors"][0]["bytes"]), (&"Q4_0".into(), &72.into()));
    assert_eq!((&found["elements"], &found["bytes"]), (&192.into(), &(72 + 256).into()));
}

#[test]
fn a_folder_has_its_configuration_and_a_checkpoint_its_numbers() {
    let folder = tiny_llama();
    let text = printed(&["inspect", folder.path().to_str().unwrap()]);
    assert!(text.contains("config.model_type = \"llama\"") && text.contains("model.norm.weight"), "{text}");
    let checkpoint = repository("crates/weights/tests/files/checkpoint.pt");
    let found = json(&["inspect", checkpoint.to_str().unwrap(), "--json"]);
    assert_eq!(found["metadata"]["epoch"], 3);
    assert_eq!(found["metadata"]["optimizer.param_groups.0.lr"], 0.1);
}

#[test]
fn a_network_has_inputs_outputs_and_operators() {
    let path = repository("crates/onnx/tests/models/ch_ppocr_mobile_v2.0_cls_infer.onnx");
    let text = printed(&["inspect", path.to_str().unwrap()]);
    assert!(text.contains("inputs\n  \"x\" f32 [") && text.contains("operators\n"), "{text}");
    let found = json(&["inspect", path.to_str().unwrap(), "--json"]);
    assert!(found["operators"]["Conv"].as_u64().unwrap() > 10);
    assert_eq!(found["outputs"].as_array().unwrap().len(), 1);
    assert!(found["bytes"].as_u64().unwrap() > 100_000);
}

#[test]
fn a_file_of_another_kind_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["text.gguf", "text.onnx", "text"] {
        fs::write(folder.path().join(name), "neither weights nor a network\n").unwrap();
        assert!(refused(&["inspect", &at(&folder, name)]).contains(name));
    }
}
