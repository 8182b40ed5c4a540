//! Drawn strokes as images like those of the data set. NIST's forms gave bitmaps of 32x32: each digit was
//! scaled to a box 32 high and about 20 wide, and its strokes were made thicker or thinner to the same amount
//! of ink. The data set counts the black pixels of blocks of 4x4.

/// The side of a bitmap.
const SIDE: usize = 32;
/// The side of a block of pixels that becomes one pixel of the image.
const BLOCK: usize = 4;
/// The pixels of an image's side.
const PIXELS: usize = SIDE / BLOCK;
/// The size of the box that a digit fills, pen included: width and height.
const BOX: [f32; 2] = [20.0, 32.0];
/// The greatest ratio of horizontal to vertical scaling, so that a vertical stroke stays one.
const MAX_STRETCH: f32 = 2.0;
/// The mean share of black pixels of the data set, with a deviation of 0.01 between the digits.
const INK: f32 = 0.305;
/// The greatest radius of the pen, in pixels.
const MAX_PEN: f32 = 6.0;

/// The image `[8, 8]` of strokes, from 0 to 1. `points` has x and y of each point in turn, with y downwards,
/// in any unit; a pair of NaN ends a stroke. None if there are no points.
pub fn drawn_image(points: &[f32]) -> Option<Vec<f32>> {
    let points: Vec<[f32; 2]> = points.as_chunks::<2>().0.to_vec();
    let known = || points.iter().filter(|point| point.iter().all(|x| x.is_finite()));
    known().next()?;
    let range = |axis: usize| {
        known().fold([f32::MAX, f32::MIN], |[least, most], p| [least.min(p[axis]), most.max(p[axis])])
    };
    let ranges = [range(0), range(1)];
    // The ink grows with the radius.
    let (mut thin, mut thick) = (0.5, MAX_PEN);
    for _ in 0..12 {
        let radius = (thin + thick) / 2.0;
        let black = bitmap(&points, ranges, radius).iter().filter(|&&is| is).count();
        match black as f32 > INK * (SIDE * SIDE) as f32 {
            true => thick = radius,
            false => thin = radius,
        }
    }
    let bitmap = bitmap(&points, ranges, thin);
    let count = |pixel: usize| {
        let (top, left) = (pixel / PIXELS * BLOCK, pixel % PIXELS * BLOCK);
        let row = |y: usize| bitmap[y * SIDE + left..][..BLOCK].iter().filter(|&&is| is).count();
        (top..top + BLOCK).map(row).sum::<usize>()
    };
    Some((0..PIXELS * PIXELS).map(|pixel| count(pixel) as f32 / (BLOCK * BLOCK) as f32).collect())
}

/// The strokes in the middle of a bitmap, scaled to the box, with a round pen.
fn bitmap(points: &[[f32; 2]], ranges: [[f32; 2]; 2], radius: f32) -> Vec<bool> {
    let scale = |axis: usize| {
        let [least, most] = ranges[axis];
        (BOX[axis] - 2.0 * radius) / (most - least).max(f32::MIN_POSITIVE)
    };
    let (across, down) = (scale(0), scale(1));
    // A line without a height, or without a width, keeps its form.
    let scales = [across.min(MAX_STRETCH * down), down.min(MAX_STRETCH * across)];
    let placed = |point: [f32; 2]| {
        [0, 1].map(|axis| {
            let middle = (ranges[axis][0] + ranges[axis][1]) / 2.0;
            (point[axis] - middle) * scales[axis] + SIDE as f32 / 2.0
        })
    };
    let mut black = vec![false; SIDE * SIDE];
    let mut before: Option<[f32; 2]> = None;
    for &point in points {
        if point.iter().any(|x| !x.is_finite()) {
            before = None;
            continue;
        }
        let to = placed(point);
        let from = before.replace(to).unwrap_or(to);
        for (k, pixel) in black.iter_mut().enumerate() {
            let centre = [(k % SIDE) as f32 + 0.5, (k / SIDE) as f32 + 0.5];
            *pixel |= square_distance(centre, from, to) <= radius * radius;
        }
    }
    black
}

/// The square of the distance of a point from a line between two points.
fn square_distance(point: [f32; 2], from: [f32; 2], to: [f32; 2]) -> f32 {
    let less = |a: [f32; 2], b: [f32; 2]| [a[0] - b[0], a[1] - b[1]];
    let dot = |a: [f32; 2], b: [f32; 2]| a[0] * b[0] + a[1] * b[1];
    let (along, offset) = (less(to, from), less(point, from));
    let length = dot(along, along);
    let at = if length > 0.0 { (dot(offset, along) / length).clamp(0.0, 1.0) } else { 0.0 };
    let rest = less(offset, [at * along[0], at * along[1]]);
    dot(rest, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of ink, and the rows and columns with ink.
    fn described(points: &[f32]) -> (f32, Vec<usize>, Vec<usize>) {
        let image = drawn_image(points).unwrap();
        let used = |index: fn(usize, usize) -> usize| {
            (0..8).filter(|&a| (0..8).any(|b| image[index(a, b)] > 0.0)).collect()
        };
        (image.iter().sum::<f32>() / 64.0, used(|a, b| 8 * a + b), used(|a, b| 8 * b + a))
    }

    #[test]
    fn a_drawing_fills_the_box_with_the_ink_of_the_data_set_wherever_it_is() {
        let ring: Vec<f32> =
            (0..=40).flat_map(|k| [(k as f32 / 40.0 * 6.3).sin(), (k as f32 / 40.0 * 6.3).cos()]).collect();
        let moved: Vec<f32> = ring.iter().map(|x| 300.0 + 17.0 * x).collect();
        let (ink, rows, columns) = described(&moved);
        assert!((ink - INK).abs() < 0.02, "{ink}");
        assert_eq!((rows.len(), columns), (8, vec![1, 2, 3, 4, 5, 6]));
        // The hole is in the middle.
        let image = drawn_image(&moved).unwrap();
        assert!(image[3 * 8 + 3] < 0.2 && image[3 * 8 + 1] + image[3 * 8 + 2] > 1.0, "{image:?}");
        let near =
            drawn_image(&ring).unwrap().iter().zip(&image).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(near <= 2.0 / 16.0, "{near}");
    }

    #[test]
    fn a_vertical_line_stays_one_and_a_point_is_a_disc() {
        let (_, rows, columns) = described(&[5.0, 0.0, 5.1, 100.0]);
        assert_eq!((rows.len(), columns), (8, vec![2, 3, 4, 5]));
        assert!(drawn_image(&[1.0, 1.0]).unwrap().iter().all(|x| x.is_finite()));
        assert_eq!(drawn_image(&[]), None);
        assert_eq!(drawn_image(&[f32::NAN, f32::NAN]), None);
    }
}
