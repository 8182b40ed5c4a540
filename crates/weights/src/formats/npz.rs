//! Reads and writes NumPy's arrays: `.npz`, a zip of `.npy` files, and single `.npy` files.

use std::{
    collections::BTreeMap,
    io::{BufWriter, Read, Write},
    path::Path,
    sync::Arc,
};

use nn::StateDict;
use tensor_core::{
    Result, Shape, Tensor,
    file::{Content, file_error, write_whole},
    npy::{self, Header},
};

use crate::{
    archive::{Archive, Entry, Packed, write_archive},
    parsed::Parsed,
    state::computed,
    stream::Stream,
    tensor_info::{AXES_LIMIT, Encoding, Place, TensorInfo},
};

/// The extension of the entries of `.npz`, which the names of arrays lack.
const ENDING: &str = ".npy";

/// The name of the array in a `.npy` file: NumPy's name for the first unnamed array of `.npz`.
const ALONE: &str = "arr_0";

/// Opens a zip of arrays.
#[track_caller]
pub(crate) fn open(content: &Arc<Content>, archive: &Archive) -> Result<Parsed> {
    let path = content.path();
    let mut tensors = BTreeMap::new();
    for (entry_name, entry) in &archive.entries {
        let Some(name) = entry_name.strip_suffix(ENDING) else {
            let message = format!(
                "is a zip archive, and neither one of PyTorch's (no data.pkl) nor one of arrays (its entry \"{entry_name}\" is no .npy)"
            );
            return Err(file_error(path, message));
        };
        let of_entry = |message: String| file_error(path, format!("entry \"{entry_name}\" {message}"));
        let (header, place) = match archive.entry(entry_name)? {
            Entry::Stored { start, size, .. } => {
                let header =
                    npy::read_header(&mut Stream::new(content, *start, start + size)).map_err(of_entry)?;
                let place = Place::File { content: content.clone(), start: start + header.start };
                (header, place)
            }
            Entry::Packed(packed) => {
                let header = packed_header(packed).map_err(of_entry)?;
                let start = header.start;
                (header, Place::Packed { entry: packed.clone(), start })
            }
            Entry::Unreadable(why) => return Err(of_entry(why.clone())),
        };
        let info = info(header, place, entry.size()).map_err(of_entry)?;
        tensors.insert(name.to_string(), Arc::new(info));
    }
    content.check_unchanged()?;
    let capacity = archive.size();
    Ok(Parsed { tensors, texts: BTreeMap::new(), gguf: BTreeMap::new(), value: None, capacity })
}

/// Opens one array.
#[track_caller]
pub(crate) fn open_npy(content: &Arc<Content>) -> Result<Parsed> {
    let of_file = |message: String| file_error(content.path(), message);
    let header = npy::read_header(&mut Stream::new(content, 0, content.length())).map_err(of_file)?;
    let place = Place::File { content: content.clone(), start: header.start };
    let info = info(header, place, content.length()).map_err(of_file)?;
    content.check_unchanged()?;
    Ok(Parsed {
        tensors: BTreeMap::from([(ALONE.to_string(), Arc::new(info))]),
        texts: BTreeMap::new(),
        gguf: BTreeMap::new(),
        value: None,
        capacity: content.length(),
    })
}

/// The header of a compressed array; only the header is decompressed.
fn packed_header(packed: &Packed) -> std::result::Result<Header, String> {
    npy::read_header(&mut packed.decoder().take(packed.size))
}

/// The tensor that a header describes, in an entry of `size` bytes.
fn info(header: Header, place: Place, size: u64) -> std::result::Result<TensorInfo, String> {
    let Header { dtype, shape, fortran_order, big_endian, start, .. } = header;
    let sizes = Shape::from(shape.as_slice());
    if shape.len() > AXES_LIMIT {
        return Err(format!("has {} axes, expected {AXES_LIMIT} at most", shape.len()));
    }
    let bytes = sizes.checked_numel().and_then(|numel| (numel as u64).checked_mul(dtype.size() as u64));
    let promised = bytes.and_then(|bytes| bytes.checked_add(start));
    if promised != Some(size) {
        let promised = promised.map_or("more than can be counted".into(), |bytes| bytes.to_string());
        return Err(format!(
            "is cut off or damaged: {shape:?} of {dtype} is {promised} bytes with its header, and it has {size}"
        ));
    }
    let strides = fortran_order.then(|| {
        let mut step = 1u64;
        let steps = shape.iter().map(|&size| {
            let stride = step;
            step = step.saturating_mul(size as u64);
            stride
        });
        steps.collect()
    });
    let big_endian = big_endian && dtype.size() > 1;
    Ok(TensorInfo {
        encoding: Encoding::Plain(dtype),
        shape: sizes,
        strides,
        place,
        big_endian,
        described: None,
    })
}

/// Writes tensors as a `.npz` file for `numpy.load`, completely or not at all. Entries are not compressed,
/// as with `numpy.savez`.
///
/// ```
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("arrays.npz");
/// let device = backend_cpu::cpu();
/// let x = Tensor::arange(0.0, 6.0, 1.0, &device)?.reshape([2, 3])?;
/// let dict = nn::StateDict::from([("x".to_string(), x)]);
/// weights::save_npz(&path, &dict)?; // numpy.load(path)["x"]
/// assert_eq!(weights::open(&path)?.tensor("x", &device)?.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// A `File` error for a dtype that NumPy lacks (bf16, 8-bit floats: cast them first) and for errors of the
/// file system; a value that cannot be computed.
#[track_caller]
pub fn save_npz(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    let path = path.as_ref();
    let tensors = computed(dict)?;
    write_archive(path, |archive| {
        for (name, tensor) in &tensors {
            let header = header(path, name, tensor)?;
            let bytes = (tensor.numel() * tensor.dtype().size()) as u64;
            archive.start(&format!("{name}{ENDING}"), header.len() as u64 + bytes)?;
            archive.write(&header)?;
            tensor.read_bytes_with(&mut |bytes| archive.write(bytes))?;
        }
        Ok(())
    })
}

/// Writes one tensor as a `.npy` file for `numpy.load`, completely or not at all.
///
/// ```
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("x.npy");
/// let device = backend_cpu::cpu();
/// weights::save_npy(&path, &Tensor::new([1.0f32, 2.0], &device)?)?; // numpy.load(path)
/// assert_eq!(weights::open(&path)?.tensor("arr_0", &device)?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// As [`save_npz`].
pub fn save_npy(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let path = path.as_ref();
    let dict = StateDict::from([(ALONE.to_string(), tensor.clone())]);
    let failed = |error: std::io::Error| file_error(path, format!("cannot be written: {error}"));
    for (name, tensor) in computed(&dict)? {
        let header = header(path, name, &tensor)?;
        write_whole(path, failed, |file| {
            let mut file = BufWriter::new(file);
            file.write_all(&header).map_err(failed)?;
            tensor.read_bytes_with(&mut |bytes| file.write_all(bytes).map_err(failed))?;
            file.flush().map_err(failed)
        })?;
    }
    Ok(())
}

/// The header of an array.
fn header(path: &Path, name: &str, tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    npy::write_header(dtype, tensor.dims()).ok_or_else(|| {
        file_error(path, format!("NumPy has no type for \"{name}\", of {dtype}; cast it to f32 first"))
    })
}
