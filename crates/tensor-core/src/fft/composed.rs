//! Applies a [`Fourier`] to a tensor: with the device's native kernel, or composed of matrix products and
//! rotations.

use std::sync::Arc;

use super::{Composed, conjugate, constant, transform};
use crate::{
    base::error::Result,
    graph::handle::Tensor,
    kernels::custom::CustomKernel,
    native::fourier::{Fourier, FourierKind, has_mirror},
};

impl Fourier {
    /// The transform: by the device's kernel if it has one, or else [composed](Fourier::composed). It is
    /// lazy and differentiable.
    ///
    /// # Errors
    /// A shape that does not fit the kind, or a dtype that is not floating-point.
    #[track_caller]
    pub fn apply(self, x: &Tensor) -> Result<Tensor> {
        let kernel = Arc::new(self);
        if !Tensor::has_custom_kernel(kernel.clone(), &[x])? {
            return self.composed_with(x, true);
        }
        Ok(Tensor::custom_kernel(kernel, &[x])?.swap_remove(0))
    }

    /// The transform composed of other operations, for devices without a kernel for it: products with
    /// small Fourier matrices, and twiddle factors.
    ///
    /// # Errors
    /// As [`Fourier::apply`].
    #[track_caller]
    pub fn composed(self, x: &Tensor) -> Result<Tensor> {
        self.composed_with(x, false)
    }

    /// [`Fourier::composed`], of transforms of other lengths for which the device has a kernel, if
    /// `with_kernels`.
    #[track_caller]
    fn composed_with(self, x: &Tensor, with_kernels: bool) -> Result<Tensor> {
        self.results(&[(x.shape().clone(), x.dtype())])?;
        let bins = self.length / 2 + 1;
        let inverse = matches!(self.kind, FourierKind::Inverse | FourierKind::HalfToReal);
        let of = Composed { inverse, with_kernels };
        let found = match self.kind {
            FourierKind::Forward | FourierKind::Inverse => transform(x, false, of)?,
            FourierKind::RealToHalf => self.weighted(&transform(x, true, of)?.narrow(-2, 0, bins)?)?,
            FourierKind::HalfToReal => {
                transform(&whole_spectrum(&self.weighted(x)?, self.length)?, false, of)?.select(-1, 0)?
            }
        };
        Ok(if self.factor == 1.0 { found } else { found.mul_scalar(self.factor) })
    }

    /// A half spectrum with its mirrored frequencies multiplied by `mirrored`.
    #[track_caller]
    fn weighted(self, half: &Tensor) -> Result<Tensor> {
        if self.mirrored == 1.0 {
            return Ok(half.clone());
        }
        let weight = |k| if has_mirror(k, self.length) { self.mirrored } else { 1.0 };
        let bins = self.length / 2 + 1;
        half.mul(&constant(&(0..bins).map(weight).collect::<Vec<_>>(), [bins, 1], half)?)
    }
}

/// All n frequencies of a half spectrum `[…, n/2 + 1, 2]`; the second half is the conjugate of the first.
#[track_caller]
pub(crate) fn whole_spectrum(half: &Tensor, n: usize) -> Result<Tensor> {
    let mirror = conjugate(&half.narrow(-2, 1, n - (n / 2 + 1))?.flip(-2)?)?;
    Tensor::concat(&[half, &mirror], -2)
}
