//! Metrics of pictures against their originals: [`Psnr`] and [`Ssim`].

use nn::functional::{ConvOptions, PadMode, conv2d, pad};
use tensor_core::{DType, Error, Result, Tensor};

use super::Mean;

#[track_caller]
fn check(op: &'static str, pictures: &Tensor, targets: &Tensor) -> Result<()> {
    if pictures.shape() != targets.shape() || !pictures.dtype().is_float() || !targets.dtype().is_float() {
        let message = format!(
            "pictures {} {} with targets {} {}: give floats of one shape",
            pictures.dtype(),
            pictures.shape(),
            targets.dtype(),
            targets.shape()
        );
        return Err(Error::invalid(op, message));
    }
    Ok(())
}

#[track_caller]
fn check_range(op: &'static str, range: f64) -> Result<()> {
    if range.is_finite() && range > 0.0 {
        return Ok(());
    }
    Err(Error::invalid(op, format!("a data range of {range}: give a finite one above 0")))
}

/// The ratio of the largest possible error to the errors, in decibels: 10 · log₁₀(R² / MSE) for values in a
/// range of size R and the mean squared error over all batches.
/// `torchmetrics.image.PeakSignalNoiseRatio(data_range=R)`.
///
/// ```
/// use tensor_core::Tensor;
/// use train::metrics::Psnr;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let mut psnr = Psnr::new(1.0)?;
/// let target = Tensor::zeros([1, 3, 4, 4], &device)?;
/// psnr.update(&target.add_scalar(0.1), &target)?;
/// assert!((psnr.value().unwrap_or(0.0) - 20.0).abs() < 1e-4);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Psnr {
    range: f64,
    squared_error: Mean,
}

impl Psnr {
    /// A ratio of no pictures, whose values have a range of this size: 1 for pictures from 0 to 1.
    ///
    /// # Errors
    /// A range that is not above 0.
    #[track_caller]
    pub fn new(data_range: f64) -> Result<Psnr> {
        check_range("Psnr", data_range)?;
        Ok(Psnr { range: data_range, squared_error: Mean::new() })
    }

    /// Counts pictures and the originals, of any shape.
    ///
    /// # Errors
    /// Two shapes, dtypes that are not floating-point, a value that cannot be computed. Nothing is counted
    /// then.
    #[track_caller]
    pub fn update(&mut self, pictures: &Tensor, targets: &Tensor) -> Result<()> {
        check("Psnr", pictures, targets)?;
        if pictures.numel() > 0 {
            let error = pictures.detach().sub(&targets.detach())?.square().mean().item_f64()?;
            self.squared_error.add(error, pictures.numel() as f64);
        }
        Ok(())
    }

    /// The ratio in decibels, infinite for equal pictures; `None` without pictures.
    pub fn value(&self) -> Option<f64> {
        self.squared_error.value().map(|error| 10.0 * (self.range * self.range / error).log10())
    }

    /// Forgets all pictures.
    pub fn reset(&mut self) {
        self.squared_error.reset();
    }
}

/// The structural similarity of pictures, the mean over pictures and windows of (2 μₓ μᵧ + c₁) (2 σₓᵧ + c₂)
/// / ((μₓ² + μᵧ² + c₁) (σₓ² + σᵧ² + c₂)), with means and covariances in a Gaussian window of 11 × 11 pixels
/// (σ = 1.5) about each, c₁ = (0.01 R)² and c₂ = (0.03 R)² for a data range R.
/// `torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=R)`.
///
/// Wang, Bovik, Sheikh, Simoncelli: Image quality assessment, from error visibility to structural similarity
/// (2004).
///
/// ```
/// use tensor_core::{Generator, Tensor};
/// use train::metrics::Ssim;
/// # fn main() -> tensor_core::Result<()> {
/// let picture = Tensor::rand([1, 3, 16, 16], &Generator::seed(0, &backend_cpu::cpu()))?;
/// let mut ssim = Ssim::new(1.0)?;
/// ssim.update(&picture, &picture)?;
/// assert!((ssim.value().unwrap_or(0.0) - 1.0).abs() < 1e-5);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ssim {
    range: f64,
    similarity: Mean,
}

/// The side of the window, in pixels, and its standard deviation.
const WINDOW: usize = 11;
const DEVIATION: f64 = 1.5;

impl Ssim {
    /// A similarity of no pictures, whose values have a range of this size: 1 for pictures from 0 to 1.
    ///
    /// # Errors
    /// A range that is not above 0.
    #[track_caller]
    pub fn new(data_range: f64) -> Result<Ssim> {
        check_range("Ssim", data_range)?;
        Ok(Ssim { range: data_range, similarity: Mean::new() })
    }

    /// Counts pictures and the originals, `[N, C, H, W]`, on their device.
    ///
    /// # Errors
    /// Two shapes, another rank, pictures smaller than 6 × 6 or without channels, dtypes that are not
    /// floating-point, a value that cannot be computed. Nothing is counted then.
    #[track_caller]
    pub fn update(&mut self, pictures: &Tensor, targets: &Tensor) -> Result<()> {
        const OP: &str = "Ssim";
        check(OP, pictures, targets)?;
        let &[count, channels, height, width] = pictures.dims() else {
            return Err(Error::invalid(OP, format!("pictures {}: give [N, C, H, W]", pictures.shape())));
        };
        let border = WINDOW / 2;
        if height <= border || width <= border || channels == 0 {
            let message = format!("pictures {}: give 6 x 6 pixels or more", pictures.shape());
            return Err(Error::invalid(OP, message));
        }
        if count == 0 {
            return Ok(());
        }
        // Pictures are mirrored at their borders.
        let planes = |x: &Tensor| {
            let x = x.detach().to_dtype(DType::F32)?.reshape([count * channels, 1, height, width])?;
            pad(&x, &[(border, border), (border, border)], PadMode::Reflect)
        };
        let (x, y) = (planes(pictures)?, planes(targets)?);
        let stacked = Tensor::concat(&[&x, &y, &x.square(), &y.square(), &x.mul(&y)?], 0)?;
        let weights: Vec<f32> = (0..WINDOW * WINDOW)
            .map(|at| (gauss(at / WINDOW) as f32) * (gauss(at % WINDOW) as f32))
            .collect();
        let window = Tensor::from_vec(weights, [1, 1, WINDOW, WINDOW], &x.device())?;
        let means = conv2d(&stacked, &window, None, ConvOptions::default())?;
        let parts = means.split(count * channels, 0)?;
        let [mean_x, mean_y, square_x, square_y, product] = parts.as_slice() else {
            return Err(Error::invalid(OP, "a convolution of five parts has other parts"));
        };
        let (c1, c2) = ((0.01 * self.range).powi(2), (0.03 * self.range).powi(2));
        let variance = |square: &Tensor, mean: &Tensor| -> Result<Tensor> {
            Ok(square.sub(&mean.square())?.maximum_scalar(0.0))
        };
        let both = mean_x.mul(mean_y)?;
        let spread = variance(square_x, mean_x)?.add(&variance(square_y, mean_y)?)?.add_scalar(c2);
        let level = mean_x.square().add(&mean_y.square())?.add_scalar(c1);
        let common = product.sub(&both)?.mul_scalar(2.0).add_scalar(c2);
        let similarity = both.mul_scalar(2.0).add_scalar(c1).mul(&common)?.div(&level.mul(&spread)?)?;
        self.similarity.add(similarity.mean().item_f64()?, count as f64);
        Ok(())
    }

    /// The similarity, 1 for equal pictures; `None` without pictures.
    pub fn value(&self) -> Option<f64> {
        self.similarity.value()
    }

    /// Forgets all pictures.
    pub fn reset(&mut self) {
        self.similarity.reset();
    }
}

/// A weight of the window in one direction.
fn gauss(at: usize) -> f64 {
    let weight = |at: usize| {
        let distance = at as f64 - (WINDOW / 2) as f64;
        (-0.5 * (distance / DEVIATION).powi(2)).exp()
    };
    weight(at) / (0..WINDOW).map(weight).sum::<f64>()
}
