//! Losses for few positives among many: focal loss, for detection, and dice loss, for segmentation.

use tensor_core::{Error, Result, Tensor, caller_line};

use super::{BceWithLogitsLoss, Reduction, check_pair};

/// Binary cross-entropy of which easy elements count little: αₜ · (1 − pₜ)^γ · −ln pₜ, where pₜ = σ(x) for
/// the targets y = 1 and 1 − σ(x) for y = 0, and αₜ is α or 1 − α. `torchvision.ops.sigmoid_focal_loss`.
///
/// Targets between 0 and 1 mix both: pₜ = y σ(x) + (1 − y) (1 − σ(x)), and αₜ alike.
///
/// Lin, Goyal, Girshick, He, Dollár: Focal loss for dense object detection (2017).
///
/// ```
/// use nn::SigmoidFocalLoss;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let logits = Tensor::new([0.0f32, 3.0], &device)?;
/// let targets = Tensor::new([1.0f32, 1.0], &device)?;
/// let loss = SigmoidFocalLoss::default().forward(&logits, &targets)?;
/// assert!((loss.item::<f32>()? - 0.0217).abs() < 1e-4); // mostly the first, 0.25 · 0.5² · ln 2
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SigmoidFocalLoss {
    /// α, the weight of positives, from 0 to 1; `None` (torchvision's −1) for no weights. 0.25 by default.
    pub alpha: Option<f64>,
    /// γ, from 0 on: how little easy elements count. 2 by default.
    pub gamma: f64,
    /// The reduction: the mean by default. torchvision's default is `None`, and RetinaNet divides the sum by
    /// the number of positives.
    pub reduction: Reduction,
}

impl Default for SigmoidFocalLoss {
    fn default() -> SigmoidFocalLoss {
        SigmoidFocalLoss { alpha: Some(0.25), gamma: 2.0, reduction: Reduction::Mean }
    }
}

impl SigmoidFocalLoss {
    /// The loss of `logits` and `targets`, which have one shape.
    ///
    /// # Errors
    /// An α outside [0, 1], a γ that is negative or not finite, two shapes, dtypes that are not
    /// floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        const OP: &str = "sigmoid_focal_loss";
        let _line = caller_line();
        let &SigmoidFocalLoss { alpha, gamma, reduction } = self;
        if alpha.is_some_and(|alpha| !(0.0..=1.0).contains(&alpha)) || !(gamma.is_finite() && gamma >= 0.0) {
            let message =
                format!("alpha {alpha:?} and gamma {gamma}: give alpha from 0 to 1, and gamma from 0 on");
            return Err(Error::invalid(OP, message));
        }
        check_pair(OP, logits, targets)?;
        let each = BceWithLogitsLoss { reduction: Reduction::None, ..Default::default() };
        let entropy = each.forward(logits, targets)?;
        let opposite = targets.neg().add_scalar(1.0);
        // 1 − pₜ is the probability of the other class.
        let other = logits.neg().sigmoid().mul(targets)?.add(&logits.sigmoid().mul(&opposite)?)?;
        let mut losses = entropy.mul(&if gamma == 2.0 { other.square() } else { other.powf(gamma) })?;
        if let Some(alpha) = alpha {
            let weights = targets.mul_scalar(alpha).add(&opposite.mul_scalar(1.0 - alpha))?;
            losses = losses.mul(&weights)?;
        }
        Ok(reduction.apply(&losses))
    }
}

/// The mean focal loss of logits. See [`SigmoidFocalLoss`].
///
/// # Errors
/// As for [`SigmoidFocalLoss::forward`].
#[track_caller]
pub fn sigmoid_focal_loss(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let _line = caller_line();
    SigmoidFocalLoss::default().forward(logits, targets)
}

/// How far regions are from overlapping: 1 − (2 Σ p y + s) / (Σ p + Σ y + s) for probabilities p, targets y
/// and a smoothing s. `monai.losses.DiceLoss` with its defaults.
///
/// Sums are over the pixels of each channel of each item; with `squared`, those in the denominator are of
/// p² and y². Logits become probabilities by `.sigmoid()`, or `.softmax(1)` for classes that exclude each
/// other, whose targets are `one_hot`.
///
/// Milletari, Navab, Ahmadi: V-Net, fully convolutional neural networks for volumetric medical image
/// segmentation (2016).
///
/// ```
/// use nn::DiceLoss;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let logits = Tensor::new([[[9.0f32, 9.0, -9.0, -9.0]]], &device)?; // [N, C, pixels]
/// let targets = Tensor::new([[[1.0f32, 0.0, 1.0, 0.0]]], &device)?;
/// let loss = DiceLoss::default().forward(&logits.sigmoid(), &targets)?;
/// assert!((loss.item::<f32>()? - 0.5).abs() < 1e-3);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiceLoss {
    /// s, in numerator and denominator, above 0 so that empty regions that agree have no loss. 10⁻⁵ by
    /// default.
    pub smooth: f64,
    /// Whether the denominator has squares. Off by default.
    pub squared: bool,
    /// The reduction of the losses `[N, C]`: the mean by default.
    pub reduction: Reduction,
}

impl Default for DiceLoss {
    fn default() -> DiceLoss {
        DiceLoss { smooth: 1e-5, squared: false, reduction: Reduction::Mean }
    }
}

impl DiceLoss {
    /// The loss of probabilities `[N, C, …]` and targets of the same shape, such as `[N, C, H, W]`.
    ///
    /// # Errors
    /// Fewer than three axes, a smoothing that is negative or not finite, two shapes, dtypes that are not
    /// floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        const OP: &str = "dice_loss";
        let _line = caller_line();
        let &DiceLoss { smooth, squared, reduction } = self;
        check_pair(OP, input, target)?;
        if input.rank() < 3 || !(smooth.is_finite() && smooth >= 0.0) {
            let message = format!(
                "probabilities {} with smooth {smooth}: give [N, C, pixels …] and a finite smooth from 0 on",
                input.shape()
            );
            return Err(Error::invalid(OP, message));
        }
        let pixels = |x: &Tensor| x.flatten(2, -1)?.sum_axis(2, false);
        let overlap = pixels(&input.mul(target)?)?;
        let power = |x: &Tensor| if squared { x.square() } else { x.clone() };
        let sizes = pixels(&power(input))?.add(&pixels(&power(target))?)?;
        let ratio = overlap.mul_scalar(2.0).add_scalar(smooth).div(&sizes.add_scalar(smooth))?;
        Ok(reduction.apply(&ratio.neg().add_scalar(1.0)))
    }
}

/// The mean dice loss of probabilities. See [`DiceLoss`].
///
/// # Errors
/// As for [`DiceLoss::forward`].
#[track_caller]
pub fn dice_loss(input: &Tensor, target: &Tensor) -> Result<Tensor> {
    let _line = caller_line();
    DiceLoss::default().forward(input, target)
}
