//! Storage in blocks: numbers that share scales, as files of quantized weights have them.
//!
//! [`BlockFormat`] is the interface of a format, which another crate may implement; [`GgmlType`] has those of
//! GGUF files and [`Affine`] has groups of small integers. A tensor in blocks keeps the shape and the float
//! dtype of the numbers that it stands for, is constant, and is read by matrix products, by [`Op::Gather`]
//! along any axis, and by [`Tensor::dequantize`]; every other operation is an error that names it. Kernels
//! see it as an operand whose elements are decoded where they are loaded (`Operand::format`).

pub(crate) mod affine;
mod ggml;

use std::{
    any::{Any, TypeId},
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex},
};

pub use affine::{Affine, AffineBits};
pub use ggml::GgmlType;

use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
        sync::lock,
    },
    kernels::custom::type_number,
};

/// How the numbers of a tensor are kept in bytes, several of them with common scales.
///
/// A value's fields are the format's constants. Element `i` is the `i`-th in row-major order of the tensor
/// that the bytes were made for. Every decoded number is defined to the bit, as an f32; a tensor of another
/// float dtype rounds it once.
pub trait BlockFormat: Any + fmt::Debug + Send + Sync {
    /// The name in messages and files, such as `q4_1`.
    fn name(&self) -> &'static str;

    /// The fields in words: values of one type with equal keys decode alike.
    fn key(&self) -> Vec<u64>;

    /// How many bytes a tensor of this shape takes.
    ///
    /// # Errors
    /// A shape that does not divide into blocks, with the mend.
    fn bytes(&self, shape: &Shape) -> Result<usize>;

    /// Fails where `bytes`, which [`BlockFormat::bytes`] gave the number of, cannot be those of a tensor of
    /// this shape. The default takes any.
    ///
    /// # Errors
    /// Bytes that contradict themselves.
    fn check(&self, _shape: &Shape, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    /// How many elements can be read of so many bytes.
    fn elements(&self, bytes: usize) -> usize;

    /// The size of an element in bits, its part of the scales included: for reports.
    fn bits_per_element(&self) -> f64;

    /// The numbers of elements `start..start + out.len()`, which the caller knows to be there.
    fn decode(&self, bytes: &[u8], start: usize, out: &mut [f32]);

    /// For GPUs, WGSL with the function `decode_x(i: u32) -> f32`, the number of element `i`. The text may
    /// call `byte_x(j)`, the byte `j` as u32; `pair_x(j)` and `word_x(j)`, the two or four bytes from `j` on,
    /// the first in the lowest bits; and the functions of the shaders' libraries, such as `unpack_f16`.
    /// Functions of its own have names that end in `_x` too. The default has none: GPUs refuse such a format
    /// by its name, but for those of this crate, which they know.
    fn wgsl(&self) -> Option<&'static str> {
        None
    }
}

/// A format is another if its type or its key is.
impl PartialEq for dyn BlockFormat {
    fn eq(&self, other: &dyn BlockFormat) -> bool {
        type_of(self) == type_of(other) && self.key() == other.key()
    }
}

impl Eq for dyn BlockFormat {}

impl Hash for dyn BlockFormat {
    fn hash<H: Hasher>(&self, state: &mut H) {
        type_of(self).hash(state);
        self.key().hash(state);
    }
}

impl fmt::Display for dyn BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn type_of(format: &dyn BlockFormat) -> TypeId {
    (format as &dyn Any).type_id()
}

/// Which format it is, in words of a plan's key.
pub(crate) fn write_key(key: &mut Vec<u64>, format: &dyn BlockFormat) {
    let own = format.key();
    key.extend([type_number(type_of(format)), own.len() as u64]);
    key.extend(own);
}

/// The formats of other crates that are known by name.
static REGISTERED: Mutex<Vec<Arc<dyn BlockFormat>>> = Mutex::new(Vec::new());

/// Makes a format of another crate known by its name, so that files with tensors in it can be loaded. The
/// last one of a name counts.
pub fn register_block_format(format: impl BlockFormat) {
    lock(&REGISTERED).push(Arc::new(format));
}

/// The format of a name for a tensor of this shape that takes so many bytes, if there is one.
#[must_use]
pub fn block_format(name: &str, shape: &Shape, bytes: usize) -> Option<Arc<dyn BlockFormat>> {
    let ggml = GgmlType::ALL.into_iter().map(|format| Arc::new(format) as Arc<dyn BlockFormat>);
    let affine =
        AffineBits::ALL.map(|bits| Arc::new(Affine::stored(bits, shape, bytes)) as Arc<dyn BlockFormat>);
    let others = lock(&REGISTERED).clone();
    let all = ggml.chain(affine).chain(others);
    let fits = |format: &Arc<dyn BlockFormat>| {
        format.name() == name && format.bytes(shape).is_ok_and(|wanted| wanted == bytes)
    };
    all.filter(fits).last()
}

/// The error of an operation that reads elements in blocks and has no way to.
pub(crate) fn refusal(op: &'static str, shape: &Shape, format: &dyn BlockFormat) -> Error {
    let format = format.name();
    let message = format!(
        "its input of shape {shape} is stored in blocks of {format}, which only matrix products, gathers and \
         views read; call .dequantize() on it first"
    );
    Error::invalid(op, message)
}
