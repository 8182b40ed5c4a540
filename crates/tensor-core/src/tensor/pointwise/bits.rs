//! Logical operations on any dtype, shifts of integers, and their greatest common divisors and least
//! common multiples.

use crate::tensor::{Operand, Tensor};
use crate::{
    base::error::{Error, Result},
    elements::{dtype::DType, scalar::Scalar},
    kernels::operators::BinaryOp,
};

impl Tensor {
    /// Whether a and b are both true, broadcast: a nonzero number counts as true, and so does NaN. Gives
    /// bool. `torch.logical_and`; [`Tensor::bitwise_and`] works bit by bit.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn logical_and(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.logical("logical_and", BinaryOp::And, rhs.into())
    }

    /// Whether a or b is true, broadcast, as in [`Tensor::logical_and`]. Gives bool. `torch.logical_or`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn logical_or(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.logical("logical_or", BinaryOp::Or, rhs.into())
    }

    /// Whether exactly one of a and b is true, broadcast, as in [`Tensor::logical_and`]. Gives bool.
    /// `torch.logical_xor`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn logical_xor(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.logical("logical_xor", BinaryOp::Xor, rhs.into())
    }

    #[track_caller]
    fn logical(&self, op: &'static str, how: BinaryOp, rhs: Operand) -> Result<Tensor> {
        let a = self.cast_unchecked(DType::Bool);
        let b = match rhs {
            Operand::Tensor(rhs) => rhs.cast_unchecked(DType::Bool),
            Operand::Scalar(scalar) => a.constant(Scalar::Bool(scalar.as_bool())),
        };
        let (a, b) = a.pair(op, b.into())?;
        a.binary(how, &b)
    }

    /// a · 2ᵇ for integers, broadcast; bits beyond the dtype are lost. 0 where b is negative or at least
    /// the bits of the dtype. `torch.bitwise_left_shift`.
    ///
    /// # Errors
    /// A dtype that is not an integer, shapes that do not broadcast, or two devices.
    #[track_caller]
    #[doc(alias = "<<")]
    pub fn bitwise_left_shift(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        let (a, b) = self.integers("bitwise_left_shift", rhs.into())?;
        a.binary(BinaryOp::LeftShift, &b)
    }

    /// ⌊a / 2ᵇ⌋ for integers, broadcast. Where b is negative or at least the bits of the dtype: 0, or −1
    /// for negative a. `torch.bitwise_right_shift`.
    ///
    /// # Errors
    /// A dtype that is not an integer, shapes that do not broadcast, or two devices.
    #[track_caller]
    #[doc(alias = ">>")]
    pub fn bitwise_right_shift(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        let (a, b) = self.integers("bitwise_right_shift", rhs.into())?;
        a.binary(BinaryOp::RightShift, &b)
    }

    /// [`Tensor::pair`] for integers.
    #[track_caller]
    fn integers(&self, op: &'static str, rhs: Operand) -> Result<(Tensor, Tensor)> {
        let (a, b) = self.pair(op, rhs)?;
        if a.dtype().is_int() {
            return Ok((a, b));
        }
        let message = format!("dtype {}: integers are needed; cast with .to_dtype(DType::I32)", a.dtype());
        Err(Error::invalid(op, message))
    }

    /// The greatest common divisor of integers, broadcast; gcd(0, b) = |b|. `torch.gcd`.
    ///
    /// # Errors
    /// A dtype that is not an integer, shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn gcd(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        let (a, b) = self.integers("gcd", rhs.into())?;
        a.binary(BinaryOp::Gcd, &b)
    }

    /// The least common multiple of integers, broadcast: |a·b| / gcd(a, b), and 0 where either is 0.
    /// `torch.lcm`.
    ///
    /// # Errors
    /// A dtype that is not an integer, shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn lcm(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        let (a, b) = self.integers("lcm", rhs.into())?;
        // Integer division by 0 gives 0.
        Ok(a.floor_divide(&a.binary(BinaryOp::Gcd, &b)?)?.mul(&b)?.abs())
    }
}
