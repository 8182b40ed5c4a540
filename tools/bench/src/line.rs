//! The measurements of one case: a JSON line, which PyTorch's script writes in the same form.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::round;

/// The times of a case's calls, in milliseconds, in order.
pub(crate) struct Times(Vec<f64>);

impl Times {
    /// Times, of which there is at least one.
    pub(crate) fn of(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        Times(times)
    }

    pub(crate) fn median(&self) -> f64 {
        let n = self.0.len();
        if n == 0 {
            return f64::NAN;
        }
        (self.0[(n - 1) / 2] + self.0[n / 2]) / 2.0
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn reps(&self) -> usize {
        self.0.len()
    }
}

/// One case of one library.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) peer: String,
    pub(crate) case: String,
    /// Why there are no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) absent: Option<String>,
    /// An error message if the result is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wrong: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) median_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reps: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gb_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ns_per_op: Option<f64>,
    /// How much of what the machine can do at best was reached; 1 is all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit_share: Option<f64>,
    /// Anything else that is worth telling.
    #[serde(flatten)]
    pub(crate) extra: Map<String, Value>,
}

impl Line {
    pub(crate) fn timed(peer: &str, case: &str, times: &Times) -> Line {
        Line {
            peer: peer.into(),
            case: case.into(),
            median_ms: Some(round(times.median(), 6)),
            min_ms: Some(round(times.min(), 6)),
            mean_ms: Some(round(times.mean(), 6)),
            reps: Some(times.reps()),
            ..Line::default()
        }
    }

    pub(crate) fn absent(peer: &str, case: &str, why: &str) -> Line {
        Line { peer: peer.into(), case: case.into(), absent: Some(why.into()), ..Line::default() }
    }

    /// The turn of the middle median, the lower one of two, with the least time of all; the first one that is
    /// wrong, if one is.
    pub(crate) fn of_turns(mut turns: Vec<Line>) -> Option<Line> {
        if let Some(at) = turns.iter().position(|line| line.wrong.is_some() || line.median_ms.is_none()) {
            return Some(turns.swap_remove(at));
        }
        let least = turns.iter().filter_map(|line| line.min_ms).min_by(f64::total_cmp);
        let by_median = |line: &Line| line.median_ms.unwrap_or(f64::NAN);
        turns.sort_by(|a, b| by_median(a).total_cmp(&by_median(b)));
        let middle = turns.len().checked_sub(1)? / 2;
        let line = turns.swap_remove(middle);
        Some(Line { min_ms: least, ..line })
    }

    /// How many times faster than `other` this is, by their medians.
    pub(crate) fn ratio(&self, other: &Line) -> Option<f64> {
        Some(other.median_ms? / self.median_ms?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Times::of(vec![3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Times::of(vec![4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert_eq!(Times::of(vec![3.0, 1.0, 2.0]).min(), 1.0);
        assert_eq!(Times::of(vec![4.0, 1.0, 1.0]).mean(), 2.0);
    }

    #[test]
    fn of_turns_the_middle_one_is_told_and_the_least_time_of_all() {
        let turn = |times: &[f64]| Line::timed("taper", "matmul_64", &Times::of(times.to_vec()));
        let told =
            Line::of_turns(vec![turn(&[9.0, 1.0, 9.0]), turn(&[2.0]), turn(&[4.0, 3.0, 5.0])]).unwrap();
        assert_eq!((told.median_ms, told.min_ms, told.reps), (Some(4.0), Some(1.0), Some(3)));
        assert_eq!(Line::of_turns(vec![turn(&[3.0]), turn(&[2.0])]).unwrap().median_ms, Some(2.0));
        let wrong = Line { wrong: Some("2 is not 1".into()), ..turn(&[7.0]) };
        assert!(Line::of_turns(vec![turn(&[3.0]), wrong]).unwrap().wrong.is_some());
        assert!(Line::of_turns(Vec::new()).is_none());
    }

    #[test]
    fn lines_survive_json() {
        let mut line = Line::timed("taper", "matmul_64", &Times::of(vec![1.0]));
        line.extra.insert("instructions".into(), "neon".into());
        let back: Line = serde_json::from_str(&serde_json::to_string(&line).unwrap()).unwrap();
        assert_eq!((back.median_ms, back.absent), (Some(1.0), None));
        assert_eq!(back.extra["instructions"], "neon");
    }
}
