//! Cross-entropy of logits that a linear layer gives, without storing all of them.

use autograd::checkpoint;
use tensor_core::{Error, Result, Tensor, caller_line};

use super::{CrossEntropyLoss, Reduction};
use crate::functions::linear;

/// The cross-entropy of the logits h · Wᵀ + b against class labels, in parts of `chunk` rows, so that only
/// the logits of one part exist at a time: `[chunk, V]` instead of `[N, V]`. The backward pass computes the
/// logits of each part again ([`checkpoint`]), and its gradients are exactly those of [`CrossEntropyLoss`].
/// `torch.nn.functional.linear_cross_entropy`.
///
/// A language model with 49,152 tokens has 200 MB of logits for 1,024 positions in f32; a part of 128 rows
/// has 25 MB. Rows whose label is ignored cost as much as others: select the others first where they are few.
///
/// ```
/// use nn::LinearCrossEntropyLoss;
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let (hidden, weight) = (Tensor::randn([300, 8], &rng)?, Tensor::randn([50, 8], &rng)?);
/// let labels = Tensor::randint(0, 50, [300], &rng)?;
/// let loss = LinearCrossEntropyLoss::default().forward(&hidden, &weight, None, &labels)?;
/// let whole = nn::cross_entropy(&hidden.matmul(&weight.t()?)?, &labels)?;
/// assert!((loss.item::<f32>()? - whole.item::<f32>()?).abs() < 1e-4);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "linear_cross_entropy")]
pub struct LinearCrossEntropyLoss {
    /// The reduction of the losses: the mean over the labels that are not ignored, by default.
    pub reduction: Reduction,
    /// ε in [0, 1], 0 by default: the part of the target that is spread evenly over all classes.
    pub label_smoothing: f64,
    /// The label that is ignored, −100 by default; `None` for none.
    pub ignore_index: Option<i64>,
    /// The number of rows whose logits exist at a time: 128 by default.
    pub chunk: usize,
}

impl Default for LinearCrossEntropyLoss {
    fn default() -> LinearCrossEntropyLoss {
        LinearCrossEntropyLoss {
            reduction: Reduction::Mean,
            label_smoothing: 0.0,
            ignore_index: Some(-100),
            chunk: 128,
        }
    }
}

impl LinearCrossEntropyLoss {
    /// The loss of hidden states `[N, d]` with a weight `[V, d]`, dense or in blocks, and a bias `[V]`,
    /// against labels `[N]`. Gradients flow to the hidden states, and to the weight and bias if they are
    /// tracked.
    ///
    /// # Errors
    /// A chunk of 0 rows, and the errors of [`crate::functional::linear`] and [`CrossEntropyLoss::forward`].
    #[track_caller]
    pub fn forward(
        &self,
        hidden: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        labels: &Tensor,
    ) -> Result<Tensor> {
        let _line = caller_line();
        self.forward_with(hidden, labels, |rows| linear(rows, weight, bias))
    }

    /// As [`LinearCrossEntropyLoss::forward`], with logits by any function of rows `[n, d]`, such as the
    /// output layer of a language model: `|rows| model.logits(rows)`.
    ///
    /// # Errors
    /// The errors of `logits`, and those of [`LinearCrossEntropyLoss::forward`].
    #[track_caller]
    pub fn forward_with(
        &self,
        hidden: &Tensor,
        labels: &Tensor,
        logits: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        const OP: &str = "linear_cross_entropy";
        let wrong = |message: String| Err(Error::invalid(OP, message));
        let (&[rows, _], &[count]) = (hidden.dims(), labels.dims()) else {
            let (hidden, labels) = (hidden.shape(), labels.shape());
            return wrong(format!("hidden states {hidden} and labels {labels}: give [N, d] and [N]"));
        };
        if rows != count || rows == 0 {
            return wrong(format!("{rows} hidden states and {count} labels: give one label for each"));
        }
        if self.chunk == 0 {
            return wrong("a chunk of 0 rows: give one of 1 or more".into());
        }
        let each = CrossEntropyLoss {
            reduction: Reduction::None,
            label_smoothing: self.label_smoothing,
            ignore_index: self.ignore_index,
            weight: None,
        };
        let mut losses = Vec::with_capacity(rows.div_ceil(self.chunk));
        for first in (0..rows).step_by(self.chunk) {
            let length = self.chunk.min(rows - first);
            let (part, labels) = (hidden.narrow(0, first, length)?, labels.narrow(0, first, length)?);
            losses.push(checkpoint(|part| each.forward(&logits(&part[0])?, &labels), &[part])?);
        }
        let losses = Tensor::concat(&losses, 0)?;
        match (self.reduction, self.ignore_index) {
            (Reduction::Mean, Some(ignored)) => {
                let counted = labels.ne_scalar(ignored).to_dtype(losses.dtype().compute())?.sum();
                losses.to_dtype(losses.dtype().compute())?.sum().div(&counted)?.to_dtype(losses.dtype())
            }
            (reduction, _) => Ok(reduction.apply(&losses)),
        }
    }
}
