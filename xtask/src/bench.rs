//! `cargo xtask bench`: runs the program of tools/bench, built in release mode. It is a separate
//! crate, so that the other commands do not have to build it. With `--count` nothing is timed, so that the
//! build of the tests serves, unless `--host` asks for the time of the host.

use std::process::ExitCode;

use crate::workspace::{PassedOn, cargo, pass_on, run_tool};

pub(crate) fn run(PassedOn { rest }: &PassedOn) -> ExitCode {
    let given = |name: &str| rest.iter().any(|argument| argument == name);
    if given("--count") && !given("--host") {
        return run_tool("taper-bench", rest);
    }
    pass_on(cargo().args(["run", "--profile", "dist", "--package", "taper-bench", "--"]).args(rest))
}
