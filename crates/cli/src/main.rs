//! `taper`: language models, vision, speech, ONNX files and files of weights on the command line.
//!
//! One module for each command: its options, and `run`. [`model`] finds and loads models, [`error`] prints an
//! error as one line. Results are written to standard output, and remarks and progress to standard error.

mod devices;
mod error;
mod model;
#[cfg(feature = "serve")]
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs models of others, and reads, converts and tests their files.
#[derive(Parser)]
#[command(name = "taper", version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

/// The commands. Their descriptions are those of their options.
#[derive(Subcommand)]
enum Command {
    Devices(devices::Options),
    #[cfg(feature = "serve")]
    Serve(serve::Options),
}

fn main() -> ExitCode {
    taper::end_quietly_on_closed_pipe();
    error::finish(match Options::parse().command {
        Command::Devices(options) => devices::run(&options),
        #[cfg(feature = "serve")]
        Command::Serve(options) => serve::run(&options),
    })
}
