//! `cargo xtask onnx-conformance`: the program of tools/onnx-conformance.

use std::process::ExitCode;

use crate::workspace::{PassedOn, run_tool};

pub(crate) fn run(PassedOn { rest }: &PassedOn) -> ExitCode {
    run_tool("taper-onnx-conformance", rest)
}
