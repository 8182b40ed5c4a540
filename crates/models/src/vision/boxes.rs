//! Boxes of objects: overlap, and the suppression of all but the best of boxes that overlap.

use tensor_core::{Error, Result};

/// A box by its left, top, right and bottom.
pub type Corners = [f32; 4];

/// An object that a detector finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// The box in pixels: left, top, right, bottom.
    pub corners: Corners,
    /// The number of the class.
    pub class: usize,
    /// The probability of the class.
    pub score: f32,
}

/// The area of the intersection of two boxes over that of their union; 0 if both are empty.
/// `torchvision.ops.box_iou`, for one pair.
pub fn box_iou(a: Corners, b: Corners) -> f32 {
    let area = |[left, top, right, bottom]: Corners| (right - left) * (bottom - top);
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let common = width * height;
    let union = area(a) + area(b) - common;
    if union > 0.0 { common / union } else { 0.0 }
}

/// The positions of the boxes that remain when each box removes those with smaller scores that it overlaps
/// by more than `iou_threshold`, from the largest score to the smallest. `torchvision.ops.nms`.
///
/// ```
/// use models::vision::nms;
/// let boxes = [[0.0, 0.0, 10.0, 10.0], [1.0, 0.0, 11.0, 10.0], [20.0, 0.0, 30.0, 10.0]];
/// assert_eq!(nms(&boxes, &[0.5, 0.9, 0.7], 0.5)?, [1, 2]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
///
/// # Errors
/// As many scores as boxes are needed.
#[track_caller]
pub fn nms(boxes: &[Corners], scores: &[f32], iou_threshold: f32) -> Result<Vec<usize>> {
    if boxes.len() != scores.len() {
        let message = format!("{} boxes and {} scores: give as many", boxes.len(), scores.len());
        return Err(Error::invalid("nms", message));
    }
    let mut order: Vec<usize> = (0..boxes.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let mut kept: Vec<usize> = Vec::new();
    for candidate in order {
        if kept.iter().all(|best| box_iou(boxes[*best], boxes[candidate]) <= iou_threshold) {
            kept.push(candidate);
        }
    }
    Ok(kept)
}

/// As [`nms`], where only boxes of the same class remove each other. `torchvision.ops.batched_nms`.
///
/// # Errors
/// As many scores and classes as boxes are needed.
#[track_caller]
pub fn batched_nms(
    boxes: &[Corners],
    scores: &[f32],
    classes: &[usize],
    iou_threshold: f32,
) -> Result<Vec<usize>> {
    if boxes.len() != scores.len() || boxes.len() != classes.len() {
        let (boxes, scores, classes) = (boxes.len(), scores.len(), classes.len());
        let message = format!("{boxes} boxes, {scores} scores and {classes} classes: give as many");
        return Err(Error::invalid("batched_nms", message));
    }
    let mut order: Vec<usize> = (0..boxes.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let mut kept: Vec<usize> = Vec::new();
    for candidate in order {
        let removes = |best: &usize| {
            classes[*best] == classes[candidate] && box_iou(boxes[*best], boxes[candidate]) > iou_threshold
        };
        if !kept.iter().any(removes) {
            kept.push(candidate);
        }
    }
    Ok(kept)
}
