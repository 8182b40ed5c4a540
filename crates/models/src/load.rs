//! Language models by the name in their configuration.

use std::path::Path;

use serde::Deserialize;
use tensor_core::{Device, Result, file::file_error};
use weights::GgufValue;

use crate::{Gemma4, Gpt2, GptNeoX, LanguageModel, Lfm2, Llama, Mamba, Rwkv7, SmolVlm, read_config};

/// The field of a configuration that says which model it is.
#[derive(Deserialize)]
struct ModelType {
    model_type: String,
}

type Load = fn(&Path, &Device) -> Result<Box<dyn LanguageModel + Send + Sync>>;

/// The loaders by `model_type`.
const LOADERS: &[(&[&str], Load)] = &[
    (
        &[
            "llama",
            "mistral",
            "mixtral",
            "qwen2",
            "qwen2_moe",
            "qwen3",
            "qwen3_moe",
            "gemma",
            "gemma2",
            "gemma3_text",
            "phi3",
            "gpt_oss",
            "glm4",
            "glm4_moe",
            "deepseek_v2",
            "deepseek_v3",
            "olmo2",
            "olmo3",
            "granite",
            "smollm3",
            "qwen3_next",
            "qwen3_5_text",
            "qwen3_5_moe_text",
            // These also read pictures; only the decoder is read.
            "qwen3_5",
            "qwen3_5_moe",
            "gemma3",
            "mistral3",
        ],
        |path, device| Ok(Box::new(Llama::from_folder(path, device)?)),
    ),
    (&["gemma4_text", "gemma4"], |path, device| Ok(Box::new(Gemma4::from_folder(path, device)?))),
    (&["lfm2", "lfm2_moe"], |path, device| Ok(Box::new(Lfm2::from_folder(path, device)?))),
    (&["smolvlm", "idefics3"], |path, device| Ok(Box::new(SmolVlm::from_folder(path, device)?))),
    (&["gpt2"], |path, device| Ok(Box::new(Gpt2::from_folder(path, device)?))),
    (&["gpt_neox"], |path, device| Ok(Box::new(GptNeoX::from_folder(path, device)?))),
    (&["mamba"], |path, device| Ok(Box::new(Mamba::from_folder(path, device)?))),
    (&["rwkv7"], |path, device| Ok(Box::new(Rwkv7::from_folder(path, device)?))),
];

/// A decoder from a folder with `config.json` and weights, whose `model_type` says which architecture it
/// has, or from a GGUF file. Threads may share it.
///
/// # Errors
/// A `File` error for a model that is not known, and those of the architecture's `from_folder`.
#[track_caller]
pub fn load_language_model(
    path: impl AsRef<Path>,
    device: &Device,
) -> Result<Box<dyn LanguageModel + Send + Sync>> {
    let path = path.as_ref();
    if !path.is_dir() {
        let file = weights::open(path)?;
        let architecture = file.gguf_metadata().get("general.architecture").and_then(GgufValue::as_str);
        return match architecture {
            Some("lfm2" | "lfm2moe") => Ok(Box::new(Lfm2::from_gguf(file, device)?)),
            Some("gemma4") => Ok(Box::new(Gemma4::from_gguf(file, device)?)),
            _ => Ok(Box::new(Llama::from_gguf(file, device)?)),
        };
    }
    let ModelType { model_type } = read_config(path)?;
    match LOADERS.iter().find(|(names, _)| names.contains(&model_type.as_str())) {
        Some((_, load)) => load(path, device),
        None => {
            let names: Vec<&str> = LOADERS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
            let message = format!("has the model_type \"{model_type}\"; known are {}", names.join(", "));
            Err(file_error(&path.join("config.json"), message))
        }
    }
}
