//! `cargo xtask ship`: programs of compiled functions by gcc, clang and rustc, and a project for
//! microcontrollers in QEMU.

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
}

/// The processors that QEMU plays.
const TARGETS: &[&str] = &["thumbv7em-none-eabihf", "riscv32imac-unknown-none-elf"];

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::read()?;
    let folder = args.folder.clone().unwrap_or_else(|| workspace.target.join("ship"));
    let mut tests = cargo();
    tests.args(["test", "-p", "taper-ship", "--test", "it"]);
    succeed(
        &mut tests,
        "a program differs from the interpreter of its plan, or gcc, clang or rustc is missing",
    )?;
    let mut example = cargo();
    example
        .args(["run", "-p", "taper-examples-ship", "--example", "ship_digits", "--", "--out"])
        .arg(&folder);
    succeed(&mut example, "the networks are not shipped")?;
    for target in TARGETS {
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
