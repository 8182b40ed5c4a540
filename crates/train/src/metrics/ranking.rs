//! Metrics of how well scores order items: [`Auroc`] and [`AveragePrecision`].

use tensor_core::{Error, Result, Tensor};

use super::{Average, check_rows, classes};

/// The scores and classes of all items so far, and how many classes there are.
#[derive(Clone, Debug, PartialEq)]
struct Scores {
    op: &'static str,
    /// 1 for binary scores, which are those of class 1.
    columns: usize,
    /// Row-major, `[items, columns]`.
    scores: Vec<f64>,
    targets: Vec<i64>,
}

impl Scores {
    fn new(op: &'static str, columns: usize) -> Scores {
        Scores { op, columns, scores: Vec::new(), targets: Vec::new() }
    }

    #[track_caller]
    fn update(&mut self, scores: &Tensor, targets: &Tensor) -> Result<()> {
        let (op, columns) = (self.op, self.columns);
        let count = columns.max(2) as i64;
        if columns == 1 {
            if scores.rank() != 1 || scores.dims() != targets.dims() {
                let message =
                    format!("scores {} with targets {}: give [N] both", scores.shape(), targets.shape());
                return Err(Error::invalid(op, message));
            }
        } else {
            check_rows(op, scores, targets)?;
            if scores.dims()[1] != columns {
                let message = format!("scores {} for {columns} classes", scores.shape());
                return Err(Error::invalid(op, message));
            }
        }
        let targets = classes(op, "targets", targets)?;
        if let Some(class) = targets.iter().find(|class| !(0..count).contains(class)) {
            return Err(Error::invalid(op, format!("class {class} of {count}: give 0 to {}", count - 1)));
        }
        let scores = scores.detach().to_f64_vec()?;
        if scores.iter().any(|score| score.is_nan()) {
            return Err(Error::invalid(op, "a score is NaN"));
        }
        self.scores.extend(scores);
        self.targets.extend(targets);
        Ok(())
    }

    /// The numbers of positives and of negatives at each score or above, from the highest score to the
    /// lowest, where column `column` has the scores of `class`.
    fn counts(&self, column: usize, class: i64) -> Vec<(u64, u64)> {
        let scores = self.scores.iter().skip(column).step_by(self.columns);
        let mut items: Vec<(f64, bool)> =
            scores.zip(&self.targets).map(|(score, target)| (*score, *target == class)).collect();
        items.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut counts, mut at) = (Vec::new(), (0, 0));
        for (k, (score, positive)) in items.iter().enumerate() {
            if *positive {
                at.0 += 1
            } else {
                at.1 += 1
            }
            // Items of equal scores count together. 0 and −0 are equal.
            if items.get(k + 1).is_none_or(|(next, _)| next != score) {
                counts.push(at);
            }
        }
        counts
    }

    /// The metric of each class by its counts; `None` where it is not defined.
    fn of_classes(&self, metric: fn(&[(u64, u64)]) -> Option<f64>) -> Vec<Option<f64>> {
        if self.columns == 1 {
            return vec![metric(&self.counts(0, 1))];
        }
        (0..self.columns).map(|class| metric(&self.counts(class, class as i64))).collect()
    }

    /// The mean of the classes for which the metric is defined.
    fn average(&self, average: Average, metric: fn(&[(u64, u64)]) -> Option<f64>) -> Option<f64> {
        let items =
            |class: usize| self.targets.iter().filter(|target| **target == class as i64).count() as f64;
        if self.columns > 1 && average == Average::Micro {
            // Every pair of an item and a class is an item.
            let pairs = Scores {
                columns: 1,
                targets: self
                    .targets
                    .iter()
                    .flat_map(|target| (0..self.columns as i64).map(move |class| i64::from(class == *target)))
                    .collect(),
                ..self.clone()
            };
            return metric(&pairs.counts(0, 1));
        }
        let (mut sum, mut total) = (0.0, 0.0);
        for (class, value) in self.of_classes(metric).into_iter().enumerate() {
            let Some(value) = value else { continue };
            let weight = if average == Average::Weighted && self.columns > 1 { items(class) } else { 1.0 };
            sum += weight * value;
            total += weight;
        }
        (total > 0.0).then(|| sum / total)
    }

    fn reset(&mut self) {
        self.scores.clear();
        self.targets.clear();
    }
}

/// The area under the polygon of false and true positive rates.
fn auroc(counts: &[(u64, u64)]) -> Option<f64> {
    let &(positives, negatives) = counts.last()?;
    if positives == 0 || negatives == 0 {
        return None;
    }
    let (mut area, mut last) = (0.0, (0, 0));
    for &at in counts {
        area += (at.1 - last.1) as f64 * (at.0 + last.0) as f64 / 2.0;
        last = at;
    }
    Some(area / positives as f64 / negatives as f64)
}

/// Σ (R_k − R_{k−1}) · P_k over the distinct scores.
fn average_precision(counts: &[(u64, u64)]) -> Option<f64> {
    let &(positives, _) = counts.last()?;
    if positives == 0 {
        return None;
    }
    let (mut sum, mut last) = (0.0, 0);
    for &(right, wrong) in counts {
        sum += (right - last) as f64 * right as f64 / (right + wrong) as f64;
        last = right;
    }
    Some(sum / positives as f64)
}

/// The two metrics have the same methods.
macro_rules! ranking {
    ($(#[$doc:meta])* $name:ident, $metric:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name(Scores);

        impl Default for $name {
            fn default() -> $name {
                $name::new()
            }
        }

        impl $name {
            /// For two classes: scores `[N]` of class 1.
            pub fn new() -> $name {
                $name(Scores::new(stringify!($name), 1))
            }

            /// For several classes: scores `[N, C]`, each class against all others.
            pub fn multiclass(classes: usize) -> $name {
                $name(Scores::new(stringify!($name), classes.max(2)))
            }

            /// Keeps a batch: scores `[N]` or `[N, C]`, logits or probabilities, and the true classes `[N]`.
            ///
            /// # Errors
            /// Shapes that do not fit, a class that is out of range, a score that is NaN, a value that cannot
            /// be computed. Nothing is kept then.
            #[track_caller]
            pub fn update(&mut self, scores: &Tensor, targets: &Tensor) -> Result<()> {
                self.0.update(scores, targets)
            }

            #[doc = concat!("The ", $what, ", for several classes the mean over those that have one; `None` if no class has one.")]
            pub fn value(&self, average: Average) -> Option<f64> {
                self.0.average(average, $metric)
            }

            #[doc = concat!("The ", $what, " of each class (with two classes, of class 1 alone).")]
            pub fn values(&self) -> Vec<Option<f64>> {
                self.0.of_classes($metric)
            }

            /// The number of items kept.
            pub fn items(&self) -> usize {
                self.0.targets.len()
            }

            /// Forgets all items.
            pub fn reset(&mut self) {
                self.0.reset();
            }
        }
    };
}

ranking! {
    /// The area under the ROC curve: the probability that a random item of the class has a higher score
    /// than a random other item, where equal scores count half. `torchmetrics.AUROC` with all thresholds,
    /// `sklearn.metrics.roc_auc_score`. It keeps all scores on the host.
    ///
    /// A class needs items in it and out of it; others are left out (torchmetrics counts them as 0).
    ///
    /// ```
    /// use tensor_core::Tensor;
    /// use train::metrics::{Auroc, Average};
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let mut auroc = Auroc::new();
    /// let scores = Tensor::new([0.1f32, 0.4, 0.35, 0.8], &device)?;
    /// auroc.update(&scores, &Tensor::new([0i32, 0, 1, 1], &device)?)?;
    /// assert_eq!(auroc.value(Average::Macro), Some(0.75));
    /// # Ok(()) }
    /// ```
    Auroc, auroc, "area under the ROC curve"
}

ranking! {
    /// The average precision: Σ (Rₖ − Rₖ₋₁) · Pₖ with the recall Rₖ and the precision Pₖ of the items that
    /// have the k-th highest score or more. `torchmetrics.AveragePrecision` with all thresholds,
    /// `sklearn.metrics.average_precision_score`. It keeps all scores on the host.
    ///
    /// A class without items is left out.
    ///
    /// ```
    /// use tensor_core::Tensor;
    /// use train::metrics::{Average, AveragePrecision};
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let mut precision = AveragePrecision::new();
    /// precision.update(&Tensor::new([0.9f32, 0.8, 0.7], &device)?, &Tensor::new([1i32, 0, 1], &device)?)?;
    /// assert_eq!(precision.value(Average::Macro), Some(0.5 * 1.0 + 0.5 * 2.0 / 3.0));
    /// # Ok(()) }
    /// ```
    AveragePrecision, average_precision, "average precision"
}
