//! Moving tensors, lists, tuples, maps, your own structs, and models to a device.
//!
//!     cargo run --release --example moving -- --device wgpu
//!
//! There are two rules. A tensor, or a structure of tensors, is copied: `x.to(&device)?` returns the copy,
//! and `x` does not move. A model moves in place with `model.to(&device)?`; an optimizer, or anything else
//! that shares its parameters, sees them on the new device.

mod common;

use std::{
    collections::HashMap,
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds, refused};
use taper::{ErrorKind, prelude::*};

/// Moves tensors and models to a device.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Batch size
    #[arg(long, default_value_t = 4)]
    rows: usize,
    /// Features of a row
    #[arg(long, default_value_t = 3)]
    columns: usize,
    /// Seed of the numbers
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

/// An item of a user's own loader: tensors, lists of tensors, and fields that are not tensors.
#[derive(ToDevice)]
struct Batch {
    images: Tensor,
    boxes: Vec<Tensor>,
    mask: Option<Tensor>,
    scale: f64,
    /// Cloned, not moved. The type must be `Clone`.
    #[to_device(skip)]
    taken: std::time::SystemTime,
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let (host, device) = (taper::cpu(), taper::device(&options.device)?);
    let shape = (options.rows, options.columns);
    let rng = Generator::seed(options.seed, &host);
    let x = Tensor::rand(shape, &rng)?;

    writeln!(out, "a tensor: a copy")?;
    let there = x.to(&device)?;
    holds(there.device() == device, "x.to(&device)? is on the device")?;
    holds(x.device() == host, "x has not moved")?;
    holds(there.cpu()?.to_vec::<f32>()? == x.to_vec::<f32>()?, "the elements are the same, bit by bit")?;

    writeln!(out, "a list, a tuple, a map, an option: one call moves all tensors in them")?;
    let list = vec![x.clone(), &x + 1.0, &x + 2.0].to(&device)?;
    holds(list.iter().all(|tensor| tensor.device() == device), "all tensors of the list are on the device")?;
    let (images, (labels, count), name) = (x.clone(), (&x * 2.0, 7), "train".to_string()).to(&device)?;
    holds(images.device() == device && labels.device() == device, "so are those of nested tuples")?;
    holds(count == 7 && name == "train", "a number and a name are unchanged")?;
    let map = HashMap::from([("weight", x.clone()), ("bias", x.sum_axis(0, false)?)]).to(&device)?;
    holds(map.len() == 2 && map.values().all(|tensor| tensor.device() == device), "and those of a map")?;
    let nothing: Option<Tensor> = None;
    holds(nothing.to(&device)?.is_none(), "None stays None")?;

    writeln!(out, "your own struct: #[derive(ToDevice)]")?;
    let taken = std::time::SystemTime::now();
    let batch =
        Batch { images: x.clone(), boxes: vec![&x * 0.5], mask: Some(x.gt_scalar(0.5)), scale: 0.25, taken };
    let moved = batch.to(&device)?;
    let tensors = [Some(&moved.images), moved.boxes.first(), moved.mask.as_ref()];
    holds(tensors.into_iter().flatten().all(|t| t.device() == device), "its tensors are on the device")?;
    holds(moved.scale == 0.25 && moved.taken == taken, "its other fields are unchanged")?;
    holds(batch.images.device() == host, "and the first batch has not moved")?;

    writeln!(out, "a model: in place")?;
    let mut model =
        Sequential::new().add(Linear::new(options.columns, 8, &rng)?).add(Relu).add(Linear::new(8, 2, &rng)?);
    let before = no_grad(|| model.forward(&x))?;
    // The optimizer is made before the move; it shares the parameters.
    let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: 0.1, ..Default::default() });
    let parameter = model.parameters().swap_remove(0);
    model.to(&device)?;
    holds(parameter.device() == device, "a parameter handle from before the move is on the device too")?;
    let after = model.forward(&there)?;
    let apart = common::apart(&after, &before)?;
    holds(apart < 1e-5, "the model computes the same result there, up to rounding")?;
    let old = parameter.to_vec::<f32>()?;
    after.powi(2).mean().backward()?;
    sgd.step()?;
    holds(parameter.to_vec::<f32>()? != old, "the optimizer from before the move trains it there")?;

    writeln!(out, "an unsupported move fails and moves nothing")?;
    let missing = DType::ALL.into_iter().find(|&dtype| !device.supports(dtype));
    match missing {
        Some(dtype) => {
            let mixed = (x.clone(), Tensor::zeros(shape, (dtype, &host))?);
            let error = refused(mixed.to(&device))?;
            holds(
                matches!(error.kind(), ErrorKind::Unsupported { .. }),
                "a dtype that the device does not support is an error",
            )?;
            holds(mixed.0.device() == host && mixed.1.device() == host, "neither tensor has moved")?;
        }
        None => writeln!(out, "  {device} supports every dtype: nothing is refused")?,
    }
    if device != host {
        let error = refused(x.mul(&there))?;
        holds(matches!(error.kind(), ErrorKind::DeviceMismatch { .. }), "tensors of two devices do not mix")?;
    }
    writeln!(out, "all claims hold on {device}")?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
