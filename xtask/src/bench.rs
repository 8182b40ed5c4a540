//! `cargo xtask bench`: runs the program of crates/bench, built in release mode. It is a separate
//! crate, so that the other commands do not have to build it. With `--count` nothing is timed, so that the
//! build of the tests serves.

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
};

use crate::workspace::{build_tool, cargo, pass_on};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if args.rest.iter().any(|argument| argument == "--count") {
        return match build_tool("taper-bench") {
            Ok(program) => pass_on(Command::new(program).args(&args.rest)),
            Err(message) => {
                eprintln!("error: {message}");
                ExitCode::FAILURE
            }
        };
    }
    pass_on(cargo().args(["run", "--profile", "dist", "--package", "taper-bench", "--"]).args(&args.rest))
}
