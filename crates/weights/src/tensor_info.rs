//! [`TensorInfo`]: where the elements of a tensor are in a file, and how they are encoded.

use std::sync::Arc;

use tensor_core::{DType, Shape, file::Content};

use crate::{archive::Packed, gguf::BlockType};

/// How the elements of a stored tensor are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// Elements of a dtype, one after the other.
    Plain(DType),
    /// GGUF's blocks of quantized numbers.
    Blocks(BlockType),
    /// Elements of a type without a counterpart here, by the name that the format gives it, such as
    /// `complex64`.
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

/// A tensor in a file: its shape and type, and where its elements are.
/// [`WeightFile::read`](crate::WeightFile::read) reads it.
#[derive(Debug)]
pub struct TensorInfo {
    pub(crate) encoding: Encoding,
    pub(crate) shape: Shape,
    /// The steps of the axes in elements; `None` for row-major order without gaps.
    pub(crate) strides: Option<Vec<u64>>,
    pub(crate) place: Place,
    /// Whether the most significant byte of an element comes first.
    pub(crate) big_endian: bool,
    /// The name of the tensor, and the description of the blocks that its bytes are: in safetensors of
    /// Taper's.
    pub(crate) described: Option<(String, String)>,
}

/// Where the elements of a tensor begin.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// At a byte of a file.
    File { content: Arc<Content>, start: u64 },
    /// At a byte of what an entry of an archive unpacks to.
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

    /// The bytes that the elements take, each counted once; `None` for a type whose size is not known.
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

    /// A key that is equal for two tensors that are the same elements of a file: file, place, sizes, strides
    /// and type.
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

/// How many axes a tensor of a file may have. PyTorch and NumPy stop at 64.
pub(crate) const AXES_LIMIT: usize = 64;
