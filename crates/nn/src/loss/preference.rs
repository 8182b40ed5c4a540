//! Losses of a language model's preferences among answers: DPO and its variants, KTO, ORPO.
//!
//! They take log-probabilities of whole answers, which [`answer_log_probabilities`] gives, of the trained
//! model (the policy) and of a frozen one (the reference). With adapters the reference is the same model
//! while they are disabled: [`Lora::disabled`](crate::lora::Lora::disabled).

use tensor_core::{Error, ErrorKind, Result, Tensor, caller_line};

use super::Reduction;

/// Σ ln p(yₜ | y₁ … yₜ₋₁) of each answer, and its number of tokens: `[N]` each, for logits `[N, L, V]` and
/// labels `[N, L]`, which are the next tokens and `ignore_index` outside of answers. The quotient of both is
/// the mean that [`DpoVariant::Ipo`] and [`OrpoLoss`] take.
///
/// # Errors
/// Logits that are not of three axes, or labels of another shape than their first two.
#[track_caller]
pub fn answer_log_probabilities(
    logits: &Tensor,
    labels: &Tensor,
    ignore_index: i64,
) -> Result<(Tensor, Tensor)> {
    let _line = caller_line();
    const OP: &str = "answer_log_probabilities";
    if logits.rank() != 3 || labels.dims() != &logits.dims()[..2] {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op: OP,
            lhs: logits.shape().clone(),
            rhs: labels.shape().clone(),
            hint: "give logits [N, L, V] and labels [N, L]".into(),
        }));
    }
    let counted = labels.ne_scalar(ignore_index);
    let safe = counted.where_cond(labels, &labels.zeros_like())?;
    let each = logits.log_softmax(-1)?.gather(-1, &safe.unsqueeze(-1)?)?.squeeze(-1)?;
    let counted = counted.to_dtype(logits.dtype())?;
    Ok((each.mul(&counted)?.sum_axis(-1, false)?, counted.sum_axis(-1, false)?))
}

/// The loss of a [`DpoLoss`], from the difference Δ of the log-ratios or from both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DpoVariant {
    /// −(1 − ε) · ln σ(β·Δ) − ε · ln σ(−β·Δ), with ε the label smoothing. Rafailov et al. (2023), equation
    /// 7; the smoothing is Mitchell's conservative DPO (2023).
    #[default]
    Sigmoid,
    /// max(0, 1 − β·Δ). Zhao et al.: SLiC-HF, sequence likelihood calibration with human feedback (2023).
    Hinge,
    /// (Δ − 1 / (2β))². The log-probabilities are means over an answer's tokens. Azar et al.: A general
    /// theoretical paradigm to understand learning from human preferences (2023), equation 17.
    Ipo,
    /// ((ε − 1) · ln σ(β·Δ) + ε · ln σ(−β·Δ)) / (1 − 2ε), whose mean over pairs that are the wrong way round
    /// with probability ε is that of `Sigmoid` over the right ones. Chowdhury, Kini, Natarajan: Provably
    /// robust DPO (2024).
    Robust,
    /// 1 − σ(β·(c − c')) + σ(β·(r − r')): raises the chosen answer and lowers the rejected one, for chosen
    /// answers that are better than the model's own. D'Oosterlinck et al.: Anchored preference optimization
    /// (2024), equation 7.
    ApoZero,
    /// σ(β·(c − c')) + 1 − σ(β·Δ): lowers both, the rejected answer more, for chosen answers that are worse
    /// than the model's own. The same paper, equation 8.
    ApoDown,
}

/// Direct preference optimization: prefers the chosen answer to the rejected one, relative to a reference.
/// With c and r the log-probabilities of both by the policy, and c' and r' those by the reference, the loss
/// is a function of c − c', r − r' and Δ = (c − c') − (r − r'): see [`DpoVariant`].
///
/// Rafailov et al.: Direct preference optimization, your language model is secretly a reward model (2023).
///
/// ```
/// use nn::DpoLoss;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let of = |x: f32| Tensor::new([x], &device);
/// let (policy, reference) = ([&of(-10.0)?, &of(-12.0)?], [&of(-11.0)?, &of(-11.0)?]);
/// let loss = DpoLoss::default().forward(policy, reference)?;
/// assert!((loss.item::<f32>()? - (1.0 + (-0.2f32).exp()).ln()).abs() < 1e-6); // Δ = 2, β = 0.1
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DpoLoss {
    /// β: how far the policy may move from the reference. 0.1 by default.
    pub beta: f64,
    /// ε in [0, 0.5): the probability that a pair is the wrong way round; for `Sigmoid` and `Robust`. 0 by
    /// default.
    pub label_smoothing: f64,
    /// The loss.
    pub variant: DpoVariant,
    /// The reduction of the losses of pairs: the mean by default.
    pub reduction: Reduction,
}

impl Default for DpoLoss {
    fn default() -> DpoLoss {
        DpoLoss { beta: 0.1, label_smoothing: 0.0, variant: DpoVariant::Sigmoid, reduction: Reduction::Mean }
    }
}

impl DpoLoss {
    /// The loss of pairs, from the log-probabilities `[N]` of the chosen and the rejected answers by the
    /// policy and by the reference, which gets no gradient.
    ///
    /// # Errors
    /// A β that is not above 0, smoothing outside [0, 0.5) or with another variant than `Sigmoid` and
    /// `Robust`; shapes, dtypes or devices that differ.
    #[track_caller]
    pub fn forward(&self, policy: [&Tensor; 2], reference: [&Tensor; 2]) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "DpoLoss";
        let DpoLoss { beta, label_smoothing, variant, reduction } = *self;
        positive(OP, "beta", beta)?;
        let smooths = matches!(variant, DpoVariant::Sigmoid | DpoVariant::Robust);
        if !(0.0..0.5).contains(&label_smoothing) || (label_smoothing != 0.0 && !smooths) {
            let message = format!(
                "label smoothing {label_smoothing} with {variant:?}: give one from 0 and below 0.5, with Sigmoid \
                 or Robust"
            );
            return Err(Error::invalid(OP, message));
        }
        same_shapes(OP, &[policy[0], policy[1], reference[0], reference[1]])?;
        let [chosen, rejected] = [0, 1].map(|k| policy[k].sub(&reference[k].detach()));
        let (chosen, rejected) = (chosen?, rejected?);
        let margin = chosen.sub(&rejected)?;
        let rises = |x: &Tensor| x.mul_scalar(beta).sigmoid();
        // 1 − σ(x) = σ(−x)
        let falls = |x: &Tensor| x.mul_scalar(-beta).sigmoid();
        // (ε − 1) · ln σ(β·Δ) + wrong · ln σ(−β·Δ)
        let logistic = |wrong: f64| -> Result<Tensor> {
            let scaled = margin.mul_scalar(beta);
            let right = scaled.logsigmoid().mul_scalar(label_smoothing - 1.0);
            match label_smoothing == 0.0 {
                true => Ok(right),
                false => right.add(&scaled.neg().logsigmoid().mul_scalar(wrong)),
            }
        };
        let losses = match variant {
            DpoVariant::Sigmoid => logistic(-label_smoothing)?,
            DpoVariant::Hinge => margin.mul_scalar(-beta).add_scalar(1.0).relu(),
            DpoVariant::Ipo => margin.sub_scalar(1.0 / (2.0 * beta)).square(),
            DpoVariant::Robust => logistic(label_smoothing)?.div_scalar(1.0 - 2.0 * label_smoothing),
            DpoVariant::ApoZero => falls(&chosen).add(&rises(&rejected))?,
            DpoVariant::ApoDown => rises(&chosen).add(&falls(&margin))?,
        };
        Ok(reduction.apply(&losses))
    }
}

/// Kahneman-Tversky optimization, for single answers that are desirable or not. With q = ln p − ln p' the
/// log-ratio of an answer to the reference and k ≥ 0 an estimate of the divergence of both models, the loss
/// is λ_D · (1 − σ(β·(q − k))) for a desirable answer and λ_U · (1 − σ(β·(k − q))) for another one.
///
/// Ethayarajh et al.: KTO, model alignment as prospect theoretic optimization (2024), equations 6 to 8.
#[derive(Clone, Copy, Debug)]
pub struct KtoLoss {
    /// β: how far the policy may move from the reference. 0.1 by default.
    pub beta: f64,
    /// λ_D, the weight of desirable answers. 1 by default.
    pub desirable_weight: f64,
    /// λ_U, the weight of other answers. 1 by default.
    pub undesirable_weight: f64,
    /// The reduction of the losses of answers: the mean by default.
    pub reduction: Reduction,
}

impl Default for KtoLoss {
    fn default() -> KtoLoss {
        KtoLoss { beta: 0.1, desirable_weight: 1.0, undesirable_weight: 1.0, reduction: Reduction::Mean }
    }
}

impl KtoLoss {
    /// The loss of answers, from their log-probabilities `[N]` by the policy and by the reference, and
    /// whether each is desirable, a bool `[N]`. `divergence` has the log-ratios `[M]` of answers to
    /// questions that they do not belong to: k is their mean, or 0 if that is below 0. It gets no gradient.
    ///
    /// # Errors
    /// A β that is not above 0, weights that are negative or not finite; shapes, dtypes or devices that
    /// differ.
    #[track_caller]
    pub fn forward(
        &self,
        policy: &Tensor,
        reference: &Tensor,
        desirable: &Tensor,
        divergence: &Tensor,
    ) -> Result<Tensor> {
        const OP: &str = "KtoLoss";
        positive(OP, "beta", self.beta)?;
        for (name, weight) in
            [("desirable_weight", self.desirable_weight), ("undesirable_weight", self.undesirable_weight)]
        {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(Error::invalid(OP, format!("{name} {weight}: give a number of 0 or more")));
            }
        }
        same_shapes(OP, &[policy, reference, desirable])?;
        let ratio = policy.sub(&reference.detach())?;
        let gain = ratio.sub(&divergence.detach().mean().relu())?.mul_scalar(self.beta);
        // 1 − σ(x) = σ(−x)
        let good = gain.neg().sigmoid().mul_scalar(self.desirable_weight);
        let bad = gain.sigmoid().mul_scalar(self.undesirable_weight);
        Ok(self.reduction.apply(&desirable.where_cond(&good, &bad)?))
    }
}

/// Odds ratio preference optimization, without a reference: the likelihood of the chosen answer, and −λ · ln
/// σ(ln odds(c) − ln odds(r)) with odds(p) = p / (1 − p) of the mean probabilities of a token of the chosen
/// and of the rejected answer.
///
/// Hong, Lee, Thorne: ORPO, monolithic preference optimization without reference model (2024), equations 4
/// to 7.
#[derive(Clone, Copy, Debug)]
pub struct OrpoLoss {
    /// λ: the weight of the odds ratio. 0.1 by default.
    pub lambda: f64,
    /// The reduction of the losses of pairs: the mean by default.
    pub reduction: Reduction,
}

impl Default for OrpoLoss {
    fn default() -> OrpoLoss {
        OrpoLoss { lambda: 0.1, reduction: Reduction::Mean }
    }
}

impl OrpoLoss {
    /// The loss of pairs, from the mean log-probabilities `[N]` of a token of the chosen and of the rejected
    /// answers, which are below 0: −c − λ · ln σ((c − ln(1 − eᶜ)) − (r − ln(1 − eʳ))).
    ///
    /// # Errors
    /// A λ that is negative or not finite; shapes, dtypes or devices that differ.
    #[track_caller]
    pub fn forward(&self, chosen: &Tensor, rejected: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "OrpoLoss";
        if !(self.lambda.is_finite() && self.lambda >= 0.0) {
            return Err(Error::invalid(OP, format!("lambda {}: give a number of 0 or more", self.lambda)));
        }
        same_shapes(OP, &[chosen, rejected])?;
        let log_odds = |x: &Tensor| x.sub(&x.expm1().neg().log());
        let ratio = log_odds(chosen)?.sub(&log_odds(rejected)?)?.logsigmoid();
        Ok(self.reduction.apply(&chosen.neg().sub(&ratio.mul_scalar(self.lambda))?))
    }
}

#[track_caller]
fn positive(op: &'static str, name: &str, value: f64) -> Result<()> {
    match value.is_finite() && value > 0.0 {
        true => Ok(()),
        false => Err(Error::invalid(op, format!("{name} {value}: give a number above 0"))),
    }
}

/// Fails unless all have one shape: nothing is broadcast.
#[track_caller]
fn same_shapes(op: &'static str, tensors: &[&Tensor]) -> Result<()> {
    let _line = caller_line();
    match tensors.iter().find(|tensor| tensor.shape() != tensors[0].shape()) {
        None => Ok(()),
        Some(other) => Err(Error::new(ErrorKind::ShapeMismatch {
            op,
            lhs: tensors[0].shape().clone(),
            rhs: other.shape().clone(),
            hint: "give one number for each answer".into(),
        })),
    }
}
