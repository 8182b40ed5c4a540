//! [`PackedRows`] of a tensor, composed of other operations.

use super::Tensor;
use crate::{
    base::error::{Error, Result},
    elements::dtype::DType,
    native::packed_rows::{OP, PackedRows},
};

impl PackedRows {
    /// The nearest integers of a tensor's rows, with their scales, as [`PackedRows::parts`] says. They are
    /// constant: no gradient passes.
    ///
    /// # Errors
    /// As [`PackedRows::group`]; a tensor of integers, or a device without bf16 and integers of 8 bits.
    #[track_caller]
    pub fn pack(self, rows: &Tensor) -> Result<Vec<Tensor>> {
        if !rows.dtype().is_float() {
            return Err(Error::invalid(OP, format!("rows of floats are packed, not of {}", rows.dtype())));
        }
        let shape = rows.dims().to_vec();
        let (width, outer) = shape.split_last().map_or((0, &shape[..]), |(width, outer)| (*width, outer));
        let group = self.group(width)?;
        let of = |last: &[usize]| [outer, last].concat();
        let grouped = rows.detach().to_dtype(DType::F32)?.reshape(of(&[width / group, group]))?;
        let stored = |numbers: &Tensor| numbers.to_dtype(DType::BF16);
        let read = |stored: &Tensor| stored.to_dtype(DType::F32);
        // A group of equal numbers has the scale 0, and any integers.
        let divided = |numbers: &Tensor, scale: &Tensor| {
            let scale = read(scale)?;
            let one = Tensor::full((), 1.0, (DType::F32, &rows.device()))?;
            Ok::<_, Error>(numbers.div(&scale.eq_scalar(0.0).where_cond(&one, &scale)?)?.round())
        };
        match self {
            PackedRows::Eight => {
                let scale = stored(&grouped.abs().amax(-1, true)?.div_scalar(127.0))?;
                let integers = divided(&grouped, &scale)?.clamp(-127.0, 127.0).to_dtype(DType::I8)?;
                Ok(vec![integers.reshape(&shape[..])?, scale.squeeze(-1)?])
            }
            PackedRows::Four => {
                let least = stored(&grouped.amin(-1, true)?)?;
                let above = grouped.sub(&read(&least)?)?;
                let scale = stored(&above.amax(-1, true)?.div_scalar(15.0))?;
                let integers = divided(&above, &scale)?.clamp(0.0, 15.0);
                let halves = integers.reshape(of(&[width / group, 2, group / 2]))?;
                let [low, high] = [0, 1].map(|half| halves.narrow(-2, half, 1));
                let bytes = low?.add(&high?.mul_scalar(16.0))?.to_dtype(DType::U8)?;
                Ok(vec![bytes.reshape(of(&[width / 2]))?, scale.squeeze(-1)?, least.squeeze(-1)?])
            }
        }
    }

    /// The numbers of packed rows, in f32.
    ///
    /// # Errors
    /// Tensors that are not those of [`PackedRows::pack`].
    #[track_caller]
    pub fn unpack(self, parts: &[Tensor]) -> Result<Tensor> {
        let wrong = || Error::invalid(OP, "these are not the parts of packed rows".to_owned());
        let first = parts.first().ok_or_else(wrong)?;
        let (&last, outer) = first.dims().split_last().ok_or_else(wrong)?;
        let width = self.width(last);
        let found = parts.iter().map(|part| (part.dtype(), part.dims().last().copied().unwrap_or(0)));
        let has_parts = self.parts(width).is_ok_and(|wanted| found.eq(wanted));
        if !has_parts || parts.iter().any(|part| !part.dims().starts_with(outer)) {
            return Err(wrong());
        }
        let group = self.group(width)?;
        let of = |last: &[usize]| [outer, last].concat();
        let of_group = |part: &Tensor| part.to_dtype(DType::F32)?.unsqueeze(-1);
        let scale = of_group(&parts[1])?;
        let numbers = match self {
            PackedRows::Eight => {
                first.to_dtype(DType::F32)?.reshape(of(&[width / group, group]))?.mul(&scale)?
            }
            PackedRows::Four => {
                let bytes = first.reshape(of(&[width / group, 1, group / 2]))?;
                let low = Tensor::full((), 15.0, (DType::U8, &first.device()))?;
                let halves = [bytes.bitwise_and(&low)?, bytes.bitwise_right_shift(4)?];
                let integers = Tensor::concat(&halves, -2)?.to_dtype(DType::F32)?;
                let grouped = integers.reshape(of(&[width / group, group]))?;
                grouped.mul(&scale)?.add(&of_group(&parts[2])?)?
            }
        };
        numbers.reshape(of(&[width]))
    }
}
