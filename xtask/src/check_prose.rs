//! `cargo xtask check-prose`: comments and documents are plain English, and comments end before column 110.
//!
//! The rule reads sentences, so a line break does not hide the beginning of one. A question may begin with
//! "What". Code between fences, tables and headings are left out. Without arguments, the decisions are
//! checked too (`decisions.rs`).

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use crate::{Result, decisions, workspace::Workspace};

/// Beginnings of sentences that leave their subject to be guessed.
const OPENINGS: &[&str] = &["Of", "That of", "Those of", "The same of", "What", "Whose", "Who"];

/// Words that hide who does what.
const WORDS: &[&str] = &[
    "so many",
    "somebody",
    "nobody",
    "whoever",
    "lie",
    "lies",
    "goes again",
    "go again",
    "is told",
    "are told",
];

/// Columns of a line that has a comment, as rustfmt has for code.
const MAX_COLUMNS: usize = 110;

/// Folders with nothing that we wrote.
const SKIPPED: &[&str] = &["target", "node_modules", "venv", "generated", "corpus"];

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Read only these files and folders [default: the workspace]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut paths = args.paths.clone();
    let mut report = String::new();
    let mut faults = 0;
    if paths.is_empty() {
        let root = Workspace::read()?.root;
        for fault in decisions::faults(&root.join("docs/decisions"))? {
            faults += 1;
            let _ = writeln!(report, "  docs/decisions/{fault}");
        }
        paths.push(root);
    }
    let mut files = Vec::new();
    for path in &paths {
        collect(path, true, &mut files)?;
    }
    for file in &files {
        let text = fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
        let Some(language) = Language::of(file) else { continue };
        for (line, fault) in check(language, &text) {
            faults += 1;
            let _ = writeln!(report, "  {}:{line}: {fault}", file.display());
        }
    }
    if faults == 0 {
        println!("prose: {} files read", files.len());
        Ok(())
    } else {
        Err(format!("{faults} places to mend\n{report}"))
    }
}

/// The files below `path` that have prose, in order of their names.
fn collect(path: &Path, asked: bool, files: &mut Vec<PathBuf>) -> Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !asked && (SKIPPED.contains(&name) || name.starts_with('.') && name != ".ci") {
        return Ok(());
    }
    if path.is_dir() {
        let failed = |e| format!("{} cannot be read: {e}", path.display());
        let entries = fs::read_dir(path).map_err(failed)?.collect::<std::io::Result<Vec<_>>>();
        let mut inside: Vec<PathBuf> = entries.map_err(failed)?.iter().map(|entry| entry.path()).collect();
        inside.sort();
        for path in &inside {
            collect(path, false, files)?;
        }
    } else if asked || Language::of(path).is_some() {
        files.push(path.to_path_buf());
    }
    Ok(())
}

/// How a file marks its prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    /// Rust, WGSL and JavaScript: `//`, `///`, `//!`.
    Slashes,
    /// Shell, Python and TOML: `#`.
    Hash,
    Markdown,
}

impl Language {
    fn of(file: &Path) -> Option<Self> {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("rs" | "wgsl" | "js") => Some(Language::Slashes),
            Some("sh" | "py" | "toml") => Some(Language::Hash),
            Some("md") => Some(Language::Markdown),
            _ if file.ends_with(".ci/run") => Some(Language::Hash),
            _ => None,
        }
    }

    /// The prose of a line: the mark with its indentation, and the text after it.
    fn prose(self, line: &str) -> Option<(&str, &str)> {
        let marks: &[&str] = match self {
            Language::Slashes => &["///", "//!", "//"],
            Language::Hash => &["#!", "#"],
            Language::Markdown => return Some(("", line)),
        };
        let start = line.len() - line.trim_start().len();
        let mark = marks.iter().find(|mark| line[start..].starts_with(**mark))?;
        let (head, text) = line.split_at(start + mark.len());
        (text.is_empty() || text.starts_with(' ')).then_some((head, text.trim_start()))
    }
}

/// The faults of a text: the number of a line, and what to mend there.
fn check(language: Language, text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut paragraph = Paragraph::default();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some((head, prose)) = language.prose(line) else {
            paragraph.end(&mut faults);
            fenced = false;
            continue;
        };
        if language != Language::Markdown && line.chars().count() > MAX_COLUMNS {
            faults.push((number, format!("the comment ends after column {MAX_COLUMNS}")));
        }
        if prose.trim_start().starts_with("```") {
            fenced = !fenced;
            paragraph.end(&mut faults);
            continue;
        }
        if fenced || prose.trim().is_empty() || prose.starts_with(['|', '#']) {
            paragraph.end(&mut faults);
            continue;
        }
        let item = prose.trim_start();
        let unmarked = item.strip_prefix("- ").or_else(|| item.strip_prefix("* ")).or_else(|| numbered(item));
        if unmarked.is_some() || head != paragraph.head {
            paragraph.end(&mut faults);
        }
        paragraph.head = head.to_string();
        paragraph.lines.push((number, unmarked.unwrap_or(item).to_string()));
    }
    paragraph.end(&mut faults);
    faults.sort();
    faults
}

/// The text of an item like `1. First`.
fn numbered(text: &str) -> Option<&str> {
    let (number, rest) = text.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
}

/// Lines that are one text.
#[derive(Default)]
struct Paragraph {
    head: String,
    lines: Vec<(usize, String)>,
}

impl Paragraph {
    /// Checks the sentences, and makes room for the next paragraph.
    fn end(&mut self, faults: &mut Vec<(usize, String)>) {
        let lines = std::mem::take(&mut self.lines);
        let mut text = String::new();
        let mut starts = Vec::new();
        for (number, line) in &lines {
            starts.push((text.len(), *number));
            text.push_str(line);
            text.push(' ');
        }
        let line_at = |at: usize| starts[starts.partition_point(|(start, _)| *start <= at) - 1].1;
        let text = without_code(&text);
        let mut at = 0;
        for sentence in text.split_inclusive(". ").flat_map(|part| part.split_inclusive("? ")) {
            let begin = at + sentence.len() - sentence.trim_start().len();
            at += sentence.len();
            let sentence = sentence.trim();
            if sentence.ends_with('?') {
                continue;
            }
            for opening in OPENINGS {
                let rest = sentence.trim_start_matches(['*', '"', '(']).strip_prefix(opening);
                if rest.is_some_and(|rest| rest.starts_with([' ', ','])) && !longer_opening(sentence, opening)
                {
                    faults.push((line_at(begin), format!("a sentence begins with \"{opening}\"")));
                }
            }
        }
        let lower = text.to_ascii_lowercase();
        for word in WORDS {
            for (at, _) in lower.match_indices(word) {
                let letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
                let bytes = lower.as_bytes();
                if !letter(at.checked_sub(1).and_then(|at| bytes.get(at)))
                    && !letter(bytes.get(at + word.len()))
                {
                    faults.push((line_at(at), format!("\"{word}\"")));
                }
            }
        }
    }
}

/// Whether a longer opening than this one fits as well: it is then the one to name.
fn longer_opening(sentence: &str, opening: &str) -> bool {
    OPENINGS.iter().any(|longer| {
        longer.len() > opening.len() && longer.starts_with(opening) && sentence.starts_with(longer)
    })
}

/// The same text with what stands between backticks and double quotes left blank, at its old place.
fn without_code(text: &str) -> String {
    let mut inside = None;
    text.chars()
        .map(|c| match (inside, c) {
            (None, '`' | '"') => {
                inside = Some(c);
                c
            }
            (Some(mark), _) if c == mark => {
                inside = None;
                c
            }
            // One blank for each byte, so that places stay.
            (Some(_), _) if c.is_ascii() => '_',
            _ => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Vec<(usize, String)> {
        check(Language::Slashes, text)
    }

    #[test]
    fn openings_are_found_at_the_beginning_of_any_sentence() {
        for (text, line) in [
            ("/// Of images.", 1),
            ("/// A mean. That of nothing is NaN.", 1),
            ("// A line that\n// ends. What follows is wrong.", 2),
            ("//! - Whose it is\n", 1),
            ("# Who asks\n", 1),
        ] {
            let language = if text.starts_with('#') { Language::Hash } else { Language::Slashes };
            let faults = check(language, text);
            assert_eq!(faults.len(), 1, "{text}: {faults:?}");
            assert_eq!(faults[0].0, line, "{text}");
        }
        assert_eq!(rust("/// Those of it.")[0].1, "a sentence begins with \"Those of\"");
    }

    #[test]
    fn plain_sentences_and_code_pass() {
        for text in [
            "/// Offers what it has. The mean of images.",
            "/// What is it?",
            "/// Says `so many`, and \"Of images\".",
            "// the rows\n// Often used.\nlet what = 1; // a row of whole numbers",
            "/// ```\n/// // Of code\n/// ```",
            "/// | Of | What |",
        ] {
            assert_eq!(rust(text), [], "{text}");
        }
        assert_eq!(check(Language::Markdown, "# What is there\n\nA page.\n```\nOf code\n```\n"), []);
    }

    #[test]
    fn words_are_found_whole_and_across_lines() {
        assert_eq!(rust("// as so\n// many rows")[0], (1, "\"so many\"".to_string()));
        assert_eq!(rust("// Nobody knows.").len(), 1);
        assert_eq!(rust("// relies on it"), []);
    }

    #[test]
    fn wide_comments_are_found_and_wide_code_is_left_to_rustfmt() {
        let wide = format!("// {}", "x".repeat(MAX_COLUMNS));
        assert_eq!(rust(&wide).len(), 1);
        assert_eq!(rust(&format!("let x = \"{}\";", "x".repeat(MAX_COLUMNS))), []);
        assert_eq!(rust(&format!("// {}", "σ".repeat(MAX_COLUMNS - 3))), []);
    }
}
