//! The configuration of SmolVLM and Idefics 3.

use std::path::Path;

use serde_json::{Map, Value, json};
use tensor_core::{Error, Result, file::file_error};

use super::OP;
use crate::{LlamaConfig, read_config, vision::SiglipVisionConfig};

/// The configuration of a [`SmolVlm`](super::SmolVlm): the fields of transformers' `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct SmolVlmConfig {
    /// The encoder of pictures, a SigLIP without its pooling head.
    pub vision_config: SiglipVisionConfig,
    /// The decoder.
    pub text_config: LlamaConfig,
    /// The side of the square of patches that become one vector.
    pub scale_factor: usize,
    /// The token in whose place a picture stands.
    pub image_token_id: u32,
}

impl SmolVlmConfig {
    /// The configuration in the `config.json` of a folder.
    ///
    /// # Errors
    /// A `File` error for fields of another model.
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>) -> Result<SmolVlmConfig> {
        let path = path.as_ref();
        let fields: Map<String, Value> = read_config(path)?;
        SmolVlmConfig::of(fields).map_err(|error| {
            let message = format!("is no configuration of this model: {error}");
            file_error(&path.join("config.json"), message)
        })
    }

    fn of(mut fields: Map<String, Value>) -> std::result::Result<SmolVlmConfig, serde_json::Error> {
        let part = |fields: &mut Map<String, Value>, name: &str, defaults: Value| {
            let mut all = defaults.as_object().cloned().unwrap_or_default();
            if let Some(Value::Object(given)) = fields.remove(name) {
                all.extend(given);
            }
            all
        };
        let vision = json!({
            "hidden_size": 1152, "intermediate_size": 3072, "num_attention_heads": 16, "patch_size": 32,
            "vision_use_head": false,
        });
        let vision = part(&mut fields, "vision_config", vision);
        let mut text = part(&mut fields, "text_config", json!({"model_type": "llama", "rms_norm_eps": 1e-5}));
        if let Some(tied) = fields.remove("tie_word_embeddings") {
            text.insert("tie_word_embeddings".to_string(), tied);
        }
        let number = |name: &str, default: u32| match fields.get(name) {
            Some(value) => serde_json::from_value(value.clone()),
            None => Ok(default),
        };
        Ok(SmolVlmConfig {
            scale_factor: number("scale_factor", 2)? as usize,
            image_token_id: number("image_token_id", 128_257)?,
            vision_config: serde_json::from_value(Value::Object(vision))?,
            text_config: serde_json::from_value(Value::Object(text))?,
        })
    }

    /// The number of patches along a side of a tile.
    pub(super) fn side(&self) -> usize {
        self.vision_config.image_size / self.vision_config.patch_size.max(1)
    }

    /// The number of vectors of a tile.
    pub fn tile_tokens(&self) -> usize {
        (self.side() / self.scale_factor.max(1)).pow(2)
    }

    pub(super) fn check(&self) -> Result<()> {
        let (side, scale) = (self.side(), self.scale_factor);
        if scale == 0 || side == 0 || !side.is_multiple_of(scale) {
            let message = format!("{side} patches along a side, and a scale_factor of {scale}");
            return Err(Error::invalid(OP, message));
        }
        if self.image_token_id as usize >= self.text_config.vocab_size {
            let (token, count) = (self.image_token_id, self.text_config.vocab_size);
            return Err(Error::invalid(OP, format!("image_token_id is {token}, of {count} tokens")));
        }
        Ok(())
    }
}
