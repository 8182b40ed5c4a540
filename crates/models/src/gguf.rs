//! GGUF files under the names of `transformers`: tensors, and the numbers of their metadata.

use tensor_core::{Device, Error, Result, Tensor, file::file_error};
use weights::{Encoding, GgufValue, WeightFile};

/// How a tensor of a GGUF file differs from the reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    None,
    /// Rows of queries or keys with this many heads: the converter put the halves of each head in turns, so
    /// that neighbours rotate.
    Interleaved(usize),
    /// The converter added 1 to the weight of a norm.
    OneMore,
}

/// The names of tensors in GGUF files for decoders. A part that is missing here has the same name.
const OUTER: &[(&str, &str)] =
    &[("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// The names inside a layer.
const INNER: &[(&str, &str)] = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Where a GGUF file has the tensors that a model asks for.
#[derive(Clone, Debug)]
pub(crate) struct GgufNames {
    /// The norm after attention is a norm of its own, as in Gemma 2 and 3, not the one before the feed
    /// forward layer.
    pub(crate) sandwich: bool,
    pub(crate) one_more: bool,
    /// The heads of queries and of keys, if their rows are interleaved.
    pub(crate) interleaved: Option<(usize, usize)>,
}

impl GgufNames {
    /// The name in the file, and how the tensor differs.
    pub(crate) fn find(&self, name: &str) -> Option<(String, Change)> {
        let (module, leaf) = name.rsplit_once('.')?;
        let norm = if self.one_more { Change::OneMore } else { Change::None };
        if let Some((known, renamed)) = OUTER.iter().find(|(known, _)| *known == module) {
            let change = if known.ends_with("norm") { norm } else { Change::None };
            return Some((format!("{renamed}.{leaf}"), change));
        }
        let (layer, part) = module.strip_prefix("model.layers.")?.split_once('.')?;
        let renamed = match (part, self.sandwich) {
            ("post_attention_layernorm", true) => "post_attention_norm",
            ("post_attention_layernorm", false) => "ffn_norm",
            _ => INNER.iter().find(|(known, _)| *known == part)?.1,
        };
        let change = match (part, self.interleaved) {
            ("self_attn.q_proj", Some((heads, _))) => Change::Interleaved(heads),
            ("self_attn.k_proj", Some((_, heads))) => Change::Interleaved(heads),
            _ if part.ends_with("norm") => norm,
            _ => Change::None,
        };
        Some((format!("blk.{layer}.{renamed}.{leaf}"), change))
    }

    /// The tensor with the reference's name, as the reference has it. Blocks stay in blocks.
    #[track_caller]
    pub(crate) fn read(&self, file: &WeightFile, name: &str, device: &Device) -> Result<Tensor> {
        let Some((stored, change)) = self.find(name) else {
            return Err(file_error(file.path(), format!("has no known name for \"{name}\"")));
        };
        match change {
            Change::None => file.tensor(&stored, device),
            Change::OneMore => Ok(file.tensor(&stored, device)?.sub_scalar(1.0)),
            Change::Interleaved(heads) => separated(file, &stored, heads, device),
        }
    }
}

/// A tensor whose rows 0, 1, 2, … of each head become rows 0, 2, 4, … and then 1, 3, 5, …. Rows of blocks
/// move as bytes.
#[track_caller]
fn separated(file: &WeightFile, name: &str, heads: usize, device: &Device) -> Result<Tensor> {
    let tensor = file.tensor(name, device)?;
    let rows = tensor.dims().first().copied().unwrap_or(0);
    let width = rows / heads.max(1);
    if heads == 0 || width * heads != rows || !width.is_multiple_of(2) {
        let message = format!("has {rows} rows of \"{name}\" for {heads} heads");
        return Err(file_error(file.path(), message));
    }
    let order = (0..rows).map(|row| {
        let (head, at) = (row / width, row % width);
        let half = width / 2;
        head * width + if at < half { 2 * at } else { 2 * (at - half) + 1 }
    });
    let is_blocks = file.info(name).is_some_and(|info| matches!(info.encoding(), Encoding::Blocks(_)));
    let Some(format) = tensor.block_format().filter(|_| is_blocks) else {
        let order: Vec<i32> = order.map(|row| row as i32).collect();
        return tensor.index_select(0, &Tensor::from_vec(order, [rows], device)?);
    };
    let bytes = tensor.block_bytes()?;
    let each = bytes.len() / rows;
    let moved: Vec<u8> = order.flat_map(|row| bytes[row * each..][..each].iter().copied()).collect();
    Tensor::of_blocks("gguf", format, tensor.shape(), tensor.dtype(), &moved, device)
}

/// The metadata of a GGUF file for its architecture: `llama.block_count` is `count("block_count")`.
pub(crate) struct Metadata<'a> {
    file: &'a WeightFile,
    pub(crate) architecture: &'a str,
}

impl<'a> Metadata<'a> {
    #[track_caller]
    pub(crate) fn of(file: &'a WeightFile) -> Result<Metadata<'a>> {
        match file.gguf_metadata().get("general.architecture").and_then(GgufValue::as_str) {
            Some(architecture) => Ok(Metadata { file, architecture }),
            None => {
                Err(file_error(file.path(), "has no general.architecture: is it a GGUF file of a model?"))
            }
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a GgufValue> {
        self.file.gguf_metadata().get(&format!("{}.{key}", self.architecture))
    }

    pub(crate) fn count(&self, key: &str) -> Option<usize> {
        self.get(key).and_then(GgufValue::as_u64).map(|number| number as usize)
    }

    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.get(key).and_then(GgufValue::as_f64)
    }

    #[track_caller]
    pub(crate) fn needed(&self, key: &str) -> Result<usize> {
        match self.count(key) {
            Some(number) => Ok(number),
            None => {
                let message = format!("has no number {}.{key} in its metadata", self.architecture);
                Err(file_error(self.file.path(), message))
            }
        }
    }

    /// An error that names the file.
    #[track_caller]
    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        file_error(self.file.path(), message)
    }
}
