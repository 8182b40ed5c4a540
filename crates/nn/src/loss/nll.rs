//! The negative log-likelihood of class labels, which cross-entropy uses.

use autograd::{Function, apply};
use tensor_core::{DType, Error, ErrorKind, Refusal, Result, Scalar, Shape, Tensor, autocast, caller_line};

use super::Reduction;
use crate::functions::is_gpu;

/// The negative log-likelihood `−weight[y] · x[y]` for log-probabilities x and labels y. `torch.nn.NLLLoss`.
///
/// Shapes are those of [`crate::CrossEntropyLoss`]. The mean divides by the sum of the labels' weights.
#[derive(Clone, Debug)]
pub struct NllLoss {
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
    /// The label that is ignored, −100 by default; `None` for none.
    pub ignore_index: Option<i64>,
    /// The weight of each class, `[C]`; 1 by default.
    pub weight: Option<Tensor>,
}

impl Default for NllLoss {
    fn default() -> NllLoss {
        NllLoss { reduction: Reduction::Mean, ignore_index: Some(-100), weight: None }
    }
}

impl NllLoss {
    /// The loss of log-probabilities and class labels.
    ///
    /// # Errors
    /// As for [`crate::CrossEntropyLoss::forward`].
    #[track_caller]
    pub fn forward(&self, log_probabilities: &Tensor, targets: &Tensor) -> Result<Tensor> {
        const OP: &str = "nll_loss";
        const LABELS: &Refusal = &Refusal::of_index(OP);
        let cast = autocast::cast(OP, [log_probabilities], [self.weight.as_ref()])?;
        let ([log_probabilities], [weight]) = cast.tensors();
        let labels = Labels::new(LABELS, log_probabilities, targets, weight, self.ignore_index)?;
        let losses = labels.nll(log_probabilities)?;
        labels.reduce(&losses, self.reduction)
    }
}

/// The mean negative log-likelihood. See [`NllLoss`].
///
/// # Errors
/// As for [`crate::CrossEntropyLoss::forward`].
#[track_caller]
pub fn nll_loss(log_probabilities: &Tensor, targets: &Tensor) -> Result<Tensor> {
    NllLoss::default().forward(log_probabilities, targets)
}

/// Class labels, checked against their scores.
pub(super) struct Labels<'a> {
    /// The error of a label that is no class.
    refusal: &'static Refusal,
    /// The axis of the classes.
    pub(super) axis: isize,
    /// The number of classes.
    pub(super) classes: usize,
    /// The dtype of the scores.
    dtype: DType,
    /// The labels, with class 0 in place of the ignored ones, which may be out of range.
    safe: Tensor,
    /// The mask of ignored labels, if there can be any.
    ignored: Option<Tensor>,
    /// The weight of each class.
    weight: Option<&'a Tensor>,
}

impl<'a> Labels<'a> {
    /// Checks everything that can be checked without reading the labels.
    #[track_caller]
    pub(super) fn new(
        refusal: &'static Refusal,
        scores: &Tensor,
        targets: &Tensor,
        weight: Option<&'a Tensor>,
        ignore_index: Option<i64>,
    ) -> Result<Labels<'a>> {
        let _line = caller_line();
        let op = refusal.op;
        let axis = class_axis(op, scores)?;
        let classes = scores.dims()[axis];
        check_dtypes(op, scores, targets)?;
        let expected: Shape = scores.shape().reduced(&[axis], false);
        if *targets.shape() != expected {
            return Err(Error::new(ErrorKind::ShapeMismatch {
                op,
                lhs: scores.shape().clone(),
                rhs: targets.shape().clone(),
                hint: match targets.shape() == scores.shape() {
                    true => format!(
                        "labels are of shape {expected}, one for each place off class axis {axis}; one-hot rows are \
                         class probabilities, which cross_entropy takes as floating-point numbers: cast them with \
                         .to_dtype(DType::{:?})?",
                        scores.dtype()
                    ),
                    false => format!(
                        "scores {} take labels of shape {expected}, one for each place off class axis {axis}",
                        scores.shape()
                    ),
                },
            }));
        }
        if let Some(weight) = weight {
            check_weight(op, weight, classes, scores.dtype())?;
        }
        let ignored =
            ignore_index.filter(|&label| holds(targets.dtype(), label)).map(|label| targets.eq_scalar(label));
        let safe = match &ignored {
            Some(mask) => targets.masked_fill(mask, 0)?,
            None => targets.clone(),
        };
        Ok(Labels { refusal, axis: axis as isize, classes, dtype: scores.dtype(), safe, ignored, weight })
    }

    /// `−weight[y] · x[y]` for each label, 0 for ignored ones.
    #[track_caller]
    pub(super) fn nll(&self, log_probabilities: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let index = self.safe.unsqueeze(self.axis)?;
        self.count(log_probabilities.gather_for(self.refusal, self.axis, &index)?.squeeze(self.axis)?.neg())
    }

    /// As [`Labels::nll`] for the scores' log-softmax, which is not stored: the gradient is one pass over
    /// the scores. Half types are computed in f32.
    #[track_caller]
    pub(super) fn nll_of_logits(&self, logits: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let wide = logits.to_dtype(logits.dtype().compute())?;
        let (log_sum, greatest) = match is_gpu(&wide.device()) {
            true => apply(LogSum { axis: self.axis }, &[&wide])?,
            false => log_sum(&wide, self.axis)?,
        };
        let of_label = wide
            .gather_for(self.refusal, self.axis, &self.safe.unsqueeze(self.axis)?)?
            .sub(&greatest.detach())?;
        self.count(log_sum.sub(&of_label)?.squeeze(self.axis)?.to_dtype(logits.dtype())?)
    }

    /// Multiplies losses of single labels by the weights of their classes, and sets those of ignored labels
    /// to 0.
    #[track_caller]
    fn count(&self, mut losses: Tensor) -> Result<Tensor> {
        if let Some(weight) = self.weight_of_labels()? {
            losses = losses.mul(&weight)?;
        }
        self.silence(losses)
    }

    /// Sets the losses of ignored labels to 0.
    #[track_caller]
    pub(super) fn silence(&self, losses: Tensor) -> Result<Tensor> {
        match &self.ignored {
            Some(mask) => losses.masked_fill(mask, 0.0),
            None => Ok(losses),
        }
    }

    /// The classes' weights, reshaped to multiply scores.
    #[track_caller]
    pub(super) fn weight_along_classes(&self) -> Result<Option<Tensor>> {
        let _line = caller_line();
        let trailing = self.safe.rank().saturating_sub(1);
        let shape: Vec<usize> = [self.classes].into_iter().chain(vec![1; trailing]).collect();
        self.weight.map(|weight| weight.reshape(shape)).transpose()
    }

    /// The weight of each label's class.
    #[track_caller]
    pub(super) fn weight_of_labels(&self) -> Result<Option<Tensor>> {
        let Some(weight) = self.weight else { return Ok(None) };
        let of_labels =
            weight.gather_for(self.refusal, 0, &self.safe.flatten_all())?.reshape(self.safe.shape())?;
        Ok(Some(of_labels))
    }

    /// Reduces losses of single labels, which are 0 for ignored ones. The mean divides by the sum of the
    /// weights of the other labels.
    #[track_caller]
    pub(super) fn reduce(&self, losses: &Tensor, reduction: Reduction) -> Result<Tensor> {
        if reduction == Reduction::None {
            return Ok(losses.clone());
        }
        // Half precision cannot count beyond 2048 labels: it is summed in f32.
        let losses = losses.to_dtype(self.dtype.compute())?;
        if reduction == Reduction::Sum {
            return losses.sum().to_dtype(self.dtype);
        }
        let weights = match (self.weight_of_labels()?, &self.ignored) {
            (Some(weights), _) => self.silence(weights.to_dtype(losses.dtype())?)?.sum(),
            (None, Some(ignored)) => ignored.logical_not().to_dtype(losses.dtype())?.sum(),
            (None, None) => return losses.mean().to_dtype(self.dtype),
        };
        losses.sum().div(&weights)?.to_dtype(self.dtype)
    }
}

/// s = ln Σ exp(x − m) along an axis, with m = max x, and m itself, which is a constant for gradients: the
/// loss subtracts what it added.
#[track_caller]
fn log_sum(x: &Tensor, axis: isize) -> Result<(Tensor, Tensor)> {
    let greatest = x.detach().amax(axis, true)?;
    Ok((x.sub(&greatest)?.exp().sum_axis(axis, true)?.log(), greatest))
}

/// [`log_sum`] with the gradient exp(x − m − s), which takes both numbers from the forward pass and stores no
/// matrix of exponentials. On the CPU reading them costs less than computing them again.
#[derive(Debug)]
struct LogSum {
    axis: isize,
}

impl Function for LogSum {
    type Output = (Tensor, Tensor);

    fn name(&self) -> &'static str {
        "LogSumExp"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<(Tensor, Tensor)> {
        log_sum(inputs[0], self.axis)
    }

    #[track_caller]
    fn backward(
        &self,
        inputs: &[Tensor],
        (log_sum, greatest): &(Tensor, Tensor),
        (gradient, _): &(Option<Tensor>, Option<Tensor>),
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(gradient) = gradient else { return Ok(vec![None]) };
        let shares = inputs[0].sub(&greatest.detach())?.sub(log_sum)?.exp();
        Ok(vec![Some(shares.mul(gradient)?)])
    }
}

/// The axis of the classes: the second, or the only one.
#[track_caller]
pub(super) fn class_axis(op: &'static str, scores: &Tensor) -> Result<usize> {
    let axis = match scores.rank() {
        0 => {
            return Err(Error::invalid(
                op,
                "scores of shape [] have no classes; give [C], [N, C] or [N, C, …]",
            ));
        }
        1 => 0,
        _ => 1,
    };
    if scores.dims()[axis] == 0 {
        let message = format!("scores of shape {} have no classes along axis {axis}", scores.shape());
        return Err(Error::invalid(op, message));
    }
    Ok(axis)
}

#[track_caller]
pub(super) fn check_scores(op: &'static str, scores: &Tensor) -> Result<()> {
    if scores.dtype().is_float() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::DTypeMismatch {
        op,
        lhs: scores.dtype(),
        rhs: DType::F32,
        hint: "scores must be floating-point: cast them with .to_dtype(DType::F32)?".into(),
    }))
}

#[track_caller]
fn check_dtypes(op: &'static str, scores: &Tensor, targets: &Tensor) -> Result<()> {
    check_scores(op, scores)?;
    if !targets.dtype().is_int() {
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op,
            lhs: targets.dtype(),
            rhs: DType::I32,
            hint:
                "targets are class labels, integers from 0 to C - 1: cast them with .to_dtype(DType::I32)?, \
                   or take .argmax_axis(1, false)? of one-hot rows"
                    .into(),
        }));
    }
    Ok(())
}

#[track_caller]
pub(super) fn check_weight(op: &'static str, weight: &Tensor, classes: usize, dtype: DType) -> Result<()> {
    if weight.dims() != [classes] {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op,
            lhs: [classes].into(),
            rhs: weight.shape().clone(),
            hint: format!("the weight needs one number for each of the {classes} classes, shape [{classes}]"),
        }));
    }
    if weight.dtype() != dtype {
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op,
            lhs: weight.dtype(),
            rhs: dtype,
            hint: format!(
                "the weight must be of the scores' dtype: cast it with .to_dtype(DType::{dtype:?})?"
            ),
        }));
    }
    Ok(())
}

/// Whether an integer dtype has this value: −100 as a u8 would be 156, a valid label.
fn holds(dtype: DType, label: i64) -> bool {
    Scalar::Int(label).cast(dtype) == Scalar::Int(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_labels_of_narrow_dtypes_do_not_wrap() {
        assert!(!holds(DType::U8, -100) && !holds(DType::U32, -100) && !holds(DType::I32, 1 << 31));
        assert!(holds(DType::U8, 255) && holds(DType::I32, -100) && holds(DType::I64, i64::MIN));
    }
}
