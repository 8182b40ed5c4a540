//! `cargo xtask bench`: runs the program of crates/bench, built in release mode. It is a separate
//! crate, so that the other commands do not have to build it.

use std::{ffi::OsString, process::ExitCode};

use crate::workspace::{cargo, pass_on};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    pass_on(cargo().args(["run", "--profile", "dist", "--package", "taper-bench", "--"]).args(&args.rest))
}
