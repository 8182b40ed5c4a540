//! Functions made of functions, as `torch.func` has them: products with the Jacobian, whole Jacobians and
//! Hessians, and a function of one example made one of a batch.
//!
//! | function | gives |
//! |---|---|
//! | [`vjp`] | vᵀ·J: what a backward pass computes |
//! | [`jvp`] | J·t: the derivative along a direction |
//! | [`hvp`] | H·v, without H |
//! | [`jacobian`] | J, by one batched backward pass |
//! | [`hessian`] | H |
//! | [`vmap`] | a function of slices, for all slices at once |
//!
//! They nest: a Hessian is a Jacobian of a gradient, `vmap` of [`grad`](crate::grad) gives the gradients of
//! each example.

mod derivatives;
mod rules;
mod vmap;

pub use derivatives::{hessian, hvp, jacobian, jvp, vjp};
pub use vmap::vmap;
