//! `taper inspect`: the contents of a file of weights, a model's folder, or an ONNX file.

mod network;
mod weight_file;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value as Json, json};
use taper::{tensor_core::backend::readable_bytes, weights};

use crate::{error::Outcome, model, output};

/// Shows what is inside of a file or a folder: metadata, tensors, operators, and the memory that it needs.
///
/// Knows safetensors, GGUF, PyTorch's .pt, .pth and .bin, NumPy's .npz and .npy, folders with any of these,
/// and ONNX. No tensor is read, and no code of a file runs.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper inspect SmolLM2-135M-Instruct.Q4_1.gguf
  taper inspect checkpoint.pt --json
  taper inspect resnet50.onnx
  taper inspect sentence-transformers/all-MiniLM-L6-v2")]
pub(crate) struct Options {
    /// A file, a folder, or a name such as org/name
    path: PathBuf,
    /// Prints JSON, with all values in full
    #[arg(long)]
    json: bool,
}

/// The contents of a file.
struct Contents {
    format: String,
    /// Metadata by name: a text for people, and the value.
    metadata: Vec<(String, String, Json)>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// How many nodes have each operator.
    operators: Vec<(String, usize)>,
    tensors: Vec<Row>,
}

/// A tensor of a file.
struct Row {
    name: String,
    type_name: String,
    shape: Vec<usize>,
    /// Unknown for types without a counterpart.
    bytes: Option<u64>,
}

/// Prints the contents.
pub(crate) fn run(options: &Options) -> Outcome {
    let path = model::find(&options.path)?;
    let is_onnx = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx"));
    let contents = match is_onnx {
        true => network::contents(&path)?,
        false => weight_file::contents(&path, &weights::open(&path)?)?,
    };
    if options.json { output::json(&contents.json(&path)) } else { contents.print(&path) }
}

/// The greatest number of characters of a value of the metadata.
const VALUE_CHARACTERS: usize = 96;

/// The widest column of names; longer names move their line to the right.
const NAME_COLUMN: usize = 64;

/// The beginning of a text on one line.
fn shortened(text: &str) -> String {
    let line = text.replace('\n', "\\n");
    match line.char_indices().nth(VALUE_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

impl Contents {
    fn elements(&self) -> usize {
        self.tensors.iter().map(|row| row.shape.iter().product::<usize>()).sum()
    }

    fn bytes(&self) -> u64 {
        self.tensors.iter().filter_map(|row| row.bytes).sum()
    }

    fn json(&self, path: &Path) -> Json {
        let metadata: serde_json::Map<String, Json> =
            self.metadata.iter().map(|(name, _, value)| (name.clone(), value.clone())).collect();
        let tensor = |row: &Row| json!({"name": row.name, "type": row.type_name, "shape": row.shape, "bytes": row.bytes});
        let operators: serde_json::Map<String, Json> =
            self.operators.iter().map(|(name, count)| (name.clone(), (*count).into())).collect();
        json!({
            "path": path.display().to_string(),
            "format": self.format,
            "metadata": metadata,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "operators": operators,
            "tensors": self.tensors.iter().map(tensor).collect::<Vec<_>>(),
            "elements": self.elements(),
            "bytes": self.bytes(),
        })
    }

    fn print(&self, path: &Path) -> Outcome {
        let mut out = io::stdout().lock();
        writeln!(out, "{}: {}", path.display(), self.format)?;
        if !self.metadata.is_empty() {
            writeln!(out, "\nmetadata")?;
        }
        for (name, text, _) in &self.metadata {
            writeln!(out, "  {name} = {}", shortened(text))?;
        }
        for (title, values) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            if !values.is_empty() {
                writeln!(out, "\n{title}")?;
            }
            for value in values {
                writeln!(out, "  {value}")?;
            }
        }
        if !self.operators.is_empty() {
            let operators: Vec<String> =
                self.operators.iter().map(|(name, count)| format!("{name} {count}")).collect();
            writeln!(out, "\noperators\n  {}", operators.join(", "))?;
        }
        if !self.tensors.is_empty() {
            writeln!(out, "\ntensors")?;
        }
        let longest = self.tensors.iter().map(|row| row.name.len()).max().unwrap_or(0).min(NAME_COLUMN);
        for Row { name, type_name, shape, bytes } in &self.tensors {
            let bytes = bytes.map_or_else(|| "unknown size".to_string(), readable_bytes);
            writeln!(out, "  {name:longest$}  {type_name:5}  {:16}  {bytes}", format!("{shape:?}"))?;
        }
        let (count, elements) = (self.tensors.len(), self.elements());
        let (bytes, as_floats) = (readable_bytes(self.bytes()), readable_bytes(4 * elements as u64));
        writeln!(
            out,
            "\n{count} tensors, {elements} elements: {bytes} of memory as they are, {as_floats} as f32"
        )?;
        Ok(())
    }
}
