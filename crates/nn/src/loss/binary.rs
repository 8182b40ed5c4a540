//! Binary cross-entropy, from logits.

use tensor_core::{Result, Tensor};

use super::{Reduction, check_pair};

/// −w · y · ln σ(x) − (1 − y) · ln(1 − σ(x)) for logits x and targets y in [0, 1]. `torch.nn.BCEWithLogitsLoss`.
///
/// With softplus(z) = ln(1 + eᶻ) it is computed as w · y · softplus(−x) + (1 − y) · softplus(x), which neither overflows nor
/// loses small values.
#[derive(Clone, Debug, Default)]
pub struct BceWithLogitsLoss {
    /// What is returned: the mean by default.
    pub reduction: Reduction,
    /// w, the weight of positive targets, broadcast to the logits; 1 by default.
    pub pos_weight: Option<Tensor>,
}

impl BceWithLogitsLoss {
    /// The loss of `logits` against `targets`, of one shape.
    ///
    /// # Errors
    /// Two shapes, a weight that does not broadcast, dtypes that are not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        check_pair("binary_cross_entropy_with_logits", logits, targets)?;
        let mut positive = logits.logsigmoid().neg().mul(targets)?;
        if let Some(weight) = &self.pos_weight {
            // It broadcasts to the logits, never the other way round.
            positive = positive.mul(&weight.expand(logits.shape())?)?;
        }
        let negative = logits.softplus(1.0, f64::INFINITY).mul(&targets.neg().add_scalar(1.0))?;
        let losses = positive.add(&negative)?;
        Ok(self.reduction.apply(&losses))
    }
}

/// The mean binary cross-entropy of logits. See [`BceWithLogitsLoss`].
///
/// # Errors
/// Two shapes, dtypes that are not floating-point, or two devices.
#[track_caller]
pub fn binary_cross_entropy_with_logits(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    BceWithLogitsLoss::default().forward(logits, targets)
}
