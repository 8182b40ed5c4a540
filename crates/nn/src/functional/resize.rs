//! Changes of size: pixels from channels and back, nearest neighbours, pooling to a given size.

use tensor_core::{Error, Result, Shape, Tensor};

use super::{PoolOptions, Window, avg_pool, max_pool};

/// `[…, C·r², H, W]` to `[…, C, H·r, W·r]`: channels become pixels. `torch.nn.functional.pixel_shuffle`.
///
/// Shi et al.: Real-time single image and video super-resolution (2016).
///
/// # Errors
/// Fewer than three axes, a factor of 0, or channels that r² does not divide.
#[track_caller]
pub fn pixel_shuffle(input: &Tensor, factor: usize) -> Result<Tensor> {
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
    parts.reshape(&shape)
}

/// `[…, C, H·r, W·r]` to `[…, C·r², H, W]`: the inverse of [`pixel_shuffle`]. `torch.nn.functional.pixel_unshuffle`.
///
/// # Errors
/// Fewer than three axes, a factor of 0, or a height or width that it does not divide.
#[track_caller]
pub fn pixel_unshuffle(input: &Tensor, factor: usize) -> Result<Tensor> {
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

/// `[N, C, …]` at the given sizes of the axes after C; element i is the input's ⌊i·in/out⌋. `mode="nearest"` of
/// `torch.nn.functional.interpolate`. Whole multiples are a view that is expanded.
///
/// # Errors
/// Not one size for each axis after C, a size of 0, an axis without elements.
#[track_caller]
pub fn interpolate_nearest(input: &Tensor, size: &[usize]) -> Result<Tensor> {
    const OP: &str = "interpolate";
    if input.rank() != size.len() + 2 || size.is_empty() {
        return Err(Error::invalid(
            OP,
            format!(
                "{} sizes for an input [N, C, …] of shape {}: give one for each axis after C",
                size.len(),
                input.shape()
            ),
        ));
    }
    let mut out = input.clone();
    for (axis, &wanted) in (2..).zip(size) {
        let n = out.dims()[axis];
        if wanted == 0 || n == 0 {
            let message = format!("from {n} elements to {wanted} along axis {axis} of {}", input.shape());
            return Err(Error::invalid(OP, message));
        }
        if wanted == n {
            continue;
        }
        out = match wanted.is_multiple_of(n) {
            true => {
                let mut wide = out.dims().to_vec();
                wide.insert(axis + 1, wanted / n);
                let mut shape = out.dims().to_vec();
                shape[axis] = wanted;
                out.unsqueeze(axis + 1)?.expand(wide.as_slice())?.reshape(shape.as_slice())?
            }
            false => {
                let places: Vec<i32> = (0..wanted).map(|i| (i * n / wanted) as i32).collect();
                out.index_select(axis, &Tensor::new(places, &input.device())?)?
            }
        };
    }
    Ok(out)
}

/// Where bin `i` of `count` over `n` elements begins and ends.
fn bin(i: usize, n: usize, count: usize) -> (usize, usize) {
    (i * n / count, ((i + 1) * n).div_ceil(count))
}

#[track_caller]
fn check<const D: usize>(op: &'static str, input: &Tensor, size: [usize; D]) -> Result<Tensor> {
    if !(D + 1..=D + 2).contains(&input.rank()) {
        let message = format!(
            "the input has {} axes, [N, C, …], or {} without N; shape {} has {}",
            D + 2,
            D + 1,
            input.shape(),
            input.rank()
        );
        return Err(Error::invalid(op, message));
    }
    if !input.dtype().is_float() {
        let message = format!("an input of {}; cast it with .to_dtype(DType::F32)?", input.dtype());
        return Err(Error::invalid(op, message));
    }
    if size.contains(&0) || input.dims()[input.rank() - D..].contains(&0) {
        let message = format!(
            "an output of sizes {size:?} from an input of shape {}: both need elements",
            input.shape()
        );
        return Err(Error::invalid(op, message));
    }
    if input.rank() == D + 1 { input.unsqueeze(0) } else { Ok(input.clone()) }
}

#[track_caller]
pub(crate) fn adaptive_avg_pool<const D: usize>(
    op: &'static str,
    input: &Tensor,
    Window(size): Window<D>,
) -> Result<Tensor> {
    let mut x = check(op, input, size)?;
    let mut window = [1; D];
    for axis in 0..D {
        let (n, count) = (x.dims()[2 + axis], size[axis]);
        if n.is_multiple_of(count) {
            window[axis] = n / count;
            continue;
        }
        // Bins of several sizes: the means of an axis are one product with a matrix of shares.
        let mut shares = vec![0.0f64; n * count];
        for i in 0..count {
            let (start, end) = bin(i, n, count);
            (start..end).for_each(|at| shares[at * count + i] = 1.0 / (end - start) as f64);
        }
        let shares = Tensor::new(shares, (x.dtype(), &x.device()))?.reshape([n, count])?;
        x = x.transpose(2 + axis, -1)?.matmul(&shares)?.transpose(2 + axis, -1)?;
    }
    if window != [1; D] {
        x = avg_pool(op, &x, window, PoolOptions::default())?;
    }
    if input.rank() == D + 1 { x.squeeze(0) } else { Ok(x) }
}

#[track_caller]
pub(crate) fn adaptive_max_pool<const D: usize>(
    op: &'static str,
    input: &Tensor,
    Window(size): Window<D>,
) -> Result<Tensor> {
    let mut x = check(op, input, size)?;
    let mut window = [1; D];
    for axis in 0..D {
        let (n, count) = (x.dims()[2 + axis], size[axis]);
        if n.is_multiple_of(count) {
            window[axis] = n / count;
            continue;
        }
        // Bins laid side by side, the shorter ones with their last element again.
        let bins: Vec<(usize, usize)> = (0..count).map(|i| bin(i, n, count)).collect();
        let longest = bins.iter().map(|(start, end)| end - start).max().unwrap_or(1);
        let places: Vec<i32> = bins
            .iter()
            .flat_map(|&(start, end)| (0..longest).map(move |k| (start + k).min(end - 1) as i32))
            .collect();
        x = x.index_select(2 + axis, &Tensor::new(places, &x.device())?)?;
        window[axis] = longest;
    }
    let x = max_pool(op, &x, window, PoolOptions::default())?;
    if input.rank() == D + 1 { x.squeeze(0) } else { Ok(x) }
}

macro_rules! adaptive {
    ($($(#[$doc:meta])* $name:ident, $d:literal, $general:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// Bin i of an axis goes from ⌊i·in/out⌋ to ⌈(i + 1)·in/out⌉.
        ///
        /// # Errors
        /// An input with neither one nor two more axes than the output has sizes, no floating-point dtype, a size of 0.
        #[track_caller]
        pub fn $name(input: &Tensor, size: impl Into<Window<$d>>) -> Result<Tensor> {
            $general(stringify!($name), input, size.into())
        }
    )*};
}

adaptive! {
    /// The means of `[N, C, L]` in so many bins. `torch.nn.functional.adaptive_avg_pool1d`.
    adaptive_avg_pool1d, 1, adaptive_avg_pool;
    /// The means of images in bins `[h, w]`; 1 is global average pooling. `torch.nn.functional.adaptive_avg_pool2d`.
    adaptive_avg_pool2d, 2, adaptive_avg_pool;
    /// The means of volumes in bins. `torch.nn.functional.adaptive_avg_pool3d`.
    adaptive_avg_pool3d, 3, adaptive_avg_pool;
    /// The greatest elements of `[N, C, L]` in so many bins. `torch.nn.functional.adaptive_max_pool1d`.
    adaptive_max_pool1d, 1, adaptive_max_pool;
    /// The greatest elements of images in bins `[h, w]`. `torch.nn.functional.adaptive_max_pool2d`.
    adaptive_max_pool2d, 2, adaptive_max_pool;
    /// The greatest elements of volumes in bins. `torch.nn.functional.adaptive_max_pool3d`.
    adaptive_max_pool3d, 3, adaptive_max_pool;
}
