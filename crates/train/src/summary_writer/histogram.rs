//! A `HistogramProto` with TensorFlow's buckets: each is a tenth wider than the one before, from 10⁻¹² on,
//! and symmetric for negative numbers.

use inspect::Message;
use tensor_core::{Error, Result};

/// The upper edges of the buckets above 0.
fn edges() -> Vec<f64> {
    let mut edges = vec![1e-12];
    while let Some(&last) = edges.last()
        && last < 1e20
    {
        edges.push(last * 1.1);
    }
    edges.push(f64::MAX);
    edges
}

/// The counts of numbers below each limit, and sums over the numbers.
pub(super) struct Histogram {
    least: f64,
    greatest: f64,
    count: f64,
    sum: f64,
    squares: f64,
    pub(super) limits: Vec<f64>,
    pub(super) counts: Vec<f64>,
}

impl Histogram {
    #[track_caller]
    pub(super) fn of(values: &[f64]) -> Result<Histogram> {
        let wrong = values.iter().filter(|value| !value.is_finite()).count();
        if values.is_empty() || wrong > 0 {
            let message =
                format!("a histogram of {} elements, {wrong} of them NaN or infinite", values.len());
            return Err(Error::invalid(super::OP, message));
        }
        let above = edges();
        let limits: Vec<f64> =
            above.iter().rev().map(|edge| -edge).chain([0.0]).chain(above.iter().copied()).collect();
        let mut counts = vec![0.0; limits.len()];
        for value in values {
            // A bucket has the numbers below its limit, from the limit of the one before it on; the greatest
            // number is in the last bucket.
            let bucket = limits.partition_point(|limit| limit <= value).min(limits.len() - 1);
            counts[bucket] += 1.0;
        }
        // Empty buckets at both ends are left out, except one on the left: its limit is the start of the
        // first bucket that is not empty.
        let first = counts.iter().position(|&count| count > 0.0).unwrap_or(0).saturating_sub(1);
        let last = counts.iter().rposition(|&count| count > 0.0).unwrap_or(0);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Ok(Histogram {
            least,
            greatest,
            count: values.len() as f64,
            sum: values.iter().sum(),
            squares: values.iter().map(|value| value * value).sum(),
            limits: limits[first..=last].to_vec(),
            counts: counts[first..=last].to_vec(),
        })
    }

    /// The `HistogramProto`.
    pub(super) fn message(&self) -> Message {
        Message::default()
            .double(1, self.least)
            .double(2, self.greatest)
            .double(3, self.count)
            .double(4, self.sum)
            .double(5, self.squares)
            .doubles(6, &self.limits)
            .doubles(7, &self.counts)
    }
}
