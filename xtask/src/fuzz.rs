//! `cargo xtask fuzz`: the program of crates/fuzz. Built as tests are: optimised, and with every debug assertion.

use std::{ffi::OsString, process::ExitCode};

use crate::workspace::{cargo, pass_on};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    pass_on(cargo().args(["run", "--quiet", "--package", "taper-fuzz", "--"]).args(&args.rest))
}
