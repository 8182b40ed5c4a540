//! ONNX files: real models against ONNX Runtime's outputs, small ones that the tests write, and bad ones.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bad_files;
mod build;
mod downloaded;
mod models;
mod semantics;
mod training;

use std::path::PathBuf;

use tensor_core::Device;

/// The file of a model.
fn model(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

/// The CPU, and a GPU if there is one; `TAPER_TEST_REQUIRE_WGPU=1` makes its absence a failure.
fn devices() -> Vec<Device> {
    let mut devices = vec![backend_cpu::cpu()];
    match backend_wgpu::wgpu(0) {
        Ok(device) => devices.push(device),
        Err(error) => {
            let required = std::env::var_os("TAPER_TEST_REQUIRE_WGPU").is_some_and(|v| v == "1");
            assert!(!required, "TAPER_TEST_REQUIRE_WGPU=1, but {error}");
            eprintln!("SKIPPED: ONNX models on GPUs: {error}");
        }
    }
    devices
}
