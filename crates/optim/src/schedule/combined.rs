//! Schedules made of functions and of other schedules.

use std::fmt;

use tensor_core::{Error, Result, caller_line};

use super::LrSchedule;

/// The base rate times a function of the steps taken: base · f(t). `torch.optim.lr_scheduler.LambdaLR`.
///
/// ```
/// use optim::{LambdaLr, LrSchedule};
///
/// let warmup = LambdaLr::new(|step| ((step + 1) as f64 / 10.0).min(1.0));
/// assert_eq!(warmup.lr(0.5, 4), 0.25);
/// ```
#[derive(Clone, Copy)]
pub struct LambdaLr<F> {
    factor: F,
}

impl<F: Fn(u64) -> f64> LambdaLr<F> {
    /// A schedule with the factor `factor(t)` after t steps.
    pub fn new(factor: F) -> LambdaLr<F> {
        LambdaLr { factor }
    }
}

impl<F: Fn(u64) -> f64> LrSchedule for LambdaLr<F> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * (self.factor)(step)
    }
}

impl<F> fmt::Debug for LambdaLr<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LambdaLr").finish_non_exhaustive()
    }
}

/// Multiplies the rate at every step by a function of the number of steps: base · f(1)⋯f(t).
/// `torch.optim.lr_scheduler.MultiplicativeLR`.
#[derive(Clone, Copy)]
pub struct MultiplicativeLr<F> {
    factor: F,
}

impl<F: Fn(u64) -> f64> MultiplicativeLr<F> {
    /// A schedule that multiplies the rate by `factor(t)` at step t.
    pub fn new(factor: F) -> MultiplicativeLr<F> {
        MultiplicativeLr { factor }
    }
}

impl<F: Fn(u64) -> f64> LrSchedule for MultiplicativeLr<F> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        (1..=step).fold(base, |now, step| self.next(base, now, step))
    }

    fn next(&self, _base: f64, now: f64, step: u64) -> f64 {
        now * (self.factor)(step)
    }

    fn chained(&self, base: f64, now: f64, step: u64) -> f64 {
        if step == 0 { now } else { self.next(base, now, step) }
    }
}

impl<F> fmt::Debug for MultiplicativeLr<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiplicativeLr").finish_non_exhaustive()
    }
}

type Boxed = Box<dyn LrSchedule + Send + Sync>;

/// Several schedules in sequence, each counting its own steps from 0.
/// `torch.optim.lr_scheduler.SequentialLR`.
///
/// ```
/// use optim::{CosineAnnealingLr, LinearLr, LrSchedule, SequentialLr};
/// # fn main() -> tensor_core::Result<()> {
/// // Ten steps up, ninety down.
/// let schedule = SequentialLr::new(LinearLr::new(10, 0.1)?).then(10, CosineAnnealingLr::new(90, 0.0)?)?;
/// assert!((schedule.lr(1.0, 5) - 0.55).abs() < 1e-12);
/// assert_eq!(schedule.lr(1.0, 10), 1.0);
/// assert_eq!(schedule.lr(1.0, 100), 0.0);
/// # Ok(()) }
/// ```
pub struct SequentialLr {
    first: Boxed,
    /// The later schedules, and the steps at which they take over, in order.
    others: Vec<(u64, Boxed)>,
}

impl SequentialLr {
    /// Starts with this schedule.
    pub fn new(first: impl LrSchedule + Send + Sync + 'static) -> SequentialLr {
        SequentialLr { first: Box::new(first), others: Vec::new() }
    }

    /// Switches to another schedule at step `milestone`, which is that schedule's step 0.
    ///
    /// # Errors
    /// A milestone that is not after the one before it.
    #[track_caller]
    pub fn then(
        mut self,
        milestone: u64,
        schedule: impl LrSchedule + Send + Sync + 'static,
    ) -> Result<SequentialLr> {
        let _line = caller_line();
        let last = self.others.last().map_or(0, |(last, _)| *last);
        if milestone <= last {
            let message = format!("milestone {milestone} after {last}: give them in order, from 1 on");
            return Err(Error::invalid("SequentialLr", message));
        }
        self.others.push((milestone, Box::new(schedule)));
        Ok(self)
    }

    /// The active schedule at a step, and its own step.
    fn at(&self, step: u64) -> (&Boxed, u64) {
        match self.others.iter().rev().find(|(milestone, _)| *milestone <= step) {
            Some((milestone, schedule)) => (schedule, step - milestone),
            None => (&self.first, step),
        }
    }
}

impl LrSchedule for SequentialLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        // Step by step, because a schedule may continue from the current rate.
        (1..=step).fold(self.first.lr(base, 0), |now, step| self.next(base, now, step))
    }

    fn next(&self, base: f64, now: f64, step: u64) -> f64 {
        let (schedule, step) = self.at(step);
        schedule.next(base, now, step)
    }

    fn chained(&self, base: f64, now: f64, step: u64) -> f64 {
        let (schedule, step) = self.at(step);
        schedule.chained(base, now, step)
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        let (schedule, step) = self.at(step);
        schedule.momentum(step)
    }

    fn check(&self, step: u64) -> Result<()> {
        let (schedule, step) = self.at(step);
        schedule.check(step)
    }
}

impl fmt::Debug for SequentialLr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milestones: Vec<u64> = self.others.iter().map(|(milestone, _)| *milestone).collect();
        f.debug_struct("SequentialLr").field("milestones", &milestones).finish_non_exhaustive()
    }
}

/// Applies several schedules at once: each changes the rate that the one before it computed.
/// `torch.optim.lr_scheduler.ChainedScheduler`.
///
/// Schedules that multiply (`StepLr`, `ExponentialLr`, `LinearLr`, `ConstantLr`, …) combine in any order.
/// One that sets the rate (`LambdaLr`, `OneCycleLr`, `CyclicLr`, `CosineAnnealingWarmRestarts`) overrides
/// those before it, as in PyTorch.
///
/// ```
/// use optim::{ChainedScheduler, ConstantLr, ExponentialLr, LrSchedule};
/// # fn main() -> tensor_core::Result<()> {
/// let both = ChainedScheduler::new(ConstantLr::new(4, 0.5)?).and(ExponentialLr::new(0.5));
/// assert_eq!(both.lr(1.0, 3), 0.0625);
/// assert_eq!(both.lr(1.0, 4), 0.0625); // the factor of ½ has ended, another step of 0.5 came
/// # Ok(()) }
/// ```
pub struct ChainedScheduler {
    schedules: Vec<Boxed>,
}

impl ChainedScheduler {
    /// Starts with this schedule.
    pub fn new(first: impl LrSchedule + Send + Sync + 'static) -> ChainedScheduler {
        ChainedScheduler { schedules: vec![Box::new(first)] }
    }

    /// Adds a schedule after the others.
    #[must_use]
    pub fn and(mut self, schedule: impl LrSchedule + Send + Sync + 'static) -> ChainedScheduler {
        self.schedules.push(Box::new(schedule));
        self
    }
}

impl LrSchedule for ChainedScheduler {
    fn lr(&self, base: f64, step: u64) -> f64 {
        (0..=step).fold(base, |now, step| self.next(base, now, step))
    }

    fn next(&self, base: f64, now: f64, step: u64) -> f64 {
        self.schedules.iter().fold(now, |now, schedule| schedule.chained(base, now, step))
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        self.schedules.iter().rev().find_map(|schedule| schedule.momentum(step))
    }

    fn check(&self, step: u64) -> Result<()> {
        self.schedules.iter().try_for_each(|schedule| schedule.check(step))
    }
}

impl fmt::Debug for ChainedScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainedScheduler").field("schedules", &self.schedules.len()).finish_non_exhaustive()
    }
}
