//! `cargo xtask check-layers`: arrows between the crates point down only, modules of a crate form no circles
//! except the listed ones, and crates that must stay light are light.

use crate::{
    Result, circles,
    workspace::{Dependency, Kind, Package, Workspace, cargo, output},
};

/// The tools: each may depend on any crate, and no crate on it.
const TOOLS: &[&str] = &["xtask", "taper-bench", "taper-fuzz", "taper-onnx-conformance"];

/// Which crates every other crate may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "taper",
        &[
            "data",
            "distributed",
            "distributions",
            "inspect",
            "linalg",
            "onnx",
            "train",
            "weights",
            "optim",
            "nn",
            "autograd",
            "tensor-core",
            "backend-cpu",
            "backend-wgpu",
        ],
    ),
    ("inspect", &["tensor-core"]),
    ("linalg", &["autograd", "tensor-core", "backend-cpu", "backend-wgpu", "taper-shaders"]),
    ("distributions", &["linalg", "autograd", "tensor-core"]),
    ("train", &["inspect", "nn", "optim", "tensor-core"]),
    ("weights", &["nn", "tensor-core"]),
    ("data", &["autograd", "tensor-core", "nn-derive"]),
    ("onnx", &["linalg", "nn", "autograd", "tensor-core"]),
    ("distributed", &["optim", "nn", "autograd", "tensor-core"]),
    ("optim", &["autograd", "tensor-core"]),
    ("nn", &["autograd", "tensor-core", "nn-derive"]),
    ("nn-derive", &[]),
    ("autograd", &["tensor-core"]),
    ("backend-cpu", &["tensor-core"]),
    ("backend-wgpu", &["tensor-core", "taper-shaders"]),
    ("taper-shaders", &[]),
    ("tensor-core", &[]),
    // Users' crates.
    ("custom-op", &["taper"]),
    ("browser", &["taper", "taper-operations"]),
    // For tests: none of the above may depend on it but as a dev-dependency.
    ("taper-testing", &["tensor-core"]),
    ("taper-operations", &["taper", "taper-testing"]),
];

/// Crates that a way of building must not pull in: the arguments of `cargo tree`, and the beginnings of their
/// names.
const LIGHT: &[(&[&str], &[&str])] = &[
    (&["-p", "tensor-core"], &["ndarray", "wgpu", "naga"]),
    (
        &["-p", "taper", "--no-default-features", "--features", "cpu"],
        &[
            "wgpu",
            "naga",
            "backend-wgpu",
            "faer",
            "train",
            "indicatif",
            "plotters",
            "signal-hook",
            "image",
            "weights",
            "zip",
            "onnx",
            "prost",
        ],
    ),
];

pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::read()?;
    let mut wrongs = wrong_arrows(&workspace);
    wrongs.extend(circles::wrongs(&workspace));
    for (arguments, forbidden) in LIGHT {
        let mut tree = cargo();
        tree.arg("tree").args(*arguments).args(["-e", "normal", "--target", "all", "--prefix", "none"]);
        match output(&mut tree) {
            Ok(tree) => wrongs.extend(heavy(&tree, forbidden).map(|package| {
                format!(
                    "{package} is among the dependencies of `cargo tree {} -e normal`",
                    arguments.join(" ")
                )
            })),
            Err(message) => wrongs.push(message),
        }
    }
    if wrongs.is_empty() {
        println!("layers: {} crates, every arrow points down", workspace.packages.len());
        Ok(())
    } else {
        Err(format!("the layers do not hold\n  {}", wrongs.join("\n  ")))
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
                ("taper-bench", None, "tensor-core"),
                ("tensor-core", None, "smallvec"),
                ("taper", Some("build"), "nn"),
            ])
            .collect();
        assert_eq!(wrong_arrows(&workspace(&arrows)), [""; 0]);
    }

    #[test]
    fn any_other_arrow_is_named() {
        for (from, to) in [
            ("tensor-core", "autograd"),
            ("tensor-core", "backend-cpu"),
            ("autograd", "nn"),
            ("nn", "optim"),
            ("optim", "nn"),
            ("data", "nn"),
            ("optim", "nn-derive"),
            ("backend-cpu", "taper-shaders"),
            ("backend-wgpu", "backend-cpu"),
            ("taper", "nn-derive"),
            ("taper", "xtask"),
            ("taper-shaders", "tensor-core"),
            ("nn-derive", "nn"),
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
        for from in ["taper", "nn", "xtask"] {
            let wrongs = wrong_arrows(&workspace(&[(from, None, "taper-bench")]));
            assert_eq!(wrongs.len(), 1, "{from}");
            assert!(wrongs[0].starts_with(&format!("{from} -> taper-bench")), "{wrongs:?}");
        }
    }

    #[test]
    fn tests_may_use_any_crate() {
        let arrows = [("tensor-core", Some("dev"), "backend-cpu"), ("nn", Some("dev"), "taper")];
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
}
