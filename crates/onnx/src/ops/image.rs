//! Images: reading at places, regions of interest, choosing boxes.

use nn::functional::{GridMode, GridPadding, GridSampleOptions, affine_grid, grid_sample};
use tensor_core::{Result, Tensor};

use super::{Row, one, sizes};
use crate::{
    context::Context,
    value::{HostData, HostTensor, Value},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "AffineGrid", 20, |c| {
        let size = sizes(c, &c.integers(1)?.ok_or_else(|| c.error("the size is missing"))?)?;
        one(affine_grid(&c.tensor(0)?, size, c.flag("align_corners", false)?)?)
    }),
    ("", "GridSample", 16, sample),
    ("", "NonMaxSuppression", 10, non_max_suppression),
    ("", "RoiAlign", 10, roi_align),
];

fn sample(c: &Context<'_>) -> Result<Vec<Value>> {
    let mode = match c.text_or("mode", "linear")? {
        "linear" | "bilinear" => GridMode::Bilinear,
        "nearest" => GridMode::Nearest,
        "cubic" | "bicubic" => GridMode::Bicubic,
        other => return Err(c.error(format!("mode \"{other}\"; linear, nearest and cubic are known"))),
    };
    let padding = match c.text_or("padding_mode", "zeros")? {
        "zeros" => GridPadding::Zeros,
        "border" => GridPadding::Border,
        "reflection" => GridPadding::Reflection,
        other => return Err(c.error(format!("padding_mode \"{other}\" is not known"))),
    };
    let options = GridSampleOptions { mode, padding, align_corners: c.flag("align_corners", false)? };
    one(grid_sample(&c.tensor(0)?, &c.tensor(1)?, options)?)
}

/// A box by its corners, in order.
fn corners(numbers: &[f64], centred: bool) -> [f64; 4] {
    let (a, b, c, d) = (numbers[0], numbers[1], numbers[2], numbers[3]);
    if centred {
        // Centre and size, x first.
        [b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0]
    } else {
        [a.min(c), b.min(d), a.max(c), b.max(d)]
    }
}

/// The common area of two boxes by that of both together.
fn overlap(a: [f64; 4], b: [f64; 4]) -> f64 {
    let area = |[top, left, bottom, right]: [f64; 4]| (bottom - top) * (right - left);
    let height = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let width = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let common = height * width;
    let all = area(a) + area(b) - common;
    if all > 0.0 { common / all } else { 0.0 }
}

/// For each class of each image the boxes with the best scores, but none that overlaps a better one too
/// much. Which ones are left is known only to the host.
fn non_max_suppression(c: &Context<'_>) -> Result<Vec<Value>> {
    let (boxes, scores) = (c.host(0)?, c.host(1)?);
    let most = c.integer(2)?.unwrap_or(0).max(0) as usize;
    let (limit, least) = (c.float(3)?.unwrap_or(0.0), c.float(4)?);
    let centred = c.int_or("center_point_box", 0)? == 1;
    let (&[batch, count, 4], &[batches, classes, scored]) = (boxes.dims(), scores.dims()) else {
        return Err(c.error("boxes are [N, B, 4] and scores [N, C, B]"));
    };
    if batch != batches || count != scored {
        return Err(c.error(format!("boxes {:?} and scores {:?}", boxes.dims(), scores.dims())));
    }
    let (boxes, scores) = (boxes.to_f64s()?, scores.to_f64s()?);
    let mut chosen = Vec::new();
    for image in 0..batch {
        let own: Vec<[f64; 4]> =
            (0..count).map(|at| corners(&boxes[(image * count + at) * 4..][..4], centred)).collect();
        for class in 0..classes {
            let score = |at: usize| scores[(image * classes + class) * count + at];
            let mut order: Vec<usize> =
                (0..count).filter(|&at| least.is_none_or(|least| score(at) > least)).collect();
            order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
            let mut kept: Vec<usize> = Vec::new();
            for at in order {
                if kept.len() >= most {
                    break;
                }
                if kept.iter().all(|&better| overlap(own[better], own[at]) <= limit) {
                    kept.push(at);
                }
            }
            for at in kept {
                chosen.extend([image as i64, class as i64, at as i64]);
            }
        }
    }
    let rows = chosen.len() / 3;
    let i64s = HostTensor::integers(Vec::new()).data_type();
    Ok(vec![HostTensor::new(i64s, vec![rows, 3], HostData::Int(chosen))?.into()])
}

/// A sample between four pixels: their numbers and weights.
type Sample = ([i64; 4], [f32; 4]);

/// The four pixels around a place of an image.
fn between(y: f64, x: f64, height: usize, width: usize) -> Sample {
    if y < -1.0 || y > height as f64 || x < -1.0 || x > width as f64 {
        return ([0; 4], [0.0; 4]);
    }
    let line = |place: f64, size: usize| {
        let place = place.max(0.0);
        let low = place as usize;
        if low + 1 >= size { (size - 1, size - 1, 0.0) } else { (low, low + 1, place - low as f64) }
    };
    let ((y0, y1, fy), (x0, x1, fx)) = (line(y, height), line(x, width));
    let number = |y: usize, x: usize| (y * width + x) as i64;
    let weights = [(1.0 - fy) * (1.0 - fx), (1.0 - fy) * fx, fy * (1.0 - fx), fy * fx];
    ([number(y0, x0), number(y0, x1), number(y1, x0), number(y1, x1)], weights.map(|w| w as f32))
}

/// Regions of an image at one size, each cell a mean or a maximum of samples between pixels. How many
/// samples there are depends on the regions, which are read on the host.
fn roi_align(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let (regions, images) = (c.host(1)?, c.integers(2)?.unwrap_or_default());
    let half =
        c.version() >= 16 && c.text_or("coordinate_transformation_mode", "half_pixel")? == "half_pixel";
    let maximum = match c.text_or("mode", "avg")? {
        "avg" => false,
        "max" => true,
        other => return Err(c.error(format!("mode \"{other}\"; avg and max are known"))),
    };
    let out = |name: &str| -> Result<usize> {
        let size = usize::try_from(c.int_or(name, 1)?).ok().filter(|&size| size > 0 && size <= 1 << 12);
        size.ok_or_else(|| c.error(format!("{name} is not above 0, or too large")))
    };
    let (rows, columns) = (out("output_height")?, out("output_width")?);
    let ratio = c.int_or("sampling_ratio", 0)?.max(0) as usize;
    let scale = c.number_or("spatial_scale", 1.0)?;
    let (&[n, channels, height, width], &[count, 4]) = (x.dims(), regions.dims()) else {
        return Err(c.error("an image is [N, C, H, W] and regions are [R, 4]"));
    };
    let regions = regions.to_f64s()?;
    if images.len() != count || images.iter().any(|&image| image < 0 || image >= n as i64) {
        return Err(c.error(format!("regions of the images {images:?} of {n}")));
    }
    let offset = if half { 0.5 } else { 0.0 };
    // The samples of each cell of each region.
    let mut cells: Vec<Vec<Sample>> = Vec::with_capacity(c.table_len(&[count, rows, columns])?);
    for (region, &image) in regions.chunks_exact(4).zip(&images) {
        let [left, top, right, bottom] = [0, 1, 2, 3].map(|k| region[k] * scale - offset);
        let least = if half { f64::NEG_INFINITY } else { 1.0 };
        let (w, h) = ((right - left).max(least), (bottom - top).max(least));
        let (cell_h, cell_w) = (h / rows as f64, w / columns as f64);
        let steps = |cell: f64| if ratio > 0 { ratio } else { (cell.ceil().max(0.0) as usize).min(1 << 12) };
        let (steps_y, steps_x) = (steps(cell_h), steps(cell_w));
        let first = image * (height * width) as i64;
        for row in 0..rows {
            for column in 0..columns {
                let mut samples = Vec::with_capacity(c.table_len(&[steps_y, steps_x])?);
                for iy in 0..steps_y {
                    let y = top + row as f64 * cell_h + (iy as f64 + 0.5) * cell_h / steps_y as f64;
                    for ix in 0..steps_x {
                        let x = left + column as f64 * cell_w + (ix as f64 + 0.5) * cell_w / steps_x as f64;
                        let (places, weights) = between(y, x, height, width);
                        samples.push((places.map(|place| place + first), weights));
                    }
                }
                cells.push(samples);
            }
        }
    }
    let most = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
    if cells.len().saturating_mul(most) > 1 << 26 {
        return Err(c.error("the regions have too many samples; set sampling_ratio"));
    }
    let (mut places, mut weights) = (Vec::new(), Vec::new());
    for samples in &cells {
        for at in 0..most {
            // A mean has nothing of a sample that is not there; a maximum has the first one again.
            let (own, factor) = match samples.get(at) {
                Some(sample) => (*sample, if maximum { 1.0 } else { 1.0 / samples.len() as f32 }),
                None if maximum => (samples.first().copied().unwrap_or(([0; 4], [0.0; 4])), 1.0),
                None => (([0; 4], [0.0; 4]), 0.0),
            };
            places.extend(own.0);
            weights.extend(own.1.map(|weight| weight * factor));
        }
    }
    let total = places.len();
    let index = Tensor::from_vec(places, [total], c.device())?.to_dtype(c.index_dtype())?;
    let weights = Tensor::from_vec(weights, [cells.len(), most * 4, 1], c.device())?.to_dtype(x.dtype())?;
    let pixels = x.permute([0, 2, 3, 1])?.reshape([n * height * width, channels])?;
    let read = pixels.index_select(0, &index)?.reshape([cells.len(), most * 4, channels])?.mul(&weights)?;
    let cells = if maximum { read.amax(1, false)? } else { read.sum_axis(1, false)? };
    one(cells.reshape([count, rows, columns, channels])?.permute([0, 3, 1, 2])?)
}
