//! Shared test tools: a plain backend to compare with, tensors in every memory layout, and comparison to
//! tolerances.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@reference`] | a backend of plain loops: the oracle, and the shortest example of a backend |
//! | [`compare`] | closeness: tolerances, [`assert_close`], [`agree`] |
//! | [`mod@conformance`] | [`conformance()`]: tests everything that a backend must compute |
//! | [`mod@damage`] | damaged copies of files |
//! | [`deal`] | which form of a GPU's kernels runs a case today |
//! | [`epilogues`] | contractions with epilogues, as kernels |
//! | [`mod@hooked`] | a device whose kernels a test observes, delays or breaks |
//! | [`load_at`] | programs that read at indices, as kernels |
//! | [`inputs`] | numbers, tensors of them, and [`VIEWS`] |
//! | [`process`] | tests that need their own process: [`run_alone`], [`test_process`] |
//! | [`rng`] | random choices by a seed |
//! | [`settings`] | the variable `TAPER_TEST`, and how a test reports that it cannot run |
#![allow(clippy::unwrap_used, clippy::panic)] // test tools report failure by a panic

pub mod compare;
pub mod conformance;
pub mod damage;
pub mod deal;
pub mod epilogues;
pub mod hooked;
pub mod inputs;
pub mod load_at;
pub mod process;
pub mod reference;
pub mod rng;
pub mod settings;

pub use compare::{agree, assert_close, assert_elements, difference, tolerance};
pub use conformance::{conformance, conformance_of};
pub use damage::damage;
pub use hooked::{Hooked, hooked, without_waiting};
pub use inputs::{
    LAYOUTS, Layout, VIEWS, View, floats, laid_out, make_scales_small, numbers, of, of_scalars, tensor,
    to_scalars,
};
pub use process::{run_alone, test_process};
pub use reference::{
    Reference, reference, reference_backend, reference_device, reference_limited, reference_with,
};
