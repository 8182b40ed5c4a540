//! `cargo xtask browser`: the page of examples/browser. Its tools (examples/browser/serve) are not a member
//! of the workspace, so that other builds do not compile them.

use std::{ffi::OsString, process::Command};

use crate::{
    Result,
    workspace::{Workspace, cargo, succeed},
};

const TARGET: &str = "wasm32-unknown-unknown";

/// Files that the page fetches: a network, and a recording with what ONNX Runtime makes of it.
const FILES: [&str; 2] =
    ["crates/onnx/tests/models/silero_vad.onnx", "crates/onnx/tests/models/silero_vad.safetensors"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Open the page in Chromium without a window, and check that it learns and hears on the processor and on
    /// the GPU alike, and that every operation of the table is right on the GPU
    #[arg(long)]
    check: bool,
    /// With --check: only the operations whose names begin so
    #[arg(long, default_value = "")]
    only: String,
    /// The port on this machine
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// A program that builds for wasm32-unknown-unknown, in place of cargo: scripts/wasm_cargo_debian.sh
    /// where rustup has no such target
    #[arg(long)]
    cargo: Option<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::read()?;
    let mut build = args.cargo.as_ref().map_or_else(cargo, Command::new);
    build
        .current_dir(&workspace.root)
        .args(["rustc", "--profile", "dist", "--package", "browser", "--lib", "--crate-type", "cdylib"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(&workspace.target);
    if args.check {
        build.args(["--features", "operations"]);
    }
    succeed(&mut build, &format!("rustup target add {TARGET}"))?;

    let folder = workspace.root.join("examples/browser");
    let mut serve = cargo();
    serve
        .args(["run", "--release", "--quiet", "--manifest-path"])
        .arg(folder.join("serve/Cargo.toml"))
        .arg("--target-dir")
        .arg(workspace.target.join("serve"))
        .arg("--")
        .arg(workspace.target.join(TARGET).join("dist/browser.wasm"))
        .arg(folder.join("page"))
        .arg(workspace.target.join("page"))
        .args(FILES.iter().flat_map(|name| ["--with".into(), workspace.root.join(name)]))
        .args(["--port", &args.port.to_string()]);
    if args.check {
        serve.args(["--check", "--only", &args.only]);
    }
    succeed(&mut serve, "see above")
}
