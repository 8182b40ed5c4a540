//! [`Tensor::affine`]: small integers with scales, packed into blocks.

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::Axis,
        error::{Error, Result, shape_misfit},
    },
    elements::dtype::DType,
    kernels::blocks::{Affine, AffineBits},
};

impl Tensor {
    /// The numbers `(values − zero) · scale`, of dtype f32, stored as small integers in the [`Affine`]
    /// format. `values` are of any integer dtype; they and the zero points are packed into `bits`.
    ///
    /// A `scale` of one element applies to the whole tensor. A scale of rank 1 has an element for each
    /// position of `axis`. A scale of the rank of `values` has their sizes except along `axis`, where
    /// each of its elements applies to ⌈size / its size⌉ neighbours. The zero points have the scale's
    /// shape. ONNX's `DequantizeLinear`, `torch.quantize_per_channel`.
    ///
    /// # Errors
    /// Values of a float dtype or beyond the range of `bits`, incompatible shapes, an axis out of range,
    /// two devices, or whatever the device reports.
    ///
    /// ```
    /// # use tensor_core::{AffineBits, Device, Result, Tensor};
    /// # fn f(device: &Device) -> Result<()> {
    /// let values = Tensor::new([[-8, 7, 0, 1], [2, 3, 4, 5]], device)?;
    /// let scale = Tensor::new([[0.5, 2.0], [1.0, 1.0]], device)?; // two neighbours each
    /// let weight = Tensor::affine(&values, &scale, None, 1, AffineBits::I4)?;
    /// assert_eq!(weight.to_vec::<f32>()?, [-4.0, 3.5, 0.0, 2.0, 2.0, 3.0, 4.0, 5.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias("dequantize_linear", "quantize_per_channel", "quantize_per_tensor"))]
    pub fn affine(
        values: &Tensor,
        scale: &Tensor,
        zero: Option<&Tensor>,
        axis: impl Into<Axis>,
        bits: AffineBits,
    ) -> Result<Tensor> {
        const OP: &str = "affine";
        let operands: Vec<&Tensor> = [values, scale].into_iter().chain(zero).collect();
        Tensor::same_device(OP, &operands)?;
        if !values.dtype().is_int() {
            let message =
                format!("the values are integers, not {}; round and cast them first", values.dtype());
            return Err(Error::invalid(OP, message));
        }
        if let Some(zero) = zero.filter(|zero| zero.shape() != scale.shape()) {
            let hint = "the zero points have the scale's shape";
            return Err(shape_misfit(OP, scale.shape(), zero.shape(), hint));
        }
        let (shape, axis) = (values.shape(), axis.into());
        let (least, greatest) = bits.range();
        let integers = values.to_vec::<i64>()?;
        let range = i64::from(least)..=i64::from(greatest);
        if let Some(wrong) = integers.iter().find(|q| !range.contains(q)) {
            let message = format!("{wrong} is none of the integers from {least} to {greatest} of {bits:?}");
            return Err(Error::invalid(OP, message));
        }
        let pack = |of: &[i64]| of.iter().rev().fold(0, |byte, &q| byte << 4 | (q & 15) as u8);
        let packed: Vec<u8> = match bits.per_byte() {
            1 => integers.iter().map(|&q| q as u8).collect(),
            each => integers.chunks(each).map(pack).collect(),
        };
        let numbers = |tensor: &Tensor| -> Result<Vec<f32>> {
            Ok(tensor.to_f64_vec()?.into_iter().map(|x| x as f32).collect())
        };
        let scales = numbers(scale)?;
        let zeros = zero.map(numbers).transpose()?;
        let (format, bytes) =
            Affine::encode(bits, shape, &packed, (scale.shape(), &scales), zeros.as_deref(), axis)?;
        Tensor::from_blocks(format, shape.clone(), DType::F32, &bytes, &values.device())
    }
}
