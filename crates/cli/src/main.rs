//! `taper`: language models, vision, speech, ONNX files and files of weights on the command line.
//!
//! One module for each command: its options, and `run`. `model` finds and loads models, `files` and `formats`
//! know the names of formats, `error` prints an error as one line. Results are written to standard output,
//! and remarks and progress to standard error.

mod classify;
mod compile;
mod completions;
mod convert;
mod detect;
mod devices;
mod error;
mod files;
mod formats;
mod inspect;
mod language;
mod model;
mod output;
mod pictures;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod speech;
#[cfg(feature = "studio")]
mod studio;
mod transcribe;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Runs models of others, trains adapters, and reads, converts and tests their files.
///
/// Each command explains itself: taper chat --help.
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
    Chat(language::chat::Options),
    Complete(language::complete::Options),
    Embed(language::embed::Options),
    #[cfg(feature = "serve")]
    Serve(serve::Options),
    Transcribe(transcribe::Options),
    Classify(classify::Options),
    Detect(detect::Options),
    Run(run::Options),
    #[cfg(feature = "studio")]
    Studio(studio::Options),
    Inspect(inspect::Options),
    Convert(convert::Options),
    Compile(compile::Options),
    Perplexity(language::perplexity::Options),
    Bench(language::bench::Options),
    FineTune(language::fine_tune::Options),
    Completions(completions::Options),
}

fn main() -> ExitCode {
    taper::end_quietly_on_closed_pipe();
    error::finish(match Options::parse().command {
        Command::Devices(options) => devices::run(&options),
        Command::Chat(options) => language::chat::run(options),
        Command::Complete(options) => language::complete::run(options),
        Command::Embed(options) => language::embed::run(&options),
        #[cfg(feature = "serve")]
        Command::Serve(options) => serve::run(&options),
        Command::Transcribe(options) => transcribe::run(&options),
        Command::Classify(options) => classify::run(&options),
        Command::Detect(options) => detect::run(&options),
        Command::Run(options) => run::run(&options),
        #[cfg(feature = "studio")]
        Command::Studio(options) => studio::run(&options),
        Command::Inspect(options) => inspect::run(&options),
        Command::Convert(options) => convert::run(&options),
        Command::Compile(options) => compile::run(&options),
        Command::Perplexity(options) => language::perplexity::run(&options),
        Command::Bench(options) => language::bench::run(&options),
        Command::FineTune(options) => language::fine_tune::run(&options),
        Command::Completions(options) => completions::run(&options, &mut Options::command()),
    })
}
