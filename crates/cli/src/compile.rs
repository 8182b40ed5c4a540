//! `taper compile`: a network from an ONNX file as a program without Taper.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use taper::{
    DType, Tensor, no_grad,
    onnx::{HostData, HostTensor, LoadOptions, Model, Size, Value, ValueInfo},
    ship::{Budget, Shipment, Target},
    tensor_core::backend::readable_bytes,
};

use crate::{error::Outcome, run::inputs};

/// Writes a network from an ONNX file as a program without Taper, in Rust or C or for a page.
///
/// The program is one function of arrays: no allocation, no libraries, weights as static data, and one arena
/// for everything else. A page runs it through WebGPU. Its sizes are printed first. A dynamic size of an
/// input becomes a fixed one, and an input that decides the path of the network (a sampling rate) a number.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper compile digits.onnx --to rust
  taper compile digits.onnx --to c --out firmware/net --flash 256K --ram 64K
  taper compile digits.onnx --to wgsl --out page
  taper compile silero_vad.onnx --to c --input input=zeros:1x576 --input state=zeros:2x1x128 --fix sr=16000

The interpreter of the plan defines the bits of a program; docs/guide/ship.md says what cannot be shipped.")]
pub(crate) struct Options {
    /// An ONNX file
    file: PathBuf,
    /// The language of the program
    #[arg(long, value_enum)]
    to: Language,
    /// The folder of the program; by default it has its name
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// The name of the program; by default that of the file
    #[arg(long)]
    name: Option<String>,
    /// The shape of an input whose sizes the file leaves open: NAME=zeros:1x3x32x32
    #[arg(short, long, value_name = "NAME=SOURCE")]
    input: Vec<String>,
    /// An input with one number, which becomes a part of the program: NAME=NUMBER
    #[arg(long, value_name = "NAME=NUMBER")]
    fix: Vec<String>,
    /// An output, or any value of the graph; without this, all outputs
    #[arg(long, value_name = "NAME")]
    output: Vec<String>,
    /// The greatest size of code and weights: a number of bytes, or one such as 256K
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    flash: Option<usize>,
    /// The greatest size of the arena
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    ram: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    /// A crate without std
    Rust,
    /// C99, one header and one source file
    C,
    /// A page with WebGPU: WGSL and a module of JavaScript
    Wgsl,
}

/// A number of bytes: 65536, 64K or 1M.
fn bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let number = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    number.ok_or_else(|| format!("`{text}` is no number of bytes such as 65536, 64K or 1M"))
}

/// The inputs that become numbers of the program.
fn fixed(given: &[String], known: &[ValueInfo]) -> Outcome<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for text in given {
        let Some((name, number)) = text.split_once('=') else {
            return Err(format!("--fix {text}: give NAME=NUMBER").into());
        };
        let Some(info) = known.iter().find(|info| info.name == name) else {
            return Err(format!("--fix {text}: there is no input {name}").into());
        };
        let Some(data_type) = info.data_type else {
            return Err(format!("--fix {text}: the input is no tensor").into());
        };
        let is_float = data_type.dtype().is_some_and(DType::is_float);
        let wrong = || format!("--fix {text}: `{number}` is no number of the input {info}");
        let data = match is_float {
            true => HostData::Float(vec![number.parse().map_err(|_| wrong())?]),
            false => HostData::Int(vec![number.parse().map_err(|_| wrong())?]),
        };
        let rank = info.shape.as_ref().map_or(0, Vec::len);
        found.push((name.to_string(), HostTensor::new(data_type, vec![1; rank], data)?.into()));
    }
    Ok(found)
}

/// The name of a file as one of a program.
fn word(name: &str) -> String {
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    let word: String = letters.collect();
    if word.starts_with(|c: char| c.is_ascii_lowercase()) { word } else { format!("net_{word}") }
}

/// Writes the program.
pub(crate) fn run(options: &Options) -> Outcome {
    let cpu = taper::cpu();
    let load = LoadOptions { outputs: options.output.clone(), ..Default::default() };
    let model = Model::load_with(&options.file, &cpu, load)?;
    let known = model.inputs();
    let fixed = fixed(&options.fix, &known)?;
    let is_given = |name: &str| {
        let named = |text: &String| text.split_once('=').is_some_and(|(given, _)| given == name);
        options.input.iter().chain(&options.fix).any(named)
    };
    let has_sizes = |info: &&ValueInfo| {
        let shape = info.shape.as_ref();
        shape.is_some_and(|shape| shape.iter().all(|size| matches!(size, Size::Known(_))))
    };
    let plain = known.iter().filter(|info| !info.optional && !is_given(&info.name)).filter(has_sizes);
    let mut sources = options.input.clone();
    sources.extend(plain.map(|info| format!("{}=zeros", info.name)));
    let without_fixed: Vec<ValueInfo> =
        known.iter().filter(|info| fixed.iter().all(|(name, _)| *name != info.name)).cloned().collect();
    let given = inputs(&sources, 0, &without_fixed, &cpu)?;
    let names: Vec<String> = given.iter().map(|(name, _)| name.clone()).collect();
    let tensors: Vec<Tensor> = given.into_iter().map(|(_, tensor)| tensor).collect();
    let run = |tensors: Vec<Tensor>| -> taper::Result<Vec<Tensor>> {
        let values = tensors.into_iter().map(Value::from);
        let all = names.iter().cloned().zip(values).chain(fixed.iter().cloned());
        model.run(all)?.tensors()
    };
    // The first run keeps what depends on weights alone.
    let first = no_grad(|| run(tensors.clone()))?;
    taper::eval_all(&first.iter().collect::<Vec<_>>())?;
    let network = taper::compile(run);
    no_grad(|| network.call(tensors))?;
    let target = match options.to {
        Language::Rust => Target::Rust,
        Language::C => Target::C,
        Language::Wgsl => Target::Wgsl,
    };
    let stem = options.file.file_stem().unwrap_or_default().to_string_lossy();
    let name = options.name.clone().unwrap_or_else(|| word(&stem));
    let program = taper::ship(&network, target)?.named(&name)?;
    Budget { flash: options.flash, ram: options.ram }.check(program.sizes())?;
    report(&program, &names)?;
    let folder = options.out.clone().unwrap_or_else(|| PathBuf::from(&name));
    program.write(&folder)?;
    let mut out = io::stdout().lock();
    for (path, text) in program.files() {
        writeln!(out, "{}  {}", folder.join(path).display(), readable_bytes(text.len() as u64))?;
    }
    Ok(())
}

/// Prints the arguments, the results and the sizes.
fn report(program: &Shipment, names: &[String]) -> Outcome {
    let mut out = io::stdout().lock();
    for (k, ((shape, dtype), name)) in program.arguments().zip(names).enumerate() {
        writeln!(out, "x{k}  {dtype} {shape}  the input {name}")?;
    }
    for (k, (shape, dtype)) in program.results().enumerate() {
        writeln!(out, "y{k}  {dtype} {shape}")?;
    }
    writeln!(out, "{}", program.sizes())?;
    Ok(())
}
