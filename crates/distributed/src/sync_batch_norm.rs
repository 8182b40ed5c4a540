//! [`SyncBatchNorm`]: batch norm with the statistics of the whole batch over all ranks.

use std::fmt;

use autograd::{Function, apply};
use nn::{BatchNormConfig, Channels, Layer, Module, Visitor, VisitorMut};
use tensor_core::{Device, Error, Result, Tensor};

use crate::{Communicator, ReduceOp};

const OP: &str = "SyncBatchNorm";

/// The sum over all ranks. A loss on any rank depends on every rank's input, so the gradient is the sum over
/// all ranks, too.
struct Total(Communicator);

impl fmt::Debug for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AllReduce")
    }
}

impl Function for Total {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "AllReduce"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        self.0.all_reduce(inputs[0], ReduceOp::Sum)
    }

    #[track_caller]
    fn backward(&self, _: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(apply(Total(self.0.clone()), &[gradient])?)])
    }
}

impl Communicator {
    /// The sum of the ranks' tensors, with a gradient: the gradient of each rank's tensor is the sum of the
    /// ranks' gradients. Forward and backward pass evaluate their inputs and communicate immediately. All
    /// ranks must build the same graph. `torch.distributed.nn.functional.all_reduce`.
    ///
    /// # Errors
    /// The errors of [`Communicator::all_reduce`].
    #[track_caller]
    pub fn all_reduce_sum_tracked(&self, tensor: &Tensor) -> Result<Tensor> {
        apply(Total(self.clone()), &[tensor])
    }
}

/// Batch normalization of `[N, C, …]` with means and variances over the batch parts of all ranks.
/// `torch.nn.SyncBatchNorm`.
///
/// Parameters, buffers and their names are those of [`nn::BatchNorm`], and so is evaluation, which does not
/// communicate if there are running statistics. In training, a forward pass exchanges two messages of C
/// numbers, one after the other, so that the variance is computed about the mean; a backward pass exchanges
/// two as well. Parts may have different sizes.
///
/// ```
/// use distributed::{Communicator, SyncBatchNorm};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let norm = SyncBatchNorm::new(3, &Communicator::solo(), &device)?;
/// assert_eq!(norm.forward(&Tensor::ones([2, 3, 4, 4], &device)?)?.dims(), [2, 3, 4, 4]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SyncBatchNorm {
    norm: Channels,
    comm: Communicator,
}

impl SyncBatchNorm {
    /// A layer for this number of channels, with PyTorch's defaults.
    ///
    /// # Errors
    /// No channels, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn new(channels: usize, comm: &Communicator, device: &Device) -> Result<SyncBatchNorm> {
        SyncBatchNorm::with_config(channels, BatchNormConfig::default(), comm, device)
    }

    /// A layer with another eps or momentum, with or without parameters and running statistics.
    ///
    /// # Errors
    /// No channels, a momentum outside [0, 1], a dtype that is not floating-point or that the device lacks,
    /// or too little memory.
    #[track_caller]
    pub fn with_config(
        channels: usize,
        config: BatchNormConfig,
        comm: &Communicator,
        device: &Device,
    ) -> Result<SyncBatchNorm> {
        Ok(SyncBatchNorm { norm: Channels::new(OP, channels, config, device)?, comm: comm.clone() })
    }

    /// The weight `[C]`, if there is one.
    pub fn weight(&self) -> Option<&Tensor> {
        self.norm.weight.as_ref()
    }

    /// The bias `[C]`, if there is one.
    pub fn bias(&self) -> Option<&Tensor> {
        self.norm.bias.as_ref()
    }

    /// The running mean `[C]`, if it is tracked.
    pub fn running_mean(&self) -> Option<&Tensor> {
        self.norm.running.as_ref().map(|running| &running.mean)
    }

    /// The running variance `[C]`, if it is tracked.
    pub fn running_var(&self) -> Option<&Tensor> {
        self.norm.running.as_ref().map(|running| &running.var)
    }

    /// The output for an input `[N, C, …]`. In training, all ranks call it together.
    ///
    /// # Errors
    /// Another number of channels, a single value for each channel on all ranks together, another dtype or
    /// device; ranks that are missing.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let Channels { weight, bias, running, channels, eps, training, .. } = &self.norm;
        let (channels, training) = (*channels, training.get());
        if !training && running.is_some() {
            return self.norm.batch_norm(OP, input);
        }
        self.norm.check(OP, input)?;
        let wide = input.to_dtype(input.dtype().compute())?;
        let axes: Vec<usize> = (0..input.rank()).filter(|&axis| axis != 1).collect();
        let mut along = vec![1; input.rank()];
        along[1] = channels;
        // The number of values for each channel is sent with their sums.
        let count = Tensor::full([1], (input.numel() / channels) as f64, (wide.dtype(), &wide.device()))?;
        let sums = Tensor::concat(&[wide.sum_axis(axes.as_slice(), false)?, count], 0)?;
        let totals = self.comm.all_reduce_sum_tracked(&sums)?;
        let count = totals.detach().narrow(0, channels, 1)?.item_f64()?;
        if count < 2.0 {
            let message = format!(
                "{count} value for each channel on all ranks together, whose variance is undefined: use larger batches, or call .eval() \
                 on the model to use the running statistics"
            );
            return Err(Error::invalid(OP, message));
        }
        let mean = totals.narrow(0, 0, channels)?.mul_scalar(1.0 / count);
        let centered = wide.sub(&mean.reshape(along.as_slice())?)?;
        let squares = centered.powi(2).sum_axis(axes.as_slice(), false)?;
        let var = self.comm.all_reduce_sum_tracked(&squares)?.mul_scalar(1.0 / count);
        if training {
            self.note(&mean.detach(), &var.detach().mul_scalar(count / (count - 1.0)))?;
        }
        let mut out = centered.mul(&var.add_scalar(*eps).rsqrt().reshape(along.as_slice())?)?;
        if let Some(weight) = weight {
            out = out.mul(&weight.to_dtype(wide.dtype())?.reshape(along.as_slice())?)?;
        }
        if let Some(bias) = bias {
            out = out.add(&bias.to_dtype(wide.dtype())?.reshape(along.as_slice())?)?;
        }
        out.to_dtype(input.dtype())
    }

    /// Updates the running statistics with those of a batch.
    #[track_caller]
    fn note(&self, mean: &Tensor, var: &Tensor) -> Result<()> {
        let Some(running) = &self.norm.running else { return Ok(()) };
        let batches = running.batches.detach().add_scalar(1);
        let step = |kept: &Tensor, seen: &Tensor| -> Result<Tensor> {
            let kept = kept.detach();
            let distance = seen.to_dtype(kept.dtype())?.sub(&kept)?;
            kept.add(&match self.norm.momentum {
                Some(share) => distance.mul_scalar(share),
                None => distance.div(&batches.to_dtype(kept.dtype())?)?,
            })
        };
        let (mean, var) = (step(&running.mean, mean)?, step(&running.var, var)?);
        running.mean.assign(&mean)?;
        running.var.assign(&var)?;
        running.batches.assign(&batches)
    }
}

impl fmt::Debug for SyncBatchNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.norm.describe(OP, f)
    }
}

impl Layer for SyncBatchNorm {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        SyncBatchNorm::forward(self, input)
    }
}

impl Module for SyncBatchNorm {
    fn visit(&self, visitor: &mut Visitor) {
        self.norm.visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.norm.visit_mut(visitor);
    }
}
