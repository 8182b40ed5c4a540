//! Schedules that go up and down, the momentum with them in the other direction.

use std::f64::consts::PI;

use tensor_core::{Error, Result};

use super::{LrSchedule, at_least_one, finite, within_one};

/// How [`OneCycleLr`] goes from one rate to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anneal {
    /// By half a cosine. The default.
    #[default]
    Cos,
    /// Straight.
    Linear,
}

impl Anneal {
    fn between(self, start: f64, end: f64, share: f64) -> f64 {
        match self {
            Anneal::Cos => end + (start - end) / 2.0 * (1.0 + (PI * share).cos()),
            Anneal::Linear => (end - start) * share + start,
        }
    }
}

/// The settings of [`OneCycleLr`], PyTorch's with PyTorch's defaults. `max_lr` and `total_steps` must be
/// given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneCycleConfig {
    /// The greatest rate.
    pub max_lr: f64,
    /// The steps of the cycle: epochs times steps of an epoch.
    pub total_steps: u64,
    /// The share of the steps that go up. 0.3 by default.
    pub pct_start: f64,
    /// How it goes from one rate to the next: by a cosine by default.
    pub anneal_strategy: Anneal,
    /// The least and the greatest momentum, (0.85, 0.95) by default; `None` leaves it alone.
    pub momentum: Option<(f64, f64)>,
    /// The first rate is `max_lr / div_factor`. 25 by default.
    pub div_factor: f64,
    /// The last rate is the first one over this. 10⁴ by default.
    pub final_div_factor: f64,
    /// Goes down to the first rate as fast as it went up, and from there to the last. Off by default:
    /// straight to the last.
    pub three_phase: bool,
}

impl Default for OneCycleConfig {
    fn default() -> OneCycleConfig {
        OneCycleConfig {
            max_lr: 0.0,
            total_steps: 0,
            pct_start: 0.3,
            anneal_strategy: Anneal::Cos,
            momentum: Some((0.85, 0.95)),
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }
}

/// Up to the greatest rate and down to next to nothing, once; the momentum goes down and up.
/// `torch.optim.lr_scheduler.OneCycleLR`.
///
/// The rates that the groups began with do not matter. A step past `total_steps` is an error of
/// [`LrScheduler::step`](crate::LrScheduler::step).
///
/// Smith, Topin: Super-convergence, very fast training of neural networks using large learning rates (2018).
#[derive(Clone, Copy, Debug)]
pub struct OneCycleLr {
    config: OneCycleConfig,
}

/// A stretch of the cycle.
struct Phase {
    /// The step of its end.
    end: f64,
    rates: (f64, f64),
    momenta: (f64, f64),
}

impl OneCycleLr {
    /// # Errors
    /// No steps, a rate that is not positive, a share or a momentum outside 0 to 1, or a divisor that is not
    /// positive.
    #[track_caller]
    pub fn new(config: OneCycleConfig) -> Result<OneCycleLr> {
        let OneCycleConfig { max_lr, total_steps, pct_start, momentum, div_factor, final_div_factor, .. } =
            config;
        let op = "OneCycleLr";
        at_least_one(op, "total_steps", total_steps)?;
        within_one(op, [("pct_start", pct_start)])?;
        let positive =
            [("max_lr", max_lr), ("div_factor", div_factor), ("final_div_factor", final_div_factor)];
        for (name, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::invalid(op, format!("{name} {value}: give a finite number above 0")));
            }
        }
        let (least, greatest) = momentum.unwrap_or_default();
        within_one(op, [("momentum.0", least), ("momentum.1", greatest)])?;
        Ok(OneCycleLr { config })
    }

    fn phases(&self) -> Vec<Phase> {
        let OneCycleConfig { max_lr, total_steps, pct_start, div_factor, final_div_factor, .. } = self.config;
        let (least, greatest) = self.config.momentum.unwrap_or_default();
        let total = total_steps as f64;
        let first = max_lr / div_factor;
        let last = first / final_div_factor;
        let up = Phase { end: pct_start * total - 1.0, rates: (first, max_lr), momenta: (greatest, least) };
        if self.config.three_phase {
            let end = 2.0 * pct_start * total - 2.0;
            let down = Phase { end, rates: (max_lr, first), momenta: (least, greatest) };
            let out = Phase { end: total - 1.0, rates: (first, last), momenta: (greatest, greatest) };
            vec![up, down, out]
        } else {
            vec![up, Phase { end: total - 1.0, rates: (max_lr, last), momenta: (least, greatest) }]
        }
    }

    /// Where a step lies: something between the start and the end of its phase.
    fn at(&self, step: u64, ends: impl Fn(&Phase) -> (f64, f64)) -> f64 {
        let step = step as f64;
        let phases = self.phases();
        let mut start = 0.0;
        for (i, phase) in phases.iter().enumerate() {
            if step <= phase.end || i + 1 == phases.len() {
                let length = phase.end - start;
                // A phase without length is at its end.
                let share = if length == 0.0 { 1.0 } else { (step - start) / length };
                let (from, to) = ends(phase);
                return self.config.anneal_strategy.between(from, to, share);
            }
            start = phase.end;
        }
        0.0
    }
}

impl LrSchedule for OneCycleLr {
    fn lr(&self, _base: f64, step: u64) -> f64 {
        self.at(step, |phase| phase.rates)
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        self.config.momentum.map(|_| self.at(step, |phase| phase.momenta))
    }

    fn check(&self, step: u64) -> Result<()> {
        let total = self.config.total_steps;
        if step <= total {
            return Ok(());
        }
        let message = format!("step {step} of a cycle of {total}: give total_steps as many as there will be");
        Err(Error::invalid("OneCycleLr", message))
    }
}

/// How [`CyclicLr`]'s cycles change as they go on.
#[derive(Clone, Copy, Debug, Default)]
pub enum CyclicScale {
    /// They stay the same. The default.
    #[default]
    Triangular,
    /// Each is half as high as the one before.
    Triangular2,
    /// The height after t steps is multiplied by γᵗ.
    ExpRange(f64),
    /// The height is multiplied by a function of the number of the cycle, counted from 1. `scale_fn` with
    /// `scale_mode="cycle"`.
    Cycle(fn(f64) -> f64),
    /// The height is multiplied by a function of the steps taken. `scale_fn` with `scale_mode="iterations"`.
    Iterations(fn(f64) -> f64),
}

/// Functions are equal where they are one.
impl PartialEq for CyclicScale {
    fn eq(&self, other: &CyclicScale) -> bool {
        match (*self, *other) {
            (CyclicScale::Triangular, CyclicScale::Triangular)
            | (CyclicScale::Triangular2, CyclicScale::Triangular2) => true,
            (CyclicScale::ExpRange(a), CyclicScale::ExpRange(b)) => a == b,
            (CyclicScale::Cycle(a), CyclicScale::Cycle(b))
            | (CyclicScale::Iterations(a), CyclicScale::Iterations(b)) => std::ptr::fn_addr_eq(a, b),
            _ => false,
        }
    }
}

/// The settings of [`CyclicLr`], PyTorch's with PyTorch's defaults. `base_lr` and `max_lr` must be given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CyclicConfig {
    /// The least rate.
    pub base_lr: f64,
    /// The greatest rate.
    pub max_lr: f64,
    /// Steps from the least to the greatest, 2000 by default.
    pub step_size_up: u64,
    /// Steps from the greatest to the least; as many as up by default.
    pub step_size_down: Option<u64>,
    /// How the cycles change as they go on.
    pub mode: CyclicScale,
    /// The least and the greatest momentum, (0.8, 0.9) by default; `None` leaves it alone.
    pub momentum: Option<(f64, f64)>,
}

impl Default for CyclicConfig {
    fn default() -> CyclicConfig {
        CyclicConfig {
            base_lr: 0.0,
            max_lr: 0.0,
            step_size_up: 2000,
            step_size_down: None,
            mode: CyclicScale::Triangular,
            momentum: Some((0.8, 0.9)),
        }
    }
}

/// Straight up and straight down, again and again; the momentum goes down and up.
/// `torch.optim.lr_scheduler.CyclicLR`.
///
/// The rates that the groups began with do not matter.
///
/// Smith: Cyclical learning rates for training neural networks (2017).
#[derive(Clone, Copy, Debug)]
pub struct CyclicLr {
    config: CyclicConfig,
}

impl CyclicLr {
    /// # Errors
    /// No steps up or down, a rate or γ that is not finite, a `max_lr` that is not positive, or a momentum
    /// outside 0 to 1.
    #[track_caller]
    pub fn new(config: CyclicConfig) -> Result<CyclicLr> {
        let op = "CyclicLr";
        at_least_one(op, "step_size_up", config.step_size_up)?;
        at_least_one(op, "step_size_down", config.step_size_down.unwrap_or(1))?;
        finite(op, [("base_lr", config.base_lr), ("max_lr", config.max_lr)])?;
        if config.max_lr <= 0.0 {
            return Err(Error::invalid(op, format!("max_lr {}: give a number above 0", config.max_lr)));
        }
        if let CyclicScale::ExpRange(gamma) = config.mode {
            finite(op, [("gamma", gamma)])?;
        }
        let (least, greatest) = config.momentum.unwrap_or_default();
        within_one(op, [("momentum.0", least), ("momentum.1", greatest)])?;
        Ok(CyclicLr { config })
    }

    /// How high the cycle stands, from 0 to 1, with its scale.
    fn height(&self, step: u64) -> f64 {
        let up = self.config.step_size_up as f64;
        let total = up + self.config.step_size_down.map_or(up, |down| down as f64);
        let ratio = up / total;
        let cycle = (1.0 + step as f64 / total).floor();
        let x = 1.0 + step as f64 / total - cycle;
        let height = if x <= ratio { x / ratio } else { (x - 1.0) / (ratio - 1.0) };
        height
            * match self.config.mode {
                CyclicScale::Triangular => 1.0,
                CyclicScale::Triangular2 => 0.5f64.powf(cycle - 1.0),
                CyclicScale::ExpRange(gamma) => gamma.powf(step as f64),
                CyclicScale::Cycle(scale) => scale(cycle),
                CyclicScale::Iterations(scale) => scale(step as f64),
            }
    }
}

impl LrSchedule for CyclicLr {
    fn lr(&self, _base: f64, step: u64) -> f64 {
        let CyclicConfig { base_lr, max_lr, .. } = self.config;
        base_lr + (max_lr - base_lr) * self.height(step)
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        let (least, greatest) = self.config.momentum?;
        Some(greatest - (greatest - least) * self.height(step))
    }
}

/// From the rate of a group to one rate for all, in so many steps, and then constant: for the averaging of
/// weights. `torch.optim.swa_utils.SWALR`. The averages are
/// [`AveragedParameters::swa`](crate::AveragedParameters::swa).
///
/// ```text
/// lr = α·swa_lr + (1 − α)·base, t = min(step / anneal_epochs, 1), α = t or (1 − cos πt) / 2
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "SWALR")]
pub struct SwaLr {
    swa_lr: f64,
    anneal_epochs: u64,
    anneal: Anneal,
}

impl SwaLr {
    /// PyTorch's defaults are 10 steps and [`Anneal::Cos`]. With 0 steps the rate is `swa_lr` at once.
    ///
    /// # Errors
    /// A rate that is negative or not finite.
    #[track_caller]
    pub fn new(swa_lr: f64, anneal_epochs: u64, anneal: Anneal) -> Result<SwaLr> {
        crate::rules::not_negative("SwaLr", [("swa_lr", swa_lr)])?;
        Ok(SwaLr { swa_lr, anneal_epochs, anneal })
    }
}

impl LrSchedule for SwaLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        if step >= self.anneal_epochs {
            return self.swa_lr;
        }
        self.anneal.between(base, self.swa_lr, step as f64 / self.anneal_epochs as f64)
    }
}
