//! Pooling in one to three dimensions: reductions over windows, which are a view of the input.

use std::sync::Arc;

use autograd::{Function, apply};
use tensor_core::{Argument, DType, Error, ErrorKind, MaxPool, Result, Shape, Tensor, caller_line, traced};

use super::{by_dims, conv::Window, is_gpu, pad::padded};

/// The arrangement of windows over `D` axes, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions<const D: usize> {
    /// The distance between windows; `None`, the default, is the size of a window, so that windows do not
    /// overlap.
    pub stride: Option<[usize; D]>,
    /// Elements added before and after each axis, at most half a window: −∞ for maxima, 0 for means. None by
    /// default.
    pub padding: [usize; D],
    /// The distance between the elements of a window; 1 by default, and 1 for means.
    pub dilation: [usize; D],
    /// Whether a last window that extends past the end is used, if it begins within the input or its left
    /// padding. Off by default.
    pub ceil_mode: bool,
    /// For means: whether an average counts padding. It does by default.
    pub count_include_pad: bool,
    /// For means: the divisor of sums, instead of the number of elements. `None` by default.
    pub divisor_override: Option<usize>,
}

impl<const D: usize> Default for PoolOptions<D> {
    fn default() -> PoolOptions<D> {
        PoolOptions {
            stride: None,
            padding: [0; D],
            dilation: [1; D],
            ceil_mode: false,
            count_include_pad: true,
            divisor_override: None,
        }
    }
}

macro_rules! pools {
    ($($(#[$doc:meta])* $name:ident, $with:ident, $d:literal, $general:ident;)*) => {$(
        $(#[$doc])*
        ///
        #[doc = concat!("Windows do not overlap: the stride is a window. [`", stringify!($with), "`] has the settings.")]
        ///
        /// # Errors
        /// An input with neither one nor two more axes than the window, a dtype that is not floating-point,
        /// a window of 0, or one that is larger than the input.
        #[track_caller]
        pub fn $name(input: &Tensor, window: impl Into<Window<$d>>) -> Result<Tensor> {
            $general(stringify!($name), input, window.into().0, PoolOptions::default())
        }

        #[doc = concat!("[`", stringify!($name), "`] with a stride, padding and other settings.")]
        ///
        /// # Errors
        /// An input with neither one nor two more axes than the window, a dtype that is not floating-point,
        /// a window, stride or dilation of 0, padding of more than half a window, a window that does not fit
        /// in the padded input: larger than it, or, with `ceil_mode`, larger by a stride or more. A
        /// `divisor_override` of 0, or for maxima.
        #[track_caller]
        pub fn $with(
            input: &Tensor,
            window: impl Into<Window<$d>>,
            options: PoolOptions<$d>,
        ) -> Result<Tensor> {
            $general(stringify!($name), input, window.into().0, options)
        }
    )*};
}

pools! {
    /// Max pooling of `[N, C, L]` or `[C, L]`. `torch.nn.functional.max_pool1d`. See [`max_pool2d`].
    max_pool1d, max_pool1d_with, 1, max_pool;
    /// Max pooling: the greatest element of each window `[h, w]` of `[N, C, H, W]` or `[C, H, W]`: `[N, C,
    /// (H + 2p − d·(h − 1) − 1) / s + 1, …]` with padding p, dilation d, stride s of [`max_pool2d_with`].
    /// NaN counts as the greatest. The gradient goes to the first of equal elements.
    /// `torch.nn.functional.max_pool2d`.
    ///
    /// ```
    /// use nn::functional::max_pool2d;
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let x = Tensor::arange(0.0, 16.0, 1.0, &backend_cpu::cpu())?.reshape([1, 1, 4, 4])?;
    /// let y = max_pool2d(&x, 2)?; // windows [2, 2]
    /// assert_eq!(y.to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
    /// # Ok(()) }
    /// ```
    max_pool2d, max_pool2d_with, 2, max_pool;
    /// Max pooling of `[N, C, D, H, W]` or `[C, D, H, W]`. `torch.nn.functional.max_pool3d`. See
    /// [`max_pool2d`].
    max_pool3d, max_pool3d_with, 3, max_pool;
    /// Average pooling of `[N, C, L]` or `[C, L]`. `torch.nn.functional.avg_pool1d`. See [`avg_pool2d`].
    avg_pool1d, avg_pool1d_with, 1, avg_pool;
    /// Average pooling: the mean of each window `[h, w]` of `[N, C, H, W]` or `[C, H, W]`. Padding counts as
    /// zeros unless `count_include_pad` of [`avg_pool2d_with`] is off. `torch.nn.functional.avg_pool2d`.
    avg_pool2d, avg_pool2d_with, 2, avg_pool;
    /// Average pooling of `[N, C, D, H, W]` or `[C, D, H, W]`. `torch.nn.functional.avg_pool3d`. See
    /// [`avg_pool2d`].
    avg_pool3d, avg_pool3d_with, 3, avg_pool;
}

/// Max pooling that also returns, as i64 (i32 on devices without i64), the flat index of each maximum in its
/// channel of the input. `return_indices=True` of `torch.nn.functional.max_pool2d`.
///
/// # Errors
/// As [`max_pool2d_with`].
#[track_caller]
pub fn max_pool_with_indices<const D: usize>(
    input: &Tensor,
    window: [usize; D],
    options: PoolOptions<D>,
) -> Result<(Tensor, Tensor)> {
    let _line = caller_line();
    const OP: &str = "max_pool";
    check_no_divisor(OP, options)?;
    let (x, pool) = Pool::of(OP, input, window, options)?;
    let (maxima, indices) = apply(Maxima(pool), &[&x])?;
    let indices = indices.to_dtype(x.device().int_dtype())?;
    let shape = pool.unbatched(input, &maxima);
    Ok((maxima.reshape(shape.clone())?, indices.reshape(shape)?))
}

macro_rules! lp_pools {
    ($($(#[$doc:meta])* $name:ident, $d:literal;)*) => {$(
        $(#[$doc])*
        /// The gradient is 0 where the sum is 0. With `ceil_mode`, the mean over the part of a window within
        /// the input is multiplied by the whole window's size, as in PyTorch.
        ///
        /// # Errors
        /// As [`max_pool2d_with`]; also padding or dilation, which this pooling does not have, and a power
        /// of 0 or NaN.
        #[track_caller]
        pub fn $name(
            input: &Tensor,
            norm_type: f64,
            window: impl Into<Window<$d>>,
            options: PoolOptions<$d>,
        ) -> Result<Tensor> {
            lp_pool(stringify!($name), input, norm_type, window.into().0, options)
        }
    )*};
}

lp_pools! {
    /// Power-average pooling of `[N, C, L]` or `[C, L]`: (Σxᵖ)^(1/p) over each window, with p the
    /// `norm_type`. `torch.nn.functional.lp_pool1d`.
    lp_pool1d, 1;
    /// Power-average pooling of `[N, C, H, W]` or `[C, H, W]`: (Σxᵖ)^(1/p) over each window, with p the
    /// `norm_type`. `torch.nn.functional.lp_pool2d`.
    lp_pool2d, 2;
    /// Power-average pooling of `[N, C, D, H, W]` or `[C, D, H, W]`: (Σxᵖ)^(1/p) over each window, with p
    /// the `norm_type`. `torch.nn.functional.lp_pool3d`.
    lp_pool3d, 3;
}

#[track_caller]
pub(crate) fn lp_pool<const D: usize>(
    op: &'static str,
    input: &Tensor,
    p: f64,
    window: [usize; D],
    options: PoolOptions<D>,
) -> Result<Tensor> {
    let _line = caller_line();
    if !p.is_finite() || p == 0.0 {
        return Err(Error::invalid(op, format!("the power {p}: give a finite one that is not 0")));
    }
    if options.padding != [0; D] {
        return Err(Error::invalid(op, "windows of norms have no padding; pad the input first"));
    }
    check_no_divisor(op, options)?;
    let size: usize = window.iter().product();
    let whole = p.fract() == 0.0 && p.abs() <= 64.0;
    let wide = input.to_dtype(input.dtype().compute())?;
    let powers = if whole { wide.powi(p as i32) } else { wide.powf(p) };
    let sums = avg_pool(op, &powers, window, options)?.mul_scalar(size as f64);
    // The derivative of a root at 0 may be infinite, so zeros are replaced first.
    let zero = sums.eq_scalar(0.0);
    sums.masked_fill(&zero, 1.0)?.powf(1.0 / p).masked_fill(&zero, 0.0)?.to_dtype(input.dtype())
}

/// The output size of [`max_unpool2d`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpoolOptions<const D: usize> {
    /// The stride of the pooling; `None`, the default, is the size of a window.
    pub stride: Option<[usize; D]>,
    /// The padding of the pooling. None by default.
    pub padding: [usize; D],
    /// The sizes of the output. `None`, the default, is (in − 1)·stride − 2·padding + window; other sizes
    /// differ by less than a stride.
    pub output_size: Option<[usize; D]>,
}

impl<const D: usize> Default for UnpoolOptions<D> {
    fn default() -> UnpoolOptions<D> {
        UnpoolOptions { stride: None, padding: [0; D], output_size: None }
    }
}

macro_rules! unpools {
    ($($(#[$doc:meta])* $name:ident, $d:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// If several elements have one index, the last of them is kept.
        ///
        /// # Errors
        /// An input with neither one nor two more axes than the window, a dtype that is not floating-point,
        /// indices of another shape or of no integer dtype, a window or stride of 0, an output size that
        /// differs from the default by a stride or more. An index outside the output is an `IndexOutOfRange`
        /// when the result is computed.
        #[track_caller]
        pub fn $name(
            input: &Tensor,
            indices: &Tensor,
            window: impl Into<Window<$d>>,
            options: UnpoolOptions<$d>,
        ) -> Result<Tensor> {
            max_unpool(stringify!($name), input, indices, window.into().0, options)
        }
    )*};
}

unpools! {
    /// The partial inverse of [`max_pool1d`]: each element at its index, zeros elsewhere.
    /// `torch.nn.functional.max_unpool1d`.
    max_unpool1d, 1;
    /// The partial inverse of [`max_pool2d`]: each element of `[N, C, h, w]` at its index in its channel, as
    /// [`max_pool_with_indices`] returns them, and zeros elsewhere. `torch.nn.functional.max_unpool2d`.
    max_unpool2d, 2;
    /// The partial inverse of [`max_pool3d`]: each element at its index, zeros elsewhere.
    /// `torch.nn.functional.max_unpool3d`.
    max_unpool3d, 3;
}

#[track_caller]
pub(crate) fn max_unpool<const D: usize>(
    op: &'static str,
    input: &Tensor,
    indices: &Tensor,
    window: [usize; D],
    options: UnpoolOptions<D>,
) -> Result<Tensor> {
    let _line = caller_line();
    let UnpoolOptions { stride, padding, output_size } = options;
    let stride = stride.unwrap_or(window);
    let wrong = |message: String| Err(Error::invalid(op, message).here());
    check_input::<D>(op, input)?;
    if indices.shape() != input.shape() {
        let (lhs, rhs) = (input.shape().clone(), indices.shape().clone());
        let hint = "give one index for each element, as max_pool_with_indices does".into();
        return Err(Error::new(ErrorKind::ShapeMismatch { op, lhs, rhs, hint }));
    }
    if !indices.dtype().is_int() {
        let hint = "indices are whole numbers, as max_pool_with_indices gives them".into();
        return Err(Error::new(ErrorKind::DTypeMismatch { op, lhs: indices.dtype(), rhs: DType::I64, hint }));
    }
    if [window, stride].iter().flatten().any(|&n| n == 0) {
        return wrong(format!("window {window:?}, stride {stride:?}: give numbers above 0"));
    }
    let (lead, sizes) = input.dims().split_at(input.rank() - D);
    let mut wanted = [0; D];
    for axis in 0..D {
        let steps = (sizes[axis] as i128 - 1) * stride[axis] as i128;
        let usual = steps - 2 * padding[axis] as i128 + window[axis] as i128;
        let found = output_size.map_or(usual, |sizes| sizes[axis] as i128);
        if found <= 0 || sizes[axis] == 0 || (found - usual).abs() >= stride[axis] as i128 && found != usual {
            return wrong(format!(
                "an output of size {found} along axis {axis} of {sizes:?}: the usual is {usual}, and others differ by less than the \
                 stride {}",
                stride[axis]
            ));
        }
        wanted[axis] = found as usize;
    }
    let lines = |t: &Tensor, size: usize| t.reshape([lead.iter().product(), size]);
    let count = sizes.iter().product();
    let (x, indices) = (lines(input, count)?, lines(indices, count)?);
    let zeros = Tensor::zeros([x.dims()[0], wanted.iter().product()], (x.dtype(), &x.device()))?;
    // Windows that do not overlap have no element in common.
    let apart = (0..D).all(|axis| stride[axis] >= window[axis]);
    let out =
        if apart { zeros.scatter_add(1, &indices, &x)? } else { apply(Unpool, &[&x, &indices, &zeros])? };
    out.reshape(lead.iter().copied().chain(wanted).collect::<Shape>())
}

/// Places elements at their indices along axis 1; of several with one index the last is kept. Its gradient
/// flows to all of them, as in PyTorch.
#[derive(Debug)]
struct Unpool;

impl Function for Unpool {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "MaxUnpool"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, indices, zeros) = (inputs[0], inputs[1], inputs[2]);
        let count = x.dims()[1];
        let (sorted, order) = indices.sort(1, false)?;
        let next = sorted.narrow(1, 1, count - 1)?.pad(&[(0, 0), (0, 1)], -1)?;
        let last = sorted.ne(&next)?;
        // Among equal indices all but the last element add 0.
        let values = x.gather(1, &order)?;
        let kept = last.where_cond(&values, &values.zeros_like())?;
        zeros.scatter_add(1, &sorted, &kept)
    }

    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradient.gather(1, &inputs[1])?), None, None])
    }
}

/// Checks that the input is floating-point `[N, C, …]` or `[C, …]`, with `D` axes after C.
#[track_caller]
pub(super) fn check_input<const D: usize>(op: &'static str, input: &Tensor) -> Result<()> {
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
    Ok(())
}

#[track_caller]
pub(crate) fn max_pool<const D: usize>(
    op: &'static str,
    input: &Tensor,
    window: [usize; D],
    options: PoolOptions<D>,
) -> Result<Tensor> {
    let _line = caller_line();
    check_no_divisor(op, options)?;
    let (x, pool) = Pool::of(op, input, window, options)?;
    let out = if x.is_tracked() && tensor_core::is_grad_enabled() {
        apply(Maxima(pool), &[&x])?.0
    } else {
        let axes: Vec<usize> = (2..2 + D).collect();
        pool.windows(&x, PADDING_VALUE)?.amax(axes.as_slice(), false)?
    };
    let out = traced("max_pool", [Some(&x)], out, || pool.arguments());
    out.reshape(pool.unbatched(input, &out))
}

#[track_caller]
pub(crate) fn avg_pool<const D: usize>(
    op: &'static str,
    input: &Tensor,
    window: [usize; D],
    options: PoolOptions<D>,
) -> Result<Tensor> {
    let _line = caller_line();
    if options.dilation != [1; D] {
        return Err(Error::invalid(op, "windows of means have no dilation").here());
    }
    if options.divisor_override == Some(0) {
        return Err(Error::invalid(op, "divisor_override 0: give at least 1").here());
    }
    let (x, pool) = Pool::of(op, input, window, options)?;
    let axes: Vec<usize> = (2..2 + D).collect();
    // Half types are added and divided in f32.
    let windows = pool.windows(&x, 0.0)?.to_dtype(x.dtype().compute())?;
    let sum = windows.sum_axis(axes.as_slice(), false)?;
    if let Some(divisor) = options.divisor_override {
        let out = sum.mul_scalar(1.0 / divisor as f64).to_dtype(input.dtype())?;
        return out.reshape(pool.unbatched(input, &out));
    }
    // The number of counted elements of each window, along each axis.
    let mut out = sum;
    for axis in 0..D {
        let counts = pool.counts(axis, options.count_include_pad);
        let mut shape = vec![1; out.rank()];
        shape[2 + axis] = counts.len();
        out = match counts.iter().all(|count| *count == counts[0]) {
            true => out.mul_scalar(1.0 / counts[0]),
            false => {
                let shares: Vec<f64> = counts.iter().map(|count| 1.0 / count).collect();
                let shares = Tensor::new(shares, (out.dtype(), &out.device()))?;
                out.mul(&shares.reshape(shape)?)?
            }
        };
    }
    let out = out.to_dtype(input.dtype())?;
    let out = traced("avg_pool", [Some(&x)], out, || {
        let mut arguments = pool.arguments();
        arguments.push(("count_include_pad", Argument::Int(i64::from(options.count_include_pad))));
        arguments
    });
    out.reshape(pool.unbatched(input, &out))
}

/// Refuses a divisor for a pooling that does not divide sums.
#[track_caller]
fn check_no_divisor<const D: usize>(op: &'static str, options: PoolOptions<D>) -> Result<()> {
    if options.divisor_override.is_none() {
        return Ok(());
    }
    Err(Error::invalid(op, "divisor_override is for the windows of means").here())
}

/// Windows that fit the input `[N, C, …]`.
#[derive(Clone, Copy, Debug)]
struct Pool<const D: usize> {
    window: [usize; D],
    stride: [usize; D],
    dilation: [usize; D],
    /// The sizes of the input, and the numbers of windows.
    sizes: [usize; D],
    outputs: [usize; D],
    /// Elements added before and after each axis.
    padding: [(usize, usize); D],
    /// The requested padding of both sides: positions beyond it are no elements.
    asked: [usize; D],
}

impl<const D: usize> Pool<D> {
    /// The arguments for a trace. `extends` is 1 if windows reach beyond the requested padding.
    fn arguments(&self) -> Vec<(&'static str, Argument)> {
        let (before, after): (Vec<usize>, Vec<usize>) = self.padding.iter().copied().unzip();
        let extends = after.iter().zip(&self.asked).any(|(after, asked)| after > asked);
        let asked = [self.asked, self.asked].concat();
        vec![
            ("kernel_shape", Argument::sizes(&self.window)),
            ("strides", Argument::sizes(&self.stride)),
            ("dilations", Argument::sizes(&self.dilation)),
            ("pads", Argument::sizes(&if extends { [before, after].concat() } else { asked })),
            ("extends", Argument::Int(i64::from(extends))),
        ]
    }

    #[track_caller]
    fn of(
        op: &'static str,
        input: &Tensor,
        window: [usize; D],
        options: PoolOptions<D>,
    ) -> Result<(Tensor, Pool<D>)> {
        let _line = caller_line();
        let PoolOptions { stride, padding: asked, dilation, ceil_mode, .. } = options;
        let stride = stride.unwrap_or(window);
        let wrong = |message: String| Err(Error::invalid(op, message).here());
        check_input::<D>(op, input)?;
        if [window, stride, dilation].iter().flatten().any(|&n| n == 0) {
            return wrong(format!(
                "window {window:?}, stride {stride:?}, dilation {dilation:?}: give numbers above 0"
            ));
        }
        let x = if input.rank() == D + 1 { input.unsqueeze(0)? } else { input.clone() };
        let sizes: [usize; D] = std::array::from_fn(|axis| x.dims()[2 + axis]);
        let (mut outputs, mut padding) = ([0; D], [(0, 0); D]);
        for axis in 0..D {
            let (size, pad, step) = (sizes[axis], asked[axis], stride[axis]);
            let reach = dilation[axis].saturating_mul(window[axis] - 1).saturating_add(1);
            if pad > reach / 2 {
                return wrong(format!(
                    "padding {pad} along a window of {} is more than half of it",
                    window[axis]
                ));
            }
            let room = size + 2 * pad;
            // A window larger than the input is its last one.
            let is_last = ceil_mode && size > 0 && reach.saturating_sub(room) < step;
            if reach > room && !is_last {
                return wrong(format!(
                    "a window that reaches over {reach}; axis {} of the padded input {} has {room}",
                    2 + axis,
                    x.shape()
                ));
            }
            let left = room.saturating_sub(reach);
            let mut count = left / step + 1;
            // One more window that extends past the end, if it begins before the right padding does.
            if ceil_mode && !left.is_multiple_of(step) && count * step < size + pad {
                count += 1;
            }
            outputs[axis] = count;
            let end = (count - 1) * step + reach;
            padding[axis] = (pad, end.saturating_sub(size + pad));
        }
        Ok((x, Pool { window, stride, dilation, sizes, outputs, padding, asked }))
    }

    /// The input's windows, `[N, C, window…, outputs…]`, with padding of `value`.
    #[track_caller]
    fn windows(&self, x: &Tensor, value: f64) -> Result<Tensor> {
        if self.are_tiles() {
            return self.tiles(x);
        }
        let mut windows = padded(x, &self.padding, value)?;
        for axis in 0..D {
            windows = windows.windows(2 + axis, self.window[axis], self.stride[axis], self.dilation[axis])?;
        }
        // If no window begins at the end, there may be room for more windows.
        for axis in 0..D {
            windows = windows.narrow(2 + axis, 0, self.outputs[axis])?;
        }
        let order: Vec<usize> = [0, 1].into_iter().chain(2 + D..2 + 2 * D).chain(2..2 + D).collect();
        windows.permute(order)
    }

    /// Whether windows are adjacent, without padding.
    fn are_tiles(&self) -> bool {
        let apart = (0..D).all(|axis| self.dilation[axis] == 1 || self.window[axis] == 1);
        apart && self.stride == self.window && self.padding == [(0, 0); D]
    }

    /// As [`Pool::windows`] for adjacent windows: a reshape of the input, and so are its gradients.
    #[track_caller]
    fn tiles(&self, x: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let mut whole = x.clone();
        let mut shape = x.dims()[..2].to_vec();
        for axis in 0..D {
            let size = self.outputs[axis] * self.window[axis];
            if size != self.sizes[axis] {
                whole = whole.narrow(2 + axis, 0, size)?;
            }
            shape.extend([self.outputs[axis], self.window[axis]]);
        }
        let order = (0..D).map(|axis| 3 + 2 * axis).chain((0..D).map(|axis| 2 + 2 * axis));
        whole.reshape(shape)?.permute([0, 1].into_iter().chain(order).collect::<Vec<usize>>())
    }

    /// The number of elements of each window along an axis, with or without the padding.
    fn counts(&self, axis: usize, with_padding: bool) -> Vec<f64> {
        let (size, pad) = (self.sizes[axis], self.asked[axis]);
        let within = if with_padding { 0..size + 2 * pad } else { pad..size + pad };
        (0..self.outputs[axis])
            .map(|i| {
                let start = i * self.stride[axis];
                let end = (start + self.window[axis]).min(within.end);
                end.saturating_sub(start.max(within.start)) as f64
            })
            .collect()
    }

    /// The sizes of an output, without the batch axis if the input has none.
    fn unbatched(&self, input: &Tensor, out: &Tensor) -> Shape {
        let lead = usize::from(input.rank() == D + 1);
        out.dims()[lead..].iter().copied().collect()
    }

    /// The flat index in its channel, as i32, of the first element of each window that equals its maximum.
    #[track_caller]
    fn indices(&self, x: &Tensor, maxima: &Tensor) -> Result<Tensor> {
        let windows = self.windows(x, PADDING_VALUE)?;
        let device = x.device();
        // The position of each element in its channel; padding has none.
        let channel: Vec<usize> = [1, 1].into_iter().chain(self.sizes).collect();
        let places = Tensor::arange(0, self.sizes.iter().product::<usize>(), 1, (DType::I32, &device))?;
        let places = self.windows(&places.reshape(channel)?, f64::from(i32::MAX))?;
        let mut wide = maxima.dims().to_vec();
        wide.splice(2..2, [1; D]);
        let maxima = maxima.reshape(wide)?;
        let found = windows.eq(&maxima)?.bitwise_or(&windows.ne(&windows)?)?;
        let nowhere = Tensor::full(Shape::scalar(), i32::MAX, (DType::I32, &device))?;
        let axes: Vec<usize> = (2..2 + D).collect();
        found.where_cond(&places, &nowhere)?.amin(axes.as_slice(), false)
    }

    /// Whether each element of the input is in one window.
    fn covers(&self) -> bool {
        (0..D).all(|axis| {
            self.stride[axis] == self.window[axis]
                && self.dilation[axis] == 1
                && self.padding[axis] == (0, 0)
                && self.sizes[axis] == self.outputs[axis] * self.window[axis]
        })
    }

    /// The gradient of maxima at these flat indices, if the windows cover the input: each element takes that
    /// of its window if the index is its own. Nothing is added, so that no scatter is needed.
    #[track_caller]
    fn spread(&self, gradient: &Tensor, indices: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let lead = &gradient.dims()[..2];
        let in_windows = |lead: &[usize], sizes: [usize; D]| -> Shape {
            let along = (0..D).flat_map(|axis| [self.outputs[axis], sizes[axis]]);
            lead.iter().copied().chain(along).collect()
        };
        let once = in_windows(lead, [1; D]);
        let count: usize = self.sizes.iter().product();
        let device = gradient.device();
        let own =
            Tensor::arange(0, count, 1, (indices.dtype(), &device))?.reshape(in_windows(&[], self.window))?;
        let nothing = Tensor::full(Shape::scalar(), 0, (gradient.dtype(), &device))?;
        let taken = indices.reshape(once.clone())?.eq(&own)?;
        let shape: Shape = lead.iter().chain(&self.sizes).copied().collect();
        taken.where_cond(&gradient.reshape(once)?, &nothing)?.reshape(shape)
    }

    /// The greatest element of each window and its flat index in its channel, if the device has a kernel for
    /// it.
    #[track_caller]
    fn by_kernel(&self, x: &Tensor) -> Result<Option<(Tensor, Tensor)>> {
        let _line = caller_line();
        // Axes that the windows lack have one element.
        let whole = |own: [usize; D], lacking: usize| {
            std::array::from_fn(|axis| (axis + D).checked_sub(3).map_or(lacking, |axis| own[axis]))
        };
        let kernel = Arc::new(MaxPool {
            window: whole(self.window, 1),
            stride: whole(self.stride, 1),
            dilation: whole(self.dilation, 1),
            padding: whole(self.padding.map(|(before, _)| before), 0),
            outputs: whole(self.outputs, 1),
        });
        let sizes: [usize; 3] = whole(self.sizes, 1);
        let lead = x.dims()[..2].to_vec();
        let planes: Shape = std::iter::once(lead.iter().product()).chain(sizes).collect();
        let planes = x.detach().reshape(planes)?;
        if !Tensor::has_custom_kernel(kernel.clone(), &[&planes])? {
            return Ok(None);
        }
        let shape: Shape = lead.into_iter().chain(self.outputs).collect();
        let mut found = Tensor::custom_kernel(kernel, &[&planes])?.into_iter();
        let mut next = || found.next().map(|result| result.reshape(shape.clone())).transpose();
        Ok(next()?.zip(next()?))
    }

    /// The greatest element of each window and its flat index in its channel: for small windows in one pass,
    /// which keeps the position of the greatest element so far.
    #[track_caller]
    fn maxima_and_indices(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        if let Some(found) = self.by_kernel(x)? {
            return Ok(found);
        }
        let taps: usize = self.window.iter().product();
        let device = x.device();
        // If the padding is the greatest, the first element inside is used: without dilation, the nearest
        // one.
        let clamped = (0..D).all(|axis| self.padding[axis].0 == 0 || self.dilation[axis] == 1);
        if !(2..=MOST_TAPS.min(device.info().limits.max_inputs)).contains(&taps) || !clamped {
            let axes: Vec<usize> = (2..2 + D).collect();
            let maxima = self.windows(x, PADDING_VALUE)?.amax(axes.as_slice(), false)?;
            let indices = self.indices(x, &maxima)?;
            return Ok((maxima, indices));
        }
        let windows = self.windows(x, PADDING_VALUE)?;
        let integer = |value: usize| Tensor::full(Shape::scalar(), value as i64, (DType::I32, &device));
        let mut found: Option<(Tensor, Tensor)> = None;
        // From the last tap on, so that the first of equal elements, and the first NaN, is kept.
        for tap in (0..taps).rev() {
            let (mut value, mut rest) = (windows.clone(), tap);
            for axis in (0..D).rev() {
                value = value.select(2 + axis, rest % self.window[axis])?;
                rest /= self.window[axis];
            }
            found = Some(match found {
                None => (value, integer(tap)?),
                Some((greatest, place)) => {
                    let taken = value.ge(&greatest)?.bitwise_or(&value.ne(&value)?)?;
                    (taken.where_cond(&value, &greatest)?, taken.where_cond(&integer(tap)?, &place)?)
                }
            });
        }
        let Some((maxima, mut rest)) = found else {
            return Err(Error::invalid("max_pool", "an empty window"));
        };
        let mut flat = integer(0)?;
        for axis in 0..D {
            // The position in the window along this axis: the remaining index divided by the axis's step.
            let below: usize = self.window[axis + 1..].iter().product();
            let mut along = integer(0)?;
            for step in 1..self.window[axis] {
                along = along.add(&rest.ge_scalar((step * below) as i64).to_dtype(DType::I32)?)?;
            }
            rest = rest.sub(&along.mul_scalar(below as i64))?;
            let mut shape = vec![1; 2 + D];
            shape[2 + axis] = self.outputs[axis];
            let (count, stride) = (self.outputs[axis], self.stride[axis] as i64);
            let starts = Tensor::arange(0, count, 1, (DType::I32, &device))?.mul_scalar(stride);
            let starts = starts.sub_scalar(self.padding[axis].0 as i64).reshape(shape)?;
            let mut place = along.mul_scalar(self.dilation[axis] as i64).add(&starts)?;
            if self.padding[axis].0 > 0 {
                place = place.maximum(&integer(0)?)?;
            }
            flat = flat.mul_scalar(self.sizes[axis] as i64).add(&place)?;
        }
        Ok((maxima, flat))
    }
}

/// The number of elements of a window up to which it is reduced in one expression.
const MOST_TAPS: usize = 16;

/// The padding value of max pooling.
const PADDING_VALUE: f64 = f64::NEG_INFINITY;

/// The greatest elements and, if a gradient needs them, their indices.
#[derive(Debug)]
struct Maxima<const D: usize>(Pool<D>);

impl<const D: usize> Function for Maxima<D> {
    type Output = (Tensor, Tensor);

    fn name(&self) -> &'static str {
        by_dims::<D>(["MaxPool1d", "MaxPool2d", "MaxPool3d"])
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<(Tensor, Tensor)> {
        self.0.maxima_and_indices(inputs[0])
    }

    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        (_, indices): &(Tensor, Tensor),
        (gradient, _): &(Option<Tensor>, Option<Tensor>),
    ) -> Result<Vec<Option<Tensor>>> {
        let x = &inputs[0];
        let Some(gradient) = gradient else { return Ok(vec![None]) };
        // The CPU scatters faster than it makes a pass over all elements.
        if self.0.covers() && is_gpu(&x.device()) {
            return Ok(vec![Some(self.0.spread(gradient, &indices.detach())?)]);
        }
        let lines = |t: &Tensor| {
            let per = t.dims()[2..].iter().product::<usize>();
            t.reshape([t.dims()[0], t.dims()[1], per])
        };
        let zeros = lines(x)?.zeros_like();
        let sums = zeros.scatter_add(2, &lines(&indices.detach())?, &lines(gradient)?)?;
        Ok(vec![Some(sums.reshape(x.shape())?)])
    }
}
