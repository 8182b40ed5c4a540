//! Cross-entropy of logits against class labels or class probabilities.

use tensor_core::{Error, ErrorKind, Refusal, Result, Tensor, autocast, caller_line};

use super::{
    Reduction,
    nll::{Labels, check_scores, check_weight, class_axis},
};

/// The cross-entropy of logits x against labels y, `−ln softmax(x)[y]`, or against probabilities p,
/// `−Σ_c p[c] · ln softmax(x)[c]`, with all of PyTorch's options. `torch.nn.CrossEntropyLoss`.
///
/// | logits | labels (integers) | probabilities (floating-point) |
/// |---|---|---|
/// | `[C]` | `[]` | `[C]` |
/// | `[N, C]` | `[N]` | `[N, C]` |
/// | `[N, C, d₁, …]` | `[N, d₁, …]` | `[N, C, d₁, …]` |
///
/// With smoothing ε and weights w, the loss of one label is `−(1 − ε) · w[y] · ln softmax(x)[y] − ε / C ·
/// Σ_c w[c] · ln softmax(x)[c]`, and the mean divides the sum of these by `Σ w[y]` over the labels that are
/// not ignored (NaN if all are). For probabilities, `p' = (1 − ε) · p + ε / C` replaces p, the loss of one
/// position is `−Σ_c w[c] · p'[c] · ln softmax(x)[c]`, and the mean divides by the number of positions,
/// whatever the weights.
///
/// ```
/// use nn::CrossEntropyLoss;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let logits = Tensor::new([[2.0f32, 0.0], [0.0, 0.0]], &device)?;
/// let labels = Tensor::new([0i32, -100], &device)?;
/// let loss = CrossEntropyLoss { label_smoothing: 0.1, ..Default::default() }.forward(&logits, &labels)?;
/// assert!((loss.item::<f32>()? - 0.226928).abs() < 1e-5);
/// // The same with probabilities, of which no row is ignored.
/// let probabilities = Tensor::new([[1.0f32, 0.0], [0.5, 0.5]], &device)?;
/// let loss = CrossEntropyLoss::default().forward(&logits, &probabilities)?;
/// assert!((loss.item::<f32>()? - (0.126928 + 0.693147) / 2.0).abs() < 1e-5);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CrossEntropyLoss {
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
    /// ε in [0, 1], 0 by default: the part of the target that is spread evenly over all classes.
    pub label_smoothing: f64,
    /// The label that is ignored, −100 by default; `None` for none.
    pub ignore_index: Option<i64>,
    /// The weight of each class, `[C]`; 1 by default.
    pub weight: Option<Tensor>,
}

impl Default for CrossEntropyLoss {
    fn default() -> CrossEntropyLoss {
        CrossEntropyLoss {
            reduction: Reduction::Mean,
            label_smoothing: 0.0,
            ignore_index: Some(-100),
            weight: None,
        }
    }
}

impl CrossEntropyLoss {
    /// The loss of floating-point `logits` against `targets`: labels of any integer dtype, or probabilities
    /// of the logits' shape and dtype.
    ///
    /// # Errors
    /// No classes; labels of another shape than the logits without their class axis, or probabilities of
    /// another shape than the logits; an `ignore_index` of 0 or more with probabilities; a weight that is
    /// not one number of the logits' dtype for each class; smoothing outside [0, 1]; several dtypes or
    /// devices. A label that is no class is an `IndexOutOfRange` when the loss is computed.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        const OP: &str = "cross_entropy";
        const LABELS: &Refusal = &Refusal::of_index(OP);
        let smoothing = self.label_smoothing;
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(Error::invalid(OP, format!("label smoothing {smoothing}: give one from 0 to 1")));
        }
        let cast = autocast::cast(OP, [logits, targets], [self.weight.as_ref()])?;
        let ([logits, targets], [weight]) = cast.tensors();
        if targets.dtype().is_float() {
            return self.of_probabilities(OP, logits, targets);
        }
        let labels = Labels::new(LABELS, logits, targets, weight, self.ignore_index)?;
        if smoothing == 0.0 && logits.numel() > 0 {
            return labels.reduce(&labels.nll_of_logits(logits)?, self.reduction);
        }
        let log_probabilities = logits.log_softmax(labels.axis)?;
        let mut losses = labels.nll(&log_probabilities)?;
        if smoothing > 0.0 {
            let weighted = match labels.weight_along_classes()? {
                Some(weight) => log_probabilities.mul(&weight)?,
                None => log_probabilities,
            };
            let spread = labels.silence(weighted.sum_axis(labels.axis, false)?.neg())?;
            let share = smoothing / labels.classes as f64;
            losses = losses.mul_scalar(1.0 - smoothing).add(&spread.mul_scalar(share))?;
        }
        labels.reduce(&losses, self.reduction)
    }

    #[track_caller]
    fn of_probabilities(&self, op: &'static str, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        check_scores(op, logits)?;
        let axis = class_axis(op, logits)?;
        let classes = logits.dims()[axis];
        if targets.shape() != logits.shape() {
            let labels = logits.shape().reduced(&[axis], false);
            return Err(Error::new(ErrorKind::ShapeMismatch {
                op,
                lhs: logits.shape().clone(),
                rhs: targets.shape().clone(),
                hint: format!(
                    "floating-point targets are class probabilities of the logits' shape {}; class labels are \
                     integers of shape {labels}: cast them with .to_dtype(DType::I32)?",
                    logits.shape()
                ),
            }));
        }
        if targets.dtype() != logits.dtype() {
            return Err(Error::new(ErrorKind::DTypeMismatch {
                op,
                lhs: logits.dtype(),
                rhs: targets.dtype(),
                hint: format!(
                    "class probabilities have the logits' dtype: cast them with .to_dtype(DType::{:?})?",
                    logits.dtype()
                ),
            }));
        }
        if let Some(label) = self.ignore_index.filter(|&label| label >= 0) {
            let message = format!("ignore_index {label}: there are no labels to ignore among probabilities");
            return Err(Error::invalid(op, message));
        }
        let mut share = targets.clone();
        if self.label_smoothing > 0.0 {
            share = share
                .mul_scalar(1.0 - self.label_smoothing)
                .add_scalar(self.label_smoothing / classes as f64);
        }
        if let Some(weight) = &self.weight {
            check_weight(op, weight, classes, logits.dtype())?;
            let trailing = logits.rank().saturating_sub(axis + 1);
            let shape: Vec<usize> = [classes].into_iter().chain(vec![1; trailing]).collect();
            share = share.mul(&weight.reshape(shape)?)?;
        }
        let axis = axis as isize;
        let losses = logits.log_softmax(axis)?.mul(&share)?.sum_axis(axis, false)?.neg();
        if self.reduction == Reduction::None {
            return Ok(losses);
        }
        // Half precision is summed in f32, as for labels.
        let wide = losses.to_dtype(losses.dtype().compute())?;
        self.reduction.apply(&wide).to_dtype(logits.dtype())
    }
}

/// The mean cross-entropy of logits and class labels or class probabilities, with the defaults of
/// [`CrossEntropyLoss`].
///
/// # Errors
/// As for [`CrossEntropyLoss::forward`].
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    CrossEntropyLoss::default().forward(logits, targets)
}
