//! [`MeanAveragePrecision`] of boxes, as COCO defines it.

use std::collections::{BTreeMap, BTreeSet};

use tensor_core::{Error, Result};

/// A box that a detector found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedBox {
    /// Left, top, right and bottom, in pixels.
    pub corners: [f32; 4],
    /// The number of the class.
    pub class: usize,
    /// The confidence, larger for boxes that are more certain.
    pub score: f32,
}

/// A box that there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrueBox {
    /// Left, top, right and bottom, in pixels.
    pub corners: [f32; 4],
    /// The number of the class.
    pub class: usize,
    /// Whether it holds a crowd of objects: boxes in it count neither as right nor as wrong. COCO's
    /// `iscrowd`.
    pub is_crowd: bool,
}

/// The scores of a [`MeanAveragePrecision`], from 0 to 1, under the names of torchmetrics. `None` where no
/// true box is of that size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetectionScores {
    /// The mean average precision over classes and IoU thresholds 0.5, 0.55 … 0.95.
    pub map: Option<f64>,
    /// At an IoU of 0.5.
    pub map_50: Option<f64>,
    /// At an IoU of 0.75.
    pub map_75: Option<f64>,
    /// The mean for boxes of at most 32² pixels.
    pub map_small: Option<f64>,
    /// The mean for boxes from 32² to 96² pixels.
    pub map_medium: Option<f64>,
    /// The mean for boxes from 96² pixels on.
    pub map_large: Option<f64>,
    /// The mean recall with the best box of each picture and class.
    pub mar_1: Option<f64>,
    /// With the ten best boxes.
    pub mar_10: Option<f64>,
    /// With the hundred best boxes.
    pub mar_100: Option<f64>,
    /// The recall of boxes of at most 32² pixels.
    pub mar_small: Option<f64>,
    /// The recall of boxes from 32² to 96² pixels.
    pub mar_medium: Option<f64>,
    /// The recall of boxes from 96² pixels on.
    pub mar_large: Option<f64>,
    /// `map` of each class.
    pub map_per_class: BTreeMap<usize, Option<f64>>,
}

/// How well boxes are found: the mean over classes and thresholds of the area under the curve of precision by
/// recall, as COCO's evaluation defines it. `torchmetrics.detection.MeanAveragePrecision`,
/// `pycocotools.cocoeval.COCOeval`.
///
/// In each picture and class, the hundred best boxes are matched with true ones, from the best score on,
/// each with the free true box of the largest IoU at or above the threshold. Precision is taken at 101
/// recalls, as the greatest precision at this recall or more.
///
/// ```
/// use train::metrics::{MeanAveragePrecision, PredictedBox, TrueBox};
/// # fn main() -> tensor_core::Result<()> {
/// let mut map = MeanAveragePrecision::new();
/// let found = [PredictedBox { corners: [258.0, 41.0, 606.0, 285.0], class: 0, score: 0.536 }];
/// let there = [TrueBox { corners: [214.0, 41.0, 562.0, 285.0], class: 0, is_crowd: false }];
/// map.update(&found, &there)?; // for each picture
/// let scores = map.value();
/// let near = |score: Option<f64>, wanted: f64| (score.unwrap_or(0.0) - wanted).abs() < 1e-12;
/// assert!(near(scores.map_50, 1.0) && near(scores.map_75, 1.0) && near(scores.map, 0.6));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeanAveragePrecision {
    pictures: Vec<(Vec<PredictedBox>, Vec<TrueBox>)>,
}

/// The number of boxes of a picture and class that count.
const MOST_BOXES: usize = 100;
/// The number of thresholds of the IoU, 0.5 to 0.95.
const THRESHOLDS: usize = 10;

fn threshold(k: usize) -> f64 {
    0.5 + k as f64 * ((0.95 - 0.5) / 9.0)
}

/// The areas of boxes that count, in pixels.
#[derive(Clone, Copy)]
struct Areas(f64, f64);

impl Areas {
    const ALL: Areas = Areas(0.0, 1e10);
    const SMALL: Areas = Areas(0.0, 1024.0);
    const MEDIUM: Areas = Areas(1024.0, 9216.0);
    const LARGE: Areas = Areas(9216.0, 1e10);

    fn has(self, area: f64) -> bool {
        (self.0..=self.1).contains(&area)
    }
}

fn sides([left, top, right, bottom]: [f32; 4]) -> (f64, f64) {
    (f64::from(right - left), f64::from(bottom - top))
}

fn area(corners: [f32; 4]) -> f64 {
    let (width, height) = sides(corners);
    width * height
}

/// The IoU of a found box and a true one; with a crowd, the part of the found box that is in it.
fn overlap(found: [f32; 4], truth: &TrueBox) -> f64 {
    let edges = |corners: [f32; 4]| {
        let ((width, height), [left, top, ..]) = (sides(corners), corners.map(f64::from));
        [left, top, left + width, top + height]
    };
    let (a, b) = (edges(found), edges(truth.corners));
    let width = a[2].min(b[2]) - a[0].max(b[0]);
    let height = a[3].min(b[3]) - a[1].max(b[1]);
    if width <= 0.0 || height <= 0.0 {
        return 0.0;
    }
    let common = width * height;
    let own = area(found);
    common / if truth.is_crowd { own } else { own + area(truth.corners) - common }
}

/// The boxes of one class in one picture, matched.
struct Matched {
    /// The scores of found boxes, from the best on.
    scores: Vec<f32>,
    /// For each threshold and found box whether it is right, or `None` if it does not count.
    right: Vec<Vec<Option<bool>>>,
    /// The number of true boxes that count.
    expected: usize,
}

impl Matched {
    fn new(found: &[&PredictedBox], truths: &[&TrueBox], areas: Areas) -> Matched {
        let mut found = found.to_vec();
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.truncate(MOST_BOXES);
        // True boxes that do not count come last, so that the others are preferred.
        let is_left_out = |truth: &TrueBox| truth.is_crowd || !areas.has(area(truth.corners));
        let mut truths = truths.to_vec();
        truths.sort_by_key(|truth| is_left_out(truth));
        let left_out: Vec<bool> = truths.iter().map(|truth| is_left_out(truth)).collect();
        let overlaps: Vec<Vec<f64>> = found
            .iter()
            .map(|found| truths.iter().map(|truth| overlap(found.corners, truth)).collect())
            .collect();
        let right = (0..THRESHOLDS).map(|k| {
            let mut taken = vec![false; truths.len()];
            let mut row = Vec::with_capacity(found.len());
            for (found, overlaps) in found.iter().zip(&overlaps) {
                let (mut best, mut most) = (None, threshold(k).min(1.0 - 1e-10));
                for (at, overlap) in overlaps.iter().enumerate() {
                    if taken[at] && !truths[at].is_crowd {
                        continue;
                    }
                    // A match that counts is not given up for one that does not.
                    if best.is_some_and(|best: usize| !left_out[best]) && left_out[at] {
                        break;
                    }
                    if *overlap >= most {
                        (best, most) = (Some(at), *overlap);
                    }
                }
                row.push(match best {
                    Some(best) => {
                        taken[best] = true;
                        (!left_out[best]).then_some(true)
                    }
                    None => areas.has(area(found.corners)).then_some(false),
                });
            }
            row
        });
        Matched {
            scores: found.iter().map(|found| found.score).collect(),
            right: right.collect(),
            expected: left_out.iter().filter(|left_out| !**left_out).count(),
        }
    }
}

/// The average precision and the recall of one class at each threshold, with the `most` best boxes of each
/// picture; `None` if no true box counts.
fn curves(pictures: &[Matched], most: usize) -> Option<[(f64, f64); THRESHOLDS]> {
    let expected: usize = pictures.iter().map(|picture| picture.expected).sum();
    if expected == 0 {
        return None;
    }
    let mut order: Vec<(f32, usize, usize)> = Vec::new();
    for (picture, matched) in pictures.iter().enumerate() {
        order.extend(matched.scores.iter().take(most).enumerate().map(|(k, score)| (*score, picture, k)));
    }
    order.sort_by(|a, b| b.0.total_cmp(&a.0)); // stable: equal scores stay in the order of pictures
    let mut curves = [(0.0, 0.0); THRESHOLDS];
    for (k, curve) in curves.iter_mut().enumerate() {
        let (mut right, mut wrong) = (0, 0);
        let mut points: Vec<(f64, f64)> = Vec::new();
        for &(_, picture, at) in &order {
            match pictures[picture].right[k][at] {
                Some(true) => right += 1,
                Some(false) => wrong += 1,
                None => {}
            }
            let all = f64::from(right + wrong) + f64::EPSILON;
            points.push((f64::from(right) / expected as f64, f64::from(right) / all));
        }
        let recall = points.last().map_or(0.0, |(recall, _)| *recall);
        let mut best = 0.0f64;
        for (_, precision) in points.iter_mut().rev() {
            best = best.max(*precision);
            *precision = best;
        }
        let at_recall = |k: usize| {
            let first = points.partition_point(|(recall, _)| *recall < k as f64 * 0.01);
            points.get(first).map_or(0.0, |(_, precision)| *precision)
        };
        *curve = ((0..=100).map(at_recall).sum::<f64>() / 101.0, recall);
    }
    Some(curves)
}

impl MeanAveragePrecision {
    /// A precision of no pictures.
    pub fn new() -> MeanAveragePrecision {
        MeanAveragePrecision::default()
    }

    /// Keeps the boxes of a picture: those that a detector found, and those that there are.
    ///
    /// # Errors
    /// Corners that are not finite or not in order, or a score that is NaN. Nothing is kept then.
    #[track_caller]
    pub fn update(&mut self, found: &[PredictedBox], truths: &[TrueBox]) -> Result<()> {
        const OP: &str = "MeanAveragePrecision";
        let corners = found.iter().map(|found| found.corners).chain(truths.iter().map(|truth| truth.corners));
        for corners in corners {
            let [left, top, right, bottom] = corners;
            if corners.iter().any(|side| !side.is_finite()) || right < left || bottom < top {
                let message = format!("the box {corners:?}: give left, top, right and bottom in pixels");
                return Err(Error::invalid(OP, message));
            }
        }
        if found.iter().any(|found| found.score.is_nan()) {
            return Err(Error::invalid(OP, "a score is NaN"));
        }
        self.pictures.push((found.to_vec(), truths.to_vec()));
        Ok(())
    }

    /// The scores of all pictures.
    pub fn value(&self) -> DetectionScores {
        let found = self.pictures.iter().flat_map(|(found, _)| found.iter().map(|found| found.class));
        let there = self.pictures.iter().flat_map(|(_, truths)| truths.iter().map(|truth| truth.class));
        let classes: BTreeSet<usize> = found.chain(there).collect();
        let matched = |areas: Areas| -> Vec<Vec<Matched>> {
            let of_class = |class: usize| {
                let of_picture = |(found, truths): &(Vec<PredictedBox>, Vec<TrueBox>)| {
                    let found: Vec<_> = found.iter().filter(|found| found.class == class).collect();
                    let truths: Vec<_> = truths.iter().filter(|truth| truth.class == class).collect();
                    Matched::new(&found, &truths, areas)
                };
                self.pictures.iter().map(of_picture).collect()
            };
            classes.iter().map(|class| of_class(*class)).collect()
        };
        let all = matched(Areas::ALL);
        let curves_of = |classes: &[Vec<Matched>], most: usize| -> Vec<_> {
            classes.iter().map(|pictures| curves(pictures, most)).collect()
        };
        let whole = curves_of(&all, MOST_BOXES);
        let [small, medium, large] =
            [Areas::SMALL, Areas::MEDIUM, Areas::LARGE].map(|areas| curves_of(&matched(areas), MOST_BOXES));
        let at = |k: usize| mean(whole.iter().flatten().map(|curves| curves[k].0));
        DetectionScores {
            map: precision(&whole),
            map_50: at(0),
            map_75: at(5),
            map_small: precision(&small),
            map_medium: precision(&medium),
            map_large: precision(&large),
            mar_1: recall(&curves_of(&all, 1)),
            mar_10: recall(&curves_of(&all, 10)),
            mar_100: recall(&whole),
            mar_small: recall(&small),
            mar_medium: recall(&medium),
            mar_large: recall(&large),
            map_per_class: classes
                .iter()
                .copied()
                .zip(whole.iter().map(|class| precision(&[*class])))
                .collect(),
        }
    }

    /// The number of pictures.
    pub fn pictures(&self) -> usize {
        self.pictures.len()
    }

    /// Forgets all pictures.
    pub fn reset(&mut self) {
        self.pictures.clear();
    }
}

/// Average precision and recall by threshold, of a class that has true boxes.
type ClassCurves = Option<[(f64, f64); THRESHOLDS]>;

fn precision(classes: &[ClassCurves]) -> Option<f64> {
    mean(classes.iter().flatten().flat_map(|curves| curves.map(|(precision, _)| precision)))
}

fn recall(classes: &[ClassCurves]) -> Option<f64> {
    mean(classes.iter().flatten().flat_map(|curves| curves.map(|(_, recall)| recall)))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    values.for_each(|value| (sum, count) = (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
