//! Batch norm with fixed statistics and parameters.

use std::fmt;

use tensor_core::{Device, Error, Result, Tensor, caller_line, default_dtype};

use super::{layer, record};
use crate::{Module, Visitor, VisitorMut};

/// Batch norm of images `[N, C, H, W]` whose statistics and parameters are buffers, which no training
/// changes: (x − running_mean) / √(running_var + eps) · weight + bias. It is for pretrained parts of
/// detectors. `torchvision.ops.FrozenBatchNorm2d`.
///
/// State: the buffers `weight`, `bias`, `running_mean` and `running_var`, `[C]` each.
///
/// ```
/// use nn::{FrozenBatchNorm2d, Module};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let norm = FrozenBatchNorm2d::new(3, &device)?;
/// assert_eq!((norm.parameters().len(), norm.buffers().len()), (0, 4));
/// assert_eq!(norm.forward(&Tensor::ones([2, 3, 4, 4], &device)?)?.dims(), [2, 3, 4, 4]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct FrozenBatchNorm2d {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    eps: f64,
}

impl FrozenBatchNorm2d {
    /// A layer for this number of channels that adds 1e-5 to variances.
    ///
    /// # Errors
    /// No channels, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn new(channels: usize, device: &Device) -> Result<FrozenBatchNorm2d> {
        FrozenBatchNorm2d::with_eps(channels, 1e-5, device)
    }

    /// A layer that adds `eps` to variances.
    ///
    /// # Errors
    /// As [`FrozenBatchNorm2d::new`].
    #[track_caller]
    pub fn with_eps(channels: usize, eps: f64, device: &Device) -> Result<FrozenBatchNorm2d> {
        let _line = caller_line();
        if channels == 0 {
            return Err(Error::invalid("FrozenBatchNorm2d", "no channels: give at least one"));
        }
        let buffer = |value: f64| -> Result<Tensor> {
            let tensor = Tensor::full([channels], value, (default_dtype(), device))?;
            crate::init::settle(&tensor)?;
            tensor.into_cell(false)
        };
        Ok(FrozenBatchNorm2d {
            weight: buffer(1.0)?,
            bias: buffer(0.0)?,
            running_mean: buffer(0.0)?,
            running_var: buffer(1.0)?,
            eps,
        })
    }

    /// The output for an input `[N, C, H, W]`.
    ///
    /// # Errors
    /// An input of another shape or dtype, or on another device.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let channels = self.weight.numel();
        if input.rank() != 4 || input.dims()[1] != channels {
            let message = format!("the input is [N, {channels}, H, W], not {}", input.shape());
            return Err(Error::invalid("FrozenBatchNorm2d", message));
        }
        let scale = self.weight.mul(&self.running_var.add_scalar(self.eps).rsqrt())?;
        let shift = self.bias.sub(&self.running_mean.mul(&scale)?)?;
        let wide = |x: &Tensor| x.reshape([channels, 1, 1]);
        record!(self, input.mul(&wide(&scale)?)?.add(&wide(&shift)?))
    }
}

impl fmt::Debug for FrozenBatchNorm2d {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrozenBatchNorm2d({}, eps={:?})", self.weight.numel(), self.eps)
    }
}

layer!(FrozenBatchNorm2d);

impl Module for FrozenBatchNorm2d {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.buffer("weight", &self.weight);
        visitor.buffer("bias", &self.bias);
        visitor.buffer("running_mean", &self.running_mean);
        visitor.buffer("running_var", &self.running_var);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.buffer("weight", &mut self.weight);
        visitor.buffer("bias", &mut self.bias);
        visitor.buffer("running_mean", &mut self.running_mean);
        visitor.buffer("running_var", &mut self.running_var);
    }
}
