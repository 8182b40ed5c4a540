//! What tests of several crates stand on: a plain backend to compare with, the ways a tensor may lie in
//! memory, and how closely results are held to.
//!
//! | module | what lives there |
//! |---|---|
//! | [`mod@reference`] | a backend of plain loops: the oracle, and the shortest example of writing a backend |
//! | [`compare`] | closeness: tolerances, [`assert_close`], [`agree`] |
//! | [`mod@conformance`] | [`conformance()`]: what every backend must compute, in one call |
//! | [`epilogues`] | contractions with epilogues, as kernels |
//! | [`mod@hooked`] | a device whose kernels a test sees, holds up or breaks |
//! | [`load_at`] | programs that read at indices, as kernels |
//! | [`inputs`] | numbers, tensors of them, and [`VIEWS`] |
//! | [`process`] | tests that need a process of their own: [`run_alone`], [`test_process`] |
#![allow(clippy::unwrap_used, clippy::panic)] // tools of tests: to fail is to panic

pub mod compare;
pub mod conformance;
pub mod epilogues;
pub mod hooked;
pub mod inputs;
pub mod load_at;
pub mod process;
pub mod reference;

pub use compare::{agree, assert_close, assert_elements, difference, tolerance};
pub use conformance::conformance;
pub use hooked::{Hooked, hooked};
pub use inputs::{
    LAYOUTS, Layout, VIEWS, View, floats, laid_out, numbers, of, of_scalars, tensor, to_scalars,
};
pub use process::{run_alone, test_process};
pub use reference::{
    Reference, reference, reference_backend, reference_device, reference_limited, reference_with,
};
