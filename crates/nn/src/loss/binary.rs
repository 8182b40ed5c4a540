//! Binary cross-entropy, from logits and from probabilities.

use autograd::{Function, apply};
use tensor_core::{Result, Tensor, autocast};

use super::{Reduction, check_pair};

/// v · (−w · y · ln σ(x) − (1 − y) · ln(1 − σ(x))) for logits x, targets y in [0, 1], and weights.
/// `torch.nn.BCEWithLogitsLoss`.
///
/// With softplus(z) = ln(1 + eᶻ) the sum is computed as w · y · softplus(−x) + (1 − y) · softplus(x), which
/// neither overflows nor
/// loses small values.
#[derive(Clone, Debug, Default)]
pub struct BceWithLogitsLoss {
    /// What is returned: the mean by default.
    pub reduction: Reduction,
    /// w, the weight of positive targets, broadcast to the logits; 1 by default.
    pub pos_weight: Option<Tensor>,
    /// v, a weight of each element, broadcast to the logits; 1 by default. The mean divides by the number of
    /// elements all the same.
    pub weight: Option<Tensor>,
}

impl BceWithLogitsLoss {
    /// The loss of `logits` against `targets`, of one shape.
    ///
    /// # Errors
    /// Two shapes, a weight that does not broadcast, dtypes that are not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let weights = [self.pos_weight.as_ref(), self.weight.as_ref()];
        let cast = autocast::cast("binary_cross_entropy_with_logits", [logits, targets], weights)?;
        let ([logits, targets], [pos_weight, weight]) = cast.tensors();
        check_pair("binary_cross_entropy_with_logits", logits, targets)?;
        // Of ln(1 + e⁻ˡˣˡ), which both have in common, each lacks what rises beside it. Written so that
        // derivatives at 0 are those of softplus.
        let (is_positive, zero) = (logits.gt_scalar(0.0), logits.zeros_like());
        let negated = logits.neg();
        let common = is_positive.where_cond(&negated, logits)?.exp().log1p();
        let mut positive = common.add(&is_positive.where_cond(&zero, &negated)?)?.mul(targets)?;
        if let Some(weight) = pos_weight {
            // It broadcasts to the logits, never the other way round.
            positive = positive.mul(&weight.expand(logits.shape())?)?;
        }
        let softplus = common.add(&is_positive.where_cond(logits, &zero)?)?;
        let mut losses = softplus.mul(&targets.neg().add_scalar(1.0))?.add(&positive)?;
        if let Some(weight) = weight {
            losses = losses.mul(&weight.expand(logits.shape())?)?;
        }
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

/// −y · ln p − (1 − y) · ln(1 − p) for probabilities p and targets y in [0, 1]; logarithms are held to −100.
/// `torch.nn.BCELoss`.
///
/// [`BceWithLogitsLoss`] is more accurate where there are logits. A p or y outside [0, 1] is no probability:
/// its loss and gradient are NaN. (PyTorch's is an error, for which it reads all of them on the host, and on
/// GPUs ends the process.)
#[derive(Clone, Debug, Default)]
pub struct BceLoss {
    /// What is returned: the mean by default.
    pub reduction: Reduction,
    /// A weight of each element, broadcast to the input; 1 by default.
    pub weight: Option<Tensor>,
}

impl BceLoss {
    /// The loss of probabilities `input` against `target`, of one shape.
    ///
    /// # Errors
    /// Two shapes, a weight that does not broadcast, dtypes that are not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let cast = autocast::cast("binary_cross_entropy", [input, target], [self.weight.as_ref()])?;
        let ([input, target], [weight]) = cast.tensors();
        check_pair("binary_cross_entropy", input, target)?;
        let mut losses = apply(BinaryCrossEntropy, &[input, target])?;
        if let Some(weight) = weight {
            losses = losses.mul(&weight.expand(input.shape())?)?;
        }
        Ok(self.reduction.apply(&losses))
    }
}

/// The mean binary cross-entropy of probabilities. See [`BceLoss`].
///
/// # Errors
/// As for [`BceLoss::forward`].
#[track_caller]
pub fn binary_cross_entropy(input: &Tensor, target: &Tensor) -> Result<Tensor> {
    BceLoss::default().forward(input, target)
}

/// Of its own, since its derivative at p = 0 and 1 is finite where those of the logarithms are not.
#[derive(Debug)]
struct BinaryCrossEntropy;

/// ln p and ln(1 − p), −100 or more.
#[track_caller]
fn logarithms(p: &Tensor) -> (Tensor, Tensor) {
    (p.log().maximum_scalar(-100.0), p.neg().log1p().maximum_scalar(-100.0))
}

/// 0 where both are probabilities, else NaN: what is added to make what they give no number.
#[track_caller]
fn invalid(p: &Tensor, y: &Tensor) -> Result<Tensor> {
    let within = |t: &Tensor| t.ge_scalar(0.0).bitwise_and(&t.le_scalar(1.0));
    let both = within(p)?.bitwise_and(&within(y)?)?;
    let zero = p.zeros_like();
    both.where_cond(&zero, &zero.full_like(f64::NAN))
}

impl Function for BinaryCrossEntropy {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "BinaryCrossEntropy"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (p, y) = (inputs[0], inputs[1]);
        let (log, log_not) = logarithms(p);
        y.sub_scalar(1.0).mul(&log_not)?.sub(&y.mul(&log)?)?.add(&invalid(p, y)?)
    }

    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (p, y) = (&inputs[0], &inputs[1]);
        let variance = p.mul(&p.neg().add_scalar(1.0))?.maximum_scalar(1e-12);
        let gradient = gradient.add(&invalid(p, y)?)?;
        let of_p = gradient.mul(&p.sub(y)?.div(&variance)?)?;
        let (log, log_not) = logarithms(p);
        let of_y = gradient.mul(&log_not.sub(&log)?)?;
        Ok(vec![Some(of_p), Some(of_y)])
    }
}
