//! The commands that maintain the workspace: `cargo xtask <command>`. Each is a file with a `run` function;
//! a new command is a line in [`Command`] and a line in [`main`].

mod bench;
mod browser;
mod check_layers;
mod check_prose;
mod circles;
mod decisions;
mod fuzz;
mod gpu_stats;
mod house;
mod model_table;
mod models;
mod onnx_conformance;
mod onnx_export_check;
mod operations;
#[path = "../../crates/taper/src/pipe.rs"]
#[allow(unreachable_pub)] // it is public in taper
mod pipe;
mod publishing;
mod python;
mod sanitize;
mod ship;
mod test_all_backends;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use crate::workspace::PassedOn;

/// The error is a message for the user of the command.
type Result<T, E = String> = std::result::Result<T, E>;

/// Looks after the Taper workspace.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Command {
    /// Time Taper's operations, and compare them with the machine's limits, PyTorch or burn: see `bench
    /// --help`
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
    /// Serve the page of examples/browser, or check it: see `browser --help`
    Browser(browser::Args),
    /// Check that crates depend on each other only as the design allows, and that docs.rs can build them
    CheckLayers,
    /// Check that comments and documents are plain English, and that each decision has a status:
    /// `check-prose crates/nn` reads a part
    CheckProse(check_prose::Args),
    /// Run random programs on a device and compare them with the plain reference: see `fuzz --help`
    #[command(disable_help_flag = true)]
    Fuzz(PassedOn),
    /// Compile kernels for AMD's GPUs without a GPU, and compare registers, spills and costs with a table:
    /// see `gpu-stats --help`
    #[command(disable_help_flag = true)]
    GpuStats(PassedOn),
    /// Count what makes the sources hard to live in, each against a bound
    House(house::Args),
    /// Get ONNX's test cases and networks of other projects, and check Taper on them
    Models(models::Args),
    /// Run the tests of crates/models and write docs/models.md from what they compared
    ModelTable,
    /// Run ONNX's test cases on a device: see `onnx-conformance --help`
    #[command(disable_help_flag = true)]
    OnnxConformance(PassedOn),
    /// Compare exported ONNX files with ONNX's checker and ONNX Runtime
    OnnxExportCheck(onnx_export_check::Args),
    /// Write docs/operations.md from the table of operations
    Operations(operations::Args),
    /// Build the package of crates/python, install it into a fresh environment, and run its tests
    Python(python::Args),
    /// Run the checks of a minute: formatting, layers, prose, and the behaviour suite on the CPU without the
    /// gradients of the table of operations
    Quick,
    /// Compile programs of functions with gcc, clang and rustc, and read digits in QEMU
    Ship(ship::Args),
    /// Run the fuzzer and the readers of damaged files under AddressSanitizer, and Miri where it is installed
    Sanitize(sanitize::Args),
    /// Run every test, the behaviour suite once on each device, and print one table
    TestAllBackends(test_all_backends::Args),
}

fn main() -> ExitCode {
    pipe::end_quietly_on_closed_pipe();
    let result = match Command::parse() {
        // These print their own errors, and exit with the code of the program that they run.
        Command::Bench(args) => return bench::run(&args),
        Command::Fuzz(args) => return fuzz::run(&args),
        Command::GpuStats(args) => return gpu_stats::run(&args),
        Command::OnnxConformance(args) => return onnx_conformance::run(&args),
        Command::Browser(args) => browser::run(&args),
        Command::CheckLayers => check_layers::run(),
        Command::CheckProse(args) => check_prose::run(&args),
        Command::House(args) => house::run(&args),
        Command::Models(args) => models::run(&args),
        Command::OnnxExportCheck(args) => onnx_export_check::run(&args),
        Command::ModelTable => model_table::run(),
        Command::Operations(args) => operations::run(&args),
        Command::Python(args) => python::run(&args),
        Command::Quick => test_all_backends::quick(),
        Command::Sanitize(args) => sanitize::run(&args),
        Command::Ship(args) => ship::run(&args),
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
