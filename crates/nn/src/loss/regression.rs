//! Regression losses: squared and absolute differences.

use tensor_core::{DType, Error, Result, Tensor, autocast, caller_line, f16};

use super::{Reduction, check_pair};

macro_rules! distance {
    ($($(#[$doc:meta])* $loss:ident, $function:ident => |$difference:ident| $formula:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $loss {
            /// The reduction of the losses: the mean by default.
            pub reduction: Reduction,
        }

        impl $loss {
            /// The loss of `input` and `target`, which have one shape.
            ///
            /// # Errors
            /// Two shapes (there is no broadcasting), dtypes that are not floating-point, or two devices.
            #[track_caller]
            pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
                let cast = autocast::cast(stringify!($function), [input, target], [])?;
                let ([input, target], []) = cast.tensors();
                check_pair(stringify!($function), input, target)?;
                let $difference = input.sub(target)?;
                Ok(self.reduction.apply(&$formula))
            }
        }

        $(#[$doc])*
        /// The mean over all elements.
        ///
        /// # Errors
        /// Two shapes (there is no broadcasting), dtypes that are not floating-point, or two devices.
        #[track_caller]
        pub fn $function(input: &Tensor, target: &Tensor) -> Result<Tensor> {
            $loss::default().forward(input, target)
        }
    )*};
}

distance! {
    /// The squared error (input − target)². `torch.nn.MSELoss`.
    MseLoss, mse_loss => |difference| difference.powi(2);
    /// The absolute error |input − target|. `torch.nn.L1Loss`.
    L1Loss, l1_loss => |difference| difference.abs();
}

/// The smooth L1 loss: ½·d²/β for |d| below β, |d| − ½·β elsewhere, with d = input − target.
/// `torch.nn.SmoothL1Loss`.
#[derive(Clone, Copy, Debug)]
pub struct SmoothL1Loss {
    /// The limit of the quadratic part; 1 by default, 0 for [`L1Loss`].
    pub beta: f64,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl Default for SmoothL1Loss {
    fn default() -> SmoothL1Loss {
        SmoothL1Loss { beta: 1.0, reduction: Reduction::Mean }
    }
}

impl SmoothL1Loss {
    /// The loss of `input` and `target`, which have one shape.
    ///
    /// # Errors
    /// A negative beta, two shapes (there is no broadcasting), dtypes that are not floating-point, or two
    /// devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "smooth_l1_loss";
        let cast = autocast::cast(OP, [input, target], [])?;
        let ([input, target], []) = cast.tensors();
        check_pair(OP, input, target)?;
        if self.beta.is_nan() || self.beta < 0.0 {
            return Err(Error::invalid(OP, format!("beta {}: give 0 or more", self.beta)));
        }
        let difference = input.sub(target)?;
        let losses = match self.beta {
            0.0 => difference.abs(),
            beta => bent(&difference, beta, 1.0)?,
        };
        Ok(self.reduction.apply(&losses))
    }
}

/// The mean smooth L1 loss with beta 1. See [`SmoothL1Loss`].
///
/// # Errors
/// As for [`SmoothL1Loss::forward`].
#[track_caller]
pub fn smooth_l1_loss(input: &Tensor, target: &Tensor) -> Result<Tensor> {
    SmoothL1Loss::default().forward(input, target)
}

/// The Huber loss: ½·d² for |d| up to δ, δ·(|d| − ½·δ) elsewhere, with d = input − target.
/// `torch.nn.HuberLoss`.
#[derive(Clone, Copy, Debug)]
pub struct HuberLoss {
    /// The limit of the quadratic part; 1 by default.
    pub delta: f64,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl Default for HuberLoss {
    fn default() -> HuberLoss {
        HuberLoss { delta: 1.0, reduction: Reduction::Mean }
    }
}

impl HuberLoss {
    /// The loss of `input` and `target`, which have one shape.
    ///
    /// # Errors
    /// A delta that is not above 0, two shapes (there is no broadcasting), dtypes that are not
    /// floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "huber_loss";
        let cast = autocast::cast(OP, [input, target], [])?;
        let ([input, target], []) = cast.tensors();
        check_pair(OP, input, target)?;
        if self.delta.is_nan() || self.delta <= 0.0 {
            return Err(Error::invalid(OP, format!("delta {}: give one above 0", self.delta)));
        }
        Ok(self.reduction.apply(&bent(&input.sub(target)?, self.delta, self.delta)?))
    }
}

/// slope / knee · ½·d² for |d| up to the knee, slope · (|d| − ½·knee) elsewhere. With m = d / knee clamped
/// to [−1, 1], both are slope·m·(d − ½·knee·m).
#[track_caller]
fn bent(difference: &Tensor, knee: f64, slope: f64) -> Result<Tensor> {
    let steep = slope / knee;
    let is_half = difference.dtype() == DType::F16;
    let greatest = if is_half { f64::from(f16::MAX) } else { f64::from(f32::MAX) };
    // A factor that overflows the dtype would be multiplied by 0: all elements are in the linear part then,
    // or all in the quadratic part.
    if steep > greatest {
        return Ok(difference.abs().mul_scalar(slope));
    }
    if knee > greatest {
        return Ok(difference.powi(2).mul_scalar(0.5 * steep));
    }
    let near = if steep == 1.0 { difference.clone() } else { difference.mul_scalar(steep) };
    let near = near.clamp(-slope, slope);
    near.mul(&difference.sub(&near.mul_scalar(0.5 / steep))?)
}

/// The mean Huber loss with delta 1. See [`HuberLoss`].
///
/// # Errors
/// As for [`HuberLoss::forward`].
#[track_caller]
pub fn huber_loss(input: &Tensor, target: &Tensor) -> Result<Tensor> {
    HuberLoss::default().forward(input, target)
}
