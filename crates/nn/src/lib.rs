//! Networks for Taper: modules and their state, layers, initialisation, losses.
//!
//! | look for | in |
//! |---|---|
//! | what a module is: [`Module`], its fields, state dicts, `to`, `train` and `eval` | `module`, `containers`, `visitor` |
//! | [`Linear`], [`ReLU`], [`Dropout`], [`Sequential`] … | `layers` |
//! | [`cross_entropy`], [`mse_loss`] … | `loss` |
//! | initial values | [`init`] |
//! | files | [`save_safetensors`], [`load_safetensors`] |

// So that what the derive macro writes also works in this crate.
#[allow(unused_extern_crates)]
extern crate self as nn;

mod containers;
#[doc(hidden)]
pub mod derive_support;
pub mod init;
mod layers;
mod loss;
mod module;
mod safetensors;
mod training;
mod visitor;

pub use containers::{Field, Parameter};
pub use layers::{
    Dropout, Embedding, Flatten, Gelu, Identity, Layer, Linear, LinearConfig, LogSoftmax, ReLU, Sequential,
    Sigmoid, Silu, Softmax, Tanh,
};
pub use loss::{
    BceWithLogitsLoss, CrossEntropy, L1Loss, MseLoss, NllLoss, Reduction, binary_cross_entropy_with_logits,
    cross_entropy, l1_loss, mse_loss, nll_loss,
};
pub use module::{Module, StateDict, Unmatched};
pub use nn_derive::Module;
pub use safetensors::{load_safetensors, save_safetensors};
pub use training::Training;
pub use visitor::{Entry, Role, Visitor, VisitorMut};
