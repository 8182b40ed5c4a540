//! Transforms between real spectra and Hermitian-symmetric signals: [`super::irfft`] and [`super::rfft`]
//! with the directions exchanged.

use super::{Norm, along_each, complex_rank, half, numbered, real_rank, transform::conjugate, whole, wide};
use crate::{
    base::{
        axes::{Axes, Axis},
        error::Result,
        origin::at_caller,
    },
    graph::handle::Tensor,
};

impl Norm {
    /// The normalization of the opposite direction.
    fn exchanged(self) -> Norm {
        match self {
            Norm::Backward => Norm::Forward,
            Norm::Forward => Norm::Backward,
            Norm::Ortho => Norm::Ortho,
        }
    }
}

/// The transform of a Hermitian-symmetric complex signal, given by its first half along an axis: real
/// numbers, `n` of them, or 2(m − 1) for m numbers if `n` is `None`. `torch.fft.hfft`.
///
/// # Errors
/// As [`super::irfft`].
#[track_caller]
pub fn hfft(x: &Tensor, n: Option<usize>, axis: impl Into<Axis>, norm: Norm) -> Result<Tensor> {
    let axis = axis.into();
    at_caller(|| real_spectrum("hfft", x, n, axis, norm))
}

fn real_spectrum(op: &'static str, x: &Tensor, n: Option<usize>, axis: Axis, norm: Norm) -> Result<Tensor> {
    complex_rank(op, x)?;
    wide(x, |x| whole(op, &conjugate(x)?, n, axis, norm.exchanged()))
}

/// The inverse of [`hfft`]: the first half of a Hermitian-symmetric complex signal, from a real
/// spectrum. `torch.fft.ihfft`.
///
/// # Errors
/// As [`super::rfft`].
#[track_caller]
pub fn ihfft(x: &Tensor, n: Option<usize>, axis: impl Into<Axis>, norm: Norm) -> Result<Tensor> {
    let axis = axis.into();
    at_caller(|| mirrored_signal("ihfft", x, n, axis, norm))
}

fn mirrored_signal(op: &'static str, x: &Tensor, n: Option<usize>, axis: Axis, norm: Norm) -> Result<Tensor> {
    wide(x, |x| conjugate(&half(op, x, n, axis, norm.exchanged())?))
}

/// [`super::fft`] along all but the last of several axes, and [`hfft`] with `n` results along the last
/// one. `torch.fft.hfftn`, `torch.fft.hfft2`.
///
/// # Errors
/// As [`super::irfftn`].
#[track_caller]
pub fn hfftn(x: &Tensor, n: Option<usize>, axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    const OP: &str = "hfftn";
    let axes = axes.into();
    at_caller(|| {
        let axes = numbered(OP, x, complex_rank(OP, x)?, &axes)?;
        let Some((&last, others)) = axes.split_last() else { return Ok(x.clone()) };
        wide(x, |x| {
            let x = along_each(OP, x, others, norm, false)?;
            real_spectrum(OP, &x, n, Axis(last as isize), norm)
        })
    })
}

/// The inverse of [`hfftn`]: [`ihfft`] along the last of several axes, and [`super::ifft`] along the others.
/// `torch.fft.ihfftn`, `torch.fft.ihfft2`.
///
/// # Errors
/// As [`super::rfftn`].
#[track_caller]
pub fn ihfftn(x: &Tensor, axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    const OP: &str = "ihfftn";
    let axes = axes.into();
    at_caller(|| {
        let axes = numbered(OP, x, real_rank(OP, x)?, &axes)?;
        let Some((&last, others)) = axes.split_last() else { return Ok(x.clone()) };
        wide(x, |x| {
            let x = mirrored_signal(OP, x, None, Axis(last as isize), norm)?;
            along_each(OP, &x, others, norm, true)
        })
    })
}
