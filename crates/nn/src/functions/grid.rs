//! Sampling of images at the positions of a grid: spatial transformers.

use std::sync::Arc;

use autograd::{Function, apply, func::vjp, is_grad_enabled};
use tensor_core::{Argument, DType, Error, GridSample, Result, Shape, Tensor, autocast, caller_line, traced};
pub use tensor_core::{GridMode, GridPadding};

const OP: &str = "grid_sample";

/// Options of [`grid_sample`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GridSampleOptions {
    /// The interpolation between pixels.
    pub mode: GridMode,
    /// The values beyond the edges.
    pub padding: GridPadding,
    /// Whether −1 and 1 are the centers of the first and the last pixel; by default they are their outer
    /// edges.
    pub align_corners: bool,
}

/// The grid of an affine transform for [`grid_sample`]: for matrices `theta` `[N, D, D + 1]` and an output
/// size `[N, C, …]` with `D` = 2 or 3 spatial axes, the positions `theta · (x, y[, z], 1)` of all output
/// pixels, `[N, …, D]`, with x along the last axis of the image. `torch.nn.functional.affine_grid`.
///
/// With `align_corners` the centers of the outermost pixels are at ±1, otherwise their outer edges;
/// PyTorch's default is off.
///
/// # Errors
/// Another shape of matrices, a size that does not fit it, a dtype that is not floating-point.
#[track_caller]
pub fn affine_grid(theta: &Tensor, size: impl Into<Shape>, align_corners: bool) -> Result<Tensor> {
    affine_grid_by(theta, &size.into(), align_corners)
}

#[track_caller]
fn affine_grid_by(theta: &Tensor, size: &Shape, align_corners: bool) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "affine_grid";
    let fits = match (theta.dims(), size.dims()) {
        (&[n, rows, columns], [batch, _, pixels @ ..]) => {
            n == *batch && rows == pixels.len() && columns == rows + 1 && (2..=3).contains(&rows)
        }
        _ => false,
    };
    if !fits || !theta.dtype().is_float() {
        let message = format!(
            "matrices {} of {} for an output {size}: give floats [N, 2, 3] for [N, C, H, W], or [N, 3, 4] for [N, C, D, H, W]",
            theta.shape(),
            theta.dtype()
        );
        return Err(Error::invalid(OP, message));
    }
    let pixels = &size.dims()[2..];
    let device = theta.device();
    let options = || (theta.dtype(), &device);
    let mut places = Vec::with_capacity(pixels.len() + 1);
    // x is the last axis.
    for (axis, &n) in pixels.iter().enumerate().rev() {
        let edge = match (n, align_corners) {
            (0 | 1, _) => 0.0,
            (_, true) => 1.0,
            (n, false) => (n - 1) as f64 / n as f64,
        };
        let along: Vec<usize> = (0..pixels.len()).map(|a| if a == axis { n } else { 1 }).collect();
        let line =
            if n == 1 { Tensor::zeros(1, options())? } else { Tensor::linspace(-edge, edge, n, options())? };
        places.push(line.reshape(along)?.expand(pixels)?);
    }
    places.push(Tensor::ones(pixels, options())?);
    let all = Tensor::stack(&places, -1)?.reshape([pixels.iter().product(), places.len()])?;
    let shape: Vec<usize> = [size[0]].iter().chain(pixels).chain(&[pixels.len()]).copied().collect();
    all.matmul(&theta.transpose(1, 2)?)?.reshape(shape)
}

/// Samples the input `[N, C, …]` with two or three spatial axes at the positions of a grid `[N, …, D]`: `[N,
/// C, …]` with the grid's sizes. A position is (x, y) or (x, y, z), with x along the last axis of the input,
/// from −1 at its start to 1 at its end. Gradients flow to both, except to the grid with the nearest pixel.
/// `torch.nn.functional.grid_sample`.
///
/// Jaderberg, Simonyan, Zisserman, Kavukcuoglu: Spatial transformer networks (2015).
///
/// # Errors
/// Shapes that do not fit, two dtypes, one that is not floating-point, two devices, an input without pixels,
/// volumes for [`GridMode::Bicubic`].
///
/// ```
/// use nn::functional::{GridSampleOptions, affine_grid, grid_sample};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let image = Tensor::new([[[[1.0f32, 2.0], [3.0, 4.0]]]], &device)?;
/// let mirror = Tensor::new([[[-1.0f32, 0.0, 0.0], [0.0, 1.0, 0.0]]], &device)?;
/// let grid = affine_grid(&mirror, (1, 1, 2, 2), false)?;
/// let mirrored = grid_sample(&image, &grid, GridSampleOptions::default())?;
/// assert_eq!(mirrored.to_vec::<f32>()?, [2.0, 1.0, 4.0, 3.0]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn grid_sample(input: &Tensor, grid: &Tensor, options: GridSampleOptions) -> Result<Tensor> {
    let _line = caller_line();
    let cast = autocast::cast(OP, [input, grid], [])?;
    let ([input, grid], []) = cast.tensors();
    let bad = |why: &str| {
        Error::invalid(OP, format!("an input {} and a grid {}: {why}", input.shape(), grid.shape()))
    };
    let &[n, _, ref pixels @ ..] = input.dims() else { return Err(bad("the input is [N, C, H, W]")) };
    let d = pixels.len();
    let fits = (2..=3).contains(&d) && grid.rank() == d + 2 && grid.dims()[0] == n && grid.dims()[d + 1] == d;
    if !fits {
        return Err(bad("give [N, C, H, W] and [N, H', W', 2], or [N, C, D, H, W] and [N, D', H', W', 3]"));
    }
    if !input.dtype().is_float() || input.dtype() != grid.dtype() {
        let message =
            format!("an input of {} and a grid of {}: give floats of one dtype", input.dtype(), grid.dtype());
        return Err(Error::invalid(OP, message));
    }
    if options.mode == GridMode::Bicubic && d != 2 {
        return Err(bad("cubic convolution is for images [N, C, H, W]"));
    }
    let area = pixels.iter().fold(1usize, |area, &size| area.saturating_mul(size));
    if area == 0 || area > i32::MAX as usize {
        return Err(bad("an image has at least one pixel, and no more than i32 indices reach"));
    }
    // Half types are too coarse for positions.
    let compute = input.dtype().compute();
    let given = [input.to_dtype(compute)?, grid.to_dtype(compute)?];
    let sampled = Sampled { options, axes: d };
    let out = match sampled.by_kernel(&given)? {
        Some(found) => found,
        None => sampled.composed(input, &given[1])?,
    };
    let out = out.to_dtype(input.dtype())?;
    Ok(traced(OP, [Some(input), Some(grid)], out, || {
        let mode = match options.mode {
            GridMode::Bilinear => "linear",
            GridMode::Nearest => "nearest",
            GridMode::Bicubic => "cubic",
        };
        let padding = match options.padding {
            GridPadding::Zeros => "zeros",
            GridPadding::Border => "border",
            GridPadding::Reflection => "reflection",
        };
        vec![
            ("mode", Argument::Text(mode)),
            ("padding_mode", Argument::Text(padding)),
            ("align_corners", Argument::Int(i64::from(options.align_corners))),
        ]
    }))
}

/// The function that [`grid_sample`] computes.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    options: GridSampleOptions,
    axes: usize,
}

impl Sampled {
    fn kernel(self) -> Arc<GridSample> {
        let GridSampleOptions { mode, padding, align_corners } = self.options;
        Arc::new(GridSample { axes: self.axes, mode, padding, align_corners })
    }

    /// Whether the grid has a gradient: the nearest pixel does not change with small changes of the
    /// position.
    fn follows_grid(self) -> bool {
        self.options.mode != GridMode::Nearest
    }

    /// In one pass, if the device has a kernel.
    #[track_caller]
    fn by_kernel(self, given: &[Tensor; 2]) -> Result<Option<Tensor>> {
        let _line = caller_line();
        let detached = given.each_ref().map(Tensor::detach);
        if !Tensor::has_custom_kernel(self.kernel(), &detached.each_ref())? {
            return Ok(None);
        }
        let [input, grid] = given;
        if is_grad_enabled() && (input.is_tracked() || self.follows_grid() && grid.is_tracked()) {
            return apply(self, given).map(Some);
        }
        self.forward(&detached.each_ref()).map(Some)
    }

    /// The same composed of other operations. The grid has a dtype that is computed in.
    #[track_caller]
    fn composed(self, input: &Tensor, grid: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        let options = self.options;
        let (n, channels, pixels) = (input.dims()[0], input.dims()[1], &input.dims()[2..]);
        let (d, area) = (self.axes, pixels.iter().product::<usize>());
        let shape: Vec<usize> = [n, channels].iter().chain(&grid.dims()[1..=d]).copied().collect();
        let count: usize = grid.dims()[1..=d].iter().product();
        let grid = grid.reshape([n, count, d])?;
        let mut at = Vec::with_capacity(d);
        for (axis, &size) in pixels.iter().enumerate() {
            let x = in_pixels(&grid.select(2, d - 1 - axis)?, size, options)?;
            // Cubic interpolation applies the padding to each of its pixels.
            at.push(if options.mode == GridMode::Bicubic { x } else { within_edges(x, size, options)? });
        }
        let flat = input.reshape([n, channels, area])?;
        let read = |corner: &[Tensor]| -> Result<Tensor> {
            // The flat index of the pixel, and 0 where there is none.
            let mut index: Option<Tensor> = None;
            let mut inside: Option<Tensor> = None;
            for (x, &size) in corner.iter().zip(pixels) {
                let within = x.ge_scalar(0.0).bitwise_and(&x.le_scalar((size - 1) as f64))?;
                let whole = x.clamp(0.0, (size - 1) as f64).to_dtype(DType::I32)?;
                index = Some(match index {
                    Some(index) => index.mul_scalar(size as i64).add(&whole)?,
                    None => whole,
                });
                inside = Some(match inside {
                    Some(inside) => inside.bitwise_and(&within)?,
                    None => within,
                });
            }
            let (Some(index), Some(inside)) = (index, inside) else {
                return Err(Error::invalid(OP, "no axes"));
            };
            let all = [n, channels, count];
            let found = flat.gather(2, &index.unsqueeze(1)?.expand(all)?)?;
            inside.unsqueeze(1)?.where_cond(&found, &Tensor::full((), 0.0, (flat.dtype(), &flat.device()))?)
        };
        let out = match options.mode {
            GridMode::Nearest => {
                let nearest: Vec<Tensor> = at.iter().map(|x| x.detach().round()).collect();
                read(&nearest)?
            }
            GridMode::Bilinear => {
                let floors: Vec<Tensor> = at.iter().map(|x| x.detach().floor()).collect();
                let mut sum: Option<Tensor> = None;
                for corner in 0..1usize << d {
                    let mut weight: Option<Tensor> = None;
                    let mut pixel = Vec::with_capacity(d);
                    for (axis, (x, floor)) in at.iter().zip(&floors).enumerate() {
                        let upper = corner >> axis & 1 == 1;
                        let share = x.sub(floor)?;
                        let share = if upper { share } else { share.neg().add_scalar(1.0) };
                        pixel.push(if upper { floor.add_scalar(1.0) } else { floor.clone() });
                        weight = Some(match weight {
                            Some(weight) => weight.mul(&share)?,
                            None => share,
                        });
                    }
                    let Some(weight) = weight else { return Err(Error::invalid(OP, "no axes")) };
                    let part = read(&pixel)?.mul(&weight.unsqueeze(1)?)?;
                    sum = Some(match sum {
                        Some(sum) => sum.add(&part)?,
                        None => part,
                    });
                }
                let Some(sum) = sum else { return Err(Error::invalid(OP, "no axes")) };
                sum
            }
            GridMode::Bicubic => {
                // The pixels along each axis, and their weights.
                let mut taps: Vec<Vec<(Tensor, Tensor)>> = Vec::with_capacity(d);
                for (x, &size) in at.iter().zip(pixels) {
                    let floor = x.detach().floor();
                    let t = x.sub(&floor)?;
                    let of_axis = (0..4).map(|k| {
                        let pixel = floor.add_scalar(k as f64 - 1.0);
                        Ok((within_edges(pixel, size, options)?, cubic(&t, k)?))
                    });
                    taps.push(of_axis.collect::<Result<_>>()?);
                }
                let mut sum: Option<Tensor> = None;
                for (row, of_row) in &taps[0] {
                    for (column, of_column) in &taps[1] {
                        let weight = of_row.mul(of_column)?.unsqueeze(1)?;
                        let part = read(&[row.clone(), column.clone()])?.mul(&weight)?;
                        sum = Some(match sum {
                            Some(sum) => sum.add(&part)?,
                            None => part,
                        });
                    }
                }
                let Some(sum) = sum else { return Err(Error::invalid(OP, "no axes")) };
                sum
            }
        };
        out.reshape(shape)
    }
}

impl Function for Sampled {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "GridSample"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(Tensor::custom_kernel(self.kernel(), inputs)?.swap_remove(0))
    }

    /// The gradient of the composed form. Gradients that are not needed are not computed.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (_, found) = vjp(|x| self.composed(&x[0], &x[1]), inputs, gradient)?;
        let found = found.into_iter().zip([true, self.follows_grid()]);
        Ok(found.map(|(gradient, follows)| follows.then_some(gradient)).collect())
    }
}

/// The weight of tap `k` of four in cubic convolution, for a position at distance `t` after the second tap.
/// Keys (1981).
#[track_caller]
fn cubic(t: &Tensor, k: usize) -> Result<Tensor> {
    const A: f64 = -0.75;
    // The distance of the tap from the position.
    let x = match k {
        0 => t.add_scalar(1.0),
        1 => t.clone(),
        2 => t.neg().add_scalar(1.0),
        _ => t.neg().add_scalar(2.0),
    };
    match k {
        // ((a + 2)·x − (a + 3))·x² + 1 up to a distance of 1.
        1 | 2 => Ok(x.mul_scalar(A + 2.0).sub_scalar(A + 3.0).mul(&x)?.mul(&x)?.add_scalar(1.0)),
        // ((a·x − 5a)·x + 8a)·x − 4a up to 2.
        _ => {
            Ok(x.mul_scalar(A).sub_scalar(5.0 * A).mul(&x)?.add_scalar(8.0 * A).mul(&x)?.sub_scalar(4.0 * A))
        }
    }
}

/// Converts positions from −1 to 1 to pixels along an axis of `size` pixels, counted from the center of the
/// first.
#[track_caller]
fn in_pixels(x: &Tensor, size: usize, options: GridSampleOptions) -> Result<Tensor> {
    let n = size as f64;
    // A NaN is read as −1, as in PyTorch, and when reflecting, one whose position would overflow.
    // Positions far beyond the edges are clamped: they all give the same result.
    let x = match options.padding {
        GridPadding::Zeros | GridPadding::Border => {
            x.masked_fill(&x.isnan(), -1.0)?.clamp(-GridSample::FARTHEST, GridSample::FARTHEST)
        }
        GridPadding::Reflection => {
            let most = GridSample::greatest_reflected(size, x.dtype());
            x.masked_fill(&x.abs().le_scalar(most).logical_not(), -1.0)?
        }
    };
    Ok(match options.align_corners {
        true => x.add_scalar(1.0).mul_scalar((n - 1.0) / 2.0),
        false => x.add_scalar(1.0).mul_scalar(n / 2.0).sub_scalar(0.5),
    })
}

/// A position along an axis of `size` pixels after padding is applied.
#[track_caller]
fn within_edges(x: Tensor, size: usize, options: GridSampleOptions) -> Result<Tensor> {
    let n = size as f64;
    match options.padding {
        GridPadding::Zeros => Ok(x),
        GridPadding::Border => Ok(x.clamp(0.0, n - 1.0)),
        GridPadding::Reflection => {
            let (low, span) = if options.align_corners { (0.0, n - 1.0) } else { (-0.5, n) };
            if span == 0.0 {
                return Ok(x.mul_scalar(0.0));
            }
            let far = x.sub_scalar(low).abs();
            let turns = far.detach().div_scalar(span).floor();
            let near = far.sub(&turns.mul_scalar(span))?;
            // For distant positions the product is not exact.
            let rest = far.gt_scalar(GridSample::FARTHEST).where_cond(&far.remainder_scalar(span), &near)?;
            let back = turns.remainder_scalar(2.0).ne_scalar(0.0);
            let inside = back.where_cond(&rest.neg().add_scalar(span), &rest)?.add_scalar(low);
            Ok(inside.clamp(0.0, n - 1.0))
        }
    }
}
