//! `cargo xtask sanitize`: unsafe code under watch. AddressSanitizer watches the fuzzer's programs on the CPU
//! and the readers of damaged files; Miri interprets the unit tests of the CPU backend's memory, vectors and
//! elementwise kernels where its component is installed.
//!
//! The sanitizer's runtime comes with the toolchain; its flag does not yet belong to the stable compiler, so
//! `RUSTC_BOOTSTRAP` permits it for these builds alone, in a target directory of their own.

use std::process::Command;

use crate::{
    Result,
    workspace::{Workspace, cargo, output, succeed, sysroot},
};

/// The modules of backend-cpu whose unit tests Miri interprets, with the instruction set that it knows.
const INTERPRETED: &[&str] = &["memory::", "simd::", "elementwise::"];

/// The hint of a command that prints its own failures.
const SEE_ABOVE: &str = "see above";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Programs that the fuzzer draws
    #[arg(long, value_name = "N", default_value_t = 200)]
    programs: usize,
    /// The fuzzer's seed [default: the fuzzer's own]
    #[arg(long)]
    seed: Option<u64>,
    /// Only the fuzzer's programs
    #[arg(long)]
    fuzzer: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::read()?;
    let host = host(&output(Command::new("rustc").arg("-vV"))?)?;
    if has_address_sanitizer(&host) {
        let sanitized = |command: &mut Command| {
            command
                .current_dir(&workspace.root)
                .env("RUSTC_BOOTSTRAP", "1")
                // Only with a target named do the flags leave out build scripts and procedural macros.
                .args(["--target", &host])
                .env("RUSTFLAGS", "-Zsanitizer=address")
                .env("CARGO_TARGET_DIR", workspace.target.join("sanitize"))
                // Tensors that tests keep for the whole process are no leaks.
                .env("ASAN_OPTIONS", "detect_leaks=0");
        };
        let mut fuzz = cargo();
        // Little is optimized, so that the build takes less time.
        fuzz.args(["--config", "profile.dev.package.\"*\".opt-level=1"]);
        for package in ["taper-backend-cpu", "taper-testing"] {
            fuzz.args(["--config", &format!("profile.dev.package.{package}.opt-level=1")]);
        }
        fuzz.args(["run", "--package", "taper-fuzz", "--bin", "taper-fuzz", "--no-default-features"]);
        sanitized(&mut fuzz);
        fuzz.args(["--", "--device", "cpu", "--programs", &args.programs.to_string()]);
        fuzz.args(args.seed.map(|seed| format!("--seed={seed}")));
        succeed(&mut fuzz, SEE_ABOVE)?;
        if !args.fuzzer {
            let mut files = cargo();
            files.args(["test", "--package", "taper-weights", "--test", "it"]);
            sanitized(&mut files);
            // Not the tests that bound memory: the sanitizer takes memory of its own.
            let watched = ["--", "a_file_that_is_cut_off", "damaged_files", "archives_made_to_harm"];
            succeed(files.args(watched), SEE_ABOVE)?;
        }
    } else {
        println!("AddressSanitizer: not run, the toolchain has no runtime of it for {host}");
    }
    if args.fuzzer {
        return Ok(());
    }

    let installed = cargo().args(["miri", "--version"]).output().is_ok_and(|output| output.status.success());
    if installed {
        let mut miri = cargo();
        miri.args(["miri", "test", "--package", "taper-backend-cpu", "--lib", "--"]).args(INTERPRETED);
        miri.current_dir(&workspace.root).env("MIRIFLAGS", "-Zmiri-disable-isolation");
        succeed(miri.env("TAPER_CPU_ISA", "baseline").env("TAPER_THREADS", "1"), SEE_ABOVE)?;
    } else {
        println!("Miri: not run, the toolchain has no component miri");
    }
    Ok(())
}

/// The target of the compiler itself, from what `rustc -vV` prints.
fn host(version: &str) -> Result<String> {
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_string).ok_or_else(|| "rustc -vV names no host".to_string())
}

/// Whether the toolchain brings AddressSanitizer's runtime for a target.
fn has_address_sanitizer(host: &str) -> bool {
    let Ok(sysroot) = sysroot() else { return false };
    let libraries = sysroot.join("lib/rustlib").join(host).join("lib");
    let entries = std::fs::read_dir(libraries).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("asan"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_read_from_the_compilers_version() {
        let version = "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";
        assert_eq!(host(version), Ok("x86_64-unknown-linux-gnu".to_string()));
        assert!(host("rustc 1.95.0").is_err());
    }
}
