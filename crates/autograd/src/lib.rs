//! Automatic differentiation for Taper's tensors.
//!
//! [`TensorGrad`] marks leaves and runs the backward pass; [`grad`] returns gradients instead of
//! accumulating them, and can record them for higher derivatives; [`no_grad`] turns recording off;
//! [`Function`] is a user-defined differentiable function; [`gradcheck`] compares gradients with finite
//! differences; [`checkpoint`] recomputes a part of the forward pass instead of storing it; [`func`] has
//! Jacobians, Hessians and `vmap`. `rules/` has one rule per operation.

#![deny(clippy::wildcard_enum_match_arm)] // a new variant must be handled everywhere

mod checkpoint;
mod compile;
mod fresh_leaf;
pub mod func;
mod function;
mod gradcheck;
mod hook;
mod rules;
mod sum;
mod tape;

pub use checkpoint::checkpoint;
pub use compile::{Compiled, compile, compile_or_run};
pub use function::{Function, Outputs, apply};
pub use gradcheck::{gradcheck, gradgradcheck};
pub use tape::{TensorGrad, grad, grad_of};
pub use tensor_core::{is_grad_enabled, set_grad_enabled};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();

/// Runs `f` without recording: its results have no history. `torch.no_grad`.
///
/// Recording is a property of the thread; it is restored when `f` returns or panics.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    set_grad_enabled(false, f)
}

/// Runs `f` with recording on, also inside a [`no_grad`]. `torch.enable_grad`.
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    set_grad_enabled(true, f)
}
