//! Circles inside crates: modules that depend on each other, found among the children of each module.
//!
//! The reader knows paths (`use …;`, and `crate::`, `super::` and `self::` in code) and the names that a
//! module imports. It knows no types: a call of a method of a type from another module is not counted as a
//! dependency. Items that a child takes from the file of its parent, or a parent from its children, are not
//! counted either, nor are tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::workspace::Workspace;

/// Circles that are still there: the crate with the folder, and the modules in alphabetical order. The list
/// can only shrink: a circle that is not in it is an error, and so is an entry that is no circle any more.
const PERMITTED: &[(&str, &[&str])] = &[
    ("taper-backend-cpu/elementwise", &["engine", "indexed"]),
    ("taper-backend-cpu/memory", &["blocks", "buffer", "narrow"]),
    ("taper-backend-cpu/simd", &["gaussian", "math", "vector"]),
    ("taper-nn", &["adapt", "layers"]),
    ("taper-onnx", &["context", "graph"]),
    ("taper-tensor-core/graph", &["handle", "node", "op"]),
    ("taper-tensor-core/kernels", &["custom", "kernel"]),
];

/// A module's path inside its crate: empty for the root.
type Module = Vec<String>;

/// The files of a crate: each module, and its source.
type Sources = BTreeMap<Module, String>;

/// A folder of a crate, and the modules of one circle in it.
type Circle = (String, Vec<String>);

/// Every circle that is not permitted, and every permission that is not needed.
pub(crate) fn wrongs(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for package in &workspace.packages {
        found.extend(circles(&package.name, &sources(&package.dir.join("src"))));
    }
    compare(&found, PERMITTED)
}

fn compare(found: &[Circle], permitted: &[(&str, &[&str])]) -> Vec<String> {
    let same = |circle: &Circle, entry: &(&str, &[&str])| circle.0 == entry.0 && circle.1 == entry.1;
    let new = found.iter().filter(|circle| !permitted.iter().any(|entry| same(circle, entry)));
    let new = new.map(|(folder, members)| format!("{folder}: a circle of {}", members.join(", ")));
    let old = permitted.iter().filter(|entry| !found.iter().any(|circle| same(circle, entry)));
    let old = old.map(|(folder, members)| {
        format!(
            "{folder}: {} are no circle (any more); correct the list in xtask/src/circles.rs",
            members.join(", ")
        )
    });
    new.chain(old).collect()
}

/// The sources below a folder `src`, by module.
fn sources(src: &Path) -> Sources {
    fn collect(folder: &Path, module: &Module, found: &mut Sources) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            let mut inner = module.clone();
            if path.is_dir() {
                inner.push(stem.to_string());
                collect(&path, &inner, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                if !matches!(stem, "mod" | "lib" | "main") {
                    inner.push(stem.to_string());
                }
                let text = fs::read_to_string(&path).unwrap_or_default();
                found.entry(inner).or_default().push_str(&text);
            }
        }
    }
    let mut found = Sources::new();
    collect(src, &Module::new(), &mut found);
    found
}

/// The circles of a crate, at every level.
fn circles(name: &str, sources: &Sources) -> Vec<Circle> {
    let codes: Sources = sources.iter().map(|(module, text)| (module.clone(), code(text))).collect();
    let tests = test_modules(&codes);
    let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
    let read: BTreeMap<Module, (Imports, Vec<Module>)> = codes
        .iter()
        .filter(|(module, _)| !is_test(module))
        .map(|(module, code)| (module.clone(), paths(module, code)))
        .collect();
    // The arrows between the children of each module.
    let mut arrows: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, (_, paths)) in &read {
        for path in paths {
            let to = resolve(path, &read, 0);
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                let level = arrows.entry(from[..shared].to_vec()).or_default();
                level.entry(a.clone()).or_default().insert(b.clone());
            }
        }
    }
    let folder = |level: &Module| std::iter::once(name.to_string()).chain(level.iter().cloned()).collect();
    let mut found = Vec::new();
    for (level, arrows) in &arrows {
        let folder: Vec<String> = folder(level);
        found.extend(components(arrows).into_iter().map(|members| (folder.join("/"), members)));
    }
    found
}

/// Names that a module brings in, with the paths that they stand for.
type Imports = BTreeMap<String, Module>;

/// The module in which the item of a path is, as far as modules and imports tell.
fn resolve(path: &[String], read: &BTreeMap<Module, (Imports, Vec<Module>)>, depth: usize) -> Module {
    let mut module = Module::new();
    for (k, name) in path.iter().enumerate() {
        let mut inner = module.clone();
        inner.push(name.clone());
        let is_module = read.keys().any(|known| known.starts_with(&inner));
        if is_module {
            module = inner;
            continue;
        }
        // A chain of imports is short; one that is not is a circle of imports.
        if depth < 8
            && let Some(target) = read.get(&module).and_then(|(imports, _)| imports.get(name))
            && target[..] != path[..=k]
        {
            let rest = path[k + 1..].iter().cloned();
            return resolve(&target.iter().cloned().chain(rest).collect::<Vec<_>>(), read, depth + 1);
        }
        break;
    }
    module
}

/// The source without comments, texts of literals, and inline test modules.
fn code(source: &str) -> String {
    let mut out = String::new();
    let chars: Vec<char> = source.chars().collect();
    let mut i = 0;
    let starts = |i: usize, text: &str| text.chars().enumerate().all(|(k, c)| chars.get(i + k) == Some(&c));
    while let Some(&c) = chars.get(i) {
        if starts(i, "//") {
            while chars.get(i).is_some_and(|&c| c != '\n') {
                i += 1;
            }
        } else if starts(i, "/*") {
            let mut depth = 0;
            loop {
                if starts(i, "/*") {
                    (depth, i) = (depth + 1, i + 2);
                } else if starts(i, "*/") {
                    (depth, i) = (depth - 1, i + 2);
                } else {
                    i += 1;
                }
                if depth == 0 || i >= chars.len() {
                    break;
                }
            }
        } else if c == 'r' && !out.ends_with(is_word) && (starts(i, "r\"") || starts(i, "r#")) {
            let hashes = chars[i + 1..].iter().take_while(|&&c| c == '#').count();
            if chars.get(i + 1 + hashes) == Some(&'"') {
                let end = format!("\"{}", "#".repeat(hashes));
                i += hashes + 2;
                while i < chars.len() && !starts(i, &end) {
                    i += 1;
                }
                i += end.len();
                out.push_str("\"\"");
            } else {
                out.push(c);
                i += 1;
            }
        } else if c == '"' {
            i += 1;
            while chars.get(i).is_some_and(|&c| c != '"') {
                i += if chars[i] == '\\' { 2 } else { 1 };
            }
            i += 1;
            out.push_str("\"\"");
        } else if c == '\'' && (chars.get(i + 1) == Some(&'\\') || chars.get(i + 2) == Some(&'\'')) {
            // The literal of a character; anything else is a lifetime.
            i += if chars[i + 1] == '\\' { 3 } else { 2 };
            while chars.get(i).is_some_and(|&c| c != '\'') {
                i += 1;
            }
            i += 1;
        } else {
            out.push(c);
            i += 1;
        }
    }
    without_tests(&out)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The code without what stands in braces after `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    const TEST: &str = "#[cfg(test)]";
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find(TEST) {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let end = match (item.find('{'), item.find(';')) {
            (Some(open), semicolon) if semicolon.is_none_or(|semicolon| open < semicolon) => {
                let mut depth = 0;
                let close = item[open..].find(|c| {
                    depth += i32::from(c == '{') - i32::from(c == '}');
                    depth == 0
                });
                close.map_or(item.len(), |close| open + close + 1)
            }
            (_, Some(semicolon)) => {
                // Kept for `test_modules`.
                out.push_str(&item[..=semicolon]);
                semicolon + 1
            }
            _ => item.len(),
        };
        rest = &item[end..];
    }
    out + rest
}

/// The modules of files that are there for tests only.
fn test_modules(codes: &Sources) -> Vec<Module> {
    let mut found = Vec::new();
    for (module, code) in codes {
        for item in code.split("#[cfg(test)]").skip(1) {
            let item = item.split(';').next().unwrap_or_default();
            if let Some(name) = item.split_whitespace().skip_while(|word| *word != "mod").nth(1) {
                found.push(module.iter().cloned().chain([name.to_string()]).collect());
            }
        }
    }
    found
}

/// The imports of a module, and all paths of the crate that its code names, from the root.
fn paths(module: &Module, code: &str) -> (Imports, Vec<Module>) {
    let (mut imports, mut found) = (Imports::new(), Vec::new());
    let mut body = String::new();
    let mut rest = code;
    // Imports first: they are left out of the body.
    while let Some(at) = find_word(rest, "use") {
        body.push_str(&rest[..at]);
        let (tree, after) = rest[at + "use".len()..].split_once(';').unwrap_or_default();
        for (path, name) in use_tree(tree) {
            if let Some(path) = absolute(module, &path, true) {
                imports.insert(name, path.clone());
                found.push(path);
            }
        }
        rest = after;
    }
    body.push_str(rest);
    for start in ["crate", "super", "self"] {
        let mut rest = body.as_str();
        let mut before = ' ';
        while let Some(at) = find_word(rest, start) {
            before = rest[..at].chars().last().unwrap_or(before);
            let text = &rest[at..];
            let end = text.find(|c: char| !is_word(c) && c != ':').unwrap_or(text.len());
            let path: Vec<String> = text[..end].split("::").map(str::to_string).collect();
            // `$crate::` is for users of a macro, and `self` alone or after `::` is no path.
            if before != '$' && before != ':' && path.len() > 1 {
                found.extend(absolute(module, &path, false));
            }
            rest = &text[start.len()..];
        }
    }
    (imports, found)
}

/// Where a word begins in a text, that is no part of another.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let inside = |at: usize| {
        text[..at].ends_with(is_word)
            || text[at + word.len()..].starts_with(is_word)
            || text[..at].ends_with("r#")
    };
    text.match_indices(word).map(|(at, _)| at).find(|&at| !inside(at))
}

/// A path from the root of the crate; none for one of another crate. A path of an import may begin with a
/// child.
fn absolute(module: &Module, path: &[String], import: bool) -> Option<Module> {
    let mut base = module.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (base, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {}
        // Whether it is a child or another crate shows when it is resolved.
        _ if import => {}
        _ => return None,
    }
    while let Some(("super", after)) = rest.split_first().map(|(first, after)| (first.as_str(), after)) {
        base.pop()?;
        rest = after;
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The paths of a `use` without its keyword and semicolon, each with the name that it brings in.
fn use_tree(tree: &str) -> Vec<(Module, String)> {
    fn split(tree: &str, before: &[String], found: &mut Vec<(Module, String)>) {
        let tree = tree.trim();
        let Some((head, inner)) = tree.split_once('{') else {
            let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
            let mut path: Module = before
                .iter()
                .cloned()
                .chain(path.split("::").map(|word| word.trim().to_string()).filter(|word| !word.is_empty()))
                .collect();
            if path.last().is_some_and(|last| last == "self" || last == "*") && path.len() > 1 {
                path.pop();
            }
            let name = if alias.is_empty() { path.last().cloned() } else { Some(alias.trim().to_string()) };
            found.extend(name.filter(|_| !tree.is_empty()).map(|name| (path, name)));
            return;
        };
        let head: Vec<String> = before
            .iter()
            .cloned()
            .chain(head.split("::").map(|word| word.trim().to_string()).filter(|word| !word.is_empty()))
            .collect();
        let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
        let (mut depth, mut start) = (0, 0);
        for (at, c) in inner.char_indices() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if c == ',' && depth == 0 {
                split(&inner[start..at], &head, found);
                start = at + 1;
            }
        }
        split(&inner[start..], &head, found);
    }
    let mut found = Vec::new();
    split(tree, &[], &mut found);
    found
}

/// The strongly connected components with more than one member: the members of each reach each other.
fn components(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            next.extend(arrows.get(at).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        arrows.keys().map(|from| (from, reach(from))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (from, to) in &reached {
        let back = |other: &&String| reached.get(other).is_some_and(|reached| reached.contains(*from));
        let members: Vec<String> = to.iter().filter(back).cloned().collect();
        if members.len() > 1 {
            found.insert(members);
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Circle> {
        let module =
            |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_string).collect();
        let sources = files.iter().map(|(path, text)| (module(path), text.to_string())).collect();
        circles("c", &sources)
    }

    fn circle(folder: &str, members: &[&str]) -> Circle {
        (folder.to_string(), members.iter().map(|member| member.to_string()).collect())
    }

    #[test]
    fn a_circle_is_found_through_any_form_of_path() {
        for (a, b) in [
            ("use crate::b::B;", "use super::a::A;"),
            ("use crate::{x::Y, b::{self, B as C}};", "fn f() { crate::a::f(); }"),
            ("use crate::B;", "pub(crate) use crate::{a};"),
            ("fn f(x: &'static str) { super::b::f('\"', x) }", "const C: u8 = crate::a::C;"),
        ] {
            let files = [("", "mod a; mod b; pub use b::B;"), ("a", a), ("b", b), ("x", "")];
            assert_eq!(found(&files), [circle("c", &["a", "b"])], "{a} {b}");
        }
    }

    #[test]
    fn a_room_stands_for_its_files_and_has_circles_of_its_own() {
        let files = [
            ("", "mod base; mod room;"),
            ("base", "use crate::room::one::One;"),
            ("room", "mod one; mod two;"),
            ("room/one", "use super::two::Two;"),
            ("room/two", "use self::super::one::One; use crate::base::B;"),
        ];
        assert_eq!(found(&files), [circle("c", &["base", "room"]), circle("c/room", &["one", "two"])]);
    }

    #[test]
    fn parents_other_crates_tests_comments_and_texts_are_no_arrows() {
        let files = [
            ("", "mod a; mod b; mod c; use a::A; #[cfg(test)] mod tests; pub fn f() { b::f() }"),
            ("a", "use crate::{b::B, f}; use std::b::a; //! crate::c::C\n/* /* */ use crate::c::C; */"),
            (
                "b",
                "#[cfg(test)] mod tests { use crate::a::A; fn f() {} } use core::a; const T: &str = \"crate::a\";",
            ),
            ("c", "use super::a; const T: &str = r#\"\" crate::a::A \"#; fn f() { $crate::a::A }"),
            ("tests", "use crate::{a::A, b::B};"),
        ];
        assert_eq!(found(&files), []);
    }

    #[test]
    fn every_circle_is_reported_with_all_its_members() {
        let files = [
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::A; use crate::d::D;"),
            ("d", "use crate::e::E;"),
            ("e", "use crate::d::D;"),
            ("f", "use crate::{a::A, e::E};"),
        ];
        assert_eq!(found(&files), [circle("c", &["a", "b", "c"]), circle("c", &["d", "e"])]);
    }

    #[test]
    fn the_list_can_only_shrink() {
        let circles = [circle("c", &["a", "b"])];
        assert_eq!(compare(&circles, &[("c", &["a", "b"])]), [""; 0]);
        assert_eq!(compare(&circles, &[]), ["c: a circle of a, b"]);
        let wrongs = compare(&circles, &[("c", &["a", "b", "x"])]);
        assert_eq!(wrongs[0], "c: a circle of a, b");
        assert!(wrongs[1].starts_with("c: a, b, x are no circle"), "{wrongs:?}");
    }
}
