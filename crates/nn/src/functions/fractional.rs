//! Max pooling over windows at random distances (Graham, Fractional max-pooling, 2014).

use tensor_core::{DType, Error, Generator, Result, Shape, Tensor, at_caller, caller_line};

use super::{PoolOptions, by_dims, max_pool_with_indices};

/// Fractional max pooling of `[N, C, H, W]` or `[C, H, W]`: the greatest element of each of `size` windows
/// `[h, w]`, at distances that are drawn for each channel: `[N, C, size…]`.
/// `torch.nn.functional.fractional_max_pool2d`, whose `output_ratio` is the output size over the input's.
///
/// For given random samples, and for indices, see [`fractional_max_pool_with_indices`].
///
/// # Errors
/// An input with neither one nor two more axes than the window, a dtype that is not floating-point, a window
/// or a size of 0 or above the input's.
#[track_caller]
pub fn fractional_max_pool2d(
    input: &Tensor,
    window: [usize; 2],
    size: [usize; 2],
    rng: &Generator,
) -> Result<Tensor> {
    at_caller(|| drawn(input, window, size, rng))
}

/// Fractional max pooling of volumes `[N, C, D, H, W]` or `[C, D, H, W]`, as [`fractional_max_pool2d`].
/// `torch.nn.functional.fractional_max_pool3d`.
///
/// # Errors
/// As [`fractional_max_pool2d`].
#[track_caller]
pub fn fractional_max_pool3d(
    input: &Tensor,
    window: [usize; 3],
    size: [usize; 3],
    rng: &Generator,
) -> Result<Tensor> {
    at_caller(|| drawn(input, window, size, rng))
}

fn drawn<const D: usize>(
    input: &Tensor,
    window: [usize; D],
    size: [usize; D],
    rng: &Generator,
) -> Result<Tensor> {
    let x = check(input, window, size)?;
    let dtype = x.dtype().compute();
    let samples = Tensor::rand_dtype([x.dims()[0], x.dims()[1], D], dtype, &rng.on(&x.device()))?;
    Ok(pooled(input, &x, window, size, &samples)?.0)
}

/// Fractional max pooling over two or three axes with the random numbers `samples` `[N, C, axes]` in [0, 1),
/// which determine each channel's windows. Returns the maxima and, as i64 (i32 on devices without i64),
/// their flat indices in their channels. PyTorch's `_random_samples` and `return_indices`.
///
/// With a sample u and α = (in − window) / (out − 1), window i begins at ⌊(i + u)·α⌋ − ⌊u·α⌋, and the last
/// at in − window. As in PyTorch, the samples of two axes are in reverse order of the axes, and those of
/// three in their order.
///
/// # Errors
/// As [`fractional_max_pool2d`], and samples of another shape or dtype.
#[track_caller]
pub fn fractional_max_pool_with_indices<const D: usize>(
    input: &Tensor,
    window: [usize; D],
    size: [usize; D],
    samples: &Tensor,
) -> Result<(Tensor, Tensor)> {
    at_caller(|| {
        let x = check(input, window, size)?;
        let expected = [x.dims()[0], x.dims()[1], D];
        if samples.dims() != expected || !samples.dtype().is_float() {
            let message = format!(
                "samples {} of {}: give {expected:?} of a floating-point dtype, for an input {}",
                samples.shape(),
                samples.dtype(),
                input.shape()
            );
            return Err(Error::invalid(name::<D>(), message));
        }
        pooled(input, &x, window, size, samples)
    })
}

fn name<const D: usize>() -> &'static str {
    by_dims::<D>(["fractional_max_pool1d", "fractional_max_pool2d", "fractional_max_pool3d"])
}

/// The input as `[N, C, …]`.
#[track_caller]
fn check<const D: usize>(input: &Tensor, window: [usize; D], size: [usize; D]) -> Result<Tensor> {
    let _line = caller_line();
    let op = name::<D>();
    if !input.dtype().is_float() {
        return Err(Error::invalid(op, format!("dtype {}: a floating-point input is needed", input.dtype())));
    }
    let x = match input.rank() {
        rank if rank == D + 1 => input.unsqueeze(0)?,
        rank if rank == D + 2 => input.clone(),
        _ => {
            let message =
                format!("an input {}: give a channel, or a batch of channels, of {D} axes", input.shape());
            return Err(Error::invalid(op, message));
        }
    };
    for axis in 0..D {
        let (n, w, out) = (x.dims()[2 + axis], window[axis], size[axis]);
        if w == 0 || out == 0 || w > n || out > n - w + 1 {
            let message = format!(
                "{out} windows of {w} along an axis of {n}: give windows from 1 to {n}, and from 1 to {} of them",
                (n + 1).saturating_sub(w)
            );
            return Err(Error::invalid(op, message));
        }
    }
    Ok(x)
}

fn pooled<const D: usize>(
    input: &Tensor,
    x: &Tensor,
    window: [usize; D],
    size: [usize; D],
    samples: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let samples = samples.detach().to_dtype(samples.dtype().compute())?;
    let (n, c) = (x.dims()[0], x.dims()[1]);
    // The windows of an axis side by side, and the positions of their elements, `[N, C, out·window]`.
    let mut laid = x.clone();
    let mut tables = Vec::with_capacity(D);
    for axis in 0..D {
        let sample = samples.select(-1, if D == 2 { 1 - axis } else { axis } as isize)?.unsqueeze(-1)?;
        let places = places(&sample, x.dims()[2 + axis], window[axis], size[axis])?;
        let mut along = vec![1; D + 2];
        (along[0], along[1], along[2 + axis]) = (n, c, size[axis] * window[axis]);
        let mut whole = laid.dims().to_vec();
        whole[2 + axis] = size[axis] * window[axis];
        laid = laid.gather(2 + axis, &places.reshape(along)?.expand(whole)?)?;
        tables.push(places);
    }
    let (maxima, mut rest) = max_pool_with_indices(&laid, window, PoolOptions::default())?;
    let mut found = rest.zeros_like();
    let mut step = 1;
    for axis in (0..D).rev() {
        let across = (size[axis] * window[axis]) as i64;
        let place = rest.remainder_scalar(across);
        rest = rest.floor_divide_scalar(across);
        let flat = place.reshape([n, c, size.iter().product::<usize>()])?;
        let place = tables[axis].gather(-1, &flat)?.reshape(place.shape())?;
        found = found.add(&place.to_dtype(found.dtype())?.mul_scalar(step))?;
        step *= x.dims()[2 + axis] as i64;
    }
    match input.rank() == D + 1 {
        true => Ok((maxima.squeeze(0)?, found.squeeze(0)?)),
        false => Ok((maxima, found)),
    }
}

/// The positions of the elements of each window along an axis of `n`, for samples `[N, C, 1]`: `[N, C,
/// out·window]`.
fn places(sample: &Tensor, n: usize, window: usize, out: usize) -> Result<Tensor> {
    let device = sample.device();
    let last = (n - window) as f64;
    let within = Tensor::arange(0i64, window as i64, 1i64, (DType::I32, &device))?;
    let number = Tensor::arange(0i64, out as i64, 1i64, (sample.dtype(), &device))?;
    let alpha = if out > 1 { last / (out - 1) as f64 } else { 0.0 };
    let first = sample.add(&number)?.mul_scalar(alpha).floor().sub(&sample.mul_scalar(alpha).floor())?;
    // Limited to the last window, whatever the rounding.
    let first = first.minimum_scalar(last).masked_fill(&number.eq_scalar(out as i64 - 1), last)?;
    let places = first.to_dtype(DType::I32)?.unsqueeze(-1)?.add(&within)?;
    let shape: Shape = [sample.dims()[0], sample.dims()[1], out * window].into();
    places.reshape(shape)
}
