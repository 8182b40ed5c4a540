//! `cargo xtask ship`: programs of compiled functions by gcc, clang and rustc and on pages in Chromium, a
//! short training of one of MLPerf Tiny's networks, and a project for microcontrollers in QEMU.

use std::path::PathBuf;

use crate::{
    Result,
    workspace::{Workspace, cargo, succeed},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder for the project; by default one in the target directory
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The built example `ship_digits`, beside `ship_tiny`, in place of the tests and of building both
    #[arg(long)]
    program: Option<PathBuf>,
    /// Leave the processors in QEMU out, where their standard library cannot be installed
    #[arg(long)]
    host_only: bool,
    /// Leave the pages out, where there is no Chromium: their kernels are validated only
    #[arg(long)]
    no_browser: bool,
}

/// The least area under the curve of faults, by the program of MLPerf Tiny's autoencoder after one pass. The
/// area is 0.943 then, and 0.8215 before it.
const MIN_AREA: &str = "0.92";

/// The processors that QEMU plays.
const TARGETS: &[&str] = &["thumbv7em-none-eabihf", "riscv32imac-unknown-none-elf"];

/// An example, built by cargo when it runs.
fn built(name: &str) -> std::process::Command {
    let mut example = cargo();
    example.args(["run", "-p", "taper-examples-ship", "--example", name, "--"]);
    example
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::read()?;
    let folder = args.folder.clone().unwrap_or_else(|| workspace.target.join("ship"));
    let mut example = match &args.program {
        Some(program) => std::process::Command::new(program),
        None => {
            let mut tests = cargo();
            tests.args(["test", "-p", "taper-ship", "--test", "it"]);
            let all = [("chromium", args.no_browser), ("qemu", args.host_only)];
            let (skipped, required): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, skipped)| *skipped);
            let names = |list: &[(&'static str, bool)]| {
                list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("+")
            };
            if !skipped.is_empty() {
                println!("skipped: programs in {}", names(&skipped));
            }
            if !required.is_empty() {
                tests.env("TAPER_TEST", format!("require={}", names(&required)));
            }
            succeed(
                &mut tests,
                "a program differs from the interpreter of its plan, or gcc, clang, rustc, Chromium or QEMU is missing",
            )?;
            built("ship_digits")
        }
    };
    let mut tiny = match &args.program {
        Some(program) => std::process::Command::new(
            program.with_file_name(format!("ship_tiny{}", std::env::consts::EXE_SUFFIX)),
        ),
        None => built("ship_tiny"),
    };
    tiny.args(["--only", "sounds", "--epochs", "1", "--at-least", MIN_AREA, "--out"]);
    succeed(tiny.arg(folder.join("tiny")), "a network that hears faults is not trained and shipped")?;
    succeed(example.arg("--out").arg(&folder), "the networks are not shipped")?;
    for target in TARGETS.iter().filter(|_| !args.host_only) {
        // A project of its own, with its own target directory.
        let mut firmware = cargo();
        firmware.current_dir(&folder).env_remove("CARGO_TARGET_DIR").args([
            "run",
            "--release",
            "--target",
            target,
        ]);
        let message = format!(
            "{target} does not read the digits, or is missing: rustup target add {target}; apt-get install \
             qemu-system-arm qemu-user"
        );
        succeed(&mut firmware, &message)?;
    }
    Ok(())
}
