//! [`LrFinder`]: finds an initial learning rate.

use nn::{Checkpoint, Module};
use optim::Optimizer;
use tensor_core::{Error, Result};

const OP: &str = "LrFinder";

/// The learning-rate range test: takes a step at each of many rates, from a tiny one up to one at which the
/// loss diverges. The best rates are where the loss falls fastest.
///
/// Smith: Cyclical learning rates for training neural networks (2017). fastai's `lr_find`.
///
/// ```
/// use autograd::TensorGrad;
/// use nn::{Linear, Module};
/// use optim::{Optimizer, Sgd, SgdConfig};
/// use tensor_core::{Generator, Tensor};
/// use train::LrFinder;
///
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let model = Linear::new(4, 1, &rng)?;
/// let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: 0.1, ..Default::default() });
/// let (x, y) = (Tensor::randn((32, 4), &rng)?, Tensor::randn((32, 1), &rng)?);
/// let found = LrFinder::default().run(&model, &mut sgd, |sgd| {
///     sgd.zero_grad();
///     let loss = model.forward(&x)?.sub(&y)?.powi(2).mean();
///     loss.backward()?;
///     sgd.step()?;
///     loss.item_f64()
/// })?;
/// let rate = found.steepest().unwrap();
/// assert!((1e-4..1.0).contains(&rate), "{rate}");
/// assert_eq!(sgd.learning_rates(), [0.1]); // model and optimizer are as they were
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LrFinder {
    /// The first rate. 10⁻⁷ by default.
    pub start: f64,
    /// The last rate. 10 by default.
    pub end: f64,
    /// The number of rates, spaced geometrically. 100 by default.
    pub steps: usize,
    /// The weight of earlier steps in the smoothed loss. 0.98 by default.
    pub smoothing: f64,
    /// The test ends when the smoothed loss exceeds the best one times this factor. 4 by default.
    pub diverged: f64,
}

impl Default for LrFinder {
    fn default() -> LrFinder {
        LrFinder { start: 1e-7, end: 10.0, steps: 100, smoothing: 0.98, diverged: 4.0 }
    }
}

/// The result of a range test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LrCurve {
    /// The rates, up to where the loss diverged.
    pub rates: Vec<f64>,
    /// The loss of the step at each rate.
    pub losses: Vec<f64>,
    /// The smoothed losses: an exponential average with bias correction.
    pub smoothed: Vec<f64>,
}

impl LrFinder {
    /// Runs the test. `step` takes one step with the optimizer and returns its loss; all groups get the same
    /// rate. Afterwards, even if a step fails, the model, its random streams and the optimizer are restored.
    /// Other changes by `step`, such as a loader's epoch, remain.
    ///
    /// # Errors
    /// Invalid settings; the first error of `step`; a loss that is not finite at the first step.
    #[track_caller]
    pub fn run<O: Optimizer>(
        &self,
        model: &impl Module,
        optimizer: &mut O,
        step: impl FnMut(&mut O) -> Result<f64>,
    ) -> Result<LrCurve> {
        self.check()?;
        let before = Checkpoint::new().module("model", model).part("optimizer", optimizer);
        let found = self.steps(optimizer, step);
        before.restore().module("model", model).part("optimizer", optimizer).finish()?;
        found
    }

    #[track_caller]
    fn check(&self) -> Result<()> {
        let LrFinder { start, end, steps, smoothing, diverged } = *self;
        let message = if !(start > 0.0 && end > start && end.is_finite()) {
            format!("rates from {start} to {end}: give 0 < start < end")
        } else if steps < 2 {
            format!("{steps} steps: give at least 2")
        } else if !(0.0..1.0).contains(&smoothing) {
            format!("smoothing {smoothing}: give 0 or more, and less than 1")
        } else if diverged.is_nan() || diverged <= 1.0 {
            format!("diverged {diverged}: give more than 1")
        } else {
            return Ok(());
        };
        Err(Error::invalid(OP, message))
    }

    #[track_caller]
    fn steps<O: Optimizer>(
        &self,
        optimizer: &mut O,
        mut step: impl FnMut(&mut O) -> Result<f64>,
    ) -> Result<LrCurve> {
        let groups = optimizer.learning_rates().len();
        let mut curve = LrCurve::default();
        let (mut average, mut best) = (0.0, f64::INFINITY);
        for i in 0..self.steps {
            let rate = self.start * (self.end / self.start).powf(i as f64 / (self.steps - 1) as f64);
            optimizer.set_learning_rates(&vec![rate; groups]);
            let loss = step(optimizer)?;
            if !loss.is_finite() {
                if i == 0 {
                    return Err(Error::invalid(OP, format!("the loss of the first step is {loss}")));
                }
                break;
            }
            average = self.smoothing * average + (1.0 - self.smoothing) * loss;
            let smoothed = average / (1.0 - self.smoothing.powi(i as i32 + 1));
            curve.rates.push(rate);
            curve.losses.push(loss);
            curve.smoothed.push(smoothed);
            best = f64::min(best, smoothed);
            // A multiple of a loss that may be negative has no meaning.
            if best > 0.0 && smoothed > self.diverged * best {
                break;
            }
        }
        Ok(curve)
    }
}

impl LrCurve {
    /// The rate at which the smoothed loss falls fastest over the logarithm of the rate. `None` if it never
    /// falls. The first tenth of the rates is ignored: the average has few losses there, and fluctuates.
    pub fn steepest(&self) -> Option<f64> {
        // Central differences; rates are evenly spaced in their logarithms.
        let slopes = self.smoothed.windows(3).map(|window| window[2] - window[0]);
        let slopes = slopes.enumerate().skip(self.smoothed.len() / 10);
        let (at, slope) = slopes.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (slope < 0.0).then(|| self.rates[at + 1])
    }

    /// A tenth of the rate with the least smoothed loss: a safer choice. `None` if there are no rates.
    pub fn tenth_of_least(&self) -> Option<f64> {
        let (at, _) = self.smoothed.iter().enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some(self.rates[at] / 10.0)
    }
}
