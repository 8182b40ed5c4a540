//! [`Accuracy`]: the fraction of items that are classified correctly.

use tensor_core::{Error, Result, Tensor};

use super::{check_rows, classes};

const OP: &str = "Accuracy";

/// The fraction of items whose class is among the k highest scores. `torchmetrics.Accuracy(top_k=k)` with
/// micro averages, `sklearn.metrics.top_k_accuracy_score`.
///
/// ```
/// use tensor_core::Tensor;
/// use train::metrics::Accuracy;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let scores = Tensor::new([[0.1f32, 0.9, 0.5], [0.8, 0.1, 0.3]], &device)?;
/// let targets = Tensor::new([1i32, 2], &device)?;
/// let (mut first, mut second) = (Accuracy::new(), Accuracy::top_k(2));
/// first.update(&scores, &targets)?;
/// second.update(&scores, &targets)?;
/// assert_eq!((first.value(), second.value()), (Some(0.5), Some(1.0)));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accuracy {
    k: usize,
    right: u64,
    seen: u64,
}

impl Default for Accuracy {
    fn default() -> Accuracy {
        Accuracy::new()
    }
}

impl Accuracy {
    /// An accuracy by the highest score.
    pub fn new() -> Accuracy {
        Accuracy::top_k(1)
    }

    /// An accuracy by the `k` highest scores; among equal scores, lower classes come first.
    pub fn top_k(k: usize) -> Accuracy {
        Accuracy { k, right: 0, seen: 0 }
    }

    /// Counts a batch: scores `[N, C]`, such as logits, and classes `[N]`.
    ///
    /// # Errors
    /// Shapes that do not fit, a k of 0 or above C, a class outside 0 to C − 1, a value that cannot be
    /// computed. Nothing is counted then.
    #[track_caller]
    pub fn update(&mut self, scores: &Tensor, targets: &Tensor) -> Result<()> {
        check_rows(OP, scores, targets)?;
        let (rows, count) = (scores.dims()[0], scores.dims()[1]);
        if !(1..=count).contains(&self.k) {
            return Err(Error::invalid(OP, format!("top {} of {count} classes: give 1 to {count}", self.k)));
        }
        let targets = classes(OP, "targets", targets)?;
        if let Some(class) = targets.iter().find(|class| !(0..count as i64).contains(class)) {
            return Err(Error::invalid(OP, format!("class {class} of {count}: give 0 to {}", count - 1)));
        }
        let best =
            if rows == 0 { Vec::new() } else { scores.detach().topk(self.k, 1, true)?.1.to_f64_vec()? };
        let hit = |(best, target): (&[f64], &i64)| best.iter().any(|&class| class as i64 == *target);
        self.right += best.chunks(self.k).zip(&targets).filter(|&pair| hit(pair)).count() as u64;
        self.seen += rows as u64;
        Ok(())
    }

    /// The accuracy; `None` if nothing was counted.
    pub fn value(&self) -> Option<f64> {
        (self.seen > 0).then(|| self.right as f64 / self.seen as f64)
    }

    /// The number of correct items, and of all items.
    pub fn counts(&self) -> (u64, u64) {
        (self.right, self.seen)
    }

    /// Resets all counts.
    pub fn reset(&mut self) {
        *self = Accuracy::top_k(self.k);
    }
}
