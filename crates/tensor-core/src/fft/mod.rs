//! Discrete Fourier transforms, as `torch.fft` has them.
//!
//! Complex numbers are pairs: a last axis of 2 that holds real and imaginary parts, as `torch.view_as_real`
//! lays them out. Axes are counted without it, so that axis −1 of a complex `[8, 100, 2]` is that of 100
//! numbers.
//!
//! ```
//! use tensor_core::fft::{self, Norm};
//! # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
//! let spectrum = fft::rfft(x, None, -1, Norm::Backward)?; // of 1, 2, 3, 4: 10, −2 + 2i, −2, as [3, 2]
//! let back = fft::irfft(&spectrum, None, -1, Norm::Backward)?; // x again
//! # Ok(())
//! # }
//! ```
//!
//! | function | of | gives |
//! |---|---|---|
//! | [`fft`], [`ifft`] | complex | complex, as many |
//! | [`rfft`] | real | complex, the half that is not a mirror |
//! | [`irfft`] | complex, such a half | real |
//! | [`hfft`], [`ihfft`] | half of a complex signal that mirrors itself; a real spectrum | a real spectrum; such a half |
//! | [`fftn`], [`ifftn`], [`rfftn`], [`irfftn`], [`hfftn`], [`ihfftn`] | along several axes | |
//! | [`stft`], [`istft`] | frames of a real signal that overlap | their spectra, and back |
//! | [`fftfreq`], [`rfftfreq`], [`fftshift`], [`ifftshift`] | | the frequencies, and zero in the middle |
//!
//! Each is a [`Fourier`], for which the CPU has a kernel. On other devices it is composed of products with
//! small Fourier matrices and rotations between them (`transform`). Both have gradients of gradients, and go
//! through `vmap`. f16 and bf16 are computed in f32.

mod composed;
mod hermitian;
mod stft;
mod transform;

pub use hermitian::{hfft, hfftn, ihfft, ihfftn};
pub use stft::{StftOptions, StftPadding, istft, stft};

use smallvec::SmallVec;
pub(crate) use transform::{conjugate, constant, transform};

use crate::{
    base::{
        error::{Error, Result},
        origin::at_caller,
        shape::{Axes, Axis, Shape},
    },
    elements::dtype::DType,
    graph::handle::Tensor,
    native::fourier::{Fourier, FourierKind},
    tensor::TensorOptions,
};

/// Where the factor 1/n goes, for a transform of n numbers. PyTorch's `norm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Norm {
    /// Into the inverse: the forward transform is a plain sum.
    #[default]
    Backward,
    /// Into the forward transform.
    Forward,
    /// Its root into both: each keeps lengths.
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

/// What a transform along one axis needs to know.
#[derive(Clone, Copy)]
struct Along {
    axis: usize,
    n: usize,
    norm: Norm,
}

impl Along {
    /// A transform of `n` numbers, or of as many as there are, along an axis of a tensor with `rank` axes of
    /// numbers.
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

    /// The transform along the axis, cut or filled up to the length that its kind takes.
    fn run(self, x: &Tensor, kind: FourierKind) -> Result<Tensor> {
        let numbers = x.rank() - usize::from(kind != FourierKind::RealToHalf);
        self.run_in(x, kind, &mut (0..numbers).collect())
    }

    /// As [`Along::run`], where `order` names the axes of numbers as they lie in memory, and then as those of
    /// the result do: the axis of a transform comes last. So a transform along another axis reads what lies
    /// side by side, and nothing is moved between the two.
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

/// The tensor with `count` numbers along an axis: cut, or with zeros behind.
fn sized(x: &Tensor, axis: usize, count: usize) -> Result<Tensor> {
    let there = x.dims()[axis];
    if there >= count {
        return x.narrow(axis as isize, 0, count);
    }
    let mut padding = vec![(0, 0); x.rank()];
    padding[axis].1 = count - there;
    x.pad(&padding, 0.0)
}

/// The number of axes of a complex tensor that hold numbers.
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

/// Computed in floats, halves in f32, and given in the dtype of the input.
fn wide(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let x = if x.dtype().is_float() { x.clone() } else { x.to_dtype(DType::F32)? };
    f(&x.to_dtype(x.dtype().compute())?)?.to_dtype(x.dtype())
}

/// Σⱼ xⱼ·e^(−2πi·jk/n) for k < n, of complex numbers `[…, n, …, 2]` along an axis. `torch.fft.fft`.
///
/// With `n` the axis is cut to that length first, or filled up with zeros.
///
/// # Errors
/// A last axis that is not 2, no other axis, no such axis, or a transform of no numbers.
#[track_caller]
pub fn fft(x: &Tensor, n: Option<usize>, axis: impl Into<Axis>, norm: Norm) -> Result<Tensor> {
    let axis = axis.into();
    at_caller(|| one("fft", x, n, axis, norm, false))
}

/// Σⱼ xⱼ·e^(2πi·jk/n) / n for k < n, of complex numbers `[…, n, …, 2]` along an axis: the inverse of [`fft`].
/// `torch.fft.ifft`.
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

/// The transform of real numbers along an axis, complex: `[…, n, …]` gives `[…, n/2 + 1, …, 2]`, the
/// frequencies from 0 to the middle. The others are their mirror. `torch.fft.rfft`.
///
/// # Errors
/// A tensor without axes, no such axis, or a transform of no numbers.
#[track_caller]
pub fn rfft(x: &Tensor, n: Option<usize>, axis: impl Into<Axis>, norm: Norm) -> Result<Tensor> {
    let axis = axis.into();
    at_caller(|| half("rfft", x, n, axis, norm))
}

fn half(op: &'static str, x: &Tensor, n: Option<usize>, axis: Axis, norm: Norm) -> Result<Tensor> {
    let along = Along::new(op, x, real_rank(op, x)?, n, axis, norm)?;
    wide(x, |x| along.run(x, FourierKind::RealToHalf))
}

/// The inverse of [`rfft`]: real numbers from the half of a spectrum that is not a mirror. `n` is how many
/// there are to be: an even number, 2(m − 1) of m frequencies, if it is not told. `torch.fft.irfft`.
///
/// What a mirror leaves no room for is not looked at: the imaginary parts of frequency 0 and, of an even
/// number, of the middle one.
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

/// [`fft`] along several axes, one after the other; all by `..`. `torch.fft.fftn`, `torch.fft.fft2` for the
/// last two.
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

/// [`fftn`] of `sizes[i]` numbers along axis i: it is cut to that length first, or filled up with zeros.
/// With `..` for the axes they are the last ones, one for each size. `torch.fft.fftn(s=…)`.
///
/// # Errors
/// As [`fftn`]; another number of sizes than of axes.
#[track_caller]
pub fn fftn_sized(x: &Tensor, sizes: &[usize], axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| several_sized("fftn_sized", x, sizes, &axes, norm, false))
}

/// [`ifftn`] of `sizes[i]` numbers along axis i, as [`fftn_sized`]. `torch.fft.ifftn(s=…)`.
///
/// # Errors
/// As [`fftn_sized`].
#[track_caller]
pub fn ifftn_sized(x: &Tensor, sizes: &[usize], axes: impl Into<Axes>, norm: Norm) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| several_sized("ifftn_sized", x, sizes, &axes, norm, true))
}

/// [`rfftn`] of `sizes[i]` numbers along axis i, as [`fftn_sized`]. `torch.fft.rfftn(s=…)`.
///
/// # Errors
/// As [`rfftn`]; another number of sizes than of axes.
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

/// [`irfftn`] of `sizes[i]` numbers along axis i, as [`fftn_sized`]: the last size is the number of real
/// results. `torch.fft.irfftn(s=…)`.
///
/// # Errors
/// As [`irfftn`]; another number of sizes than of axes.
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

/// An axis for each size.
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

/// The tensor cut or filled up to a size along each of several axes.
fn all_sized(x: &Tensor, axes: &[usize], sizes: &[usize]) -> Result<Tensor> {
    axes.iter().zip(sizes).try_fold(x.clone(), |x, (&axis, &size)| sized(&x, axis, size))
}

/// Axes of numbers, in the order in which they were named.
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

/// The inverse of [`rfftn`]: [`ifft`] along all but the last of several axes, and [`irfft`] of `n` numbers
/// along that one. `torch.fft.irfftn`, `torch.fft.irfft2`.
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
/// No numbers; a dtype that is not floating-point.
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

/// The results of a transform with frequency 0 in the middle of each axis, in place of in front. Real
/// numbers, or with `axes` named those of complex ones. `torch.fft.fftshift`.
///
/// # Errors
/// An axis out of range or given twice.
#[track_caller]
pub fn fftshift(x: &Tensor, axes: impl Into<Axes>) -> Result<Tensor> {
    let axes = axes.into();
    at_caller(|| shifted("fftshift", x, &axes, |size| size / 2))
}

/// Undoes [`fftshift`]. `torch.fft.ifftshift`.
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
