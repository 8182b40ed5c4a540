//! State dicts as files in the safetensors format, which PyTorch's ecosystem reads and writes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use ::safetensors::{
    Dtype, SafeTensorError,
    tensor::{Metadata, TensorInfo},
};
use tensor_core::{
    DType, Device, Error, Result, Scalar, Shape, Tensor, block_format, eval_all,
    file::{Content, OpenFile, file_error, open_regular, write_whole},
};

use crate::{StateDict, TensorSource};

/// Writes a state dict as a safetensors file, completely or not at all: it writes another file beside `path`
/// first and then renames it, so that a failure leaves an existing file unchanged.
///
/// All values are computed first. Values on a CPU are written directly from their memory; those on a GPU
/// pass through some megabytes of host memory. When this function returns, the file is on the disk, and not
/// only in the system's memory: a power failure leaves the old file or the new one. So it takes as long as
/// the disk does, where PyTorch's `save_file` leaves that to the system.
///
/// A symbolic link is followed, and its target is replaced; an existing file's permissions are kept. A
/// device or pipe is written to directly.
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
/// A value that cannot be computed, the name `__metadata__`, which the format reserves, or a `File` error of
/// the file system.
#[track_caller]
pub fn save_safetensors(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    let mut parts: Vec<Part<'_>> = dict.iter().map(|(name, tensor)| Part::of(name, tensor)).collect();
    evaluate(&mut parts)?;
    write(path.as_ref(), parts, HashMap::new())
}

/// Reads a safetensors file; every tensor goes to `device`.
///
/// Integers of dtypes that Taper lacks become wider ones: i8, i16 and u16 become i32, u64 becomes i64. To
/// read some tensors of a file whose others have no counterpart, use [`SafetensorsFile`].
///
/// # Errors
/// A `File` error for a file that cannot be read, is truncated or is no safetensors file, or a tensor of a
/// dtype without a counterpart; a dtype that the device lacks; too little memory.
#[track_caller]
pub fn load_safetensors(path: impl AsRef<Path>, device: &Device) -> Result<StateDict> {
    SafetensorsFile::open(path)?.state_dict(device)
}

/// A safetensors file whose tensors are read on demand: on a CPU directly to their memory, by several
/// threads.
///
/// The file stays open, and must not change meanwhile: a change is an error of the next read. If it is
/// replaced, as [`save_safetensors`] does, the old content is still read. Pipes and devices are refused.
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
    content: Content,
    tensors: BTreeMap<String, SafetensorsPlace>,
    metadata: BTreeMap<String, String>,
}

/// The positions of the tensors in a file, and its metadata.
#[doc(hidden)] // for `weights`
#[derive(Debug)]
pub struct SafetensorsHeader {
    pub tensors: BTreeMap<String, SafetensorsPlace>,
    pub metadata: BTreeMap<String, String>,
}

/// The position of a tensor in a file.
#[doc(hidden)] // for `weights`
#[derive(Debug)]
pub struct SafetensorsPlace {
    /// The dtype; `None` for a type without a counterpart here.
    pub dtype: Option<DType>,
    /// The format's name of the type.
    pub type_name: &'static str,
    pub shape: Vec<usize>,
    /// The offset of the first byte in the file.
    pub start: u64,
    pub bytes: usize,
}

impl SafetensorsFile {
    /// Opens a file, and checks its header against the file's size.
    ///
    /// # Errors
    /// A `File` error for a file that cannot be read, is truncated, or is no safetensors file. PyTorch's own
    /// formats (`.pt`, `.pth`, `.bin`) are recognized, and the error says how to convert them.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsFile> {
        let path = path.as_ref();
        let content = open(path)?;
        let SafetensorsHeader { tensors, metadata } = read_header(&content)?;
        Ok(SafetensorsFile { path: path.to_path_buf(), tensors, metadata, content })
    }

    /// The names of the tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of the tensor of this name.
    pub fn shape(&self, name: &str) -> Option<Shape> {
        self.tensors.get(name).map(|stored| Shape::from(stored.shape.as_slice()))
    }

    /// The file's metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// One tensor, on `device`.
    ///
    /// # Errors
    /// A `File` error for a name that is missing, or a dtype without a counterpart; a dtype that the device
    /// lacks; too little memory.
    #[track_caller]
    pub fn tensor(&self, name: &str, device: &Device) -> Result<Tensor> {
        let Some(stored) = self.tensors.get(name) else {
            let names: Vec<&str> = self.names().take(10).collect();
            let more = if self.tensors.len() > 10 { " and more" } else { "" };
            let message = format!("has no tensor \"{name}\"; there are {}{more}", names.join(", "));
            return Err(file_error(&self.path, message));
        };
        let Some(tensor) = self.make(name, stored, device)? else {
            let message = format!(
                "tensor \"{name}\" is of dtype {}, which has no counterpart here; convert it, or read the others one by one \
                 with SafetensorsFile::open",
                stored.type_name
            );
            return Err(file_error(&self.path, message));
        };
        self.content.check_unchanged()?;
        Ok(tensor)
    }

    /// The stored tensor, or `None` for a dtype without a counterpart.
    #[track_caller]
    fn make(&self, name: &str, stored: &SafetensorsPlace, device: &Device) -> Result<Option<Tensor>> {
        let shape = stored.shape.as_slice();
        if let Some(blocks) = self.metadata.get(&blocks_key(name)) {
            let mut bytes = vec![0; stored.bytes];
            self.content.read_at(&mut bytes, stored.start)?;
            return Error::here_in(read_blocks(&self.path, name, blocks, &bytes, device)).map(Some);
        }
        let Some(dtype) = stored.dtype else { return Ok(None) };
        let made = Tensor::from_content(&self.content, stored.start, dtype, shape, device);
        Error::here_in(made).map(Some)
    }

    /// Passes the names, shapes and sizes in bytes of all tensors, in the order of their names, each
    /// followed by its bytes, piece by piece.
    #[track_caller]
    pub(crate) fn each(&self, mut take: impl FnMut(Piece<'_>)) -> Result<()> {
        let mut room = vec![0; PIECE];
        for (name, stored) in &self.tensors {
            take(Piece::Tensor { name, shape: &stored.shape, bytes: stored.bytes });
            for first in (0..stored.bytes).step_by(PIECE) {
                let piece = &mut room[..(stored.bytes - first).min(PIECE)];
                self.content.read_at(piece, stored.start + first as u64)?;
                take(Piece::Bytes(piece));
            }
        }
        self.content.check_unchanged()
    }

    /// A 0-d tensor of f64, i64 or bool as a number, even if the device lacks that dtype.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> Result<Scalar> {
        let Some(stored @ SafetensorsPlace { dtype, bytes: 1..=8, .. }) = self.tensors.get(name) else {
            return Err(self.no_number(name));
        };
        let mut room = [0; 8];
        let word = &mut room[..stored.bytes];
        self.content.read_at(word, stored.start)?;
        self.content.check_unchanged()?;
        match (dtype, &*word) {
            (Some(DType::F64), &[a, b, c, d, e, f, g, h]) => {
                Ok(Scalar::Float(f64::from_le_bytes([a, b, c, d, e, f, g, h])))
            }
            (Some(DType::I64), &[a, b, c, d, e, f, g, h]) => {
                Ok(Scalar::Int(i64::from_le_bytes([a, b, c, d, e, f, g, h])))
            }
            (Some(DType::U64), &[a, b, c, d, e, f, g, h]) => {
                Ok(Scalar::from_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h])))
            }
            (Some(DType::Bool), &[byte]) => Ok(Scalar::Bool(byte != 0)),
            _ => Err(self.no_number(name)),
        }
    }

    #[track_caller]
    fn no_number(&self, name: &str) -> Error {
        file_error(&self.path, format!("\"{name}\" should be a number, but is not"))
    }

    /// All tensors, on `device`.
    ///
    /// # Errors
    /// As for [`SafetensorsFile::tensor`].
    #[track_caller]
    pub fn state_dict(&self, device: &Device) -> Result<StateDict> {
        self.names().map(|name| Ok((name.to_string(), self.tensor(name, device)?))).collect()
    }
}

/// Tensors are read on demand, so that a module is loaded with one tensor in memory beside its own.
impl TensorSource for SafetensorsFile {
    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn described(&self, name: &str) -> Option<(Shape, DType)> {
        if self.metadata.contains_key(&blocks_key(name)) {
            return None;
        }
        let stored = self.tensors.get(name)?;
        Some((Shape::from(stored.shape.as_slice()), stored.dtype?))
    }

    #[track_caller]
    fn read(&self, name: &str, _: DType, device: &Device) -> Result<Tensor> {
        self.tensor(name, device)
    }
}

/// The items of [`SafetensorsFile::each`].
pub(crate) enum Piece<'a> {
    Tensor { name: &'a str, shape: &'a [usize], bytes: usize },
    Bytes(&'a [u8]),
}

/// The number of bytes of a file that are processed together.
const PIECE: usize = 1 << 18;

/// The greatest header of the format, in bytes.
const MOST_HEADER: u64 = 100_000_000;

/// The file's content, or the error that it has another format.
#[track_caller]
fn open(path: &Path) -> Result<Content> {
    let failed = |e: io::Error| file_error(path, format!("cannot be read: {e}"));
    let mut file = open_regular(path)?;
    let mut bytes = Vec::new();
    // The beginning first, so that a file of another format is not read completely.
    (&mut file).take(4096).read_to_end(&mut bytes).map_err(failed)?;
    if let Some(message) = another_format(path, &bytes) {
        return Err(file_error(path, message));
    }
    if let Some(length) = bytes.first_chunk::<8>().map(|length| u64::from_le_bytes(*length))
        && !(2..=MOST_HEADER).contains(&length)
    {
        let message =
            format!("is no safetensors file: its first 8 bytes give its header a length of {length}");
        return Err(file_error(path, message));
    }
    Ok(Content::File(OpenFile::new(path, file)?))
}

/// Reads the header, and checks it against the file's size.
#[doc(hidden)] // for `weights`
#[track_caller]
pub fn read_header(content: &Content) -> Result<SafetensorsHeader> {
    let path = content.path();
    let broken = |message: &dyn std::fmt::Display| {
        file_error(path, format!("is no whole safetensors file: {message}"))
    };
    let mut length = [0; 8];
    if content.length() < 8 {
        return Err(broken(&SafeTensorError::HeaderTooSmall));
    }
    content.read_at(&mut length, 0)?;
    let length = u64::from_le_bytes(length);
    let data = 8 + length.min(MOST_HEADER);
    if data > content.length() || length > MOST_HEADER {
        return Err(broken(&SafeTensorError::InvalidHeaderLength));
    }
    let mut text = vec![0; (data - 8) as usize];
    content.read_at(&mut text, 8)?;
    // Inconsistent sizes, positions and dtypes are an error of the parser.
    let parsed: Metadata = serde_json::from_slice(&text).map_err(|e| broken(&e))?;
    let promised = data + parsed.data_len() as u64;
    if promised != content.length() {
        let message = format!(
            "its header promises {promised} bytes, and it has {}: it is cut off, or has bytes left over",
            content.length()
        );
        return Err(broken(&message));
    }
    let tensors = parsed.tensors().into_iter().map(|(name, info)| {
        let (start, end) = info.data_offsets;
        let dtype = DType::ALL.into_iter().find(|&dtype| file_dtype(dtype) == Some(info.dtype));
        let place = SafetensorsPlace {
            dtype,
            type_name: dtype.map_or_else(|| foreign_name(info.dtype), |dtype| dtype.info().safetensors),
            shape: info.shape.clone(),
            start: data + start as u64,
            bytes: end - start,
        };
        (name, place)
    });
    let metadata = parsed.metadata().clone().unwrap_or_default().into_iter().collect();
    Ok(SafetensorsHeader { tensors: tensors.collect(), metadata })
}

/// The types of the format without a counterpart here, by the format's names.
const FOREIGN: &[(Dtype, &str)] = &[
    (Dtype::F4, "F4"),
    (Dtype::F6_E2M3, "F6_E2M3"),
    (Dtype::F6_E3M2, "F6_E3M2"),
    (Dtype::F8_E8M0, "F8_E8M0"),
    (Dtype::C64, "C64"),
];

fn foreign_name(dtype: Dtype) -> &'static str {
    FOREIGN
        .iter()
        .find(|(foreign, _)| *foreign == dtype)
        .map_or("a type that is not known here", |(_, name)| name)
}

/// The name of another format that the file has, and how to convert it.
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
            "is a PyTorch file ({kind}), not safetensors; open it with the crate weights (feature weights of taper), or convert it once in Python:\n\
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

/// A tensor or number to be written.
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    dtype: DType,
    shape: Cow<'a, [usize]>,
    elements: Elements,
    /// The metadata of a block-quantized tensor, which is written as its bytes.
    blocks: Option<String>,
}

enum Elements {
    Tensor(Tensor),
    /// A number, or a block-quantized tensor.
    Bytes(Vec<u8>),
}

/// The block-quantized tensor with these bytes, as the metadata describes it: format, dtype, and sizes.
#[doc(hidden)] // for `weights`
#[track_caller]
pub fn read_blocks(
    path: &Path,
    name: &str,
    described: &str,
    bytes: &[u8],
    device: &Device,
) -> Result<Tensor> {
    let malformed = || {
        let message = format!(
            "its metadata say of tensor \"{name}\" in blocks: \"{described}\", which is no format, dtype and shape"
        );
        file_error(path, message)
    };
    let mut words = described.split(' ');
    let (Some(format), Some(dtype)) = (words.next(), words.next()) else { return Err(malformed()) };
    let dtype = DType::ALL.into_iter().find(|known| known.to_string() == dtype).ok_or_else(malformed)?;
    let sizes: Option<Vec<usize>> = words.map(|size| size.parse().ok()).collect();
    let shape = Shape::from(sizes.ok_or_else(malformed)?.as_slice());
    let Some(format) = block_format(format, &shape.clone().checked("load_safetensors")?, bytes.len()) else {
        let message = format!(
            "tensor \"{name}\" of shape {shape} is {} bytes in blocks of {format}, which no format here is; a \
             format of another crate is known after tensor_core::register_block_format",
            bytes.len()
        );
        return Err(file_error(path, message));
    };
    Tensor::of_blocks("load_safetensors", format, &shape, dtype, bytes, device)
}

/// The metadata key that describes a block-quantized tensor.
#[doc(hidden)] // for `weights`
pub fn blocks_key(name: &str) -> String {
    format!("taper.blocks.{name}")
}

impl<'a> Part<'a> {
    pub(crate) fn of(name: &'a str, tensor: &'a Tensor) -> Part<'a> {
        let (dtype, shape) = (tensor.dtype(), Cow::Borrowed(tensor.dims()));
        // A view of blocks is written as its decoded numbers.
        if let Some(format) = tensor.block_format()
            && let Ok(bytes) = tensor.block_bytes()
        {
            let sizes: String = shape.iter().map(|size| format!(" {size}")).collect();
            let blocks = Some(format!("{format} {dtype}{sizes}"));
            let shape = Cow::Owned(vec![bytes.len()]);
            return Part { name, dtype: DType::U8, shape, elements: Elements::Bytes(bytes), blocks };
        }
        Part { name, dtype, shape, elements: Elements::Tensor(tensor.detach()), blocks: None }
    }

    /// A 0-d tensor.
    pub(crate) fn of_number(name: &'a str, value: Scalar) -> Part<'a> {
        let (dtype, bytes) = match value {
            Scalar::Float(v) => (DType::F64, v.to_le_bytes().to_vec()),
            Scalar::Int(v) => (DType::I64, v.to_le_bytes().to_vec()),
            Scalar::Unsigned(v) => (DType::U64, v.to_le_bytes().to_vec()),
            Scalar::Bool(v) => (DType::Bool, vec![u8::from(v)]),
        };
        Part { name, dtype, shape: Cow::Borrowed(&[]), elements: Elements::Bytes(bytes), blocks: None }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    /// Passes the bytes, piece by piece.
    #[track_caller]
    pub(crate) fn read(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match &self.elements {
            Elements::Tensor(tensor) => tensor.read_bytes_with(take),
            Elements::Bytes(bytes) => take(bytes),
        }
    }
}

/// Computes all tensors of some parts, and waits for them, so that errors occur before anything is written.
/// Tensors that are not contiguous are copied when they are read.
#[track_caller]
pub(crate) fn evaluate(parts: &mut [Part<'_>]) -> Result<()> {
    let tensors = parts.iter().filter_map(|part| match &part.elements {
        Elements::Tensor(tensor) => Some(tensor),
        Elements::Bytes(_) => None,
    });
    Error::here_in(eval_all(&tensors.collect::<Vec<_>>()))?;
    for part in parts {
        if let Elements::Tensor(tensor) = &mut part.elements {
            *tensor = tensor.contiguous()?;
        }
    }
    Ok(())
}

/// Writes computed parts in the order of the format: those of wide dtypes first, so that all are aligned.
#[track_caller]
pub(crate) fn write(
    path: &Path,
    mut parts: Vec<Part<'_>>,
    mut metadata: HashMap<String, String>,
) -> Result<()> {
    parts.sort_by(|a, b| file_dtype(b.dtype).cmp(&file_dtype(a.dtype)).then(a.name.cmp(b.name)));
    let mut infos = Vec::with_capacity(parts.len());
    let mut end = 0;
    for part in &parts {
        if part.name == "__metadata__" {
            let message = "a tensor cannot be named __metadata__: the format keeps that name for itself";
            return Err(file_error(path, message));
        }
        let data_offsets = (end, end + part.size());
        end = data_offsets.1;
        let dtype = file_dtype(part.dtype)
            .ok_or_else(|| file_error(path, format!("the format has no tensors of {}", part.dtype)))?;
        let info = TensorInfo { dtype, shape: part.shape.to_vec(), data_offsets };
        infos.push((part.name.to_string(), info));
        if let Some(blocks) = &part.blocks {
            metadata.insert(blocks_key(part.name), blocks.clone());
        }
    }
    // Other libraries read this entry to identify the naming and layout.
    metadata.insert("format".into(), "pt".into());
    let header = Metadata::new(Some(metadata.into_iter().collect()), infos)
        .map_err(|e| file_error(path, e.to_string()))?;
    let mut header = serde_json::to_vec(&header).map_err(|e| file_error(path, e.to_string()))?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let length = header.len() as u64;
    if length > MOST_HEADER {
        let message =
            format!("the names and shapes take {length} bytes, and the format has room for {MOST_HEADER}");
        return Err(file_error(path, message));
    }
    let failed = |e: io::Error| file_error(path, format!("cannot be written: {e}"));
    let written = write_whole(path, failed, |file| {
        // Small tensors are buffered; large pieces bypass the buffer.
        let mut file = BufWriter::with_capacity(PIECE / 4, file);
        file.write_all(&length.to_le_bytes()).map_err(failed)?;
        file.write_all(&header).map_err(failed)?;
        for part in &parts {
            part.read(&mut |bytes| file.write_all(bytes).map_err(failed))?;
        }
        file.flush().map_err(failed)
    });
    Error::here_in(written)
}

/// The format's dtype, by its name.
fn file_dtype(dtype: DType) -> Option<Dtype> {
    serde_json::from_value(dtype.info().safetensors.into()).ok()
}
