//! `cargo xtask python`: builds the package of crates/python as a wheel, installs it into a fresh
//! environment of Python, and runs its tests there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Result, workspace::succeed};

/// The packages of the environment beside the wheel: the builder, and what the tests import.
const PACKAGES: &[&str] =
    &["ipykernel", "maturin>=1.9,<2", "mypy", "nbclient", "nbformat", "numpy", "pillow", "pytest", "tqdm"];

/// Further packages, which programs of `--programs` import.
const OF_PROGRAMS: &[&str] = &["gymnasium", "matplotlib", "six"];

/// Further packages, which the pages, tutorials and libraries of `--programs` with `--torch` import.
const OF_PAGES: &[&str] =
    &["ipython", "matplotlib-inline", "pandas", "scikit-learn", "scipy", "transformers"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The Python from which the environment is made, 3.10 or newer
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// The folder of the environment and the wheel, which is made anew
    #[arg(long, default_value = "target/python")]
    folder: PathBuf,
    /// Build the wheel without optimization of the crates above the backends, as tests do
    #[arg(long)]
    dev: bool,
    /// Build no wheel: take this native module, which `cargo build -p taper-python` makes in the folder of
    /// the build, with the sources of the package
    #[arg(long)]
    module: Option<PathBuf>,
    /// Time small operations in place of the tests
    #[arg(long, group = "beside_torch")]
    bench: bool,
    /// A Python with PyTorch, whose times and numbers `--bench` and `--programs` print beside
    #[arg(long, requires = "beside_torch")]
    torch: Option<PathBuf>,
    /// A folder with the folders of micrograd, minGPT, nanoGPT, pytorch/examples and others: run their
    /// programs on the same random numbers as PyTorch, and compare what they print with what it printed. With
    /// `--torch` PyTorch runs them too, and docs/benchmarks/programs.md is written
    #[arg(long, group = "beside_torch")]
    programs: Option<PathBuf>,
    /// A folder with programs of others, which the tests run to their end
    #[arg(long)]
    to_end: Option<PathBuf>,
    /// Options of pytest
    #[arg(last = true)]
    pytest: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = std::path::absolute(&args.folder).map_err(|error| error.to_string())?;
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let mut make = Command::new(&args.python);
    make.args(["-m", "venv"]).arg(&folder);
    succeed(&mut make, "Python makes no environment: is its module venv installed?")?;
    let bin = folder.join(if cfg!(windows) { "Scripts" } else { "bin" });
    let python = bin.join("python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
    if args.programs.is_some() {
        install.args(OF_PROGRAMS);
        install.args(args.torch.as_ref().map_or(&[][..], |_| OF_PAGES));
    }
    succeed(&mut install, "pip does not install what the tests need")?;
    let mut tests = Command::new(&python);
    if args.bench {
        tests.args(["crates/python/bench.py", "taper"]);
    } else if let Some(programs) = &args.programs {
        tests.args(["crates/python/programs/compare.py", "--programs"]).arg(programs);
        if let Some(torch) = &args.torch {
            tests.args(["--page", "docs/benchmarks/programs.md", "--torch"]).arg(torch);
        }
    } else {
        tests
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "crates/python/tests"])
            .args(&args.pytest);
    }
    if let Some(programs) = &args.to_end {
        tests.env("TAPER_PROGRAMS", std::path::absolute(programs).map_err(|error| error.to_string())?);
    }
    if let Some(module) = &args.module {
        tests.env("PYTHONPATH", in_place(&folder, module)?);
    } else {
        let wheels = folder.join("wheels");
        let mut build = Command::new(bin.join("maturin"));
        build.args(["build", "--manifest-path", "crates/python/Cargo.toml", "--out"]).arg(&wheels);
        build.args(["--profile", if args.dev { "dev" } else { "release" }]);
        succeed(&mut build, "the wheel is not built")?;
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--no-index", "--find-links"]).arg(&wheels);
        install.arg("taper-dl");
        succeed(&mut install, "the wheel is not installed")?;
    }
    if args.bench {
        tests.env("TAPER_THREADS", "1");
    }
    succeed(&mut tests, "a test of the package fails")?;
    match &args.torch {
        Some(torch) if args.bench => {
            succeed(Command::new(torch).args(["crates/python/bench.py", "torch"]), "PyTorch gives no times")
        }
        _ => Ok(()),
    }
}

/// A folder with the package's sources and a native module.
fn in_place(folder: &Path, module: &Path) -> Result<PathBuf> {
    let package = folder.join("package");
    copy(Path::new("crates/python/python/taper"), &package.join("taper"))?;
    let name = if cfg!(windows) { "_taper.pyd" } else { "_taper.abi3.so" };
    let to = package.join("taper").join(name);
    fs::copy(module, to).map_err(|error| format!("{}: {error}", module.display()))?;
    Ok(package)
}

/// Copies a folder with its folders.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to).map_err(failed)?;
        }
    }
    Ok(())
}
