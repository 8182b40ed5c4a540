//! Adapting a trained model: what a layer with a weight does beside its product with it, and what sets that
//! for a whole model.
//!
//! | file | contents |
//! |---|---|
//! | `weighted_host` | [`Adapters`](lora::Adapters), the field of a layer that holds all of this |
//! | `kind` | [`LayerKind`](lora::LayerKind): linear, embedding, convolution |
//! | `lora` | the public names of adapters |
//! | `config`, `patterns` | [`LoraConfig`](lora::LoraConfig): targets, ranks, scalings |
//! | `adapter` | the matrices of one layer, its output and merged weight |
//! | `saved` | biases and modules of the model that are trained with an adapter |
//! | `handle` | [`Lora`](lora::Lora): one adapter of a model, over all its layers |
//! | `row_adapters` | [`RowAdapters`](lora::RowAdapters): one adapter for each row of a batch |
//! | `stacked` | the matrices of these adapters in one layer |
//! | `simulated`, `observer` | the rounding of a layer's input and weight, for training and calibration |
//! | `statistics` | [`InputStatistics`](lora::InputStatistics): sums over the inputs of a layer |
//! | `qat`, `quantize` | training with simulated rounding; weights in blocks, by several methods |

mod adapter;
mod config;
mod handle;
mod kind;
pub mod lora;
mod observer;
mod patterns;
pub mod qat;
pub(crate) mod quantize;
mod row_adapters;
mod saved;
mod simulated;
mod stacked;
mod statistics;
mod weighted_host;

/// The name in the errors of adapters.
const OP: &str = "lora";
