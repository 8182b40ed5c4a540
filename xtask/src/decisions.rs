//! The decisions in `docs/decisions`: each says under its title whether it holds, and the index in
//! `README.md` has a line for each. `cargo xtask check-prose` runs this check over the workspace.

use std::{fs, path::Path};

use crate::Result;

/// Beginnings of a status.
const STATUSES: &[&str] = &["holds", "changed by [", "replaced by [", "taken back"];

/// The faults of the decisions in a folder.
pub(crate) fn faults(folder: &Path) -> Result<Vec<String>> {
    let failed = |e| format!("{} cannot be read: {e}", folder.display());
    let mut pages = Vec::new();
    let mut index = String::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text =
            fs::read_to_string(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        if name == "README.md" { index = text } else { pages.push((name, text)) }
    }
    pages.sort();
    Ok(compare(&pages, &index))
}

/// The faults of pages, given by name and text, and of their index.
fn compare(pages: &[(String, String)], index: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut rows = Vec::new();
    for (name, text) in pages {
        let Some((title, status)) = head(text) else {
            faults.push(format!("{name}: the title is not followed by an empty line and \"Status: … .\""));
            continue;
        };
        if !STATUSES.iter().any(|known| status.starts_with(known)) {
            faults.push(format!("{name}: the status begins with none of {STATUSES:?}"));
        }
        for target in targets(status) {
            if target == name || !pages.iter().any(|(other, _)| other == target) {
                faults.push(format!("{name}: the status names {target}, which is no other decision"));
            }
        }
        rows.push(format!("| [{title}]({name}) | {status} |"));
    }
    let listed: Vec<&str> = index.lines().filter(|line| line.starts_with("| [")).collect();
    for row in &rows {
        if !listed.contains(&row.as_str()) {
            faults.push(format!("README.md lacks: {row}"));
        }
    }
    for row in listed {
        if !rows.iter().any(|expected| expected == row) {
            faults.push(format!("README.md has, but no decision: {row}"));
        }
    }
    faults
}

/// The title and the status of a page.
fn head(text: &str) -> Option<(&str, &str)> {
    let mut lines = text.lines();
    let title = lines.next()?.strip_prefix("# ")?;
    if !lines.next()?.is_empty() {
        return None;
    }
    Some((title, lines.next()?.strip_prefix("Status: ")?.strip_suffix('.')?))
}

/// The files to which a status links.
fn targets(status: &str) -> impl Iterator<Item = &str> {
    status.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str, status: &str) -> (String, String) {
        (name.to_string(), format!("# {name}\n\n{status}\n\n**Context.**\n"))
    }

    #[test]
    fn pages_with_a_status_and_a_row_pass() {
        let pages = [page("1.md", "Status: changed by [2](2.md)."), page("2.md", "Status: holds.")];
        let index = "# Decisions\n\n| [1.md](1.md) | changed by [2](2.md) |\n| [2.md](2.md) | holds |\n";
        assert_eq!(compare(&pages, index), [""; 0]);
    }

    #[test]
    fn a_missing_or_unknown_status_is_found() {
        for status in ["**Context.**", "Status: holds", "Status: forgotten."] {
            let faults = compare(&[page("1.md", status)], "| [1.md](1.md) | forgotten |\n");
            assert!(faults[0].starts_with("1.md: the "), "{status}: {faults:?}");
        }
    }

    #[test]
    fn links_to_no_other_decision_are_found() {
        for target in ["1.md", "3.md"] {
            let status = format!("changed by [x]({target})");
            let index = format!("| [1.md](1.md) | {status} |\n");
            assert_eq!(compare(&[page("1.md", &format!("Status: {status}."))], &index).len(), 1, "{target}");
        }
    }

    #[test]
    fn an_index_that_differs_is_found() {
        let pages = [page("1.md", "Status: holds.")];
        assert_eq!(compare(&pages, "").len(), 1);
        assert_eq!(compare(&pages, "| [1.md](1.md) | changed |\n").len(), 2);
        assert_eq!(compare(&[], "| [1.md](1.md) | holds |\n").len(), 1);
    }
}
