//! One build of every test executable, and of the example that lists devices, so that each dependency is
//! compiled once, with one set of features. xtask then runs the executables itself: the suite's once per
//! device, and each under the name of its crate.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Stdio,
};

use serde_json::Value;

use crate::{
    Result,
    workspace::{Workspace, cargo},
};

/// The example that lists the devices of this machine.
pub(crate) const DEVICES: &str = "devices";

/// The result of building the workspace's tests.
#[derive(Default)]
pub(crate) struct Built {
    pub(crate) tests: Vec<Executable>,
    pub(crate) examples: Vec<Executable>,
    /// Whether all of it compiled.
    pub(crate) whole: bool,
}

/// A program, and the package and target that it was built from.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    pub(crate) package: String,
    pub(crate) target: String,
    pub(crate) path: PathBuf,
}

/// Builds the tests that `cargo test --no-run` would build, and passes cargo's messages to the terminal.
/// `cargo test` itself would stop at the first crate that does not compile, and would link all examples.
pub(crate) fn build(workspace: &Workspace, tools: bool) -> Result<Built> {
    let mut command = cargo();
    command
        .arg("build")
        .args(workspace.selection(tools))
        .args(["--tests", "--example", DEVICES, "--keep-going"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(&workspace.root)
        .stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cargo cannot be run: {e}"))?;
    let mut built = Built::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(|e| format!("cargo's messages cannot be read: {e}"))?;
            if let Ok(message) = serde_json::from_str(&line) {
                built.take_in(&message, workspace);
            }
        }
    }
    // Cargo reports executables in the order in which they finish; the table needs a fixed order.
    built.tests.sort_by(|a, b| (&a.package, &a.path).cmp(&(&b.package, &b.path)));
    built.whole = child.wait().map_err(|e| format!("cargo was lost: {e}"))?.success();
    Ok(built)
}

impl Built {
    fn take_in(&mut self, message: &Value, workspace: &Workspace) {
        let found = (|| {
            let path = message["executable"].as_str()?;
            let package = workspace.by_id(message["package_id"].as_str()?)?;
            let target = message["target"]["name"].as_str()?;
            Some(Executable { package: package.name.clone(), target: target.to_string(), path: path.into() })
        })();
        let Some(executable) = found else { return };
        if message["profile"]["test"].as_bool() == Some(true) {
            self.tests.push(executable);
        } else if message["target"]["kind"][0].as_str() == Some("example") {
            self.examples.push(executable);
        }
    }

    /// The targets with tests for which there is no executable: package and target.
    pub(crate) fn missing<'w>(&self, workspace: &'w Workspace, tools: bool) -> Vec<(&'w str, &'w str)> {
        let built = |package: &str, target: &str| {
            self.tests.iter().any(|t| t.package == package && t.target == target)
        };
        let mut missing = Vec::new();
        let selection = workspace.selection(tools);
        for package in workspace.packages.iter().filter(|p| !selection.contains(&p.name.as_str())) {
            for target in package.targets.iter().filter(|target| target.tested) {
                if !built(&package.name, &target.name) {
                    missing.push((package.name.as_str(), target.name.as_str()));
                }
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace() -> Workspace {
        let target = |name: &str, test: bool| json!({"name": name, "test": test});
        let package = |name: &str, targets: Vec<Value>| {
            json!({"id": format!("path+file:///{name}#0.1.0"), "name": name, "dependencies": [],
                   "manifest_path": format!("/{name}/Cargo.toml"), "targets": targets})
        };
        let packages = [
            package("nn", vec![target("nn", true), target("layers", true)]),
            package(
                "taper",
                vec![
                    target("taper", true),
                    target("devices", false),
                    json!({"name": "gpu", "test": true, "required-features": ["wgpu"]}),
                ],
            ),
        ];
        Workspace::parse(&json!({"workspace_root": "/", "target_directory": "/target", "packages": packages}))
            .unwrap()
    }

    fn artifact(package: &str, kind: &str, target: &str, test: bool) -> Value {
        json!({"reason": "compiler-artifact", "package_id": format!("path+file:///{package}#0.1.0"),
               "target": {"name": target, "kind": [kind]}, "profile": {"test": test},
               "executable": format!("/target/debug/{target}")})
    }

    #[test]
    fn executables_are_sorted_and_missing_ones_are_noticed() {
        let workspace = workspace();
        let mut built = Built::default();
        for message in [
            artifact("nn", "lib", "nn", true),
            artifact("taper", "example", "devices", false),
            artifact("taper", "bin", "taper", false),
            artifact("elsewhere", "lib", "serde", true),
            json!({"reason": "compiler-artifact", "package_id": "path+file:///nn#0.1.0", "executable": null}),
            json!({"reason": "build-finished", "success": true}),
        ] {
            built.take_in(&message, &workspace);
        }
        assert_eq!(built.tests.len(), 1);
        assert_eq!((built.tests[0].package.as_str(), built.tests[0].target.as_str()), ("nn", "nn"));
        assert_eq!(built.examples.len(), 1);
        assert_eq!(built.examples[0].path, PathBuf::from("/target/debug/devices"));
        assert_eq!(built.missing(&workspace, true), [("nn", "layers"), ("taper", "taper")]);
    }
}
