//! Discrete Fourier transforms: the functions of `torch.fft`.
//!
//! Complex numbers are pairs: a last axis of size 2 holds real and imaginary parts, in the layout of
//! `torch.view_as_real`. Axis numbers do not count it, so that axis −1 of a complex `[8, 100, 2]` is the
//! axis of size 100.
//!
//! ```
//! use tensor_core::fft::{self, Norm};
//! # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
//! let spectrum = fft::rfft(x, None, -1, Norm::Backward)?; // 10, −2 + 2i, −2 for 1, 2, 3, 4
//! let back = fft::irfft(&spectrum, None, -1, Norm::Backward)?; // x again
//! # Ok(())
//! # }
//! ```
//!
//! | function | input | result |
//! |---|---|---|
//! | [`fft`], [`ifft`] | complex | complex, of the same size |
//! | [`rfft`] | real | complex, the non-redundant half |
//! | [`irfft`] | complex, such a half | real |
//! | [`hfft`] | half of a Hermitian-symmetric signal | a real spectrum |
//! | [`ihfft`] | a real spectrum | half of a Hermitian-symmetric signal |
//! | [`fftn`], [`rfftn`], [`hfftn`] and their inverses | the same along several axes | |
//! | [`stft`], [`istft`] | overlapping frames of a real signal | their spectra, and back |
//! | [`fftfreq`], [`rfftfreq`] | | the frequencies |
//! | [`fftshift`], [`ifftshift`] | | zero frequency in the middle, and back |
//!
//! Each transform is a [`Fourier`] kernel on devices that implement it: the CPU, and GPUs for powers of two
//! from 64 to 4096. Elsewhere it is composed of such transforms, products with small Fourier matrices,
//! and twiddle factors between them (`transform`). Both have higher derivatives and support `vmap`. f16
//! and bf16 are computed in f32.

mod composed;
mod hermitian;
mod stft;
mod transform;

pub use hermitian::{hfft, hfftn, ihfft, ihfftn};
pub use stft::{StftOptions, StftPadding, istft, stft};

use smallvec::SmallVec;
pub(crate) use transform::{Composed, conjugate, constant, transform};

use crate::{
    base::{
        axes::{Axes, Axis},
        error::{Error, Result},
        origin::at_caller,
        shape::Shape,
    },
    elements::dtype::DType,
    graph::handle::Tensor,
    native::fourier::{Fourier, FourierKind},
    tensor::TensorOptions,
};

/// The placement of the factor 1/n of a transform of n numbers. PyTorch's `norm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Norm {
    /// 1/n in the inverse; the forward transform is a plain sum.
    #[default]
    Backward,
    /// 1/n in the forward transform.
    Forward,
    /// 1/√n in both directions, which makes both orthonormal.
    Ortho,
}

impl Norm {
    fn factor(self, n: usize, inverse: bool) -> f64 {
        match (self, inverse) {
            (Norm::Backward, false) | (Norm::Forward, true) => 1.0,
            (Norm::Backward, true) | (Norm::Forward, false) => 1.0 / n as f64,
            (Norm::Ortho, _) => 1.0 / (n as f64).sqrt(),
        }
    }
}

/// The parameters of a transform along one axis.
#[derive(Clone, Copy)]
struct Along {
    axis: usize,
    n: usize,
    norm: Norm,
}

impl Along {
    /// A transform of `n` numbers, or by default of the axis's size, along an axis of a tensor with
    /// `rank` axes of numbers.
    #[track_caller]
    fn new(
        op: &'static str,
        x: &Tensor,
        rank: usize,
        n: Option<usize>,
        axis: Axis,
        norm: Norm,
    ) -> Result<Along> {
        let numbers: Shape = x.dims()[..rank].iter().copied().collect();
        let axis = numbers.axis(axis, op)?;
        let n = n.unwrap_or(x.dims()[axis]);
        if n == 0 {
            return Err(Error::invalid(op, "a transform of no numbers; at least 1 is needed"));
        }
        Ok(Along { axis, n, norm })
    }

    /// The transform along the axis, which is first cut or zero-padded to the length that `kind` takes.
    fn run(self, x: &Tensor, kind: FourierKind) -> Result<Tensor> {
        let numbers = x.rank() - usize::from(kind != FourierKind::RealToHalf);
        self.run_in(x, kind, &mut (0..numbers).collect())
    }

    /// [`Along::run`] on a tensor whose axes of numbers are stored in the given `order`, which is
    /// updated to that of the result: the transformed axis comes last. A transform along another axis
    /// thus reads contiguous numbers, and no copy is needed between the two.
    fn run_in(self, x: &Tensor, kind: FourierKind, order: &mut SmallVec<[usize; 5]>) -> Result<Tensor> {
        let (n, bins) = (self.n, self.n / 2 + 1);
        let (count, inverse, pairs) = match kind {
            FourierKind::Forward => (n, false, [true, true]),
            FourierKind::Inverse => (n, true, [true, true]),
            FourierKind::RealToHalf => (n, false, [false, true]),
            FourierKind::HalfToReal => (bins, true, [true, false]),
        };
        order.retain(|axis| *axis != self.axis);
        order.push(self.axis);
        let mut back: SmallVec<[usize; 5]> = SmallVec::from_elem(0, order.len());
        order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
        let axes = |numbers: &[usize], pair: bool| -> SmallVec<[usize; 5]> {
            numbers.iter().copied().chain(pair.then_some(numbers.len())).collect()
        };
        let moved = sized(x, self.axis, count)?.permute_unchecked(axes(order, pairs[0]));
        let found = Fourier::new(kind, n, self.norm.factor(n, inverse)).apply(&moved)?;
        Ok(found.permute_unchecked(axes(&back, pairs[1])))
    }
}

/// The tensor cut or zero-padded to `count` numbers along an axis.
fn sized(x: &Tensor, axis: usize, count: usize) -> Result<Tensor> {
    let there = x.dims()[axis];
    if there >= count {
        return x.narrow(axis as isize, 0, count);
    }
    let mut padding = vec![(0, 0); x.rank()];
    padding[axis].1 = count - there;
    x.pad(&padding, 0.0)
}

/// The number of axes of a complex tensor without the last one of real and imaginary parts.
#[track_caller]
fn complex_rank(op: &'static str, x: &Tensor) -> Result<usize> {
    match x.dims() {
        [.., _, 2] => Ok(x.rank() - 1),
        _ => {
            let message = format!(
                "shape {} holds no complex numbers: a last axis of 2, real and imaginary parts, is needed after at least one other; \
                 of real numbers take rfft, or stack zeros: Tensor::stack(&[&x, &x.zeros_like()], -1)?",
                x.shape()
            );
            Err(Error::invalid(op, message))
        }
    }
}

#[track_caller]
fn real_rank(op: &'static str, x: &Tensor) -> Result<usize> {
    match x.rank() {
        0 => Err(Error::invalid(op, "a single number has no axis to transform along")),
        rank => Ok(rank),
    }
}

/// Applies `f` to floats, half types widened to f32; the result has the input's dtype, or f32 for
/// integers.
fn wide(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let x = if x.dtype().is_float() { x.clone() } else { x.to_dtype(DType::F32)? };
    f(&x.to_dtype(x.dtype().compute())?)?.to_dtype(x.dtype())
}

/// Σⱼ xⱼ·e^(−2πi·jk/n) for k < n, for complex numbers `[…, n, …, 2]` along an axis. `torch.fft.fft`.
///
/// With `n` the axis is first cut or zero-padded to that length.
///
/// # Errors
/// A last axis that is not 2, no other axis, an axis out of range, or a transform of no numbers.
#[track_caller]
pub fn fft(x: &Tensor, n: Option<usize>, axis: impl Into<Axis>, norm: Norm) -> Result<Tensor> {
    let axis = axis.into();
    at_caller(|| one("fft", x, n, axis, norm, false))
}

/// Σⱼ xⱼ·e^(2πi·jk/n) / n for k < n, for complex numbers `[…, n, …, 2]` along an axis: the inverse of
/// [`fft`]. `torch.fft.ifft`.
///
/// # Errors
/// As [`fft`].
#[track_caller]
pub fn ifft(x: &Tensor, n: Option<usize>, axis: impl Into<Axis>, norm: Norm) -> Result<Tensor> {
    let axis = axis.into();
    at_caller(|| one("ifft", x, n, axis, norm, true))
}

fn one(
    op: &'static str,
    x: &Tensor,
    n: Option<usize>,
    axis: Axis,
    norm: Norm,
    inverse: bool,
) -> Result<Tensor> {
    let along = Along::new(op, x, complex_rank(op, x)?, n, axis, norm)?;
    let kind = if inverse { FourierKind::Inverse } else { FourierKind::Forward };
    wide(x, |x| along.run(x, kind))
}

/// The complex transform of real numbers along an axis: `[…, n, …]` gives `[…, n/2 + 1, …, 2]`, the
/// non-negative frequencies. The others are their complex conjugates. `torch.fft.rfft`.
///
/// # Errors
/// A tensor without axes, an axis out of range, or a transform of no numbers.
#[track_caller]
pub fn rfft(x: &Tensor, n: Option<usize>, axis: impl Into<Axis>, norm: Norm) -> Result<Tensor> {
    let axis = axis.into();
    at_caller(|| half("rfft", x, n, axis, norm))
}

fn half(op: &'static str, x: &Tensor, n: Option<usize>, axis: Axis, norm: Norm) -> Result<Tensor> {
    let along = Along::new(op, x, real_rank(op, x)?, n, axis, norm)?;
    wide(x, |x| along.run(x, FourierKind::RealToHalf))
}

/// The inverse of [`rfft`]: real numbers from the non-redundant half of a spectrum. `n` is the number of
/// results; by default it is even, 2(m − 1) for m frequencies. `torch.fft.irfft`.
///
/// Imaginary parts that a real signal cannot have are ignored: that of frequency 0 and, for even `n`,
/// that of the middle frequency.
///
/// # Errors
/// As [`fft`].
#[track_caller]
pub fn irfft(x: &Tensor, n: Option<usize>, axis: impl Into<Axis>, norm: Norm) -> Result<Tensor> {
    let axis = axis.into();
    at_caller(|| whole("irfft", x, n, axis, norm))
}

fn whole(op: &'static str, x: &Tensor, n: Option<usize>, axis: Axis, norm: Norm) -> Result<Tensor> {
    let rank = complex_rank(op, x)?;
    let numbers: Shape = x.dims()[..rank].iter().copied().collect();
    let n = n.unwrap_or(2 * numbers[numbers.axis(axis, op)?].saturating_sub(1));
    let along = Along::new(op, x, rank, Some(n), axis, norm)?;
    wide(x, |x| along.run(x, FourierKind::HalfToReal))
}

/// [`fft`] along several axes, one after the other; `..` means all. `torch.fft.fftn`, and
/// `torch.fft.fft2` for the last two.
///
/// # Errors
/// As [`fft`]; an axis given twice.
#[track_caller]
pub fn fftn(x: &Tensor, axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| several("fftn", x, &axes, norm, false))
}

/// [`ifft`] along several axes. `torch.fft.ifftn`, `torch.fft.ifft2`.
///
/// # Errors
/// As [`fftn`].
#[track_caller]
pub fn ifftn(x: &Tensor, axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| several("ifftn", x, &axes, norm, true))
}

/// [`fftn`] with axis i first cut or zero-padded to `sizes[i]` numbers. With `..` the axes are the last
/// ones, one for each size. `torch.fft.fftn(s=…)`.
///
/// # Errors
/// As [`fftn`]; a number of sizes that differs from that of the axes.
#[track_caller]
pub fn fftn_sized(x: &Tensor, sizes: &[usize], axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| several_sized("fftn_sized", x, sizes, &axes, norm, false))
}

/// [`ifftn`] with sizes as in [`fftn_sized`]. `torch.fft.ifftn(s=…)`.
///
/// # Errors
/// As [`fftn_sized`].
#[track_caller]
pub fn ifftn_sized(x: &Tensor, sizes: &[usize], axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| several_sized("ifftn_sized", x, sizes, &axes, norm, true))
}

/// [`rfftn`] with sizes as in [`fftn_sized`]. `torch.fft.rfftn(s=…)`.
///
/// # Errors
/// As [`rfftn`]; a number of sizes that differs from that of the axes.
#[track_caller]
pub fn rfftn_sized(x: &Tensor, sizes: &[usize], axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    const OP: &str = "rfftn_sized";
    let axes = axes.into();
    at_caller(|| {
        let axes = axes_for(OP, x, real_rank(OP, x)?, sizes, &axes)?;
        let x = all_sized(x, &axes, sizes)?;
        let Some((&last, others)) = axes.split_last() else { return Ok(x) };
        wide(&x, |x| along_each(OP, &half(OP, x, None, Axis(last as isize), norm)?, others, norm, false))
    })
}

/// [`irfftn`] with sizes as in [`fftn_sized`]: the last one is the number of real results.
/// `torch.fft.irfftn(s=…)`.
///
/// # Errors
/// As [`irfftn`]; a number of sizes that differs from that of the axes.
#[track_caller]
pub fn irfftn_sized(x: &Tensor, sizes: &[usize], axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    const OP: &str = "irfftn_sized";
    let axes = axes.into();
    at_caller(|| {
        let axes = axes_for(OP, x, complex_rank(OP, x)?, sizes, &axes)?;
        let (Some((&last, others)), Some((&n, rest))) = (axes.split_last(), sizes.split_last()) else {
            return Ok(x.clone());
        };
        let x = all_sized(x, others, rest)?;
        wide(&x, |x| whole(OP, &along_each(OP, x, others, norm, true)?, Some(n), Axis(last as isize), norm))
    })
}

fn several_sized(
    op: &'static str,
    x: &Tensor,
    sizes: &[usize],
    axes: &Axes,
    norm: Norm,
    inverse: bool,
) -> Result<Tensor> {
    let axes = axes_for(op, x, complex_rank(op, x)?, sizes, axes)?;
    wide(&all_sized(x, &axes, sizes)?, |x| along_each(op, x, &axes, norm, inverse))
}

/// The axes that the sizes apply to, one for each.
fn axes_for(
    op: &'static str,
    x: &Tensor,
    rank: usize,
    sizes: &[usize],
    axes: &Axes,
) -> Result<SmallVec<[usize; 5]>> {
    let axes = match (axes.given(), rank.checked_sub(sizes.len())) {
        (None, Some(first)) => numbered(op, x, rank, &(first..rank).collect::<Vec<_>>().into())?,
        _ => numbered(op, x, rank, axes)?,
    };
    if axes.len() != sizes.len() {
        let message = format!("{} sizes for {} axes: give one for each", sizes.len(), axes.len());
        return Err(Error::invalid(op, message));
    }
    if sizes.contains(&0) {
        return Err(Error::invalid(op, "a transform of no numbers; at least 1 is needed"));
    }
    Ok(axes)
}

/// The tensor cut or zero-padded to a size along each of several axes.
fn all_sized(x: &Tensor, axes: &[usize], sizes: &[usize]) -> Result<Tensor> {
    axes.iter().zip(sizes).try_fold(x.clone(), |x, (&axis, &size)| sized(&x, axis, size))
}

/// The numbers of axes, in the order in which the caller gave them.
#[track_caller]
fn numbered(op: &'static str, x: &Tensor, rank: usize, axes: &Axes) -> Result<SmallVec<[usize; 5]>> {
    let numbers: Shape = x.dims()[..rank].iter().copied().collect();
    let axes = numbers.axes_in_order(axes, op)?;
    if axes.is_empty() {
        return Err(Error::invalid(op, "no axes: name one at least"));
    }
    Ok(axes)
}

fn several(op: &'static str, x: &Tensor, axes: &Axes, norm: Norm, inverse: bool) -> Result<Tensor> {
    let axes = numbered(op, x, complex_rank(op, x)?, axes)?;
    wide(x, |x| along_each(op, x, &axes, norm, inverse))
}

fn along_each(op: &'static str, x: &Tensor, axes: &[usize], norm: Norm, inverse: bool) -> Result<Tensor> {
    let rank = complex_rank(op, x)?;
    let kind = if inverse { FourierKind::Inverse } else { FourierKind::Forward };
    let mut order = (0..rank).collect();
    axes.iter().try_fold(x.clone(), |x, &axis| {
        Along::new(op, &x, rank, None, Axis(axis as isize), norm)?.run_in(&x, kind, &mut order)
    })
}

/// [`rfft`] along the last of several axes, and [`fft`] along the others. `torch.fft.rfftn`,
/// `torch.fft.rfft2`.
///
/// # Errors
/// As [`rfft`]; an axis given twice.
#[track_caller]
pub fn rfftn(x: &Tensor, axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    const OP: &str = "rfftn";
    let axes = axes.into();
    at_caller(|| {
        let axes = numbered(OP, x, real_rank(OP, x)?, &axes)?;
        let Some((&last, others)) = axes.split_last() else { return Ok(x.clone()) };
        wide(x, |x| along_each(OP, &half(OP, x, None, Axis(last as isize), norm)?, others, norm, false))
    })
}

/// The inverse of [`rfftn`]: [`ifft`] along all but the last of several axes, and [`irfft`] with `n`
/// results along the last one. `torch.fft.irfftn`, `torch.fft.irfft2`.
///
/// # Errors
/// As [`irfft`]; an axis given twice.
#[track_caller]
pub fn irfftn(x: &Tensor, n: Option<usize>, axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    const OP: &str = "irfftn";
    let axes = axes.into();
    at_caller(|| {
        let axes = numbered(OP, x, complex_rank(OP, x)?, &axes)?;
        let Some((&last, others)) = axes.split_last() else { return Ok(x.clone()) };
        wide(x, |x| whole(OP, &along_each(OP, x, others, norm, true)?, n, Axis(last as isize), norm))
    })
}

/// The frequencies of [`fft`]'s results, for samples `spacing` apart: 0, 1, …, −2, −1 over n·spacing.
/// `torch.fft.fftfreq`.
///
/// # Errors
/// `n` = 0; a dtype that is not floating-point.
#[track_caller]
pub fn fftfreq(n: usize, spacing: f64, options: impl Into<TensorOptions>) -> Result<Tensor> {
    let options = options.into();
    at_caller(|| {
        let middle = n.div_ceil(2) as i64;
        let behind = |k: i64| if k < middle { k } else { k - n as i64 };
        frequencies("fftfreq", n, n, spacing, options, behind)
    })
}

/// The frequencies of [`rfft`]'s results, for `n` samples `spacing` apart: 0, 1, …, n/2 over n·spacing.
/// `torch.fft.rfftfreq`.
///
/// # Errors
/// As [`fftfreq`].
#[track_caller]
pub fn rfftfreq(n: usize, spacing: f64, options: impl Into<TensorOptions>) -> Result<Tensor> {
    let options = options.into();
    at_caller(|| frequencies("rfftfreq", n, n / 2 + 1, spacing, options, |k| k))
}

fn frequencies(
    op: &'static str,
    n: usize,
    count: usize,
    spacing: f64,
    options: TensorOptions,
    number: impl Fn(i64) -> i64 + Sync,
) -> Result<Tensor> {
    if n == 0 {
        return Err(Error::invalid(op, "a transform of no numbers; at least 1 is needed"));
    }
    let whole = n as f64 * spacing;
    Tensor::from_formula(op, count, |k| number(k as i64) as f64 / whole, options)
}

/// The results of a transform with frequency 0 moved to the middle of each axis. For real numbers, or
/// for complex ones if `axes` names their axes. `torch.fft.fftshift`.
///
/// # Errors
/// An axis out of range or given twice.
#[track_caller]
pub fn fftshift(x: &Tensor, axes: impl Into<Axes>) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| shifted("fftshift", x, &axes, |size| size / 2))
}

/// The inverse of [`fftshift`]. `torch.fft.ifftshift`.
///
/// # Errors
/// As [`fftshift`].
#[track_caller]
pub fn ifftshift(x: &Tensor, axes: impl Into<Axes>) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| shifted("ifftshift", x, &axes, |size| size - size / 2))
}

fn shifted(op: &'static str, x: &Tensor, axes: &Axes, by: impl Fn(usize) -> usize) -> Result<Tensor> {
    let axes = numbered(op, x, x.rank(), axes)?;
    let shifts: Vec<isize> = axes.iter().map(|&axis| by(x.dims()[axis]) as isize).collect();
    x.roll(shifts.as_slice(), axes.as_slice())
}
