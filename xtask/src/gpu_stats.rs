//! `cargo xtask gpu-stats`: the program of tools/gpu-stats.

use std::process::ExitCode;

use crate::workspace::{PassedOn, run_tool};

pub(crate) fn run(PassedOn { rest }: &PassedOn) -> ExitCode {
    run_tool("taper-gpu-stats", rest)
}
