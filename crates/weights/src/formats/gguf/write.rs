//! Writing GGUF, version 3.

use std::{
    any::Any,
    collections::BTreeMap,
    io::{BufWriter, Write},
    path::Path,
};

use nn::StateDict;
use tensor_core::{
    BlockType, DType, Error, GgmlType, Result, Tensor, eval_all,
    file::{file_error, write_whole},
};

use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use crate::gguf_value::{GgufValue, write_text};

/// A GGUF file to be written: metadata, and tensors in the order in which they are added.
///
/// ```
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.gguf");
/// use weights::GgufWriter;
/// let device = backend_cpu::cpu();
/// GgufWriter::new()
///     .metadata("general.architecture", "llama")
///     .metadata("llama.block_count", 2u32)
///     .tensor("output_norm.weight", &Tensor::ones([8], &device)?)
///     .save(&path)?;
/// let file = weights::open(&path)?;
/// assert_eq!(file.gguf_metadata()["llama.block_count"].as_u64(), Some(2));
/// assert_eq!(file.tensor("output_norm.weight", &device)?.to_vec::<f32>()?, [1.0; 8]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    metadata: BTreeMap<String, GgufValue>,
    tensors: Vec<(String, Stored)>,
}

/// A tensor to be written.
#[derive(Clone, Debug)]
enum Stored {
    Dense(Tensor),
    Blocks { blocks: BlockType, shape: Vec<usize>, bytes: Tensor },
}

impl Stored {
    fn shape(&self) -> &[usize] {
        match self {
            Stored::Dense(tensor) => tensor.dims(),
            Stored::Blocks { shape, .. } => shape,
        }
    }

    /// The tensor whose bytes are written.
    fn elements(&self) -> &Tensor {
        match self {
            Stored::Dense(tensor) => tensor,
            Stored::Blocks { bytes, .. } => bytes,
        }
    }

    fn size(&self) -> u64 {
        let elements = self.elements();
        (elements.numel() * elements.dtype().size()) as u64
    }

    fn number(&self) -> Option<u32> {
        match self {
            Stored::Dense(tensor) => tensor.dtype().info().gguf,
            Stored::Blocks { blocks, .. } => Some(blocks.number()),
        }
    }
}

impl GgufWriter {
    /// A file without metadata and tensors.
    pub fn new() -> GgufWriter {
        GgufWriter::default()
    }

    /// Sets a metadata value; an earlier one with that name is replaced. Readers expect certain types:
    /// counts as u32, factors as f32.
    #[must_use]
    pub fn metadata(mut self, name: &str, value: impl Into<GgufValue>) -> GgufWriter {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Adds a dense tensor of f16, bf16, f32, f64, i8, i16, i32 or i64, or a block-quantized one in a format
    /// of ggml.
    #[must_use]
    pub fn tensor(mut self, name: &str, tensor: &Tensor) -> GgufWriter {
        let stored = in_blocks(tensor).unwrap_or_else(|| Stored::Dense(tensor.detach().dequantize()));
        self.tensors.push((name.into(), stored));
        self
    }

    /// Adds the tensors of a state dict.
    #[must_use]
    pub fn state_dict(mut self, dict: &StateDict) -> GgufWriter {
        for (name, tensor) in dict {
            self = self.tensor(name, tensor);
        }
        self
    }

    /// Adds a quantized tensor of this shape, whose blocks are `bytes`, a tensor of u8 as
    /// [`WeightFile::bytes`](crate::WeightFile::bytes) returns it.
    #[must_use]
    pub fn blocks(mut self, name: &str, blocks: BlockType, shape: &[usize], bytes: &Tensor) -> GgufWriter {
        let stored = Stored::Blocks { blocks, shape: shape.to_vec(), bytes: bytes.detach() };
        self.tensors.push((name.into(), stored));
        self
    }

    /// Writes the file, completely or not at all.
    ///
    /// # Errors
    /// A value that cannot be computed; a `File` error for a name that is given twice, a dtype that GGUF
    /// lacks, blocks that do not match the shape, an alignment that is no multiple of 8, and for errors of
    /// the file system.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let alignment = match self.metadata.get(ALIGNMENT_KEY).map(|value| (value, value.as_u64())) {
            None => DEFAULT_ALIGNMENT,
            Some((_, Some(alignment))) if alignment > 0 && alignment % 8 == 0 => alignment,
            Some((value, _)) => {
                return Err(file_error(
                    path,
                    format!("cannot have the alignment {value:?}, expected a multiple of 8"),
                ));
            }
        };
        Error::here_in(eval_all(
            &self.tensors.iter().map(|(_, stored)| stored.elements()).collect::<Vec<_>>(),
        ))?;
        let mut header = MAGIC.to_vec();
        header.extend(3u32.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.len() as u64).to_le_bytes());
        for (name, value) in &self.metadata {
            write_text(name, &mut header);
            value.write(&mut header);
        }
        let mut offset = 0u64;
        let mut names = std::collections::HashSet::new();
        for (name, stored) in &self.tensors {
            if !names.insert(name) {
                return Err(file_error(path, format!("cannot have two tensors \"{name}\"")));
            }
            let number = checked(stored)
                .map_err(|why| file_error(path, format!("cannot have tensor \"{name}\": {why}")))?;
            write_text(name, &mut header);
            header.extend((stored.shape().len() as u32).to_le_bytes());
            // The fastest axis first.
            for &size in stored.shape().iter().rev() {
                header.extend((size as u64).to_le_bytes());
            }
            header.extend(number.to_le_bytes());
            header.extend(offset.to_le_bytes());
            offset = (offset + stored.size()).next_multiple_of(alignment);
        }
        let padding = |bytes: u64| vec![0; (bytes.next_multiple_of(alignment) - bytes) as usize];
        header.extend(padding(header.len() as u64));
        let failed = |error: std::io::Error| file_error(path, format!("cannot be written: {error}"));
        let written = write_whole(path, failed, |file| {
            let mut file = BufWriter::new(file);
            file.write_all(&header).map_err(failed)?;
            for (_, stored) in &self.tensors {
                stored.elements().read_bytes_with(&mut |bytes| file.write_all(bytes).map_err(failed))?;
                file.write_all(&padding(stored.size())).map_err(failed)?;
            }
            file.flush().map_err(failed)
        });
        Error::here_in(written)
    }
}

/// The blocks of a tensor in a format of ggml.
fn in_blocks(tensor: &Tensor) -> Option<Stored> {
    let format = tensor.block_format()?;
    let blocks = (&*format as &dyn Any).downcast_ref::<GgmlType>()?.block_type();
    let bytes = tensor.block_bytes().ok()?;
    let bytes = Tensor::from_slice(&bytes, [bytes.len()], &tensor.device()).ok()?;
    Some(Stored::Blocks { blocks, shape: tensor.dims().to_vec(), bytes })
}

/// The number of a tensor's type, or the reason why it cannot be written.
fn checked(stored: &Stored) -> std::result::Result<u32, String> {
    if let Stored::Blocks { blocks, shape, bytes } = stored {
        let columns = shape.last().copied().unwrap_or(1);
        let numel: usize = shape.iter().product();
        let expected = numel / blocks.block_elements() * blocks.block_bytes();
        if bytes.dtype() != DType::U8 || columns % blocks.block_elements() != 0 || bytes.numel() != expected {
            return Err(format!(
                "{shape:?} of {} takes {expected} bytes of u8, in rows of whole blocks of {}, and there are {} of {}",
                blocks.name(),
                blocks.block_elements(),
                bytes.numel(),
                bytes.dtype()
            ));
        }
    }
    stored.number().ok_or_else(|| {
        format!(
            "GGUF has no type for {}; cast it to f32, f16, bf16, f64 or a signed integer",
            stored.elements().dtype()
        )
    })
}
