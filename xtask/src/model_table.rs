//! `cargo xtask model-table`: runs the tests of crates/models, and writes what they compared into
//! docs/models.md.

use std::{fmt::Write, fs};

use crate::{Result, models::run_tests, test_all_backends::build::build, workspace::Workspace};

/// The page that is written.
const PAGE: &str = "docs/models.md";

/// Where the tests leave a row for each model, under the workspace's root.
const ROWS: &str = "target/model-table";

const HEAD: &str = "# Models and their references

A small model of each architecture with random weights, made by its reference implementation, is loaded from the files that the
reference wrote. Its outputs, its loss and the gradients of three parameters are compared with the reference's. A difference is the
largest one of an element, divided by the largest element of its tensor; all numbers are f32. `scripts/model_fixtures` makes the
models, `crates/models/tests/it` compares them, and this command writes the page:

```sh
cargo xtask model-table
```

| model | reference | parameters | outputs, loss | gradients | devices |
|---|---|---:|---:|---:|---|
";

pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::read()?;
    let root = &workspace.root;
    let rows = root.join(ROWS);
    if rows.exists() {
        fs::remove_dir_all(&rows).map_err(|e| format!("{ROWS} cannot be emptied: {e}"))?;
    }
    let setting = std::env::var("TAPER_TEST").unwrap_or_default();
    let setting = format!("{setting},written={}", rows.display());
    run_tests(&workspace, &build(&workspace, true)?, "taper-models", "", &setting)?;
    let files = fs::read_dir(&rows).map_err(|e| format!("{ROWS} cannot be read: {e}"))?;
    let mut lines = Vec::new();
    for file in files {
        let path = file.map_err(|e| format!("{ROWS} cannot be read: {e}"))?.path();
        // Other tests write folders for their references there.
        if path.extension().is_none_or(|ending| ending != "tsv") {
            continue;
        }
        let text =
            fs::read_to_string(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        lines.extend(text.lines().map(str::to_string));
    }
    lines.sort();
    let mut page = HEAD.to_string();
    for line in &lines {
        let _ = writeln!(page, "| {} |", line.replace('\t', " | "));
    }
    fs::write(root.join(PAGE), page).map_err(|e| format!("{PAGE} cannot be written: {e}"))?;
    println!("{PAGE} is written: {} models", lines.len());
    Ok(())
}
