//! Safetensors: single files, whose header `nn` reads, and shards with an index.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use nn::{SafetensorsPlace, StateDict, read_safetensors_header, safetensors_blocks_key, save_safetensors};
use serde_json::json;
use tensor_core::{
    DType, Error, Result,
    file::{Content, file_error, write_whole},
};

use crate::{
    parsed::Parsed,
    tensor_info::{Encoding, Place, TensorInfo},
};

/// The names that Hugging Face's libraries give to one file in a folder, and to the index of several.
pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

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
