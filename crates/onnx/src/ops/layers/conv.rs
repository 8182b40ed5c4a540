//! Convolutions, their transposes, and products of matrices.

use nn::functional::{
    ConvOptions, ConvPadding, ConvTransposeOptions, FoldOptions, conv_transpose1d, conv_transpose2d,
    conv_transpose3d, conv1d, conv2d, conv3d, fold,
};
use tensor_core::{Result, Tensor};

use crate::{
    context::Context,
    ops::{Row, one, sizes, window_sizes},
    value::Value,
};

pub(crate) const TABLE: &[Row] = &[
    ("", "Col2Im", 18, col2im),
    ("", "Conv", 1, conv),
    ("", "ConvTranspose", 1, transposed),
    ("", "DeformConv", 19, deformable),
    ("", "Det", 11, determinant),
    ("", "Einsum", 12, |c| one(Tensor::einsum(c.text_or("equation", "")?, &c.tensors()?)?)),
    ("", "Gemm", 1, gemm),
    ("", "MatMul", 1, |c| one(c.tensor(0)?.matmul(&c.tensor(1)?)?)),
];

/// How windows are placed over the axes after the channels.
pub(crate) struct Windows {
    pub(crate) kernel: Vec<usize>,
    pub(crate) stride: Vec<usize>,
    pub(crate) dilation: Vec<usize>,
    /// How much goes before and after each axis.
    pub(crate) pads: Vec<(usize, usize)>,
}

impl Windows {
    /// The attributes of a convolution or a pooling over axes of these sizes.
    pub(crate) fn of(c: &Context<'_>, space: &[usize], kernel: Vec<usize>) -> Result<Windows> {
        let d = space.len();
        let list = |name: &str| -> Result<Vec<usize>> {
            let given = c.ints(name)?.map_or(Ok(vec![1; d]), |list| window_sizes(c, &list))?;
            if given.len() == d && given.iter().all(|&n| n > 0) {
                return Ok(given);
            }
            Err(c.error(format!("{name} {given:?} for {d} axes")))
        };
        if kernel.len() != d || kernel.iter().any(|&n| n == 0 || n > i32::MAX as usize) {
            return Err(c.error(format!("a kernel {kernel:?} for {d} axes")));
        }
        let (stride, dilation) = (list("strides")?, list("dilations")?);
        let pads = match c.text_or("auto_pad", "NOTSET")? {
            "VALID" => vec![(0, 0); d],
            same @ ("SAME_UPPER" | "SAME_LOWER") => (0..d)
                .map(|axis| {
                    let reach = (kernel[axis] - 1) * dilation[axis] + 1;
                    let out = space[axis].div_ceil(stride[axis]);
                    let all = (out.saturating_sub(1) * stride[axis] + reach).saturating_sub(space[axis]);
                    if same == "SAME_UPPER" { (all / 2, all - all / 2) } else { (all - all / 2, all / 2) }
                })
                .collect(),
            "NOTSET" | "" => pad_pairs(c, d)?,
            other => return Err(c.error(format!("auto_pad \"{other}\" is not known"))),
        };
        Ok(Windows { kernel, stride, dilation, pads })
    }
}

/// The attribute `pads`: all beginnings, then all ends.
pub(crate) fn pad_pairs(c: &Context<'_>, d: usize) -> Result<Vec<(usize, usize)>> {
    let pads = c.ints("pads")?.map_or(Ok(vec![0; 2 * d]), |list| window_sizes(c, &list))?;
    if pads.len() != 2 * d {
        return Err(c.error(format!("{} pads for {d} axes", pads.len())));
    }
    Ok((0..d).map(|axis| (pads[axis], pads[axis + d])).collect())
}

fn array<const D: usize, T: Copy + Default>(list: &[T]) -> [T; D] {
    let mut array = [T::default(); D];
    array.iter_mut().zip(list).for_each(|(to, from)| *to = *from);
    array
}

pub(crate) fn conv(c: &Context<'_>) -> Result<Vec<Value>> {
    one(convolution(c, &c.tensor(0)?, &c.tensor(1)?, c.optional_tensor(2)?.as_ref())?)
}

/// The convolution that the node's attributes describe.
pub(crate) fn convolution(
    c: &Context<'_>,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let (Some(space), Some(kernel)) = (x.dims().get(2..), weight.dims().get(2..)) else {
        return Err(c.error(format!("an input {} and a weight {}", x.shape(), weight.shape())));
    };
    let w = Windows::of(c, space, kernel.to_vec())?;
    let groups = usize::try_from(c.int_or("group", 1)?).unwrap_or(0);
    macro_rules! call {
        ($d:literal, $f:ident) => {
            $f(
                x,
                weight,
                bias,
                ConvOptions::<$d> {
                    stride: array(&w.stride),
                    padding: ConvPadding::Each(array(&w.pads)),
                    dilation: array(&w.dilation),
                    groups,
                },
            )
        };
    }
    match space.len() {
        1 => call!(1, conv1d),
        2 => call!(2, conv2d),
        3 => call!(3, conv3d),
        d => Err(c.error(format!("convolutions have one to three axes after the channels, not {d}"))),
    }
}

pub(crate) fn transposed(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, weight, bias) = (c.tensor(0)?, c.tensor(1)?, c.optional_tensor(2)?);
    let (Some(space), Some(kernel)) = (x.dims().get(2..), weight.dims().get(2..)) else {
        return Err(c.error(format!("an input {} and a weight {}", x.shape(), weight.shape())));
    };
    let d = space.len();
    let list = |name: &str, default: usize| -> Result<Vec<usize>> {
        let given = c.ints(name)?.map_or(Ok(vec![default; d]), |list| window_sizes(c, &list))?;
        if given.len() == d { Ok(given) } else { Err(c.error(format!("{name} {given:?} for {d} axes"))) }
    };
    if kernel.len() != d || space.contains(&0) || kernel.contains(&0) {
        return Err(c.error(format!("an input {} and a weight {}", x.shape(), weight.shape())));
    }
    let (stride, dilation, more) = (list("strides", 1)?, list("dilations", 1)?, list("output_padding", 0)?);
    let full = |axis: usize| (space[axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1;
    let auto = c.text_or("auto_pad", "NOTSET")?;
    // Where each axis of the output begins in the full one, and its length.
    let wanted = match c.ints("output_shape")? {
        Some(list) => Some(sizes(c, list.get(list.len().saturating_sub(d)..).unwrap_or(&[]))?),
        None if auto.starts_with("SAME") => Some((0..d).map(|axis| space[axis] * stride[axis]).collect()),
        None => None,
    };
    let cuts: Vec<(usize, usize)> = match &wanted {
        Some(wanted) if wanted.len() == d => (0..d)
            .map(|axis| {
                let all = (full(axis) + more[axis]).saturating_sub(wanted[axis]);
                // ONNX puts the odd one at the start unless asked for the upper side.
                let before = if auto == "SAME_UPPER" { all / 2 } else { all - all / 2 };
                (before, wanted[axis])
            })
            .collect(),
        Some(wanted) => return Err(c.error(format!("output_shape {wanted:?} for {d} axes"))),
        None => {
            let pads = if auto == "VALID" { vec![(0, 0); d] } else { pad_pairs(c, d)? };
            let size = |axis: usize| {
                (full(axis) + more[axis])
                    .checked_sub(pads[axis].0 + pads[axis].1)
                    .ok_or_else(|| c.error("the pads cut more off than there is"))
            };
            (0..d).map(|axis| Ok((pads[axis].0, size(axis)?))).collect::<Result<_>>()?
        }
    };
    let groups = usize::try_from(c.int_or("group", 1)?).unwrap_or(0);
    macro_rules! call {
        ($d:literal, $f:ident) => {{
            let (stride, dilation) = (array(&stride), array(&dilation));
            let options = ConvTransposeOptions::<$d> { stride, dilation, groups, ..Default::default() };
            $f(&x, &weight, None, options)?
        }};
    }
    let mut y = match d {
        1 => call!(1, conv_transpose1d),
        2 => call!(2, conv_transpose2d),
        3 => call!(3, conv_transpose3d),
        _ => return Err(c.error(format!("convolutions have one to three axes after the channels, not {d}"))),
    };
    for (axis, &(before, size)) in cuts.iter().enumerate() {
        let (axis, n) = (axis + 2, y.dims()[axis + 2]);
        let missing = (before + size).saturating_sub(n);
        if missing > 0 {
            let mut padding = vec![(0, 0); y.rank()];
            padding[axis] = (0, missing);
            y = y.pad(&padding, 0.0)?;
        }
        y = y.narrow(axis, before, size)?;
    }
    if let Some(bias) = bias {
        let mut shape = vec![1; y.rank()];
        shape[1] = bias.numel();
        y = y.add(&bias.reshape(shape)?)?;
    }
    one(y)
}

/// α·A·B + β·C, with A and B transposed if asked.
fn gemm(c: &Context<'_>) -> Result<Vec<Value>> {
    let turned = |x: Tensor, name: &str| if c.flag(name, false)? { x.t() } else { Ok(x) };
    let (a, b) = (turned(c.tensor(0)?, "transA")?, turned(c.tensor(1)?, "transB")?);
    let (alpha, beta) = (c.number_or("alpha", 1.0)?, c.number_or("beta", 1.0)?);
    let scaled = |x: Tensor, by: f64| if by == 1.0 { x } else { x.mul_scalar(by) };
    let product = scaled(a.matmul(&b)?, alpha);
    one(match c.optional_tensor(2)? {
        Some(bias) if beta != 0.0 => product.add(&scaled(bias, beta))?,
        _ => product,
    })
}

#[cfg(feature = "linalg")]
fn determinant(c: &Context<'_>) -> Result<Vec<Value>> {
    one(linalg::det(&c.tensor(0)?)?)
}

#[cfg(not(feature = "linalg"))]
fn determinant(c: &Context<'_>) -> Result<Vec<Value>> {
    Err(c.error("determinants need the feature `linalg`"))
}

/// Columns summed into an image.
fn col2im(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let shape = |index: usize| -> Result<Vec<usize>> {
        sizes(c, &c.integers(index)?.ok_or_else(|| c.error("a shape is missing"))?)
    };
    let (image, block) = (shape(1)?, shape(2)?);
    if x.rank() != 3 || image.len() != block.len() {
        return Err(c.error(format!("columns {} for an image {image:?} of blocks {block:?}", x.shape())));
    }
    let w = Windows::of(c, &image, block)?;
    if let (&[height, width], true) = (image.as_slice(), w.pads.iter().all(|(a, b)| a == b)) {
        let options = FoldOptions {
            dilation: array(&w.dilation),
            padding: array(&w.pads.iter().map(|pad| pad.0).collect::<Vec<_>>()),
            stride: array(&w.stride),
        };
        return one(fold(&x, [height, width], array::<2, usize>(&w.kernel), options)?);
    }
    // Each element of a block is added where it is in the padded image.
    let padded: Vec<usize> = image.iter().zip(&w.pads).map(|(n, (a, b))| n + a + b).collect();
    let count = |axis: usize| {
        let reach = (w.kernel[axis] - 1) * w.dilation[axis] + 1;
        let room =
            padded[axis].checked_sub(reach).ok_or_else(|| c.error("a block is larger than the image"))?;
        Ok(room / w.stride[axis] + 1)
    };
    let counts: Vec<usize> = (0..image.len()).map(count).collect::<Result<_>>()?;
    let (area, block): (usize, usize) = (padded.iter().product(), w.kernel.iter().product());
    let (n, channels) = (x.dims()[0], x.dims()[1] / block);
    let blocks: usize = counts.iter().product();
    if x.dims()[1] != channels * block || x.dims()[2] != blocks {
        return Err(c.error(format!("columns {} for {blocks} blocks of {block}", x.shape())));
    }
    let mut places = Vec::with_capacity(c.table_len(&[block, blocks])?);
    for element in 0..block {
        for number in 0..blocks {
            let (mut e, mut b, mut place, mut stride) = (element, number, 0, 1);
            for axis in (0..image.len()).rev() {
                let at = b % counts[axis] * w.stride[axis] + e % w.kernel[axis] * w.dilation[axis];
                place += at * stride;
                stride *= padded[axis];
                e /= w.kernel[axis];
                b /= counts[axis];
            }
            places.push(place as i64);
        }
    }
    let count = places.len();
    let index = Tensor::from_vec(places, [count], c.device())?.to_dtype(c.index_dtype())?;
    let rows = x.reshape([n * channels, block * blocks])?;
    let zeros = Tensor::zeros([n * channels, area], (x.dtype(), c.device()))?;
    let shape: Vec<usize> = [n, channels].iter().chain(&padded).copied().collect();
    let mut sum = zeros.index_add(1, &index, &rows)?.reshape(shape)?;
    for (axis, (&(before, _), &size)) in w.pads.iter().zip(&image).enumerate() {
        sum = sum.narrow(axis + 2, before, size)?;
    }
    one(sum)
}

/// A convolution whose elements are read at places that are moved by offsets, between pixels, and weighed
/// by a mask. Dai et al.: Deformable convolutional networks (2017).
fn deformable(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, weight, offset) = (c.tensor(0)?, c.tensor(1)?, c.tensor(2)?);
    let (bias, mask) = (c.optional_tensor(3)?, c.optional_tensor(4)?);
    let (&[n, channels, height, width], &[out, _, kernel_h, kernel_w]) = (x.dims(), weight.dims()) else {
        return Err(c.error("deformable convolutions are of images [N, C, H, W]"));
    };
    let w = Windows::of(c, &[height, width], vec![kernel_h, kernel_w])?;
    let parts = usize::try_from(c.int_or("offset_group", 1)?).unwrap_or(0);
    let groups = usize::try_from(c.int_or("group", 1)?).unwrap_or(0);
    let &[_, _, out_h, out_w] = offset.dims() else { return Err(c.error("offsets are [N, .., H, W]")) };
    if parts == 0 || groups == 0 || channels % parts != 0 {
        return Err(c.error(format!("{channels} channels in {parts} offset groups")));
    }
    let window = kernel_h * kernel_w;
    // Places without offsets, [window, out_h, out_w], of y and of x.
    let device = c.device();
    let mut places = Vec::with_capacity(c.table_len(&[2, window, out_h, out_w])?);
    for axis in 0..2 {
        for element in 0..window {
            for row in 0..out_h {
                for column in 0..out_w {
                    let (at, inner) =
                        if axis == 0 { (row, element / kernel_w) } else { (column, element % kernel_w) };
                    let place =
                        (at * w.stride[axis] + inner * w.dilation[axis]) as f64 - w.pads[axis].0 as f64;
                    places.push(place);
                }
            }
        }
    }
    let places =
        Tensor::from_vec(places.iter().map(|&p| p as f32).collect(), [2, window, out_h, out_w], device)?;
    let offsets = offset.reshape([n * parts, window, 2, out_h, out_w])?.permute([0, 2, 1, 3, 4])?;
    let places = places.to_dtype(x.dtype())?.add(&offsets)?;
    let images = x.reshape([n * parts, channels / parts, height * width])?;
    let read = between(&images, &places.reshape([n * parts, 2, window * out_h * out_w])?, [height, width])?;
    let mut read = read.reshape([n, parts, channels / parts, window, out_h * out_w])?;
    if let Some(mask) = mask {
        read = read.mul(&mask.reshape([n, parts, 1, window, out_h * out_w])?)?;
    }
    // One product for each group.
    let rows = read.reshape([n, groups, channels / groups * window, out_h * out_w])?;
    let weights = weight.reshape([groups, out / groups, channels / groups * window])?;
    let mut y = weights.to_dtype(rows.dtype())?.matmul(&rows)?.reshape([n, out, out_h, out_w])?;
    if let Some(bias) = bias {
        y = y.add(&bias.reshape([1, out, 1, 1])?)?;
    }
    one(y)
}

/// Images `[N, C, H·W]` at places `[N, 2, K]` (y, then x), between the four pixels around each, with zeros
/// beyond the edges: `[N, C, K]`.
fn between(images: &Tensor, places: &Tensor, sizes: [usize; 2]) -> Result<Tensor> {
    let &[n, channels, _] = images.dims() else { return Ok(images.clone()) };
    let count = places.dims()[2];
    let corners = places.detach().floor();
    let mut sum: Option<Tensor> = None;
    for corner in [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] {
        let mut index = corners.select(1, 0)?.zeros_like();
        let mut weight = index.ones_like();
        for axis in 0..2 {
            let pixel = corners.select(1, axis)?.add_scalar(corner[axis]);
            let near = places.select(1, axis)?.sub(&pixel)?.abs().neg().add_scalar(1.0);
            let last = sizes[axis] as f64 - 1.0;
            let inside = pixel.ge_scalar(0.0).logical_and(pixel.le_scalar(last))?;
            weight = weight.mul(&inside.where_cond(&near, &near.zeros_like())?)?;
            index = index.mul_scalar(sizes[axis] as f64).add(&pixel.clamp(0.0, last))?;
        }
        let index =
            index.to_dtype(images.device().int_dtype())?.unsqueeze(1)?.expand([n, channels, count])?;
        let part = images.gather(2, &index)?.mul(&weight.unsqueeze(1)?)?;
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    Ok(sum.unwrap_or_else(|| images.clone()))
}
