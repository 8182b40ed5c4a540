//! Schedules that rise and fall, with the momentum in the opposite direction.

use std::f64::consts::PI;

use tensor_core::{Error, Result};

use super::{LrSchedule, at_least_one, finite, within_one};

/// The interpolation of [`OneCycleLr`] from one rate to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anneal {
    /// Half a cosine. The default.
    #[default]
    Cos,
    /// Linear.
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

/// The settings of [`OneCycleLr`], with PyTorch's names and defaults. `max_lr` and `total_steps` must be
/// given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneCycleConfig {
    /// The greatest rate.
    pub max_lr: f64,
    /// The number of steps of the cycle: epochs times steps per epoch.
    pub total_steps: u64,
    /// The fraction of the steps with a rising rate. 0.3 by default.
    pub pct_start: f64,
    /// The interpolation from one rate to the next: a cosine by default.
    pub anneal_strategy: Anneal,
    /// The least and the greatest momentum, (0.85, 0.95) by default; `None` leaves the momentum alone.
    pub momentum: Option<(f64, f64)>,
    /// The first rate is `max_lr / div_factor`. 25 by default.
    pub div_factor: f64,
    /// The last rate is the first one divided by this. 10⁴ by default.
    pub final_div_factor: f64,
    /// Falls to the first rate as fast as it rose, and from there to the last. Off by default: it falls to
    /// the last rate directly.
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

/// One cycle: the rate rises to its maximum and falls to almost 0, while the momentum falls and rises.
/// `torch.optim.lr_scheduler.OneCycleLR`.
///
/// The groups' initial rates are ignored. A step past `total_steps` is an error of
/// [`LrScheduler::step`](crate::LrScheduler::step).
///
/// Smith, Topin: Super-convergence, very fast training of neural networks using large learning rates (2018).
#[derive(Clone, Copy, Debug)]
pub struct OneCycleLr {
    config: OneCycleConfig,
}

/// A phase of the cycle.
struct Phase {
    /// The step at which it ends.
    end: f64,
    rates: (f64, f64),
    momenta: (f64, f64),
}

impl OneCycleLr {
    /// # Errors
    /// No steps, a rate that is not positive, a fraction or a momentum outside [0, 1], or a divisor that is
    /// not positive.
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

    /// The value at a step, interpolated between the ends of its phase.
    fn at(&self, step: u64, ends: impl Fn(&Phase) -> (f64, f64)) -> f64 {
        let step = step as f64;
        let phases = self.phases();
        let mut start = 0.0;
        for (i, phase) in phases.iter().enumerate() {
            if step <= phase.end || i + 1 == phases.len() {
                let length = phase.end - start;
                // A phase of length 0 is at its end.
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

/// The scaling of [`CyclicLr`]'s amplitude over time.
#[derive(Clone, Copy, Debug, Default)]
pub enum CyclicScale {
    /// The amplitude stays the same. The default.
    #[default]
    Triangular,
    /// The amplitude is halved after each cycle.
    Triangular2,
    /// The amplitude after t steps is multiplied by γᵗ.
    ExpRange(f64),
    /// The amplitude is multiplied by a function of the cycle's number, counted from 1. PyTorch's `scale_fn`
    /// with `scale_mode="cycle"`.
    Cycle(fn(f64) -> f64),
    /// The amplitude is multiplied by a function of the number of steps. PyTorch's `scale_fn` with
    /// `scale_mode="iterations"`.
    Iterations(fn(f64) -> f64),
}

/// Functions compare by address.
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

/// The settings of [`CyclicLr`], with PyTorch's names and defaults. `base_lr` and `max_lr` must be given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CyclicConfig {
    /// The least rate.
    pub base_lr: f64,
    /// The greatest rate.
    pub max_lr: f64,
    /// The number of steps from the least rate to the greatest, 2000 by default.
    pub step_size_up: u64,
    /// The number of steps from the greatest rate to the least; `step_size_up` by default.
    pub step_size_down: Option<u64>,
    /// The scaling of the amplitude over time.
    pub mode: CyclicScale,
    /// The least and the greatest momentum, (0.8, 0.9) by default; `None` leaves the momentum alone.
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

/// The rate rises and falls linearly in repeated cycles, while the momentum falls and rises.
/// `torch.optim.lr_scheduler.CyclicLR`.
///
/// The groups' initial rates are ignored.
///
/// Smith: Cyclical learning rates for training neural networks (2017).
#[derive(Clone, Copy, Debug)]
pub struct CyclicLr {
    config: CyclicConfig,
}

impl CyclicLr {
    /// # Errors
    /// No steps up or down, a rate or γ that is not finite, a `max_lr` that is not positive, or a momentum
    /// outside [0, 1].
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

    /// The height of the cycle, from 0 to 1, times its scale.
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

/// Anneals the rates of all groups to the common rate `swa_lr` in `anneal_epochs` steps, and keeps it: for
/// weight averaging. `torch.optim.swa_utils.SWALR`.
/// [`AveragedParameters::swa`](crate::AveragedParameters::swa) averages the weights.
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
