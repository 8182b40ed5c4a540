//! `cargo xtask fuzz`: the programs of tools/fuzz, of which `files` is one of its own with a counting
//! allocator. Built as tests are: optimised, and with every debug assertion.

use std::process::ExitCode;

use crate::workspace::{PassedOn, run_tool};

pub(crate) fn run(PassedOn { rest }: &PassedOn) -> ExitCode {
    match rest.split_first() {
        Some((first, rest)) if first == "files" => run_tool("taper-fuzz-files", rest),
        _ => run_tool("taper-fuzz", rest),
    }
}
