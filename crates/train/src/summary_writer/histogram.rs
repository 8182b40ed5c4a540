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

#[track_caller]
pub(super) fn histogram(values: &[f64]) -> Result<Message> {
    let wrong = values.iter().filter(|value| !value.is_finite()).count();
    if values.is_empty() || wrong > 0 {
        let message = format!("a histogram of {} elements, {wrong} of them NaN or infinite", values.len());
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
    // Empty buckets at both ends are left out, except one on the left: its limit is the start of the first
    // bucket that is not empty.
    let first = counts.iter().position(|&count| count > 0.0).unwrap_or(0).saturating_sub(1);
    let last = counts.iter().rposition(|&count| count > 0.0).unwrap_or(0);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ok(Message::default()
        .double(1, least)
        .double(2, greatest)
        .double(3, values.len() as f64)
        .double(4, values.iter().sum())
        .double(5, values.iter().map(|value| value * value).sum())
        .doubles(6, &limits[first..=last])
        .doubles(7, &counts[first..=last]))
}
