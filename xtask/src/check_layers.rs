//! `cargo xtask check-layers`: arrows between the crates point down only, modules of a crate form no circles
//! except the listed ones, and crates that must stay light are light.

use crate::{
    Result, circles, publishing,
    workspace::{Dependency, Kind, Package, Workspace, cargo, output},
};

/// The tools: each may depend on any crate, and no crate on it.
const TOOLS: &[&str] = &["xtask", "taper-bench", "taper-fuzz", "taper-gpu-stats", "taper-onnx-conformance"];

/// Which crates every other crate may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "taper",
        &[
            "taper-data",
            "taper-distributed",
            "taper-distributions",
            "taper-inspect",
            "taper-linalg",
            "taper-models",
            "taper-onnx",
            "taper-ship",
            "taper-studio",
            "taper-train",
            "taper-weights",
            "taper-optim",
            "taper-nn",
            "taper-autograd",
            "taper-tensor-core",
            "taper-backend-cpu",
            "taper-backend-wgpu",
        ],
    ),
    ("taper-inspect", &["taper-tensor-core"]),
    (
        "taper-linalg",
        &["taper-autograd", "taper-tensor-core", "taper-backend-cpu", "taper-backend-wgpu", "taper-shaders"],
    ),
    ("taper-distributions", &["taper-linalg", "taper-autograd", "taper-tensor-core"]),
    ("taper-studio", &["taper-inspect", "taper-nn", "taper-autograd", "taper-tensor-core"]),
    ("taper-train", &["taper-inspect", "taper-studio", "taper-nn", "taper-optim", "taper-tensor-core"]),
    ("taper-models", &["taper-data", "taper-weights", "taper-nn", "taper-autograd", "taper-tensor-core"]),
    ("taper-weights", &["taper-nn", "taper-tensor-core"]),
    ("taper-data", &["taper-autograd", "taper-tensor-core", "taper-nn-derive"]),
    ("taper-onnx", &["taper-linalg", "taper-nn", "taper-autograd", "taper-tensor-core"]),
    ("taper-ship", &["taper-autograd", "taper-tensor-core", "taper-shaders"]),
    ("taper-distributed", &["taper-optim", "taper-nn", "taper-autograd", "taper-tensor-core"]),
    ("taper-optim", &["taper-autograd", "taper-tensor-core"]),
    ("taper-nn", &["taper-autograd", "taper-tensor-core", "taper-nn-derive"]),
    ("taper-nn-derive", &[]),
    ("taper-autograd", &["taper-tensor-core"]),
    ("taper-backend-cpu", &["taper-tensor-core"]),
    ("taper-backend-cpu-inside", &["taper-tensor-core"]),
    ("taper-backend-wgpu", &["taper-tensor-core", "taper-shaders"]),
    ("taper-shaders", &[]),
    ("taper-tensor-core", &[]),
    // Users' crates.
    ("taper-cli", &["taper"]),
    ("taper-python", &["taper"]),
    ("taper-examples", &["taper"]),
    ("taper-examples-language", &["taper"]),
    ("taper-examples-pictures", &["taper"]),
    ("taper-examples-cookbook", &["taper"]),
    ("taper-examples-onnx", &["taper"]),
    ("taper-examples-ship", &["taper"]),
    ("custom-op", &["taper"]),
    ("browser", &["taper", "taper-operations"]),
    // For tests: none of the above may depend on it but as a dev-dependency.
    ("taper-testing", &["taper-tensor-core"]),
    ("taper-operations", &["taper", "taper-testing"]),
];

/// A way of building that must stay light.
struct Light {
    /// The arguments of `cargo tree` that select it.
    arguments: &'static [&'static str],
    /// The beginnings of the names of crates that it must not pull in, on any platform.
    forbidden: &'static [&'static str],
    /// The greatest number of crates that it compiles on Linux, those of this workspace included.
    at_most: usize,
}

const LIGHT: &[Light] = &[
    Light {
        arguments: &["-p", "taper-tensor-core"],
        forbidden: &["ndarray", "wgpu", "naga", "libm", "serde"],
        at_most: 20,
    },
    // A program that computes on the CPU.
    Light {
        arguments: &["-p", "taper", "--no-default-features", "--features", "cpu"],
        forbidden: &[
            "taper-backend-wgpu",
            "csv",
            "taper-distributions",
            "faer",
            "flate2",
            "image",
            "indicatif",
            "naga",
            "taper-models",
            "taper-onnx",
            "plotters",
            "png",
            "proc-macro-crate",
            "prost",
            "realfft",
            "rustfft",
            "signal-hook",
            "taper-ship",
            "tempfile",
            "toml",
            "taper-studio",
            "taper-train",
            "taper-weights",
            "wgpu",
            "zip",
        ],
        at_most: 60,
    },
    // The first command of the README.
    Light {
        arguments: &["-p", "taper-examples"],
        forbidden: &[
            "csv",
            "faer",
            "font8x8",
            "image",
            "indicatif",
            "plotters",
            "png",
            "prost",
            "rustfft",
            "tempfile",
            "toml",
        ],
        at_most: 110,
    },
];

/// The platform on which crates are counted.
const COUNTED_ON: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::read()?;
    let mut wrongs = wrong_arrows(&workspace);
    wrongs.extend(LIGHT.iter().flat_map(Light::wrongs));
    wrongs.extend(circles::wrongs(&workspace));
    wrongs.extend(publishing::wrongs(&workspace));
    if wrongs.is_empty() {
        println!("layers: {} crates, every arrow points down", workspace.packages.len());
        Ok(())
    } else {
        Err(format!("the layers do not hold\n  {}", wrongs.join("\n  ")))
    }
}

impl Light {
    /// The forbidden crates that this way of building pulls in, and a count above the bound.
    fn wrongs(&self) -> Vec<String> {
        let tree = |options: &[&str]| {
            let mut tree = cargo();
            output(tree.arg("tree").args(self.arguments).args(["--prefix", "none"]).args(options))
        };
        let words = format!("cargo tree {}", self.arguments.join(" "));
        let mut wrongs = Vec::new();
        match tree(&["-e", "normal", "--target", "all"]) {
            Ok(tree) => wrongs.extend(
                heavy(&tree, self.forbidden)
                    .map(|package| format!("{package} is among the dependencies of `{words} -e normal`")),
            ),
            Err(message) => wrongs.push(message),
        }
        match tree(&["-e", "normal,build", "--target", COUNTED_ON]).map(|tree| crates(&tree)) {
            Ok(found) if found > self.at_most => wrongs.push(format!(
                "`{words} -e normal,build --target {COUNTED_ON}` has {found} crates, at most {} are allowed; leave out \
                 what is not needed, or raise the bound in xtask/src/check_layers.rs",
                self.at_most
            )),
            Ok(_) => {}
            Err(message) => wrongs.push(message),
        }
        wrongs
    }
}

/// Every dependency between crates of the workspace that the table does not allow. Tests may use any crate.
fn wrong_arrows(workspace: &Workspace) -> Vec<String> {
    let ours = |name: &str| workspace.packages.iter().any(|package| package.name == name);
    let mut wrongs = Vec::new();
    for package in workspace.packages.iter() {
        if TOOLS.contains(&package.name.as_str()) {
            wrongs.extend(on_tools(package));
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            wrongs.push(format!(
                "{} has no place in the layers; give it one in xtask/src/check_layers.rs",
                package.name
            ));
            continue;
        };
        let may = if allowed.is_empty() {
            "no other crate of the workspace".to_string()
        } else {
            allowed.join(", ")
        };
        for Dependency { name, kind, optional } in &package.dependencies {
            if *kind != Kind::Dev && ours(name) && !allowed.contains(&name.as_str()) {
                let how = match (kind, optional) {
                    (Kind::Build, _) => " (build)",
                    (_, true) => " (optional)",
                    _ => "",
                };
                wrongs.push(format!("{} -> {name}{how}: {} may depend on {may}", package.name, package.name));
            }
        }
    }
    wrongs
}

/// Arrows from a tool to a tool: they point nowhere that is down.
fn on_tools(tool: &Package) -> impl Iterator<Item = String> {
    tool.dependencies
        .iter()
        .filter(|dependency| TOOLS.contains(&dependency.name.as_str()))
        .map(|dependency| format!("{} -> {}: nothing may depend on a tool", tool.name, dependency.name))
}

/// The packages of a tree whose names begin with one of `forbidden`, each once.
fn heavy(tree: &str, forbidden: &[&str]) -> impl Iterator<Item = String> {
    let mut found: Vec<String> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| forbidden.iter().any(|start| name.starts_with(start)))
        .map(str::to_string)
        .collect();
    found.sort();
    found.dedup();
    found.into_iter()
}

/// How many crates a tree has, each counted once for each version.
fn crates(tree: &str) -> usize {
    let mut names: Vec<Vec<&str>> = tree
        .lines()
        .map(|line| line.split_whitespace().take(2).collect())
        .filter(|name: &Vec<_>| !name.is_empty())
        .collect();
    names.sort();
    names.dedup();
    names.len()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A workspace with these arrows: from, kind, to.
    fn workspace(arrows: &[(&str, Option<&str>, &str)]) -> Workspace {
        let names = ALLOWED.iter().map(|(name, _)| *name).chain(TOOLS.iter().copied());
        let packages: Vec<Value> = names
            .map(|name| {
                let dependencies: Vec<Value> = arrows
                    .iter()
                    .filter(|(from, ..)| *from == name)
                    .map(|(_, kind, to)| json!({"name": to, "kind": kind, "optional": false}))
                    .collect();
                json!({"id": name, "name": name, "manifest_path": format!("/{name}/Cargo.toml"),
                       "dependencies": dependencies, "targets": []})
            })
            .collect();
        Workspace::parse(&json!({"workspace_root": "/", "target_directory": "/target", "packages": packages}))
            .unwrap()
    }

    #[test]
    fn arrows_that_point_down_are_good() {
        let arrows: Vec<_> = ALLOWED
            .iter()
            .flat_map(|(from, allowed)| allowed.iter().map(move |to| (*from, None, *to)))
            .chain([
                ("xtask", None, "taper"),
                ("taper-bench", None, "taper"),
                ("taper-bench", None, "taper-tensor-core"),
                ("taper-tensor-core", None, "smallvec"),
                ("taper", Some("build"), "taper-nn"),
            ])
            .collect();
        assert_eq!(wrong_arrows(&workspace(&arrows)), [""; 0]);
    }

    #[test]
    fn any_other_arrow_is_named() {
        for (from, to) in [
            ("taper-tensor-core", "taper-autograd"),
            ("taper-tensor-core", "taper-backend-cpu"),
            ("taper-autograd", "taper-nn"),
            ("taper-nn", "taper-optim"),
            ("taper-optim", "taper-nn"),
            ("taper-data", "taper-nn"),
            ("taper-optim", "taper-nn-derive"),
            ("taper-backend-cpu", "taper-shaders"),
            ("taper-backend-wgpu", "taper-backend-cpu"),
            ("taper", "taper-nn-derive"),
            ("taper", "xtask"),
            ("taper-shaders", "taper-tensor-core"),
            ("taper-nn-derive", "taper-nn"),
        ] {
            for (kind, how) in [(None, ""), (Some("build"), " (build)")] {
                let wrongs = wrong_arrows(&workspace(&[(from, kind, to)]));
                assert_eq!(wrongs.len(), 1, "{from} -> {to}");
                assert!(
                    wrongs[0].starts_with(&format!("{from} -> {to}{how}: {from} may depend on ")),
                    "{wrongs:?}"
                );
            }
        }
    }

    #[test]
    fn nothing_depends_on_a_tool() {
        for from in ["taper", "taper-nn", "xtask"] {
            let wrongs = wrong_arrows(&workspace(&[(from, None, "taper-bench")]));
            assert_eq!(wrongs.len(), 1, "{from}");
            assert!(wrongs[0].starts_with(&format!("{from} -> taper-bench")), "{wrongs:?}");
        }
    }

    #[test]
    fn tests_may_use_any_crate() {
        let arrows =
            [("taper-tensor-core", Some("dev"), "taper-backend-cpu"), ("taper-nn", Some("dev"), "taper")];
        assert_eq!(wrong_arrows(&workspace(&arrows)), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_place_is_named() {
        let mut workspace = workspace(&[]);
        workspace.packages[0].name = "attic".to_string();
        assert!(wrong_arrows(&workspace)[0].starts_with("attic has no place in the layers"));
    }

    #[test]
    fn heavy_dependencies_are_found_once_and_by_their_beginnings() {
        let tree = "taper v0.1.0 (/x)\nwgpu-core v30.0.0\nwgpu v30.0.0\nwgpu v30.0.0 (*)\n\nmy-wgpu v1.0.0\n";
        assert_eq!(heavy(tree, &["wgpu", "naga"]).collect::<Vec<_>>(), ["wgpu", "wgpu-core"]);
        assert_eq!(heavy(tree, &["ndarray"]).count(), 0);
    }

    #[test]
    fn crates_are_counted_once_for_each_version() {
        let tree = "taper v0.1.0 (/x)\nsyn v2.0.0\nsyn v3.0.0\nsyn v2.0.0 (*)\n\nlog v0.4.0\n";
        assert_eq!(crates(tree), 4);
    }
}
