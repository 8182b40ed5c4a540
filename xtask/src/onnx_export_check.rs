//! `cargo xtask onnx-export-check`: the tests of crates/onnx write the files that they export, and
//! `scripts/onnx_export_check.py` compares them with ONNX's checker and ONNX Runtime.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    Result,
    workspace::{cargo, succeed},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A Python with onnx, onnxruntime, safetensors and torch
    #[arg(long)]
    python: PathBuf,
    /// The folder for the files; they stay there
    #[arg(long, default_value = "target/onnx-export")]
    folder: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = std::path::absolute(&args.folder).map_err(|error| error.to_string())?;
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let setting = format!("written={}", folder.display());
    let mut tests = cargo();
    tests.args(["test", "-p", "taper-onnx", "--test", "it", "export"]).env("TAPER_TEST", setting);
    succeed(&mut tests, "a model is not exported as it is")?;
    let mut check = Command::new(&args.python);
    check.arg("scripts/onnx_export_check.py").arg(&folder);
    succeed(&mut check, "ONNX's checker or ONNX Runtime does not agree with an exported file")
}
