//! Normalization layers.

use std::fmt;

use tensor_core::{DType, Device, Error, Result, Shape, Tensor, caller_line, default_dtype};

use super::{layer, linear::parameter, record};
use crate::{
    Module, Training, Visitor, VisitorMut,
    functions::{self, Momentum, batch_norm_by, by_dims},
    init::settle,
};

/// Options of a [`LayerNorm`] or an [`RmsNorm`].
#[derive(Clone, Copy, Debug)]
pub struct LayerNormConfig {
    /// Added to the variance; 1e-5 by default.
    pub eps: f64,
    /// Whether there are a weight and a bias; there are by default.
    pub elementwise_affine: bool,
    /// Whether there is a bias beside the weight; there is by default.
    pub bias: bool,
    /// The dtype of the parameters: that of [`default_dtype`] (f32) by default.
    pub dtype: DType,
}

impl Default for LayerNormConfig {
    fn default() -> LayerNormConfig {
        LayerNormConfig { eps: 1e-5, elementwise_affine: true, bias: true, dtype: default_dtype() }
    }
}

/// Initial parameters: ones or zeros.
#[track_caller]
fn constant(shape: &Shape, value: f64, dtype: DType, device: &Device) -> Result<Tensor> {
    parameter(Tensor::full(shape, value, (dtype, device))?, dtype)
}

#[track_caller]
fn check_sizes(op: &'static str, shape: &Shape) -> Result<()> {
    if shape.rank() > 0 && shape.numel() > 0 {
        return Ok(());
    }
    let message = format!("a normalized shape of {shape}: give the sizes of the last axes, as in [features]");
    Err(Error::invalid(op, message))
}

/// Layer normalization: (x − mean) / √(variance + eps) · weight + bias over the last axes.
/// `torch.nn.LayerNorm`.
///
/// `weight` is initialized with ones and `bias` with zeros, of the normalized shape. Ba et al.: Layer
/// normalization (2016).
///
/// ```
/// use nn::LayerNorm;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let norm = LayerNorm::new([4], &device)?;
/// let y = norm.forward(&Tensor::arange(0.0, 8.0, 1.0, &device)?.reshape((2, 4))?)?;
/// assert_eq!(y.dims(), [2, 4]);
/// assert_eq!(format!("{norm:?}"), "LayerNorm([4], eps=1e-5, elementwise_affine=true)");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LayerNorm {
    /// The weight, of the normalized shape, unless the layer has none.
    pub weight: Option<Tensor>,
    /// The bias, of the normalized shape, unless the layer has none.
    pub bias: Option<Tensor>,
    shape: Shape,
    eps: f64,
}

impl LayerNorm {
    /// A layer over last axes of these sizes.
    ///
    /// # Errors
    /// No sizes, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn new(normalized_shape: impl Into<Shape>, device: &Device) -> Result<LayerNorm> {
        LayerNorm::with_config(normalized_shape, LayerNormConfig::default(), device)
    }

    /// A layer with another eps or dtype, or without parameters.
    ///
    /// # Errors
    /// No sizes, a dtype that is not floating-point or that the device lacks, or too little memory.
    #[track_caller]
    pub fn with_config(
        normalized_shape: impl Into<Shape>,
        config: LayerNormConfig,
        device: &Device,
    ) -> Result<LayerNorm> {
        let _line = caller_line();
        let LayerNormConfig { eps, elementwise_affine, bias, dtype } = config;
        let shape = normalized_shape.into();
        check_sizes("LayerNorm", &shape)?;
        let make = |wanted: bool, value: f64| match wanted {
            true => constant(&shape, value, dtype, device).map(Some),
            false => Ok(None),
        };
        let (weight, bias) = (make(elementwise_affine, 1.0)?, make(elementwise_affine && bias, 0.0)?);
        Ok(LayerNorm { weight, bias, shape, eps })
    }

    /// The output for an input whose last axes have the layer's sizes.
    ///
    /// # Errors
    /// As [`functional::layer_norm`](crate::functional::layer_norm).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
        record!(self, functions::layer_norm(input, &self.shape, weight, bias, self.eps))
    }
}

impl fmt::Debug for LayerNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shape, eps, affine) = (&self.shape, self.eps, self.weight.is_some());
        write!(f, "LayerNorm({shape}, eps={eps:?}, elementwise_affine={affine})")
    }
}

/// Root-mean-square normalization: x / √(mean of x² + eps) · weight over the last axes. `torch.nn.RMSNorm`.
/// `weight` is initialized with ones.
#[derive(Clone)]
#[doc(alias = "RMSNorm")]
pub struct RmsNorm {
    /// The weight, of the normalized shape, unless the layer has none.
    pub weight: Option<Tensor>,
    shape: Shape,
    eps: Option<f64>,
}

impl RmsNorm {
    /// A layer over last axes of these sizes, with the machine epsilon of the dtype as eps.
    ///
    /// # Errors
    /// No sizes, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn new(normalized_shape: impl Into<Shape>, device: &Device) -> Result<RmsNorm> {
        RmsNorm::with_config(normalized_shape, None, true, device)
    }

    /// A layer with another `eps` than the machine epsilon (`None`), or without a weight.
    ///
    /// # Errors
    /// No sizes, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn with_config(
        normalized_shape: impl Into<Shape>,
        eps: Option<f64>,
        elementwise_affine: bool,
        device: &Device,
    ) -> Result<RmsNorm> {
        let shape = normalized_shape.into();
        check_sizes("RMSNorm", &shape)?;
        let weight = match elementwise_affine {
            true => Some(constant(&shape, 1.0, default_dtype(), device)?),
            false => None,
        };
        Ok(RmsNorm { weight, shape, eps })
    }

    /// The output for an input whose last axes have the layer's sizes.
    ///
    /// # Errors
    /// As [`functional::rms_norm`](crate::functional::rms_norm).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, functions::rms_norm(input, &self.shape, self.weight.as_ref(), self.eps))
    }
}

impl fmt::Debug for RmsNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shape, eps, affine) = (&self.shape, self.eps, self.weight.is_some());
        write!(f, "RmsNorm({shape}, eps={eps:?}, elementwise_affine={affine})")
    }
}

/// Group normalization: normalizes each group of channels as [`LayerNorm`] does. `torch.nn.GroupNorm`.
#[derive(Clone)]
pub struct GroupNorm {
    /// The weight `[C]`, unless the layer has none.
    pub weight: Option<Tensor>,
    /// The bias `[C]`, unless the layer has none.
    pub bias: Option<Tensor>,
    groups: usize,
    channels: usize,
    eps: f64,
}

impl GroupNorm {
    /// A layer with `groups` groups of `channels` channels, with eps 1e-5.
    ///
    /// # Errors
    /// As [`GroupNorm::with_config`].
    #[track_caller]
    pub fn new(groups: usize, channels: usize, device: &Device) -> Result<GroupNorm> {
        GroupNorm::with_config(groups, channels, 1e-5, true, device)
    }

    /// A layer with another eps, or without parameters.
    ///
    /// # Errors
    /// No channels, groups that do not divide them, a default dtype that the device lacks, or too little
    /// memory.
    #[track_caller]
    pub fn with_config(
        groups: usize,
        channels: usize,
        eps: f64,
        affine: bool,
        device: &Device,
    ) -> Result<GroupNorm> {
        let _line = caller_line();
        if groups == 0 || channels == 0 || !channels.is_multiple_of(groups) {
            let message = format!("{groups} groups do not divide {channels} channels");
            return Err(Error::invalid("GroupNorm", message));
        }
        let [weight, bias] = per_channel(channels, affine, default_dtype(), device)?;
        Ok(GroupNorm { weight, bias, groups, channels, eps })
    }

    /// The output for an input `[N, C, …]`.
    ///
    /// # Errors
    /// As [`functional::group_norm`](crate::functional::group_norm), and another number of channels than the
    /// layer's.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        same_channels("group_norm", input, self.channels)?;
        let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
        record!(self, functions::group_norm(input, self.groups, weight, bias, self.eps))
    }
}

impl fmt::Debug for GroupNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (groups, channels, eps) = (self.groups, self.channels, self.eps);
        write!(f, "GroupNorm({groups}, {channels}, eps={eps:?}, affine={})", self.weight.is_some())
    }
}

#[track_caller]
fn per_channel(channels: usize, affine: bool, dtype: DType, device: &Device) -> Result<[Option<Tensor>; 2]> {
    let shape = Shape::from([channels]);
    match affine {
        true => {
            Ok([Some(constant(&shape, 1.0, dtype, device)?), Some(constant(&shape, 0.0, dtype, device)?)])
        }
        false => Ok([None, None]),
    }
}

#[track_caller]
fn same_channels(op: &'static str, input: &Tensor, channels: usize) -> Result<()> {
    match input.dims().get(1) {
        Some(&found) if found == channels => Ok(()),
        _ => Err(Error::invalid(
            op,
            format!(
                "the layer has {channels} channels and takes [N, {channels}, …]; the input has the shape {}",
                input.shape()
            ),
        )),
    }
}

/// Options of a [`BatchNorm`] or an [`InstanceNorm`], with PyTorch's names. [`Default`] has the defaults of
/// batch norm; an instance norm has neither parameters nor running statistics by default.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormConfig {
    /// Added to the variance; 1e-5 by default.
    pub eps: f64,
    /// The weight of a batch in the running statistics, 0.1 by default; `None` for the average of all
    /// batches.
    pub momentum: Option<f64>,
    /// Whether there are a weight and a bias; there are by default.
    pub affine: bool,
    /// Whether there are running statistics; there are by default. Without them, evaluation uses the batch's
    /// statistics, as training does.
    pub track_running_stats: bool,
    /// The dtype of parameters and statistics: that of [`default_dtype`] (f32) by default.
    pub dtype: DType,
}

impl Default for BatchNormConfig {
    fn default() -> BatchNormConfig {
        BatchNormConfig {
            eps: 1e-5,
            momentum: Some(0.1),
            affine: true,
            track_running_stats: true,
            dtype: default_dtype(),
        }
    }
}

/// The parameters and running statistics of a batch or instance norm, also for norms of other crates that
/// compute their own statistics.
#[derive(Clone)]
#[doc(hidden)]
pub struct Channels {
    pub weight: Option<Tensor>,
    pub bias: Option<Tensor>,
    pub running: Option<Running>,
    pub channels: usize,
    pub eps: f64,
    pub momentum: Option<f64>,
    pub training: Training,
}

/// The running statistics of channels.
#[derive(Clone)]
#[doc(hidden)]
pub struct Running {
    pub mean: Tensor,
    pub var: Tensor,
    pub batches: Tensor,
}

impl Channels {
    /// State for this number of channels.
    ///
    /// # Errors
    /// No channels, a momentum outside [0, 1], a dtype that is not floating-point or that the device lacks,
    /// or too little memory.
    #[track_caller]
    pub fn new(
        op: &'static str,
        channels: usize,
        config: BatchNormConfig,
        device: &Device,
    ) -> Result<Channels> {
        let _line = caller_line();
        let BatchNormConfig { eps, momentum, affine, track_running_stats, dtype } = config;
        if channels == 0 {
            return Err(Error::invalid(op, "no channels: give at least one"));
        }
        if momentum.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            let message = format!("momentum {momentum:?}: give the weight of a batch, from 0 to 1, or None");
            return Err(Error::invalid(op, message));
        }
        let [weight, bias] = per_channel(channels, affine, dtype, device)?;
        let buffer = |value: Tensor| -> Result<Tensor> {
            settle(&value)?;
            value.into_cell(false)
        };
        let running = match track_running_stats {
            true => {
                let count = if device.supports(DType::I64) { DType::I64 } else { DType::I32 };
                Some(Running {
                    mean: buffer(Tensor::zeros([channels], (dtype, device))?)?,
                    var: buffer(Tensor::ones([channels], (dtype, device))?)?,
                    batches: buffer(Tensor::zeros(Shape::scalar(), (count, device))?)?,
                })
            }
            false => None,
        };
        let training = Training::default();
        Ok(Channels { weight, bias, running, channels, eps, momentum, training })
    }

    /// Checks the number of channels of an input.
    #[track_caller]
    pub fn check(&self, op: &'static str, input: &Tensor) -> Result<()> {
        same_channels(op, input, self.channels)
    }

    /// Batch norm by the input's own statistics, or by the running ones.
    #[track_caller]
    pub fn batch_norm(&self, op: &'static str, input: &Tensor) -> Result<Tensor> {
        same_channels(op, input, self.channels)?;
        let affine = [self.weight.as_ref(), self.bias.as_ref()];
        let training = self.training.get();
        let Some(Running { mean, var, batches }) = &self.running else {
            return batch_norm_by(op, input, None, affine, training, Momentum::Constant(0.0), self.eps);
        };
        let next = batches.detach().add_scalar(1);
        let momentum = self.momentum.map_or(Momentum::Average(&next), Momentum::Constant);
        let out = batch_norm_by(op, input, Some([mean, var]), affine, training, momentum, self.eps)?;
        if training {
            batches.assign(&next)?;
        }
        Ok(out)
    }

    #[track_caller]
    fn instance_norm(&self, op: &'static str, input: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        same_channels(op, input, self.channels)?;
        let (weight, bias) = (self.weight.as_ref(), self.bias.as_ref());
        let (mean, var) = match &self.running {
            Some(Running { mean, var, .. }) => (Some(mean), Some(var)),
            None => (None, None),
        };
        let own = self.training.get() || self.running.is_none();
        let momentum = self.momentum.unwrap_or(0.0);
        functions::instance_norm(input, mean, var, weight, bias, own, momentum, self.eps)
    }

    /// Formats the layer as PyTorch does.
    pub fn describe(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (channels, eps, tracks) = (self.channels, self.eps, self.running.is_some());
        let momentum = self.momentum.map_or("None".to_string(), |share| format!("{share:?}"));
        let affine = self.weight.is_some();
        write!(
            f,
            "{name}({channels}, eps={eps:?}, momentum={momentum}, affine={affine}, track_running_stats={tracks})"
        )
    }
}

impl Module for Channels {
    fn visit(&self, visitor: &mut Visitor) {
        let affine = [("weight", &self.weight), ("bias", &self.bias)];
        for (name, tensor) in affine {
            if let Some(tensor) = tensor {
                visitor.parameter(name, tensor);
            }
        }
        if let Some(Running { mean, var, batches }) = &self.running {
            visitor.buffer("running_mean", mean);
            visitor.buffer("running_var", var);
            visitor.buffer("num_batches_tracked", batches);
        }
        visitor.training(&self.training);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        let affine = [("weight", &mut self.weight), ("bias", &mut self.bias)];
        for (name, tensor) in affine {
            if let Some(tensor) = tensor {
                visitor.parameter(name, tensor);
            }
        }
        if let Some(Running { mean, var, batches }) = &mut self.running {
            visitor.buffer("running_mean", mean);
            visitor.buffer("running_var", var);
            visitor.buffer("num_batches_tracked", batches);
        }
    }
}

macro_rules! norm {
    (
        $(#[$doc:meta])* $layer:ident, $default:expr, $forward:ident, $name:literal, $ranks:expr;
        $($(#[$alias_doc:meta])* $alias:ident = $d:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $layer<const D: usize>(Channels);

        $($(#[$alias_doc])* pub type $alias = $layer<$d>;)*

        impl<const D: usize> $layer<D> {
            /// A layer for this number of channels, with PyTorch's defaults.
            ///
            /// # Errors
            /// No channels, a default dtype that the device lacks, or too little memory.
            #[track_caller]
            pub fn new(channels: usize, device: &Device) -> Result<$layer<D>> {
                $layer::with_config(channels, $default, device)
            }

            /// A layer with another eps or momentum, with or without parameters and running statistics.
            ///
            /// # Errors
            /// No channels, a momentum outside [0, 1], a dtype that is not floating-point or that the device
            /// lacks, or too little memory.
            #[track_caller]
            pub fn with_config(
                channels: usize,
                config: BatchNormConfig,
                device: &Device,
            ) -> Result<$layer<D>> {
                Ok($layer(Channels::new(concat!($name, "Norm"), channels, config, device)?))
            }

            /// The weight `[C]`, if there is one.
            pub fn weight(&self) -> Option<&Tensor> {
                self.0.weight.as_ref()
            }

            /// The bias `[C]`, if there is one.
            pub fn bias(&self) -> Option<&Tensor> {
                self.0.bias.as_ref()
            }

            /// The running mean `[C]`, if it is tracked.
            pub fn running_mean(&self) -> Option<&Tensor> {
                self.0.running.as_ref().map(|running| &running.mean)
            }

            /// The running variance `[C]`, if it is tracked.
            pub fn running_var(&self) -> Option<&Tensor> {
                self.0.running.as_ref().map(|running| &running.var)
            }

            /// The output for an input `[N, C, …]` with the number of axes after C that the layer's name
            /// has.
            ///
            /// # Errors
            /// Another number of axes or of channels, a single value for each channel in training, another
            /// dtype or device.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
                const NAMES: [&str; 3] =
                    [concat!($name, "Norm1d"), concat!($name, "Norm2d"), concat!($name, "Norm3d")];
                let op = by_dims::<D>(NAMES);
                let ranks: std::ops::RangeInclusive<usize> = $ranks(D);
                if !ranks.contains(&input.rank()) {
                    let message = format!(
                        "an input has {} axes, [N, C, …]; shape {} has {}",
                        ranks.end(),
                        input.shape(),
                        input.rank()
                    );
                    return Err(Error::invalid(op, message));
                }
                record!(self, self.0.$forward(op, input))
            }
        }

        impl<const D: usize> fmt::Debug for $layer<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.describe(&format!(concat!($name, "Norm{}d"), D), f)
            }
        }

        impl<const D: usize> Module for $layer<D> {
            fn visit(&self, visitor: &mut Visitor) {
                self.0.visit(visitor);
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut) {
                self.0.visit_mut(visitor);
            }
        }

        layer!($layer<1>, $layer<2>, $layer<3>);
    };
}

norm! {
    /// Normalizes each channel over the batch and all axes after it: see
    /// [`functional::batch_norm`](crate::functional::batch_norm). Use it as [`BatchNorm1d`], [`BatchNorm2d`]
    /// and [`BatchNorm3d`].
    ///
    /// In training it uses the batch's statistics and updates the running ones, which are buffers
    /// (`running_mean`, `running_var`, `num_batches_tracked`); after `model.eval()` it uses the running
    /// ones. A clone shares parameters and statistics.
    ///
    /// ```
    /// use nn::{BatchNorm2d, Module};
    /// use tensor_core::Tensor;
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let norm = BatchNorm2d::new(3, &device)?;
    /// norm.forward(&Tensor::ones([2, 3, 4, 4], &device)?)?;
    /// assert_eq!(norm.running_mean().unwrap().to_vec::<f32>()?, [0.1; 3]);
    /// norm.eval();
    /// norm.forward(&Tensor::ones([1, 3, 4, 4], &device)?)?;
    /// # Ok(()) }
    /// ```
    BatchNorm, BatchNormConfig::default(), batch_norm, "Batch",
    |d: usize| if d == 1 { 2..=3 } else { d + 2..=d + 2 };
    /// Batch normalization of `[N, C]` or `[N, C, L]`. `torch.nn.BatchNorm1d`.
    BatchNorm1d = 1;
    /// Batch normalization of images `[N, C, H, W]`. `torch.nn.BatchNorm2d`.
    BatchNorm2d = 2;
    /// Batch normalization of volumes `[N, C, D, H, W]`. `torch.nn.BatchNorm3d`.
    BatchNorm3d = 3;
}

norm! {
    /// Normalizes each channel of each sample over the axes after it: see
    /// [`functional::instance_norm`](crate::functional::instance_norm). Use it as [`InstanceNorm1d`],
    /// [`InstanceNorm2d`] and [`InstanceNorm3d`]. By default there are neither parameters nor running
    /// statistics.
    InstanceNorm,
    BatchNormConfig { affine: false, track_running_stats: false, ..BatchNormConfig::default() },
    instance_norm, "Instance", |d: usize| d + 2..=d + 2;
    /// Instance normalization of `[N, C, L]`. `torch.nn.InstanceNorm1d`.
    InstanceNorm1d = 1;
    /// Instance normalization of images `[N, C, H, W]`. `torch.nn.InstanceNorm2d`.
    InstanceNorm2d = 2;
    /// Instance normalization of volumes `[N, C, D, H, W]`. `torch.nn.InstanceNorm3d`.
    InstanceNorm3d = 3;
}

layer!(LayerNorm, RmsNorm, GroupNorm);

macro_rules! affine_module {
    ($($layer:ident: $($field:ident)*;)*) => {$(
        impl Module for $layer {
            fn visit(&self, visitor: &mut Visitor) {
                $(if let Some(tensor) = &self.$field {
                    visitor.parameter(stringify!($field), tensor);
                })*
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut) {
                $(if let Some(tensor) = &mut self.$field {
                    visitor.parameter(stringify!($field), tensor);
                })*
            }
        }
    )*};
}
affine_module! {
    LayerNorm: weight bias;
    RmsNorm: weight;
    GroupNorm: weight bias;
}
