//! `Resize` and `Upsample`: axis by axis, each element is a weighted sum of a few neighbours. The weights
//! are computed on the host from the sizes only.

use tensor_core::{DType, Result, Tensor};

use super::{Row, one, sizes};
use crate::{context::Context, value::Value};

pub(crate) const TABLE: &[Row] = &[("", "Resize", 10, resize), ("", "Upsample", 7, resize)];

/// Up to this many neighbours are read one by one; more are a product with a matrix.
const MAX_TAPS: usize = 4;
/// The same where the matrix would be too large.
const MAX_TAPS_OF_LONG_AXES: usize = 64;

/// How an output's place is found in the input. Places are f32, as ONNX Runtime has them: their last bits
/// decide which pixel is the nearest.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Places<'a> {
    mode: &'a str,
    scale: f32,
    input: usize,
    output: usize,
    /// The output's length, which is no whole number if a scale gives it.
    length: f32,
    /// The part of the input that is cut out, from 0 to 1.
    region: (f32, f32),
}

impl Places<'_> {
    fn of(&self, c: &Context<'_>, at: usize) -> Result<f64> {
        let (x, size, last) = (at as f32, self.input as f32, self.input as f32 - 1.0);
        let (length, (start, end)) = (self.length, self.region);
        let centre = (x + 0.5) / self.scale;
        Ok(f64::from(match self.mode {
            "asymmetric" => x / self.scale,
            "align_corners" if length == 1.0 => 0.0,
            "align_corners" => x * last / (length - 1.0),
            "tf_crop_and_resize" if length == 1.0 => 0.5 * (start + end) * last,
            "tf_crop_and_resize" => start * last + x * (end - start) * last / (length - 1.0),
            "pytorch_half_pixel" if self.output == 1 => 0.0,
            "half_pixel" | "pytorch_half_pixel" => centre - 0.5,
            "half_pixel_symmetric" => size / 2.0 * (1.0 - self.output as f32 / length) + centre - 0.5,
            "tf_half_pixel_for_nn" => centre,
            other => return Err(c.error(format!("coordinate_transformation_mode \"{other}\" is not known"))),
        }))
    }
}

/// The neighbours of one output: the place of the first, and the weights from there on.
type Taps = (i64, Vec<f64>);

fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    match x {
        ..=1.0 => (a + 2.0) * x * x * x - (a + 3.0) * x * x + 1.0,
        ..2.0 => a * x * x * x - 5.0 * a * x * x + 8.0 * a * x - 4.0 * a,
        _ => 0.0,
    }
}

/// How weights are found.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Weights<'a> {
    mode: &'a str,
    nearest: &'a str,
    a: f64,
    antialias: bool,
    scale: f64,
}

impl Weights<'_> {
    /// The neighbours of a place of the input.
    fn taps(&self, c: &Context<'_>, place: f64) -> Result<Taps> {
        // A whole place is the right one of its two neighbours.
        let ratio = if place.fract() == 0.0 { 1.0 } else { place - place.floor() };
        let left = (place - ratio).round() as i64;
        let scale = if self.antialias { self.scale.min(1.0) } else { 1.0 };
        let spread = |reach: f64, f: &dyn Fn(f64) -> f64| -> Taps {
            let first = (-reach / scale).floor() as i64 + 1;
            let last = 1 - first;
            let mut weights: Vec<f64> = (first..=last).map(|at| f(scale * (at as f64 - ratio))).collect();
            if self.antialias {
                let sum: f64 = weights.iter().sum();
                weights.iter_mut().for_each(|weight| *weight /= sum);
            }
            (left + first, weights)
        };
        Ok(match self.mode {
            "nearest" => {
                let right = match self.nearest {
                    _ if ratio == 1.0 => true,
                    "round_prefer_floor" => ratio > 0.5,
                    "round_prefer_ceil" => ratio >= 0.5,
                    "floor" => false,
                    "ceil" => true,
                    // Version 10 takes the right pixel where the axis shrinks, and the left one elsewhere.
                    "simple" => self.scale < 1.0,
                    other => return Err(c.error(format!("nearest_mode \"{other}\" is not known"))),
                };
                (left + i64::from(right), vec![1.0])
            }
            "linear" | "bilinear" => spread(1.0, &|x| (1.0 - x.abs()).max(0.0)),
            "cubic" => spread(2.0, &|x| cubic(x, self.a)),
            other => return Err(c.error(format!("mode \"{other}\"; nearest, linear and cubic are known"))),
        })
    }
}

fn resize(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let upsample = c.op_type() == "Upsample";
    // Version 10 and `Upsample` have no regions and no sizes.
    let (at_scales, at_sizes) = if upsample || c.version() < 11 { (1, usize::MAX) } else { (2, 3) };
    let scales = match c.numbers("scales")? {
        Some(scales) => Some(scales),
        None => c.floats(at_scales)?.filter(|scales| !scales.is_empty()),
    };
    let wanted = c.integers(at_sizes)?.filter(|sizes| !sizes.is_empty());
    let axes = match c.ints("axes")? {
        Some(axes) => axes.iter().map(|&axis| c.axis(axis, x.rank())).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    let given = scales.as_ref().map(Vec::len).or(wanted.as_ref().map(Vec::len));
    if given != Some(axes.len()) || scales.is_some() && wanted.is_some() {
        return Err(
            c.error(format!("{given:?} scales or sizes for {} axes; give the one or the other", axes.len()))
        );
    }
    let by_scales = scales.is_some();
    let old = |axis: usize| x.dims()[axis] as f32;
    let (scales, outputs): (Vec<f32>, Vec<usize>) = match (scales, wanted) {
        (Some(scales), _) => {
            // The product is rounded to f32: 10 · 0.7 is 7.
            let scales: Vec<f32> = scales.into_iter().map(|scale| scale as f32).collect();
            let outputs = axes.iter().zip(&scales).map(|(&axis, scale)| (old(axis) * scale) as usize);
            let outputs = outputs.collect();
            (scales, outputs)
        }
        (None, wanted) => {
            let wanted = sizes(c, &wanted.unwrap_or_default())?;
            let each: Vec<f32> =
                axes.iter().zip(&wanted).map(|(&axis, &size)| size as f32 / old(axis)).collect();
            let one = match c.text_or("keep_aspect_ratio_policy", "stretch")? {
                "stretch" => None,
                "not_larger" => each.iter().copied().reduce(f32::min),
                "not_smaller" => each.iter().copied().reduce(f32::max),
                other => return Err(c.error(format!("keep_aspect_ratio_policy \"{other}\" is not known"))),
            };
            match one {
                None => (each, wanted),
                Some(scale) => {
                    let round = |&axis: &usize| (scale * old(axis)).round() as usize;
                    (vec![scale; axes.len()], axes.iter().map(round).collect())
                }
            }
        }
    };
    // Version 10 and `Upsample` count from the first pixel.
    let default = if at_scales == 1 { "asymmetric" } else { "half_pixel" };
    let coordinates = c.text_or("coordinate_transformation_mode", default)?;
    let crop = coordinates == "tf_crop_and_resize";
    let regions = if crop { c.floats(1)?.unwrap_or_default() } else { Vec::new() };
    let region = |k: usize| (regions[k] as f32, regions[k + axes.len()] as f32);
    if crop && regions.len() != 2 * axes.len() {
        return Err(c.error(format!("{} numbers of a region of {} axes", regions.len(), axes.len())));
    }
    let nearest = c.text_or("nearest_mode", if at_scales == 1 { "simple" } else { "round_prefer_floor" })?;
    let mode = c.text_or("mode", "nearest")?;
    let extrapolated = c.number_or("extrapolation_value", 0.0)?;
    let exclude = c.flag("exclude_outside", false)?;
    let antialias = c.flag("antialias", false)?;
    // Weighted sums are computed in floats; a single rounding is at the end.
    let (is_float, is_sum) = (x.dtype().is_float(), mode != "nearest");
    let wide = if is_float { x.dtype().compute() } else { DType::F32 };
    let mut y = if is_sum { x.to_dtype(wide)? } else { x.clone() };
    let mut outside: Option<Tensor> = None;
    for (k, (&axis, (&scale, &output))) in axes.iter().zip(scales.iter().zip(&outputs)).enumerate() {
        let input = x.dims()[axis];
        if !crop && scale == 1.0 && input == output {
            continue;
        }
        if input == 0 || !scale.is_finite() || scale <= 0.0 || output > i32::MAX as usize {
            return Err(c.error(format!("a scale of {scale} for an axis of {input}")));
        }
        let region = if crop { region(k) } else { (0.0, 1.0) };
        let length = if by_scales { scale * input as f32 } else { output as f32 };
        let places = Places { mode: coordinates, scale, input, output, length, region };
        let weights = Weights {
            mode,
            nearest,
            a: c.number_or("cubic_coeff_a", -0.75)?,
            antialias,
            scale: f64::from(scale),
        };
        c.table_len(&[input.max(output)])?;
        let places = (0..output).map(|at| places.of(c, at)).collect::<Result<Vec<f64>>>()?;
        let taps = places.iter().map(|&place| weights.taps(c, place)).collect::<Result<Vec<_>>>()?;
        y = along_axis(c, &y, axis, taps, exclude)?;
        if crop {
            let beyond: Vec<bool> = places.iter().map(|&p| p < 0.0 || p > input as f64 - 1.0).collect();
            let mut shape = vec![1; x.rank()];
            shape[axis] = output;
            let beyond = Tensor::from_vec(beyond, shape, c.device())?;
            outside = Some(match outside {
                Some(outside) => outside.logical_or(&beyond)?,
                None => beyond,
            });
        }
    }
    if let Some(outside) = outside {
        y = y.masked_fill(&outside.expand(y.shape())?, extrapolated)?;
    }
    if !is_float && is_sum {
        // As ONNX Runtime has it: whole parts, but the nearest numbers after a filter.
        let (low, high) = (x.dtype().least().as_f64(), x.dtype().greatest().as_f64());
        y = if antialias { y.round() } else { y.trunc() }.clamp(low, high);
    }
    one(y.to_dtype(x.dtype())?)
}

/// Sums of neighbours along an axis; beyond its ends the outermost elements count, or nothing if `exclude`.
fn along_axis(c: &Context<'_>, x: &Tensor, axis: usize, taps: Vec<Taps>, exclude: bool) -> Result<Tensor> {
    let input = x.dims()[axis];
    let count = taps.iter().map(|(_, weights)| weights.len()).max().unwrap_or(1);
    let output = taps.len();
    let clamp = |place: i64| place.clamp(0, input as i64 - 1);
    let weighed = |(first, weights): &Taps| -> Vec<f64> {
        if !exclude {
            return weights.clone();
        }
        let inside = |(k, weight): (usize, &f64)| {
            if (0..input as i64).contains(&(first + k as i64)) { *weight } else { 0.0 }
        };
        let kept: Vec<f64> = weights.iter().enumerate().map(inside).collect();
        let sum: f64 = kept.iter().sum();
        kept.into_iter().map(|weight| weight / sum).collect()
    };
    let index = |list: Vec<i64>| Tensor::from_vec(list, [output], c.device())?.to_dtype(c.index_dtype());
    if count == 1 {
        return x.index_select(axis, &index(taps.iter().map(|(first, _)| clamp(*first)).collect())?);
    }
    let all: Vec<Vec<f64>> = taps.iter().map(weighed).collect();
    let floats =
        |list: Vec<f32>, shape: Vec<usize>| Tensor::from_vec(list, shape, c.device())?.to_dtype(x.dtype());
    let matrix_len = c.table_len(&[input, output]);
    if count <= MAX_TAPS || matrix_len.is_err() && count <= MAX_TAPS_OF_LONG_AXES {
        let mut shape = vec![1; x.rank()];
        shape[axis] = output;
        let mut sum: Option<Tensor> = None;
        for k in 0..count {
            let places = index(taps.iter().map(|(first, _)| clamp(first + k as i64)).collect())?;
            let weights = all.iter().map(|weights| weights.get(k).copied().unwrap_or(0.0) as f32).collect();
            let part = x.index_select(axis, &places)?.mul(&floats(weights, shape.clone())?)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        return sum.ok_or_else(|| c.error("there are no neighbours"));
    }
    let mut matrix = vec![0f32; matrix_len?];
    for (at, ((first, _), weights)) in taps.iter().zip(&all).enumerate() {
        for (k, weight) in weights.iter().enumerate() {
            matrix[clamp(first + k as i64) as usize * output + at] += *weight as f32;
        }
    }
    let matrix = floats(matrix, vec![input, output])?;
    x.transpose(axis, -1)?.matmul(&matrix)?.transpose(axis, -1)
}
