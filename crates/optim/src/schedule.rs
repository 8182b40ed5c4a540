//! Schedules of learning rates, each one closed formula of the number of steps taken.

use tensor_core::{Error, Result, State, Stateful};

use crate::Optimizer;

/// A learning rate that depends on how many steps (or epochs) were taken.
pub trait LrSchedule {
    /// The rate after `step` steps, for a group that began with `base`.
    fn lr(&self, base: f64, step: u64) -> f64;
}

/// Multiplied by `gamma` every `period` steps: base · γ^⌊t / period⌋. `torch.optim.lr_scheduler.StepLR`.
#[derive(Clone, Copy, Debug)]
pub struct StepLr {
    period: u64,
    gamma: f64,
}

impl StepLr {
    /// # Errors
    /// A period of 0.
    #[track_caller]
    pub fn new(period: u64, gamma: f64) -> Result<StepLr> {
        at_least_one("StepLr", "period", period)?;
        Ok(StepLr { period, gamma })
    }
}

impl LrSchedule for StepLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf((step / self.period) as f64)
    }
}

/// Multiplied by `gamma` every step: base · γᵗ. `torch.optim.lr_scheduler.ExponentialLR`.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialLr {
    gamma: f64,
}

impl ExponentialLr {
    /// Any factor.
    pub fn new(gamma: f64) -> ExponentialLr {
        ExponentialLr { gamma }
    }
}

impl LrSchedule for ExponentialLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(step as f64)
    }
}

/// Half a cosine from the base rate down to `least` in `steps` steps, then up again:
/// least + (base − least) · (1 + cos(π · t / steps)) / 2. `torch.optim.lr_scheduler.CosineAnnealingLR`.
///
/// Loshchilov, Hutter: SGDR, stochastic gradient descent with warm restarts (2017).
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingLr {
    steps: u64,
    least: f64,
}

impl CosineAnnealingLr {
    /// # Errors
    /// No steps.
    #[track_caller]
    pub fn new(steps: u64, least: f64) -> Result<CosineAnnealingLr> {
        at_least_one("CosineAnnealingLr", "steps", steps)?;
        Ok(CosineAnnealingLr { steps, least })
    }
}

impl LrSchedule for CosineAnnealingLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let angle = std::f64::consts::PI * step as f64 / self.steps as f64;
        self.least + (base - self.least) * (1.0 + angle.cos()) / 2.0
    }
}

/// Straight from `start` times the base rate up to the base rate in `steps` steps, and then that:
/// base · (start + (1 − start) · min(t, steps) / steps). `torch.optim.lr_scheduler.LinearLR`.
#[doc(alias = "warmup")]
#[derive(Clone, Copy, Debug)]
pub struct LinearLr {
    steps: u64,
    start: f64,
}

impl LinearLr {
    /// # Errors
    /// No steps.
    #[track_caller]
    pub fn new(steps: u64, start: f64) -> Result<LinearLr> {
        at_least_one("LinearLr", "steps", steps)?;
        Ok(LinearLr { steps, start })
    }
}

impl LrSchedule for LinearLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * (self.start + (1.0 - self.start) * step.min(self.steps) as f64 / self.steps as f64)
    }
}

#[track_caller]
fn at_least_one(op: &'static str, name: &str, value: u64) -> Result<()> {
    if value > 0 { Ok(()) } else { Err(Error::invalid(op, format!("{name} 0: give at least 1"))) }
}

/// A schedule at work on an optimizer. Call [`LrScheduler::step`] after each step, or each epoch.
///
/// To resume, make the optimizer and the scheduler anew as at first, and then load the state of both.
#[derive(Clone, Debug)]
pub struct LrScheduler<S> {
    schedule: S,
    bases: Vec<f64>,
    step: u64,
}

impl<S: LrSchedule> LrScheduler<S> {
    /// Starts from the rates that the optimizer's groups have now, and sets them to the schedule's first.
    pub fn new(schedule: S, optimizer: &mut impl Optimizer) -> LrScheduler<S> {
        let scheduler = LrScheduler { schedule, bases: optimizer.learning_rates(), step: 0 };
        optimizer.set_learning_rates(&scheduler.rates());
        scheduler
    }

    /// Counts one step, and sets the rates of the optimizer's groups.
    pub fn step(&mut self, optimizer: &mut impl Optimizer) {
        self.step += 1;
        optimizer.set_learning_rates(&self.rates());
    }

    /// The steps counted so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// The rates of the groups now.
    pub fn rates(&self) -> Vec<f64> {
        self.bases.iter().map(|&base| self.schedule.lr(base, self.step)).collect()
    }
}

/// PyTorch's names: `last_epoch` for the steps counted, `base_lrs.0` for the rate that each group began with. The rates that
/// the groups have now are in the optimizer's state.
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
        let step = reader.word("last_epoch");
        let bases = (0..self.bases.len()).map(|g| reader.float(&format!("base_lrs.{g}"))).collect();
        reader.finish()?;
        (self.step, self.bases) = (step, bases);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn schedules_follow_their_formulas() {
        let step = StepLr::new(3, 0.1).unwrap();
        close(step.lr(1.0, 2), 1.0);
        close(step.lr(1.0, 3), 0.1);
        close(step.lr(1.0, 8), 0.01);
        close(ExponentialLr::new(0.5).lr(2.0, 3), 0.25);
        let cosine = CosineAnnealingLr::new(10, 0.1).unwrap();
        close(cosine.lr(1.1, 0), 1.1);
        close(cosine.lr(1.1, 5), 0.6);
        close(cosine.lr(1.1, 10), 0.1);
        let warmup = LinearLr::new(4, 0.2).unwrap();
        close(warmup.lr(1.0, 0), 0.2);
        close(warmup.lr(1.0, 2), 0.6);
        close(warmup.lr(1.0, 9), 1.0);
        assert!(StepLr::new(0, 0.1).is_err() && CosineAnnealingLr::new(0, 0.0).is_err());
        assert!(LinearLr::new(0, 0.0).is_err());
    }
}
