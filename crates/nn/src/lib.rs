//! Networks for Taper: modules and their state, layers, initialisation, losses.
//!
//! | look for | in |
//! |---|---|
//! | what a module is: [`Module`], its fields, state dicts, `to`, `train` and `eval` | `module`, `field`, `containers`, `visitor` |
//! | [`Linear`], [`Relu`], [`Dropout`], [`Sequential`] … | `layers` |
//! | [`cross_entropy`], [`mse_loss`] … | `loss` |
//! | initial values | [`init`] |
//! | files | [`save_safetensors`], [`load_safetensors`]; whole trainings: [`Checkpoint`] |
//! | layers and losses as functions | [`functional`] |
//! | a table of a model | [`summary`] |

// So that what the derive macro writes also works in this crate.
#[allow(unused_extern_crates)]
extern crate self as nn;

mod checkpoint;
mod containers;
mod field;
pub mod functional;
pub mod init;
mod layers;
mod loss;
#[cfg(doctest)]
mod misfits;
mod module;
mod safetensors;
mod summary;
mod training;
mod visitor;
mod write_file;

pub use checkpoint::{Checkpoint, Restore};
pub use field::{Field, Parameter};
pub use layers::*;
pub use loss::{
    BceWithLogitsLoss, CrossEntropyLoss, L1Loss, MseLoss, NllLoss, Reduction,
    binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss, nll_loss,
};
pub use module::{Module, StateDict, Unmatched};
pub use nn_derive::Module;
pub use safetensors::{SafetensorsFile, load_safetensors, save_safetensors};
pub use summary::{Summary, SummaryRow, summarize, summary};
pub use training::Training;
pub use visitor::{Entry, Role, Visitor, VisitorMut};
