//! The devices of this machine: is there a GPU, how many, which ones, and how a tensor and a model get
//! there.
//!
//!     cargo run --example devices                      # one line per device
//!     cargo run --example devices -- --device auto     # the tour, on that device
//!
//! A line has the name, the description and the memory in bytes, with tabs in between, so that programs can
//! read it.

mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds, refused};
use taper::{ErrorKind, prelude::*};

/// Lists the devices, or shows how to use one.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N: the device of the tour; without it, the devices are listed
    #[arg(long)]
    device: Option<String>,
    /// Rows and columns of the tensors of the tour
    #[arg(long, default_value_t = 3)]
    size: usize,
}

fn list() -> Outcome {
    let mut out = io::stdout();
    for device in taper::devices() {
        let memory = device.memory.map_or_else(|| "unknown".to_string(), |bytes| bytes.to_string());
        writeln!(out, "{}\t{} ({})\t{memory}", device.name, device.description, device.driver)?;
    }
    Ok(())
}

fn tour(name: &str, size: usize) -> Outcome {
    let mut out = io::stdout();
    // torch.cuda.is_available(), torch.cuda.device_count()
    writeln!(out, "is a GPU available? {}", taper::is_available("wgpu"))?;
    writeln!(out, "how many? {}", taper::device_count("wgpu"))?;
    // torch.cuda.get_device_properties(i). The CPU is a device like any other.
    for info in taper::devices() {
        writeln!(out, "  {info}")?;
    }
    holds(taper::device_count("wgpu") > 0 || !taper::is_available("wgpu"), "available devices are counted")?;

    // torch.device(name); cuda:0, cuda:1 … are wgpu:0, wgpu:1 … here, for every vendor.
    let device = taper::device(name)?;
    let limits = device.info().limits;
    writeln!(out, "the device of this tour: {}", device.info())?;
    writeln!(out, "  a buffer of it holds up to {} bytes", limits.max_buffer_bytes)?;
    writeln!(out, "  {}", device.memory())?;
    for wanted in ["cuda:0", "wgpu:99"] {
        let error = refused(taper::device(wanted))?;
        holds(
            matches!(error.kind(), ErrorKind::UnknownDevice { .. }),
            "a device that does not exist is an error",
        )?;
    }

    // torch.set_default_device(device), torch.cuda.current_device()
    taper::set_default_device(&device);
    holds(taper::default_device() == device, "the default device is the one that was set")?;

    // A tensor is made on a device, and is copied to another one.
    let x = Tensor::arange(0.0, (size * size) as f64, 1.0, &device)?.reshape((size, size))?;
    let here = x.cpu()?;
    writeln!(out, "x = {x}")?;
    holds(
        x.device() == device && here.device() == taper::cpu(),
        "x.cpu() is on the CPU, and x has not moved",
    )?;
    holds(here.to_vec::<f32>()? == x.to_vec::<f32>()?, "both have the same elements")?;
    holds(x.to(&device)?.id() == x.id(), "x.to() with its own device is x itself")?;

    // A model is where its first parameter is. `next(model.parameters()).device`.
    let mut model = Linear::new(size, 2, &Generator::seed(0, &taper::cpu()))?;
    let place = |model: &Linear| model.parameters().first().map(Tensor::device);
    holds(place(&model) == Some(taper::cpu()), "a model made on the CPU is on the CPU")?;
    model.to(&device)?;
    holds(place(&model) == Some(device.clone()), "after model.to() its first parameter is on the device")?;
    writeln!(out, "model(x) = {}", model.forward(&x)?)?;

    // Tensors of two devices do not mix, and nothing is copied silently.
    if device == taper::cpu() {
        writeln!(
            out,
            "the device of this tour is the CPU: `--device wgpu` shows that two devices do not mix"
        )?;
    } else {
        let error = refused(x.add(&here))?;
        holds(matches!(error.kind(), ErrorKind::DeviceMismatch { .. }), "tensors of two devices do not mix")?;
        let sum = x.add(&here.to(&device)?)?;
        holds(sum.to_vec::<f32>()? == (&x * 2.0).to_vec::<f32>()?, "they can be added after one has moved")?;
    }
    writeln!(out, "all claims hold on {device}")?;
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    common::finish(match &options.device {
        Some(device) => tour(device, options.size),
        None => list(),
    })
}
