//! `cargo xtask bench`: the program of crates/bench, built as fast as can be. It is a crate of its own, so that the other
//! commands do not wait for it to be built.

use std::{ffi::OsString, process::ExitCode};

use crate::workspace::{cargo, in_words};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "taper-bench", "--"]).args(&args.rest);
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {} cannot be run: {error}", in_words(&command));
            ExitCode::FAILURE
        }
    }
}
