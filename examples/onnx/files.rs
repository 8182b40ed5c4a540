//! Paths of files in this repository.
#![allow(dead_code)] // no program uses all of it

use std::path::{Path, PathBuf};

/// The root of this repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A model file that is in this repository.
pub(crate) fn model(name: &str) -> PathBuf {
    repository().join("crates/onnx/tests/models").join(name)
}
