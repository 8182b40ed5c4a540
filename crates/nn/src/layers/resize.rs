//! Padding, resizing and pooling to a given size, as layers.

use std::fmt;

use tensor_core::{Result, Tensor};

use super::{layer, record, stateless};
use crate::functions::{
    self, FoldOptions, InterpolateOptions, PadMode, Resize, Window, adaptive_avg_pool, adaptive_max_pool,
    by_dims, interpolate_by, pad_by,
};

/// The padding before and after each of `D` axes, in the order of the axes: one number for all sides, or a
/// pair for each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides<const D: usize>(pub [(usize, usize); D]);

impl<const D: usize> From<usize> for Sides<D> {
    fn from(padding: usize) -> Sides<D> {
        Sides([(padding, padding); D])
    }
}

impl<const D: usize> From<[(usize, usize); D]> for Sides<D> {
    fn from(padding: [(usize, usize); D]) -> Sides<D> {
        Sides(padding)
    }
}

macro_rules! pads {
    ($($(#[$doc:meta])* $layer:ident, $name:literal, $mode:expr, $one:ident $two:ident $three:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $layer<const D: usize>([(usize, usize); D]);

        #[doc = concat!("Pads the last axis. `torch.nn.", $name, "1d`.")]
        pub type $one = $layer<1>;
        #[doc = concat!("Pads the last two axes. `torch.nn.", $name, "2d`.")]
        pub type $two = $layer<2>;
        #[doc = concat!("Pads the last three axes. `torch.nn.", $name, "3d`.")]
        pub type $three = $layer<3>;

        impl<const D: usize> $layer<D> {
            /// A layer with one number for all sides, or `[(before, after), …]` in the order of the axes.
            /// (PyTorch's tuple begins with the last axis.)
            pub fn new(padding: impl Into<Sides<D>>) -> $layer<D> {
                $layer(padding.into().0)
            }

            /// The padded input.
            ///
            /// # Errors
            /// As [`functional::pad`](crate::functional::pad).
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
                const NAMES: [&str; 3] = [concat!($name, "1d"), concat!($name, "2d"), concat!($name, "3d")];
                record!(self, pad_by(by_dims::<D>(NAMES), input, &self.0, $mode))
            }
        }

        impl<const D: usize> fmt::Debug for $layer<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($name, "{}d({:?})"), D, self.0)
            }
        }

        layer!($layer<1>, $layer<2>, $layer<3>);
        stateless!($layer<1>, $layer<2>, $layer<3>);
    )*};
}

pads! {
    /// Pads the last `D` axes with zeros.
    ZeroPad, "ZeroPad", PadMode::Constant(0.0), ZeroPad1d ZeroPad2d ZeroPad3d;
    /// Pads the last `D` axes with mirrored elements: [`PadMode::Reflect`].
    ReflectionPad, "ReflectionPad", PadMode::Reflect, ReflectionPad1d ReflectionPad2d ReflectionPad3d;
    /// Pads the last `D` axes with their edge elements: [`PadMode::Replicate`].
    ReplicationPad, "ReplicationPad", PadMode::Replicate, ReplicationPad1d ReplicationPad2d ReplicationPad3d;
    /// Pads the last `D` axes with the elements of the other end: [`PadMode::Circular`].
    CircularPad, "CircularPad", PadMode::Circular, CircularPad1d CircularPad2d CircularPad3d;
}

macro_rules! adaptive {
    ($($(#[$doc:meta])* $layer:ident, $function:ident, $names:expr, $one:ident $two:ident $three:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $layer<const D: usize>([usize; D]);

        #[doc = concat!("Adaptive pooling of `[N, C, L]`. `torch.nn.", stringify!($one), "`.")]
        pub type $one = $layer<1>;
        #[doc = concat!("Adaptive pooling of images `[N, C, H, W]`. `torch.nn.", stringify!($two), "`.")]
        pub type $two = $layer<2>;
        #[doc = concat!("Adaptive pooling of volumes `[N, C, D, H, W]`. `torch.nn.", stringify!($three), "`.")]
        pub type $three = $layer<3>;

        impl<const D: usize> $layer<D> {
            /// A layer with these output sizes, one number for all axes or one for each.
            pub fn new(size: impl Into<Window<D>>) -> $layer<D> {
                $layer(size.into().0)
            }

            /// The output for an input `[N, C, …]` or `[C, …]`.
            ///
            /// # Errors
            /// Another number of axes, a dtype that is not floating-point, a size of 0.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
                const NAMES: [&str; 3] = $names;
                record!(self, $function(by_dims::<D>(NAMES), input, Window(self.0)))
            }
        }

        impl<const D: usize> fmt::Debug for $layer<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($layer), "{}d(output_size={:?})"), D, self.0)
            }
        }

        layer!($layer<1>, $layer<2>, $layer<3>);
        stateless!($layer<1>, $layer<2>, $layer<3>);
    )*};
}

adaptive! {
    /// Adaptive average pooling: means of a given number of bins along each of `D` axes, for any input size.
    /// See [`functional::adaptive_avg_pool2d`](crate::functional::adaptive_avg_pool2d).
    AdaptiveAvgPool, adaptive_avg_pool, ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"],
    AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d;
    /// Adaptive max pooling: maxima of a given number of bins along each of `D` axes. See
    /// [`functional::adaptive_max_pool2d`](crate::functional::adaptive_max_pool2d).
    AdaptiveMaxPool, adaptive_max_pool, ["adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"],
    AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d;
}

/// Rearranges channels to pixels: see [`functional::pixel_shuffle`](crate::functional::pixel_shuffle).
/// `torch.nn.PixelShuffle`.
#[derive(Clone, Copy)]
pub struct PixelShuffle(pub usize);

/// Rearranges pixels to channels: see [`functional::pixel_unshuffle`](crate::functional::pixel_unshuffle).
/// `torch.nn.PixelUnshuffle`.
#[derive(Clone, Copy)]
pub struct PixelUnshuffle(pub usize);

impl PixelShuffle {
    /// The output for `[…, C·r², H, W]`.
    ///
    /// # Errors
    /// As [`functional::pixel_shuffle`](crate::functional::pixel_shuffle).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, functions::pixel_shuffle(input, self.0))
    }
}

impl PixelUnshuffle {
    /// The output for `[…, C, H·r, W·r]`.
    ///
    /// # Errors
    /// As [`functional::pixel_unshuffle`](crate::functional::pixel_unshuffle).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, functions::pixel_unshuffle(input, self.0))
    }
}

impl fmt::Debug for PixelShuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PixelShuffle(upscale_factor={})", self.0)
    }
}

impl fmt::Debug for PixelUnshuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PixelUnshuffle(downscale_factor={})", self.0)
    }
}

/// Shuffles channels among this number of groups: see
/// [`functional::channel_shuffle`](crate::functional::channel_shuffle).
/// `torch.nn.ChannelShuffle`.
#[derive(Clone, Copy)]
pub struct ChannelShuffle(pub usize);

impl ChannelShuffle {
    /// The output for `[N, C, …]`.
    ///
    /// # Errors
    /// As [`functional::channel_shuffle`](crate::functional::channel_shuffle).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, functions::channel_shuffle(input, self.0))
    }
}

impl fmt::Debug for ChannelShuffle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelShuffle(groups={})", self.0)
    }
}

/// Resizes `[N, C, …]`: see [`functional::interpolate`](crate::functional::interpolate). `torch.nn.Upsample`.
///
/// ```
/// use nn::Upsample;
/// use nn::functional::{InterpolateMode, InterpolateOptions};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::arange(0.0, 4.0, 1.0, &backend_cpu::cpu())?.reshape((1, 1, 2, 2))?;
/// let mode = InterpolateMode::Bilinear;
/// let options = InterpolateOptions { mode, align_corners: true, ..Default::default() };
/// let y = Upsample::with_options([3, 3], options).forward(&x)?;
/// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.5, 1.0, 1.0, 1.5, 2.0, 2.0, 2.5, 3.0]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Upsample {
    to: Resize,
    options: InterpolateOptions,
}

impl Upsample {
    /// Multiplies every axis after C by a factor, with the nearest elements.
    pub fn new(scale_factor: impl Into<f64>) -> Upsample {
        Upsample::with_options(scale_factor.into(), InterpolateOptions::default())
    }

    /// Resizes the axes after C to these sizes, which need not be multiples, with the nearest elements.
    pub fn to_size(size: impl Into<Vec<usize>>) -> Upsample {
        Upsample::with_options(size.into(), InterpolateOptions::default())
    }

    /// Resizes to a size (integers) or by a scale factor (fractions), with a mode.
    pub fn with_options(to: impl Into<Resize>, options: InterpolateOptions) -> Upsample {
        Upsample { to: to.into(), options }
    }

    /// The input at its new size.
    ///
    /// # Errors
    /// As [`functional::interpolate`](crate::functional::interpolate).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, interpolate_by("upsample", input, &self.to, self.options))
    }
}

impl fmt::Debug for Upsample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.options.mode.name();
        match &self.to {
            Resize::Scale(scale) => match scale.as_slice() {
                [one] => write!(f, "Upsample(scale_factor={one:?}, mode={mode:?})"),
                all => write!(f, "Upsample(scale_factor={all:?}, mode={mode:?})"),
            },
            Resize::Size(size) => write!(f, "Upsample(size={size:?}, mode={mode:?})"),
        }
    }
}

layer!(ChannelShuffle, PixelShuffle, PixelUnshuffle, Upsample);
stateless!(ChannelShuffle, PixelShuffle, PixelUnshuffle, Upsample);

/// The blocks of an image as columns: see [`functional::unfold`](crate::functional::unfold).
/// `torch.nn.Unfold`.
#[derive(Clone, Copy)]
#[doc(alias = "im2col")]
pub struct Unfold {
    kernel: [usize; 2],
    options: FoldOptions,
}

impl Unfold {
    /// A layer for blocks `[kH, kW]`, one number for both or one for each. Options that do not fit are an
    /// error of `forward`.
    pub fn new(kernel: impl Into<Window<2>>, options: FoldOptions) -> Unfold {
        Unfold { kernel: kernel.into().0, options }
    }

    /// The columns of an image `[N, C, H, W]` or `[C, H, W]`.
    ///
    /// # Errors
    /// As [`functional::unfold`](crate::functional::unfold).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, functions::unfold(input, self.kernel, self.options))
    }
}

/// Columns summed into an image: see [`functional::fold`](crate::functional::fold). `torch.nn.Fold`.
#[derive(Clone, Copy)]
#[doc(alias = "col2im")]
pub struct Fold {
    output: [usize; 2],
    kernel: [usize; 2],
    options: FoldOptions,
}

impl Fold {
    /// A layer to images of size `output` from blocks `[kH, kW]`. Options that do not fit are an error of
    /// `forward`.
    pub fn new(output: impl Into<Window<2>>, kernel: impl Into<Window<2>>, options: FoldOptions) -> Fold {
        Fold { output: output.into().0, kernel: kernel.into().0, options }
    }

    /// The image of columns `[N, C·kH·kW, L]` or `[C·kH·kW, L]`.
    ///
    /// # Errors
    /// As [`functional::fold`](crate::functional::fold).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, functions::fold(input, self.output, self.kernel, self.options))
    }
}

/// Formats the options as PyTorch does.
fn write_blocks(f: &mut fmt::Formatter<'_>, kernel: [usize; 2], options: FoldOptions) -> fmt::Result {
    let FoldOptions { dilation, padding, stride } = options;
    write!(f, "kernel_size={kernel:?}, dilation={dilation:?}, padding={padding:?}, stride={stride:?})")
}

impl fmt::Debug for Unfold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unfold(")?;
        write_blocks(f, self.kernel, self.options)
    }
}

impl fmt::Debug for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fold(output_size={:?}, ", self.output)?;
        write_blocks(f, self.kernel, self.options)
    }
}

layer!(Unfold, Fold);
stateless!(Unfold, Fold);
