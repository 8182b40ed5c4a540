//! Tensors in blocks: construction from bytes, their bytes, and decoding.

use std::sync::Arc;

use super::Tensor;
use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        file::Content,
        shape::Shape,
        sync::lock,
    },
    devices::device::Device,
    elements::dtype::DType,
    graph::{facts::ValueInfo, node::Value, op::Op},
    kernels::{
        blocks::{BlockFormat, WeightFormat},
        storage::Storage,
    },
};

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

    /// This tensor's numbers in blocks of a format, each rounded to the nearest that it has: the inverse of
    /// [`Tensor::dequantize`] but for rounding. The result is constant, of the same shape, dtype and device.
    /// A [`GgmlType`](crate::GgmlType), [`IntegerGroups`](crate::IntegerGroups), or a [`WeightFormat`]; they
    /// say how numbers
    /// are rounded. `importance`, of one axis, has a weight for each position of the last axis; NF4 has no
    /// use for it.
    ///
    /// # Errors
    /// A tensor that is not of floats, or is in blocks already; a last axis that is no multiple of the block
    /// or the group; numbers that are not finite or, for GGUF's formats, beyond f16's range; importances
    /// that do not fit; or whatever the device reports.
    ///
    /// ```
    /// # use tensor_core::{Device, GgmlType, Result, Tensor};
    /// # fn f(device: &Device) -> Result<()> {
    /// let weight = Tensor::linspace(-1.0, 1.0, 256, device)?.reshape([4, 64])?;
    /// let small = weight.quantize(GgmlType::Q8_0, None)?;
    /// assert_eq!(small.block_bytes()?.len(), 4 * 2 * 34);
    /// let error = small.dequantize().sub(&weight)?.abs().max()?.item::<f32>()?;
    /// assert!(error < 1.0 / 127.0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias("to_blocks", "quantize_per_block"))]
    pub fn quantize(&self, format: impl Into<WeightFormat>, importance: Option<&Tensor>) -> Result<Tensor> {
        const OP: &str = "quantize";
        if let Some(old) = self.block_format() {
            let message = format!("the tensor is in blocks of {old} already; call .dequantize() on it first");
            return Err(Error::invalid(OP, message));
        }
        if !self.dtype().is_float() || self.rank() == 0 {
            let message =
                format!("blocks hold rows of floats, not {} of shape {}", self.dtype(), self.shape());
            return Err(Error::invalid(OP, message));
        }
        let numbers = self.to_dtype(DType::F32)?.to_vec::<f32>()?;
        let weights = match importance {
            Some(importance) => Some(importance.to_dtype(DType::F32)?.to_vec::<f32>()?),
            None => None,
        };
        let (format, bytes) = format.into().encode(&numbers, self.shape(), weights.as_deref())?;
        Tensor::of_blocks(OP, format, self.shape(), self.dtype(), &bytes, &self.device())
    }

    /// [`Tensor::from_blocks`] with a shared format, such as [`Tensor::block_format`] gives.
    #[doc(hidden)] // for writers of file formats
    #[track_caller]
    pub fn of_blocks(
        op: &'static str,
        format: Arc<dyn BlockFormat>,
        shape: &Shape,
        dtype: DType,
        bytes: &[u8],
        device: &Device,
    ) -> Result<Tensor> {
        let wanted = of_blocks_checked(op, &*format, shape, dtype, device)?;
        if bytes.len() != wanted {
            let message =
                format!("shape {shape} in blocks of {format} takes {wanted} bytes, not {}", bytes.len());
            return Err(Error::invalid(op, message));
        }
        format.check(shape, bytes)?;
        let storage = device.backend().upload(DType::U8, bytes)?;
        Ok(Tensor::in_blocks(format, shape, dtype, storage, device))
    }

    /// [`Tensor::of_blocks`] with the bytes of a file from byte `at` on, as [`Tensor::from_content`] takes
    /// them.
    ///
    /// # Errors
    /// The errors of reading, and of [`Tensor::of_blocks`].
    #[doc(hidden)] // for readers of file formats
    #[track_caller]
    pub fn of_blocks_in(
        op: &'static str,
        format: Arc<dyn BlockFormat>,
        shape: &Shape,
        dtype: DType,
        (content, at): (&Content, u64),
        device: &Device,
    ) -> Result<Tensor> {
        let wanted = of_blocks_checked(op, &*format, shape, dtype, device)?;
        if let Some(bytes) = content.lend(at, wanted) {
            format.check(shape, bytes.as_slice())?;
            if let Some(storage) = device.backend().adopt(DType::U8, bytes)? {
                return Ok(Tensor::in_blocks(format, shape, dtype, storage, device));
            }
        }
        let mut bytes = vec![0; wanted];
        content.read_at(&mut bytes, at)?;
        Tensor::of_blocks(op, format, shape, dtype, &bytes, device)
    }

    fn in_blocks(
        format: Arc<dyn BlockFormat>,
        shape: &Shape,
        dtype: DType,
        storage: Storage,
        device: &Device,
    ) -> Tensor {
        let value = Value { storage, facts: ValueInfo::default(), view: None, format: Some(format) };
        Tensor::ready(Op::Leaf, shape.clone(), dtype, device.clone(), value)
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

/// The number of bytes of a tensor in blocks, if there can be such a tensor.
#[track_caller]
fn of_blocks_checked(
    op: &'static str,
    format: &dyn BlockFormat,
    shape: &Shape,
    dtype: DType,
    device: &Device,
) -> Result<usize> {
    let shape = shape.clone().checked(op)?;
    if !dtype.is_float() {
        let message = format!("blocks of {format} are numbers of a float dtype, such as f32, not {dtype}");
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
    format.bytes(&shape)
}
