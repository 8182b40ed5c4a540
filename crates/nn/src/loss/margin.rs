//! Margin losses of similar and dissimilar pairs.

use tensor_core::{DType, Error, Refusal, Result, Shape, Tensor, at_caller, autocast, caller_line};

use super::{Reduction, check_pair, nll::Labels};
use crate::functions::pairwise_distance;

/// Checks targets, 1 or −1, for their shape.
#[track_caller]
fn check_signs(op: &'static str, shape: &Shape, target: &Tensor) -> Result<()> {
    if target.shape() == shape {
        return Ok(());
    }
    let message = format!("targets of shape {}: give one of 1 or -1 for each pair, {shape}", target.shape());
    Err(Error::invalid(op, message))
}

/// Vectors along the last axis, f32 or f64, and 1 / √(‖x‖² + eps) for each of them. Vectors whose squares
/// overflow are scaled by a power of two, and so are these numbers: their product does not depend on it.
#[track_caller]
fn over_length(x: &Tensor, eps: f64) -> Result<(Tensor, Tensor)> {
    let x = x.to_dtype(x.dtype().compute())?;
    if x.numel() == 0 {
        let root = x.powi(2).sum_axis(-1, false)?.add_scalar(eps).rsqrt();
        return Ok((x, root));
    }
    let scale = x.detach().abs().amax(-1, true)?.scale_of_squares().minimum_scalar(1.0);
    let x = x.mul(&scale)?;
    let square = x.powi(2).sum_axis(-1, false)?.add(&scale.squeeze(-1)?.mul_scalar(eps.sqrt()).powi(2))?;
    Ok((x, square.rsqrt()))
}

/// The margin ranking loss: max(0, −y·(x₁ − x₂) + margin), where y is 1 if x₁ should exceed x₂, else −1.
/// `torch.nn.MarginRankingLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarginRankingLoss {
    /// The margin; 0 by default.
    pub margin: f64,
    /// The reduction of the losses: the mean by default.
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
        let cast = autocast::cast(OP, [input1, input2], [])?;
        let ([input1, input2], []) = cast.tensors();
        check_pair(OP, input1, input2)?;
        check_signs(OP, input1.shape(), target)?;
        let target = target.to_dtype(input1.dtype())?;
        let losses = input2.sub(input1)?.mul(&target)?.add_scalar(self.margin).relu();
        Ok(self.reduction.apply(&losses))
    }
}

/// The cosine embedding loss: 1 − cos(x₁, x₂) where y is 1, and max(0, cos(x₁, x₂) − margin) where it is −1.
/// `torch.nn.CosineEmbeddingLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CosineEmbeddingLoss {
    /// The cosine up to which dissimilar pairs have no loss; 0 by default.
    pub margin: f64,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl CosineEmbeddingLoss {
    /// The loss of vectors `[N, D]` or `[D]` and targets `[N]` or `[]`.
    ///
    /// # Errors
    /// Other shapes, inputs that are not floating-point, or several devices.
    #[track_caller]
    pub fn forward(&self, input1: &Tensor, input2: &Tensor, target: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "cosine_embedding_loss";
        const EPS: f64 = 1e-12;
        let cast = autocast::cast(OP, [input1, input2], [])?;
        let ([input1, input2], []) = cast.tensors();
        check_pair(OP, input1, input2)?;
        if !(1..=2).contains(&input1.rank()) {
            let message = format!("inputs are [N, D] or [D], not {}", input1.shape());
            return Err(Error::invalid(OP, message));
        }
        check_signs(OP, &input1.shape().reduced(&[input1.rank() - 1], false), target)?;
        let [(x1, root1), (x2, root2)] = [over_length(input1, EPS)?, over_length(input2, EPS)?];
        let cosine = x1.mul(&x2)?.sum_axis(-1, false)?.mul(&root1)?.mul(&root2)?.to_dtype(input1.dtype())?;
        let zeros = cosine.zeros_like();
        let alike = target.eq_scalar(1).where_cond(&cosine.neg().add_scalar(1.0), &zeros)?;
        let unlike = target.eq_scalar(-1).where_cond(&cosine.sub_scalar(self.margin).relu(), &zeros)?;
        Ok(self.reduction.apply(&alike.add(&unlike)?))
    }
}

/// The triplet margin loss: max(0, d(a, p) − d(a, n) + margin) with the p-norm distance of
/// [`pairwise_distance`]. The anchor a should be nearer to the positive than to the negative example.
/// `torch.nn.TripletMarginLoss`.
#[derive(Clone, Copy, Debug)]
pub struct TripletMarginLoss {
    /// The margin; 1 by default.
    pub margin: f64,
    /// The power of the norm; 2 by default.
    pub p: f64,
    /// Added to differences; 1e-6 by default.
    pub eps: f64,
    /// Whether the negative example's distance is that to the nearer of anchor and positive. Off by default.
    pub swap: bool,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl Default for TripletMarginLoss {
    fn default() -> TripletMarginLoss {
        TripletMarginLoss { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction: Reduction::Mean }
    }
}

impl TripletMarginLoss {
    /// The loss of vectors `[N, D]` or `[D]`, or of numbers `[]`.
    ///
    /// # Errors
    /// Several shapes, a p that is not above 0, dtypes that are not floating-point, or several
    /// devices.
    #[track_caller]
    pub fn forward(&self, anchor: &Tensor, positive: &Tensor, negative: &Tensor) -> Result<Tensor> {
        let distance = |a: &Tensor, b: &Tensor| pairwise_distance(a, b, self.p, self.eps);
        at_caller(|| self.forward_with(anchor, positive, negative, distance))
    }

    /// The loss with a user-defined distance, which returns the distances `[N]` of two batches.
    /// `torch.nn.TripletMarginWithDistanceLoss`.
    ///
    /// # Errors
    /// Several shapes, dtypes that are not floating-point, several devices; the errors of the distance.
    ///
    /// ```
    /// use nn::functional::cosine_similarity;
    /// use tensor_core::Tensor;
    ///
    /// let cpu = backend_cpu::cpu();
    /// let [a, p, n] = [[[1.0f64, 0.0]], [[0.0, 2.0]], [[3.0, 0.0]]].map(|v| Tensor::new(v, &cpu));
    /// let distance = |a: &Tensor, b: &Tensor| Ok(1.0 - cosine_similarity(a, b, 1, 1e-8)?);
    /// let loss = nn::TripletMarginLoss::default().forward_with(&a?, &p?, &n?, distance)?;
    /// assert_eq!(loss.item::<f64>()?, 2.0); // 1 to the positive, 0 to the negative, and the margin
    /// # Ok::<(), tensor_core::Error>(())
    /// ```
    #[track_caller]
    pub fn forward_with(
        &self,
        anchor: &Tensor,
        positive: &Tensor,
        negative: &Tensor,
        distance: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        const OP: &str = "triplet_margin_loss";
        let cast = autocast::cast(OP, [anchor, positive, negative], [])?;
        let ([anchor, positive, negative], []) = cast.tensors();
        check_pair(OP, anchor, positive)?;
        check_pair(OP, anchor, negative)?;
        let mut far = distance(anchor, negative)?;
        if self.swap {
            far = far.minimum(&distance(positive, negative)?)?;
        }
        let losses = distance(anchor, positive)?.sub(&far)?.add_scalar(self.margin).relu();
        Ok(self.reduction.apply(&losses))
    }
}

/// The soft margin loss: ln(1 + e^(−y·x)) with y of 1 or −1. `torch.nn.SoftMarginLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftMarginLoss {
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl SoftMarginLoss {
    /// The loss of `input` and targets 1 or −1, which have one shape.
    ///
    /// # Errors
    /// Two shapes, an input that is not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        const OP: &str = "soft_margin_loss";
        let cast = autocast::cast(OP, [input], [])?;
        let ([input], []) = cast.tensors();
        check_pair(OP, input, input)?;
        check_signs(OP, input.shape(), target)?;
        let losses = input.mul(&target.to_dtype(input.dtype())?)?.logsigmoid().neg();
        Ok(self.reduction.apply(&losses))
    }
}

/// The hinge embedding loss of a distance x: x where y is 1, and max(0, margin − x) where it is −1.
/// `torch.nn.HingeEmbeddingLoss`.
#[derive(Clone, Copy, Debug)]
pub struct HingeEmbeddingLoss {
    /// The distance from which dissimilar pairs have no loss; 1 by default.
    pub margin: f64,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl Default for HingeEmbeddingLoss {
    fn default() -> HingeEmbeddingLoss {
        HingeEmbeddingLoss { margin: 1.0, reduction: Reduction::Mean }
    }
}

impl HingeEmbeddingLoss {
    /// The loss of `input` and targets 1 or −1, which have one shape.
    ///
    /// # Errors
    /// Two shapes, an input that is not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        const OP: &str = "hinge_embedding_loss";
        let cast = autocast::cast(OP, [input], [])?;
        let ([input], []) = cast.tensors();
        check_pair(OP, input, input)?;
        check_signs(OP, input.shape(), target)?;
        let zeros = input.zeros_like();
        let hinge = input.neg().add_scalar(self.margin).relu();
        let unlike = target.ne_scalar(1).where_cond(&hinge, &zeros)?;
        let alike = target.ne_scalar(-1).where_cond(input, &zeros)?;
        Ok(self.reduction.apply(&alike.add(&unlike)?))
    }
}

/// The multi-class margin loss: the sum over the classes i other than the label y of `w[y]·max(0, margin −
/// x[y] + x[i])ᵖ`, divided by the number of classes. `torch.nn.MultiMarginLoss`.
#[derive(Clone, Debug)]
pub struct MultiMarginLoss {
    /// p, 1 by default, or 2.
    pub p: u32,
    /// The margin by which the label's score should exceed the others; 1 by default.
    pub margin: f64,
    /// w, the weight of each class, `[C]`; 1 by default.
    pub weight: Option<Tensor>,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl Default for MultiMarginLoss {
    fn default() -> MultiMarginLoss {
        MultiMarginLoss { p: 1, margin: 1.0, weight: None, reduction: Reduction::Mean }
    }
}

impl MultiMarginLoss {
    /// The loss of scores `[N, C]` or `[C]` and labels `[N]` or `[]` of an integer dtype. A single label may
    /// also be `[1]`, and scores `[]` are those of a single class.
    ///
    /// # Errors
    /// Other shapes, no classes, a p other than 1 and 2, a weight that is not one number of the scores'
    /// dtype for each class, several devices. A label that is no class is an `IndexOutOfRange` when the loss
    /// is computed.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "multi_margin_loss";
        const LABELS: &Refusal = &Refusal::of_index(OP);
        if input.rank() > 2 || !(1..=2).contains(&self.p) {
            let message =
                format!("scores {} and p = {}: give [N, C] or [C], and 1 or 2", input.shape(), self.p);
            return Err(Error::invalid(OP, message));
        }
        let cast = autocast::cast(OP, [input], [self.weight.as_ref()])?;
        let ([input], [weight]) = cast.tensors();
        if input.rank() == 0 {
            return self.forward(&input.unsqueeze(0)?, target);
        }
        if input.rank() == 1 && target.dims() == [1] {
            return self.forward(&input.unsqueeze(0)?, target);
        }
        let labels = Labels::new(LABELS, input, target, weight, None)?;
        let place = target.unsqueeze(-1)?;
        let excess = input.sub(&input.gather_for(LABELS, -1, &place)?)?.add_scalar(self.margin).relu();
        let costs = if self.p == 2 { excess.powi(2) } else { excess };
        let classes = Tensor::arange(0, labels.classes, 1, (DType::I32, &input.device()))?;
        let other = classes.ne(&place.to_dtype(DType::I32)?)?;
        let costs = other.where_cond(&costs, &costs.zeros_like())?;
        let mut losses = costs.sum_axis(-1, false)?.mul_scalar(1.0 / labels.classes as f64);
        if let Some(weight) = labels.weight_of_labels()? {
            losses = losses.mul(&weight)?;
        }
        Ok(self.reduction.apply(&losses))
    }
}

/// The multi-label margin loss: the sum over labels y and other classes i of `max(0, 1 − (x[y] − x[i]))`,
/// divided by the number of classes. `torch.nn.MultiLabelMarginLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MultiLabelMarginLoss {
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl MultiLabelMarginLoss {
    /// The loss of scores `[N, C]` or `[C]` and integers of the same shape: the labels of a row, and −1
    /// after the last of them. The score of a single class and its target may each be `[]`.
    ///
    /// # Errors
    /// Other shapes, dtypes or devices. A label of C or more is an `IndexOutOfRange` when the loss is
    /// computed.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "multilabel_margin_loss";
        let cast = autocast::cast(OP, [input], [])?;
        let ([input], []) = cast.tensors();
        check_pair(OP, input, input)?;
        if input.rank() == 0 || target.rank() == 0 && input.dims() == [1] {
            // A single class has no loss in any form.
            let of_one = |x: &Tensor| if x.rank() == 0 { x.unsqueeze(0) } else { Ok(x.clone()) };
            return self.forward(&of_one(input)?, &of_one(target)?);
        }
        if input.rank() > 2 || input.shape() != target.shape() || !target.dtype().is_int() {
            let message = format!(
                "scores {} and targets {} {}: give [N, C] or [C] of each, targets of integers",
                input.shape(),
                target.dtype(),
                target.shape()
            );
            return Err(Error::invalid(OP, message));
        }
        let alone = input.rank() == 1;
        let (x, y) =
            if alone { (input.unsqueeze(0)?, target.unsqueeze(0)?) } else { (input.clone(), target.clone()) };
        let classes = x.dims()[1];
        if classes == 0 {
            return Err(Error::invalid(OP, format!("scores of shape {} have no classes", input.shape())));
        }
        // Labels are used up to the first negative number.
        let counted = y.lt_scalar(0).to_dtype(DType::I32)?.cumsum(1)?.eq_scalar(0);
        let labels = counted.where_cond(&y, &y.zeros_like())?;
        let marks = counted.to_dtype(DType::I32)?;
        let named = marks.zeros_like().scatter_add(1, &labels, &marks)?.gt_scalar(0);
        let of_labels = x.gather(1, &labels)?;
        let costs = x.unsqueeze(1)?.sub(&of_labels.unsqueeze(2)?)?.add_scalar(1.0).relu();
        let pairs = counted.unsqueeze(2)?.bitwise_and(&named.logical_not().unsqueeze(1)?)?;
        let costs = pairs.where_cond(&costs, &costs.zeros_like())?;
        let losses = costs.sum_axis([1, 2], false)?.mul_scalar(1.0 / classes as f64);
        Ok(self.reduction.apply(&if alone { losses.squeeze(0)? } else { losses }))
    }
}

/// The multi-label soft margin loss: the mean over the classes of −w·(y·ln σ(x) + (1 − y)·ln σ(−x)).
/// `torch.nn.MultiLabelSoftMarginLoss`.
#[derive(Clone, Debug, Default)]
pub struct MultiLabelSoftMarginLoss {
    /// w, which broadcasts to the scores; 1 by default.
    pub weight: Option<Tensor>,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl MultiLabelSoftMarginLoss {
    /// The loss of scores `[N, C]` or `[C]` and targets 0 or 1, which have one shape.
    ///
    /// # Errors
    /// Two shapes, no axes, a weight that does not broadcast, dtypes that are not floating-point, or several
    /// devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        const OP: &str = "multilabel_soft_margin_loss";
        let cast = autocast::cast(OP, [input, target], [])?;
        let ([input, target], []) = cast.tensors();
        check_pair(OP, input, target)?;
        if input.rank() == 0 {
            return Err(Error::invalid(OP, "a scalar has no classes: give [N, C] or [C]"));
        }
        let right = input.logsigmoid().mul(target)?;
        let wrong = input.neg().logsigmoid().mul(&target.neg().add_scalar(1.0))?;
        let mut losses = right.add(&wrong)?.neg();
        if let Some(weight) = &self.weight {
            losses = losses.mul(&weight.expand(input.shape())?)?;
        }
        Ok(self.reduction.apply(&losses.mean_axis(-1, false)?))
    }
}
