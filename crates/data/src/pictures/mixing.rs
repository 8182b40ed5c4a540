//! [`MixUp`] and [`CutMix`]: batches of pictures mixed with each other, and their labels with them.

use tensor_core::{DType, Error, Result, Tensor};

use crate::Draws;

/// Mixes each picture of a batch with the one before it: λ x + (1 − λ) x′, and the same for labels, with
/// one λ for the batch drawn from Beta(α, α). `transforms.v2.MixUp`.
///
/// Zhang, Cisse, Dauphin, Lopez-Paz: mixup, beyond empirical risk minimization (2017).
///
/// ```
/// use data::{Draws, MixUp};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let images = Tensor::rand([4, 3, 8, 8], &tensor_core::Generator::seed(0, &device))?;
/// let labels = Tensor::new([0i32, 1, 2, 1], &device)?;
/// let mixup = MixUp { alpha: 0.2, classes: 3 };
/// let (images, labels) = mixup.apply(&images, &labels, &mut Draws::of(42, 0, 0))?; // seed, epoch, batch
/// assert_eq!((images.dims(), labels.dims()), (&[4, 3, 8, 8][..], &[4, 3][..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixUp {
    /// α: 1 for a uniform λ, less for one near 0 or 1.
    pub alpha: f64,
    /// The number of classes.
    pub classes: usize,
}

impl MixUp {
    /// Mixes images `[N, …]` and labels, class numbers `[N]` or probabilities `[N, classes]`.
    ///
    /// # Errors
    /// An α that is not above 0, images that are not floating-point, or shapes that do not fit. A class
    /// number out of range is an error of the computation.
    #[track_caller]
    pub fn apply(&self, images: &Tensor, labels: &Tensor, draws: &mut Draws) -> Result<(Tensor, Tensor)> {
        let lambda = beta("MixUp", self.alpha, draws)?;
        mixup(images, &probabilities("MixUp", images, labels, self.classes)?, lambda)
    }
}

/// λ x + (1 − λ) x′ for images `[N, …]` and labels `[N, classes]`, where x′ is the item before x, and the
/// last for the first. See [`MixUp`].
///
/// # Errors
/// Tensors without an axis, or not floating-point.
#[track_caller]
pub fn mixup(images: &Tensor, labels: &Tensor, lambda: f64) -> Result<(Tensor, Tensor)> {
    let mixed = |x: &Tensor| -> Result<Tensor> {
        if !x.dtype().is_float() {
            let message = format!("a batch of {}: give floating-point images and labels", x.dtype());
            return Err(Error::invalid("mixup", message));
        }
        x.roll(1, 0)?.mul_scalar(1.0 - lambda).add(&x.mul_scalar(lambda))
    };
    Ok((mixed(images)?, mixed(labels)?))
}

/// Replaces a rectangle of each picture of a batch by that of the one before it. The rectangle has the
/// fraction 1 − λ of the area, with λ drawn from Beta(α, α), and a uniform middle; labels are mixed by the
/// area that is left after it is cut off at the border. `transforms.v2.CutMix`.
///
/// Yun, Han, Oh, Chun, Choe, Yoo: CutMix, regularization strategy to train strong classifiers with
/// localizable features (2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CutMix {
    /// α, 1 for a uniform λ.
    pub alpha: f64,
    /// The number of classes.
    pub classes: usize,
}

impl CutMix {
    /// Mixes images `[N, C, H, W]` and labels, class numbers `[N]` or probabilities `[N, classes]`.
    ///
    /// # Errors
    /// An α that is not above 0, images of another rank or without pixels, or labels that do not fit.
    #[track_caller]
    pub fn apply(&self, images: &Tensor, labels: &Tensor, draws: &mut Draws) -> Result<(Tensor, Tensor)> {
        let &[_, _, height, width] = images.dims() else {
            return Err(Error::invalid("CutMix", format!("images {}: give [N, C, H, W]", images.shape())));
        };
        let lambda = beta("CutMix", self.alpha, draws)?;
        let (x, y) = (draws.below(width as u64) as usize, draws.below(height as u64) as usize);
        let half = 0.5 * (1.0 - lambda).sqrt();
        let range = |middle: usize, size: usize| {
            let half = (half * size as f64) as usize;
            (middle.saturating_sub(half), (middle + half).min(size))
        };
        let (rows, columns) = (range(y, height), range(x, width));
        cutmix(images, &probabilities("CutMix", images, labels, self.classes)?, rows, columns)
    }
}

/// Images `[N, C, H, W]` whose pixels in these rows and columns (first, and the one after the last) are
/// those of the picture before, and labels `[N, classes]` mixed by the areas. See [`CutMix`].
///
/// # Errors
/// A rectangle that is not within the pictures, or shapes that do not fit.
#[track_caller]
pub fn cutmix(
    images: &Tensor,
    labels: &Tensor,
    rows: (usize, usize),
    columns: (usize, usize),
) -> Result<(Tensor, Tensor)> {
    let &[_, _, height, width] = images.dims() else {
        return Err(Error::invalid("cutmix", format!("images {}: give [N, C, H, W]", images.shape())));
    };
    let fits = |(start, end): (usize, usize), size: usize| start <= end && end <= size;
    if !fits(rows, height) || !fits(columns, width) || height * width == 0 {
        let message = format!("rows {rows:?} and columns {columns:?} of pictures {}", images.shape());
        return Err(Error::invalid("cutmix", message));
    }
    let within = |at: usize, (start, end): (usize, usize)| (start..end).contains(&at);
    let mask =
        (0..height * width).map(|at| within(at / width, rows) && within(at % width, columns)).collect();
    let mask = Tensor::from_vec::<bool>(mask, [1, 1, height, width], &images.device())?;
    let mixed = mask.where_cond(&images.roll(1, 0)?, images)?;
    let area = (rows.1 - rows.0) * (columns.1 - columns.0);
    let lambda = 1.0 - area as f64 / (height * width) as f64;
    Ok((mixed, mixup(labels, labels, lambda)?.1))
}

/// The labels as probabilities `[N, classes]`.
#[track_caller]
fn probabilities(op: &'static str, images: &Tensor, labels: &Tensor, classes: usize) -> Result<Tensor> {
    let count = images.dims().first().copied();
    match *labels.dims() {
        [items] if Some(items) == count && labels.dtype().is_int() => labels
            .one_hot(classes)?
            .to_dtype(if images.dtype().is_float() { images.dtype() } else { DType::F32 }),
        [items, width] if Some(items) == count && width == classes && labels.dtype().is_float() => {
            Ok(labels.clone())
        }
        _ => {
            let message = format!(
                "labels {} {} of images {}: give class numbers [N], or probabilities [N, {classes}]",
                labels.dtype(),
                labels.shape(),
                images.shape()
            );
            Err(Error::invalid(op, message))
        }
    }
}

/// A number from Beta(α, α): the part of one of two gamma variates in their sum.
#[track_caller]
fn beta(op: &'static str, alpha: f64, draws: &mut Draws) -> Result<f64> {
    if !(alpha.is_finite() && alpha > 0.0) {
        return Err(Error::invalid(op, format!("alpha {alpha}: give a finite one above 0")));
    }
    let (a, b) = (log_gamma_variate(alpha, draws), log_gamma_variate(alpha, draws));
    Ok(1.0 / (1.0 + (b - a).exp()))
}

/// The logarithm of a number from the gamma distribution of shape α.
///
/// Marsaglia, Tsang: A simple method for generating gamma variables (2000). For α < 1, a variate of α + 1 is
/// multiplied by U^(1/α).
fn log_gamma_variate(alpha: f64, draws: &mut Draws) -> f64 {
    let mut positive = || 1.0 - draws.uniform();
    if alpha < 1.0 {
        let boost = positive().ln() / alpha;
        return log_gamma_variate(alpha + 1.0, draws) + boost;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = (-2.0 * positive().ln()).sqrt() * (std::f64::consts::TAU * positive()).cos();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && positive().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return (d * v).ln();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beta_has_its_moments() {
        for alpha in [0.05, 0.2, 1.0, 4.0] {
            let mut draws = Draws::of(1, 2, 3);
            let all: Vec<f64> =
                (0..20_000).map(|_| beta("beta", alpha, &mut draws).unwrap_or(f64::NAN)).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / all.len() as f64;
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!(
                (mean - 0.5).abs() < 0.015 && (variance / expected - 1.0).abs() < 0.05,
                "{alpha}: {mean} {variance}"
            );
            assert!(all.iter().all(|x| (0.0..=1.0).contains(x)));
        }
    }
}
