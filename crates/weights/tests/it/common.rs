//! The files of these tests, and the tensors that are known to be in them.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use tensor_core::{Device, Tensor};
use weights::WeightFile;

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

pub(crate) fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

pub(crate) fn open(name: &str) -> WeightFile {
    weights::open(path(name)).unwrap()
}

pub(crate) fn cpu() -> Device {
    backend_cpu::cpu()
}

/// The tensors of a file by `table`: name to dtype in PyTorch's words, shape, and the hash of the elements.
pub(crate) fn known(table: &str, file: &str) -> BTreeMap<String, Json> {
    let all: BTreeMap<String, BTreeMap<String, Json>> = serde_json::from_slice(&bytes(table)).unwrap();
    all[file].clone()
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tensor as the tables describe it.
pub(crate) fn described(tensor: &Tensor) -> Json {
    serde_json::json!({
        "dtype": tensor.dtype().info().torch,
        "shape": tensor.dims(),
        "sha256": hash(&tensor.read_bytes().unwrap()),
    })
}

/// All tensors of a file are those of the table, read one by one and all at once.
pub(crate) fn assert_known(table: &str, name: &str, device: &Device) {
    let (file, known) = (open(name), known(table, name));
    assert_eq!(
        file.names().collect::<Vec<_>>(),
        known.keys().map(String::as_str).collect::<Vec<_>>(),
        "{name}"
    );
    let all = file.state_dict(device).unwrap();
    for (tensor, expected) in &known {
        assert_eq!(described(&file.tensor(tensor, device).unwrap()), *expected, "{name}: {tensor}");
        assert_eq!(described(&all[tensor]), *expected, "{name}: {tensor}");
        let info = file.info(tensor).unwrap();
        assert_eq!(serde_json::json!(info.shape().dims()), expected["shape"]);
        assert_eq!(info.dtype().unwrap().info().torch, expected["dtype"]);
    }
}

/// The error of opening these bytes.
#[track_caller]
pub(crate) fn refusal(bytes: &[u8]) -> String {
    weights::from_bytes(bytes.to_vec()).unwrap_err().to_string()
}
