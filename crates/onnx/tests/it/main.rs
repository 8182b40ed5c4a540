//! ONNX files: real models against ONNX Runtime's outputs, small ones that the tests write, and bad ones.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bad_files;
mod budget;
mod build;
mod cutting;
mod downloaded;
mod export;
mod export_loaded;
mod export_operations;
mod export_rows;
mod microsoft;
mod models;
mod quantized;
mod repeated;
mod rewrites;
mod round_trip;
mod runtime;
mod semantics;
mod training;

use std::path::PathBuf;

use tensor_core::Device;

/// The file of a model.
fn model(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

/// The CPU, and a GPU if there is one; `TAPER_TEST=require=wgpu` makes its absence a failure, and
/// `TAPER_TEST=device=cpu` leaves it out. A test takes the GPU on one of three days where it has a turn.
fn devices() -> Vec<Device> {
    let mut devices = vec![backend_cpu::cpu()];
    if taper_testing::settings::setting("device").is_some_and(|device| device == "cpu") {
        return devices;
    }
    devices.extend(taper_testing::settings::opened_in_turn(|| backend_wgpu::wgpu(0)));
    devices
}
