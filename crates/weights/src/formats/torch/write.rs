//! Writing PyTorch's zip: a pickle of an `OrderedDict` of tensors, and the elements beside it.

use std::{collections::HashMap, path::Path};

use nn::StateDict;
use tensor_core::{DType, Result, Tensor};

use super::globals::storage_of;
use crate::{archive::write_archive, state::computed};

/// The folder in the archive, with PyTorch's name for files without a name.
const ROOT: &str = "archive";

/// Writes a state dict as `torch.save` does, completely or not at all: `torch.load(path, weights_only=True)`
/// reads it.
///
/// A tensor with several names, such as tied weights, is written once, and is shared when it is loaded.
/// PyTorch has all dtypes.
///
/// # Errors
/// A value that cannot be computed, or a `File` error of the file system.
#[track_caller]
pub fn save_torch(path: impl AsRef<Path>, dict: &StateDict) -> Result<()> {
    let tensors = computed(dict)?;
    // Each tensor once, identified before it was made contiguous.
    let mut storages: HashMap<u64, usize> = HashMap::new();
    let mut stored: Vec<&Tensor> = Vec::new();
    let mut pickle = Pickler::new();
    for ((name, tensor), original) in tensors.iter().zip(dict.values()) {
        let key = *storages.entry(original.detach().id()).or_insert_with(|| {
            stored.push(tensor);
            stored.len() - 1
        });
        pickle.text(name);
        pickle.tensor(key, tensor.dtype(), tensor.dims());
    }
    let pickle = pickle.finish();
    write_archive(path.as_ref(), |archive| {
        let mut entry = |name: &str, bytes: &[u8]| {
            archive.start(&format!("{ROOT}/{name}"), bytes.len() as u64)?;
            archive.write(bytes)
        };
        entry("data.pkl", &pickle)?;
        entry("byteorder", b"little")?;
        for (key, tensor) in stored.iter().enumerate() {
            archive.start(&format!("{ROOT}/data/{key}"), (tensor.numel() * tensor.dtype().size()) as u64)?;
            tensor.read_bytes_with(&mut |bytes| archive.write(bytes))?;
        }
        archive.start(&format!("{ROOT}/version"), 2)?;
        archive.write(b"3\n")
    })
}

/// Writes the pickle of protocol 2.
struct Pickler(Vec<u8>);

impl Pickler {
    /// The beginning of an `OrderedDict` whose items follow.
    fn new() -> Pickler {
        let mut pickler = Pickler(b"\x80\x02".to_vec());
        pickler.global("collections", "OrderedDict");
        pickler.0.extend(b")R(");
        pickler
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.extend(b"u.");
        self.0
    }

    fn global(&mut self, module: &str, name: &str) {
        self.0.push(b'c');
        self.0.extend(format!("{module}\n{name}\n").bytes());
    }

    fn text(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.bytes());
    }

    fn integer(&mut self, number: u64) {
        match (u8::try_from(number), i32::try_from(number)) {
            (Ok(byte), _) => self.0.extend([b'K', byte]),
            (_, Ok(word)) => {
                self.0.push(b'J');
                self.0.extend(word.to_le_bytes());
            }
            _ => {
                // Two's complement: the ninth byte keeps the number positive.
                self.0.extend([0x8a, 9]);
                self.0.extend(number.to_le_bytes());
                self.0.push(0);
            }
        }
    }

    fn integers(&mut self, numbers: impl Iterator<Item = u64>) {
        self.0.push(b'(');
        numbers.for_each(|number| self.integer(number));
        self.0.push(b't');
    }

    /// A contiguous tensor that takes the whole storage of a key.
    fn tensor(&mut self, key: usize, dtype: DType, shape: &[usize]) {
        let numel: usize = shape.iter().product();
        // Types without their own storage type have an untyped storage, and name their dtype.
        let typed = storage_of(dtype);
        let rebuild = if typed.is_some() { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" };
        self.global("torch._utils", rebuild);
        self.0.push(b'(');
        self.0.push(b'(');
        self.text("storage");
        match typed {
            Some(storage) => self.global("torch", storage),
            None => self.global("torch.storage", "UntypedStorage"),
        }
        self.text(&key.to_string());
        self.text("cpu");
        self.integer((if typed.is_some() { numel } else { numel * dtype.size() }) as u64);
        self.0.extend(b"tQ");
        self.integer(0);
        self.integers(shape.iter().map(|&size| size as u64));
        let mut strides: Vec<u64> = Vec::with_capacity(shape.len());
        let mut step = 1u64;
        for &size in shape.iter().rev() {
            strides.push(step);
            step = step.saturating_mul(size.max(1) as u64);
        }
        self.integers(strides.into_iter().rev());
        // `requires_grad` is false, and there are no hooks.
        self.0.push(0x89);
        self.global("collections", "OrderedDict");
        self.0.extend(b")R");
        if typed.is_none() {
            self.global("torch", dtype.info().torch);
        }
        self.0.extend(b"tR");
    }
}
