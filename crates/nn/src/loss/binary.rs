//! Binary cross-entropy, from logits and from probabilities.

use autograd::{Function, apply};
use tensor_core::{Result, Tensor, autocast, caller_line};

use super::{Reduction, check_pair};

/// Binary cross-entropy with logits: v · (−w · y · ln σ(x) − (1 − y) · ln(1 − σ(x))) for logits x, targets y
/// in [0, 1], and weights w and v. `torch.nn.BCEWithLogitsLoss`.
///
/// With softplus(z) = ln(1 + eᶻ) it is computed as w · y · softplus(−x) + (1 − y) · softplus(x), which
/// neither overflows nor loses small values.
#[derive(Clone, Debug, Default)]
pub struct BceWithLogitsLoss {
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
    /// w, the weight of positive targets, which broadcasts to the logits; 1 by default.
    pub pos_weight: Option<Tensor>,
    /// v, the weight of each element, which broadcasts to the logits; 1 by default. The mean still divides
    /// by the number of elements.
    pub weight: Option<Tensor>,
}

impl BceWithLogitsLoss {
    /// The loss of `logits` and `targets`, which have one shape.
    ///
    /// # Errors
    /// Two shapes, a weight that does not broadcast, dtypes that are not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let weights = [self.pos_weight.as_ref(), self.weight.as_ref()];
        let cast = autocast::cast("binary_cross_entropy_with_logits", [logits, targets], weights)?;
        let ([logits, targets], [pos_weight, weight]) = cast.tensors();
        check_pair("binary_cross_entropy_with_logits", logits, targets)?;
        // Both softplus terms share ln(1 + e^−|x|), and each adds max(0, ±x). Written with `where`, the
        // derivatives at 0 are those of softplus.
        let (is_positive, zero) = (logits.gt_scalar(0.0), logits.zeros_like());
        let negated = logits.neg();
        let common = is_positive.where_cond(&negated, logits)?.exp().log1p();
        let mut positive = common.add(&is_positive.where_cond(&zero, &negated)?)?.mul(targets)?;
        if let Some(weight) = pos_weight {
            // The weight broadcasts to the logits, never the reverse.
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

/// Binary cross-entropy: −y · ln p − (1 − y) · ln(1 − p) for probabilities p and targets y in [0, 1];
/// logarithms are clamped to −100 or more. `torch.nn.BCELoss`.
///
/// [`BceWithLogitsLoss`] is more accurate if logits are available. A p or y outside [0, 1] gives NaN as loss
/// and gradient. (PyTorch reports an error, for which it reads all elements on the host, and on GPUs ends
/// the process.)
#[derive(Clone, Debug, Default)]
pub struct BceLoss {
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
    /// The weight of each element, which broadcasts to the input; 1 by default.
    pub weight: Option<Tensor>,
}

impl BceLoss {
    /// The loss of probabilities `input` and `target`, which have one shape.
    ///
    /// # Errors
    /// Two shapes, a weight that does not broadcast, dtypes that are not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
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

/// A custom function, because its derivative at p = 0 and 1 is finite, while those of the logarithms are
/// not.
#[derive(Debug)]
struct BinaryCrossEntropy;

/// ln p and ln(1 − p), clamped to −100 or more.
#[track_caller]
fn logarithms(p: &Tensor) -> (Tensor, Tensor) {
    (p.log().maximum_scalar(-100.0), p.neg().log1p().maximum_scalar(-100.0))
}

/// 0 where both are in [0, 1], else NaN; added to the loss, it marks invalid elements.
#[track_caller]
fn invalid(p: &Tensor, y: &Tensor) -> Result<Tensor> {
    let _line = caller_line();
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
