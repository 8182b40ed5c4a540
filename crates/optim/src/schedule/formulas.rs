//! Schedules with a closed formula of the number of steps.

use std::f64::consts::PI;

use tensor_core::{Error, Result};

use super::{LrSchedule, at_least_one, finite, within_one};

/// Multiplies the rate by `gamma` every `period` steps: base · γ^⌊t / period⌋.
/// `torch.optim.lr_scheduler.StepLR`.
#[derive(Clone, Copy, Debug)]
pub struct StepLr {
    period: u64,
    gamma: f64,
}

impl StepLr {
    /// # Errors
    /// A period of 0, or a factor that is not finite.
    #[track_caller]
    pub fn new(period: u64, gamma: f64) -> Result<StepLr> {
        at_least_one("StepLr", "period", period)?;
        finite("StepLr", [("gamma", gamma)])?;
        Ok(StepLr { period, gamma })
    }
}

impl LrSchedule for StepLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf((step / self.period) as f64)
    }

    fn chained(&self, _base: f64, now: f64, step: u64) -> f64 {
        if step > 0 && step.is_multiple_of(self.period) { now * self.gamma } else { now }
    }
}

/// Multiplies the rate by `gamma` at each milestone: base · γⁿ after n milestones. A milestone that is given
/// twice counts twice. `torch.optim.lr_scheduler.MultiStepLR`.
#[derive(Clone, Debug)]
pub struct MultiStepLr {
    /// Sorted.
    milestones: Vec<u64>,
    gamma: f64,
}

impl MultiStepLr {
    /// # Errors
    /// A factor that is not finite.
    #[track_caller]
    pub fn new(milestones: impl IntoIterator<Item = u64>, gamma: f64) -> Result<MultiStepLr> {
        finite("MultiStepLr", [("gamma", gamma)])?;
        let mut milestones: Vec<u64> = milestones.into_iter().collect();
        milestones.sort_unstable();
        Ok(MultiStepLr { milestones, gamma })
    }
}

impl LrSchedule for MultiStepLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(self.milestones.partition_point(|&m| m <= step) as f64)
    }

    fn chained(&self, _base: f64, now: f64, step: u64) -> f64 {
        now * self.gamma.powf(self.milestones.iter().filter(|&&m| m == step).count() as f64)
    }
}

/// Multiplies the rate by `gamma` at every step: base · γᵗ. `torch.optim.lr_scheduler.ExponentialLR`.
#[derive(Clone, Copy, Debug)]
pub struct ExponentialLr {
    gamma: f64,
}

impl ExponentialLr {
    /// A schedule with the factor `gamma`, which may be any number.
    pub fn new(gamma: f64) -> ExponentialLr {
        ExponentialLr { gamma }
    }
}

impl LrSchedule for ExponentialLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(step as f64)
    }

    fn chained(&self, _base: f64, now: f64, step: u64) -> f64 {
        if step == 0 { now } else { now * self.gamma }
    }
}

/// Anneals the rate by half a cosine from the base rate to `least` in `steps` steps, and then back up: least
/// + (base − least) · (1 + cos(π · t / steps)) / 2. `torch.optim.lr_scheduler.CosineAnnealingLR`.
///
/// Loshchilov, Hutter: SGDR, stochastic gradient descent with warm restarts (2017).
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingLr {
    steps: u64,
    least: f64,
}

impl CosineAnnealingLr {
    /// # Errors
    /// No steps, or a `least` that is not finite.
    #[track_caller]
    pub fn new(steps: u64, least: f64) -> Result<CosineAnnealingLr> {
        at_least_one("CosineAnnealingLr", "steps", steps)?;
        finite("CosineAnnealingLr", [("least", least)])?;
        Ok(CosineAnnealingLr { steps, least })
    }

    /// 1 + cos(π · t / steps).
    fn height(&self, step: u64) -> f64 {
        1.0 + (PI * step as f64 / self.steps as f64).cos()
    }
}

impl LrSchedule for CosineAnnealingLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        self.least + (base - self.least) * self.height(step) / 2.0
    }

    fn chained(&self, base: f64, now: f64, step: u64) -> f64 {
        match step {
            0 => now,
            // After the bottom, where the recursive quotient is 0 / 0.
            _ if (step - 1) % (2 * self.steps) == self.steps => {
                now + (base - self.least) * (1.0 - (PI / self.steps as f64).cos()) / 2.0
            }
            _ => self.height(step) / self.height(step - 1) * (now - self.least) + self.least,
        }
    }
}

/// Anneals the rate by half a cosine from the base rate to `least`, and restarts: the first round takes
/// `first` steps, and each following one `times` as many as the one before. The rate is least + (base −
/// least) · (1 + cos(π · t / T)) / 2 at step t of a round of T steps.
/// `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
///
/// Loshchilov, Hutter: SGDR, stochastic gradient descent with warm restarts (2017).
#[derive(Clone, Copy, Debug)]
pub struct CosineAnnealingWarmRestarts {
    first: u64,
    times: u64,
    least: f64,
}

impl CosineAnnealingWarmRestarts {
    /// # Errors
    /// No steps, `times` of 0, or a `least` that is not finite.
    #[track_caller]
    pub fn new(first: u64, times: u64, least: f64) -> Result<CosineAnnealingWarmRestarts> {
        let op = "CosineAnnealingWarmRestarts";
        at_least_one(op, "first", first)?;
        at_least_one(op, "times", times)?;
        finite(op, [("least", least)])?;
        Ok(CosineAnnealingWarmRestarts { first, times, least })
    }
}

impl LrSchedule for CosineAnnealingWarmRestarts {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let (mut round, mut at) = (self.first, step);
        if self.times == 1 {
            at %= round;
        }
        while at >= round {
            at -= round;
            round = round.saturating_mul(self.times);
        }
        self.least + (base - self.least) * (1.0 + (PI * at as f64 / round as f64).cos()) / 2.0
    }
}

/// Changes the rate linearly from `start` times the base rate to the base rate, or to [`LinearLr::end`]
/// times it, in `steps` steps, and keeps that: base · (start + (end − start) · min(t, steps) / steps).
/// `torch.optim.lr_scheduler.LinearLR`.
#[doc(alias = "warmup")]
#[derive(Clone, Copy, Debug)]
pub struct LinearLr {
    steps: u64,
    start: f64,
    end: f64,
}

impl LinearLr {
    /// # Errors
    /// No steps, or a factor outside [0, 1].
    #[track_caller]
    pub fn new(steps: u64, start: f64) -> Result<LinearLr> {
        at_least_one("LinearLr", "steps", steps)?;
        within_one("LinearLr", [("start", start)])?;
        Ok(LinearLr { steps, start, end: 1.0 })
    }

    /// Sets the factor at the end, which is 1 by default.
    ///
    /// # Errors
    /// A factor outside [0, 1].
    #[track_caller]
    pub fn end(self, end: f64) -> Result<LinearLr> {
        within_one("LinearLr", [("end", end)])?;
        Ok(LinearLr { end, ..self })
    }

    fn factor(&self, step: u64) -> f64 {
        self.start + (self.end - self.start) * step.min(self.steps) as f64 / self.steps as f64
    }
}

impl LrSchedule for LinearLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.factor(step)
    }

    fn chained(&self, base: f64, now: f64, step: u64) -> f64 {
        scaled(self.factor(step), step.checked_sub(1).map(|last| self.factor(last)), base, now)
    }
}

/// `factor` times the base rate for `steps` steps, and then the base rate.
/// `torch.optim.lr_scheduler.ConstantLR`.
#[derive(Clone, Copy, Debug)]
pub struct ConstantLr {
    steps: u64,
    factor: f64,
}

impl ConstantLr {
    /// # Errors
    /// No steps, or a factor outside [0, 1].
    #[track_caller]
    pub fn new(steps: u64, factor: f64) -> Result<ConstantLr> {
        at_least_one("ConstantLr", "steps", steps)?;
        within_one("ConstantLr", [("factor", factor)])?;
        Ok(ConstantLr { steps, factor })
    }

    fn factor(&self, step: u64) -> f64 {
        if step < self.steps { self.factor } else { 1.0 }
    }
}

impl LrSchedule for ConstantLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.factor(step)
    }

    fn chained(&self, base: f64, now: f64, step: u64) -> f64 {
        scaled(self.factor(step), step.checked_sub(1).map(|last| self.factor(last)), base, now)
    }
}

/// Decays the rate to 0 in `steps` steps, and keeps 0: base · (1 − min(t, steps) / steps)^power.
/// `torch.optim.lr_scheduler.PolynomialLR`.
#[derive(Clone, Copy, Debug)]
pub struct PolynomialLr {
    steps: u64,
    power: f64,
}

impl PolynomialLr {
    /// # Errors
    /// No steps, or a power that is negative or not finite.
    #[track_caller]
    pub fn new(steps: u64, power: f64) -> Result<PolynomialLr> {
        at_least_one("PolynomialLr", "steps", steps)?;
        if !(power.is_finite() && power >= 0.0) {
            let message = format!("power {power}: give a finite number that is not negative");
            return Err(Error::invalid("PolynomialLr", message));
        }
        Ok(PolynomialLr { steps, power })
    }

    fn factor(&self, step: u64) -> f64 {
        (1.0 - step.min(self.steps) as f64 / self.steps as f64).powf(self.power)
    }
}

impl LrSchedule for PolynomialLr {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.factor(step)
    }

    fn chained(&self, base: f64, now: f64, step: u64) -> f64 {
        scaled(self.factor(step), step.checked_sub(1).map(|last| self.factor(last)), base, now)
    }
}

/// The current rate `now` rescaled from the last step's factor to `factor`; at the first step, and after a
/// factor of 0, it is computed from the base.
fn scaled(factor: f64, last: Option<f64>, base: f64, now: f64) -> f64 {
    match last {
        None => now * factor,
        Some(last) if last == factor => now,
        Some(0.0) => base * factor,
        Some(last) => now * (factor / last),
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
