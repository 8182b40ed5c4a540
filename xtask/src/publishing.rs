//! Packages that users can depend on, those without `publish = false`, say how docs.rs builds them.
//! `cargo publish --workspace` follows the same field.

use serde_json::Value;

use crate::workspace::{Package, Workspace};

/// The published packages without valid metadata for docs.rs.
pub(crate) fn wrongs(workspace: &Workspace) -> Vec<String> {
    let published = workspace.packages.iter().filter(|package| package.published);
    published.flat_map(|package| faults(package).map(|fault| format!("{}: {fault}", package.name))).collect()
}

fn faults(package: &Package) -> impl Iterator<Item = String> {
    let docs = &package.docs_rs;
    let targets = docs["targets"].as_array().is_some_and(|targets| !targets.is_empty());
    let missing = (!targets).then(|| "[package.metadata.docs.rs] has no targets".to_string());
    let named = docs["features"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let unknown = named.filter(|feature| !package.features.iter().any(|known| known == feature));
    missing.into_iter().chain(
        unknown.map(|feature| format!("docs.rs would build the feature {feature}, which does not exist")),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrongs_of(publish: Value, metadata: Value) -> Vec<String> {
        let package = json!({"id": "a", "name": "a", "manifest_path": "/a/Cargo.toml", "publish": publish,
                             "features": {"text": []}, "metadata": metadata, "dependencies": [], "targets": []});
        let workspace = json!({"workspace_root": "/", "target_directory": "/target", "packages": [package]});
        wrongs(&Workspace::parse(&workspace).unwrap())
    }

    #[test]
    fn published_packages_tell_docs_rs_what_to_build() {
        let docs = |docs: Value| json!({"docs": {"rs": docs}});
        let good = docs(json!({"targets": ["x86_64-unknown-linux-gnu"], "features": ["text"]}));
        assert_eq!(wrongs_of(Value::Null, good), [""; 0]);
        assert_eq!(wrongs_of(Value::Null, Value::Null).len(), 1);
        assert_eq!(wrongs_of(Value::Null, docs(json!({"targets": ["x"], "features": ["texts"]}))).len(), 1);
    }

    #[test]
    fn packages_that_are_not_published_need_nothing() {
        assert_eq!(wrongs_of(json!([]), Value::Null), [""; 0]);
    }
}
