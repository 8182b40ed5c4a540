//! `cargo xtask fuzz`: the program of crates/fuzz. Built as tests are: optimised, and with every debug assertion.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use serde_json::Value;

use crate::{
    Result,
    workspace::{Workspace, cargo, in_words, pass_on},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match build() {
        Ok(program) => pass_on(Command::new(program).args(&args.rest)),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the program with the features of the whole workspace and of its tests, so that everything compiled for those serves here.
/// The package alone has fewer features, and wgpu would be compiled once more. An example brings in the features of tests.
fn build() -> Result<PathBuf> {
    let mut command = cargo();
    command
        .args(["build", "--quiet", "--workspace", "--bin", "taper-fuzz", "--example", "devices"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(Workspace::read()?.root)
        .stderr(Stdio::inherit());
    let words = in_words(&command);
    let output = command.output().map_err(|e| format!("{words} cannot be run: {e}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().find_map(executable);
    program.filter(|_| output.status.success()).ok_or_else(|| format!("{words}: {}", output.status))
}

/// Where the program is, if one of cargo's messages says so.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str()?;
    (message["target"]["name"] == "taper-fuzz" && message["target"]["kind"][0] == "bin").then(|| path.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_program_is_found_among_cargos_messages() {
        let message = |name: &str, kind: &str| {
            json!({"executable": format!("/target/debug/{name}"), "target": {"name": name, "kind": [kind]}})
                .to_string()
        };
        assert_eq!(executable(&message("taper-fuzz", "bin")), Some("/target/debug/taper-fuzz".into()));
        for other in [message("devices", "example"), message("taper-fuzz", "test"), "warning: x".to_string()]
        {
            assert_eq!(executable(&other), None);
        }
        let library = json!({"executable": null, "target": {"name": "taper-fuzz", "kind": ["bin"]}});
        assert_eq!(executable(&library.to_string()), None);
    }
}
