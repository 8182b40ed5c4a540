//! Optimizers, learning-rate schedules, gradient clipping, gradient scaling and weight averaging.
//!
//! ```
//! use autograd::TensorGrad;
//! use optim::{Optimizer, Sgd, SgdConfig};
//! use tensor_core::Tensor;
//! # fn main() -> tensor_core::Result<()> {
//! let x = Tensor::new([4.0f32], &backend_cpu::cpu())?.requires_grad();
//! let mut sgd = Sgd::new([x.clone()], SgdConfig { lr: 0.25, ..Default::default() });
//! for _ in 0..2 {
//!     sgd.zero_grad();
//!     x.powi(2).sum().backward()?;
//!     sgd.step()?;
//! }
//! assert_eq!(x.item::<f32>()?, 1.0);
//! # Ok(()) }
//! ```

mod algorithms;
mod average;
mod clip;
mod eight_bit;
mod groups;
mod masters;
mod optimizer;
mod rules;
mod saved;
mod scaler;
mod schedule;

pub use algorithms::{
    adadelta::{Adadelta, AdadeltaConfig},
    adagrad::{Adagrad, AdagradConfig},
    adam::{Adam, AdamConfig, AdamW, AdamWConfig},
    adamax::{Adamax, AdamaxConfig},
    asgd::{Asgd, AsgdConfig},
    lbfgs::{Lbfgs, LbfgsConfig, LineSearch},
    lion::{Lion, LionConfig},
    muon::{AdjustLr, Muon, MuonConfig},
    nadam::{NAdam, NAdamConfig},
    radam::{RAdam, RAdamConfig},
    rmsprop::{RmsProp, RmsPropConfig},
    rprop::{Rprop, RpropConfig},
    sgd::{Sgd, SgdConfig},
};
pub use average::AveragedParameters;
pub use clip::{GradNorm, clip_grad_norm, clip_grad_value};
pub use eight_bit::{Adam8bit, AdamW8bit, EightBit, EightBitState, Sgd8bit};
pub use groups::{GroupsMut, ParamGroup, ParamGroups, UpdateRule};
pub use masters::MasterWeights;
pub use optimizer::Optimizer;
pub use saved::{Choice, ParamState, Part, Setting};
pub use scaler::{GradScaler, GradScalerConfig};
pub use schedule::{
    Anneal, ChainedScheduler, ConstantLr, CosineAnnealingLr, CosineAnnealingWarmRestarts, CyclicConfig,
    CyclicLr, CyclicScale, ExponentialLr, LambdaLr, LinearLr, LrSchedule, LrScheduler, MultiStepLr,
    MultiplicativeLr, OneCycleConfig, OneCycleLr, PolynomialLr, ReduceLrOnPlateau, ReduceLrOnPlateauConfig,
    SequentialLr, StepLr, SwaLr, ThresholdMode,
};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
