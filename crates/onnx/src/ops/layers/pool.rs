//! Pooling: over windows, over all of an image, and back.

use nn::functional::{
    PoolOptions, avg_pool1d_with, avg_pool2d_with, avg_pool3d_with, max_pool1d_with, max_pool2d_with,
    max_pool3d_with,
};
use tensor_core::{Result, Tensor};

use super::conv::Windows;
use crate::{
    context::Context,
    ops::{Row, all, one, sizes, window_sizes},
    value::Value,
};

pub(crate) const TABLE: &[Row] = &[
    ("", "AveragePool", 1, average),
    ("", "GlobalAveragePool", 1, |c| global(c, |x, axes| x.mean_axis(axes, true))),
    ("", "GlobalLpPool", 1, |c| {
        let p = c.number_or("p", 2.0)?;
        global(c, |x, axes| x.vector_norm(p, axes, true))
    }),
    ("", "GlobalMaxPool", 1, |c| global(c, |x, axes| x.amax(axes, true))),
    ("", "LpPool", 1, lp),
    ("", "MaxPool", 1, maximum),
    ("", "MaxUnpool", 9, unpool),
];

fn global(c: &Context<'_>, f: impl FnOnce(&Tensor, &[usize]) -> Result<Tensor>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    one(f(&x, &(2..x.rank()).collect::<Vec<_>>())?)
}

/// The node's windows over the input, and how far each axis is filled up for a last window that reaches
/// past its end.
fn windows(c: &Context<'_>, x: &Tensor) -> Result<(Windows, Vec<usize>)> {
    let space = x.dims().get(2..).unwrap_or(&[]);
    let kernel = c.ints("kernel_shape")?.ok_or_else(|| c.error("kernel_shape is missing"))?;
    let kernel = window_sizes(c, &kernel)?;
    if kernel.contains(&0) || space.is_empty() {
        return Err(c.error(format!("windows {kernel:?} over an input {}", x.shape())));
    }
    let w = Windows::of(c, space, kernel)?;
    let ceil = c.flag("ceil_mode", false)?;
    let mut more = vec![0; space.len()];
    for (axis, more) in more.iter_mut().enumerate() {
        let (before, after) = w.pads[axis];
        let room = space[axis] + before + after;
        let reach = (w.kernel[axis] - 1) * w.dilation[axis] + 1;
        if reach > room && !ceil {
            return Err(c.error(format!("windows {:?} are larger than the input {}", w.kernel, x.shape())));
        }
        let steps = room.saturating_sub(reach);
        // A last window begins within the input or the padding before it.
        let last = steps.div_ceil(w.stride[axis]) * w.stride[axis];
        if ceil && last < space[axis] + before {
            *more = (last + reach).saturating_sub(room);
        }
    }
    Ok((w, more))
}

/// The input with `value` around it, and its windows as axes at the end: `[N, C, out…, k…]`.
fn viewed(x: &Tensor, w: &Windows, more: &[usize], value: f64) -> Result<Tensor> {
    let mut padding = vec![(0, 0); 2];
    padding.extend(w.pads.iter().zip(more).map(|(&(before, after), more)| (before, after + more)));
    let mut view = x.pad(&padding, value)?;
    for axis in 0..w.kernel.len() {
        view = view.windows(axis + 2, w.kernel[axis], w.stride[axis], w.dilation[axis])?;
    }
    Ok(view)
}

/// The axes of windows at the end.
fn last(x: &Tensor) -> Vec<usize> {
    let d = x.rank() - 2;
    (x.rank()..x.rank() + d).collect()
}

/// The layers' own windows, where the node's are such: equal padding on both sides, at most half a window,
/// no part window.
fn plain<const D: usize>(w: &Windows, more: &[usize]) -> Option<([usize; D], PoolOptions<D>)> {
    let fits = w.pads.iter().zip(&w.kernel).all(|((before, after), k)| before == after && 2 * before <= *k);
    if w.kernel.len() != D || !fits || more.iter().any(|&n| n > 0) {
        return None;
    }
    let list = |list: &[usize]| -> [usize; D] { std::array::from_fn(|axis| list[axis]) };
    let padding = std::array::from_fn(|axis| w.pads[axis].0);
    let options = PoolOptions {
        stride: Some(list(&w.stride)),
        padding,
        dilation: list(&w.dilation),
        ..Default::default()
    };
    Some((list(&w.kernel), options))
}

fn maximum(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let (w, more) = windows(c, &x)?;
    if !c.wants(1) && x.dtype().is_float() {
        if let Some((window, options)) = plain::<1>(&w, &more) {
            return one(max_pool1d_with(&x, window, options)?);
        }
        if let Some((window, options)) = plain::<2>(&w, &more) {
            return one(max_pool2d_with(&x, window, options)?);
        }
        if let Some((window, options)) = plain::<3>(&w, &more) {
            return one(max_pool3d_with(&x, window, options)?);
        }
    }
    let d = w.kernel.len();
    let axes = last(&x);
    let float = x.dtype().is_float();
    let below = if float { f64::NEG_INFINITY } else { x.dtype().least().as_f64() };
    let view = viewed(&x, &w, &more, below)?;
    let shape = view.dims().to_vec();
    let flat =
        view.reshape(shape[..d + 2].iter().copied().chain([w.kernel.iter().product()]).collect::<Vec<_>>())?;
    if !c.wants(1) {
        return one(view.amax(axes, false)?);
    }
    // The numbers of elements, read through the same windows.
    let space = &x.dims()[2..];
    let count: usize = space.iter().product();
    let mut numbers = Tensor::arange(0, count as i64, 1, (c.index_dtype(), c.device()))?;
    numbers = if c.int_or("storage_order", 0)? == 1 {
        let back: Vec<usize> = space.iter().rev().copied().collect();
        numbers.reshape(back)?.permute((0..d).rev().collect::<Vec<_>>())?
    } else {
        numbers.reshape(space)?
    };
    let images = x.dims()[0] * x.dims()[1];
    let first = Tensor::arange(0, images as i64, 1, (c.index_dtype(), c.device()))?.mul_scalar(count as i64);
    let first =
        first.reshape([x.dims()[0], x.dims()[1]].iter().copied().chain(vec![1; d]).collect::<Vec<_>>())?;
    let numbers = numbers.add(&first)?;
    let numbers = viewed(&numbers, &w, &more, 0.0)?.reshape(flat.dims())?;
    let place = flat.argmax_axis(d + 2, true)?;
    all([flat.gather(d + 2, &place)?.squeeze(d + 2)?, numbers.gather(d + 2, &place)?.squeeze(d + 2)?])
}

/// How many elements each window has along an axis; padding counts if asked, but not what `ceil_mode` adds
/// to it.
fn counts(c: &Context<'_>, x: &Tensor, w: &Windows, more: &[usize], padding: bool) -> Result<Tensor> {
    let d = w.kernel.len();
    let mut product: Option<Tensor> = None;
    for axis in 0..d {
        let (size, (before, after)) = (x.dims()[axis + 2], w.pads[axis]);
        let reach = (w.kernel[axis] - 1) * w.dilation[axis] + 1;
        let all = before + size + after + more[axis];
        let counted = if padding { 0..before + size + after } else { before..before + size };
        let windows = all.saturating_sub(reach) / w.stride[axis] + 1;
        let count = |window: usize| {
            let places = (0..w.kernel[axis]).map(|k| window * w.stride[axis] + k * w.dilation[axis]);
            places.filter(|place| counted.contains(place)).count() as f32
        };
        let mut shape = vec![1; x.rank()];
        shape[axis + 2] = windows;
        let line = Tensor::from_vec((0..windows).map(count).collect::<Vec<f32>>(), shape, c.device())?;
        product = Some(match product {
            Some(product) => product.mul(&line)?,
            None => line,
        });
    }
    product.ok_or_else(|| c.error("there are no windows"))
}

fn average(c: &Context<'_>) -> Result<Vec<Value>> {
    one(averaged(c, &c.tensor(0)?)?)
}

/// The means of the node's windows.
pub(crate) fn averaged(c: &Context<'_>, x: &Tensor) -> Result<Tensor> {
    let (w, more) = windows(c, x)?;
    let padding = c.flag("count_include_pad", false)?;
    let dense = w.dilation.iter().all(|&n| n == 1);
    macro_rules! layer {
        ($d:literal, $f:ident) => {
            if let Some((window, options)) = plain::<$d>(&w, &more).filter(|_| dense) {
                return $f(x, window, PoolOptions { count_include_pad: padding, ..options });
            }
        };
    }
    layer!(1, avg_pool1d_with);
    layer!(2, avg_pool2d_with);
    layer!(3, avg_pool3d_with);
    let sums = viewed(x, &w, &more, 0.0)?.sum_axis(last(x), false)?;
    let counts = counts(c, x, &w, &more, padding)?;
    sums.div(&counts.to_dtype(sums.dtype())?)
}

/// (Σ|x|ᵖ)^(1/p) over each window.
fn lp(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let (w, more) = windows(c, &x)?;
    one(viewed(&x, &w, &more, 0.0)?.vector_norm(c.number_or("p", 2.0)?, last(&x), false)?)
}

/// Each element at its number in an output of zeros.
fn unpool(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, index) = (c.tensor(0)?, c.tensor(1)?.to_dtype(c.index_dtype())?);
    let kernel =
        window_sizes(c, &c.ints("kernel_shape")?.ok_or_else(|| c.error("kernel_shape is missing"))?)?;
    let d = kernel.len();
    if x.rank() != d + 2 || index.shape() != x.shape() {
        return Err(c.error(format!("an input {} with indices {}", x.shape(), index.shape())));
    }
    let stride = c.ints("strides")?.map_or(Ok(vec![1; d]), |list| window_sizes(c, &list))?;
    let pads = super::conv::pad_pairs(c, d)?;
    let mut plain = x.dims()[..2].to_vec();
    for axis in 0..d {
        let all = (x.dims()[axis + 2].max(1) - 1) * stride.get(axis).copied().unwrap_or(1) + kernel[axis];
        plain.push(all.saturating_sub(pads[axis].0 + pads[axis].1));
    }
    // Numbers count the elements of the usual output, at whose end a larger one has zeros.
    let zeros = Tensor::zeros([plain.iter().product()], (x.dtype(), c.device()))?;
    let mut y = zeros.index_add(0, &index.flatten_all(), &x.flatten_all())?.reshape(plain.as_slice())?;
    if let Some(list) = c.integers(2)? {
        let wanted = sizes(c, &list)?;
        if wanted.len() != plain.len() || wanted.iter().zip(&plain).any(|(wanted, plain)| wanted < plain) {
            return Err(c.error(format!("an output {wanted:?} for elements of {plain:?}")));
        }
        let padding: Vec<(usize, usize)> =
            wanted.iter().zip(&plain).map(|(wanted, n)| (0, wanted - n)).collect();
        y = y.pad(&padding, 0)?;
    }
    one(y)
}
