//! The commands that look after the workspace: `cargo xtask <command>`. Each is a file of its own with a
//! `run`; a new one is a line in [`Command`] and a line in [`main`].

mod bench;
mod browser;
mod check_layers;
mod check_prose;
mod circles;
mod fuzz;
mod onnx_conformance;
mod operations;
mod test_all_backends;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// What went wrong, in words for the one who typed the command.
type Result<T, E = String> = std::result::Result<T, E>;

/// Looks after the Taper workspace.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    /// Time Taper's operations, beside the machine's limits, PyTorch or burn: `bench --help` says how
    #[command(disable_help_flag = true)]
    Bench(bench::Args),
    /// Serve the page of examples/browser, or check what it does: `browser --help` says how
    Browser(browser::Args),
    /// Check that crates depend on each other only as the design allows
    CheckLayers,
    /// Check that comments and documents are plain English: `check-prose crates/nn` reads a part
    CheckProse(check_prose::Args),
    /// Run random programs on a device, against the plain reference: `fuzz --help` says how
    #[command(disable_help_flag = true)]
    Fuzz(fuzz::Args),
    /// Run ONNX's test cases on a device: `onnx-conformance --help` says how
    #[command(disable_help_flag = true)]
    OnnxConformance(onnx_conformance::Args),
    /// Write docs/operations.md from the table of operations
    Operations(operations::Args),
    /// Run every test, the behaviour suite once on each device, and print one table
    TestAllBackends(test_all_backends::Args),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        // These say themselves what is wrong, and end as the program that they run.
        Command::Bench(args) => return bench::run(&args),
        Command::Fuzz(args) => return fuzz::run(&args),
        Command::OnnxConformance(args) => return onnx_conformance::run(&args),
        Command::Browser(args) => browser::run(&args),
        Command::CheckLayers => check_layers::run(),
        Command::CheckProse(args) => check_prose::run(&args),
        Command::Operations(args) => operations::run(&args),
        Command::TestAllBackends(args) => test_all_backends::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
