//! Shifts of integers, and their common divisors and multiples.

use super::{Operand, Tensor};
use crate::{DType, Error, Result, Scalar};

impl Tensor {
    /// a · 2ᵇ of integers, broadcast, as their bits have it: what leaves the dtype is lost. 0 where b is negative or as large as the dtype has
    /// bits. `torch.bitwise_left_shift`.
    ///
    /// # Errors
    /// A dtype that is not an integer, shapes that do not broadcast, or two devices.
    #[track_caller]
    #[doc(alias = "<<")]
    pub fn bitwise_left_shift(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        let (a, b, bits) = self.shifted_by("bitwise_left_shift", rhs.into())?;
        let inside = b.ge_scalar(0).bitwise_and(&b.lt_scalar(bits))?;
        let zero = a.constant(Scalar::Int(0));
        inside.where_cond(&a.mul(&a.power_of_two(&b)?)?, &zero)
    }

    /// ⌊a / 2ᵇ⌋ of integers, broadcast, as their bits have it. Where b is negative or as large as the dtype has bits, 0, and −1 for negative
    /// a. `torch.bitwise_right_shift`.
    ///
    /// # Errors
    /// A dtype that is not an integer, shapes that do not broadcast, or two devices.
    #[track_caller]
    #[doc(alias = ">>")]
    pub fn bitwise_right_shift(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        let (a, b, bits) = self.shifted_by("bitwise_right_shift", rhs.into())?;
        let signed = matches!(a.dtype(), DType::I32 | DType::I64);
        // A power of two that the dtype holds.
        let inside = b.ge_scalar(0).bitwise_and(&b.lt_scalar(bits - i64::from(signed)))?;
        let b = b.masked_fill(&inside.logical_not(), 0)?;
        let sign = a.lt_scalar(0).cast_unchecked(a.dtype());
        let sign = if signed { sign.neg() } else { sign };
        inside.where_cond(&a.floor_divide(&a.power_of_two(&b)?)?, &sign)
    }

    /// Both operands of a shift, and how many bits the first has.
    #[track_caller]
    fn shifted_by(&self, op: &'static str, rhs: Operand) -> Result<(Tensor, Tensor, i64)> {
        let (a, b) = self.integers(op, rhs)?;
        let bits = 8 * a.dtype().size() as i64;
        Ok((a, b, bits))
    }

    #[track_caller]
    fn power_of_two(&self, exponent: &Tensor) -> Result<Tensor> {
        self.constant(Scalar::Int(2)).expand_unchecked(exponent.shape().clone()).pow(exponent)
    }

    /// [`Tensor::pair`] of integers.
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
    /// By Euclid's algorithm, in as many steps as the widest numbers of the dtype can need: 12 for u8, 46 for 32 bits, 91 for i64.
    ///
    /// # Errors
    /// A dtype that is not an integer, shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn gcd(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        let (a, b) = self.integers("gcd", rhs.into())?;
        a.euclid(&b)
    }

    /// The least common multiple of integers, broadcast: |a·b| / gcd(a, b), and 0 where either is 0. `torch.lcm`.
    ///
    /// # Errors
    /// A dtype that is not an integer, shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn lcm(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        let (a, b) = self.integers("lcm", rhs.into())?;
        // By 0 the quotient is 0.
        Ok(a.floor_divide(&a.euclid(&b)?)?.mul(&b)?.abs())
    }

    #[track_caller]
    fn euclid(&self, rhs: &Tensor) -> Result<Tensor> {
        // Two neighbours of Fibonacci's take the most steps; one more puts the greater number first.
        let steps = match self.dtype().size() {
            1 => 12,
            4 => 46,
            _ => 91,
        };
        let (mut a, mut b) = (self.abs(), rhs.abs());
        for _ in 0..steps {
            // A remainder by 0 is 0.
            let done = b.eq_scalar(0);
            let r = a.remainder(&b)?;
            a = done.where_cond(&a, &b)?;
            b = r;
        }
        Ok(a)
    }
}
