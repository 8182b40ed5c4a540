//! The public functions that give tensors, read from the sources; and those of them that are no operations.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Functions that have no row, by reason.
pub const NO_OPERATIONS: &[(&str, &[&str])] = &[
    (
        "parts of other functions, hidden: tested with those",
        &["contract_wide", "scale_of_squares", "scaled_norm"],
    ),
    (
        "a constructor from a user's numbers: tested with dtypes and conversions",
        &[
            "new",
            "from_slice",
            "from_vec",
            "from_bytes_of",
            "from_bytes_with",
            "from_content",
            "from_ndarray",
        ],
    ),
    (
        "of storage in blocks: tested with every format, in taper/tests/it/ops/blocks.rs",
        &["from_blocks", "of_blocks", "of_blocks_in", "affine", "dequantize", "quantize"],
    ),
    (
        "random: no number to compare with; tested with distributions and streams",
        &[
            "rand",
            "randn",
            "rand_dtype",
            "randn_dtype",
            "uniform",
            "randint",
            "randperm",
            "bernoulli",
            "multinomial",
            "exponential",
            "log_normal",
            "cauchy",
            "geometric",
            "truncated_normal",
            "poisson",
            "standard_gamma",
            "log_standard_gamma",
            "beta",
            "dirichlet",
            "binomial",
            "functional::rrelu",
            "functional::dropout",
            "functional::dropout1d",
            "functional::dropout2d",
            "functional::dropout3d",
            "functional::alpha_dropout",
            "functional::feature_alpha_dropout",
            "functional::stochastic_depth",
            "functional::gumbel_softmax",
            "functional::fractional_max_pool2d",
            "functional::fractional_max_pool3d",
        ],
    ),
    (
        "a sum of log_softmax and gather over answers, with their lengths: tested with the losses that take it",
        &["functional::answer_log_probabilities"],
    ),
    (
        "gradients pass straight through, unlike the derivative: tested in nn/tests/it/qat.rs with PyTorch's numbers",
        &["functional::fake_quantize_per_tensor_affine", "functional::fake_quantize_per_channel_affine"],
    ),
    (
        "the form with defaults, or with settings, of a function that has rows: tested in taper/tests/it/ops/short_forms.rs and linalg's tests",
        &[
            "softplus",
            "functional::max_pool1d_with",
            "functional::max_pool2d",
            "functional::max_pool3d_with",
            "functional::avg_pool1d_with",
            "functional::avg_pool2d",
            "functional::avg_pool3d",
            "linalg::solve_with",
        ],
    ),
    ("between devices, and into cells: tested with transfers and cells", &["to", "into_cell"]),
    (
        "of the graph, not of numbers",
        &[
            "resolve",
            "leaf",
            "recorded_inputs",
            "inputs",
            "node_inputs",
            "elements",
            "grad",
            "claim_graph",
            "downgrade",
            "custom",
            "custom_kernel",
        ],
    ),
    (
        "the general form of several rows: the suite tries it with each of its operations",
        &["unary", "binary", "compare", "compare_scalar", "reduce", "arg_reduce", "contract"],
    ),
    ("the parts along the first axis, one after the other, as select gives them", &["iter"]),
    ("the adjoint of windows, which gradients of unfold and windows take", &["pad_between"]),
    ("a part of pad, which functional::pad takes: hidden", &["cut_by"]),
    (
        "recorded operations built again, for what maps over an axis: hidden",
        &["formula", "contiguous_copy", "scatter_with"],
    ),
    ("gather and index_select with another name in errors, hidden", &["gather_for", "index_select_for"]),
];

/// A folder of sources, what comes before the names of its functions, and whether every function counts or
/// only those that give tensors.
const SOURCES: &[(&str, &str)] = &[
    ("crates/tensor-core/src/tensor", ""),
    ("crates/tensor-core/src/graph/handle.rs", ""),
    ("crates/nn/src/functions", "functional::"),
    ("crates/nn/src/loss", "functional::"),
    ("crates/linalg/src", "linalg::"),
    ("crates/tensor-core/src/fft/mod.rs", "fft::"),
    ("crates/tensor-core/src/fft/hermitian.rs", "fft::"),
    ("crates/tensor-core/src/fft/stft.rs", "fft::"),
];

/// The names of all public functions that give tensors, as rows have them.
///
/// # Panics
/// A macro that makes functions in a form that this does not know.
pub fn functions(root: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (place, prefix) in SOURCES {
        let mut files = Vec::new();
        collect(root.join(place), &mut files);
        for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
            let source = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let methods = prefix.is_empty();
            for name in of_source(&source, methods) {
                names.insert(format!("{prefix}{name}"));
            }
        }
    }
    names
}

/// Adds a file, or the files below a folder.
fn collect(place: PathBuf, files: &mut Vec<PathBuf>) {
    match fs::read_dir(&place) {
        Ok(entries) => entries.for_each(|entry| collect(entry.unwrap().path(), files)),
        Err(_) => files.push(place),
    }
}

/// The crates whose public functions carry the line of their caller.
const TRACKED: &[&str] = &["nn", "optim", "linalg", "distributions", "data"];

/// The public functions that may fail and lack `#[track_caller]`, as `file:line name`.
///
/// # Panics
/// A source that cannot be read.
pub fn untracked(root: &Path) -> Vec<String> {
    let mut folders: Vec<_> = TRACKED.iter().map(|name| root.join("crates").join(name).join("src")).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let place = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                let source = fs::read_to_string(&path).unwrap();
                found.extend(untracked_of_source(&source).into_iter().map(|name| format!("{place}: {name}")));
            }
        }
    }
    found
}

fn untracked_of_source(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.split("#[cfg(test)]").next().unwrap_or_default().lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("pub fn ") else { continue };
        let end = lines[at..].iter().position(|line| line.contains('{')).map_or(lines.len(), |n| at + n + 1);
        let signature = lines[at..end].concat();
        let result = signature.rsplit_once("->").map_or("", |(_, result)| result);
        let is_attribute = |line: &&&str| line.trim_start().starts_with(['#', '/']);
        let mut above = lines[..at].iter().rev().take_while(is_attribute);
        if result.trim_start().starts_with("Result<") && !above.any(|line| line.contains("#[track_caller]")) {
            found.push(format!("{} {}", at + 1, rest.split('(').next().unwrap_or(rest)));
        }
    }
    found
}

/// The functions of a source that give tensors: methods of `Tensor`, or free functions.
fn of_source(source: &str, methods: bool) -> Vec<String> {
    let mut names = Vec::new();
    // Where tests begin, the library ends.
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let macros = macros(source);
    let (mut block, mut template) = (String::new(), false);
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("impl") {
            block = line.to_string();
        } else if line.starts_with('}') {
            (block, template) = (String::new(), false);
        } else if line.starts_with("macro_rules!") {
            template = true;
        }
        let text = line.trim_start();
        let Some(rest) = text.strip_prefix("pub fn ") else { continue };
        if template || (methods != (block.starts_with("impl Tensor") && line.starts_with("    "))) {
            continue;
        }
        if !methods && line.starts_with(' ') {
            continue;
        }
        let mut signature = rest.to_string();
        while !signature.trim_end().ends_with(['{', ';']) {
            let Some(more) = lines.next() else { break };
            signature.push_str(more.trim());
        }
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let result = signature.rsplit("->").next().unwrap_or_default();
        let gives = signature.contains("->") && (result.contains("Tensor") || result.contains("Lstsq"));
        if gives && !result.contains("impl Iterator") {
            names.push(name);
        }
    }
    for (name, _) in &macros {
        names.extend(made_by(source, name));
    }
    names
}

/// The macros of a source that make public functions of a name they are given.
fn macros(source: &str) -> Vec<(String, String)> {
    let parts = source.split("macro_rules! ").skip(1);
    parts
        .filter_map(|part| {
            let body = part.split("\n}").next()?;
            let name = body.split([' ', '{']).next()?.to_string();
            let signature = body.split("pub fn $").nth(1)?.split('{').next()?;
            let makes = signature.contains("Tensor");
            makes.then(|| (name, body.to_string()))
        })
        .collect()
}

/// The lower-case names of each entry `name[, name] => …;`, `name[(arguments)] = …;` or `name, number, …;`.
fn made_by(source: &str, name: &str) -> Vec<String> {
    let mut names = Vec::new();
    for call in source.split(&format!("\n{name}! {{")).skip(1) {
        let body = call.split("\n}").next().unwrap_or_default();
        let code: String = body
            .lines()
            .filter(|line| !line.trim_start().starts_with("//") && !line.trim_start().starts_with("#["))
            .collect::<Vec<_>>()
            .join("\n");
        for entry in code.split(";\n").flat_map(|e| e.split(";")) {
            let head = entry.split(['=', '(']).next().unwrap_or_default();
            let words = head.split(',').map(str::trim);
            let words = words.take_while(|w| !w.starts_with(|c: char| c.is_ascii_digit()));
            names.extend(
                words
                    .filter(|w| w.starts_with(|c: char| c.is_ascii_lowercase()))
                    .filter(|w| w.chars().all(|c| c.is_alphanumeric() || c == '_'))
                    .map(str::to_string),
            );
        }
    }
    assert!(!names.is_empty(), "{name}! makes functions in a form that the scan does not know");
    names
}
