//! [`Mean`]: a weighted mean.

/// A weighted mean Σ wᵢ xᵢ / Σ wᵢ, such as of the losses of batches of different sizes.
/// `torchmetrics.MeanMetric`.
///
/// Sums are compensated (Neumaier), so that a million additions lose no precision.
///
/// ```
/// use train::metrics::Mean;
/// let mut mean = Mean::new();
/// mean.add(0.5, 64.0); // the mean loss of 64 images
/// mean.add(2.0, 16.0);
/// assert_eq!(mean.value(), Some(0.8));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: Sum,
    weight: Sum,
}

impl Mean {
    /// A mean of no values.
    pub fn new() -> Mean {
        Mean::default()
    }

    /// Adds a value with this weight: the mean of n values has the weight n.
    pub fn add(&mut self, value: f64, weight: f64) {
        self.sum.add(value * weight);
        self.weight.add(weight);
    }

    /// The mean; `None` if the total weight is 0.
    pub fn value(&self) -> Option<f64> {
        let weight = self.weight.value();
        (weight != 0.0).then(|| self.sum.value() / weight)
    }

    /// The total weight.
    pub fn weight(&self) -> f64 {
        self.weight.value()
    }

    /// Starts again from no values.
    pub fn reset(&mut self) {
        *self = Mean::default();
    }
}

/// A sum with compensation for rounding errors (Neumaier 1974).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        // Compensation is skipped once the sum is infinite.
        if sum.is_finite() {
            let (large, small) =
                if self.sum.abs() >= value.abs() { (self.sum, value) } else { (value, self.sum) };
            self.lost += (large - sum) + small;
        }
        self.sum = sum;
    }

    fn value(self) -> f64 {
        self.sum + self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_and_nothing_hidden() {
        let mut mean = Mean::new();
        assert_eq!(mean.value(), None);
        mean.add(1e16, 1.0);
        (0..1000).for_each(|_| mean.add(1.0, 1.0));
        mean.add(-1e16, 1.0);
        assert_eq!(mean.value(), Some(1000.0 / 1002.0));
        mean.add(f64::NAN, 0.0);
        assert!(mean.value().unwrap_or(0.0).is_nan());
        mean.reset();
        mean.add(3.0, 0.0);
        assert_eq!(mean.value(), None);
        mean.add(f64::INFINITY, 1.0);
        assert_eq!((mean.value(), mean.weight()), (Some(f64::INFINITY), 1.0));
    }
}
