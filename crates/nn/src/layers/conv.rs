//! Convolution layers.

use std::fmt;

use tensor_core::{DType, Error, Generator, Result, Tensor, caller_line, default_dtype};

use super::{adapted_weight_and_bias, layer, linear::parameter, record, weight_and_bias};
use crate::{
    functions::{
        ConvOptions, ConvPadding, ConvTransposeOptions, PadMode, Window, by_dims, pad_by,
        transposed_convolution,
    },
    init::{self, Fan, Nonlinearity},
    lora::{Adapters, LayerKind},
};

/// Options of a [`Conv`] layer, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug)]
pub struct ConvConfig<const D: usize> {
    /// The distance between windows. 1 by default.
    pub stride: [usize; D],
    /// The padding of the input. None by default; `1.into()` for one element on all sides.
    pub padding: ConvPadding<D>,
    /// The values of the padding: zeros by default, [`PadMode::Constant`] of 0. [`PadMode::Reflect`] needs
    /// an axis longer than the padding, [`PadMode::Circular`] one at least as long, [`PadMode::Replicate`]
    /// has no limit.
    pub padding_mode: PadMode,
    /// The distance between the elements of a window. 1 by default.
    pub dilation: [usize; D],
    /// The number of groups of channels. 1 by default.
    pub groups: usize,
    /// Whether there is a bias; there is by default.
    pub bias: bool,
    /// The dtype of the parameters: that of [`default_dtype`] (f32) by default.
    pub dtype: DType,
}

impl<const D: usize> Default for ConvConfig<D> {
    fn default() -> ConvConfig<D> {
        let ConvOptions { stride, padding, dilation, groups } = ConvOptions::default();
        let (padding_mode, dtype) = (PadMode::Constant(0.0), default_dtype());
        ConvConfig { stride, padding, padding_mode, dilation, groups, bias: true, dtype }
    }
}

/// A convolution over `D` axes: see [`crate::functional::conv2d`]. Use it as [`Conv1d`], [`Conv2d`] and
/// [`Conv3d`].
///
/// `weight` has the shape `[out, in / groups, kernel…]` and `bias` the shape `[out]`; both are initialized
/// uniformly on (−b, b) with b = 1/√(in / groups · kernel elements), PyTorch's default.
///
/// ```
/// use nn::{Conv2d, ConvConfig};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let config = ConvConfig { padding: 1.into(), ..Default::default() };
/// let layer = Conv2d::with_config(3, 8, 3, config, &rng)?;
/// let y = layer.forward(&Tensor::ones([2, 3, 32, 32], rng.device())?)?;
/// assert_eq!(y.dims(), [2, 8, 32, 32]);
/// assert_eq!(format!("{layer:?}"), "Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Conv<const D: usize> {
    /// The weight `[out, in / groups, kernel…]`.
    pub weight: Tensor,
    /// The bias `[out]`, unless the layer has none.
    pub bias: Option<Tensor>,
    /// The adapters beside the weight: none at first. See [`crate::lora`].
    pub adapters: Adapters,
    options: ConvOptions<D>,
    padding_mode: PadMode,
}

/// A convolution of `[N, in, L]`. `torch.nn.Conv1d`.
pub type Conv1d = Conv<1>;
/// A convolution of images `[N, in, H, W]`. `torch.nn.Conv2d`.
pub type Conv2d = Conv<2>;
/// A convolution of volumes `[N, in, D, H, W]`. `torch.nn.Conv3d`.
pub type Conv3d = Conv<3>;

impl<const D: usize> Conv<D> {
    /// A layer from `in_channels` to `out_channels` with windows of `kernel` elements, one number for all
    /// axes or one for each; on the generator's device.
    ///
    /// # Errors
    /// As [`Conv::with_config`].
    #[track_caller]
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel: impl Into<Window<D>>,
        rng: &Generator,
    ) -> Result<Conv<D>> {
        Conv::with_config(in_channels, out_channels, kernel, ConvConfig::default(), rng)
    }

    /// A layer with a stride, padding, dilation or groups, without a bias, or of another dtype.
    ///
    /// # Errors
    /// No channels, an empty kernel, a stride, dilation or groups of 0, groups that do not divide the
    /// channels, `Same` padding with a stride, padding with NaN, a dtype that is not floating-point or that
    /// the device lacks, too little memory.
    #[track_caller]
    pub fn with_config(
        in_channels: usize,
        out_channels: usize,
        kernel: impl Into<Window<D>>,
        config: ConvConfig<D>,
        rng: &Generator,
    ) -> Result<Conv<D>> {
        let ConvConfig { stride, padding, padding_mode, dilation, groups, bias, dtype } = config;
        let op = by_dims::<D>(["Conv1d", "Conv2d", "Conv3d"]);
        let kernel = kernel.into().0;
        check(op, [in_channels, out_channels, groups], [kernel, stride, dilation])?;
        if padding == ConvPadding::Same && stride != [1; D] {
            let message =
                format!("Same padding keeps the size for a stride of 1, not {stride:?}; give the padding");
            return Err(Error::invalid(op, message).here());
        }
        if let PadMode::Constant(value) = padding_mode
            && value.is_nan()
        {
            return Err(Error::invalid(op, "padding by NaN: give a number").here());
        }
        let (weight, bias) =
            parameters([out_channels, in_channels / groups], kernel, out_channels, bias, dtype, rng)?;
        let options = ConvOptions { stride, padding, dilation, groups };
        Ok(Conv { weight, bias, adapters: Adapters::default(), options, padding_mode })
    }

    /// The output for an input `[N, in, …]` or `[in, …]`.
    ///
    /// # Errors
    /// As [`crate::functional::conv2d`], and an input that is too small for its padding mode.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let op = by_dims::<D>(["conv1d", "conv2d", "conv3d"]);
        let convolved = |input: &Tensor, options| {
            record!(self, self.adapters.conv(op, input, &self.weight, self.bias.as_ref(), options))
        };
        if self.padding_mode == PadMode::Constant(0.0) {
            return convolved(input, self.options);
        }
        let kernel = std::array::from_fn(|axis| self.weight.dims().get(2 + axis).copied().unwrap_or(1));
        let sides = self.options.padding.sides(kernel, self.options.dilation);
        let options = ConvOptions { padding: ConvPadding::default(), ..self.options };
        convolved(&pad_by(op, input, &sides, self.padding_mode)?, options)
    }
}

/// Options of a [`ConvTranspose`] layer, with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug)]
pub struct ConvTransposeConfig<const D: usize> {
    /// The stride of the convolution that this transposes. 1 by default.
    pub stride: [usize; D],
    /// The padding of that convolution. None by default.
    pub padding: [usize; D],
    /// Elements added at the end of each axis of the output. None by default.
    pub output_padding: [usize; D],
    /// The distance between the elements of a window. 1 by default.
    pub dilation: [usize; D],
    /// The number of groups of channels. 1 by default.
    pub groups: usize,
    /// Whether there is a bias; there is by default.
    pub bias: bool,
    /// The dtype of the parameters: that of [`default_dtype`] (f32) by default.
    pub dtype: DType,
}

impl<const D: usize> Default for ConvTransposeConfig<D> {
    fn default() -> ConvTransposeConfig<D> {
        let ConvTransposeOptions { stride, padding, output_padding, dilation, groups } =
            ConvTransposeOptions::default();
        let (bias, dtype) = (true, default_dtype());
        ConvTransposeConfig { stride, padding, output_padding, dilation, groups, bias, dtype }
    }
}

/// The transpose of a convolution over `D` axes: see [`crate::functional::conv_transpose2d`]. Use it as
/// [`ConvTranspose1d`], [`ConvTranspose2d`] and [`ConvTranspose3d`].
///
/// `weight` has the shape `[in, out / groups, kernel…]` and `bias` the shape `[out]`; both are initialized
/// uniformly on (−b, b) with b = 1/√(out / groups · kernel elements), PyTorch's default.
#[derive(Clone)]
pub struct ConvTranspose<const D: usize> {
    /// The weight `[in, out / groups, kernel…]`.
    pub weight: Tensor,
    /// The bias `[out]`, unless the layer has none.
    pub bias: Option<Tensor>,
    options: ConvTransposeOptions<D>,
}

/// Transposed convolution of `[N, in, L]`. `torch.nn.ConvTranspose1d`.
pub type ConvTranspose1d = ConvTranspose<1>;
/// Transposed convolution of images `[N, in, H, W]`. `torch.nn.ConvTranspose2d`.
pub type ConvTranspose2d = ConvTranspose<2>;
/// Transposed convolution of volumes `[N, in, D, H, W]`. `torch.nn.ConvTranspose3d`.
pub type ConvTranspose3d = ConvTranspose<3>;

impl<const D: usize> ConvTranspose<D> {
    /// A layer from `in_channels` to `out_channels` with windows of `kernel` elements; on the generator's
    /// device.
    ///
    /// # Errors
    /// As [`ConvTranspose::with_config`].
    #[track_caller]
    pub fn new(
        in_channels: usize,
        out_channels: usize,
        kernel: impl Into<Window<D>>,
        rng: &Generator,
    ) -> Result<ConvTranspose<D>> {
        ConvTranspose::with_config(in_channels, out_channels, kernel, ConvTransposeConfig::default(), rng)
    }

    /// A layer with a stride, padding, dilation or groups, without a bias, or of another dtype.
    ///
    /// # Errors
    /// As [`Conv::with_config`].
    #[track_caller]
    pub fn with_config(
        in_channels: usize,
        out_channels: usize,
        kernel: impl Into<Window<D>>,
        config: ConvTransposeConfig<D>,
        rng: &Generator,
    ) -> Result<ConvTranspose<D>> {
        let ConvTransposeConfig { stride, padding, output_padding, dilation, groups, bias, dtype } = config;
        let op = by_dims::<D>(["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]);
        let kernel = kernel.into().0;
        check(op, [in_channels, out_channels, groups], [kernel, stride, dilation])?;
        let (weight, bias) =
            parameters([in_channels, out_channels / groups], kernel, out_channels, bias, dtype, rng)?;
        let options = ConvTransposeOptions { stride, padding, output_padding, dilation, groups };
        Ok(ConvTranspose { weight, bias, options })
    }

    /// The output for an input `[N, in, …]` or `[in, …]`.
    ///
    /// # Errors
    /// As [`crate::functional::conv_transpose2d`].
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let op = by_dims::<D>(["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]);
        record!(self, transposed_convolution(op, input, &self.weight, self.bias.as_ref(), self.options))
    }
}

#[track_caller]
fn check<const D: usize>(
    op: &'static str,
    [inputs, outputs, groups]: [usize; 3],
    steps: [[usize; D]; 3],
) -> Result<()> {
    let _line = caller_line();
    let [kernel, stride, dilation] = steps;
    if [inputs, outputs, groups].contains(&0) || steps.iter().flatten().any(|&step| step == 0) {
        return Err(Error::invalid(
            op,
            format!(
                "{inputs} inputs, {outputs} outputs, {groups} groups, kernel {kernel:?}, stride {stride:?}, dilation \
                 {dilation:?}: give numbers above 0"
            ),
        )
        .here());
    }
    if !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        let message = format!("{groups} groups do not divide {inputs} inputs and {outputs} outputs");
        return Err(Error::invalid(op, message).here());
    }
    Ok(())
}

/// The initial weight and bias, for `channels` and a kernel.
#[track_caller]
fn parameters<const D: usize>(
    channels: [usize; 2],
    kernel: [usize; D],
    outputs: usize,
    bias: bool,
    dtype: DType,
    rng: &Generator,
) -> Result<(Tensor, Option<Tensor>)> {
    let _line = caller_line();
    let shape: Vec<usize> = channels.into_iter().chain(kernel).collect();
    let weight = init::kaiming_uniform(shape, Fan::In, Nonlinearity::LeakyRelu(5f64.sqrt()), rng)?;
    let fan = kernel.iter().fold(channels[1] as f64, |fan, side| fan * *side as f64);
    let bound = 1.0 / fan.sqrt();
    let bias = match bias {
        true => Some(parameter(Tensor::uniform([outputs], -bound, bound, rng)?, dtype)?),
        false => None,
    };
    Ok((parameter(weight, dtype)?, bias))
}

/// Formats several numbers as PyTorch does.
fn tuple<const D: usize>(numbers: [usize; D]) -> String {
    let list: Vec<String> = numbers.iter().map(usize::to_string).collect();
    if D == 1 { format!("({},)", list[0]) } else { format!("({})", list.join(", ")) }
}

/// Formats a layer as PyTorch does: options that are not the default follow channels, kernel and stride.
struct Description<'a, const D: usize> {
    weight: &'a Tensor,
    channels: [usize; 2],
    stride: [usize; D],
    padding: Option<String>,
    dilation: [usize; D],
    groups: usize,
    bias: bool,
    padding_mode: PadMode,
}

impl<const D: usize> Description<'_, D> {
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel: [usize; D] = std::array::from_fn(|axis| self.weight.dims()[2 + axis]);
        let [inputs, outputs] = self.channels;
        write!(
            f,
            "{name}({inputs}, {outputs}, kernel_size={}, stride={}",
            tuple(kernel),
            tuple(self.stride)
        )?;
        if let Some(padding) = &self.padding {
            write!(f, ", padding={padding}")?;
        }
        if self.dilation != [1; D] {
            write!(f, ", dilation={}", tuple(self.dilation))?;
        }
        if self.groups != 1 {
            write!(f, ", groups={}", self.groups)?;
        }
        if !self.bias {
            f.write_str(", bias=False")?;
        }
        match self.padding_mode {
            PadMode::Constant(0.0) => {}
            PadMode::Constant(value) => write!(f, ", padding_mode=constant({value})")?,
            PadMode::Reflect => f.write_str(", padding_mode=reflect")?,
            PadMode::Replicate => f.write_str(", padding_mode=replicate")?,
            PadMode::Circular => f.write_str(", padding_mode=circular")?,
        }
        f.write_str(")")
    }
}

impl<const D: usize> fmt::Debug for Conv<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConvOptions { stride, padding, dilation, groups } = self.options;
        let padding = match padding {
            ConvPadding::Same => Some("same".to_string()),
            ConvPadding::Each(sides) if sides == [(0, 0); D] => None,
            ConvPadding::Each(sides) if sides.iter().all(|(a, b)| a == b) => Some(tuple(sides.map(|s| s.0))),
            ConvPadding::Each(sides) => Some(format!("{sides:?}")),
        };
        let channels = [self.weight.dims()[1] * groups, self.weight.dims()[0]];
        let (weight, bias) = (&self.weight, self.bias.is_some());
        Description {
            weight,
            channels,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode: self.padding_mode,
        }
        .write(&format!("Conv{D}d"), f)
    }
}

impl<const D: usize> fmt::Debug for ConvTranspose<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConvTransposeOptions { stride, padding, output_padding, dilation, groups } = self.options;
        let padding = match (padding == [0; D], output_padding == [0; D]) {
            (true, true) => None,
            (false, true) => Some(tuple(padding)),
            (_, false) => Some(format!("{}, output_padding={}", tuple(padding), tuple(output_padding))),
        };
        let channels = [self.weight.dims()[0], self.weight.dims()[1] * groups];
        let (weight, bias) = (&self.weight, self.bias.is_some());
        let padding_mode = PadMode::Constant(0.0);
        let description =
            Description { weight, channels, stride, padding, dilation, groups, bias, padding_mode };
        description.write(&format!("ConvTranspose{D}d"), f)
    }
}

layer!(Conv<1>, Conv<2>, Conv<3>, ConvTranspose<1>, ConvTranspose<2>, ConvTranspose<3>);

adapted_weight_and_bias!(
    Conv<D>,
    |layer| LayerKind::Conv { groups: layer.options.groups },
    const D: usize
);
weight_and_bias!(ConvTranspose<D>, const D: usize);
