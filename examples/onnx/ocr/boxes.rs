//! Boxes around text, from the map that the detector draws.

/// A rectangle of pixels, without its right and bottom edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Box {
    pub(crate) left: usize,
    pub(crate) top: usize,
    pub(crate) right: usize,
    pub(crate) bottom: usize,
}

impl Box {
    pub(crate) fn width(&self) -> usize {
        self.right - self.left
    }

    pub(crate) fn height(&self) -> usize {
        self.bottom - self.top
    }

    /// The box in a picture that is `x` times as wide and `y` times as high.
    pub(crate) fn scaled(&self, (x, y): (f64, f64), (width, height): (usize, usize)) -> Box {
        let by = |at: usize, factor: f64, most: usize| ((at as f64 * factor).round() as usize).min(most);
        Box {
            left: by(self.left, x, width),
            top: by(self.top, y, height),
            right: by(self.right, x, width),
            bottom: by(self.bottom, y, height),
        }
    }
}

/// A pixel above this is text.
const PIXEL_THRESHOLD: f32 = 0.3;
/// The least mean of the map within a box.
const BOX_THRESHOLD: f32 = 0.5;
/// The map marks the core of a line: a box grows on each side by this times its area over its circumference.
const GROWTH: f64 = 1.6;
/// Boxes with a shorter side are dropped, in pixels.
const SIDE_MIN: usize = 3;

/// The boxes around connected regions of a map `[height, width]`, from the top to the bottom and from the
/// left to the right. Thresholds and growth are those of the package; boxes are upright, where the package's
/// may be rotated.
pub(crate) fn boxes(map: &[f32], (height, width): (usize, usize)) -> Vec<Box> {
    let mut free: Vec<bool> = map.iter().map(|&p| p > PIXEL_THRESHOLD).collect();
    let mut found = Vec::new();
    for start in 0..map.len() {
        if !free[start] {
            continue;
        }
        let around = region(&mut free, start, (height, width));
        if around.width().min(around.height()) < SIDE_MIN {
            continue;
        }
        let rows =
            (around.top..around.bottom).map(|y| &map[y * width + around.left..y * width + around.right]);
        let mean = rows.flatten().sum::<f32>() / (around.width() * around.height()) as f32;
        if mean < BOX_THRESHOLD {
            continue;
        }
        let (w, h) = (around.width() as f64, around.height() as f64);
        let growth = (w * h * GROWTH / (2.0 * (w + h))).round() as usize;
        found.push(Box {
            left: around.left.saturating_sub(growth),
            top: around.top.saturating_sub(growth),
            right: (around.right + growth).min(width),
            bottom: (around.bottom + growth).min(height),
        });
    }
    in_reading_order(&mut found);
    found
}

/// The box around the connected free pixels at `start`, which are then taken. Diagonal neighbours connect.
fn region(free: &mut [bool], start: usize, (height, width): (usize, usize)) -> Box {
    let mut waiting = vec![start];
    free[start] = false;
    let (x, y) = (start % width, start / width);
    let mut around = Box { left: x, top: y, right: x + 1, bottom: y + 1 };
    while let Some(at) = waiting.pop() {
        let (x, y) = (at % width, at / width);
        around.left = around.left.min(x);
        around.right = around.right.max(x + 1);
        around.top = around.top.min(y);
        around.bottom = around.bottom.max(y + 1);
        for near_y in y.saturating_sub(1)..(y + 2).min(height) {
            for near_x in x.saturating_sub(1)..(x + 2).min(width) {
                let near = near_y * width + near_x;
                if free[near] {
                    free[near] = false;
                    waiting.push(near);
                }
            }
        }
    }
    around
}

/// Sorts boxes into lines, and each line from the left to the right. A box is on the line of the one before
/// if their middles differ by less than half a height.
fn in_reading_order(boxes: &mut [Box]) {
    boxes.sort_by_key(|b| (b.top + b.bottom, b.left));
    let same_line = |a: &Box, b: &Box| {
        let middles = (a.top + a.bottom).abs_diff(b.top + b.bottom);
        middles < a.height().min(b.height())
    };
    boxes.chunk_by_mut(same_line).for_each(|line| line.sort_by_key(|b| b.left));
}
