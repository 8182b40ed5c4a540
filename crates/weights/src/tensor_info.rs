//! [`TensorInfo`]: the position and encoding of a tensor in a file.

use std::sync::Arc;

use tensor_core::{BlockType, DType, Shape, file::Content};

use crate::archive::Packed;

/// The encoding of a stored tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// Contiguous elements of a dtype.
    Plain(DType),
    /// GGUF's blocks of quantized numbers.
    Blocks(BlockType),
    /// Elements of a type without a counterpart here, with the format's name of it, such as `complex64`.
    Other(&'static str),
}

impl Encoding {
    /// The name of the type of an element.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Encoding::Plain(dtype) => dtype.name(),
            Encoding::Blocks(blocks) => blocks.name(),
            Encoding::Other(name) => name,
        }
    }
}

/// A tensor in a file: its shape, type and position. [`WeightFile::read`](crate::WeightFile::read) reads it.
#[derive(Debug)]
pub struct TensorInfo {
    pub(crate) encoding: Encoding,
    pub(crate) shape: Shape,
    /// The strides in elements; `None` for contiguous tensors.
    pub(crate) strides: Option<Vec<u64>>,
    pub(crate) place: Place,
    /// Whether elements are big-endian.
    pub(crate) big_endian: bool,
    /// The name of the tensor, and the description of its blocks, in Taper's safetensors files.
    pub(crate) described: Option<(String, String)>,
}

/// The position of a tensor's first element.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// At a byte of a file.
    File { content: Arc<Content>, start: u64 },
    /// At a byte of an archive entry after decompression.
    Packed { entry: Arc<Packed>, start: u64 },
}

impl TensorInfo {
    /// The sizes of the axes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How the elements are encoded.
    pub fn encoding(&self) -> &Encoding {
        &self.encoding
    }

    /// The dtype of the elements; `None` for blocks of quantized numbers and for types without a counterpart
    /// here.
    pub fn dtype(&self) -> Option<DType> {
        match self.encoding {
            Encoding::Plain(dtype) => Some(dtype),
            Encoding::Blocks(_) | Encoding::Other(_) => None,
        }
    }

    /// The name of the type of the elements: `f32`, `Q4_1`, `complex64`.
    pub fn type_name(&self) -> &'static str {
        self.encoding.name()
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// The bytes of the elements, each counted once; `None` for a type with unknown size.
    pub fn bytes(&self) -> Option<u64> {
        let numel = self.numel() as u64;
        match &self.encoding {
            Encoding::Plain(dtype) => numel.checked_mul(dtype.size() as u64),
            Encoding::Blocks(blocks) => {
                (numel / blocks.block_elements() as u64).checked_mul(blocks.block_bytes() as u64)
            }
            Encoding::Other(_) => None,
        }
    }

    /// A key that is equal for tensors with the same elements of a file: file, position, sizes, strides and
    /// type.
    pub(crate) fn identity(&self) -> Identity {
        let (source, start) = match &self.place {
            Place::File { content, start } => (Arc::as_ptr(content) as usize, *start),
            Place::Packed { entry, start } => (Arc::as_ptr(entry) as usize, *start),
        };
        (source, start, self.shape.dims().to_vec(), self.strides.clone(), self.type_name())
    }
}

/// See [`TensorInfo::identity`].
pub(crate) type Identity = (usize, u64, Vec<usize>, Option<Vec<u64>>, &'static str);

/// The greatest number of axes of a tensor in a file. PyTorch and NumPy allow 64.
pub(crate) const AXES_LIMIT: usize = 64;
