//! [`ConfusionMatrix`], and the metrics derived from it: precision, recall, F1, IoU.

use std::fmt;

use tensor_core::{Error, Result, Tensor};

use super::classes;

const OP: &str = "ConfusionMatrix";

/// The average over classes. As in scikit-learn, a class that occurs neither among the targets nor among the
/// predictions is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// The average over all items: with one class per item, precision, recall and F1 all equal the accuracy.
    Micro,
    /// The mean over the classes.
    Macro,
    /// The mean over the classes, weighted by the number of items of each.
    Weighted,
}

/// The number of items for each pair of true class and predicted class. `sklearn.metrics.confusion_matrix`,
/// `torchmetrics.ConfusionMatrix`.
///
/// For a class with TP true positives, FP false positives and FN false negatives: precision = TP / (TP +
/// FP), recall = TP / (TP + FN), F1 = 2 TP / (2 TP + FP + FN); each is 0 if its denominator is 0, as in
/// scikit-learn.
///
/// ```
/// use tensor_core::Tensor;
/// use train::metrics::{Average, ConfusionMatrix};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let mut matrix = ConfusionMatrix::new(3);
/// let predictions = Tensor::new([0i32, 2, 1, 2], &device)?;
/// let targets = Tensor::new([0i32, 1, 1, 2], &device)?;
/// matrix.update(&predictions, &targets)?;
/// assert_eq!(matrix.row(1), [0, 1, 1]); // of class 1, one was predicted as 1 and one as 2
/// assert_eq!(matrix.accuracy(), Some(0.75));
/// assert_eq!(matrix.recall(Average::Macro), Some(2.5 / 3.0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfusionMatrix {
    classes: usize,
    /// Row-major, with a row for each true class.
    counts: Vec<u64>,
}

impl ConfusionMatrix {
    /// A matrix for this number of classes, with nothing counted yet.
    pub fn new(classes: usize) -> ConfusionMatrix {
        ConfusionMatrix { classes, counts: vec![0; classes * classes] }
    }

    /// Counts a batch: predictions, as classes `[N, …]` or as scores `[N, C, …]`, and the true classes `[N,
    /// …]`, such as those of pixels `[N, H, W]`.
    ///
    /// # Errors
    /// Shapes that do not fit, a class that is out of range, a value that cannot be computed. Nothing is
    /// counted then.
    #[track_caller]
    pub fn update(&mut self, predictions: &Tensor, targets: &Tensor) -> Result<()> {
        let predicted = if predictions.rank() > targets.rank() {
            if predictions.dims()[1] != self.classes {
                let message = format!("scores {} for {} classes", predictions.shape(), self.classes);
                return Err(Error::invalid(OP, message));
            }
            predictions.detach().argmax_axis(1, false)?
        } else {
            predictions.clone()
        };
        if predicted.shape() != targets.shape() || targets.rank() == 0 {
            let message = format!(
                "predictions {} for targets {}: give classes [N, …] both, or scores [N, C, …]",
                predictions.shape(),
                targets.shape()
            );
            return Err(Error::invalid(OP, message));
        }
        let predicted = classes(OP, "predictions", &predicted.flatten(0, -1)?)?;
        let targets = classes(OP, "targets", &targets.flatten(0, -1)?)?;
        let known = 0..self.classes as i64;
        for (name, all) in [("predictions", &predicted), ("targets", &targets)] {
            if let Some(class) = all.iter().find(|class| !known.contains(class)) {
                let message = format!("{name}: class {class}, where there are {} from 0 on", self.classes);
                return Err(Error::invalid(OP, message));
            }
        }
        for (predicted, target) in predicted.into_iter().zip(targets) {
            self.counts[target as usize * self.classes + predicted as usize] += 1;
        }
        Ok(())
    }

    /// For items of class `class`, the counts of each predicted class; empty if there is no such class.
    pub fn row(&self, class: usize) -> &[u64] {
        let start = class.saturating_mul(self.classes);
        self.counts.get(start..start + self.classes).unwrap_or_default()
    }

    /// All counts, row-major: rows are true classes, columns are predicted classes.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The number of items counted.
    pub fn items(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The fraction of correct predictions; `None` if nothing was counted.
    pub fn accuracy(&self) -> Option<f64> {
        let right: u64 = (0..self.classes).map(|class| self.of(class).right).sum();
        let items = self.items();
        (items > 0).then(|| right as f64 / items as f64)
    }

    /// Precision; `None` if nothing was counted.
    pub fn precision(&self, average: Average) -> Option<f64> {
        self.average(average, Class::precision)
    }

    /// Recall; `None` if nothing was counted.
    pub fn recall(&self, average: Average) -> Option<f64> {
        self.average(average, Class::recall)
    }

    /// F1; `None` if nothing was counted.
    pub fn f1(&self, average: Average) -> Option<f64> {
        self.average(average, Class::f1)
    }

    /// The precision of each class.
    pub fn precisions(&self) -> Vec<f64> {
        (0..self.classes).map(|class| self.of(class).precision()).collect()
    }

    /// The recall of each class.
    pub fn recalls(&self) -> Vec<f64> {
        (0..self.classes).map(|class| self.of(class).recall()).collect()
    }

    /// The F1 of each class.
    pub fn f1s(&self) -> Vec<f64> {
        (0..self.classes).map(|class| self.of(class).f1()).collect()
    }

    /// The intersection over union TP / (TP + FP + FN), the Jaccard index; `None` if nothing was counted. The
    /// micro average divides the sums over the classes. `torchmetrics.JaccardIndex`,
    /// `sklearn.metrics.jaccard_score`.
    ///
    /// ```
    /// use tensor_core::Tensor;
    /// use train::metrics::{Average, ConfusionMatrix};
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let mut matrix = ConfusionMatrix::new(2);
    /// let predicted = Tensor::new([[[0i32, 1], [1, 1]]], &device)?; // pixels [N, H, W]
    /// let targets = Tensor::new([[[0i32, 0], [1, 1]]], &device)?;
    /// matrix.update(&predicted, &targets)?;
    /// assert_eq!(matrix.ious(), [1.0 / 2.0, 2.0 / 3.0]);
    /// assert_eq!(matrix.iou(Average::Micro), Some(3.0 / 5.0));
    /// # Ok(()) }
    /// ```
    pub fn iou(&self, average: Average) -> Option<f64> {
        let items = self.items();
        match average {
            Average::Micro if items > 0 => {
                let right: u64 = (0..self.classes).map(|class| self.of(class).right).sum();
                // Every mistake is a false positive of one class and a false negative of another.
                Some(right as f64 / (2 * items - right) as f64)
            }
            Average::Micro | Average::Macro | Average::Weighted => self.average(average, Class::iou),
        }
    }

    /// The intersection over union of each class.
    pub fn ious(&self) -> Vec<f64> {
        (0..self.classes).map(|class| self.of(class).iou()).collect()
    }

    /// Resets all counts.
    pub fn reset(&mut self) {
        self.counts.fill(0);
    }

    fn of(&self, class: usize) -> Class {
        let predicted = self.counts.iter().skip(class).step_by(self.classes).sum();
        Class { right: self.row(class)[class], predicted, items: self.row(class).iter().sum() }
    }

    fn average(&self, average: Average, score: fn(&Class) -> f64) -> Option<f64> {
        let items = self.items();
        if items == 0 {
            return None;
        }
        let occurring = (0..self.classes).map(|class| self.of(class)).filter(|c| c.predicted + c.items > 0);
        Some(match average {
            // There is one prediction per item, so all three equal the accuracy.
            Average::Micro => return self.accuracy(),
            Average::Macro => {
                let scores: Vec<f64> = occurring.map(|class| score(&class)).collect();
                scores.iter().sum::<f64>() / scores.len() as f64
            }
            Average::Weighted => {
                occurring.map(|class| score(&class) * class.items as f64).sum::<f64>() / items as f64
            }
        })
    }
}

/// The counts of one class.
struct Class {
    right: u64,
    predicted: u64,
    items: u64,
}

impl Class {
    fn precision(&self) -> f64 {
        share(self.right, self.predicted)
    }
    fn recall(&self) -> f64 {
        share(self.right, self.items)
    }
    fn f1(&self) -> f64 {
        share(2 * self.right, self.predicted + self.items)
    }
    fn iou(&self) -> f64 {
        share(self.right, self.predicted + self.items - self.right)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A table: rows are true classes, columns are predicted classes.
impl fmt::Display for ConfusionMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = self.counts.iter().chain([&(self.classes as u64)]).max().copied().unwrap_or(0);
        let width = widest.to_string().len() + 1;
        write!(f, "{:>width$}", "")?;
        (0..self.classes).try_for_each(|class| write!(f, "{class:>width$}"))?;
        for class in 0..self.classes {
            write!(f, "\n{class:>width$}")?;
            self.row(class).iter().try_for_each(|count| write!(f, "{count:>width$}"))?;
        }
        Ok(())
    }
}
