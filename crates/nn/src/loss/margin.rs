//! Losses of similar and dissimilar pairs, by a margin.

use tensor_core::{Error, Result, Shape, Tensor};

use super::{Reduction, check_pair};
use crate::functional::pairwise_distance;

/// Targets, 1 or −1, of this shape.
#[track_caller]
fn check_signs(op: &'static str, shape: &Shape, target: &Tensor) -> Result<()> {
    if target.shape() == shape {
        return Ok(());
    }
    let message = format!("targets of shape {}: give one of 1 or -1 for each pair, {shape}", target.shape());
    Err(Error::invalid(op, message))
}

/// max(0, −y·(x₁ − x₂) + margin): y is 1 where x₁ is to be above x₂, else −1. `torch.nn.MarginRankingLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarginRankingLoss {
    /// By how much; 0 by default.
    pub margin: f64,
    /// What is returned: the mean by default.
    pub reduction: Reduction,
}

impl MarginRankingLoss {
    /// The loss of two inputs and targets of one shape.
    ///
    /// # Errors
    /// Several shapes, inputs that are not floating-point, or several devices.
    #[track_caller]
    pub fn forward(&self, input1: &Tensor, input2: &Tensor, target: &Tensor) -> Result<Tensor> {
        const OP: &str = "margin_ranking_loss";
        check_pair(OP, input1, input2)?;
        check_signs(OP, input1.shape(), target)?;
        let target = target.to_dtype(input1.dtype())?;
        let losses = input2.sub(input1)?.mul(&target)?.add_scalar(self.margin).relu();
        Ok(self.reduction.apply(&losses))
    }
}

/// 1 − cos(x₁, x₂) where y is 1, and max(0, cos(x₁, x₂) − margin) where it is −1. `torch.nn.CosineEmbeddingLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CosineEmbeddingLoss {
    /// The cosine up to which dissimilar pairs cost nothing; 0 by default.
    pub margin: f64,
    /// What is returned: the mean by default.
    pub reduction: Reduction,
}

impl CosineEmbeddingLoss {
    /// The loss of vectors `[N, D]` or `[D]` and targets `[N]` or `[]`.
    ///
    /// # Errors
    /// Other shapes, inputs that are not floating-point, or several devices.
    #[track_caller]
    pub fn forward(&self, input1: &Tensor, input2: &Tensor, target: &Tensor) -> Result<Tensor> {
        const OP: &str = "cosine_embedding_loss";
        const EPS: f64 = 1e-12;
        check_pair(OP, input1, input2)?;
        if !(1..=2).contains(&input1.rank()) {
            let message = format!("inputs are [N, D] or [D], not {}", input1.shape());
            return Err(Error::invalid(OP, message));
        }
        check_signs(OP, &input1.shape().reduced(&[input1.rank() - 1], false), target)?;
        let square = |x: &Tensor| Ok(x.powi(2).sum_axis(-1, false)?.add_scalar(EPS));
        let scale = square(input1)?.mul(&square(input2)?)?.rsqrt();
        let cosine = input1.mul(input2)?.sum_axis(-1, false)?.mul(&scale)?;
        let zeros = cosine.zeros_like();
        let alike = target.eq_scalar(1).where_cond(&cosine.neg().add_scalar(1.0), &zeros)?;
        let unlike = target.eq_scalar(-1).where_cond(&cosine.sub_scalar(self.margin).relu(), &zeros)?;
        Ok(self.reduction.apply(&alike.add(&unlike)?))
    }
}

/// max(0, d(a, p) − d(a, n) + margin) with the distance of power p, as [`pairwise_distance`] has it: the anchor a is to be nearer to the positive
/// than to the negative example. `torch.nn.TripletMarginLoss`.
#[derive(Clone, Copy, Debug)]
pub struct TripletMarginLoss {
    /// By how much; 1 by default.
    pub margin: f64,
    /// The power of the norm; 2 by default.
    pub p: f64,
    /// Added to differences; 1e-6 by default.
    pub eps: f64,
    /// Whether the negative example's distance is to the nearer of anchor and positive. Off by default.
    pub swap: bool,
    /// What is returned: the mean by default.
    pub reduction: Reduction,
}

impl Default for TripletMarginLoss {
    fn default() -> TripletMarginLoss {
        TripletMarginLoss { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction: Reduction::Mean }
    }
}

impl TripletMarginLoss {
    /// The loss of vectors `[N, D]` or `[D]`.
    ///
    /// # Errors
    /// Several shapes, no axes, a p that is not above 0, dtypes that are not floating-point, or several devices.
    #[track_caller]
    pub fn forward(&self, anchor: &Tensor, positive: &Tensor, negative: &Tensor) -> Result<Tensor> {
        const OP: &str = "triplet_margin_loss";
        check_pair(OP, anchor, positive)?;
        check_pair(OP, anchor, negative)?;
        let distance = |a: &Tensor, b: &Tensor| pairwise_distance(a, b, self.p, self.eps);
        let mut far = distance(anchor, negative)?;
        if self.swap {
            far = far.minimum(&distance(positive, negative)?)?;
        }
        let losses = distance(anchor, positive)?.sub(&far)?.add_scalar(self.margin).relu();
        Ok(self.reduction.apply(&losses))
    }
}
