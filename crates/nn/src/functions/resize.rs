//! Changes of size: pixel shuffle, and pooling to a given size. `interpolate.rs` has interpolation.

use tensor_core::{Argument, DType, Error, Result, Shape, Tensor, caller_line, traced};

use super::{PoolOptions, Window, avg_pool, by_dims, max_pool, max_pool_with_indices, pool::check_input};

/// Rearranges channels to pixels: `[…, C·r², H, W]` to `[…, C, H·r, W·r]`.
/// `torch.nn.functional.pixel_shuffle`.
///
/// Shi et al.: Real-time single image and video super-resolution (2016).
///
/// # Errors
/// Fewer than three axes, a factor of 0, or channels that r² does not divide.
#[track_caller]
pub fn pixel_shuffle(input: &Tensor, factor: usize) -> Result<Tensor> {
    let _line = caller_line();
    let &[ref lead @ .., channels, height, width] = input.dims() else {
        let message = format!("an input is […, C, H, W]; shape {} has fewer axes", input.shape());
        return Err(Error::invalid("pixel_shuffle", message));
    };
    let square = factor.saturating_mul(factor);
    if square == 0 || !channels.is_multiple_of(square) {
        let message = format!("{factor}² does not divide the {channels} channels of {}", input.shape());
        return Err(Error::invalid("pixel_shuffle", message));
    }
    let all: usize = lead.iter().product();
    let out = channels / square;
    let parts = input.reshape([all, out, factor, factor, height, width])?.permute([0, 1, 4, 2, 5, 3])?;
    let shape: Shape = lead.iter().copied().chain([out, height * factor, width * factor]).collect();
    let out = parts.reshape(&shape)?;
    Ok(traced("pixel_shuffle", [Some(input)], out, || vec![("factor", Argument::Int(factor as i64))]))
}

/// Rearranges pixels to channels: `[…, C, H·r, W·r]` to `[…, C·r², H, W]`, the inverse of [`pixel_shuffle`].
/// `torch.nn.functional.pixel_unshuffle`.
///
/// # Errors
/// Fewer than three axes, a factor of 0, or a height or width that it does not divide.
#[track_caller]
pub fn pixel_unshuffle(input: &Tensor, factor: usize) -> Result<Tensor> {
    let _line = caller_line();
    let &[ref lead @ .., channels, height, width] = input.dims() else {
        let message = format!("an input is […, C, H, W]; shape {} has fewer axes", input.shape());
        return Err(Error::invalid("pixel_unshuffle", message));
    };
    if factor == 0 || !height.is_multiple_of(factor) || !width.is_multiple_of(factor) {
        let message = format!("{factor} does not divide height and width of {}", input.shape());
        return Err(Error::invalid("pixel_unshuffle", message));
    }
    let all: usize = lead.iter().product();
    let (height, width) = (height / factor, width / factor);
    let parts = input.reshape([all, channels, height, factor, width, factor])?.permute([0, 1, 3, 5, 2, 4])?;
    let shape: Shape = lead.iter().copied().chain([channels * factor * factor, height, width]).collect();
    parts.reshape(&shape)
}

/// The start and end of bin `i` of `count` over `n` elements.
fn bin(i: usize, n: usize, count: usize) -> (usize, usize) {
    (i * n / count, ((i + 1) * n).div_ceil(count))
}

/// Checks the input, and returns it as `[N, C, …]`.
#[track_caller]
fn check<const D: usize>(op: &'static str, input: &Tensor, size: [usize; D]) -> Result<Tensor> {
    let _line = caller_line();
    check_input::<D>(op, input)?;
    if size.contains(&0) || input.dims()[input.rank() - D..].contains(&0) {
        let message = format!(
            "an output of sizes {size:?} from an input of shape {}: both need elements",
            input.shape()
        );
        return Err(Error::invalid(op, message));
    }
    if input.rank() == D + 1 { input.unsqueeze(0) } else { Ok(input.clone()) }
}

/// Windows that divide every axis into `size` bins. If bins differ in size, `uneven` makes them equal: it
/// takes an axis and its bins, and returns the input and the size of a window.
#[track_caller]
fn in_bins<const D: usize>(
    input: Tensor,
    size: [usize; D],
    mut uneven: impl FnMut(&Tensor, usize, &[(usize, usize)]) -> Result<(Tensor, usize)>,
) -> Result<(Tensor, [usize; D])> {
    let (mut x, mut window) = (input, [1; D]);
    for axis in 0..D {
        let (n, count) = (x.dims()[2 + axis], size[axis]);
        if n.is_multiple_of(count) {
            window[axis] = n / count;
            continue;
        }
        let bins: Vec<(usize, usize)> = (0..count).map(|i| bin(i, n, count)).collect();
        (x, window[axis]) = uneven(&x, 2 + axis, &bins)?;
    }
    Ok((x, window))
}

#[track_caller]
pub(crate) fn adaptive_avg_pool<const D: usize>(
    op: &'static str,
    input: &Tensor,
    Window(size): Window<D>,
) -> Result<Tensor> {
    let _line = caller_line();
    let x = check(op, input, size)?.to_dtype(input.dtype().compute())?;
    let (mut x, window) = in_bins(x, size, |x, axis, bins| Ok((means_of_bins(x, axis, bins)?, 1)))?;
    if window != [1; D] {
        x = avg_pool(op, &x, window, PoolOptions::default())?;
    }
    let x = x.to_dtype(input.dtype())?;
    if input.rank() == D + 1 { x.squeeze(0) } else { Ok(x) }
}

/// The number of bins up to which each is a separate slice; more are gathered side by side.
const BINS_AS_SLICES: usize = 8;

/// The mean of each bin of an axis, computed from its own elements only: values that are not finite stay in
/// the bins that contain them.
#[track_caller]
fn means_of_bins(x: &Tensor, axis: usize, bins: &[(usize, usize)]) -> Result<Tensor> {
    if bins.len() <= BINS_AS_SLICES {
        let mean = |&(start, end): &(usize, usize)| x.narrow(axis, start, end - start)?.mean_axis(axis, true);
        return Tensor::concat(&bins.iter().map(mean).collect::<Result<Vec<_>>>()?, axis);
    }
    let (places, longest) = side_by_side(bins);
    let device = x.device();
    let (mut laid, mut along) = (x.dims().to_vec(), vec![1; x.rank() + 1]);
    laid[axis] = bins.len();
    laid.insert(axis + 1, longest);
    let found =
        x.index_select(axis, &Tensor::new(places, (DType::I32, &device))?)?.reshape(laid.as_slice())?;
    let lengths: Vec<i32> = bins.iter().map(|(start, end)| (end - start) as i32).collect();
    along[axis] = bins.len();
    let lengths = Tensor::new(lengths, (DType::I32, &device))?.reshape(along.as_slice())?;
    (along[axis], along[axis + 1]) = (1, longest);
    let turns = Tensor::arange(0, longest, 1, (DType::I32, &device))?.reshape(along.as_slice())?;
    let zero = Tensor::zeros((), (x.dtype(), &device))?;
    let sums = turns.lt(&lengths)?.where_cond(&found, &zero)?.sum_axis(axis + 1, false)?;
    let lengths = lengths.squeeze(axis + 1)?.to_dtype(x.dtype())?;
    sums.div(&lengths)
}

/// The indices of bins of different sizes, side by side, the shorter ones padded with their last element.
fn side_by_side(bins: &[(usize, usize)]) -> (Vec<i32>, usize) {
    let longest = bins.iter().map(|(start, end)| end - start).max().unwrap_or(1);
    let of_bin = |&(start, end): &(usize, usize)| (0..longest).map(move |k| (start + k).min(end - 1) as i32);
    (bins.iter().flat_map(of_bin).collect(), longest)
}

#[track_caller]
pub(crate) fn adaptive_max_pool<const D: usize>(
    op: &'static str,
    input: &Tensor,
    Window(size): Window<D>,
) -> Result<Tensor> {
    let _line = caller_line();
    let (x, window) = in_bins(check(op, input, size)?, size, |x, axis, bins| {
        let (places, longest) = side_by_side(bins);
        Ok((x.index_select(axis, &Tensor::new(places, &x.device())?)?, longest))
    })?;
    let x = max_pool(op, &x, window, PoolOptions::default())?;
    if input.rank() == D + 1 { x.squeeze(0) } else { Ok(x) }
}

/// Adaptive max pooling that also returns, as i64 (i32 on devices without i64), the flat indices of the
/// maxima in their channels. `return_indices=True` of `torch.nn.functional.adaptive_max_pool2d`. For one to
/// three axes: `adaptive_max_pool_with_indices(&x, [3, 4])`.
///
/// # Errors
/// As [`adaptive_max_pool2d`].
#[track_caller]
pub fn adaptive_max_pool_with_indices<const D: usize>(
    input: &Tensor,
    size: [usize; D],
) -> Result<(Tensor, Tensor)> {
    let _line = caller_line();
    let op = by_dims::<D>(["adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"]);
    let x = check(op, input, size)?;
    let sizes: [usize; D] = std::array::from_fn(|axis| x.dims()[2 + axis]);
    // The positions in the input of elements that were gathered side by side.
    let mut tables: [Option<Tensor>; D] = [const { None }; D];
    let (x, window) = in_bins(x, size, |x, axis, bins| {
        let (places, longest) = side_by_side(bins);
        let places = Tensor::new(places, (DType::I32, &x.device()))?;
        tables[axis - 2] = Some(places.clone());
        Ok((x.index_select(axis, &places)?, longest))
    })?;
    let laid: [usize; D] = std::array::from_fn(|axis| x.dims()[2 + axis]);
    let (maxima, mut indices) = max_pool_with_indices(&x, window, PoolOptions::default())?;
    if tables.iter().any(Option::is_some) {
        let (mut rest, mut found) = (indices.clone(), indices.zeros_like());
        let mut step = 1;
        for axis in (0..D).rev() {
            let place = rest.remainder_scalar(laid[axis] as i64);
            rest = rest.floor_divide_scalar(laid[axis] as i64);
            let place = match &tables[axis] {
                Some(table) => table.gather(0, &place.flatten_all())?.reshape(place.shape())?,
                None => place,
            };
            found = found.add(&place.to_dtype(found.dtype())?.mul_scalar(step as i64))?;
            step *= sizes[axis];
        }
        indices = found;
    }
    match input.rank() == D + 1 {
        true => Ok((maxima.squeeze(0)?, indices.squeeze(0)?)),
        false => Ok((maxima, indices)),
    }
}

macro_rules! adaptive {
    ($($(#[$doc:meta])* $name:ident, $d:literal, $general:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// Bin i of an axis is from ⌊i·in/out⌋ to ⌈(i + 1)·in/out⌉.
        ///
        /// # Errors
        /// An input with neither one nor two more axes than the output has sizes, a dtype that is not
        /// floating-point, a size of 0.
        #[track_caller]
        pub fn $name(input: &Tensor, size: impl Into<Window<$d>>) -> Result<Tensor> {
            $general(stringify!($name), input, size.into())
        }
    )*};
}

adaptive! {
    /// Adaptive average pooling: the means of `size` bins of `[N, C, L]`.
    /// `torch.nn.functional.adaptive_avg_pool1d`.
    adaptive_avg_pool1d, 1, adaptive_avg_pool;
    /// Adaptive average pooling: the means of `[h, w]` bins of `[N, C, H, W]`; 1 is global average pooling.
    /// `torch.nn.functional.adaptive_avg_pool2d`.
    adaptive_avg_pool2d, 2, adaptive_avg_pool;
    /// Adaptive average pooling of volumes `[N, C, D, H, W]`. `torch.nn.functional.adaptive_avg_pool3d`.
    adaptive_avg_pool3d, 3, adaptive_avg_pool;
    /// Adaptive max pooling: the maxima of `size` bins of `[N, C, L]`.
    /// `torch.nn.functional.adaptive_max_pool1d`.
    adaptive_max_pool1d, 1, adaptive_max_pool;
    /// Adaptive max pooling of images `[N, C, H, W]` in `[h, w]` bins.
    /// `torch.nn.functional.adaptive_max_pool2d`.
    adaptive_max_pool2d, 2, adaptive_max_pool;
    /// Adaptive max pooling of volumes `[N, C, D, H, W]`. `torch.nn.functional.adaptive_max_pool3d`.
    adaptive_max_pool3d, 3, adaptive_max_pool;
}

/// Shuffles the channels of `[N, C, …]`: splits them in `groups`, and takes one of each group in turn.
/// `torch.nn.functional.channel_shuffle`.
///
/// # Errors
/// Fewer than three axes, or channels that the groups do not divide.
#[track_caller]
pub fn channel_shuffle(input: &Tensor, groups: usize) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "channel_shuffle";
    let &[n, channels, _, ..] = input.dims() else {
        return Err(Error::invalid(OP, format!("the input has the shape [N, C, …], not {}", input.shape())));
    };
    if groups == 0 || channels % groups != 0 {
        return Err(Error::invalid(OP, format!("{groups} groups of {channels} channels: give a divisor")));
    }
    let rest = &input.dims()[2..];
    let split: Vec<usize> = [n, groups, channels / groups].iter().chain(rest).copied().collect();
    input.reshape(split)?.transpose(1, 2)?.reshape(input.shape())
}
