//! That the table is whole, and the page of it current.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeSet, path::Path};

use taper_operations::{page, public, rows};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn every_public_function_has_a_row() {
    let functions = public::functions(root());
    let rows: BTreeSet<String> = rows().iter().map(|row| row.name.to_string()).collect();
    let no_operations: BTreeSet<&str> =
        public::NO_OPERATIONS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let has_place = |name: &&String| rows.contains(*name) || no_operations.contains(name.as_str());
    let missing: Vec<&String> = functions.iter().filter(|name| !has_place(name)).collect();
    assert!(
        missing.is_empty(),
        "without a row in crates/operations/src/table, or a reason in its public.rs: {missing:?}"
    );
    // Names that a renamed function leaves behind.
    let named = rows.iter().map(String::as_str).chain(no_operations.iter().copied());
    let stale: Vec<&str> = named.filter(|name| !functions.contains(*name)).collect();
    assert!(stale.is_empty(), "no public function is called so: {stale:?}");
}

#[test]
fn the_page_is_current() {
    let written = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    assert!(written == page(), "docs/operations.md is not what the table says: run `cargo xtask operations`");
}
