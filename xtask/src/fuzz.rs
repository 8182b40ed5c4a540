//! `cargo xtask fuzz`: the program of crates/fuzz. Built as tests are: optimised, and with every debug
//! assertion.

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
};

use crate::workspace::{build_tool, pass_on};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match build_tool("taper-fuzz") {
        Ok(program) => pass_on(Command::new(program).args(&args.rest)),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
