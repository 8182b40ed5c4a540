//! The Kullback-Leibler divergence.

use tensor_core::{Result, Tensor, autocast};

use super::{Reduction, check_pair};

/// The Kullback-Leibler divergence: y·(ln y − x) for log-probabilities x and probabilities y, or eʸ·(y − x)
/// if y are log-probabilities too. `torch.nn.KLDivLoss`.
///
/// ```
/// use nn::KlDivLoss;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let x = Tensor::new([[0.5f32, 0.5]], &device)?.log();
/// let y = Tensor::new([[1.0f32, 0.0]], &device)?;
/// let loss = KlDivLoss { batch_mean: true, ..Default::default() }.forward(&x, &y)?;
/// assert!((loss.item::<f32>()? - 2f32.ln()).abs() < 1e-6);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct KlDivLoss {
    /// The reduction of the losses: by default the mean over all elements, as in PyTorch, although the
    /// divergence of distributions is a sum; see `batch_mean`.
    pub reduction: Reduction,
    /// Whether targets are logarithms. Off by default.
    pub log_target: bool,
    /// Whether the sum is divided by the size of the first axis, whatever `reduction` says:
    /// `reduction="batchmean"`. Off by default.
    pub batch_mean: bool,
}

impl KlDivLoss {
    /// The divergence of `input`, log-probabilities, from `target`, of one shape.
    ///
    /// # Errors
    /// Two shapes (nothing is broadcast), dtypes that are not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let cast = autocast::cast("kl_div", [input, target], [])?;
        let ([input, target], []) = cast.tensors();
        check_pair("kl_div", input, target)?;
        let losses = match self.log_target {
            true => target.exp().mul(&target.sub(input)?)?,
            false => {
                // y·ln y is 0 for y = 0.
                let log = target.masked_fill(&target.eq_scalar(0.0), 1.0)?.log();
                target.mul(&log.sub(input)?)?
            }
        };
        match self.batch_mean {
            true => Ok(losses.sum().div_scalar(input.dims().first().copied().unwrap_or(1) as f64)),
            false => Ok(self.reduction.apply(&losses)),
        }
    }
}

/// The mean divergence over all elements. See [`KlDivLoss`].
///
/// # Errors
/// As for [`KlDivLoss::forward`].
#[track_caller]
pub fn kl_div(input: &Tensor, target: &Tensor) -> Result<Tensor> {
    KlDivLoss::default().forward(input, target)
}
