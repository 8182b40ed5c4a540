//! `cargo xtask bench`: runs the program of crates/bench, built in release mode. It is a separate
//! crate, so that the other commands do not have to build it. With `--count` nothing is timed, so that the
//! build of the tests serves.

use std::process::ExitCode;

use crate::workspace::{PassedOn, cargo, pass_on, run_tool};

pub(crate) fn run(PassedOn { rest }: &PassedOn) -> ExitCode {
    if rest.iter().any(|argument| argument == "--count") {
        return run_tool("taper-bench", rest);
    }
    pass_on(cargo().args(["run", "--profile", "dist", "--package", "taper-bench", "--"]).args(rest))
}
