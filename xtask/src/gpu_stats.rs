//! `cargo xtask gpu-stats`: the program of crates/gpu-stats.

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
    match build_tool("taper-gpu-stats") {
        Ok(program) => pass_on(Command::new(program).args(&args.rest)),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
