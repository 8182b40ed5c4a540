//! Gradients for Taper's tensors.
//!
//! [`TensorGrad`] marks leaves and plays the tape backwards; [`grad`] returns gradients instead of
//! accumulating them, and can record them for higher derivatives; [`no_grad`] stops recording; [`Function`]
//! is a differentiable function of your own; [`gradcheck`] compares any of it with finite differences;
//! [`checkpoint`] computes a part of the forward pass again instead of keeping it; [`func`] has Jacobians,
//! Hessians and `vmap`. One rule per operation: `rules/`.

#![deny(clippy::wildcard_enum_match_arm)] // a new variant is to be met everywhere

mod apart;
mod checkpoint;
pub mod func;
mod function;
mod gradcheck;
mod hook;
mod rules;
mod sum;
mod tape;

pub use checkpoint::checkpoint;
pub use function::{Function, Outputs, apply};
pub use gradcheck::{gradcheck, gradgradcheck};
pub use tape::{TensorGrad, grad, grad_of};
pub use tensor_core::{is_grad_enabled, set_grad_enabled};

/// The root of these sources, for `taper`: errors name no line in them.
#[doc(hidden)]
pub const ROOT: &str = file!();

/// Runs `f` without recording: what it computes has no history. `torch.no_grad`.
///
/// Recording is a property of the thread; it is restored when `f` returns or panics.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    set_grad_enabled(false, f)
}

/// Runs `f` with recording on, inside a [`no_grad`]. `torch.enable_grad`.
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    set_grad_enabled(true, f)
}
