//! [`Router`]: the experts of each token, and their weights.
//!
//! DeepSeek-AI: DeepSeek-V3 technical report (2024), section 2.1.2, for the correction and the groups.

use nn::{Linear, Module, Visitor, VisitorMut, functional::rms_norm};
use tensor_core::{DType, Error, Result, Tensor};

use super::{MixtureConfig, OP};
use crate::{Initial, WeightSource};

/// How experts are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouterConfig {
    /// The name of the projection: `gate` or `router`.
    pub(crate) name: &'static str,
    pub(crate) bias: bool,
    /// The experts that each token goes to.
    pub(crate) chosen: usize,
    /// Whether the score of an expert is the sigmoid of its logit; otherwise it is the softmax over all.
    pub(crate) sigmoid: bool,
    /// The numbers that are added to the scores for the choice, not for the weights.
    pub(crate) correction: Correction,
    pub(crate) groups: Option<Groups>,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub(crate) normalized: bool,
    /// Added to that sum.
    pub(crate) least_sum: f64,
    /// The factor of the weights.
    pub(crate) scale: f64,
    /// The router takes the norm of its input by this number, with a factor for each feature, and its weights
    /// have a factor for each expert (Gemma 4).
    pub(crate) scaled: Option<f64>,
}

/// Where a mixture has the corrections of its scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Correction {
    None,
    /// `e_score_correction_bias` of the router (DeepSeek, GLM).
    OfRouter,
    /// `expert_bias` of the mixture (LFM 2).
    OfMixture,
}

/// Experts in groups of the same size: only those of the best groups are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    pub(crate) count: usize,
    /// The groups whose experts may be chosen.
    pub(crate) kept: usize,
    /// The score of a group is the sum of this number of its largest scores.
    pub(crate) best: usize,
}

/// A projection to a logit for each expert.
pub(super) struct Router {
    projection: Linear,
    correction: Option<Tensor>,
    scales: Option<Scales>,
    config: RouterConfig,
    experts: usize,
}

/// The factors of a router.
struct Scales {
    /// A factor for each feature, `[features]`.
    features: Tensor,
    /// A factor for the weight of each expert, `[experts]`.
    experts: Tensor,
    eps: f64,
}

impl Scales {
    /// The input of the projection.
    #[track_caller]
    fn input(&self, x: &Tensor) -> Result<Tensor> {
        let width = self.features.numel();
        let normed = rms_norm(x, [width], None, Some(self.eps))?.mul(&self.features)?;
        Ok(normed.mul_scalar((width as f64).powf(-0.5)))
    }
}

/// The name of the corrections below the router's.
const CORRECTION: &str = "e_score_correction_bias";
/// The names of a router with factors.
const SCALED: [&str; 3] = ["proj", "scale", "per_expert_scale"];

impl Module for Router {
    fn visit(&self, visitor: &mut Visitor) {
        match &self.scales {
            None => self.projection.visit(visitor),
            Some(scales) => {
                visitor.field(SCALED[0], &self.projection);
                visitor.parameter(SCALED[1], &scales.features);
                visitor.parameter(SCALED[2], &scales.experts);
            }
        }
        if let Some(correction) = &self.correction {
            visitor.buffer(CORRECTION, correction);
        }
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        match &mut self.scales {
            None => self.projection.visit_mut(visitor),
            Some(scales) => {
                visitor.field(SCALED[0], &mut self.projection);
                visitor.parameter(SCALED[1], &mut scales.features);
                visitor.parameter(SCALED[2], &mut scales.experts);
            }
        }
        if let Some(correction) = &mut self.correction {
            visitor.buffer(CORRECTION, correction);
        }
    }
}

impl Router {
    #[track_caller]
    pub(super) fn new(source: &WeightSource, config: &MixtureConfig) -> Result<Router> {
        let RouterConfig { name, bias, chosen, correction, groups, .. } = config.router;
        let experts = config.experts;
        let wrong = |message: String| Err(Error::invalid(OP, message));
        if chosen == 0 || chosen > experts {
            return wrong(format!("{chosen} of {experts} experts for each token"));
        }
        if let Some(Groups { count, kept, best }) = groups {
            let size = experts / count.max(1);
            if count == 0 || size * count != experts || kept == 0 || kept > count || best > size {
                return wrong(format!("{experts} experts in {count} groups, of which {kept} are kept"));
            }
            if kept * size < chosen {
                return wrong(format!("{chosen} experts of {kept} groups with {size} each"));
            }
        }
        let at = source.at(name);
        let corrections = || at.buffer(CORRECTION, &[experts], Initial::Zeros);
        let scales = |eps: f64| -> Result<Scales> {
            let features = at.parameter(SCALED[1], &[config.width], Initial::Ones)?;
            Ok(Scales { features, experts: at.parameter(SCALED[2], &[experts], Initial::Ones)?, eps })
        };
        let projection = if config.router.scaled.is_some() { SCALED[0] } else { "" };
        Ok(Router {
            projection: at.linear(projection, config.width, experts, bias)?,
            scales: config.router.scaled.map(scales).transpose()?,
            correction: (correction == Correction::OfRouter).then(corrections).transpose()?,
            config: config.router,
            experts,
        })
    }

    /// The weights `[tokens, chosen]` in f32 and the numbers of the experts for `x` `[tokens, features]`.
    /// `correction` is that of the mixture.
    #[track_caller]
    pub(super) fn choose(&self, x: &Tensor, correction: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let logits = match &self.scales {
            None => self.projection.forward(x),
            Some(scales) => self.projection.forward(&scales.input(x)?),
        };
        let logits = logits?.to_dtype(DType::F32)?;
        let scores = if self.config.sigmoid { logits.sigmoid() } else { logits.softmax(-1)? };
        let mut ranks = scores.detach();
        if let Some(correction) = self.correction.as_ref().or(correction) {
            ranks = ranks.add(&correction.to_dtype(DType::F32)?)?;
        }
        if let Some(groups) = self.config.groups {
            ranks = self.within_groups(&ranks, groups)?;
        }
        let (_, chosen) = ranks.topk(self.config.chosen, -1, true)?;
        let mut weights = scores.gather(-1, &chosen)?;
        if self.config.normalized {
            weights = weights.div(&weights.sum_axis(-1, true)?.add_scalar(self.config.least_sum))?;
        }
        if self.config.scale != 1.0 {
            weights = weights.mul_scalar(self.config.scale);
        }
        if let Some(scales) = &self.scales {
            let each = scales.experts.to_dtype(DType::F32)?.index_select(0, &chosen.flatten_all())?;
            weights = weights.mul(&each.reshape(chosen.dims())?)?;
        }
        Ok((weights, chosen))
    }

    /// The scores with −∞ for the experts outside of the best groups.
    #[track_caller]
    fn within_groups(&self, ranks: &Tensor, Groups { count, kept, best }: Groups) -> Result<Tensor> {
        let (tokens, size) = (ranks.dims()[0], self.experts / count);
        let grouped = ranks.reshape([tokens, count, size])?;
        let of_groups = grouped.topk(best, -1, true)?.0.sum_axis(-1, false)?;
        let (_, groups) = of_groups.topk(kept, -1, true)?;
        // [tokens, kept, count], of which one number of each row is 1.
        let is_kept = groups.one_hot(count)?.to_dtype(DType::Bool)?.any_axis(1, false)?;
        let hidden = is_kept.logical_not().unsqueeze(-1)?;
        grouped.masked_fill(&hidden, f64::NEG_INFINITY)?.reshape([tokens, self.experts])
    }
}
