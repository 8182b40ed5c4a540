//! State dicts as files, in the safetensors format that PyTorch's ecosystem reads and writes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fs::File,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
};

use ::safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use tensor_core::{DType, Device, Element, Error, ErrorKind, Result, Scalar, Shape, Tensor};

use crate::{StateDict, write_file::write_whole};

/// Writes a state dict as a safetensors file, whole or not at all: it is written beside `path` first and then renamed, so
/// that a failure leaves an older file as it was.
///
/// A link is followed, and the file that it leads to is replaced; an older file's permissions stay. A device or pipe is
/// written to as it is.
///
/// ```
/// use nn::{Linear, Module, load_safetensors, save_safetensors};
/// use tensor_core::Generator;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.safetensors");
/// let device = backend_cpu::cpu();
/// let model = Linear::new(3, 2, &Generator::seed(0, &device))?;
/// save_safetensors(&path, &model.state_dict())?;
/// let other = Linear::new(3, 2, &Generator::seed(1, &device))?;
/// other.load_state_dict(&load_safetensors(&path, &device)?)?;
/// assert_eq!(other.weight.to_vec::<f32>()?, model.weight.to_vec::<f32>()?);
/// # Ok(()) }
/// ```
///
/// # Errors
/// A value that cannot be computed, the name `__metadata__`, which the format keeps for itself, or a `File` error for
/// whatever the file system reports.
#[track_caller]
pub fn save_safetensors(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    let mut parts = Vec::with_capacity(dict.len());
    for (name, tensor) in dict {
        parts.push(Part::of(name, tensor)?);
    }
    write(path.as_ref(), &parts, HashMap::new())
}

/// Reads a safetensors file; every tensor goes to `device`.
///
/// Integers of dtypes that Taper lacks become wider ones: i8, i16 and u16 become i32, u64 becomes i64. To read some tensors
/// of a file whose others have no like here, see [`SafetensorsFile`].
///
/// # Errors
/// A `File` error for a file that cannot be read, is cut off or is no safetensors file, or a tensor of a dtype that has no
/// like here; a dtype that the device lacks; no memory there.
#[track_caller]
pub fn load_safetensors(path: impl AsRef<Path>, device: &Device) -> Result<StateDict> {
    SafetensorsFile::open(path)?.state_dict(device)
}

/// A safetensors file, of which tensors are made when they are asked for.
///
/// ```
/// use nn::{SafetensorsFile, StateDict, save_safetensors};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.safetensors");
/// let device = backend_cpu::cpu();
/// let dict = StateDict::from([("bias".to_string(), Tensor::new([1.0f32, 2.0], &device)?)]);
/// save_safetensors(&path, &dict)?;
/// let file = SafetensorsFile::open(&path)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["bias"]);
/// assert_eq!(file.tensor("bias", &device)?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    bytes: Vec<u8>,
    tensors: BTreeMap<String, Stored>,
    metadata: BTreeMap<String, String>,
}

/// Where a tensor lies in a file.
#[derive(Debug)]
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    range: Range<usize>,
}

impl SafetensorsFile {
    /// Reads a file into memory and checks what its header says of it.
    ///
    /// # Errors
    /// A `File` error for a file that cannot be read, is cut off, or is no safetensors file. One of PyTorch's own (`.pt`,
    /// `.pth`, `.bin`) is named as such, with the way to convert it.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsFile> {
        let path = path.as_ref();
        let bytes = read(path)?;
        let (header, parsed) = SafeTensors::read_metadata(&bytes)
            .map_err(|e| file_error(path, format!("is no whole safetensors file: {e}")))?;
        let tensors = parsed
            .tensors()
            .into_iter()
            .map(|(name, info)| {
                let (start, end) = info.data_offsets;
                let range = 8 + header + start..8 + header + end;
                (name, Stored { dtype: info.dtype, shape: info.shape.clone(), range })
            })
            .collect();
        let metadata = parsed.metadata().clone().unwrap_or_default().into_iter().collect();
        Ok(SafetensorsFile { path: path.to_path_buf(), tensors, metadata, bytes })
    }

    /// The names of the tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of the tensor of that name.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.tensors.get(name).map(|stored| Shape::from(stored.shape.as_slice()))
    }

    /// What the file says of itself, beside its tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// One tensor, on `device`.
    ///
    /// # Errors
    /// A `File` error for a name that is not there, or a dtype that has no like here; a dtype that the device lacks; no
    /// memory there.
    #[track_caller]
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some(stored) = self.tensors.get(name) else {
            let names: Vec<&str> = self.names().take(10).collect();
            let more = if self.tensors.len() > 10 { " and more" } else { "" };
            let message = format!("has no tensor \"{name}\"; there are {}{more}", names.join(", "));
            return Err(file_error(&self.path, message));
        };
        // The header was checked against the file's size.
        let bytes = self.bytes.get(stored.range.clone()).unwrap_or_default();
        make(stored, bytes, device).unwrap_or_else(|| {
            let message = format!(
                "tensor \"{name}\" is of dtype {:?}, which has no like here; convert it, or read the others one by one \
                 with SafetensorsFile::open",
                stored.dtype
            );
            Err(file_error(&self.path, message))
        })
    }

    /// The names, shapes and bytes of all tensors, in the order of their names.
    pub(crate) fn content(&self) -> impl Iterator<Item = (&str, &[usize], &[u8])> {
        self.tensors.iter().map(|(name, stored)| {
            let bytes = self.bytes.get(stored.range.clone()).unwrap_or_default();
            (name.as_str(), stored.shape.as_slice(), bytes)
        })
    }

    /// A 0-d tensor of f64, i64 or bool as the number it is, wherever tensors of that dtype can be.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> Result<Scalar> {
        let stored = self.tensors.get(name);
        let word = stored.and_then(|s| Some((s, self.bytes.get(s.range.clone())?)));
        match word {
            Some((Stored { dtype: Dtype::F64, .. }, bytes)) if bytes.len() == 8 => {
                Ok(Scalar::Float(f64::from_bytes(bytes)[0]))
            }
            Some((Stored { dtype: Dtype::I64, .. }, bytes)) if bytes.len() == 8 => {
                Ok(Scalar::Int(i64::from_bytes(bytes)[0]))
            }
            Some((Stored { dtype: Dtype::BOOL, .. }, &[byte])) => Ok(Scalar::Bool(byte != 0)),
            _ => Err(file_error(&self.path, format!("\"{name}\" is said to be a number, and is none"))),
        }
    }

    /// All tensors, on `device`.
    ///
    /// # Errors
    /// As for [`SafetensorsFile::tensor`].
    pub fn state_dict(&self, device: &Device) -> Result<StateDict> {
        self.names().map(|name| Ok((name.to_string(), self.tensor(name, device)?))).collect()
    }
}

/// The file's content, or what else it is.
#[track_caller]
fn read(path: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| file_error(path, format!("cannot be read: {e}"));
    let mut file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    // The beginning first: what is no safetensors file is not read whole.
    (&mut file).take(4096).read_to_end(&mut bytes).map_err(failed)?;
    if let Some(message) = another_format(path, &bytes) {
        return Err(file_error(path, message));
    }
    if let Some(length) = bytes.first_chunk::<8>().map(|length| u64::from_le_bytes(*length))
        && !(2..=100_000_000).contains(&length)
    {
        let message =
            format!("is no safetensors file: its first 8 bytes give its header a length of {length}");
        return Err(file_error(path, message));
    }
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// What a file is that is no safetensors file, and what to do with it.
fn another_format(path: &Path, start: &[u8]) -> Option<String> {
    let contains = |text: &[u8]| start.windows(text.len()).any(|window| window == text);
    let zip = start.starts_with(b"PK\x03\x04");
    // Protocols 2 to 5 begin with their number; PyTorch's format before 1.6 is several pickles.
    let pickle = matches!(start, [0x80, 2..=5, ..]) && start.get(2..8) != Some(&[0; 6]);
    if pickle || (zip && (contains(b"data.pkl") || contains(b"/version"))) {
        let kind = if zip { "a zip of pickles" } else { "a pickle" };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        return Some(format!(
            "is a PyTorch file ({kind}), not safetensors; convert it once in Python:\n\
             \x20   import torch, safetensors.torch\n\
             \x20   state = torch.load(\"{name}\", map_location=\"cpu\", weights_only=True)\n\
             \x20   state = {{k: v.clone().contiguous() for k, v in state.items()}}\n\
             \x20   safetensors.torch.save_file(state, \"{stem}.safetensors\")"
        ));
    }
    let kind = match start {
        _ if zip => "a zip archive",
        [b'G', b'G', b'U', b'F', ..] => "a GGUF file",
        [0x89, b'H', b'D', b'F', ..] => "an HDF5 file",
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => "a NumPy file",
        [0x1f, 0x8b, ..] => "gzipped",
        _ => return None,
    };
    Some(format!("is {kind}, not a safetensors file"))
}

#[track_caller]
pub(crate) fn file_error(path: &Path, message: String) -> Error {
    Error::new(ErrorKind::File { path: path.to_path_buf(), message })
}

/// A tensor to be written.
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Cow<'a, [u8]>,
}

impl<'a> Part<'a> {
    pub(crate) fn of(name: &'a str, tensor: &Tensor) -> Result<Part<'a>> {
        let bytes = Cow::Owned(tensor.read_bytes()?);
        Ok(Part { name, dtype: tensor.dtype(), shape: tensor.dims().to_vec(), bytes })
    }
}

#[track_caller]
pub(crate) fn write(path: &Path, parts: &[Part<'_>], mut metadata: HashMap<String, String>) -> Result<()> {
    let mut views = Vec::with_capacity(parts.len());
    for part in parts {
        if part.name == "__metadata__" {
            let message = "a tensor cannot be named __metadata__: the format keeps that name for itself";
            return Err(file_error(path, message.into()));
        }
        let view = TensorView::new(file_dtype(part.dtype), part.shape.clone(), &part.bytes)
            .map_err(|e| file_error(path, format!("tensor \"{}\": {e}", part.name)))?;
        views.push((part.name, view));
    }
    // What other libraries look for to know whose names and layout these are.
    metadata.insert("format".into(), "pt".into());
    let bytes = serialize(views, Some(metadata)).map_err(|e| file_error(path, e.to_string()))?;
    write_whole(path, &bytes).map_err(|e| file_error(path, format!("cannot be written: {e}")))
}

fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::U32 => Dtype::U32,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

/// The tensor that is stored, or `None` for a dtype without a like.
#[track_caller]
fn make(stored: &Stored, bytes: &[u8], device: &Device) -> Option<Result<Tensor>> {
    let Stored { dtype, shape, .. } = stored;
    /// Numbers of N bytes, each made one that Taper has.
    #[track_caller]
    fn widen<T: Element, const N: usize>(
        bytes: &[u8],
        shape: &[usize],
        device: &Device,
        value: impl Fn([u8; N]) -> T,
    ) -> Result<Tensor> {
        let (words, _) = bytes.as_chunks::<N>();
        Tensor::from_vec(words.iter().map(|word| value(*word)).collect(), shape, device)
    }
    Some(match dtype {
        Dtype::BOOL => Tensor::from_bytes_of(DType::Bool, bytes, shape, device),
        Dtype::U8 => Tensor::from_bytes_of(DType::U8, bytes, shape, device),
        Dtype::U32 => Tensor::from_bytes_of(DType::U32, bytes, shape, device),
        Dtype::I32 => Tensor::from_bytes_of(DType::I32, bytes, shape, device),
        Dtype::I64 => Tensor::from_bytes_of(DType::I64, bytes, shape, device),
        Dtype::F16 => Tensor::from_bytes_of(DType::F16, bytes, shape, device),
        Dtype::BF16 => Tensor::from_bytes_of(DType::BF16, bytes, shape, device),
        Dtype::F32 => Tensor::from_bytes_of(DType::F32, bytes, shape, device),
        Dtype::F64 => Tensor::from_bytes_of(DType::F64, bytes, shape, device),
        Dtype::I8 => widen(bytes, shape, device, |word| i32::from(i8::from_le_bytes(word))),
        Dtype::I16 => widen(bytes, shape, device, |word| i32::from(i16::from_le_bytes(word))),
        Dtype::U16 => widen(bytes, shape, device, |word| i32::from(u16::from_le_bytes(word))),
        // Only where all of them fit.
        Dtype::U64 if bytes.as_chunks::<8>().0.iter().all(|word| word[7] < 0x80) => {
            Tensor::from_bytes_of(DType::I64, bytes, shape, device)
        }
        _ => return None,
    })
}
