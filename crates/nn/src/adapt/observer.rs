//! [`Observer`]: the range of the numbers that it is shown, and the scale that integers get from it.

use tensor_core::{DType, Error, Result, Tensor, caller_line};

const OP: &str = "observer";

/// The least scale, the machine epsilon of f32, as in PyTorch.
const LEAST_SCALE: f64 = f32::EPSILON as f64;
/// Parts of the observed range, on either side of 0, that a histogram is searched with: 1, 0.95 … 0.3.
const CUTS: usize = 15;
const CUT_STEP: f64 = 0.05;

/// How the range of activations is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ObserverKind {
    /// The least and the greatest number so far. `torch.ao.quantization.MinMaxObserver`.
    MinMax,
    /// Moving averages of the least and the greatest number of each input: c · new + (1 − c) · old.
    /// `torch.ao.quantization.MovingAverageMinMaxObserver`, whose c is 0.01.
    MovingAverage {
        /// The constant c.
        averaging_constant: f64,
    },
    /// A histogram of this many bins. The range is the part of the observed one with the least expected
    /// squared error of rounding and cutting off.
    Histogram {
        /// The number of bins; PyTorch takes 2048.
        bins: usize,
    },
}

/// The integers that numbers are rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerRange {
    /// The least integer.
    pub quant_min: i64,
    /// The greatest integer.
    pub quant_max: i64,
    /// Whether the range of the numbers is made symmetric, so that the zero point is 0 for signed integers
    /// and the middle for unsigned ones.
    pub symmetric: bool,
}

impl IntegerRange {
    /// Unsigned 8 bits with a zero point.
    pub const U8: IntegerRange = IntegerRange { quant_min: 0, quant_max: 255, symmetric: false };
    /// Signed 8 bits with a zero point of 0.
    pub const I8: IntegerRange = IntegerRange { quant_min: -128, quant_max: 127, symmetric: true };

    /// The scale and the zero point that cover the numbers from `low` to `high`, with 0 among them.
    #[must_use]
    pub fn parameters(&self, low: f64, high: f64) -> (f64, f64) {
        let (least, greatest) = (self.quant_min as f64, self.quant_max as f64);
        let (low, high) = (low.min(0.0), high.max(0.0));
        if self.symmetric {
            let scale = (2.0 * high.max(-low) / (greatest - least)).max(LEAST_SCALE);
            let zero = if self.quant_min < 0 { 0.0 } else { ((least + greatest) / 2.0).ceil() };
            return (scale, zero);
        }
        let scale = ((high - low) / (greatest - least)).max(LEAST_SCALE);
        (scale, (least - (low / scale).round_ties_even()).clamp(least, greatest))
    }
}

/// The observation of numbers.
#[derive(Clone, Debug)]
pub struct Observer {
    kind: ObserverKind,
    range: Option<(f64, f64)>,
    /// The counts of the bins of the range.
    bins: Vec<f64>,
}

impl Observer {
    /// An observer that has seen nothing.
    #[must_use]
    pub fn new(kind: ObserverKind) -> Observer {
        Observer { kind, range: None, bins: Vec::new() }
    }

    /// Takes numbers into account; it reads them.
    ///
    /// # Errors
    /// Numbers that are not finite, a histogram without bins, or whatever the device reports.
    #[track_caller]
    pub fn observe(&mut self, input: &Tensor) -> Result<()> {
        let _line = caller_line();
        if input.numel() == 0 {
            return Ok(());
        }
        let x = input.detach().to_dtype(DType::F32)?;
        let [low, high] = [x.min()?, x.max()?].map(|x| x.item::<f32>().map(f64::from));
        let (low, high) = (low?, high?);
        if !(low.is_finite() && high.is_finite()) {
            let message = format!(
                "numbers from {low} to {high}: the calibration data give an input that is not finite"
            );
            return Err(Error::invalid(OP, message));
        }
        let Some((least, greatest)) = self.range else {
            self.range = Some((low, high));
            return self.count(&x);
        };
        match self.kind {
            ObserverKind::MinMax => self.range = Some((least.min(low), greatest.max(high))),
            ObserverKind::MovingAverage { averaging_constant: c } => {
                self.range = Some((least + c * (low - least), greatest + c * (high - greatest)));
            }
            ObserverKind::Histogram { .. } => {
                self.widen(least.min(low), greatest.max(high));
                self.count(&x)?;
            }
        }
        Ok(())
    }

    /// Makes the range of the histogram larger: the count of each bin moves to the one with its middle.
    fn widen(&mut self, low: f64, high: f64) {
        let Some((least, greatest)) = self.range else { return };
        if (low, high) == (least, greatest) {
            return;
        }
        let count = self.bins.len();
        let before = std::mem::replace(&mut self.bins, vec![0.0; count]);
        self.range = Some((low, high));
        let width = (greatest - least) / before.len() as f64;
        for (i, count) in before.into_iter().enumerate() {
            let at = self.bin_of(least + (i as f64 + 0.5) * width);
            self.bins[at] += count;
        }
    }

    fn bin_of(&self, x: f64) -> usize {
        let (low, high) = self.range.unwrap_or((0.0, 0.0));
        let part = if high > low { (x - low) / (high - low) } else { 0.0 };
        ((part * self.bins.len() as f64) as usize).min(self.bins.len().saturating_sub(1))
    }

    fn count(&mut self, x: &Tensor) -> Result<()> {
        let ObserverKind::Histogram { bins } = self.kind else { return Ok(()) };
        if bins == 0 {
            return Err(Error::invalid(OP, "a histogram of 0 bins: give some"));
        }
        self.bins.resize(bins, 0.0);
        for x in x.to_vec::<f32>()? {
            let at = self.bin_of(x.into());
            self.bins[at] += 1.0;
        }
        Ok(())
    }

    /// The least and the greatest number that integers should cover; None before any were observed.
    #[must_use]
    pub fn range(&self, integers: IntegerRange) -> Option<(f64, f64)> {
        let (low, high) = self.range?;
        if !matches!(self.kind, ObserverKind::Histogram { .. }) {
            return Some((low, high));
        }
        let width = (high - low) / self.bins.len().max(1) as f64;
        let error = |low_cut: f64, high_cut: f64| -> f64 {
            let (scale, zero) = integers.parameters(low_cut, high_cut);
            let least = (integers.quant_min as f64 - zero) * scale;
            let greatest = (integers.quant_max as f64 - zero) * scale;
            let one = |(i, count): (usize, &f64)| {
                let x = low + (i as f64 + 0.5) * width;
                let beyond = x - x.clamp(least, greatest);
                // Rounding errors are uniform within half a step.
                count * if beyond == 0.0 { scale * scale / 12.0 } else { beyond * beyond }
            };
            self.bins.iter().enumerate().filter(|(_, count)| **count > 0.0).map(one).sum()
        };
        let mut best = (f64::INFINITY, (low, high));
        for i in 0..CUTS {
            for j in 0..CUTS {
                let cut = |x: f64, steps: usize| x * (1.0 - steps as f64 * CUT_STEP);
                let tried = (cut(low, i), cut(high, j));
                let found = error(tried.0, tried.1);
                if found < best.0 {
                    best = (found, tried);
                }
            }
        }
        Some(best.1)
    }

    /// The scale and the zero point for what was observed; None before anything was.
    #[must_use]
    pub fn parameters(&self, integers: IntegerRange) -> Option<(f64, f64)> {
        self.range(integers).map(|(low, high)| integers.parameters(low, high))
    }
}
