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

pub use super::{
    config::{LoraBias, LoraConfig, LoraInit, Targets},
    handle::{Lora, MergeOptions, activate, attach, attach_to, find, names},
    kind::LayerKind,
    patterns::Patterns,
    row_adapters::RowAdapters,
    stacked::{rows, with_rows},
    statistics::InputStatistics,
    weighted_host::Adapters,
};
