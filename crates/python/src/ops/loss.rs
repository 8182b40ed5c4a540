//! The losses of `torch.nn.functional`.

use taper::{
    Result, Tensor,
    nn::{
        BceLoss, BceWithLogitsLoss, CosineEmbeddingLoss, CrossEntropyLoss, CtcLoss, GaussianNllLoss,
        HingeEmbeddingLoss, HuberLoss, KlDivLoss, L1Loss, MarginRankingLoss, MseLoss, MultiLabelMarginLoss,
        MultiLabelSoftMarginLoss, MultiMarginLoss, NllLoss, PoissonNllLoss, Reduction, SmoothL1Loss,
        SoftMarginLoss, TripletMarginLoss,
    },
};

use super::functions;
use crate::{
    args::{Value, optional},
    promote,
};

/// A reduction by its name in PyTorch.
fn reduction(name: &str) -> Result<Reduction> {
    match name {
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        "none" => Ok(Reduction::None),
        _ => {
            let wrong = crate::errors::wrong_value(format!("{name} is not a valid value for reduction"));
            Err(crate::errors::keep("loss", wrong))
        }
    }
}

/// Class numbers as Taper takes them; probabilities stay as they are.
fn classes(target: &Tensor) -> Result<Tensor> {
    if target.dtype().is_float() {
        return Ok(target.clone());
    }
    target.to_dtype(promote::held_by(&target.device(), taper::DType::I64))
}

functions! { register:
    mse_loss(input: Value, target: Value, reduction: String = "mean".into()) "MseLossBackward0" => {
        MseLoss { reduction: self::reduction(&reduction)? }.forward(&input.0, &target.0)
    };
    l1_loss(input: Value, target: Value, reduction: String = "mean".into()) "MeanBackward0" => {
        L1Loss { reduction: self::reduction(&reduction)? }.forward(&input.0, &target.0)
    };
    smooth_l1_loss(input: Value, target: Value, reduction: String = "mean".into(), beta: f64 = 1.0)
        "SmoothL1LossBackward0" => {
        let reduction = self::reduction(&reduction)?;
        if beta == 0.0 {
            return L1Loss { reduction }.forward(&input.0, &target.0);
        }
        SmoothL1Loss { beta, reduction }.forward(&input.0, &target.0)
    };
    huber_loss(input: Value, target: Value, reduction: String = "mean".into(), delta: f64 = 1.0)
        "HuberLossBackward0" => {
        HuberLoss { delta, reduction: self::reduction(&reduction)? }.forward(&input.0, &target.0)
    };
    cross_entropy(input: Value, target: Value, weight: Option<Value> = None, ignore_index: i64 = -100,
        reduction: String = "mean".into(), label_smoothing: f64 = 0.0) "NllLossBackward0" => {
        if target.0.dtype().is_float() && ignore_index >= 0 {
            let message = "ignore_index cannot be specified when target contains probabilities";
            return Err(taper::Error::invalid("cross_entropy", message));
        }
        let ignore_index = (!target.0.dtype().is_float()).then_some(ignore_index);
        let loss = CrossEntropyLoss {
            reduction: self::reduction(&reduction)?,
            label_smoothing,
            ignore_index,
            weight: optional(weight),
        };
        loss.forward(&input.0, &classes(&target.0)?)
    };
    nll_loss(input: Value, target: Value, weight: Option<Value> = None, ignore_index: i64 = -100,
        reduction: String = "mean".into()) "NllLossBackward0" => {
        let reduction = self::reduction(&reduction)?;
        let loss = NllLoss { reduction, ignore_index: Some(ignore_index), weight: optional(weight) };
        loss.forward(&input.0, &classes(&target.0)?)
    };
    binary_cross_entropy(input: Value, target: Value, weight: Option<Value> = None,
        reduction: String = "mean".into()) "BinaryCrossEntropyBackward0" => {
        let loss = BceLoss { reduction: self::reduction(&reduction)?, weight: optional(weight) };
        loss.forward(&input.0, &target.0)
    };
    binary_cross_entropy_with_logits(input: Value, target: Value, weight: Option<Value> = None,
        reduction: String = "mean".into(), pos_weight: Option<Value> = None)
        "BinaryCrossEntropyWithLogitsBackward0" => {
        let reduction = self::reduction(&reduction)?;
        let loss =
            BceWithLogitsLoss { reduction, pos_weight: optional(pos_weight), weight: optional(weight) };
        loss.forward(&input.0, &target.0)
    };
    kl_div(input: Value, target: Value, reduction: String = "mean".into(), log_target: bool = false)
        "MeanBackward0" => {
        let batch_mean = reduction == "batchmean";
        let reduction = if batch_mean { Reduction::Sum } else { self::reduction(&reduction)? };
        KlDivLoss { reduction, log_target, batch_mean }.forward(&input.0, &target.0)
    };
    poisson_nll_loss(input: Value, target: Value, log_input: bool = true, full: bool = false, eps: f64 = 1e-8,
        reduction: String = "mean".into()) "MeanBackward0" => {
        let loss = PoissonNllLoss { log_input, full, eps, reduction: self::reduction(&reduction)? };
        loss.forward(&input.0, &target.0)
    };
    gaussian_nll_loss(input: Value, target: Value, var: Value, full: bool = false, eps: f64 = 1e-6,
        reduction: String = "mean".into()) "MeanBackward0" => {
        let loss = GaussianNllLoss { full, eps, reduction: self::reduction(&reduction)? };
        loss.forward(&input.0, &target.0, &var.0)
    };
    margin_ranking_loss(input1: Value, input2: Value, target: Value, margin: f64 = 0.0,
        reduction: String = "mean".into()) "MeanBackward0" => {
        let loss = MarginRankingLoss { margin, reduction: self::reduction(&reduction)? };
        loss.forward(&input1.0, &input2.0, &target.0)
    };
    cosine_embedding_loss(input1: Value, input2: Value, target: Value, margin: f64 = 0.0,
        reduction: String = "mean".into()) "MeanBackward0" => {
        let loss = CosineEmbeddingLoss { margin, reduction: self::reduction(&reduction)? };
        loss.forward(&input1.0, &input2.0, &target.0)
    };
    triplet_margin_loss(anchor: Value, positive: Value, negative: Value, margin: f64 = 1.0, p: f64 = 2.0,
        eps: f64 = 1e-6, swap: bool = false, reduction: String = "mean".into()) "MeanBackward0" => {
        if margin <= 0.0 {
            let message = format!("margin must be greater than 0, got {margin}");
            return Err(crate::errors::keep("triplet_margin_loss", crate::errors::wrong_value(message)));
        }
        let loss = TripletMarginLoss { margin, p, eps, swap, reduction: self::reduction(&reduction)? };
        loss.forward(&anchor.0, &positive.0, &negative.0)
    };
    soft_margin_loss(input: Value, target: Value, reduction: String = "mean".into())
        "SoftMarginLossBackward0" => {
        SoftMarginLoss { reduction: self::reduction(&reduction)? }.forward(&input.0, &target.0)
    };
    hinge_embedding_loss(input: Value, target: Value, margin: f64 = 1.0, reduction: String = "mean".into())
        "MeanBackward0" => {
        let loss = HingeEmbeddingLoss { margin, reduction: self::reduction(&reduction)? };
        loss.forward(&input.0, &target.0)
    };
    multi_margin_loss(input: Value, target: Value, p: u32 = 1, margin: f64 = 1.0, weight: Option<Value> = None,
        reduction: String = "mean".into()) "MultiMarginLossBackward0" => {
        let reduction = self::reduction(&reduction)?;
        if p != 1 && p != 2 {
            let wrong = crate::errors::wrong_value("only p == 1 and p == 2 supported");
            return Err(crate::errors::keep("multi_margin_loss", wrong));
        }
        let loss = MultiMarginLoss { p, margin, weight: optional(weight), reduction };
        loss.forward(&input.0, &classes(&target.0)?)
    };
    multilabel_margin_loss(input: Value, target: Value, reduction: String = "mean".into())
        "MultilabelMarginLossBackward0" => {
        MultiLabelMarginLoss { reduction: self::reduction(&reduction)? }.forward(&input.0, &classes(&target.0)?)
    };
    multilabel_soft_margin_loss(input: Value, target: Value, weight: Option<Value> = None,
        reduction: String = "mean".into()) "MeanBackward0" => {
        let reduction = self::reduction(&reduction)?;
        MultiLabelSoftMarginLoss { weight: optional(weight), reduction }.forward(&input.0, &target.0)
    };
    ctc_loss(log_probs: Value, targets: Value, input_lengths: Vec<usize>, target_lengths: Vec<usize>,
        blank: usize = 0, reduction: String = "mean".into(), zero_infinity: bool = false) "CtcLossBackward0" => {
        let loss = CtcLoss { blank, reduction: self::reduction(&reduction)?, zero_infinity };
        loss.forward(&log_probs.0, &targets.0, &input_lengths, &target_lengths)
    };
}
