//! `cargo xtask house`: counts of what makes the sources hard to live in, each against a bound. A count that
//! falls is a reason to lower its bound; one that rises needs a reason in the commit that raises it.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use crate::{
    Result,
    workspace::{Workspace, output},
};

/// A function of more lines is asked for a name in its middle.
const MAX_FUNCTION_LINES: usize = 150;
/// The files of a folder that one listing shows.
const MAX_FOLDER_FILES: usize = 20;

/// Finds the places that a count is of.
type Find = fn(&Sources) -> Vec<String>;

/// The counts, with the most that is permitted.
const COUNTS: [(&str, usize, Find); 4] = [
    ("lines that only list another variant", 120, Sources::listed_variants),
    ("functions of more than 150 lines", 7, Sources::long_functions),
    ("folders of more than 20 files", 0, Sources::wide_folders),
    ("constants whose name is a mood, not what they bound", 0, Sources::vague_constants),
];

/// Names of constants that do not say what they bound.
const VAGUE_NAMES: &[&str] = &[
    "AHEAD", "APART", "BUSY", "CLOSE", "DEAR", "ENOUGH", "FAR", "FEW", "LEAST", "LONG", "MANY", "MORE",
    "MOST", "NEAR", "NOTHING", "OFTEN", "PATIENCE", "SHORT", "SOME", "TOGETHER", "UNEVEN",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name the places too
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let sources = Sources::read(&Workspace::read()?.root)?;
    let lines: usize = sources.files.values().map(|text| text.lines().count()).sum();
    println!("{:>7}        lines of Rust in {} files", lines, sources.files.len());
    let mut over = Vec::new();
    for (what, most, count) in COUNTS {
        let places = count(&sources);
        println!("{:>7} of {most:>3} {what}", places.len());
        if args.list {
            places.iter().for_each(|place| println!("                 {place}"));
        }
        if places.len() > most {
            over.push(format!("{} {what}, at most {most}", places.len()));
        }
    }
    if over.is_empty() { Ok(()) } else { Err(format!("{}; --list names them", over.join("; "))) }
}

/// The Rust files that git tracks, by their paths.
struct Sources {
    files: BTreeMap<String, String>,
}

impl Sources {
    fn read(root: &Path) -> Result<Sources> {
        let listed = output(Command::new("git").args(["ls-files", "*.rs"]).current_dir(root))?;
        let read = |path: &str| {
            let text = fs::read_to_string(root.join(path)).map_err(|e| format!("{path} cannot be read: {e}"));
            Some(text.map(|text| (path.to_string(), text))).filter(|_| root.join(path).exists())
        };
        Ok(Sources { files: listed.lines().filter_map(read).collect::<Result<_>>()? })
    }

    /// The numbered lines of all files, without the unit tests at their ends.
    fn lines(&self) -> impl Iterator<Item = (&str, usize, &str)> {
        self.files.iter().flat_map(|(path, text)| {
            let own = text.find("\n#[cfg(test)]\nmod ").map_or(&text[..], |at| &text[..at]);
            own.lines().enumerate().map(move |(n, line)| (path.as_str(), n + 1, line))
        })
    }

    /// Lines such as `| Op::Reshape`, of a pattern with one variant on each line.
    fn listed_variants(&self) -> Vec<String> {
        let is_name = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        };
        let lists = |line: &str| {
            let Some(pattern) = line.trim_start().strip_prefix("| ") else { return false };
            let pattern = pattern.strip_suffix(" { .. }").unwrap_or(pattern);
            let pattern = ["(_)", "(..)"].iter().find_map(|end| pattern.strip_suffix(end)).unwrap_or(pattern);
            pattern.contains("::") && is_name(pattern)
        };
        let found = self.lines().filter(|(_, _, line)| lists(line));
        found.map(|(path, n, line)| format!("{path}:{n}: {}", line.trim())).collect()
    }

    /// Functions longer than [`MAX_FUNCTION_LINES`], from `fn` to the brace at its indentation.
    fn long_functions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (path, text) in self.files.iter().filter(|(path, _)| path.contains("/src/")) {
            let lines: Vec<&str> = text.lines().collect();
            for (start, line) in lines.iter().enumerate() {
                let code = line.trim_start();
                let indent = line.len() - code.len();
                // One with a body, which begins on its line or after its arguments.
                let opens = code.ends_with('{') || code.ends_with('(');
                let starts = ["fn ", "pub", "unsafe fn ", "async fn "].iter().any(|s| code.starts_with(s));
                if !(opens && starts && code.contains("fn ")) {
                    continue;
                }
                let ends = |line: &&str| line.len() == indent + 1 && line.ends_with('}');
                let length = lines[start..].iter().position(ends).map_or(0, |end| end + 1);
                if length > MAX_FUNCTION_LINES {
                    found.push(format!("{path}:{}: {length} lines: {code}", start + 1));
                }
            }
        }
        found
    }

    /// Folders of sources with more than [`MAX_FOLDER_FILES`] files.
    fn wide_folders(&self) -> Vec<String> {
        let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
        for path in self.files.keys().filter(|path| path.contains("/src/")) {
            *folders.entry(path.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default() += 1;
        }
        let wide = folders.into_iter().filter(|(_, files)| *files > MAX_FOLDER_FILES);
        wide.map(|(folder, files)| format!("{folder}: {files} files")).collect()
    }

    /// Constants of libraries with one of the [`VAGUE_NAMES`].
    fn vague_constants(&self) -> Vec<String> {
        let vague = |line: &str| {
            let code = line.trim_start();
            let code = ["pub(crate) ", "pub(super) ", "pub "]
                .iter()
                .find_map(|v| code.strip_prefix(v))
                .unwrap_or(code);
            let name = code.strip_prefix("const ").and_then(|rest| rest.split_once(':'));
            name.is_some_and(|(name, _)| VAGUE_NAMES.contains(&name))
        };
        let found = self.lines().filter(|(path, _, line)| path.contains("/src/") && vague(line));
        found.map(|(path, n, line)| format!("{path}:{n}: {}", line.trim())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(path: &str, text: &str) -> Sources {
        Sources { files: BTreeMap::from([(path.to_string(), text.to_string())]) }
    }

    #[test]
    fn lists_are_told_from_patterns() {
        let text = "match op {\n    Op::A\n    | Op::B\n    | Op::C { .. }\n    | Op::D(_) => 1,\n    | x::E(3)\n}\n";
        let found = sources("crates/a/src/b.rs", text).listed_variants();
        assert_eq!(found, ["crates/a/src/b.rs:3: | Op::B", "crates/a/src/b.rs:4: | Op::C { .. }"]);
    }

    #[test]
    fn long_functions_wide_folders_and_vague_constants_are_found() {
        let body = "    x();\n".repeat(MAX_FUNCTION_LINES);
        let text = format!("pub(crate) fn long() {{\n{body}}}\nfn short() {{\n    x();\n}}\n");
        assert_eq!(sources("crates/a/src/b.rs", &text).long_functions().len(), 1);
        let files = (0..=MAX_FOLDER_FILES).map(|n| (format!("crates/a/src/{n}.rs"), String::new()));
        assert_eq!(Sources { files: files.collect() }.wide_folders(), ["crates/a/src: 21 files"]);
        let text = "const FEW: usize = 3;\nconst WIDTH: usize = 3;\nconst FEW_ROWS: usize = 3;\nconst X: &str = \"\";\n";
        let found = sources("crates/a/src/b.rs", text).vague_constants();
        assert_eq!(found, ["crates/a/src/b.rs:1: const FEW: usize = 3;"]);
    }
}
