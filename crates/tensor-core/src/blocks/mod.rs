//! Block-quantized storage: numbers that share scales, as in files of quantized weights.
//!
//! [`BlockFormat`] is the interface of a format, which another crate may implement; [`GgmlType`] has the
//! formats of GGUF files, and [`Affine`] has groups of small integers. A tensor in blocks keeps the
//! shape and the float dtype of the decoded numbers and is constant. Matrix products, [`Op::Gather`]
//! along any axis, and [`Tensor::dequantize`] read it; every other operation is an error that names it.
//! Kernels see it as an operand whose elements are decoded when they are loaded (`Operand::format`).
//! see it as an operand whose elements are decoded where they are loaded (`Operand::format`).

mod affine;
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
    DType, Device, Error, ErrorKind, Op, Result, Shape, Tensor,
    custom::type_number,
    facts::ValueInfo,
    node::{Value, lock},
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
    let others = lock(&REGISTERED).clone();
    let all = ggml.chain(affine).chain(others);
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

impl Tensor {
    /// A tensor whose numbers are encoded in `bytes`, decoded to the float dtype `dtype`. It is
    /// constant: it has no gradient of its own, but gradients pass through products with it.
    ///
    /// Matrix products ([`Tensor::matmul`], `einsum` of two, convolutions) read it as either operand
    /// without a decoded copy, and [`Tensor::index_select`], [`Tensor::gather`] and embeddings decode
    /// only the elements that they pick. Views of it (transposes, slices, reshapes) are views of its
    /// blocks. Reading it on the host ([`Tensor::to_vec`], printing) decodes a temporary copy. All other
    /// operations are errors: give them the result of [`Tensor::dequantize`]. The bytes are in the
    /// format's own layout, little-endian.
    ///
    /// # Errors
    /// A dtype that is not a float, a shape that does not divide into blocks, a wrong number of bytes,
    /// or a device without the dtype.
    ///
    /// ```
    /// # use tensor_core::{Device, DType, GgmlType, Result, Tensor};
    /// # fn f(device: &Device) -> Result<()> {
    /// // A row of 32 numbers: a scale of 0.5 in f16, and 32 bytes from −16 on.
    /// let mut bytes = vec![0x00, 0x38];
    /// bytes.extend((-16i8..16).map(|q| q as u8));
    /// let weight = Tensor::from_blocks(GgmlType::Q8_0, [1, 32], DType::F32, &bytes, device)?;
    /// assert_eq!(weight.dequantize().to_vec::<f32>()?[..2], [-8.0, -7.5]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias("quantized", "quantize", "qtensor"))]
    pub fn from_blocks(
        format: impl BlockFormat,
        shape: impl Into<Shape>,
        dtype: DType,
        bytes: &[u8],
        device: &Device,
    ) -> Result<Tensor> {
        Tensor::of_blocks("from_blocks", Arc::new(format), &shape.into(), dtype, bytes, device)
    }

    /// [`Tensor::from_blocks`] with a shared format, such as [`Tensor::block_format`] gives.
    #[doc(hidden)] // for readers of file formats
    #[track_caller]
    pub fn of_blocks(
        op: &'static str,
        format: Arc<dyn BlockFormat>,
        shape: &Shape,
        dtype: DType,
        bytes: &[u8],
        device: &Device,
    ) -> Result<Tensor> {
        let shape = shape.clone().checked(op)?;
        if !dtype.is_float() {
            let message =
                format!("blocks of {format} are numbers of a float dtype, such as f32, not {dtype}");
            return Err(Error::invalid(op, message));
        }
        if !device.supports(dtype) {
            return Err(Error::new(ErrorKind::Unsupported {
                op,
                device: device.name().into(),
                dtype,
                hint: "take DType::F32".into(),
            }));
        }
        let wanted = format.bytes(&shape)?;
        if bytes.len() != wanted {
            let message =
                format!("shape {shape} in blocks of {format} takes {wanted} bytes, not {}", bytes.len());
            return Err(Error::invalid(op, message));
        }
        format.check(&shape, bytes)?;
        let storage = device.backend().upload(DType::U8, bytes)?;
        let value = Value { storage, facts: ValueInfo::default(), view: None, format: Some(format) };
        Ok(Tensor::ready(Op::Leaf, shape, dtype, device.clone(), value))
    }

    /// The block format of this tensor, or of the tensor that it is a view of; `None` for an ordinary
    /// tensor.
    #[must_use]
    pub fn block_format(&self) -> Option<Arc<dyn BlockFormat>> {
        let node = self.node();
        let mut next = Some(node);
        while let Some(node) = next.take() {
            let state = lock(&node.state);
            match &state.value {
                Some(value) => return value.format.clone(),
                None if node.op.is_view() && !matches!(node.op, Op::Contiguous) => {
                    next = state.inputs.last().cloned();
                }
                None => return None,
            }
        }
        None
    }

    /// The decoded numbers of a tensor in blocks as an ordinary tensor, computed on evaluation; an
    /// ordinary tensor is returned as it is. `torch.Tensor.dequantize`.
    #[must_use = "gives a new tensor and leaves this one as it is"]
    #[track_caller]
    pub fn dequantize(&self) -> Tensor {
        if self.block_format().is_some() { self.contiguous_copy() } else { self.clone() }
    }

    /// The bytes of a tensor in blocks, as [`Tensor::from_blocks`] takes them.
    ///
    /// # Errors
    /// A tensor that is not in blocks, a view that is not in the blocks' order, or whatever the device
    /// reports.
    #[track_caller]
    pub fn block_bytes(&self) -> Result<Vec<u8>> {
        const OP: &str = "block_bytes";
        let value = self.value()?;
        let Some(format) = &value.format else {
            return Err(Error::invalid(
                OP,
                format!("a {} of shape {} is not stored in blocks", self.dtype(), self.shape()),
            ));
        };
        if value.view.is_some() {
            let message =
                format!("this is a view of blocks of {format}; ask the tensor that it is a view of");
            return Err(Error::invalid(OP, message));
        }
        let mut bytes = vec![0; value.storage.numel()];
        self.device().backend().download(&value.storage, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// The same blocks on another device, or decoded to another dtype.
    #[track_caller]
    pub(crate) fn blocks_to(
        &self,
        op: &'static str,
        device: &Device,
        dtype: DType,
    ) -> Result<Option<Tensor>> {
        let value = lock(&self.node().state).value.clone();
        let Some((value, format)) = value.and_then(|v| v.format.clone().map(|format| (v, format))) else {
            return Ok(None);
        };
        if !dtype.is_float() {
            return Ok(None);
        }
        if *device == self.device() {
            let shape = self.shape().clone();
            return Ok(Some(Tensor::ready(Op::Leaf, shape, dtype, device.clone(), value)));
        }
        if value.view.is_some() {
            return Ok(None);
        }
        Tensor::of_blocks(op, format, self.shape(), dtype, &self.block_bytes()?, device).map(Some)
    }
}
