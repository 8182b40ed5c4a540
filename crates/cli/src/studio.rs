//! `taper studio`: what a network from an ONNX file does, as a page.

use std::{
    io::{self, Write},
    path::PathBuf,
    thread,
};

use clap::Args;
use taper::{explain, inspect::Graph, record_memory, studio};

use crate::{error::Outcome, run::NetworkOptions};

/// Runs a network from an ONNX file, and shows its graph, kernels, memory and pace on a page.
///
/// The page is served on this machine until the command is stopped with Ctrl-C; its address is the first line
/// of the output. With `--save` it becomes one file, which needs no server. `taper run --help` explains the
/// inputs.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper studio resnet50.onnx --input x=random:1x3x224x224
  taper studio model.onnx --input ids=ids.npy --device wgpu --save run.html")]
pub(crate) struct Options {
    #[command(flatten)]
    network: NetworkOptions,
    /// Writes the page to this file, in place of serving it
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// The number of runs that the page shows; the third one is profiled
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(3..))]
    repeat: u64,
}

/// Shows the network.
pub(crate) fn run(options: &Options) -> Outcome {
    record_memory(true);
    let network = options.network.open()?;
    let name =
        options.network.file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into());
    match &options.save {
        Some(_) => studio::record(),
        None => {
            let mut out = io::stdout();
            writeln!(out, "{}", studio::serve()?)?;
            out.flush()?;
        }
    }
    // Before the first run: later ones repeat its plan, and build no graph.
    let (_, tensors) = network.outputs()?;
    let outputs: Vec<_> = tensors.values().collect();
    let names: Vec<_> = tensors.iter().map(|(name, tensor)| (name, tensor.clone())).collect();
    studio::show_graph(&name, &Graph::of(&outputs, &names).folded());
    for (output, tensor) in &tensors {
        studio::show_explanation(output, &explain(tensor)?);
    }
    studio::show_limits(&network.device)?;
    for number in 0..options.repeat {
        studio::step(number, || network.run())?;
    }
    match &options.save {
        Some(path) => Ok(studio::save(path)?),
        None => {
            eprintln!("[{} runs; Ctrl-C ends the page]", options.repeat);
            loop {
                thread::park();
            }
        }
    }
}
