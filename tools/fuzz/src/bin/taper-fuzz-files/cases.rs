//! The cases of each family: the bytes, and what reading them must and must not do.

use std::{
    fs,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use data::ReadBudget;
use models::text::Tokenizer;
use onnx::{Budget, Model, Value, proto::ModelProto};
use prost::Message;
use taper::{Device, ErrorKind, prelude::Tensor};
use taper_fuzz::rng::Rng;
use taper_testing::damage;

use crate::{
    allocations::peak_of,
    archives,
    graphs::{faulty, model},
    language,
    operators::{self, Operator},
};

/// The bytes of memory that any file may take, and how many more for each of its bytes.
const MEMORY_FLOOR: usize = 8 << 20;
const MEMORY_FACTOR: usize = 64;
/// The budget of ONNX files, whose counts are estimates of what is within the bounds above.
const BUDGET: Budget = Budget { base_bytes: 4 << 20, bytes_per_byte: 32, nodes: 100_000 };
/// The memory of the device while a model runs, in bytes.
pub(crate) const DEVICE_BYTES: u64 = 64 << 20;
/// The memory beside the device's while a model runs, in bytes: kernels and values on the host.
const RUN_FLOOR: usize = 64 << 20;
/// The copies on the host of a model's parameters and tables, while they are made: initial values and tables
/// of positions are computed there before the device refuses them.
const HOST_COPIES: usize = 6;
/// The memory for what a packed archive holds; four times as much is read of its tensors.
const PACKED_BUDGET: ReadBudget = ReadBudget { least: 1 << 20, per_byte: 8 };
/// The longest time that a case may take.
const TIME_LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Family {
    /// ONNX graphs of random nodes, which also run
    Nodes,
    /// ONNX graphs with faults of structure
    Graphs,
    /// Damaged bytes of ONNX files
    Onnx,
    /// Damaged bytes of PyTorch's files
    Torch,
    /// Damaged bytes of safetensors, GGUF and NumPy's files
    Tensors,
    /// Archives of PyTorch and NumPy that are packed, with repeated parts
    Packed,
    /// Damaged bytes of WAV files
    Sounds,
    /// Configurations of models, whose values are changed
    Configs,
    /// Tokenizers in JSON, whose values are changed
    Tokenizers,
    /// Language models in GGUF files with changed metadata
    Gguf,
}

impl Family {
    pub(crate) const ALL: [Family; 10] = [
        Family::Nodes,
        Family::Graphs,
        Family::Onnx,
        Family::Torch,
        Family::Tensors,
        Family::Configs,
        Family::Tokenizers,
        Family::Gguf,
        Family::Packed,
        Family::Sounds,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Nodes => "nodes",
            Family::Graphs => "graphs",
            Family::Onnx => "onnx",
            Family::Torch => "torch",
            Family::Tensors => "tensors",
            Family::Packed => "packed",
            Family::Sounds => "sounds",
            Family::Configs => "configs",
            Family::Tokenizers => "tokenizers",
            Family::Gguf => "gguf",
        }
    }
}

/// Files to damage, and the operators to draw.
pub(crate) struct Sources {
    onnx: Vec<Vec<u8>>,
    torch: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    configs: Vec<Vec<u8>>,
    tokenizers: Vec<Vec<u8>>,
    operators: Vec<Operator>,
}

impl Sources {
    /// The small files of the tests.
    pub(crate) fn read() -> Result<Sources, String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
        let weights = crates.join("weights/tests/files");
        Ok(Sources {
            onnx: files(&crates.join("onnx/tests/models"), &["onnx"], 600_000)?,
            torch: files(&weights, &["pt", "pth"], 500_000)?,
            tensors: [
                files(&weights, &["gguf", "npz", "npy"], 500_000)?,
                files(&crates.join("onnx/tests/models"), &["safetensors"], 500_000)?,
            ]
            .concat(),
            configs: configurations(&crates.join("models/tests/fixtures"))?,
            tokenizers: files(&crates.join("models/tests/tokenizers"), &["json"], 100_000)?,
            operators: operators::all(),
        })
    }
}

/// The files of a folder with one of these endings, up to a size.
fn files(folder: &Path, endings: &[&str], most: u64) -> Result<Vec<Vec<u8>>, String> {
    let text = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(text)?
        .map(|entry| entry.map(|e| e.path()).map_err(text))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let fits = |path: &&PathBuf| {
        path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted))
            && fs::metadata(path).is_ok_and(|about| about.len() <= most)
    };
    let list: Vec<Vec<u8>> =
        paths.iter().filter(fits).map(fs::read).collect::<Result<_, _>>().map_err(text)?;
    if list.is_empty() { Err(format!("{} has no files {endings:?}", folder.display())) } else { Ok(list) }
}

/// The configurations in the metadata of models' small files.
fn configurations(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let list: Vec<Vec<u8>> = files(folder, &["safetensors"], 500_000)?
        .into_iter()
        .filter_map(|bytes| weights::from_bytes(bytes).ok()?.texts().get("config").cloned())
        .filter(|config| config.contains("model_type"))
        .map(String::into_bytes)
        .collect();
    if list.is_empty() { Err(format!("{} has no configurations", folder.display())) } else { Ok(list) }
}

/// The bytes of a case.
pub(crate) fn bytes(family: Family, rng: &mut Rng, sources: &Sources) -> Vec<u8> {
    match family {
        Family::Nodes => model(rng, &sources.operators).encode_to_vec(),
        Family::Graphs => {
            let made = model(rng, &sources.operators);
            let bytes = faulty(rng, made).encode_to_vec();
            if rng.one_in(3) { damage(rng, &bytes, &[0xff; 64]) } else { bytes }
        }
        Family::Onnx => damaged(rng, &sources.onnx),
        Family::Torch => damaged(rng, &sources.torch),
        Family::Tensors => damaged(rng, &sources.tensors),
        Family::Packed => archives::packed(rng, &[&sources.torch[..], &sources.tensors].concat()),
        Family::Sounds => {
            let sound = archives::sound(rng);
            damage(rng, &sound, &[0xff; 64])
        }
        Family::Configs => changed(rng, &sources.configs),
        Family::Tokenizers => changed(rng, &sources.tokenizers),
        Family::Gguf => {
            let made = language::invented(rng).unwrap_or_default();
            if rng.one_in(4) { damage(rng, &made, &[0xff; 64]) } else { made }
        }
    }
}

/// A document with changed values; one in eight has damaged bytes.
fn changed(rng: &mut Rng, documents: &[Vec<u8>]) -> Vec<u8> {
    if rng.one_in(8) {
        damaged(rng, documents)
    } else {
        {
            let document = rng.pick(documents);
            language::changed(rng, document)
        }
    }
}

fn damaged(rng: &mut Rng, files: &[Vec<u8>]) -> Vec<u8> {
    let (file, other) = (rng.pick(files), rng.pick(files));
    damage(rng, file, other)
}

/// Reads the bytes, and runs a model of few nodes. The reason why they were refused, if they were; the error
/// says what is wrong with the reader.
pub(crate) fn check(family: Family, bytes: Vec<u8>, device: &Device) -> Result<Option<String>, String> {
    let (begin, length) = (Instant::now(), bytes.len());
    let outcome = match family {
        Family::Nodes | Family::Graphs | Family::Onnx => check_model(family, bytes, device),
        Family::Torch | Family::Tensors => check_weights(bytes, ReadBudget::default(), device),
        Family::Packed => check_weights(bytes, PACKED_BUDGET, device),
        Family::Sounds => check_sound(&bytes, device),
        Family::Configs => check_language(length, || language::configuration(&bytes, device)),
        Family::Tokenizers => {
            check_language(length, || language::split(&Tokenizer::from_json(&bytes)?, device))
        }
        Family::Gguf => check_language(length, || language::gguf(&weights::from_bytes(bytes)?, device)),
    };
    let took = begin.elapsed();
    if took > TIME_LIMIT {
        return Err(format!("{length} bytes take {:.1} s", took.as_secs_f64()));
    }
    outcome
}

/// The result of work that must not panic, and the memory that it took at most.
fn guarded<T>(what: &str, most: usize, work: impl FnOnce() -> T) -> Result<T, String> {
    let (peak, result) = peak_of(|| catch_unwind(AssertUnwindSafe(work)));
    let result =
        result.map_err(|panic| format!("{what} panics: {}", taper_fuzz::modes::message(panic.as_ref())))?;
    if peak > most {
        return Err(format!("{what} takes {peak} bytes of memory, and {most} are allowed"));
    }
    Ok(result)
}

fn check_weights(bytes: Vec<u8>, budget: ReadBudget, device: &Device) -> Result<Option<String>, String> {
    let most = MEMORY_FLOOR + MEMORY_FACTOR * bytes.len();
    let of_file = |error: taper::Error| match error.kind() {
        ErrorKind::File { .. } | ErrorKind::OutOfMemory { .. } => Ok(Some(error.to_string())),
        other => Err(format!("the error is {other:?}, none of a file")),
    };
    let read = || {
        let file = weights::from_bytes_within(bytes, budget)?;
        file.state_dict(device).map(|dict| dict.len())
    };
    guarded("reading", most, read)?.map_or_else(of_file, |_| Ok(None))
}

/// Reads a WAV file, whose samples take at most four bytes for one of the file.
fn check_sound(bytes: &[u8], device: &Device) -> Result<Option<String>, String> {
    let most = MEMORY_FLOOR + MEMORY_FACTOR * bytes.len();
    let text = |error: std::io::Error| error.to_string();
    let mut file = tempfile::NamedTempFile::new().map_err(text)?;
    file.write_all(bytes).map_err(text)?;
    let read = guarded("reading", most, || data::audio::read_wav(file.path(), device).map(drop))?;
    match read.map_err(|error| (error.to_string(), matches!(error.kind(), ErrorKind::File { .. }))) {
        Ok(()) => Ok(None),
        Err((message, true)) => Ok(Some(message)),
        Err((message, false)) => Err(format!("{message} is none of a file")),
    }
}

/// Builds and runs a small model, or uses a tokenizer; an error refuses the file.
fn check_language(length: usize, work: impl FnOnce() -> taper::Result<()>) -> Result<Option<String>, String> {
    let most = RUN_FLOOR + HOST_COPIES * DEVICE_BYTES as usize + MEMORY_FACTOR * length;
    Ok(guarded("a language model", most, work)?.err().map(|error| error.to_string()))
}

fn check_model(family: Family, bytes: Vec<u8>, device: &Device) -> Result<Option<String>, String> {
    let most = MEMORY_FLOOR + MEMORY_FACTOR * bytes.len();
    let loaded = guarded("loading", most, || Model::from_bytes_with(bytes, device, BUDGET))?;
    let net = match loaded {
        Ok(net) => net,
        Err(error) => return names_its_place(error.to_string()).map(Some),
    };
    if family == Family::Onnx {
        return Ok(None);
    }
    let inputs: Vec<(String, Tensor)> = net
        .inputs()
        .into_iter()
        .filter(|input| !input.optional)
        .filter_map(|input| Some((input.name, Tensor::ones([1, 2, 4, 4], device).ok()?)))
        .collect();
    let run = || -> taper::Result<()> {
        let outputs = net.run(inputs)?;
        for (_, value) in outputs.iter() {
            if let Value::Tensor(tensor) = value {
                tensor.read_bytes()?;
            }
        }
        Ok(())
    };
    match guarded("running", RUN_FLOOR + DEVICE_BYTES as usize, run)? {
        Ok(()) => Ok(None),
        // An error that a device finds later names the operation and not the node.
        Err(error) if matches!(error.kind(), ErrorKind::Invalid { op: "onnx", .. }) => {
            names_its_place(error.to_string()).map(Some)
        }
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Errors of a model name the node, tensor, value or function, unless the file is no model.
fn names_its_place(message: String) -> Result<String, String> {
    const PLACES: &[&str] = &[
        "node ",
        "tensor \"",
        "the input \"",
        "the output \"",
        "the name \"",
        "function \"",
        "no ONNX model",
        "operators that are not supported",
        "of ONNX's operators",
        "nested more than",
    ];
    if PLACES.iter().any(|place| message.contains(place)) {
        Ok(message)
    } else {
        Err(format!("an error without a place: {message}"))
    }
}

/// Whether the bytes are a model, for a description of the case.
pub(crate) fn describe(bytes: &[u8]) -> String {
    match ModelProto::decode(bytes) {
        Ok(model) if bytes.len() < 20_000 => format!("{model:#?}"),
        _ => format!("{} bytes", bytes.len()),
    }
}
