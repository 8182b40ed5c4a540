//! Block-quantized storage: numbers that share scales, as in files of quantized weights.
//!
//! [`BlockFormat`] is the interface of a format, which another crate may implement; [`GgmlType`] has the
//! formats of GGUF files, [`Affine`] has groups of small integers, and [`Codebook4`] codes of four bits into
//! a table; [`WeightFormat`] says which of them numbers are rounded to. A tensor in blocks keeps the shape
//! and the float dtype of the decoded numbers and is constant. Matrix products, [`Op::Gather`] along any
//! axis, and [`Tensor::dequantize`] read it; every other operation is an error that names it. Kernels see it
//! as an operand whose elements are decoded when they are loaded (`Operand::format`).
//!
//! [`Op::Gather`]: crate::Op::Gather
//! [`Tensor::dequantize`]: crate::Tensor::dequantize

pub(crate) mod affine;
mod codebook;
mod encode;
mod ggml;
mod integer_groups;
mod weight_format;

use std::{
    any::{Any, TypeId},
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex},
};

pub use affine::{Affine, AffineBits, AffineChannels};
pub use codebook::{Codebook4, CodebookScales};
pub use ggml::{BlockType, GgmlType, IQ4_NUMBERS, MXFP4_NUMBERS, mxfp4_scale};
pub use integer_groups::IntegerGroups;
pub use weight_format::WeightFormat;

use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
        sync::lock,
    },
    kernels::identity::type_number,
};

/// A byte format of a tensor whose numbers share scales.
///
/// The fields of an implementing type are the format's constants. Element `i` is the `i`-th in the
/// row-major order of the encoded tensor. Every decoded number is defined to the bit, as an f32; a
/// tensor of another float dtype rounds it once.
pub trait BlockFormat: Any + fmt::Debug + Send + Sync {
    /// The name in messages and files, for example `q4_1`.
    fn name(&self) -> &'static str;

    /// The fields as integers: values of one type with equal keys decode alike.
    fn key(&self) -> Vec<u64>;

    /// The number of bytes of a tensor of this shape.
    ///
    /// # Errors
    /// A shape that does not divide into blocks; the message says how to fix it.
    fn bytes(&self, shape: &Shape) -> Result<usize>;

    /// Fails if `bytes`, whose number is [`BlockFormat::bytes`], cannot encode a tensor of this shape.
    /// The default accepts any.
    ///
    /// # Errors
    /// Bytes that contradict themselves.
    fn check(&self, _shape: &Shape, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    /// The number of elements that `bytes` bytes hold.
    fn elements(&self, bytes: usize) -> usize;

    /// The bits of an element including its share of the scales, for reports.
    fn bits_per_element(&self) -> f64;

    /// Decodes elements `start..start + out.len()`, which the caller knows to exist.
    fn decode(&self, bytes: &[u8], start: usize, out: &mut [f32]);

    /// For GPUs, WGSL text with the function `decode_x(i: u32) -> f32`, which decodes element `i`. The
    /// text may call `byte_x(j)`, byte `j` as u32; `pair_x(j)` and `word_x(j)`, the two or four bytes
    /// from `j` on, little-endian; and the functions of the shader libraries, such as `unpack_f16`.
    /// Names of its own functions end in `_x` too. The default is none: GPUs then refuse the format by
    /// its name, except for the formats of this crate, which they know.
    fn wgsl(&self) -> Option<&'static str> {
        None
    }
}

/// Two formats are equal if their types and their keys are.
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

/// Appends the format's identity to a plan's key.
pub(crate) fn write_key(key: &mut Vec<u64>, format: &dyn BlockFormat) {
    let own = format.key();
    key.extend([type_number(type_of(format)), own.len() as u64]);
    key.extend(own);
}

/// The registered formats of other crates.
static REGISTERED: Mutex<Vec<Arc<dyn BlockFormat>>> = Mutex::new(Vec::new());

/// Registers a format of another crate by its name, so that files with such tensors can be loaded. A
/// later registration of a name replaces an earlier one.
pub fn register_block_format(format: impl BlockFormat) {
    lock(&REGISTERED).push(Arc::new(format));
}

/// The format called `name` for a tensor of this shape that takes `bytes` bytes, if there is one.
#[must_use]
pub fn block_format(name: &str, shape: &Shape, bytes: usize) -> Option<Arc<dyn BlockFormat>> {
    let ggml = GgmlType::ALL.into_iter().map(|format| Arc::new(format) as Arc<dyn BlockFormat>);
    let affine =
        AffineBits::ALL.map(|bits| Arc::new(Affine::stored(bits, shape, bytes)) as Arc<dyn BlockFormat>);
    let codebooks =
        [false, true].map(|double| Arc::new(Codebook4::new(shape, double)) as Arc<dyn BlockFormat>);
    let others = lock(&REGISTERED).clone();
    let all = ggml.chain(affine).chain(codebooks).chain(others);
    let fits = |format: &Arc<dyn BlockFormat>| {
        format.name() == name && format.bytes(shape).is_ok_and(|wanted| wanted == bytes)
    };
    all.filter(fits).last()
}

/// The error of an operation that cannot read elements in blocks.
pub(crate) fn refusal(op: &'static str, shape: &Shape, format: &dyn BlockFormat) -> Error {
    let format = format.name();
    let message = format!(
        "its input of shape {shape} is stored in blocks of {format}, which only matrix products, gathers and \
         views read; call .dequantize() on it first"
    );
    Error::invalid(op, message)
}
