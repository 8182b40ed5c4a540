//! Which kind of file is it? Magika reads the first and the last bytes of files, and names one of 214 kinds.
//!
//!     pip install --no-deps --target models magika==1.0.3
//!     model=models/magika/models/standard_v3_3/model.onnx
//!     cargo run --release -p taper-examples-onnx --example file_type -- --model $model
//!
//! Without files as arguments it reads some of this repository, one of each extension, and compares the
//! answers with the extensions. The labels are read from `config.min.json` beside the model.

#[path = "../basics/common/mod.rs"]
mod common;
mod files;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::Outcome;
use serde_json::Value;
use taper::{onnx::Model, prelude::*};

/// Names the kinds of files by their content.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// model.onnx of the Python package magika==1.0.3, in its folder models/standard_v3_3
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Files [default: one of each extension in this repository]
    files: Vec<PathBuf>,
}

/// The settings of a model, from its `config.min.json`.
struct Config {
    labels: Vec<String>,
    /// The numbers of bytes from the beginning and from the end.
    sizes: [usize; 2],
    /// The bytes that are read at both ends, of which white space is stripped.
    block: u64,
    /// The number in place of bytes that a short file lacks.
    padding: i32,
    /// Files with fewer bytes are not given to the network.
    least: usize,
    threshold: f64,
    /// Thresholds of single labels.
    thresholds: BTreeMap<String, f64>,
}

impl Config {
    fn read(path: &Path) -> Outcome<Config> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let config: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        let number = |name: &str| config[name].as_f64().ok_or_else(|| failed(&format!("has no {name}")));
        let list = config["target_labels_space"].as_array().ok_or_else(|| failed(&"has no labels"))?;
        let labels = list.iter().filter_map(Value::as_str).map(str::to_string).collect();
        let thresholds = config["thresholds"].as_object().into_iter().flatten();
        Ok(Config {
            labels,
            sizes: [number("beg_size")? as usize, number("end_size")? as usize],
            block: number("block_size")? as u64,
            padding: number("padding_token")? as i32,
            least: number("min_file_size_for_dl")? as usize,
            threshold: number("medium_confidence_threshold")?,
            thresholds: thresholds.filter_map(|(label, x)| Some((label.clone(), x.as_f64()?))).collect(),
        })
    }

    /// The network's input for a file: the bytes at its beginning without white space before them, and at
    /// its end without white space after them, both filled up in the middle. `None` for a file that is too
    /// short.
    fn features(&self, path: &Path) -> Outcome<Option<Vec<i32>>> {
        let read = || -> io::Result<[Vec<u8>; 2]> {
            let mut file = File::open(path)?;
            let (mut head, mut tail) = (Vec::new(), Vec::new());
            (&file).take(self.block).read_to_end(&mut head)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(self.block)))?;
            file.take(self.block).read_to_end(&mut tail)?;
            Ok([head, tail])
        };
        let [head, tail] = read().map_err(|error| format!("{}: {error}", path.display()))?;
        let white = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let first = head.iter().position(|byte| !white(byte)).unwrap_or(head.len());
        let last = tail.iter().rposition(|byte| !white(byte)).map_or(0, |at| at + 1);
        let (head, tail) = (&head[first..], &tail[..last]);
        if head.len() < self.least {
            return Ok(None);
        }
        let head = &head[..head.len().min(self.sizes[0])];
        let tail = &tail[tail.len().saturating_sub(self.sizes[1])..];
        let numbers = |bytes: &[u8]| bytes.iter().map(|&byte| i32::from(byte)).collect::<Vec<i32>>();
        let fill = vec![self.padding; self.sizes[0] + self.sizes[1] - head.len() - tail.len()];
        Ok(Some([numbers(head), fill, numbers(tail)].concat()))
    }

    /// Whether an answer is trusted.
    fn trusts(&self, label: &str, probability: f64) -> bool {
        probability >= self.thresholds.get(label).copied().unwrap_or(self.threshold)
    }
}

/// The label of files with an extension, for the extensions of this repository that Magika has a label for.
const KNOWN: [(&str, &str); 11] = [
    ("rs", "rust"),
    ("py", "python"),
    ("md", "markdown"),
    ("toml", "toml"),
    ("json", "json"),
    ("yml", "yaml"),
    ("html", "html"),
    ("js", "javascript"),
    ("sh", "shell"),
    ("onnx", "onnx"),
    ("png", "png"),
];

/// The longest file of each extension of this repository that is in the table.
fn from_repository() -> Outcome<Vec<PathBuf>> {
    let root = files::repository().canonicalize()?;
    let mut longest: BTreeMap<String, (u64, PathBuf)> = BTreeMap::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let metadata = path.symlink_metadata()?;
            if metadata.is_dir() && name != "target" && name != ".git" {
                folders.push(path);
                continue;
            }
            let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            if metadata.is_file() && KNOWN.iter().any(|(known, _)| *known == ending) {
                let best = longest.entry(ending).or_default();
                if metadata.len() > best.0 {
                    *best = (metadata.len(), path);
                }
            }
        }
    }
    Ok(longest.into_values().map(|(_, path)| path).collect())
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let net = Model::load(&options.model, &device)?;
    let config = Config::read(&options.model.with_file_name("config.min.json"))?;
    let files = if options.files.is_empty() { from_repository()? } else { options.files.clone() };

    let mut rows = Vec::new();
    let mut named = Vec::new();
    for file in &files {
        match config.features(file)? {
            Some(features) => {
                rows.extend(features);
                named.push(file);
            }
            None => writeln!(out, "{}: fewer than {} bytes", file.display(), config.least)?,
        }
    }
    if named.is_empty() {
        return Err("no file to look at".into());
    }
    let started = Instant::now();
    let bytes = Tensor::from_vec(rows, (named.len(), config.sizes[0] + config.sizes[1]), &device)?;
    let probabilities = no_grad(|| net.run([("bytes", bytes)]))?.tensor("target_label")?;
    let (greatest, best) = probabilities.max_axis(1, false)?;
    let (greatest, best) = (greatest.to_vec::<f32>()?, best.to_vec::<i64>()?);
    let took = common::seconds(started.elapsed().as_secs_f64());
    writeln!(out, "{} files on {device} in {took}\n", named.len())?;

    writeln!(out, "{:<14} {:>11}  file", "label", "probability")?;
    let (mut right, mut known) = (0, 0);
    let root = files::repository().canonicalize()?;
    for ((file, probability), best) in named.iter().zip(greatest).zip(best) {
        let label = usize::try_from(best).ok().and_then(|at| config.labels.get(at)).map_or("?", |l| l);
        let doubt = if config.trusts(label, probability.into()) { "" } else { "  (below its threshold)" };
        let shown = file.strip_prefix(&root).unwrap_or(file);
        writeln!(out, "{label:<14} {probability:>11.3}  {}{doubt}", shown.display())?;
        let ending = file.extension().unwrap_or_default();
        if let Some((_, wanted)) = KNOWN.iter().find(|(known, _)| ending == *known) {
            known += 1;
            right += usize::from(label == *wanted);
        }
    }
    if known > 0 {
        let accuracy = f64::from(right as u32) / f64::from(known);
        writeln!(out, "\n{right} of {known} labels fit the extension; accuracy {accuracy:.3}")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
