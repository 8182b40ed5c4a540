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
    let (boxes, scores) = (c.host_data(0)?, c.host_data(1)?);
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

/// Pixels along one axis, with their weights.
type Line = Vec<(usize, f32)>;

/// The neighbours of a sample along an axis of `size` pixels: the first one, and the share of the next one.
/// `None` beyond the image.
fn neighbours(place: f64, size: usize) -> Option<(usize, f64)> {
    if place < -1.0 || place > size as f64 || place.is_nan() {
        return None;
    }
    let place = place.max(0.0);
    let low = place as usize;
    Some(if low + 1 >= size { (size - 1, 0.0) } else { (low, place - low as f64) })
}

/// The samples of a cell along an axis, evenly placed; those more than a pixel beyond the image read nothing.
struct Samples {
    start: f64,
    length: f64,
    count: usize,
}

impl Samples {
    fn places(&self) -> impl Iterator<Item = f64> {
        (0..self.count).map(|k| self.start + (k as f64 + 0.5) * self.length / self.count as f64)
    }

    /// The pixels that the mean of the samples reads. Samples that share a pixel are one term, so that there
    /// are at most as many terms as pixels.
    fn mean(&self, size: usize) -> Line {
        let found: Vec<(usize, f64)> = self.places().filter_map(|place| neighbours(place, size)).collect();
        let (Some(&(a, _)), Some(&(b, _))) = (found.first(), found.last()) else { return Line::default() };
        // A box may be turned round; then its last sample is the first one.
        let (first, last) = (a.min(b), (a.max(b) + 1).min(size - 1));
        let mut weights = vec![0.0; last + 1 - first];
        for (low, share) in found {
            weights[low - first] += 1.0 - share;
            if share > 0.0 {
                weights[low + 1 - first] += share;
            }
        }
        let count = self.count as f64;
        (first..).zip(weights.into_iter().map(|weight| (weight / count) as f32)).collect()
    }

    /// The two pixels of each sample. A weight of 0 counts in a maximum, as ONNX Runtime has it.
    fn each(&self, size: usize) -> Vec<Line> {
        let line = |place| match neighbours(place, size) {
            Some((low, share)) => {
                vec![(low, (1.0 - share) as f32), ((low + 1).min(size - 1), share as f32)]
            }
            None => vec![(0, 0.0)],
        };
        self.places().map(line).collect()
    }
}

/// The greatest number of samples of a cell along an axis.
const MAX_SAMPLES: usize = 1 << 12;

/// Regions of an image at one size, each cell a mean or a maximum of samples between pixels. How many
/// samples there are depends on the regions, which are read on the host.
fn roi_align(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let (regions, images) = (c.host_data(1)?, c.integers(2)?.unwrap_or_default());
    let half =
        c.version() >= 16 && c.text_or("coordinate_transformation_mode", "half_pixel")? == "half_pixel";
    let maximum = match c.text_or("mode", "avg")? {
        "avg" => false,
        "max" => true,
        other => return Err(c.error(format!("mode \"{other}\"; avg and max are known"))),
    };
    let out = |name: &str| -> Result<usize> {
        let size = usize::try_from(c.int_or(name, 1)?).ok().filter(|&size| size > 0 && size <= MAX_SAMPLES);
        size.ok_or_else(|| c.error(format!("{name} is not above 0, or too large")))
    };
    let (rows, columns) = (out("output_height")?, out("output_width")?);
    let ratio = usize::try_from(c.int_or("sampling_ratio", 0)?.max(0)).unwrap_or(usize::MAX);
    if ratio > MAX_SAMPLES {
        return Err(c.error(format!("sampling_ratio {ratio}; {MAX_SAMPLES} are allowed")));
    }
    let scale = c.number_or("spatial_scale", 1.0)?;
    let (&[n, channels, height, width], &[count, 4]) = (x.dims(), regions.dims()) else {
        return Err(c.error("an image is [N, C, H, W] and regions are [R, 4]"));
    };
    let regions = regions.to_f64s()?;
    if images.len() != count || images.iter().any(|&image| image < 0 || image >= n as i64) {
        return Err(c.error(format!("regions of the images {images:?} of {n}")));
    }
    if height == 0 || width == 0 {
        return Err(c.error(format!("an image {} without pixels", x.shape())));
    }
    let offset = if half { 0.5 } else { 0.0 };
    // For each cell of each region, groups of pixels: of a mean one, of a maximum one for each sample.
    let cells = c.table_len(&[count, rows, columns])?;
    let mut terms: Vec<Vec<(usize, f32)>> = Vec::with_capacity(cells);
    let mut total = 0;
    for (region, &image) in regions.chunks_exact(4).zip(&images) {
        let [left, top, right, bottom] = [0, 1, 2, 3].map(|k| region[k] * scale - offset);
        let least = if half { f64::NEG_INFINITY } else { 1.0 };
        let steps = |start: f64, end: f64, cells: usize| {
            let length = (end - start).max(least) / cells as f64;
            let steps = (length.ceil().max(0.0) as usize).min(MAX_SAMPLES);
            (length, if ratio > 0 { ratio } else { steps })
        };
        if maximum {
            let (y, x) = (steps(top, bottom, rows).1, steps(left, right, columns).1);
            c.table_len(&[4, rows * y, columns * x])?;
        }
        let lines = |start: f64, end: f64, cells: usize, size: usize| -> Vec<Vec<Line>> {
            let (length, count) = steps(start, end, cells);
            let samples = |cell| Samples { start: start + cell as f64 * length, length, count };
            let lines =
                |samples: Samples| if maximum { samples.each(size) } else { vec![samples.mean(size)] };
            (0..cells).map(|cell| lines(samples(cell))).collect()
        };
        let (vertical, horizontal) = (lines(top, bottom, rows, height), lines(left, right, columns, width));
        let terms_of = |lines: &[Vec<Line>]| -> usize { lines.iter().flatten().map(Vec::len).sum() };
        total = c.table_len(&[total + terms_of(&vertical).saturating_mul(terms_of(&horizontal))])?;
        let image = image as usize * height * width;
        for y in &vertical {
            for x in &horizontal {
                let mut own = Vec::new();
                for (y, x) in y.iter().flat_map(|y| x.iter().map(move |x| (y, x))) {
                    for (row, of_row) in y {
                        let first = image + row * width;
                        own.extend(x.iter().map(|(at, weight)| (first + at, of_row * weight)));
                    }
                }
                terms.push(own);
            }
        }
    }
    let most = terms.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut places = Vec::with_capacity(c.table_len(&[terms.len(), most])?);
    let mut weights = Vec::with_capacity(places.capacity());
    for own in &terms {
        // A mean has nothing of a term that is not there; a maximum has the first one again.
        let filler = own.first().copied().filter(|_| maximum).unwrap_or((0, 0.0));
        let filled = own.iter().copied().chain(std::iter::repeat(filler)).take(most);
        for (place, weight) in filled {
            places.push(place as i64);
            weights.push(weight);
        }
    }
    let index = Tensor::from_vec(places, [cells * most], c.device())?.to_dtype(c.index_dtype())?;
    let weights = Tensor::from_vec(weights, [cells, most, 1], c.device())?.to_dtype(x.dtype())?;
    let pixels = x.permute([0, 2, 3, 1])?.reshape([n * height * width, channels])?;
    let read = pixels.index_select(0, &index)?.reshape([cells, most, channels])?.mul(&weights)?;
    let cells = if maximum { read.amax(1, false)? } else { read.sum_axis(1, false)? };
    one(cells.reshape([count, rows, columns, channels])?.permute([0, 3, 1, 2])?)
}
