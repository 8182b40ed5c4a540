//! Learning-rate schedules: the trait [`LrSchedule`], and [`LrScheduler`], which applies one to an
//! optimizer.
//!
//! `formulas` has the schedules with a closed formula, `cycles` those that rise and fall, `combined` those
//! made of others, and `plateau` the one that watches a metric.

mod combined;
mod cycles;
mod formulas;
mod plateau;

pub use combined::{ChainedScheduler, LambdaLr, MultiplicativeLr, SequentialLr};
pub use cycles::{Anneal, CyclicConfig, CyclicLr, CyclicScale, OneCycleConfig, OneCycleLr, SwaLr};
pub use formulas::{
    ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts, ExponentialLr, LinearLr, MultiStepLr,
    PolynomialLr, StepLr,
};
pub use plateau::{ReduceLrOnPlateau, ReduceLrOnPlateauConfig, ThresholdMode};

use tensor_core::{Error, Result, State, Stateful, caller_line};

use crate::Optimizer;

/// A learning rate as a function of the number of steps (or epochs).
pub trait LrSchedule {
    /// The rate after `step` steps, for a group whose initial rate was `base`.
    fn lr(&self, base: f64, step: u64) -> f64;

    /// The rate after `step` steps of a group whose rate was `now` one step before. The default is
    /// [`LrSchedule::lr`], for schedules that depend on the number of steps alone.
    fn next(&self, base: f64, now: f64, step: u64) -> f64 {
        let _ = now;
        self.lr(base, step)
    }

    /// As [`LrSchedule::next`], if other schedules change the rate too ([`ChainedScheduler`]): the change
    /// that this schedule makes to the rate `now`. PyTorch's chainable form.
    fn chained(&self, base: f64, now: f64, step: u64) -> f64 {
        self.next(base, now, step)
    }

    /// The momentum after `step` steps, if the schedule sets it too.
    fn momentum(&self, step: u64) -> Option<f64> {
        let _ = step;
        None
    }

    /// Checks that the schedule has a rate at this step.
    ///
    /// # Errors
    /// A step past the end of a schedule with a fixed number of steps.
    #[track_caller]
    fn check(&self, step: u64) -> Result<()> {
        let _ = step;
        Ok(())
    }
}

impl<S: LrSchedule + ?Sized> LrSchedule for Box<S> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        (**self).lr(base, step)
    }
    fn next(&self, base: f64, now: f64, step: u64) -> f64 {
        (**self).next(base, now, step)
    }
    fn chained(&self, base: f64, now: f64, step: u64) -> f64 {
        (**self).chained(base, now, step)
    }
    fn momentum(&self, step: u64) -> Option<f64> {
        (**self).momentum(step)
    }
    fn check(&self, step: u64) -> Result<()> {
        (**self).check(step)
    }
}

#[track_caller]
fn at_least_one(op: &'static str, name: &str, value: u64) -> Result<()> {
    if value > 0 { Ok(()) } else { Err(Error::invalid(op, format!("{name} 0: give at least 1"))) }
}

/// Checks that each value is in [0, 1].
#[track_caller]
fn within_one<const N: usize>(op: &'static str, values: [(&str, f64); N]) -> Result<()> {
    for (name, value) in values {
        if !(0.0..=1.0).contains(&value) {
            return Err(Error::invalid(op, format!("{name} {value}: give a number from 0 to 1")));
        }
    }
    Ok(())
}

#[track_caller]
fn finite<const N: usize>(op: &'static str, values: [(&str, f64); N]) -> Result<()> {
    for (name, value) in values {
        if !value.is_finite() {
            return Err(Error::invalid(op, format!("{name} {value}: give a finite number")));
        }
    }
    Ok(())
}

/// Applies a schedule to an optimizer. Call [`LrScheduler::step`] after each step, or each epoch.
///
/// A rate that is changed by hand, or by [`ReduceLrOnPlateau`], lasts until the scheduler's next step, which
/// sets the schedule's rate. PyTorch's schedulers continue from the changed rate.
///
/// To resume, make the optimizer and the scheduler as at first, and then load the state of both.
#[derive(Clone, Debug)]
pub struct LrScheduler<S> {
    /// One schedule for all groups, or one for each.
    schedules: Vec<S>,
    bases: Vec<f64>,
    rates: Vec<f64>,
    step: u64,
}

impl<S: LrSchedule> LrScheduler<S> {
    /// Takes the current rates of the optimizer's groups as base rates, and sets them to the schedule's
    /// first.
    pub fn new(schedule: S, optimizer: &mut (impl Optimizer + ?Sized)) -> LrScheduler<S> {
        LrScheduler::start(vec![schedule], optimizer)
    }

    /// As [`LrScheduler::new`], with a schedule for each group: for PyTorch's lists of `lr_lambda` or
    /// `max_lr`. Schedules of several types go in boxes, `Box<dyn LrSchedule>`.
    ///
    /// # Errors
    /// Another number of schedules than groups; a schedule of the momentum for an optimizer without one.
    #[track_caller]
    pub fn per_group(
        schedules: impl IntoIterator<Item = S>,
        optimizer: &mut (impl Optimizer + ?Sized),
    ) -> Result<LrScheduler<S>> {
        let schedules: Vec<S> = schedules.into_iter().collect();
        let groups = optimizer.learning_rates().len();
        if schedules.len() != groups {
            let message = format!("{} schedules for {groups} groups: give one for each", schedules.len());
            return Err(Error::invalid("LrScheduler", message));
        }
        let scheduler = LrScheduler::start(schedules, optimizer);
        scheduler.check_momentum(0, optimizer)?;
        Ok(scheduler)
    }

    /// The scheduler itself, if it fits the optimizer; otherwise the error that [`LrScheduler::step`] would
    /// report.
    ///
    /// # Errors
    /// A schedule of the momentum for an optimizer without one.
    #[track_caller]
    pub fn checked(self, optimizer: &(impl Optimizer + ?Sized)) -> Result<LrScheduler<S>> {
        self.check_momentum(0, optimizer)?;
        Ok(self)
    }

    #[track_caller]
    fn check_momentum(&self, step: u64, optimizer: &(impl Optimizer + ?Sized)) -> Result<()> {
        if self.momenta(step).is_some() && optimizer.momenta().is_none() {
            let message = "the schedule sets the momentum, which this optimizer does not have; switch that off in the schedule";
            return Err(Error::invalid("LrScheduler", message));
        }
        Ok(())
    }

    fn start(schedules: Vec<S>, optimizer: &mut (impl Optimizer + ?Sized)) -> LrScheduler<S> {
        let bases = optimizer.learning_rates();
        let mut scheduler = LrScheduler { schedules, rates: bases.clone(), bases, step: 0 };
        scheduler.rates = scheduler.rates_at(0);
        scheduler.set(optimizer);
        scheduler
    }

    /// Counts one step, and sets the rates of the optimizer's groups.
    ///
    /// # Errors
    /// A step past the end of a schedule that has one, and a schedule of the momentum for an optimizer
    /// without one. Nothing has changed then.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut (impl Optimizer + ?Sized)) -> Result<()> {
        let _line = caller_line();
        let step = self.step.saturating_add(1);
        self.check_momentum(step, optimizer)?;
        for schedule in &self.schedules {
            if let Err(error) = schedule.check(step) {
                return Err(error.here());
            }
        }
        let groups = self.bases.iter().zip(&self.rates).enumerate();
        self.rates = groups.map(|(g, (base, now))| self.schedule(g).next(*base, *now, step)).collect();
        self.step = step;
        self.set(optimizer);
        Ok(())
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The current rates of the groups.
    pub fn rates(&self) -> Vec<f64> {
        self.rates.clone()
    }

    fn schedule(&self, g: usize) -> &S {
        self.schedules.get(g).unwrap_or(&self.schedules[0])
    }

    fn rates_at(&self, step: u64) -> Vec<f64> {
        self.bases.iter().enumerate().map(|(g, base)| self.schedule(g).lr(*base, step)).collect()
    }

    fn momenta(&self, step: u64) -> Option<Vec<f64>> {
        (0..self.bases.len()).map(|g| self.schedule(g).momentum(step)).collect()
    }

    fn set(&self, optimizer: &mut (impl Optimizer + ?Sized)) {
        optimizer.set_learning_rates(&self.rates);
        if let Some(momenta) = self.momenta(self.step) {
            optimizer.set_momenta(&momenta);
        }
    }
}

/// PyTorch's names: `last_epoch` for the number of steps, `base_lrs.0` for the initial rate of each group.
/// The current rates and momenta of the groups are in the optimizer's state.
impl<S: LrSchedule> Stateful for LrScheduler<S> {
    fn state_dict(&self) -> State {
        let mut state = State::new();
        state.insert("last_epoch", self.step);
        for (g, base) in self.bases.iter().enumerate() {
            state.insert(format!("base_lrs.{g}"), *base);
        }
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let mut reader = state.reader();
        let step = crate::saved::count(&mut reader, "last_epoch");
        let bases = (0..self.bases.len()).map(|g| reader.float(&format!("base_lrs.{g}"))).collect();
        reader.finish()?;
        (self.step, self.bases) = (step, bases);
        self.rates = self.rates_at(step);
        Ok(())
    }
}
