//! Reads and writes weight files of other libraries: PyTorch, safetensors, GGUF, NumPy. It needs no Python,
//! and runs no code from a file.
//!
//! | items | purpose |
//! |---|---|
//! | [`open`], [`WeightFile`] | any of these files: names, shapes, dtypes, tensors one by one or all |
//! | [`LoadWeights`] | `model.load(path)` for every module |
//! | [`Value`] | the lists, dicts, numbers and texts around the tensors |
//! | [`save_torch`], [`save_npz`], [`save_npy`], [`save_sharded`], [`GgufWriter`] | writing |
//! | [`load_peft`], [`save_peft`] | folders of LoRA adapters, as Python's `peft` has them |
//! | [`HubCache`] | models that Hugging Face's libraries have downloaded, by name |
//! | `HubDownload` | downloads into that cache (feature `hub`) |
//! | [`GgufValue`], [`BlockType`] | the types of GGUF |
//! | [`nn::NameMap`] | renaming the tensors of a state dict |
//!
//! Loads a model's weights whose names differ from the file's:
//!
//! ```
//! use nn::{Linear, Module, NameMap};
//! use tensor_core::{Generator, Tensor};
//! # fn main() -> tensor_core::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("bert.pt");
//! let device = backend_cpu::cpu();
//! # weights::save_torch(&path, &nn::StateDict::from([
//! #     ("bert.pooler.dense.weight".to_string(), Tensor::ones([2, 3], &device)?),
//! #     ("bert.pooler.dense.bias".to_string(), Tensor::zeros([2], &device)?),
//! # ]))?;
//! let pooler = Linear::new(3, 2, &Generator::seed(0, &device))?;
//! let names = NameMap::new().strip("bert.pooler.dense.");
//! pooler.load_mapped(&weights::open(&path)?.state_dict(&device)?, &names)?;
//! assert_eq!(pooler.weight.to_vec::<f32>()?, [1.0; 6]);
//! # Ok(()) }
//! ```

mod archive;
mod bitsandbytes;
mod detect;
mod file;
mod formats;
mod gguf_value;
mod hub;
mod load;
mod ordered;
mod parsed;
mod peft;
mod read;
mod state;
mod stream;
mod tensor_info;
mod value;

pub use detect::{from_bytes, from_bytes_within, open, open_within};
pub use file::{Format, WeightFile};
pub use formats::{
    gguf::GgufWriter,
    npz::{save_npy, save_npz},
    safetensors::{ShardOptions, save_sharded},
    torch::save_torch,
};
pub use gguf_value::{GgufArray, GgufValue};
pub use hub::HubCache;
#[cfg(feature = "hub")]
pub use hub::{HubDownload, HubProgress};
pub use load::LoadWeights;
pub use peft::{load_peft, save_peft};
pub use tensor_core::{BlockType, file::ReadBudget};
pub use tensor_info::{Encoding, TensorInfo};
pub use value::Value;

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
