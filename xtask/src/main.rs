//! The commands that maintain the workspace: `cargo xtask <command>`. Each is a file with a `run` function;
//! a new command is a line in [`Command`] and a line in [`main`].

mod bench;
mod browser;
mod check_layers;
mod check_prose;
mod circles;
mod fuzz;
mod models;
mod onnx_conformance;
mod operations;
mod sanitize;
mod test_all_backends;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

/// The error is a message for the user of the command.
type Result<T, E = String> = std::result::Result<T, E>;

/// Looks after the Taper workspace.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    /// Time Taper's operations, and compare them with the machine's limits, PyTorch or burn: see `bench
    /// --help`
    #[command(disable_help_flag = true)]
    Bench(bench::Args),
    /// Serve the page of examples/browser, or check it: see `browser --help`
    Browser(browser::Args),
    /// Check that crates depend on each other only as the design allows
    CheckLayers,
    /// Check that comments and documents are plain English: `check-prose crates/nn` reads a part
    CheckProse(check_prose::Args),
    /// Run random programs on a device and compare them with the plain reference: see `fuzz --help`
    #[command(disable_help_flag = true)]
    Fuzz(fuzz::Args),
    /// Run the tests of crates/models and write docs/models.md from what they compared
    Models,
    /// Run ONNX's test cases on a device: see `onnx-conformance --help`
    #[command(disable_help_flag = true)]
    OnnxConformance(onnx_conformance::Args),
    /// Write docs/operations.md from the table of operations
    Operations(operations::Args),
    /// Run the fuzzer and the readers of damaged files under AddressSanitizer, and Miri where it is installed
    Sanitize(sanitize::Args),
    /// Run every test, the behaviour suite once on each device, and print one table
    TestAllBackends(test_all_backends::Args),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        // These print their own errors, and exit with the code of the program that they run.
        Command::Bench(args) => return bench::run(&args),
        Command::Fuzz(args) => return fuzz::run(&args),
        Command::OnnxConformance(args) => return onnx_conformance::run(&args),
        Command::Browser(args) => browser::run(&args),
        Command::CheckLayers => check_layers::run(),
        Command::CheckProse(args) => check_prose::run(&args),
        Command::Models => models::run(),
        Command::Operations(args) => operations::run(&args),
        Command::Sanitize(args) => sanitize::run(&args),
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
