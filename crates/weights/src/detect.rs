//! Opening files of weights: which format a file, a folder or an index has.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use serde_json::Value as Json;
use tensor_core::{
    Result,
    file::{Content, ReadBudget, file_error},
};

use crate::{
    archive::{self, Archive},
    file::{Format, WeightFile, listed},
    formats::{
        gguf, npz,
        safetensors::{self, INDEX, SINGLE},
        torch,
    },
    parsed::Parsed,
};

/// The file names that Hugging Face's libraries use in a folder, safetensors first.
const FOLDER: &[&str] = &[SINGLE, INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json"];

/// The greatest size of an index, in bytes: that of a model with a million tensors.
const INDEX_LIMIT: u64 = 200_000_000;

/// Opens a file of weights. Its content determines the format, whatever its name:
///
/// | format | contents |
/// |---|---|
/// | PyTorch's `.pt`, `.pth`, `.bin` | state dicts and the objects around them; both containers |
/// | safetensors | one file, or shards with an index |
/// | GGUF 2 and 3 | metadata, dense tensors, blocks of quantized ones |
/// | NumPy's `.npz`, `.npy` | arrays of numbers, in both orders of axes and of bytes |
/// | a folder | `model.safetensors` or its index, else `pytorch_model.bin` or its index |
///
/// No code in a file is run. A whole model, saved by `torch.save(model, path)`, is read as its state: the
/// parameters and buffers of its modules, whatever their classes are; the other attributes of modules are
/// skipped. Every other object of a class is refused by its name.
///
/// The memory for what a file describes or unpacks to is bounded by [`ReadBudget::default`], 64 times the
/// file's size or 256 MiB, and what takes more is an error when it is read; [`open_within`] takes another
/// bound.
///
/// # Errors
/// A `File` error that names the file and the problem: it cannot be read, is truncated or damaged, is a pipe
/// or a device, would take too much memory, or has another format, such as a TorchScript program.
#[track_caller]
pub fn open(path: impl AsRef<Path>) -> Result<WeightFile> {
    open_within(path, ReadBudget::default())
}

/// [`open`] with another bound of the memory for what the file describes and unpacks to.
///
/// ```
/// use weights::ReadBudget;
/// # fn main() -> tensor_core::Result<()> {
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/arrays_compressed.npz");
/// // numpy.savez_compressed(path, …)
/// let device = backend_cpu::cpu();
/// let small = ReadBudget { least: 10, per_byte: 0 };
/// assert!(weights::open_within(path, small)?.tensor("f4", &device).is_err());
/// assert!(weights::open_within(path, ReadBudget::UNLIMITED)?.tensor("f4", &device).is_ok());
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`open`].
#[track_caller]
pub fn open_within(path: impl AsRef<Path>, budget: ReadBudget) -> Result<WeightFile> {
    let path = path.as_ref();
    if path.is_dir() {
        return open_folder(path, budget);
    }
    let content = Arc::new(Content::open(path)?);
    if is_index(&content)? {
        return open_index(path, &content, budget);
    }
    from_content(&content, budget)
}

/// Opens the same formats as [`open`], except folders and shards, from bytes in memory, such as a download
/// or a file in a browser.
///
/// # Errors
/// As for [`open`].
#[track_caller]
pub fn from_bytes(bytes: Vec<u8>) -> Result<WeightFile> {
    from_bytes_within(bytes, ReadBudget::default())
}

/// [`from_bytes`] with another bound of memory; see [`open_within`].
///
/// # Errors
/// As for [`open`].
#[track_caller]
pub fn from_bytes_within(bytes: Vec<u8>, budget: ReadBudget) -> Result<WeightFile> {
    let content = Arc::new(Content::Memory { path: PathBuf::from("<bytes>"), bytes });
    if is_index(&content)? {
        return Err(file_error(
            content.path(),
            "is an index of shards, which are files; open it by its path",
        ));
    }
    from_content(&content, budget)
}

/// Opens a file that is neither a folder nor an index.
#[track_caller]
fn from_content(content: &Arc<Content>, budget: ReadBudget) -> Result<WeightFile> {
    let path = content.path();
    let mut start = [0; 32];
    let count = content.length().min(start.len() as u64) as usize;
    content.read_at(&mut start[..count], 0)?;
    let start = &start[..count];
    let (format, parsed) = if start.starts_with(archive::MAGIC) || start.starts_with(b"PK\x05\x06") {
        let archive = Archive::open(content, budget)?;
        let root = archive.entries.keys().find_map(|name| {
            let root = name.strip_suffix("/data.pkl")?;
            (!root.contains('/')).then(|| root.to_string())
        });
        match root {
            Some(root) => (Format::Torch, torch::open_zip(content, &archive, &root, budget)?),
            None => (Format::Npz, npz::open(content, &archive)?),
        }
    } else if start.starts_with(torch::LEGACY_MAGIC) {
        (Format::TorchLegacy, torch::open_legacy(content, budget)?)
    } else if start.starts_with(gguf::MAGIC) {
        (Format::Gguf, gguf::open(content)?)
    } else if start.starts_with(tensor_core::npy::MAGIC) {
        (Format::Npy, npz::open_npy(content)?)
    } else if let Some(kind) = foreign(start) {
        return Err(file_error(path, format!("is {kind}, which is no file of weights that is read")));
    } else if is_perhaps_safetensors(path, start) {
        (Format::Safetensors, safetensors::open(content)?)
    } else {
        return Err(file_error(path, unknown(start)));
    };
    Ok(WeightFile::new(path, format, parsed))
}

/// Whether a file is named, or begins, as one of safetensors: with the length of a header in JSON.
fn is_perhaps_safetensors(path: &Path, start: &[u8]) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors") || start.get(8) == Some(&b'{')
}

/// The description of a file that begins like none of the formats that are read.
fn unknown(start: &[u8]) -> String {
    let begins = match start {
        [] => "it is empty".to_string(),
        start => format!("it begins with \"{}\"", start[..start.len().min(16)].escape_ascii()),
    };
    format!(
        "is no file of weights: {begins}, which is none of PyTorch's .pt and .pth (a zip archive or an older pickle), \
         safetensors, GGUF, .npy and .npz. The file may be damaged, a failed download, or a pointer of Git LFS"
    )
}

/// The name of a known format that is not supported.
fn foreign(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'H', b'D', b'F', ..] => Some("an HDF5 file"),
        [0x1f, 0x8b, ..] => Some("gzipped; unpack it first"),
        // Protocols 2 to 5. Safetensors begins with the length of its header, which ends in zeros.
        [0x80, 2..=5, rest @ ..] if rest.len() < 6 || rest[..6] != [0; 6] => {
            Some("a pickle, but not one of torch.save; save the state_dict() with torch.save")
        }
        // The magic numbers ggml, ggmf and ggjt, little-endian.
        [b'l' | b'f' | b't', b'm' | b'j', b'g', b'g', ..] => {
            Some("a GGML file, which came before GGUF; convert it with llama.cpp")
        }
        _ => None,
    }
}

/// Whether a file is JSON, as an index is. Safetensors files have a brace as well, but after the length of
/// their header.
#[track_caller]
fn is_index(content: &Content) -> Result<bool> {
    let mut start = [0; 8];
    let count = content.length().min(8) as usize;
    content.read_at(&mut start[..count], 0)?;
    let text = start[..count].trim_ascii_start();
    Ok(text.starts_with(b"{") && !start[..count].contains(&0))
}

/// Opens the weights in a folder.
#[track_caller]
fn open_folder(folder: &Path, budget: ReadBudget) -> Result<WeightFile> {
    match FOLDER.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
        Some(path) => open_within(path, budget),
        None => {
            Err(file_error(folder, format!("is a folder without weights: none of {}", FOLDER.join(", "))))
        }
    }
}

/// Opens the files that an index names, in its folder.
#[track_caller]
fn open_index(path: &Path, content: &Content, budget: ReadBudget) -> Result<WeightFile> {
    if content.length() > INDEX_LIMIT {
        return Err(file_error(
            path,
            format!("is an index of {} bytes, expected {INDEX_LIMIT} at most", content.length()),
        ));
    }
    let mut text = vec![0; content.length() as usize];
    content.read_at(&mut text, 0)?;
    content.check_unchanged()?;
    let index: Json = serde_json::from_slice(&text)
        .map_err(|error| file_error(path, format!("is no index of shards: {error}")))?;
    let Some(map) = index.get("weight_map").and_then(Json::as_object) else {
        return Err(file_error(path, "is JSON without a \"weight_map\", and no index of shards"));
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (tensor, shard) in map {
        let Some(shard) = shard.as_str() else {
            return Err(file_error(path, format!("names no file for \"{tensor}\"")));
        };
        named.entry(shard).or_default().insert(tensor);
    }
    let mut all = BTreeMap::new();
    let mut capacity = 0u64;
    for (shard, names) in named {
        let inside = Path::new(shard).components().all(|part| matches!(part, Component::Normal(_)));
        if shard.is_empty() || !inside {
            return Err(file_error(
                path,
                format!("names the shard \"{shard}\", which is not within the folder"),
            ));
        }
        let at = folder.join(shard);
        if !at.is_file() {
            let message = format!(
                "names the shard \"{shard}\", which is missing, for \"{}\"",
                listed(names.iter().map(ToString::to_string))
            );
            return Err(file_error(path, message));
        }
        let file = from_content(&Arc::new(Content::open(&at)?), budget)?;
        let (tensors, bytes) = file.into_tensors();
        capacity = capacity.saturating_add(bytes);
        let missing: Vec<&&str> = names.iter().filter(|name| !tensors.contains_key(**name)).collect();
        if !missing.is_empty() {
            let message = format!(
                "has no tensor {}, which the index says is in it",
                listed(missing.iter().map(ToString::to_string))
            );
            return Err(file_error(&at, message));
        }
        all.extend(tensors.into_iter().filter(|(name, _)| names.contains(name.as_str())));
    }
    let texts = index.get("metadata").and_then(Json::as_object).into_iter().flatten();
    let texts = texts
        .map(|(key, value)| (key.clone(), value.as_str().map_or_else(|| value.to_string(), String::from)));
    let parsed =
        Parsed { tensors: all, texts: texts.collect(), gguf: BTreeMap::new(), value: None, capacity };
    Ok(WeightFile::new(path, Format::Sharded, parsed))
}
