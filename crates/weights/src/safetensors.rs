//! Safetensors: single files, whose header `nn` reads, and shards with an index.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use nn::{SafetensorsPlace, StateDict, read_safetensors_header, safetensors_blocks_key, save_safetensors};
use serde_json::{Value as Json, json};
use tensor_core::{
    DType, Error, Result,
    file::{Content, ReadBudget, file_error, write_whole},
};

use crate::{
    file::{Format, Parsed, WeightFile, from_content, listed},
    tensor_info::{Encoding, Place, TensorInfo},
};

/// The file names that Hugging Face's libraries use in a folder, safetensors first.
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const FOLDER: &[&str] = &[SINGLE, INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json"];

/// The greatest size of an index, in bytes: that of a model with a million tensors.
const INDEX_LIMIT: u64 = 200_000_000;

/// Opens one file.
#[track_caller]
pub(crate) fn open(content: &Arc<Content>) -> Result<Parsed> {
    let header = read_safetensors_header(content)?;
    let metadata = header.metadata;
    let tensors = header.tensors.into_iter().map(|(name, stored)| {
        let SafetensorsPlace { dtype, type_name, shape, start, .. } = stored;
        let described = metadata.get(&safetensors_blocks_key(&name)).map(|text| (name.clone(), text.clone()));
        let info = TensorInfo {
            encoding: dtype.map_or(Encoding::Other(type_name), Encoding::Plain),
            shape: shape.as_slice().into(),
            strides: None,
            place: Place::File { content: content.clone(), start },
            big_endian: false,
            described,
        };
        (name, Arc::new(info))
    });
    let tensors = tensors.collect();
    Ok(Parsed { tensors, texts: metadata, gguf: BTreeMap::new(), value: None, capacity: content.length() })
}

/// Whether a file is JSON, as an index is. Safetensors files have a brace as well, but after the length of
/// their header.
#[track_caller]
pub(crate) fn is_index(content: &Content) -> Result<bool> {
    let mut start = [0; 8];
    let count = content.length().min(8) as usize;
    content.read_at(&mut start[..count], 0)?;
    let text = start[..count].trim_ascii_start();
    Ok(text.starts_with(b"{") && !start[..count].contains(&0))
}

/// Opens the weights in a folder.
#[track_caller]
pub(crate) fn open_folder(folder: &Path, budget: ReadBudget) -> Result<WeightFile> {
    match FOLDER.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
        Some(path) => crate::open_within(path, budget),
        None => {
            Err(file_error(folder, format!("is a folder without weights: none of {}", FOLDER.join(", "))))
        }
    }
}

/// Opens the files that an index names, in its folder.
#[track_caller]
pub(crate) fn open_index(path: &Path, content: &Content, budget: ReadBudget) -> Result<WeightFile> {
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

/// Options of [`save_sharded`].
#[derive(Clone, Copy, Debug)]
pub struct ShardOptions {
    /// The greatest number of bytes of elements in a file, unless a single tensor has more. The default is
    /// that of Hugging Face's libraries, 5 GB.
    pub max_shard_size: u64,
    /// The dtype that floating-point tensors are cast to; `None`, the default, does not cast.
    pub floats: Option<DType>,
}

impl Default for ShardOptions {
    fn default() -> ShardOptions {
        ShardOptions { max_shard_size: 5_000_000_000, floats: None }
    }
}

/// Writes a state dict into a folder: as `model.safetensors`, or as several files
/// `model-00001-of-00003.safetensors` and `model.safetensors.index.json` if it is larger than a file may be.
/// [`open`](crate::open) reads the folder, and so does `transformers`.
///
/// The folder is created if it does not exist. Each file is written completely or not at all, the index
/// last; then files of these names from an earlier call are removed. A tensor is computed and cast when its
/// shard is written. Returns the paths of the written files.
///
/// ```
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// use weights::ShardOptions;
/// let device = backend_cpu::cpu();
/// let dict = nn::StateDict::from([
///     ("a".to_string(), Tensor::zeros([4, 4], &device)?),
///     ("b".to_string(), Tensor::ones([4, 4], &device)?),
/// ]);
/// let options = ShardOptions { max_shard_size: 100, ..Default::default() };
/// let written = weights::save_sharded(folder, &dict, options)?;
/// assert_eq!(written.len(), 3); // two shards and the index
/// assert_eq!(weights::open(folder)?.tensor("b", &device)?.to_vec::<f32>()?, [1.0; 16]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// A value that cannot be computed or cast, a name that the format reserves, or a `File` error of the file
/// system.
#[track_caller]
pub fn save_sharded(
    folder: impl AsRef<Path>,
    dict: &StateDict,
    options: ShardOptions,
) -> Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |error: std::io::Error| file_error(&path, format!("cannot be written: {error}"))
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let dtype_of = |dtype: DType| options.floats.filter(|_| dtype.is_float()).unwrap_or(dtype);
    let mut shards: Vec<Vec<&str>> = Vec::new();
    let (mut filled, mut total) = (0u64, 0u64);
    for (name, tensor) in dict {
        let bytes = (tensor.numel() * dtype_of(tensor.dtype()).size()) as u64;
        match shards.last_mut() {
            Some(shard) if filled + bytes <= options.max_shard_size => shard.push(name),
            _ => {
                shards.push(vec![name]);
                filled = 0;
            }
        }
        filled += bytes;
        total += bytes;
    }
    let count = shards.len();
    let name_of = |k: usize| match count {
        0 | 1 => SINGLE.to_string(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", k + 1),
    };
    if shards.is_empty() {
        shards.push(Vec::new());
    }
    let mut map = serde_json::Map::new();
    let mut written = Vec::new();
    for (k, names) in shards.into_iter().enumerate() {
        let path = folder.join(name_of(k));
        let mut part = StateDict::new();
        for name in names {
            let tensor = &dict[name];
            part.insert(name.to_string(), tensor.detach().to_dtype(dtype_of(tensor.dtype()))?);
            map.insert(name.to_string(), name_of(k).into());
        }
        save_safetensors(&path, &part)?;
        written.push(path);
    }
    if count > 1 {
        let path = folder.join(INDEX);
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        let text = serde_json::to_vec_pretty(&index).map_err(|error| file_error(&path, error.to_string()))?;
        let done = write_whole(&path, failed(&path), |file| {
            std::io::Write::write_all(file, &text).map_err(failed(&path))
        });
        Error::here_in(done)?;
        written.push(path);
    }
    remove_others(folder, &written).map_err(failed(folder))?;
    Ok(written)
}

/// Removes the files of an earlier [`save_sharded`] that the last call did not write.
fn remove_others(folder: &Path, written: &[PathBuf]) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if (name == SINGLE || name == INDEX || is_shard(name)) && !written.contains(&entry.path()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether a name is `model-00001-of-00003.safetensors` with any numbers.
fn is_shard(name: &str) -> bool {
    let numbers = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.and_then(|numbers| numbers.split_once("-of-")).is_some_and(|(k, n)| digits(k) && digits(n))
}
