//! Networks for Taper: modules and their state, layers, initialisation, losses.

// So that what the derive macro writes also works in this crate.
#[allow(unused_extern_crates)]
extern crate self as nn;

mod containers;
mod module;
mod visitor;

pub use containers::{Field, Parameter};
pub use module::{Module, StateDict, Unmatched};
pub use visitor::{Entry, Role, Visitor, VisitorMut};
