//! Known architectures in Rust, with the weights of their reference implementations.
//!
//! ```no_run
//! use models::{Llama, LanguageModel};
//! use tensor_core::Tensor;
//! # fn main() -> tensor_core::Result<()> {
//! let device = backend_cpu::cpu();
//! let model = Llama::from_folder("SmolLM2-135M-Instruct", &device)?; // config.json, model.safetensors
//! let logits = model.forward(&Tensor::new([[1i32, 4093, 198]], &device)?)?; // [N, L, vocabulary]
//! # let _ = logits;
//! # Ok(()) }
//! ```
//!
//! | items | purpose |
//! |---|---|
//! | [`Llama`] | Llama 2, 3, SmolLM, Mistral, Qwen 2 to 3.5, Gemma 1 to 3, Phi-3, GLM 4, OLMo, Granite |
//! | [`Llama`] | with experts: gpt-oss, Mixtral, Qwen 2 to 3.5, GLM 4.5, DeepSeek 2 and 3 |
//! | [`Gemma4`] | the decoder of Gemma 4 |
//! | [`Lfm2`] | LFM 2: short convolutions beside attention |
//! | [`Gpt2`], [`GptNeoX`] | GPT-2; GPT-NeoX and Pythia |
//! | [`SmolVlm`], [`pictures`] | SmolVLM and Idefics 3; the pictures in their prompts |
//! | [`load_language_model`] | any of these, by the name in its configuration |
//! | [`Mamba`], [`Rwkv7`] | Mamba and RWKV-7: a state in place of attention |
//! | [`T5`], [`Bart`] | T5, Flan-T5; BART, mBART: texts to texts |
//! | [`Bert`], [`BertClassifier`], [`BertMaskedLm`] | BERT, RoBERTa, DistilBERT |
//! | [`ModernBert`], [`ModernBertMaskedLm`] | ModernBERT |
//! | [`LanguageModel`], [`KvCache`] | what generation needs of a model |
//! | [`generate`] | new tokens: sampling, batches, beams, speculation; perplexity |
//! | [`serving`] | many texts at the same time: continuous batching |
//! | [`vision`], [`audio`], [`diffusion`] | networks for pictures, for sound, and latent diffusion |
//! | `text` | tokenizers, chat templates, text as it is generated (feature `text`) |
//! | `guidance` | texts that match a grammar: JSON of a schema, regular expressions (feature `guidance`) |
//! | [`WeightSource`] | where a model's parameters come from: a file, a state dict, random numbers |
//!
//! # Conventions
//! - A file has one architecture, from its configuration to its output, on the layers of `nn`.
//! - The configuration is the reference's own `config.json`; its fields have the reference's names and
//!   defaults. For GGUF files it is read from the metadata.
//! - Parameters have the reference's names, so that a state dict loads without a map of names.
//! - `new` builds a model from its configuration and a source of parameters: a generator, whose numbers are
//!   initial values for a training, or a [`WeightSource`], such as a file or a state dict. Its tensors
//!   match if none is missing, has another shape, or is left over. `from_folder` reads both from files.
//! - In [`vision`], [`audio`] and [`diffusion`], configurations have the reference's presets as functions. A
//!   network by `new` is in the mode for training, as in PyTorch, and one from files in that for evaluation.
//! - Each architecture is compared with its reference: values, a loss and gradients of a small model with
//!   random weights, which `scripts/model_fixtures` makes. `docs/models.md` has the results.

mod as_layer;
mod attention;
pub mod audio;
mod bart;
mod bert;
mod cache;
mod chunks;
mod config;
pub mod diffusion;
mod gemma4;
pub mod generate;
mod gguf;
mod gpt2;
mod gpt_neox;
#[cfg(feature = "guidance")]
pub mod guidance;
mod language_model;
mod lfm2;
mod llama;
mod load;
mod mamba;
mod mixture;
mod modernbert;
pub mod pictures;
mod projected_attention;
mod recurrent;
mod rope;
mod rwkv7;
mod seq2seq;
pub mod serving;
mod smolvlm;
mod t5;
#[cfg(feature = "text")]
pub mod text;
pub mod vision;
mod weight_source;

pub use attention::{Masking, attend};
pub use bart::{Bart, BartConfig};
pub use bert::{Bert, BertClassifier, BertConfig, BertMaskedLm};
pub use cache::{KvCache, LayerCache};
pub use config::{Activation, read_config, read_labels};
pub use gemma4::{Gemma4, Gemma4Config, Gemma4LayerConfig};
pub use gpt_neox::{GptNeoX, GptNeoXConfig};
pub use gpt2::{Gpt2, Gpt2Config};
pub use language_model::LanguageModel;
pub use lfm2::{Lfm2, Lfm2Config};
pub use llama::{Llama, LlamaConfig, RopeParameters};
pub use load::load_language_model;
pub use mamba::{Mamba, MambaConfig, TimeStepRank};
pub use modernbert::{ModernBert, ModernBertConfig, ModernBertMaskedLm};
pub use rope::{Rope, RopeScaling, RopeTables};
pub use rwkv7::{Rwkv7, Rwkv7Config};
pub use seq2seq::ConditionedDecoder;
pub use smolvlm::{SmolVlm, SmolVlmConfig};
pub use t5::{T5, T5Config, T5Decoder};
pub use tensor_core::PackedRows;
pub use weight_source::{Initial, WeightSource};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
