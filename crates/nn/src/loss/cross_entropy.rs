//! Cross-entropy of logits against class labels.

use tensor_core::{Error, Result, Tensor};

use super::{Reduction, nll::Labels};

/// The cross-entropy of logits x against labels y, `−ln softmax(x)[y]`, with all of PyTorch's options.
/// `torch.nn.CrossEntropyLoss`.
///
/// | logits | targets |
/// |---|---|
/// | `[C]` | `[]` |
/// | `[N, C]` | `[N]` |
/// | `[N, C, d₁, …]` | `[N, d₁, …]` |
///
/// With smoothing ε and weights w, the loss of one label is
/// `−(1 − ε) · w[y] · ln softmax(x)[y] − ε / C · Σ_c w[c] · ln softmax(x)[c]`,
/// and the mean divides the sum of these by `Σ w[y]` over the labels that are not ignored (NaN if all are).
///
/// ```
/// use nn::CrossEntropy;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let logits = Tensor::new([[2.0f32, 0.0], [0.0, 0.0]], &device)?;
/// let labels = Tensor::new([0i32, -100], &device)?;
/// let loss = CrossEntropy { label_smoothing: 0.1, ..Default::default() }.forward(&logits, &labels)?;
/// assert!((loss.item::<f32>()? - 0.226928).abs() < 1e-5);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// What is returned: the mean by default.
    pub reduction: Reduction,
    /// ε in [0, 1], 0 by default: how much of the target is spread evenly over all classes.
    pub label_smoothing: f64,
    /// A label that counts for nothing, −100 by default; `None` for none.
    pub ignore_index: Option<i64>,
    /// A weight for each class, `[C]`; 1 by default.
    pub weight: Option<Tensor>,
}

impl Default for CrossEntropy {
    fn default() -> CrossEntropy {
        CrossEntropy {
            reduction: Reduction::Mean,
            label_smoothing: 0.0,
            ignore_index: Some(-100),
            weight: None,
        }
    }
}

impl CrossEntropy {
    /// The loss of floating-point `logits` against `targets`, labels of any integer dtype.
    ///
    /// # Errors
    /// No classes, targets of another shape than the logits without their class axis, targets that are not integers, a
    /// weight that is not one number of the logits' dtype for each class, smoothing outside [0, 1], or several devices.
    /// A label outside the classes is [`tensor_core::ErrorKind::IndexOutOfRange`] when the loss is computed.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        const OP: &str = "cross_entropy";
        let smoothing = self.label_smoothing;
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(Error::invalid(OP, format!("label smoothing {smoothing}: give one from 0 to 1")));
        }
        let labels = Labels::new(OP, logits, targets, self.weight.as_ref(), self.ignore_index)?;
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
}

/// The mean cross-entropy of logits against class labels. See [`CrossEntropy`], whose defaults these are.
///
/// # Errors
/// As for [`CrossEntropy::forward`].
#[track_caller]
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    CrossEntropy::default().forward(logits, targets)
}
