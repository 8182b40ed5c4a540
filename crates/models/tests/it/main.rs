//! Models against their reference implementations, whose numbers are in `tests/fixtures`; what the crate
//! does with them. One module a topic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod audio;
mod detectors;
mod diffusion;
mod downloaded;
mod encoders;
mod fixture;
mod formula;
mod generation;
mod gguf;
mod gguf_families;
mod guidance;
mod language;
mod peft;
mod products;
mod real;
mod serving;
mod text;
mod vision;
mod vision_language;
mod weight_source;

use tensor_core::Device;

/// The CPU, and a GPU if there is one; `TAPER_TEST=require=wgpu` makes its absence a failure. A test takes
/// the GPU on one of three days where it has a turn.
fn devices() -> Vec<Device> {
    let mut devices = vec![backend_cpu::cpu()];
    devices.extend(taper_testing::settings::opened_in_turn(|| backend_wgpu::wgpu(0)));
    devices
}
