//! State dicts as files, in the safetensors format that PyTorch's ecosystem reads and writes.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use ::safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use tensor_core::{DType, Device, Element, Error, ErrorKind, Result, Tensor, bf16, f16};

use crate::StateDict;

/// Writes a state dict as a safetensors file, whole or not at all: it is written beside `path` first and then renamed, so
/// that a failure leaves an older file as it was.
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
/// A value that cannot be computed, or [`ErrorKind::File`] for whatever the file system reports.
#[track_caller]
pub fn save_safetensors(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    let path = path.as_ref();
    let mut parts = Vec::with_capacity(dict.len());
    for (name, tensor) in dict {
        parts.push((name, tensor, tensor.read_bytes()?));
    }
    let mut views = Vec::with_capacity(parts.len());
    for (name, tensor, bytes) in &parts {
        let view = TensorView::new(file_dtype(tensor.dtype()), tensor.dims().to_vec(), bytes)
            .map_err(|e| file_error(path, format!("tensor \"{name}\": {e}")))?;
        views.push((name, view));
    }
    // What other libraries look for to know whose names and layout these are.
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    let bytes = serialize(views, Some(metadata)).map_err(|e| file_error(path, e.to_string()))?;
    write_whole(path, &bytes).map_err(|e| file_error(path, format!("cannot be written: {e}")))
}

/// Reads a safetensors file; every tensor goes to `device`.
///
/// # Errors
/// [`ErrorKind::File`] for a file that cannot be read, is cut off or is no safetensors file, or a tensor of a dtype that Taper
/// lacks; a dtype that the device lacks; no memory there.
#[track_caller]
pub fn load_safetensors(path: impl AsRef<Path>, device: &Device) -> Result<StateDict> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(|e| file_error(path, format!("cannot be read: {e}")))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|e| file_error(path, format!("is no whole safetensors file: {e}")))?;
    let mut dict = StateDict::new();
    for (name, view) in file.tensors() {
        let tensor = read_view(&view, device).unwrap_or_else(|| {
            let message = format!(
                "tensor \"{name}\" is of dtype {:?}, which has no like here; convert it",
                view.dtype()
            );
            Err(file_error(path, message))
        })?;
        dict.insert(name, tensor);
    }
    Ok(dict)
}

fn file_error(path: &Path, message: String) -> Error {
    Error::new(ErrorKind::File { path: path.to_path_buf(), message })
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

/// The tensor of a view, or `None` for a dtype without a like.
fn read_view(view: &TensorView<'_>, device: &Device) -> Option<Result<Tensor>> {
    #[track_caller]
    fn upload<T: Element>(view: &TensorView<'_>, device: &Device) -> Result<Tensor> {
        Tensor::from_vec(T::from_bytes(view.data()), view.shape(), device)
    }
    Some(match view.dtype() {
        Dtype::BOOL => upload::<bool>(view, device),
        Dtype::U8 => upload::<u8>(view, device),
        Dtype::U32 => upload::<u32>(view, device),
        Dtype::I32 => upload::<i32>(view, device),
        Dtype::I64 => upload::<i64>(view, device),
        Dtype::F16 => upload::<f16>(view, device),
        Dtype::BF16 => upload::<bf16>(view, device),
        Dtype::F32 => upload::<f32>(view, device),
        Dtype::F64 => upload::<f64>(view, device),
        _ => return None,
    })
}

/// Writes beside `path` and renames; what was there stays until the new file is whole.
fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let beside = beside(path);
    let written = (|| {
        let mut file = fs::File::create_new(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        // The first failure is the one to report.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A name in the same folder that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}
