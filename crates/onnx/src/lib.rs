//! Loads ONNX files at run time, as modules that run, train and move between devices, and writes modules as
//! ONNX files.
//!
//! ```
//! use onnx::Model;
//! use tensor_core::Tensor;
//!
//! # fn main() -> tensor_core::Result<()> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/ch_ppocr_mobile_v2.0_cls_infer.onnx");
//! let device = backend_cpu::cpu();
//! let net = Model::load(path, &device)?;
//! let picture = Tensor::zeros((1, 3, 48, 192), &device)?;
//! let out = net.run([("x", &picture)])?;
//! let probabilities = out.tensors()?.remove(0); // is the text the right way up?
//! assert_eq!(probabilities.dims(), [1, 2]);
//! # Ok(()) }
//! ```
//!
//! | items | purpose |
//! |---|---|
//! | a file as a module | [`Model`] |
//! | [`Value`], [`HostTensor`], [`Outputs`] | inputs and outputs |
//! | [`Registry`], [`Context`] | your own operators |
//! | options for loading: rewrites, bounds of memory | [`LoadOptions`], [`Rewrites`], [`Budget`] |
//! | a module as a file | [`export()`], [`export_with`], [`Export`] |
//! | the messages of a file | [`proto`] |
//!
//! A node's operator is a call of the tensor operation or layer with that name; `ops` has one file for each
//! family.

mod budget;
mod compile;
mod context;
mod cut;
mod data;
mod execute;
mod export;
mod fold;
mod graph;
mod model;
mod narrow;
mod ops;
pub mod proto;
mod registry;
mod rewrite;
mod value;
mod value_info;
mod weights;

pub use budget::Budget;
pub use context::Context;
pub use export::{DynamicAxis, Export, Exportable, Exported, export, export_proto, export_with};
pub use model::{LoadOptions, Model, ModelInfo, Outputs};
pub use registry::Registry;
pub use rewrite::Rewrites;
pub use value::{DataType, HostData, HostTensor, Value};
pub use value_info::{Size, ValueInfo};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();

/// Values of ONNX's test data, for the tool that runs it.
#[doc(hidden)]
pub mod testing {
    pub use crate::data::{read_optional, read_sequence, read_tensor};
}
