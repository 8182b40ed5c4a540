//! Function transforms, as in `torch.func`: products with the Jacobian, whole Jacobians and Hessians, and
//! vectorization of a function of one example over a batch.
//!
//! | function | result |
//! |---|---|
//! | [`grad`] | the function that gives a gradient |
//! | [`vjp`] | vᵀ·J: the result of a backward pass |
//! | [`jvp`] | J·t: the derivative along a direction |
//! | [`hvp`] | H·v, without H |
//! | [`jacobian`] | J, by one batched backward pass |
//! | [`hessian`] | H |
//! | [`vmap`] | a function applied to all slices at once |
//!
//! They nest: a Hessian is a Jacobian of a gradient, and [`vmap`] of [`grad`] gives a gradient for
//! each example.

mod derivatives;
mod rules;
mod vmap;

pub use derivatives::{grad, hessian, hvp, jacobian, jvp, vjp};
pub use vmap::vmap;
