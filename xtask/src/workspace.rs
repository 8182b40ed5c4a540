//! The workspace as `cargo metadata` describes it.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use serde_json::Value;

use crate::Result;

/// The packages of the workspace, from `cargo metadata`.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Whether users can depend on it: its Cargo.toml does not say `publish = false`.
    pub(crate) published: bool,
    /// The names of its features.
    pub(crate) features: Vec<String>,
    /// How docs.rs builds it: `[package.metadata.docs.rs]`.
    pub(crate) docs_rs: Value,
    /// The directory of its Cargo.toml.
    pub(crate) dir: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

pub(crate) struct Dependency {
    /// The package's own name, even if the dependent renames it.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The feature that switches it on, if it is optional.
    pub(crate) optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

pub(crate) struct Target {
    pub(crate) name: String,
    /// Whether `cargo test` makes a test executable of it.
    pub(crate) tested: bool,
}

impl Workspace {
    pub(crate) fn read() -> Result<Self> {
        let metadata = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
        let metadata =
            serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
        Self::parse(&metadata).ok_or_else(|| "cargo metadata has another form than expected".to_string())
    }

    pub(crate) fn parse(metadata: &Value) -> Option<Self> {
        Some(Self {
            root: metadata["workspace_root"].as_str()?.into(),
            target: metadata["target_directory"].as_str()?.into(),
            packages: metadata["packages"].as_array()?.iter().map(package).collect::<Option<_>>()?,
        })
    }

    /// The arguments with which cargo builds everything, or all but tools and programs of examples.
    pub(crate) fn selection(&self, tools: bool) -> Vec<&str> {
        let of_suite = ["taper-backend-cpu-inside", "taper-examples", "taper-operations", "taper-testing"];
        let left_out = self.packages.iter().filter(|package| !tools && !package.published);
        let left_out = left_out.filter(|package| !of_suite.contains(&package.name.as_str()));
        ["--workspace"].into_iter().chain(left_out.flat_map(|package| ["--exclude", &package.name])).collect()
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }
}

fn package(package: &Value) -> Option<Package> {
    let mut dir = PathBuf::from(package["manifest_path"].as_str()?);
    dir.pop();
    Some(Package {
        id: package["id"].as_str()?.to_string(),
        name: package["name"].as_str()?.to_string(),
        published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        features: package["features"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect(),
        docs_rs: package["metadata"]["docs"]["rs"].clone(),
        dir,
        dependencies: package["dependencies"].as_array()?.iter().map(dependency).collect::<Option<_>>()?,
        targets: package["targets"].as_array()?.iter().map(target).collect::<Option<_>>()?,
    })
}

fn dependency(dependency: &Value) -> Option<Dependency> {
    Some(Dependency {
        name: dependency["name"].as_str()?.to_string(),
        kind: match dependency["kind"].as_str() {
            Some("dev") => Kind::Dev,
            Some("build") => Kind::Build,
            _ => Kind::Normal,
        },
        optional: dependency["optional"].as_bool()?,
    })
}

fn target(target: &Value) -> Option<Target> {
    // Behind a feature that may be off.
    let conditional = target["required-features"].as_array().is_some_and(|features| !features.is_empty());
    Some(Target {
        name: target["name"].as_str()?.to_string(),
        tested: target["test"].as_bool()? && !conditional,
    })
}

/// The cargo that runs this program, without the variables that describe this package: build scripts that
/// read such variables, as that of `ring` does, would run again, and all that stands on them be built again,
/// whenever cargo is called by hand in between.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// The output of a command, or an error with its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let words = in_words(command);
    let output = command.output().map_err(|e| format!("{words} cannot be run: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "{words}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program that prints its own errors, and returns its exit code.
pub(crate) fn pass_on(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {} cannot be run: {error}", in_words(command));
            ExitCode::FAILURE
        }
    }
}

/// Runs a command whose output goes to the terminal; `hint` says what to do if it fails.
pub(crate) fn succeed(command: &mut Command, hint: &str) -> Result<()> {
    let words = in_words(command);
    let status = command.status().map_err(|e| format!("{words} cannot be run: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{words}: {status} ({hint})")) }
}

/// The folder of the toolchain that compiles the workspace.
pub(crate) fn sysroot() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    Ok(PathBuf::from(output(Command::new(rustc).args(["--print", "sysroot"]))?.trim()))
}

/// The command as one would type it.
pub(crate) fn in_words(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let program = program.file_stem().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Options that a tool reads itself.
#[derive(clap::Args)]
pub(crate) struct PassedOn {
    /// Passed on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) rest: Vec<OsString>,
}

/// Builds a tool and runs it with these options.
pub(crate) fn run_tool(name: &str, options: &[OsString]) -> ExitCode {
    match build_tool(name) {
        Ok(program) => pass_on(Command::new(program).args(options)),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Builds a tool and returns its path. It uses the features of the whole workspace and of its tests, so that
/// their compiled crates are reused: the package alone has fewer features, and wgpu would be compiled again.
/// Building an example enables the features of tests.
pub(crate) fn build_tool(name: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command
        .args(["build", "--quiet", "--workspace", "--bin", name, "--example", "devices"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(Workspace::read()?.root)
        .stderr(Stdio::inherit());
    let words = in_words(&command);
    let output = command.output().map_err(|e| format!("{words} cannot be run: {e}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().find_map(|message| executable(message, name));
    program.filter(|_| output.status.success()).ok_or_else(|| format!("{words}: {}", output.status))
}

/// The path of the program, if one of cargo's messages has it.
fn executable(message: &str, name: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str()?;
    (message["target"]["name"] == name && message["target"]["kind"][0] == "bin").then(|| path.into())
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
        assert_eq!(
            executable(&message("taper-fuzz", "bin"), "taper-fuzz"),
            Some("/target/debug/taper-fuzz".into())
        );
        for other in [message("devices", "example"), message("taper-fuzz", "test"), "warning: x".to_string()]
        {
            assert_eq!(executable(&other, "taper-fuzz"), None);
        }
        let library = json!({"executable": null, "target": {"name": "taper-fuzz", "kind": ["bin"]}});
        assert_eq!(executable(&library.to_string(), "taper-fuzz"), None);
    }
}
