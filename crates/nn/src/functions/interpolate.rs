//! Resizing of images: each element is a weighted sum of a few neighbours along each axis, one axis after
//! the other.

use tensor_core::{Argument, DType, Error, Result, Tensor, autocast, caller_line, traced};

use super::{adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d};

/// The interpolation mode of [`interpolate`]. The `mode` of `torch.nn.functional.interpolate`.
///
/// Output i of an axis is at the position `x = (i + ½)·r − ½` of the input, where r is the input's size over
/// the output's, or the reciprocal of the scale factor. With `align_corners` it is at `x = i·(in − 1)/(out −
/// 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum InterpolateMode {
    /// The element ⌊i·r⌋. The default. For any dtype, along one to three axes.
    #[default]
    Nearest,
    /// The element nearest to x: ⌊(i + ½)·r⌋. For any dtype, along one to three axes. `"nearest-exact"`.
    NearestExact,
    /// Linear interpolation between the two neighbours of x, for `[N, C, L]`.
    Linear,
    /// As [`InterpolateMode::Linear`] along both axes of `[N, C, H, W]`.
    Bilinear,
    /// As [`InterpolateMode::Linear`] along the three axes of `[N, C, D, H, W]`.
    Trilinear,
    /// Cubic convolution over four neighbours along both axes of `[N, C, H, W]`, with the constant a = −¾.
    /// Keys (1981).
    Bicubic,
    /// Means over bins: [`adaptive_avg_pool2d`](crate::functional::adaptive_avg_pool2d), along one to three
    /// axes.
    Area,
}

impl InterpolateMode {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            InterpolateMode::Nearest => "nearest",
            InterpolateMode::NearestExact => "nearest-exact",
            InterpolateMode::Linear => "linear",
            InterpolateMode::Bilinear => "bilinear",
            InterpolateMode::Trilinear => "trilinear",
            InterpolateMode::Bicubic => "bicubic",
            InterpolateMode::Area => "area",
        }
    }

    /// The numbers of spatial axes that an input may have.
    fn axes(self) -> std::ops::RangeInclusive<usize> {
        match self {
            InterpolateMode::Nearest | InterpolateMode::NearestExact | InterpolateMode::Area => 1..=3,
            InterpolateMode::Linear => 1..=1,
            InterpolateMode::Bilinear | InterpolateMode::Bicubic => 2..=2,
            InterpolateMode::Trilinear => 3..=3,
        }
    }

    /// Whether elements are weighted by the position of an output between them.
    fn weighs(self) -> bool {
        match self {
            InterpolateMode::Linear
            | InterpolateMode::Bilinear
            | InterpolateMode::Trilinear
            | InterpolateMode::Bicubic => true,
            InterpolateMode::Nearest | InterpolateMode::NearestExact | InterpolateMode::Area => false,
        }
    }
}

/// The requested size: the `size` or the `scale_factor` of `torch.nn.functional.interpolate`. One number is
/// for every axis.
///
/// Integers are sizes and fractions are factors: `7` and `[7, 9]`, `2.0` and `[1.5, 2.0]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Resize {
    /// The sizes of the axes after C.
    Size(Vec<usize>),
    /// The factors of the sizes of the axes after C; the products are rounded down.
    Scale(Vec<f64>),
}

impl From<usize> for Resize {
    fn from(size: usize) -> Resize {
        Resize::Size(vec![size])
    }
}

impl<const D: usize> From<[usize; D]> for Resize {
    fn from(size: [usize; D]) -> Resize {
        Resize::Size(size.to_vec())
    }
}

impl From<Vec<usize>> for Resize {
    fn from(size: Vec<usize>) -> Resize {
        Resize::Size(size)
    }
}

impl From<&[usize]> for Resize {
    fn from(size: &[usize]) -> Resize {
        Resize::Size(size.to_vec())
    }
}

impl From<f64> for Resize {
    fn from(factor: f64) -> Resize {
        Resize::Scale(vec![factor])
    }
}

impl<const D: usize> From<[f64; D]> for Resize {
    fn from(factors: [f64; D]) -> Resize {
        Resize::Scale(factors.to_vec())
    }
}

impl From<Vec<f64>> for Resize {
    fn from(factors: Vec<f64>) -> Resize {
        Resize::Scale(factors)
    }
}

/// Options of [`interpolate`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InterpolateOptions {
    /// The interpolation mode: the nearest element by default.
    pub mode: InterpolateMode,
    /// Whether the first and last elements of input and output are at the same positions, for modes that
    /// interpolate. Off by default.
    pub align_corners: bool,
    /// Whether positions are computed from the sizes instead of the given scale factor. Off by default.
    pub recompute_scale_factor: bool,
    /// Whether an axis that shrinks is smoothed, as in Pillow: each output is a mean over all elements in its
    /// range, weighted by the mode's kernel; the cubic one has the constant a = −½ here. For
    /// [`InterpolateMode::Bilinear`] and [`InterpolateMode::Bicubic`]. Off by default.
    pub antialias: bool,
}

/// Resizes the spatial axes of `[N, C, …]`, where each element of the result is the nearest one of the input.
/// `torch.nn.functional.interpolate`. [`interpolate_with`] has the other modes.
///
/// ```
/// use nn::functional::interpolate;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::new([[[0.0f32, 4.0]]], &backend_cpu::cpu())?;
/// assert_eq!(interpolate(&x, 2.0)?.to_vec::<f32>()?, [0.0, 0.0, 4.0, 4.0]); // a factor
/// assert_eq!(interpolate(&x, 3)?.to_vec::<f32>()?, [0.0, 0.0, 4.0]); // a size
/// # Ok(()) }
/// ```
///
/// # Errors
/// Neither one size or factor nor one for each axis after C, a size of 0 or a factor that gives one, or an
/// axis without elements.
#[track_caller]
pub fn interpolate(input: &Tensor, to: impl Into<Resize>) -> Result<Tensor> {
    interpolate_by("interpolate", input, &to.into(), InterpolateOptions::default())
}

/// [`interpolate`] in the mode and with the settings of `options`. `torch.nn.functional.interpolate`.
///
/// ```
/// use nn::functional::{InterpolateMode, InterpolateOptions, interpolate_with};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::new([[[0.0f32, 4.0]]], &backend_cpu::cpu())?;
/// let options = InterpolateOptions { mode: InterpolateMode::Linear, ..Default::default() };
/// assert_eq!(interpolate_with(&x, 2.0, options)?.to_vec::<f32>()?, [0.0, 1.0, 3.0, 4.0]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Neither one size or factor nor one for each axis after C, a number of axes that the mode does not
/// support, a size of 0 or a factor that gives one, an axis without elements, `align_corners` with a mode
/// that does not interpolate, `antialias` with a mode other than its two, `recompute_scale_factor` without a
/// factor, and, except for the nearest modes, a dtype that is not floating-point.
#[track_caller]
#[doc(alias = "interpolate")]
pub fn interpolate_with(
    input: &Tensor,
    to: impl Into<Resize>,
    options: InterpolateOptions,
) -> Result<Tensor> {
    interpolate_by("interpolate", input, &to.into(), options)
}

/// Resizes the axes after C of `[N, C, …]` to the given sizes; element i is the input's ⌊i·in/out⌋.
/// `mode="nearest"` of `torch.nn.functional.interpolate`. For integer multiples the result is an expanded
/// view.
///
/// # Errors
/// As [`interpolate`].
#[track_caller]
pub fn interpolate_nearest(input: &Tensor, size: &[usize]) -> Result<Tensor> {
    interpolate(input, size)
}

#[track_caller]
pub(crate) fn interpolate_by(
    op: &'static str,
    input: &Tensor,
    to: &Resize,
    options: InterpolateOptions,
) -> Result<Tensor> {
    let _line = caller_line();
    let InterpolateOptions { mode, align_corners, recompute_scale_factor, antialias } = options;
    let cast = autocast::cast("interpolate", [input], [])?;
    let ([input], []) = cast.tensors();
    let wrong = |message: String| Err(Error::invalid(op, message).here());
    let count = input.rank().saturating_sub(2);
    if !mode.axes().contains(&count) {
        return wrong(format!(
            "mode {:?} takes an input [N, C, …] with {:?} axes after C; shape {} has {} axes",
            mode.name(),
            mode.axes(),
            input.shape(),
            input.rank()
        ));
    }
    if align_corners && !mode.weighs() {
        return wrong(format!("mode {:?} has no align_corners: leave it off", mode.name()));
    }
    if antialias && !matches!(mode, InterpolateMode::Bilinear | InterpolateMode::Bicubic) {
        return wrong(format!("mode {:?} has no antialias: leave it off", mode.name()));
    }
    if mode.weighs() && !input.dtype().is_float() {
        return wrong(format!("an input of {}; cast it with .to_dtype(DType::F32)?", input.dtype()));
    }
    let given = match to {
        Resize::Size(size) => size.len(),
        Resize::Scale(factors) => factors.len(),
    };
    if given != 1 && given != count {
        return wrong(format!(
            "{given} sizes or factors for an input [N, C, …] of shape {}: give one, or one for each axis after C",
            input.shape()
        ));
    }
    let mut lines = Vec::with_capacity(count);
    for (axis, &n) in input.dims()[2..].iter().enumerate() {
        let at = if given == 1 { 0 } else { axis };
        let (wanted, scale) = match to {
            Resize::Size(_) if recompute_scale_factor => {
                return wrong("recompute_scale_factor is for a scale factor, not for a size".into());
            }
            Resize::Size(size) => (size[at], None),
            Resize::Scale(factors) => {
                let factor = factors[at];
                let wanted = (n as f64 * factor).floor();
                if !(wanted >= 1.0 && wanted < isize::MAX as f64) {
                    return wrong(format!(
                        "a scale factor of {factor} for the {n} elements of axis {} of {}",
                        axis + 2,
                        input.shape()
                    ));
                }
                // A factor that gives the size exactly is equivalent to the size.
                let exact = wanted == n as f64 * factor;
                (wanted as usize, (!exact && !recompute_scale_factor).then_some(factor))
            }
        };
        if wanted == 0 || n == 0 {
            return wrong(format!(
                "from {n} elements to {wanted} along axis {} of {}",
                axis + 2,
                input.shape()
            ));
        }
        lines.push(Line { n, wanted, scale, align_corners, antialias });
    }
    let out = resized(op, input, lines.clone(), mode)?;
    Ok(traced("interpolate", [Some(input)], out, || {
        let sizes: Vec<usize> = lines.iter().map(|line| line.wanted).collect();
        let mut arguments = vec![
            ("mode", Argument::Text(mode.name())),
            ("sizes", Argument::sizes(&sizes)),
            ("align_corners", Argument::Int(i64::from(align_corners))),
            ("antialias", Argument::Int(i64::from(antialias))),
        ];
        if let Resize::Scale(factors) = to {
            let factors: Vec<f64> = factors.iter().copied().cycle().take(count).collect();
            arguments.push(("scales", Argument::Floats(factors)));
        }
        arguments
    }))
}

/// The input with each axis after C resized.
#[track_caller]
fn resized(op: &'static str, input: &Tensor, mut lines: Vec<Line>, mode: InterpolateMode) -> Result<Tensor> {
    let wrong = |message: String| Err(Error::invalid(op, message).here());
    let count = lines.len();
    match mode {
        InterpolateMode::Area => match *lines.as_slice() {
            [a] => adaptive_avg_pool1d(input, a.wanted),
            [a, b] => adaptive_avg_pool2d(input, [a.wanted, b.wanted]),
            [a, b, c] => adaptive_avg_pool3d(input, [a.wanted, b.wanted, c.wanted]),
            _ => wrong(format!("shape {} has too many axes", input.shape())),
        },
        InterpolateMode::Nearest | InterpolateMode::NearestExact => {
            if count == 2 && mode == InterpolateMode::Nearest {
                // For images, PyTorch computes its own factor for a size that stays or doubles, unless the
                // mode is exact.
                for line in lines.iter_mut().filter(|line| line.wanted == line.n || line.wanted == 2 * line.n)
                {
                    line.scale = None;
                }
            }
            lines.iter().enumerate().try_fold(input.clone(), |x, (axis, line)| line.pick(&x, axis + 2, mode))
        }
        InterpolateMode::Linear
        | InterpolateMode::Bilinear
        | InterpolateMode::Trilinear
        | InterpolateMode::Bicubic => {
            // The axis that shrinks most comes first, so that the other axes have less work.
            let mut order: Vec<usize> = (0..lines.len()).collect();
            order.sort_by(|&a, &b| lines[a].growth().total_cmp(&lines[b].growth()));
            // Half types are interpolated in f32, and rounded once.
            let wide = input.to_dtype(input.dtype().compute())?;
            let out = order.into_iter().try_fold(wide, |x, axis| lines[axis].weigh(&x, axis + 2, mode))?;
            out.to_dtype(input.dtype())
        }
    }
}

/// An axis, and its requested size.
#[derive(Clone, Copy, Debug)]
struct Line {
    n: usize,
    wanted: usize,
    /// The scale factor, if positions follow from it and not from the sizes.
    scale: Option<f64>,
    align_corners: bool,
    antialias: bool,
}

/// The elements that an output is the weighted sum of, with their weights.
type Taps = Vec<(usize, f64)>;

impl Line {
    fn growth(&self) -> f64 {
        self.wanted as f64 / self.n as f64
    }

    /// The index of the element that output `i` takes.
    fn nearest(&self, i: usize, mode: InterpolateMode) -> usize {
        let exact = mode == InterpolateMode::NearestExact;
        let place = match self.scale {
            Some(scale) => ((i as f64 + if exact { 0.5 } else { 0.0 }) / scale).floor() as usize,
            None if exact => (2 * i + 1) * self.n / (2 * self.wanted),
            None => i * self.n / self.wanted,
        };
        place.min(self.n - 1)
    }

    /// Gathers a single element for each output.
    #[track_caller]
    fn pick(&self, x: &Tensor, axis: usize, mode: InterpolateMode) -> Result<Tensor> {
        if self.scale.is_none() && self.wanted == self.n {
            return Ok(x.clone());
        }
        if self.scale.is_none() && self.wanted.is_multiple_of(self.n) {
            let (mut wide, mut shape) = (x.dims().to_vec(), x.dims().to_vec());
            wide.insert(axis + 1, self.wanted / self.n);
            shape[axis] = self.wanted;
            return x.unsqueeze(axis + 1)?.expand(wide.as_slice())?.reshape(shape.as_slice());
        }
        let places: Vec<i32> = (0..self.wanted).map(|i| self.nearest(i, mode) as i32).collect();
        x.index_select(axis, &Tensor::new(places, (DType::I32, &x.device()))?)
    }

    /// The position of output `i` among the input's elements.
    fn place(&self, i: usize) -> f64 {
        if self.align_corners {
            let steps = self.wanted.saturating_sub(1).max(1) as f64;
            return if self.wanted > 1 { i as f64 * (self.n - 1) as f64 / steps } else { 0.0 };
        }
        let ratio = match self.scale {
            Some(scale) => 1.0 / scale,
            None => self.n as f64 / self.wanted as f64,
        };
        (i as f64 + 0.5) * ratio - 0.5
    }

    /// The elements of output `i`, the same number for all outputs, and their weights, from a kernel that is
    /// widened by the factor by which the axis shrinks.
    fn smoothed_taps(&self, i: usize, mode: InterpolateMode) -> Taps {
        let ratio = match (self.align_corners, self.scale) {
            (true, _) if self.wanted == 1 => 0.0,
            (true, _) => (self.n - 1) as f64 / (self.wanted - 1) as f64,
            (false, Some(scale)) => 1.0 / scale,
            (false, None) => self.n as f64 / self.wanted as f64,
        };
        let width = ratio.max(1.0);
        let cubic = mode == InterpolateMode::Bicubic;
        let support = if cubic { 2.0 * width } else { width };
        let kernel = |x: f64| {
            const A: f64 = -0.5;
            let x = x.abs();
            match cubic {
                false => (1.0 - x).max(0.0),
                true if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
                true if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
                true => 0.0,
            }
        };
        let center = ratio * (i as f64 + 0.5);
        // Truncated toward zero, as in PyTorch.
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(self.n);
        let weights: Vec<f64> = (first..end).map(|at| kernel((at as f64 - center + 0.5) / width)).collect();
        let sum: f64 = weights.iter().sum();
        let count = (2.0 * support).ceil() as usize + 2;
        let taps = (first..end).zip(weights.into_iter().map(|w| if sum == 0.0 { w } else { w / sum }));
        let spare = std::iter::repeat((first.min(self.n - 1), 0.0));
        taps.chain(spare).take(count.max(end.saturating_sub(first))).collect()
    }

    fn taps(&self, i: usize, mode: InterpolateMode) -> Taps {
        if self.antialias {
            return self.smoothed_taps(i, mode);
        }
        let last = (self.n - 1) as f64;
        let at = |place: f64| place.clamp(0.0, last) as usize;
        if mode == InterpolateMode::Bicubic {
            let place = self.place(i);
            let first = place.floor().min(last);
            let t = (place - first).clamp(0.0, 1.0);
            let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
            let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
            let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
            return (-1..3).zip(weights).map(|(k, weight)| (at(first + f64::from(k)), weight)).collect();
        }
        let place = self.place(i).max(0.0);
        let first = place.floor().min(last);
        let t = (place - first).clamp(0.0, 1.0);
        vec![(at(first), 1.0 - t), (at(first + 1.0), t)]
    }

    /// Computes each output as the weighted sum of its elements, gathered by index: values that are not
    /// finite affect only the outputs that use them.
    #[track_caller]
    fn weigh(&self, x: &Tensor, axis: usize, mode: InterpolateMode) -> Result<Tensor> {
        // A scale factor that keeps the size still shifts positions; PyTorch applies that to cubic weights
        // only.
        let moved = self.scale.is_some()
            && !self.align_corners
            && !self.antialias
            && mode == InterpolateMode::Bicubic;
        if self.wanted == self.n && !moved {
            return Ok(x.clone());
        }
        let taps: Vec<Taps> = (0..self.wanted).map(|i| self.taps(i, mode)).collect();
        let count = taps.first().map_or(1, Vec::len);
        let device = x.device();
        if count > SEPARATE_TAPS {
            // All taps side by side; a window near an edge has fewer.
            let places: Vec<i32> = taps.iter().flatten().map(|tap| tap.0 as i32).collect();
            let weights: Vec<f64> = taps.iter().flatten().map(|tap| tap.1).collect();
            let (mut laid, mut along) = (x.dims().to_vec(), vec![1; x.rank() + 1]);
            laid[axis] = self.wanted;
            laid.insert(axis + 1, count);
            (along[axis], along[axis + 1]) = (self.wanted, count);
            let weights = Tensor::new(weights, (x.dtype(), &device))?.reshape(along.as_slice())?;
            let found = x.index_select(axis, &Tensor::new(places, (DType::I32, &device))?)?;
            let parts = found.reshape(laid.as_slice())?.mul(&weights)?;
            return parts.masked_fill(&weights.eq_scalar(0.0), 0.0)?.sum_axis(axis + 1, false);
        }
        let mut shape = vec![1; x.rank()];
        shape[axis] = self.wanted;
        let mut sum: Option<Tensor> = None;
        for k in 0..count {
            let places: Vec<i32> = taps.iter().map(|taps| taps[k].0 as i32).collect();
            let weights: Vec<f64> = taps.iter().map(|taps| taps[k].1).collect();
            let weights = Tensor::new(weights, (x.dtype(), &device))?.reshape(shape.as_slice())?;
            let part = x.index_select(axis, &Tensor::new(places, (DType::I32, &device))?)?.mul(&weights)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        Ok(sum.unwrap_or_else(|| x.clone()))
    }
}

/// The number of elements of an output up to which each is gathered by a separate kernel.
const SEPARATE_TAPS: usize = 4;

/// The constant of cubic convolution.
const A: f64 = -0.75;
