//! `taper devices`: the processors and GPUs of this machine.

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};

use crate::{error::Outcome, output};

/// Lists the devices of this machine: the processor and every GPU.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper devices           a line for each device; its name is for --device
  taper devices --json    with dtypes and limits, for programs

`--device auto`, the default of other commands, is the device in the variable TAPER_DEVICE, or the first GPU
that is hardware, or the processor.")]
pub(crate) struct Options {
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Prints the devices.
pub(crate) fn run(options: &Options) -> Outcome {
    if !options.json {
        let mut out = io::stdout().lock();
        for device in taper::devices() {
            writeln!(out, "{device}")?;
        }
        return Ok(());
    }
    let devices: Vec<Value> = taper::devices()
        .into_iter()
        .map(|device| {
            json!({
                "name": device.name,
                "description": device.description,
                "driver": device.driver,
                "kind": device.kind.to_string(),
                "memory_bytes": device.memory,
                "dtypes": device.dtypes.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "max_buffer_bytes": device.limits.max_buffer_bytes,
            })
        })
        .collect();
    output::json(&devices.into())
}
