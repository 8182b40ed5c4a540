//! Reads from a `Cargo.toml` the names by which a crate knows its dependencies.
//!
//! A reader of whole TOML files would be most of what a user's first build compiles for this macro. This one
//! follows tables, dotted keys and inline tables, and skips all values but names and `workspace = true`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// A package as a `Cargo.toml` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is the package itself.
    Itself,
    /// It is a dependency that code calls by this name.
    Name(String),
}

/// A dependency as it is written.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    key: String,
    package: Option<String>,
    inherited: bool,
}

/// Looks for a package, whose library has this name, in the `Cargo.toml` of the crate that is compiled.
pub(crate) fn find(package: &str, library: &str) -> Option<Found> {
    let folder = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let text = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    search(&text, package, library, || workspace_above(&folder))
}

/// The `Cargo.toml` of the workspace that a folder belongs to.
fn workspace_above(folder: &Path) -> Option<String> {
    let texts = folder.ancestors().filter_map(|folder| fs::read_to_string(folder.join("Cargo.toml")).ok());
    texts.into_iter().find(|text| assignments(text).any(|(path, _)| path[0] == "workspace"))
}

fn search(
    text: &str,
    package: &str,
    library: &str,
    workspace: impl FnOnce() -> Option<String>,
) -> Option<Found> {
    let own_name = assignments(text).find(|(path, _)| path == &["package", "name"]);
    if own_name.is_some_and(|(_, value)| unquoted(&value) == package) {
        return Some(Found::Itself);
    }
    let entries = entries(text, |path| match path {
        [kind, ..] if is_dependencies(kind) => Some(1),
        [target, _, kind, ..] if target == "target" && is_dependencies(kind) => Some(3),
        _ => None,
    });
    let mut inherited = entries.iter().filter(|entry| entry.inherited).peekable();
    let shared = match inherited.peek() {
        Some(_) => entries_of_workspace(&workspace().unwrap_or_default()),
        None => Vec::new(),
    };
    let package_of = |entry: &Entry| -> String {
        let entry = shared.iter().find(|shared| entry.inherited && shared.key == entry.key).unwrap_or(entry);
        entry.package.clone().unwrap_or_else(|| entry.key.clone())
    };
    let entry = entries.iter().find(|entry| package_of(entry) == package)?;
    // Without another name, code calls it by the name of its library.
    let name = if entry.key == package { library } else { &entry.key };
    Some(Found::Name(name.replace('-', "_")))
}

fn is_dependencies(table: &str) -> bool {
    matches!(table, "dependencies" | "dev-dependencies")
}

fn entries_of_workspace(text: &str) -> Vec<Entry> {
    entries(text, |path| match path {
        [workspace, kind, ..] if workspace == "workspace" && kind == "dependencies" => Some(2),
        _ => None,
    })
}

/// The dependencies of a text. `at` gives the place of a dependency's key in a path, if it is one of the
/// tables that are asked for.
fn entries(text: &str, at: impl Fn(&[String]) -> Option<usize>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (path, value) in assignments(text) {
        let Some((key, rest)) = at(&path).and_then(|at| path.get(at..)?.split_first()) else { continue };
        let known = entries.iter().position(|entry| entry.key == *key);
        let known = known.unwrap_or_else(|| {
            entries.push(Entry { key: key.clone(), ..Entry::default() });
            entries.len() - 1
        });
        let mut take = |field: &str, value: &str| match field {
            "package" => entries[known].package = Some(unquoted(value).to_string()),
            "workspace" => entries[known].inherited = value.trim() == "true",
            _ => {}
        };
        match rest {
            [] => {
                let inner = value.trim().strip_prefix('{').and_then(|v| v.strip_suffix('}')).unwrap_or("");
                for (field, value) in split(inner, ',').iter().filter_map(|part| part.split_once('=')) {
                    take(field.trim(), value);
                }
            }
            [field] => take(field, &value),
            _ => {}
        }
    }
    entries
}

/// Every `key = value` of a text: the whole path of the key, and the value as it is written.
fn assignments(text: &str) -> impl Iterator<Item = (Vec<String>, String)> {
    let mut table = Vec::new();
    let mut lines = text.lines().map(without_comment);
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?.trim();
            if let Some(header) = line.strip_prefix('[') {
                table = keys(header.trim_start_matches('[').trim_end_matches(']'));
            } else if let [key, value @ ..] = &split(line, '=')[..]
                && !value.is_empty()
            {
                let mut value = value.join("=");
                // An array goes on until its brackets are closed.
                while depth(&value) > 0 {
                    value.push_str(lines.next()?);
                }
                return Some((table.iter().cloned().chain(keys(key)).collect(), value));
            }
        }
    })
}

/// The parts of a dotted key.
fn keys(dotted: &str) -> Vec<String> {
    split(dotted, '.').into_iter().map(|key| unquoted(key).to_string()).collect()
}

fn unquoted(value: &str) -> &str {
    value.trim().trim_matches(['"', '\''])
}

fn without_comment(line: &str) -> &str {
    let end = outside_quotes(line).find(|(_, c)| *c == '#').map_or(line.len(), |(at, _)| at);
    &line[..end]
}

/// The brackets and braces that are open at the end of a text.
fn depth(text: &str) -> i32 {
    outside_quotes(text).map(|(_, c)| depth_change(c)).sum()
}

fn depth_change(c: char) -> i32 {
    match c {
        '[' | '{' => 1,
        ']' | '}' => -1,
        _ => 0,
    }
}

/// The parts of a text between separators that stand in no quotes, brackets or braces.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in outside_quotes(text) {
        depth += depth_change(c);
        if depth == 0 && c == separator {
            parts.push(&text[start..at]);
            start = at + c.len_utf8();
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The characters of a line that stand in no quotes, with their places.
fn outside_quotes(line: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quote, mut escaped) = (None, false);
    line.char_indices().filter(move |&(_, c)| {
        let outside = quote.is_none();
        match quote {
            _ if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            Some(_) | None => {}
        }
        outside
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str = r#"
        [workspace]
        members = ["crates/*"]
        [workspace.dependencies]
        layers = { package = "taper-nn", path = "crates/nn", version = "0.1.0" }
        taper = "0.1"
        t.package = "taper"
    "#;

    #[track_caller]
    fn check(text: &str, package: &str, expected: Option<&str>) {
        let library = package.strip_prefix("taper-").unwrap_or(package);
        let expected = expected.map(|name| match name {
            "itself" => Found::Itself,
            name => Found::Name(name.to_string()),
        });
        assert_eq!(search(text, package, library, || Some(WORKSPACE.to_string())), expected, "{text}");
    }

    #[test]
    fn a_dependency_is_found_however_it_is_written() {
        for (text, name) in [
            ("[dependencies]\ntaper = \"0.1\" # comes with all", "taper"),
            (
                "[dependencies]\nserde = '1'\ntaper = { version = \"0.1\", features = [\n  \"cpu\", # [\n] }",
                "taper",
            ),
            ("[dependencies.taper]\nversion = \"0.1\"\n[features]\n", "taper"),
            ("dependencies.taper.version = \"0.1\"", "taper"),
            ("[dev-dependencies]\ncandle-light = { package = \"taper\", version = \"0.1\" }", "candle_light"),
            ("[target.'cfg(target_os = \"linux\")'.dependencies]\n\"taper\" = { path = \"..\" }", "taper"),
            ("[dependencies]\ntaper.workspace = true", "taper"),
            ("[dependencies]\nt = { workspace = true }", "t"),
            ("[dependencies.deep]\npackage = 'taper'\ngit = \"https://example.com/#taper\"", "deep"),
        ] {
            check(text, "taper", Some(name));
        }
        check("[dependencies]\nlayers = { workspace = true }", "taper-nn", Some("layers"));
        check("[dependencies]\ntaper-nn = \"0.1\"", "taper-nn", Some("nn"));
        check("[package]\nname = \"taper\"\n[dependencies]\ntaper-nn = \"0.1\"", "taper", Some("itself"));
    }

    #[test]
    fn nothing_else_is_taken_for_it() {
        for text in [
            "",
            "[build-dependencies]\ntaper = \"0.1\"",
            "[dependencies]\n# taper = \"0.1\"\nserde = { version = \"1\", features = [\"taper\"] }",
            "[dependencies]\ntaper = { package = \"candles\", version = \"1\" }",
            "[features]\ntaper = [\"dependencies\"]",
            "[package]\nname = \"other\"\ndescription = \"[dependencies] taper = 1\"",
            "[workspace.dependencies]\ntaper = \"0.1\"",
        ] {
            check(text, "taper", None);
        }
    }
}
