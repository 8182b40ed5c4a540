//! `taper run`: runs a network from an ONNX file.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use serde_json::{Value as Json, json};
use taper::{
    DType, Device, Generator, Kind, Tensor,
    nn::StateDict,
    no_grad,
    onnx::{LoadOptions, Model, Outputs, Size, Value, ValueInfo},
    weights,
};

use crate::{error::Outcome, files::Target, model::DeviceOption, output};

/// Runs a network from an ONNX file, and prints the type, shape and range of each output.
///
/// An input is `NAME=SOURCE`. The source is a file (.npy, .npz, .safetensors: the tensor with the input's
/// name, or the only one), or `zeros`, `ones` or `random`, with a shape where the file leaves sizes open:
/// `random:1x3x224x224`. Random floats are normal, random integers 0 or 1.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper run resnet50.onnx --input x=random:1x3x224x224 --repeat 20
  taper run model.onnx --input ids=ids.npy --input mask=ones:1x12 --out results.npz
  taper run model.onnx --input x=x.npy --output features --json

`taper inspect model.onnx` lists the inputs and outputs.")]
pub(crate) struct Options {
    #[command(flatten)]
    network: NetworkOptions,
    /// Writes the outputs to this file: .npz, .safetensors, .pt, .gguf, or .npy for one output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Prints the time of a run: the median of this many, after one that is not counted
    #[arg(long, default_value_t = 0)]
    repeat: usize,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// The options of a network from an ONNX file and of its inputs.
#[derive(Args)]
pub(crate) struct NetworkOptions {
    /// An ONNX file
    pub(crate) file: PathBuf,
    /// An input: NAME=FILE, NAME=zeros, NAME=ones or NAME=random, the last three with or without :SHAPE
    #[arg(short, long, value_name = "NAME=SOURCE")]
    input: Vec<String>,
    /// An output, or any value of the graph; without this, all outputs
    #[arg(long, value_name = "NAME")]
    output: Vec<String>,
    /// The seed of random inputs
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceOption,
}

/// A network with its inputs.
pub(crate) struct Network {
    pub(crate) device: Device,
    model: Model,
    inputs: Vec<(String, Tensor)>,
}

impl NetworkOptions {
    /// Loads the network and makes its inputs.
    pub(crate) fn open(&self) -> Outcome<Network> {
        let device = self.device.open()?;
        let load = LoadOptions { outputs: self.output.clone(), ..Default::default() };
        let model = Model::load_with(&self.file, &device, load)?;
        let inputs = inputs(&self.input, self.seed, &model.inputs(), &device)?;
        Ok(Network { device, model, inputs })
    }
}

impl Network {
    /// The outputs, and those that are tensors on the device, which are not computed yet where the network
    /// can be built without their values.
    pub(crate) fn outputs(&self) -> taper::Result<(Outputs, StateDict)> {
        let given = self.inputs.iter().map(|(name, tensor)| (name, tensor));
        let outputs = no_grad(|| self.model.run(given))?;
        let tensors = output_tensors(&outputs, &self.device)?;
        Ok((outputs, tensors))
    }

    /// The computed outputs, when the device is idle again.
    pub(crate) fn run(&self) -> taper::Result<(Outputs, StateDict)> {
        let (outputs, tensors) = self.outputs()?;
        taper::eval_all(&tensors.values().collect::<Vec<_>>())?;
        self.device.synchronize()?;
        Ok((outputs, tensors))
    }
}

/// The names, types and shapes of values, for an error.
fn listed(values: &[ValueInfo]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The shape of a made input: the one in its source, or that of the file, if it has all sizes.
fn shape(info: &ValueInfo, given: Option<&str>, source: &str) -> Outcome<Vec<usize>> {
    let name = &info.name;
    if let Some(text) = given {
        let sizes = text.split(['x', ',']).filter(|size| !size.is_empty()).map(str::parse);
        return sizes.collect::<Result<Vec<usize>, _>>().map_err(|_| {
            format!("--input {name}={source}:{text}: this is no shape; give one such as 1x3x224x224").into()
        });
    }
    let sizes = info.shape.iter().flatten().map(|size| match size {
        Size::Known(size) => Some(*size),
        Size::Symbolic(_) => None,
    });
    match sizes.collect::<Option<Vec<usize>>>().filter(|_| info.shape.is_some()) {
        Some(sizes) => Ok(sizes),
        None => Err(format!(
            "the input {info} has no fixed shape; give one, as in --input {name}={source}:1x3x224x224"
        )
        .into()),
    }
}

/// A tensor of a file: the one with the input's name, or the only one.
fn from_file(info: &ValueInfo, path: &Path, device: &Device) -> Outcome<Tensor> {
    let file = weights::open(path)?;
    let only = file.names().next().filter(|_| file.len() == 1);
    let name = if file.info(&info.name).is_some() { Some(info.name.as_str()) } else { only };
    match name {
        Some(name) => Ok(file.tensor(name, device)?),
        None => {
            let names: Vec<&str> = file.names().collect();
            let (path, name) = (path.display(), &info.name);
            Err(format!("{path}: there is no tensor {name}; the file has {}", names.join(", ")).into())
        }
    }
}

/// The tensor of an input.
fn tensor(info: &ValueInfo, source: &str, rng: &Generator) -> Outcome<Tensor> {
    let (kind, given) = match source.split_once(':') {
        Some((kind, shape)) => (kind, Some(shape)),
        None => (source, None),
    };
    let device = rng.device();
    let make: fn(Vec<usize>, DType, &Generator) -> taper::Result<Tensor> = match kind {
        "zeros" => |shape, _, rng| Tensor::zeros(shape, rng.device()),
        "ones" => |shape, _, rng| Tensor::ones(shape, rng.device()),
        "random" => |shape, dtype, rng| match dtype.info().kind {
            Kind::Float => Tensor::randn(shape, rng),
            Kind::Bool | Kind::Signed | Kind::Unsigned => Tensor::randint(0, 2, shape, rng),
        },
        _ => return from_file(info, Path::new(source), device),
    };
    let dtype = info.data_type.and_then(|data_type| data_type.dtype()).unwrap_or(DType::F32);
    Ok(make(shape(info, given, kind)?, dtype, rng)?.to_dtype(dtype)?)
}

/// The inputs of the command line, by their names.
pub(crate) fn inputs(
    given: &[String],
    seed: u64,
    known: &[ValueInfo],
    device: &Device,
) -> Outcome<Vec<(String, Tensor)>> {
    let rng = Generator::seed(seed, device);
    let mut found = Vec::new();
    for input in given {
        let Some((name, source)) = input.split_once('=') else {
            return Err(format!("--input {input}: give NAME=SOURCE; the inputs are {}", listed(known)).into());
        };
        let Some(info) = known.iter().find(|info| info.name == name) else {
            return Err(
                format!("--input {input}: there is no input {name}; there are {}", listed(known)).into()
            );
        };
        found.push((name.to_string(), tensor(info, source, &rng)?));
    }
    let missing = |info: &&ValueInfo| !info.optional && found.iter().all(|(name, _)| *name != info.name);
    match known.iter().find(missing) {
        Some(info) => {
            let name = &info.name;
            Err(format!("the input {info} is not given; add --input {name}=FILE or {name}=random:SHAPE")
                .into())
        }
        None => Ok(found),
    }
}

/// The least, greatest and mean element of a tensor; `None` without elements.
fn range(tensor: &Tensor) -> taper::Result<Option<[f64; 3]>> {
    let numbers = tensor.to_f64_vec()?;
    if numbers.is_empty() {
        return Ok(None);
    }
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ok(Some([least, greatest, numbers.iter().sum::<f64>() / numbers.len() as f64]))
}

/// The tensors of the outputs, on the device. Texts, sequences and empty optionals are left out.
fn output_tensors(outputs: &Outputs, device: &Device) -> taper::Result<StateDict> {
    let numbers = |value: &Value| value.data_type().is_some_and(|data_type| data_type.dtype().is_some());
    let tensors = outputs.iter().filter(|(_, value)| numbers(value));
    tensors.map(|(name, value)| Ok((name.to_string(), value.to_tensor(device)?))).collect()
}

/// Prints the outputs.
fn print(outputs: &Outputs, tensors: &StateDict, seconds: Option<f64>, as_json: bool) -> Outcome {
    let mut out = io::stdout().lock();
    let mut objects = Vec::new();
    for (name, value) in outputs.iter() {
        let range = match tensors.get(name) {
            Some(tensor) => range(tensor)?,
            None => None,
        };
        let data_type = value.data_type().map_or_else(|| "no tensor".to_string(), |kind| kind.to_string());
        let dims = value.dims().unwrap_or_default();
        if as_json {
            let [least, greatest, mean] = range.map_or([None; 3], |range| range.map(Some));
            objects.push(json!({"name": name, "dtype": data_type, "shape": dims, "min": least,
                                "max": greatest, "mean": mean}));
            continue;
        }
        write!(out, "{name}  {data_type} {dims:?}")?;
        match range {
            Some([least, greatest, mean]) => {
                writeln!(out, "  min {least:.6} max {greatest:.6} mean {mean:.6}")?
            }
            None => writeln!(out)?,
        }
    }
    if as_json {
        return output::json(&json!({"outputs": objects, "seconds": seconds.map_or(Json::Null, Json::from)}));
    }
    if let Some(seconds) = seconds {
        writeln!(out, "{:.3} ms a run", 1e3 * seconds)?;
    }
    Ok(())
}

/// Runs the network.
pub(crate) fn run(options: &Options) -> Outcome {
    let target = options.out.as_deref().map(Target::of).transpose()?;
    let network = options.network.open()?;
    let (outputs, tensors) = network.run()?;
    let mut times = Vec::new();
    for _ in 0..options.repeat {
        let begin = Instant::now();
        network.run()?;
        times.push(begin.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    print(&outputs, &tensors, times.get(times.len() / 2).copied(), options.json)?;
    if let (Some(path), Some(target)) = (&options.out, target) {
        target.save(path, &tensors)?;
    }
    Ok(())
}
