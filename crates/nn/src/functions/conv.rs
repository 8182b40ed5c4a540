//! Convolutions in one to three dimensions, and their transposes. Each is one contraction of the weight with
//! the windows of the input, which are a view, so that no matrix of all windows is copied.

use autograd::{Function, apply};
use tensor_core::{
    Argument, Error, ErrorKind, Result, Scalar, Shape, Subscripts, Tensor, autocast, caller_line, traced,
};

use super::pad::padded;

/// The sizes of a window along `D` axes: one number for all axes, or one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<const D: usize>(pub [usize; D]);

impl<const D: usize> From<usize> for Window<D> {
    fn from(size: usize) -> Window<D> {
        Window([size; D])
    }
}

impl<const D: usize> From<[usize; D]> for Window<D> {
    fn from(sizes: [usize; D]) -> Window<D> {
        Window(sizes)
    }
}

/// The zero padding of a convolution's input along each of `D` axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvPadding<const D: usize> {
    /// The output has the input's size, for a stride of 1: the padding is `dilation·(kernel − 1)` in all,
    /// with an odd element at the end.
    Same,
    /// Numbers of elements before the first element and after the last, along each axis.
    Each([(usize, usize); D]),
}

impl<const D: usize> ConvPadding<D> {
    /// The padding before and after each axis, for windows of `kernel` elements with this dilation.
    pub(crate) fn sides(self, kernel: [usize; D], dilation: [usize; D]) -> [(usize, usize); D] {
        match self {
            ConvPadding::Each(sides) => sides,
            ConvPadding::Same => std::array::from_fn(|axis| {
                let all = dilation[axis].saturating_mul(kernel[axis].saturating_sub(1));
                (all / 2, all - all / 2)
            }),
        }
    }
}

impl<const D: usize> Default for ConvPadding<D> {
    fn default() -> ConvPadding<D> {
        ConvPadding::Each([(0, 0); D])
    }
}

/// Converts one number: the padding of all sides.
impl<const D: usize> From<usize> for ConvPadding<D> {
    fn from(padding: usize) -> ConvPadding<D> {
        ConvPadding::Each([(padding, padding); D])
    }
}

/// Converts one number per axis: the padding of both its sides.
impl<const D: usize> From<[usize; D]> for ConvPadding<D> {
    fn from(padding: [usize; D]) -> ConvPadding<D> {
        ConvPadding::Each(padding.map(|p| (p, p)))
    }
}

/// Options of a convolution over `D` axes, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions<const D: usize> {
    /// The distance between windows along each axis. 1 by default.
    pub stride: [usize; D],
    /// The zero padding of the input. None by default.
    pub padding: ConvPadding<D>,
    /// The distance between the elements of a window. 1 by default.
    pub dilation: [usize; D],
    /// The number of groups of channels: output channels of a group are connected to the input channels of
    /// the same group. 1 by default.
    pub groups: usize,
}

impl<const D: usize> Default for ConvOptions<D> {
    fn default() -> ConvOptions<D> {
        ConvOptions { stride: [1; D], padding: ConvPadding::default(), dilation: [1; D], groups: 1 }
    }
}

/// Options of a transposed convolution over `D` axes, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTransposeOptions<const D: usize> {
    /// The stride of the convolution that this transposes. 1 by default.
    pub stride: [usize; D],
    /// The padding of that convolution, cut off the output on both sides. None by default.
    pub padding: [usize; D],
    /// Elements added at the end of each axis of the output, to select among the sizes that the convolution
    /// maps to one. None by default.
    pub output_padding: [usize; D],
    /// The distance between the elements of a window. 1 by default.
    pub dilation: [usize; D],
    /// The number of groups of channels, as in [`ConvOptions`].
    pub groups: usize,
}

impl<const D: usize> Default for ConvTransposeOptions<D> {
    fn default() -> ConvTransposeOptions<D> {
        ConvTransposeOptions {
            stride: [1; D],
            padding: [0; D],
            output_padding: [0; D],
            dilation: [1; D],
            groups: 1,
        }
    }
}

/// Convolution (cross-correlation) of `input` `[N, in, L]` with `weight` `[out, in / groups, k]`, plus
/// `bias` `[out]`: `[N, out, (L + padding − dilation·(k − 1) − 1) / stride + 1]`. An input without `N` gives
/// an output without `N`. `torch.nn.functional.conv1d`.
///
/// # Errors
/// As [`conv2d`].
#[track_caller]
pub fn conv1d(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvOptions<1>,
) -> Result<Tensor> {
    convolution("conv1d", input, weight, bias, options)
}

/// Convolution of images: `out[n, o, y, x] = bias[o] + Σ_{c, i, j} weight[o, c, i, j] · input[n, c, y·s +
/// i·d − p, x·s + j·d − p]`, with stride s, dilation d and padding p, for `input` `[N, in, H, W]` and
/// `weight` `[out, in / groups, kH, kW]`. `torch.nn.functional.conv2d`.
///
/// ```
/// use nn::functional::{ConvOptions, conv2d};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let image = Tensor::arange(0.0, 16.0, 1.0, &device)?.reshape((1, 1, 4, 4))?;
/// let edges = Tensor::new([[[[-1.0f32, 0.0, 1.0]]]], &device)?;
/// let y = conv2d(&image, &edges, None, ConvOptions { stride: [2, 1], ..Default::default() })?;
/// assert_eq!(y.dims(), [1, 1, 2, 2]);
/// assert_eq!(y.to_vec::<f32>()?, [2.0; 4]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// An input that is neither `[N, in, H, W]` nor `[in, H, W]`, channels that do not fit the weight, groups
/// that do not divide them, a stride or dilation of 0, a kernel larger than the padded input, `Same` padding
/// with another stride than 1, a bias of another shape, several dtypes or devices.
#[track_caller]
pub fn conv2d(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvOptions<2>,
) -> Result<Tensor> {
    convolution("conv2d", input, weight, bias, options)
}

/// Convolution of volumes: `input` `[N, in, D, H, W]` with `weight` `[out, in / groups, kD, kH, kW]`.
/// `torch.nn.functional.conv3d`.
///
/// # Errors
/// As [`conv2d`].
#[track_caller]
pub fn conv3d(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvOptions<3>,
) -> Result<Tensor> {
    convolution("conv3d", input, weight, bias, options)
}

/// The transpose of a convolution along one axis: see [`conv_transpose2d`].
/// `torch.nn.functional.conv_transpose1d`.
///
/// # Errors
/// As [`conv_transpose2d`].
#[track_caller]
pub fn conv_transpose1d(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvTransposeOptions<1>,
) -> Result<Tensor> {
    transposed_convolution("conv_transpose1d", input, weight, bias, options)
}

/// The transpose of [`conv2d`], which maps the size of its output back to that of its input: each element of
/// `input` `[N, in, H, W]` adds its multiple of `weight` `[in, out / groups, kH, kW]` to the output `[N,
/// out, (H − 1)·s − 2·p + d·(kH − 1) + output_padding + 1, …]`. `torch.nn.functional.conv_transpose2d`.
///
/// # Errors
/// As [`conv2d`], and an output padding that is neither below the stride nor below the dilation, or an
/// output without elements.
#[track_caller]
pub fn conv_transpose2d(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvTransposeOptions<2>,
) -> Result<Tensor> {
    transposed_convolution("conv_transpose2d", input, weight, bias, options)
}

/// The transpose of a convolution of volumes: see [`conv_transpose2d`].
/// `torch.nn.functional.conv_transpose3d`.
///
/// # Errors
/// As [`conv_transpose2d`].
#[track_caller]
pub fn conv_transpose3d(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvTransposeOptions<3>,
) -> Result<Tensor> {
    transposed_convolution("conv_transpose3d", input, weight, bias, options)
}

/// The checks of convolutions and their transposes. Returns the input as `[N, channels, …]`, and whether it
/// had no `N`.
#[track_caller]
fn batched<const D: usize>(
    op: &'static str,
    input: &Tensor,
    weight: &Tensor,
    bias: Option<(&Tensor, usize)>,
    steps: [[usize; D]; 2],
    groups: usize,
) -> Result<(Tensor, bool)> {
    let wrong = |message: String| Err(Error::invalid(op, message).here());
    alike(op, input, weight)?;
    if weight.rank() != D + 2 {
        return wrong(format!(
            "the weight must have {} axes, but {} has {}",
            D + 2,
            weight.shape(),
            weight.rank()
        ));
    }
    let alone = input.rank() == D + 1;
    if !alone && input.rank() != D + 2 {
        return wrong(format!(
            "the input has {} axes, [N, channels, …], or {} without N; shape {} has {}",
            D + 2,
            D + 1,
            input.shape(),
            input.rank()
        ));
    }
    if steps.iter().flatten().any(|&step| step == 0) || groups == 0 {
        return wrong(format!(
            "stride {:?}, dilation {:?} and {groups} groups must be above 0",
            steps[0], steps[1]
        ));
    }
    if weight.dims().contains(&0) {
        return wrong(format!("a weight of shape {} has no elements", weight.shape()));
    }
    if let Some((bias, outputs)) = bias {
        if bias.dims() != [outputs] {
            return wrong(format!("{outputs} output channels take a bias [{outputs}], not {}", bias.shape()));
        }
        alike(op, input, bias)?;
    }
    Ok((if alone { input.unsqueeze(0)? } else { input.clone() }, alone))
}

/// The number of groups of a convolution, for an error, if there are several.
fn in_groups(groups: usize) -> String {
    if groups == 1 { String::new() } else { format!(" in {groups} groups") }
}

/// A hint for an input whose last axis has the channels that are expected after the batch.
pub(super) fn channels_last<const D: usize>(input: &Tensor, channels: usize) -> String {
    let lead = input.rank().saturating_sub(D + 1);
    if lead > 1 || input.dims().last() != Some(&channels) || input.dims().get(lead) == Some(&channels) {
        return String::new();
    }
    let last = input.rank() - 1;
    let order: Vec<usize> = (0..lead).chain([last]).chain(lead..last).collect();
    format!("; the channels seem to be last: permute({order:?})")
}

/// Checks that the input has the device and dtype of a parameter.
#[track_caller]
pub(super) fn alike(op: &'static str, input: &Tensor, parameter: &Tensor) -> Result<()> {
    if input.device() != parameter.device() {
        return Err(input.on_another_device(op, parameter));
    }
    if input.dtype() != parameter.dtype() {
        let (lhs, rhs) = (input.dtype(), parameter.dtype());
        let hint = format!(
            "the input is {lhs} and the parameters are {rhs}: cast the input with .to_dtype(DType::{rhs:?})?"
        );
        return Err(Error::new(ErrorKind::DTypeMismatch { op, lhs, rhs, hint }));
    }
    Ok(())
}

/// Adds the bias, and removes a batch axis that was added.
#[track_caller]
fn finished<const D: usize>(
    out: Tensor,
    bias: Option<&Tensor>,
    alone: bool,
    note: impl FnOnce(Tensor) -> Tensor,
) -> Result<Tensor> {
    let out = match bias {
        Some(bias) => {
            let sizes: Shape = [bias.numel()].into_iter().chain([1; D]).collect();
            out.add(&bias.reshape(sizes)?)?
        }
        None => out,
    };
    let out = note(out);
    if alone { out.squeeze(0) } else { Ok(out) }
}

#[track_caller]
pub(crate) fn convolution<const D: usize>(
    op: &'static str,
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvOptions<D>,
) -> Result<Tensor> {
    let _line = caller_line();
    let cast = autocast::cast(op, [input, weight], [bias])?;
    let ([input, weight], [bias]) = cast.tensors();
    let ConvOptions { stride, padding, dilation, groups } = options;
    let outputs = weight.dims().first().copied().unwrap_or(0);
    let (x, alone) =
        batched(op, input, weight, bias.map(|bias| (bias, outputs)), [stride, dilation], groups)?;
    let wrong = |message: String| Err(Error::invalid(op, message).here());
    let (channels, taken) = (x.dims()[1], weight.dims()[1]);
    let expected = taken.saturating_mul(groups);
    if channels != expected {
        return wrong(format!(
            "the input {} has {channels} channels, and a weight {}{} is a convolution from {expected} channels to \
             {outputs}; give an input of {expected} channels, or make the layer for {channels}{}",
            input.shape(),
            weight.shape(),
            in_groups(groups),
            channels_last::<D>(input, expected)
        ));
    }
    if !outputs.is_multiple_of(groups) {
        return wrong(format!(
            "a weight {} of {outputs} output channels in {groups} groups: groups divide them",
            weight.shape()
        ));
    }
    let kernel: [usize; D] = std::array::from_fn(|axis| weight.dims()[2 + axis]);
    let padding = match padding {
        ConvPadding::Each(_) => padding.sides(kernel, dilation),
        ConvPadding::Same if stride == [1; D] => padding.sides(kernel, dilation),
        ConvPadding::Same => {
            return wrong(format!(
                "Same padding keeps the size for a stride of 1, not {stride:?}; give the padding"
            ));
        }
    };
    for axis in 0..D {
        let (size, (before, after)) = (x.dims()[2 + axis], padding[axis]);
        let room = size.saturating_add(before).saturating_add(after);
        let reach = dilation[axis].saturating_mul(kernel[axis] - 1).saturating_add(1);
        if reach > room {
            return wrong(format!(
                "a kernel of {} elements, {} apart, reaches over {reach}; axis {} of the padded input {} has {room}",
                kernel[axis],
                dilation[axis],
                2 + axis,
                x.shape()
            ));
        }
    }
    let out = apply(Convolution { stride, padding, dilation, groups }, &[&x, weight])?;
    finished::<D>(out, bias, alone, |out| {
        traced("conv", [Some(&x), Some(weight), bias], out, || {
            let (before, after): (Vec<usize>, Vec<usize>) = padding.iter().copied().unzip();
            vec![
                ("strides", Argument::sizes(&stride)),
                ("pads", Argument::sizes(&[before, after].concat())),
                ("dilations", Argument::sizes(&dilation)),
                ("group", Argument::Int(groups as i64)),
            ]
        })
    })
}

#[track_caller]
pub(crate) fn transposed_convolution<const D: usize>(
    op: &'static str,
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvTransposeOptions<D>,
) -> Result<Tensor> {
    let _line = caller_line();
    let cast = autocast::cast(op, [input, weight], [bias])?;
    let ([input, weight], [bias]) = cast.tensors();
    let ConvTransposeOptions { stride, padding, output_padding, dilation, groups } = options;
    let of_group = weight.dims().get(1).copied().unwrap_or(0);
    let outputs = of_group.saturating_mul(groups);
    let (x, alone) =
        batched(op, input, weight, bias.map(|bias| (bias, outputs)), [stride, dilation], groups)?;
    let wrong = |message: String| Err(Error::invalid(op, message).here());
    let (channels, taken) = (x.dims()[1], weight.dims()[0]);
    if channels != taken {
        return wrong(format!(
            "the input {} has {channels} channels, and a weight {}{} is a transposed convolution from {taken} channels \
             to {outputs}; give an input of {taken} channels, or make the layer for {channels}{}",
            input.shape(),
            weight.shape(),
            in_groups(groups),
            channels_last::<D>(input, taken)
        ));
    }
    if !channels.is_multiple_of(groups) {
        return wrong(format!("an input of {channels} channels in {groups} groups: groups divide them"));
    }
    let mut sizes = [0; D];
    for axis in 0..D {
        if output_padding[axis] >= stride[axis].max(dilation[axis]) {
            return wrong(format!(
                "an output padding of {} is neither below the stride {} nor below the dilation {}",
                output_padding[axis], stride[axis], dilation[axis]
            ));
        }
        let size = x.dims()[2 + axis] as i128;
        let reach = dilation[axis] as i128 * (weight.dims()[2 + axis] as i128 - 1);
        let found = (size - 1) * stride[axis] as i128 - 2 * padding[axis] as i128
            + reach
            + output_padding[axis] as i128
            + 1;
        match usize::try_from(found) {
            Ok(found) if found > 0 && size > 0 => sizes[axis] = found,
            _ => {
                return wrong(format!(
                    "the output has size {found} along axis {} of the input {}",
                    2 + axis,
                    x.shape()
                ));
            }
        }
    }
    let of = Convolution { stride, padding: padding.map(|p| (p, p)), dilation, groups };
    let out = apply(Transposed { of, sizes }, &[&x, weight])?;
    finished::<D>(out, bias, alone, |out| {
        traced("conv_transpose", [Some(&x), Some(weight), bias], out, || {
            vec![
                ("strides", Argument::sizes(&stride)),
                ("pads", Argument::sizes(&[padding, padding].concat())),
                ("output_padding", Argument::sizes(&output_padding)),
                ("dilations", Argument::sizes(&dilation)),
                ("group", Argument::Int(groups as i64)),
            ]
        })
    })
}

/// A convolution of a batch whose sizes were checked.
#[derive(Clone, Copy, Debug)]
struct Convolution<const D: usize> {
    stride: [usize; D],
    padding: [(usize, usize); D],
    dilation: [usize; D],
    groups: usize,
}

impl<const D: usize> Convolution<D> {
    /// The windows of the padded input: `[N, groups, in / groups, outputs…, kernel…]`.
    #[track_caller]
    fn windows(&self, input: &Tensor, kernel: &[usize]) -> Result<Tensor> {
        let mut windows = self.grouped(&padded(input, &self.padding, 0.0)?, 1)?;
        for (axis, &size) in kernel.iter().enumerate() {
            windows = windows.windows(3 + axis, size, self.stride[axis], self.dilation[axis])?;
        }
        Ok(windows)
    }

    /// Splits an axis of channels into groups and channels of each.
    #[track_caller]
    fn grouped(&self, t: &Tensor, axis: usize) -> Result<Tensor> {
        let (lead, rest) = t.dims().split_at(axis);
        let sizes = lead.iter().copied().chain([self.groups, rest[0] / self.groups]);
        t.reshape(sizes.chain(rest[1..].iter().copied()).collect::<Shape>())
    }

    /// Labels of `[N, groups, in]`, `[groups, out]`, positions and kernel elements.
    fn labels(&self) -> ([u8; 4], Vec<u8>, Vec<u8>) {
        let d = D as u8;
        ([0, 1, 2, 3], (4..4 + d).collect(), (4 + d..4 + 2 * d).collect())
    }

    /// The gradient with respect to the weight, with the weight's shape.
    #[track_caller]
    fn of_weight(&self, input: &Tensor, gradient: &Tensor, weight: &Shape) -> Result<Tensor> {
        let mut windows = self.windows(input, &weight[2..])?;
        for axis in 0..D {
            // The output of a transposed convolution may have room for more windows than it was made of.
            windows = windows.narrow(3 + axis, 0, gradient.dims()[2 + axis])?;
        }
        let ([n, g, c, o], positions, kernel) = self.labels();
        let subscripts = Subscripts {
            lhs: [n, g, o].into_iter().chain(positions.iter().copied()).collect(),
            rhs: [n, g, c].into_iter().chain(positions).chain(kernel.iter().copied()).collect(),
            out: [g, o, c].into_iter().chain(kernel).collect(),
        };
        self.grouped(gradient, 1)?.contract(&windows, subscripts)?.reshape(weight)
    }
}

/// The transpose of a convolution, with this number of output positions along each axis.
#[derive(Clone, Copy, Debug)]
struct Transposed<const D: usize> {
    of: Convolution<D>,
    sizes: [usize; D],
}

/// Placement of an axis's elements: every `step` positions from `first` on, in an axis of `size` that is
/// zero elsewhere. Elements that fall outside are dropped.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) first: isize,
    pub(super) step: usize,
    pub(super) size: usize,
}

/// Places elements along the axes from `axis` on, in one copy.
#[track_caller]
pub(super) fn place(x: &Tensor, axis: usize, places: &[Place]) -> Result<Tensor> {
    let _line = caller_line();
    let mut shape: Vec<usize> = x.dims().to_vec();
    let (mut starts, mut between) = (vec![0; x.rank()], vec![0; x.rank()]);
    for (axis, &Place { first, step, size }) in (axis..).zip(places) {
        // The whole range, including positions outside, of which the wanted part is taken.
        let before = first.max(0) as usize;
        let whole = before + (shape[axis] - 1) * step + 1;
        shape[axis] = whole.max(size + first.min(0).unsigned_abs());
        (starts[axis], between[axis]) = (before, step - 1);
    }
    let mut placed = match shape == x.dims() {
        true => x.clone(),
        false => x.pad_between(starts.into(), between.into(), shape.into(), Scalar::Float(0.0))?,
    };
    for (axis, &Place { first, size, .. }) in (axis..).zip(places) {
        let outside = first.min(0).unsigned_abs();
        if outside > 0 || placed.dims()[axis] != size {
            placed = placed.narrow(axis, outside, size)?;
        }
    }
    Ok(placed)
}

impl<const D: usize> Function for Convolution<D> {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        ["Conv1d", "Conv2d", "Conv3d"][D.clamp(1, 3) - 1]
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (input, weight) = (inputs[0], inputs[1]);
        let windows = self.windows(input, &weight.dims()[2..])?;
        let ([n, g, c, o], positions, kernel) = self.labels();
        let subscripts = Subscripts {
            lhs: [g, o, c].into_iter().chain(kernel.iter().copied()).collect(),
            rhs: [n, g, c].into_iter().chain(positions.iter().copied()).chain(kernel).collect(),
            out: [n, g, o].into_iter().chain(positions).collect(),
        };
        let out = self.grouped(weight, 0)?.contract(&windows, subscripts)?;
        let channels = [out.dims()[0], out.dims()[1] * out.dims()[2]];
        out.reshape(channels.into_iter().chain(out.dims()[3..].iter().copied()).collect::<Shape>())
    }

    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        _output: &Tensor,
        gradient: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let (input, weight) = (&inputs[0], &inputs[1]);
        let sizes = std::array::from_fn(|axis| input.dims()[2 + axis]);
        let of_input = apply(Transposed { of: *self, sizes }, &[gradient, weight])?;
        let of_weight = self.of_weight(input, gradient, weight.shape())?;
        Ok(vec![Some(of_input), Some(of_weight)])
    }
}

impl<const D: usize> Function for Transposed<D> {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"][D.clamp(1, 3) - 1]
    }

    /// A convolution of stride 1 with the flipped kernel, and input and output channels exchanged. If the
    /// transposed convolution has a stride s, each position of the input makes s adjacent positions of the
    /// output, each from every s-th element of the kernel ("sub-pixel" convolution, Shi et al. 2016). With a
    /// stride and a dilation, zeros are inserted between the input's elements instead.
    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let Transposed { of, sizes } = self;
        let mut kernel = of.grouped(inputs[1], 0)?;
        let (mut phases, mut firsts, mut counts_of_taps) = ([1; D], [0; D], [1; D]);
        let mut places = [Place { first: 0, step: 1, size: 1 }; D];
        for axis in 0..D {
            let (stride, dilation, before) = (of.stride[axis], of.dilation[axis], of.padding[axis].0);
            let phase = if dilation == 1 { stride } else { 1 };
            let size = kernel.dims()[3 + 2 * axis];
            let taps = size.div_ceil(phase);
            let reach = dilation * (taps - 1);
            // The first and the last position of the input's grid that contribute to the output.
            let (first, last) = (before / phase, (before + sizes[axis] - 1) / phase);
            places[axis] = Place {
                first: reach as isize - first as isize,
                step: stride / phase,
                size: last - first + 1 + reach,
            };
            counts_of_taps[axis] = taps;
            // Splits the kernel's axis in two: taps, the last one first, and phases.
            let at = 3 + 2 * axis;
            if taps * phase > size {
                let mut padding = vec![(0, 0); kernel.rank()];
                padding[at].1 = taps * phase - size;
                kernel = kernel.pad(&padding, Scalar::Float(0.0))?;
            }
            let (lead, rest) = kernel.dims().split_at(at);
            let split: Shape = lead.iter().chain(&[taps, phase]).chain(&rest[1..]).copied().collect();
            kernel = kernel.reshape(split)?.flip(at)?;
            (phases[axis], firsts[axis]) = (phase, first);
        }
        // Placed along all axes before windows are taken along any: a copy of windows would repeat their
        // elements.
        let mut x = of.grouped(&place(inputs[0], 2, &places)?, 1)?;
        for (axis, (&taps, &dilation)) in counts_of_taps.iter().zip(&of.dilation).enumerate() {
            x = x.windows(3 + axis, taps, 1, dilation)?;
        }
        let ([n, g, c, o], positions, taps) = of.labels();
        let phase_labels: Vec<u8> = (0..D as u8).map(|axis| 4 + 2 * D as u8 + axis).collect();
        let of_kernel = taps.iter().zip(&phase_labels).flat_map(|(&tap, &phase)| [tap, phase]);
        let subscripts = Subscripts {
            lhs: [g, c, o].into_iter().chain(of_kernel).collect(),
            rhs: [n, g, c].into_iter().chain(positions.iter().copied()).chain(taps.iter().copied()).collect(),
            out: [n, g, o].into_iter().chain(phase_labels).chain(positions).collect(),
        };
        let mut out = kernel.contract(&x, subscripts)?;
        let counts: Vec<usize> = out.dims()[3 + D..].to_vec();
        let channels = [out.dims()[0], out.dims()[1] * out.dims()[2]];
        if phases != [1; D] {
            // The reshape before the permutation stores the product in its own layout, whose columns are
            // positions, so that a copy interleaves it.
            let merged = channels.into_iter().chain(phases).chain(counts.iter().copied());
            let order = [0, 1].into_iter().chain((0..D).flat_map(|axis| [2 + D + axis, 2 + axis]));
            out = out.reshape(merged.collect::<Shape>())?.permute(order.collect::<Vec<usize>>())?;
        }
        let merged = (0..D).map(|axis| counts[axis] * phases[axis]);
        out = out.reshape(channels.into_iter().chain(merged).collect::<Shape>())?;
        for axis in 0..D {
            let start = of.padding[axis].0 - firsts[axis] * phases[axis];
            out = out.narrow(2 + axis, start, sizes[axis])?;
        }
        Ok(out)
    }

    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        _output: &Tensor,
        gradient: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let (input, weight) = (&inputs[0], &inputs[1]);
        let mut of_input = apply(self.of, &[gradient, weight])?;
        for axis in 0..D {
            // As in `of_weight`.
            of_input = of_input.narrow(2 + axis, 0, input.dims()[2 + axis])?;
        }
        Ok(vec![Some(of_input), Some(self.of.of_weight(gradient, input, weight.shape())?)])
    }
}
