//! [`WeightFile`]: an opened file of weights, whatever its format.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use nn::{StateDict, TensorSource};
use tensor_core::{DType, Device, Result, Shape, Tensor, file::file_error};

use crate::{
    Value, bitsandbytes,
    gguf_value::GgufValue,
    parsed::Parsed,
    read::Reader,
    tensor_info::{Encoding, TensorInfo},
};

/// The supported formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// PyTorch's zip, which `torch.save` writes since version 1.6.
    Torch,
    /// The pickles that `torch.save` wrote before version 1.6.
    TorchLegacy,
    /// NumPy's zip of arrays.
    Npz,
    /// A single NumPy array.
    Npy,
    /// Safetensors in one file.
    Safetensors,
    /// Several files with an index: safetensors, or PyTorch's own format.
    Sharded,
    /// GGUF, of llama.cpp.
    Gguf,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Torch => "PyTorch (zip)",
            Format::TorchLegacy => "PyTorch (before 1.6)",
            Format::Npz => "NumPy (.npz)",
            Format::Npy => "NumPy (.npy)",
            Format::Safetensors => "safetensors",
            Format::Sharded => "shards with an index",
            Format::Gguf => "GGUF",
        })
    }
}

/// An open file of weights: the names, shapes and dtypes of its tensors are known, and their elements are
/// read on demand.
///
/// [`open`](crate::open) detects the format. Elements are read by position, on a CPU directly to the tensor's
/// memory, and with the feature `mmap` large tensors there are pages of the file. The file stays open and
/// must not change meanwhile: a change is an error of the next read.
///
/// ```
/// use tensor_core::{DType, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.pt");
/// let device = backend_cpu::cpu();
/// let dict = nn::StateDict::from([
///     ("encoder.weight".to_string(), Tensor::new([[1.0f32, 2.0]], &device)?),
///     ("head.bias".to_string(), Tensor::new([0.5f32], &device)?),
/// ]);
/// weights::save_torch(&path, &dict)?; // torch.load(path, weights_only=True) reads it
///
/// let file = weights::open(&path)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["encoder.weight", "head.bias"]);
/// assert_eq!(file.info("encoder.weight").unwrap().shape().dims(), [1, 2]);
/// assert_eq!(file.tensor("head.bias", &device)?.to_vec::<f32>()?, [0.5]);
///
/// // A part of the file, cast while it is read.
/// let encoder = file.under("encoder")?.floats(DType::BF16).state_dict(&device)?;
/// assert_eq!(encoder["weight"].dtype(), DType::BF16);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct WeightFile {
    path: PathBuf,
    format: Format,
    tensors: BTreeMap<String, Arc<TensorInfo>>,
    texts: Arc<BTreeMap<String, String>>,
    gguf: Arc<BTreeMap<String, GgufValue>>,
    value: Option<Value>,
    capacity: u64,
    floats: Option<DType>,
}

/// The greatest ratio of the bytes of all tensors to the bytes in the file. Tensors that share memory need
/// more than the file, but not much more.
const CAPACITY_FACTOR: u64 = 4;

impl WeightFile {
    pub(crate) fn new(path: &Path, format: Format, parsed: Parsed) -> WeightFile {
        let Parsed { tensors, texts, gguf, value, capacity } = parsed;
        let (texts, gguf) = (Arc::new(texts), Arc::new(gguf));
        WeightFile { path: path.to_path_buf(), format, tensors, texts, gguf, value, capacity, floats: None }
    }

    /// The tensors of a file that is a shard.
    pub(crate) fn into_tensors(self) -> (BTreeMap<String, Arc<TensorInfo>>, u64) {
        (self.tensors, self.capacity)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The names of the tensors, in alphabetical order. In a nested object the keys and indices are joined
    /// by dots: `model_state.fc.weight`, `optimizer_state.state.0.exp_avg`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The tensors with their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(name, info)| (name.as_str(), &**info))
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The shape and type of the tensor with a name.
    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name).map(|info| &**info)
    }

    /// The object in a PyTorch file, with its numbers and texts; for a GGUF file its metadata, and for a
    /// safetensors file its texts, as a dict.
    ///
    /// ```
    /// # fn main() -> tensor_core::Result<()> {
    /// // torch.save({"epoch": 3, "optimizer": {"param_groups": [{"lr": 0.1}]}}, path)
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/checkpoint.pt");
    /// let checkpoint = weights::open(path)?.value();
    /// assert_eq!(checkpoint.get("epoch").and_then(|epoch| epoch.as_i64()), Some(3));
    /// assert_eq!(checkpoint.at("optimizer.param_groups.0.lr").and_then(|lr| lr.as_f64()), Some(0.1));
    /// # Ok(()) }
    /// ```
    pub fn value(&self) -> Value {
        if let Some(value) = &self.value {
            return value.clone();
        }
        let texts = self.texts.iter().map(|(key, text)| (key, Value::Text(text.as_str().into())));
        let metadata = self.gguf.iter().map(|(key, value)| (key, value.to_value()));
        Value::Dict(
            texts.chain(metadata).map(|(key, value)| (Value::Text(key.as_str().into()), value)).collect(),
        )
    }

    /// The metadata texts of a safetensors file, by name.
    pub fn texts(&self) -> &BTreeMap<String, String> {
        &self.texts
    }

    /// The metadata of a GGUF file, each value in its GGUF type.
    pub fn gguf_metadata(&self) -> &BTreeMap<String, GgufValue> {
        &self.gguf
    }

    /// The tensors whose names begin with `prefix` and a dot, named without it, and the corresponding part
    /// of the object: for instance the model in a checkpoint.
    ///
    /// # Errors
    /// A `File` error if there is nothing with that name; it lists the available names.
    #[track_caller]
    pub fn under(&self, prefix: &str) -> Result<WeightFile> {
        let dotted = format!("{prefix}.");
        let value = self.value.as_ref().and_then(|value| value.at(prefix));
        let tensors: BTreeMap<_, _> = self
            .tensors
            .range(dotted.clone()..)
            .map_while(|(name, info)| Some((name.strip_prefix(&dotted)?.to_string(), info.clone())))
            .collect();
        if tensors.is_empty() && value.is_none() {
            let message =
                format!("has nothing under \"{prefix}\"; there is {}", listed(self.beginnings().into_iter()));
            return Err(file_error(&self.path, message));
        }
        Ok(WeightFile { tensors, value: value.cloned(), ..self.clone() })
    }

    /// The names up to their first dots, and the keys of the object.
    fn beginnings(&self) -> Vec<String> {
        let names = self.names().filter_map(|name| name.split('.').next()).map(str::to_string);
        let entries = self.value.as_ref().and_then(Value::entries).unwrap_or_default();
        let keys = entries.iter().filter_map(|(key, _)| Some(key.key()?.into_owned()));
        let mut all: Vec<String> = names.chain(keys).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The same file, with floating-point tensors cast to this dtype while they are read. `device` casts
    /// them one at a time; if it lacks the file's dtype, the host casts them.
    #[must_use]
    pub fn floats(mut self, dtype: DType) -> WeightFile {
        self.floats = Some(dtype);
        self
    }

    /// Whether the tensor with a name is a part of another one, which [`WeightFile::tensor`] and
    /// [`WeightFile::state_dict`] read with it: the scales and the tables of a weight of four bits that
    /// Python's `bitsandbytes` stored.
    pub fn is_part(&self, name: &str) -> bool {
        bitsandbytes::is_part(name, |name| self.info(name).is_some())
    }

    /// The weight of four bits with a name, if it is one.
    #[track_caller]
    fn four_bits(&self, name: &str, device: &Device, floats: Option<DType>) -> Result<Option<Tensor>> {
        let description = bitsandbytes::description(name, |name| self.info(name).is_some());
        let Some(description) = description else { return Ok(None) };
        let read = |name: &str| {
            let Some(info) = self.info(name) else { return Ok(None) };
            Ok(Some((info.dtype(), Reader::default().host_bytes(info)?)))
        };
        bitsandbytes::Stored { path: &self.path, name, read }.tensor(&description, floats, device).map(Some)
    }

    /// One tensor, on `device`. A weight of four bits of `bitsandbytes` is a tensor in blocks.
    ///
    /// # Errors
    /// A `File` error for a name that is missing, a type without a counterpart, or a file that has changed;
    /// a dtype that the device lacks; too little memory.
    #[track_caller]
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        self.tensor_in(name, device, self.floats)
    }

    /// One tensor, whose floats are cast to `floats`, if that is given.
    #[track_caller]
    fn tensor_in(&self, name: &str, device: &Device, floats: Option<DType>) -> Result<Tensor> {
        if let Some(weight) = self.four_bits(name, device, floats)? {
            return Ok(weight);
        }
        let read = Reader::default().read(self.find(name)?, device, floats);
        tensor_core::Error::here_in(read.map_err(|error| named(name, error)))
    }

    /// A tensor of this file's object ([`WeightFile::value`]), on `device`.
    ///
    /// # Errors
    /// As for [`WeightFile::tensor`].
    #[track_caller]
    pub fn read(&self, info: &TensorInfo, device: &Device) -> Result<Tensor> {
        Reader::default().read(info, device, self.floats)
    }

    /// The bytes of one tensor as stored in the file, as a 1-D tensor of u8: for instance blocks of
    /// quantized numbers.
    ///
    /// # Errors
    /// A `File` error for a name that is missing, a tensor with gaps between its elements or of a type with
    /// unknown size, or a file that has changed; too little memory on the device.
    #[track_caller]
    pub fn bytes(&self, name: &str, device: &Device) -> Result<Tensor> {
        let info = self.find(name)?;
        let Some(bytes) = info.bytes().filter(|_| info.strides.is_none() && !info.big_endian) else {
            let message = format!(
                "has no plain bytes of tensor \"{name}\": {} with gaps or in another order",
                info.type_name()
            );
            return Err(file_error(&self.path, message));
        };
        Reader::default().bytes(info, bytes, device)
    }

    #[track_caller]
    pub(crate) fn find(&self, name: &str) -> Result<&TensorInfo> {
        match self.info(name) {
            Some(info) => Ok(info),
            None => {
                let message = format!(
                    "has no tensor \"{name}\"; there is {}",
                    listed(self.names().map(str::to_string))
                );
                Err(file_error(&self.path, message))
            }
        }
    }

    /// All tensors, on `device`. Names of the same elements in the file, such as tied weights, get the same
    /// tensor.
    ///
    /// They are read in the order of the file. In a checkpoint the tensors of other parts are included: see
    /// [`WeightFile::under`].
    ///
    /// # Errors
    /// As for [`WeightFile::tensor`], with the name of the tensor; tensors that overlap so much that they
    /// would take several times the file's size.
    #[track_caller]
    pub fn state_dict(&self, device: &Device) -> Result<StateDict> {
        let mut order: Vec<_> =
            self.tensors.iter().map(|(name, info)| (info.identity(), name, info)).collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(b.1)));
        let mut total = 0u64;
        for (k, (identity, _, info)) in order.iter().enumerate() {
            if k == 0 || order[k - 1].0 != *identity {
                total = total.saturating_add(info.memory_bytes());
            }
        }
        if total > self.capacity.saturating_mul(CAPACITY_FACTOR) {
            let message = format!(
                "holds {} bytes of elements, of which overlapping tensors would make {total}; read them one by one",
                self.capacity
            );
            return Err(file_error(&self.path, message));
        }
        let mut reader = Reader::default();
        let mut read: HashMap<_, Tensor> = HashMap::new();
        let mut dict = StateDict::new();
        for (identity, name, info) in order {
            if self.is_part(name) {
                continue;
            }
            if let Some(weight) = self.four_bits(name, device, self.floats)? {
                dict.insert(name.clone(), weight);
                continue;
            }
            let tensor = match read.get(&identity) {
                Some(tensor) => tensor.clone(),
                None => {
                    let made = reader.read(info, device, self.floats);
                    let tensor = tensor_core::Error::here_in(made.map_err(|error| named(name, error)))?;
                    read.insert(identity, tensor.clone());
                    tensor
                }
            };
            dict.insert(name.clone(), tensor);
        }
        Ok(dict)
    }
}

/// Tensors are read on demand, in the order of the file, so that a module is loaded with one tensor in memory
/// beside its own.
impl TensorSource for WeightFile {
    fn names(&self) -> Vec<&str> {
        let tensors = self.tensors.iter().filter(|(name, _)| !self.is_part(name));
        let mut order: Vec<_> = tensors.map(|(name, info)| (info.identity(), name.as_str())).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, name)| name).collect()
    }

    fn described(&self, name: &str) -> Option<(Shape, DType)> {
        let info = self.info(name)?;
        if info.described.is_some() || bitsandbytes::description(name, |n| self.info(n).is_some()).is_some() {
            return None;
        }
        let dtype = match info.encoding {
            Encoding::Plain(dtype) => self.floats.filter(|_| dtype.is_float()).unwrap_or(dtype),
            Encoding::Blocks(_) => self.floats.unwrap_or(DType::F32),
            Encoding::Other(_) => return None,
        };
        Some((info.shape.clone(), dtype))
    }

    #[track_caller]
    fn read(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        self.tensor_in(name, device, self.floats.or(dtype.is_float().then_some(dtype)))
    }
}

/// An error of a file with the name of the affected tensor.
fn named(name: &str, error: tensor_core::Error) -> tensor_core::Error {
    match error.kind() {
        tensor_core::ErrorKind::File { path, message } => {
            file_error(path, format!("{message} (tensor \"{name}\")"))
        }
        _ => error,
    }
}

impl TensorInfo {
    /// The memory that the tensor takes once it is read: elements repeated by an axis of stride 0 count
    /// once.
    fn memory_bytes(&self) -> u64 {
        let Encoding::Plain(dtype) = self.encoding else { return 0 };
        let repeated = |axis: usize| self.strides.as_ref().is_some_and(|strides| strides[axis] == 0);
        let sizes = self.shape.dims().iter().enumerate();
        let numel = sizes.fold(1u64, |numel, (axis, &size)| {
            numel.saturating_mul(if repeated(axis) { size.min(1) } else { size } as u64)
        });
        numel.saturating_mul(dtype.size() as u64)
    }
}

impl fmt::Debug for WeightFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightFile")
            .field("path", &self.path)
            .field("format", &self.format)
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

/// The first few of some names, for an error.
pub(crate) fn listed(names: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 10;
    let mut names = names.peekable();
    if names.peek().is_none() {
        return "none".into();
    }
    let shown: Vec<String> = names.by_ref().take(SHOWN).collect();
    format!("{}{}", shown.join(", "), if names.peek().is_some() { " and more" } else { "" })
}
