//! [`EarlyStopping`]: ends a training that no longer improves.

use tensor_core::{Error, Result, State, Stateful};

use crate::Goal;

/// Reports that a metric has not improved for `patience` evaluations. Keras's and Lightning's
/// `EarlyStopping`.
///
/// ```
/// use train::EarlyStopping;
/// let mut stopping = EarlyStopping::new(2);
/// let losses = [0.9, 0.5, 0.6, 0.4, 0.41, 0.45, 0.3];
/// let stopped = losses.iter().position(|&loss| stopping.step(loss));
/// assert_eq!(stopped, Some(5));
/// assert_eq!((stopping.best(), stopping.best_step()), (Some(0.4), Some(4)));
/// ```
///
/// Its state can be a part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStopping {
    patience: u64,
    goal: Goal,
    min_delta: f64,
    best: f64,
    best_step: u64,
    steps: u64,
}

impl EarlyStopping {
    /// Stops after `patience` evaluations without a lower value; with 0, after the first that is no better.
    pub fn new(patience: u64) -> EarlyStopping {
        EarlyStopping { patience, goal: Goal::Lower, min_delta: 0.0, best: f64::NAN, best_step: 0, steps: 0 }
    }

    /// Sets whether lower or higher values are better; lower by default.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> EarlyStopping {
        self.goal = goal;
        self
    }

    /// Sets the least difference that counts as an improvement: it must be exceeded. 0 by default.
    ///
    /// # Errors
    /// A number below 0, or NaN.
    #[track_caller]
    pub fn min_delta(mut self, min_delta: f64) -> Result<EarlyStopping> {
        if min_delta.is_nan() || min_delta < 0.0 {
            return Err(Error::invalid("EarlyStopping", format!("min_delta {min_delta}: give 0 or more")));
        }
        self.min_delta = min_delta;
        Ok(self)
    }

    /// Takes the value of another evaluation, and returns whether to stop. NaN is no improvement.
    pub fn step(&mut self, value: f64) -> bool {
        self.steps += 1;
        let least = match self.goal {
            Goal::Lower => self.best - self.min_delta,
            Goal::Higher => self.best + self.min_delta,
        };
        if self.goal.is_better(value, least) {
            (self.best, self.best_step) = (value, self.steps);
        }
        self.should_stop()
    }

    /// Whether to stop.
    pub fn should_stop(&self) -> bool {
        self.steps > 0 && self.steps - self.best_step >= self.patience.max(1)
    }

    /// The best value; `None` before the first evaluation.
    pub fn best(&self) -> Option<f64> {
        (!self.best.is_nan()).then_some(self.best)
    }

    /// The number of the evaluation with the best value, from 1 on.
    pub fn best_step(&self) -> Option<u64> {
        self.best().map(|_| self.best_step)
    }
}

/// `best`, `best_step` and `steps`. Patience and goal are settings, not state.
impl Stateful for EarlyStopping {
    fn state_dict(&self) -> State {
        let mut state = State::new();
        state.insert("best", self.best);
        state.insert("best_step", self.best_step);
        state.insert("steps", self.steps);
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let mut reader = state.reader();
        let (best, best_step, steps) = (reader.float("best"), reader.word("best_step"), reader.word("steps"));
        if best_step > steps {
            reader.mismatch(format!("best_step: {best_step}, after {steps} steps"));
        }
        reader.finish()?;
        (self.best, self.best_step, self.steps) = (best, best_step, steps);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops_at(mut stopping: EarlyStopping, values: &[f64]) -> Option<usize> {
        values.iter().position(|&value| stopping.step(value))
    }

    #[test]
    fn patience_is_counted_from_the_best() {
        let new = EarlyStopping::new;
        assert_eq!(stops_at(new(1), &[1.0, 0.5, 0.5]), Some(2));
        assert_eq!(stops_at(new(0), &[1.0, 0.5, 0.5]), Some(2));
        assert_eq!(stops_at(new(3), &[1.0, 2.0, 2.0, 0.9, 2.0, 2.0, 2.0]), Some(6));
        assert_eq!(stops_at(new(2), &[f64::NAN, 1.0, f64::NAN, f64::NAN]), Some(3));
        assert_eq!(stops_at(new(2), &[f64::NAN, f64::NAN]), Some(1));
        assert_eq!(stops_at(new(2).goal(Goal::Higher), &[0.1, 0.2, 0.3, 0.2, 0.1]), Some(4));
        let coarse = new(2).min_delta(0.1).unwrap_or(new(9));
        assert_eq!(stops_at(coarse, &[1.0, 0.95, 0.92]), Some(2));
        assert_eq!(stops_at(coarse, &[1.0, 0.95, 0.89, 0.88]), None);
        assert!(new(1).min_delta(-1.0).is_err() && new(1).min_delta(f64::NAN).is_err());
    }

    #[test]
    fn it_goes_on_from_its_state() -> Result<()> {
        let mut first = EarlyStopping::new(3);
        for value in [1.0, 0.5, 0.7] {
            first.step(value);
        }
        let mut second = EarlyStopping::new(3);
        second.load_state_dict(&first.state_dict())?;
        assert_eq!(first, second);
        let before = second;
        assert!(second.load_state_dict(&State::new()).is_err() && second == before);
        Ok(())
    }
}
