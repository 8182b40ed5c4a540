//! Optimizers for Taper: [`Sgd`], schedules of learning rates, clipping of gradients.
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

mod clip;
mod optimizer;
mod schedule;
mod sgd;

pub use clip::{GradNorm, clip_grad_norm, clip_grad_value};
pub use optimizer::Optimizer;
pub use schedule::{CosineAnnealingLr, ExponentialLr, LinearLr, LrSchedule, LrScheduler, StepLr};
pub use sgd::{Sgd, SgdConfig, SgdGroup};
