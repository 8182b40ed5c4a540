//! Loss functions. By default each returns the mean, as in PyTorch.

mod binary;
mod cross_entropy;
mod ctc;
mod distillation;
mod divergence;
mod likelihood;
mod linear_cross_entropy;
mod margin;
mod nll;
mod preference;
mod regression;
mod segmentation;

pub use binary::{BceLoss, BceWithLogitsLoss, binary_cross_entropy, binary_cross_entropy_with_logits};
pub use cross_entropy::{CrossEntropyLoss, cross_entropy};
pub use ctc::CtcLoss;
pub use distillation::{DistillationLoss, Divergence};
pub use divergence::{KlDivLoss, kl_div};
pub use likelihood::{GaussianNllLoss, PoissonNllLoss};
pub use linear_cross_entropy::LinearCrossEntropyLoss;
pub use margin::{
    CosineEmbeddingLoss, HingeEmbeddingLoss, MarginRankingLoss, MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss, MultiMarginLoss, SoftMarginLoss, TripletMarginLoss,
};
pub use nll::{NllLoss, nll_loss};
pub use preference::{DpoLoss, DpoVariant, KtoLoss, OrpoLoss, answer_log_probabilities};
pub use regression::{
    HuberLoss, L1Loss, MseLoss, SmoothL1Loss, huber_loss, l1_loss, mse_loss, smooth_l1_loss,
};
pub use segmentation::{DiceLoss, SigmoidFocalLoss, dice_loss, sigmoid_focal_loss};

use tensor_core::{DType, Error, ErrorKind, Result, Tensor};

/// The reduction of the losses of single elements to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reduction {
    /// The mean, 0-d; NaN without elements.
    #[default]
    Mean,
    /// The sum, 0-d.
    Sum,
    /// No reduction: the losses of all elements.
    None,
}

impl Reduction {
    /// Applies this reduction.
    #[track_caller]
    pub fn apply(self, losses: &Tensor) -> Tensor {
        match self {
            Reduction::Mean => losses.mean(),
            Reduction::Sum => losses.sum(),
            Reduction::None => losses.clone(),
        }
    }
}

/// Checks outputs and targets of elementwise losses: one shape, floating-point.
#[track_caller]
fn check_pair(op: &'static str, input: &Tensor, target: &Tensor) -> Result<()> {
    if input.shape() != target.shape() {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op,
            lhs: input.shape().clone(),
            rhs: target.shape().clone(),
            hint: "input and target must have one shape; reshape or expand one of them".into(),
        }));
    }
    for tensor in [input, target] {
        if !tensor.dtype().is_float() {
            return Err(Error::new(ErrorKind::DTypeMismatch {
                op,
                lhs: tensor.dtype(),
                rhs: DType::F32,
                hint: "floating-point tensors are needed: cast with .to_dtype(DType::F32)?".into(),
            }));
        }
    }
    Ok(())
}
