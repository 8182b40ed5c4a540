//! `cargo xtask bench`: the program of crates/bench, built as fast as can be. It is a crate of its own, so
//! that the other commands do not wait for it to be built.

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
