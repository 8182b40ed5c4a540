//! `cargo xtask fuzz`: the programs of crates/fuzz, of which `files` is one of its own with a counting
//! allocator. Built as tests are: optimised, and with every debug assertion.

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
    let (tool, rest) = match args.rest.split_first() {
        Some((first, rest)) if first == "files" => ("taper-fuzz-files", rest),
        _ => ("taper-fuzz", args.rest.as_slice()),
    };
    match build_tool(tool) {
        Ok(program) => pass_on(Command::new(program).args(rest)),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
