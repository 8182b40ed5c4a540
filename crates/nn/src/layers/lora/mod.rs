//! Adapters: small trained matrices beside the frozen weights of a model. LoRA, DoRA and their scalings, on
//! linear, embedding and convolution layers, with the names and the numbers of Python's `peft`.
//!
//! Hu et al.: LoRA, low-rank adaptation of large language models (2021). Dettmers et al.: QLoRA, efficient
//! finetuning of quantized language models (2023), is the same with weights in blocks.
//!
//! ```
//! use nn::{Linear, Module, lora::{self, LoraConfig}};
//! use tensor_core::{Generator, Result, Tensor};
//!
//! #[derive(Module)]
//! struct Net { fc1: Linear, fc2: Linear }
//!
//! impl Net {
//!     fn forward(&self, x: &Tensor) -> Result<Tensor> {
//!         self.fc2.forward(&self.fc1.forward(x)?.relu())
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let rng = Generator::seed(0, &backend_cpu::cpu());
//! let net = Net { fc1: Linear::new(64, 64, &rng)?, fc2: Linear::new(64, 10, &rng)? };
//! let adapted = lora::attach(&net, &LoraConfig::new(4).targets(["fc1"]), &rng)?;
//! assert_eq!(adapted.num_parameters(), 4 * 64 + 64 * 4); // what an optimizer trains, and a file stores
//! assert_eq!(net.trainable_parameters().len(), 2);       // the rest is frozen
//! let x = Tensor::ones([1, 64], rng.device())?;
//! let with = net.forward(&x)?;
//! let without = adapted.disabled(|| net.forward(&x))??;
//! assert_eq!(with.to_vec::<f32>()?, without.to_vec::<f32>()?); // B is zero at first
//! # Ok(()) }
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `config` | [`LoraConfig`]: targets, ranks, scalings |
//! | `patterns` | [`Patterns`]: ranks and scalings of some layers |
//! | `kind` | [`LayerKind`]: linear, embedding, convolution |
//! | `saved` | biases and modules of the model that are trained with an adapter |
//! | `adapter` | the matrices of one layer, its output and merged weight |
//! | `slot` | [`Adapters`], the field of a layer that holds them |
//! | `simulated` | the rounding of a layer's input and weight, for training and calibration |
//! | `statistics` | [`InputStatistics`]: sums over the inputs of a layer, for quantizing its weight |
//! | `handle` | [`Lora`]: one adapter of a model, over all its layers |

mod adapter;
mod config;
mod handle;
mod kind;
mod patterns;
mod saved;
mod simulated;
mod slot;
mod statistics;

pub use config::{LoraBias, LoraConfig, LoraInit, Targets};
pub(crate) use config::{by_pattern, is_named};
pub(crate) use handle::hosts;
pub use handle::{Lora, MergeOptions, activate, attach, attach_to, find, names};
pub use kind::LayerKind;
pub use patterns::Patterns;
pub(crate) use simulated::{Simulated, channel_scales};
pub use slot::Adapters;
pub(crate) use slot::Host;
pub use statistics::InputStatistics;

/// The name in errors.
const OP: &str = "lora";
