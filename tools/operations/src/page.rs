//! docs/operations.md, from the rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use crate::{Row, sections};

/// PyTorch's operations of dense real tensors: lines `name<tab>reason`, where a reason says why an operation
/// has no row, or `= …` how else it is written. `scripts/torch_fixtures.py names` writes the names and keeps
/// the reasons.
const TORCH: &str = include_str!("../torch.tsv");

/// The operations that PyTorch's own suite tests, in such lines: a name that no row has needs a reason.
const TESTED: &str = include_str!("../tested.tsv");

/// The modules of the Python package with functions: PyTorch's name, and the text that has the names.
const PYTHON: &[(&str, &str)] = &[
    ("torch", include_str!("../../../crates/python/python/taper/__init__.pyi")),
    ("torch.nn.functional", include_str!("../../../crates/python/python/taper/nn/functional.pyi")),
    ("torch.linalg", include_str!("../../../crates/python/python/taper/linalg.pyi")),
    ("torch.fft", include_str!("../../../crates/python/python/taper/fft.py")),
];

/// The stubs of the native module, which have the class `Tensor`.
const PYTHON_TENSOR: &str = include_str!("../../../crates/python/python/taper/_taper.pyi");

/// PyTorch's name of a row's operation: the first function or method of its expression.
pub fn torch_name(row: &Row) -> String {
    // Complex numbers have a last axis of 2 here.
    let expression = row.torch.strip_prefix("torch.view_as_real(").unwrap_or(row.torch);
    let word = |start: usize| -> &str {
        let rest = &expression[start..];
        &rest[..rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len())]
    };
    let modules =
        [("torch.", "torch."), ("F.", "torch.nn.functional."), ("torchvision.ops.", "torchvision.ops.")];
    for (prefix, full) in modules {
        let at = expression.match_indices(prefix).map(|(at, _)| at).find(|at| {
            let before = expression[..*at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '.') && expression[*at..].contains('(')
        });
        // A method of x has priority if it is first in the expression.
        if let Some(at) = at
            && !expression.starts_with("x.")
            && !expression.starts_with("x[")
        {
            return format!("{full}{}", &word(at)[prefix.len()..]);
        }
    }
    match expression.strip_prefix("x.") {
        Some(_) => format!("torch.Tensor.{}", &word(0)[2..]),
        None => expression.to_string(),
    }
}

/// The page.
pub fn page() -> String {
    let mut out = String::from(
        "# Operations\n\n\
         This page is written by `cargo xtask operations` from the table in `tools/operations`, which the tests also use: they check every\n\
         line on every device. \"Floats\" are f32, f64, f16 and bf16, and \"integers\" are i64, i32, u32 and u8; a GPU supports the dtypes that\n\
         `device.info()` lists. Gradients are compared with finite differences and with PyTorch's, second derivatives with finite\n\
         differences. Names without a module are methods of `Tensor`.\n",
    );
    for (heading, rows) in sections() {
        let _ = write!(
            out,
            "\n## {heading}\n\n| operation | CPU | wgpu | dtypes | gradient | second | PyTorch | |\n|---|---|---|---|---|---|---|---|\n"
        );
        let mut order: Vec<&str> = Vec::new();
        let mut by_name: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in &rows {
            if !by_name.contains_key(row.name) {
                order.push(row.name);
            }
            by_name.entry(row.name).or_default().push(row);
        }
        for name in order {
            let rows = &by_name[name];
            let mut dtypes: Vec<&str> = Vec::new();
            for word in rows.iter().flat_map(|row| row.dtypes.words().split(", ")) {
                if !dtypes.contains(&word) {
                    dtypes.push(word);
                }
            }
            if dtypes.contains(&"floats") {
                dtypes.retain(|word| !["f32", "f64"].contains(word));
            }
            let dtypes = if dtypes.contains(&"all") { "all".to_string() } else { dtypes.join(", ") };
            let order = rows.iter().map(|row| row.order).max().unwrap_or(0);
            let yes = |yes: bool| if yes { "yes" } else { "no" };
            let torch = rows[0].torch;
            let torch = if torch.is_empty() { String::new() } else { format!("`{}`", torch_name(rows[0])) };
            let note = rows.iter().map(|row| row.note).find(|note| !note.is_empty()).unwrap_or_default();
            let _ = writeln!(
                out,
                "| `{name}` | yes | yes | {dtypes} | {} | {} | {torch} | {note} |",
                yes(order > 0),
                yes(order > 1),
            );
        }
    }
    absent(&mut out);
    from_python(&mut out);
    out
}

/// PyTorch's names that the Python package has.
fn python_names() -> BTreeSet<String> {
    let tensor = PYTHON_TENSOR.lines().skip_while(|line| !line.starts_with("class Tensor"));
    let methods = tensor.filter_map(|line| Some(("torch.Tensor", line.strip_prefix("    ")?)));
    let functions = PYTHON.iter().flat_map(|(module, text)| text.lines().map(move |line| (*module, line)));
    let mut names = BTreeSet::new();
    for (module, line) in methods.chain(functions) {
        // `def name(`, `from module import name, other`, `name: type`.
        let declared = line.strip_prefix("def ").map_or(line, |rest| rest.split('(').next().unwrap_or(rest));
        let declared = declared.rsplit(" import ").next().unwrap_or(declared);
        for word in declared.split(", ") {
            let word = word.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
            names.insert(format!("{module}.{word}"));
        }
    }
    names
}

/// The names of PyTorch that a program in Python finds, and those that it does not.
fn from_python(out: &mut String) {
    let found = python_names();
    let lines = TORCH.lines().filter_map(|line| line.split_once('\t'));
    let names: Vec<&str> = lines.map(|(name, _)| name).collect();
    let missing: Vec<String> =
        names.iter().filter(|name| !found.contains(**name)).map(|name| format!("`{name}`")).collect();
    let _ = write!(
        out,
        "\n## From Python\n\n{} of these {} names are in the [Python package](guide/python.md) too. Missing: {}.\n",
        names.len() - missing.len(),
        names.len(),
        missing.join(", ")
    );
}

/// The last word of a name.
fn last(name: &str) -> String {
    name.rsplit('.').next().unwrap_or_default().to_string()
}

/// The last words of the names of all rows, here and in PyTorch.
fn present() -> BTreeSet<String> {
    let sections = sections();
    let rows = sections.iter().flat_map(|(_, rows)| rows);
    let words = rows.flat_map(|row| {
        // Windows have the word in their names here, and a module for it in PyTorch.
        let here = last(&row.name.replace("::", "."));
        let bare = here.strip_suffix("_window").unwrap_or(&here).to_string();
        [last(&torch_name(row)), here.clone(), bare]
    });
    words.collect()
}

/// The operations that PyTorch's own suite tests and no row computes, each with what the page says of it.
pub fn untested() -> Vec<(&'static str, &'static str)> {
    let present = present();
    let lines = TESTED.lines().filter_map(|line| line.split_once('\t'));
    lines.filter(|(name, _)| !present.contains(&last(name))).collect()
}

/// The operations of PyTorch that no row computes.
fn absent(out: &mut String) {
    let present = present();
    let public: Vec<(&str, &str)> = TORCH
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter(|(name, _)| !present.contains(&last(name)))
        .collect();
    // The suite tests more than the modules show.
    let known: BTreeSet<String> = public.iter().map(|(name, _)| last(name)).collect();
    let tested = untested().into_iter().filter(|(name, _)| !known.contains(&last(name)));
    let missing: Vec<(&str, &str)> = public.iter().copied().chain(tested).collect();
    let _ = write!(
        out,
        "\n## PyTorch's operations without a line above\n\nThese are taken from {} names for dense real tensors in `torch`, `torch.Tensor`, \
         `torch.nn.functional`, `torch.linalg` and `torch.fft`\n(`tools/operations/torch.tsv`, without in-place forms), and from {} names that PyTorch's own suite tests\n(`tools/operations/tested.tsv`; names without `torch.` are the suite's).\n\nUnder another name:\n\n",
        TORCH.lines().count(),
        TESTED.lines().count()
    );
    for (name, reason) in &missing {
        if let Some(other) = reason.strip_prefix("= ") {
            let _ = writeln!(out, "- `{name}`: {other}");
        }
    }
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, reason) in missing.iter().filter(|(_, reason)| !reason.starts_with("= ")) {
        let reason = if reason.is_empty() { "not yet" } else { reason };
        reasons.entry(reason).or_default().push(format!("`{name}`"));
    }
    let _ = write!(out, "\nMissing, by reason:\n\n");
    for (reason, names) in reasons {
        let _ = writeln!(out, "- {reason}: {}", names.join(", "));
    }
}
