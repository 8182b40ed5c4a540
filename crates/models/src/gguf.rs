//! GGUF files under the names of `transformers`: tensors, and the numbers of their metadata.

use tensor_core::{BlockFormat, Device, Error, GgmlType, Result, Tensor, file::file_error};
use weights::{GgufValue, WeightFile};

/// How a tensor of a GGUF file differs from the reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    None,
    /// Rows of queries or keys with this many heads: the converter put the halves of each head in turns, so
    /// that neighbours rotate.
    Interleaved(usize),
    /// The converter added 1 to the weight of a norm.
    OneMore,
    /// The converter removed this axis of size 1.
    Squeezed(usize),
    /// The logarithm of the file's numbers, whose signs the converter changed.
    Decay,
    /// The file may have the parts for keys, with transposed matrices, and for values as two tensors of
    /// matrices for each head.
    OfHeads,
}

/// The names of tensors in GGUF files for decoders. A part that is missing here has the same name.
const OUTER: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("model.embedding_norm", "token_embd_norm"),
    ("model.embed_tokens_per_layer", "per_layer_token_embd"),
    ("model.per_layer_model_projection", "per_layer_model_proj"),
    ("model.per_layer_projection_norm", "per_layer_proj_norm"),
    ("lm_head", "output"),
];

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
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.router", "ffn_gate_inp"),
    ("mlp.experts.gate_proj", "ffn_gate_exps"),
    ("mlp.experts.up_proj", "ffn_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("mlp.shared_experts.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_experts.up_proj", "ffn_up_shexp"),
    ("mlp.shared_experts.down_proj", "ffn_down_shexp"),
    ("block_sparse_moe.gate", "ffn_gate_inp"),
    ("block_sparse_moe.experts.w1", "ffn_gate_exps"),
    ("block_sparse_moe.experts.w3", "ffn_up_exps"),
    ("block_sparse_moe.experts.w2", "ffn_down_exps"),
    ("self_attn.q_a_proj", "attn_q_a"),
    ("self_attn.q_a_layernorm", "attn_q_a_norm"),
    ("self_attn.q_b_proj", "attn_q_b"),
    ("self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"),
    ("self_attn.kv_a_layernorm", "attn_kv_a_norm"),
    ("self_attn.kv_b_proj", "attn_kv_b"),
    ("input_layernorm", "attn_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_qkvz", "ssm_in"),
    ("linear_attn.in_proj_ba", "ssm_ba"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
    ("operator_norm", "attn_norm"),
    ("ffn_norm", "ffn_norm"),
    ("self_attn.out_proj", "attn_output"),
    ("self_attn.q_layernorm", "attn_q_norm"),
    ("self_attn.k_layernorm", "attn_k_norm"),
    ("conv.conv", "shortconv.conv"),
    ("conv.in_proj", "shortconv.in_proj"),
    ("conv.out_proj", "shortconv.out_proj"),
    ("feed_forward.w1", "ffn_gate"),
    ("feed_forward.w3", "ffn_up"),
    ("feed_forward.w2", "ffn_down"),
    ("feed_forward.gate", "ffn_gate_inp"),
    ("feed_forward.experts.w1", "ffn_gate_exps"),
    ("feed_forward.experts.w3", "ffn_up_exps"),
    ("feed_forward.experts.w2", "ffn_down_exps"),
    ("post_self_attn_layernorm", "post_attention_norm"),
    ("post_mlp_layernorm", "post_ffw_norm"),
    ("per_layer_input_gate", "inp_gate"),
    ("per_layer_projection", "proj"),
    ("post_per_layer_input_norm", "post_norm"),
    ("router.proj", "ffn_gate_inp"),
    ("experts.gate_proj", "ffn_gate_exps"),
    ("experts.up_proj", "ffn_up_exps"),
    ("experts.down_proj", "ffn_down_exps"),
    ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
    ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
    ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
];

/// Parameters whose last name differs: the module and the name in a layer, and the name in the file.
const LEAVES: &[(&str, &str, &str)] = &[
    ("self_attn", "sinks", "attn_sinks.weight"),
    ("linear_attn", "dt_bias", "ssm_dt.bias"),
    ("linear_attn", "A_log", "ssm_a"),
    ("mlp.gate", "e_score_correction_bias", "exp_probs_b.bias"),
    ("feed_forward", "expert_bias", "exp_probs_b.bias"),
    ("", "layer_scalar", "layer_output_scale.weight"),
    ("router", "scale", "ffn_gate_inp.scale"),
    ("router", "per_expert_scale", "ffn_down_exps.scale"),
    ("experts", "gate_up_proj", "ffn_gate_up_exps.weight"),
    ("experts", "down_proj", "ffn_down_exps.weight"),
];

/// Where a GGUF file has the tensors that a model asks for.
#[derive(Clone, Debug)]
pub(crate) struct GgufNames {
    /// The file has `post_attention_layernorm` as `post_attention_norm`, not as the norm before the feed
    /// forward layer.
    pub(crate) own_norm: bool,
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
        let inside = module.strip_prefix("model.layers.")?;
        let (layer, part) = inside.split_once('.').unwrap_or((inside, ""));
        if let Some((.., renamed)) = LEAVES.iter().find(|(module, name, _)| (*module, *name) == (part, leaf))
        {
            let change = if leaf == "A_log" { Change::Decay } else { Change::None };
            return Some((format!("blk.{layer}.{renamed}"), change));
        }
        let renamed = match (part, self.own_norm) {
            ("post_attention_layernorm", true) => "post_attention_norm",
            ("post_attention_layernorm", false) => "ffn_norm",
            _ => INNER.iter().find(|(known, _)| *known == part)?.1,
        };
        let change = match (part, self.interleaved) {
            ("self_attn.q_proj", Some((heads, _))) => Change::Interleaved(heads),
            ("self_attn.k_proj", Some((_, heads))) => Change::Interleaved(heads),
            ("self_attn.kv_b_proj", _) => Change::OfHeads,
            ("mlp.shared_expert_gate", _) => Change::Squeezed(0),
            ("conv.conv" | "linear_attn.conv1d", _) if leaf == "weight" => Change::Squeezed(1),
            ("linear_attn.norm", _) => Change::None,
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
            Change::Decay => Ok(file.tensor(&stored, device)?.neg().log()),
            Change::OneMore => Ok(file.tensor(&stored, device)?.sub_scalar(1.0)),
            Change::Squeezed(axis) => {
                let tensor = file.tensor(&stored, device)?;
                // Files of other converters may have the axis.
                if tensor.dims().contains(&1) { Ok(tensor) } else { tensor.dequantize().unsqueeze(axis) }
            }
            Change::OfHeads if file.info(&stored).is_some() => file.tensor(&stored, device),
            Change::OfHeads => {
                let part = |kind: &str| file.tensor(&stored.replace("kv_b", kind), device);
                let (keys, values) = (part("k_b")?.dequantize(), part("v_b")?.dequantize());
                let rank = values.dims().last().copied().unwrap_or(1);
                let joint = Tensor::concat(&[keys.transpose(-1, -2)?, values], 1)?;
                joint.reshape([joint.numel() / rank.max(1), rank])
            }
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
    rows_of(&tensor, &order.collect::<Vec<usize>>())
}

/// GGUF's format of a tensor in blocks, whose rows can be moved as bytes.
pub(crate) fn ggml_type(tensor: &Tensor) -> Option<GgmlType> {
    let format = tensor.block_format()?;
    GgmlType::ALL.into_iter().find(|known| known.name() == format.name())
}

/// These rows of a tensor, in this order. Rows in GGUF's blocks move as bytes and stay in blocks.
#[track_caller]
pub(crate) fn rows_of(tensor: &Tensor, order: &[usize]) -> Result<Tensor> {
    let (dims, device) = (tensor.dims(), tensor.device());
    let Some(format) = ggml_type(tensor) else {
        let (order, count) = (order.iter().map(|&row| row as i32).collect(), order.len());
        return tensor.index_select(0, &Tensor::from_vec(order, [count], &device)?);
    };
    let bytes = tensor.block_bytes()?;
    let each = bytes.len() / dims[0].max(1);
    let moved: Vec<u8> = order.iter().flat_map(|row| bytes[row * each..][..each].iter().copied()).collect();
    let shape: Vec<usize> = [order.len()].iter().chain(&dims[1..]).copied().collect();
    Tensor::from_blocks(format, shape, tensor.dtype(), &moved, &device)
}

/// The parts of a tensor along its first axis, each with its own values. Those in GGUF's blocks stay in
/// blocks.
#[track_caller]
pub(crate) fn parts_of(tensor: &Tensor) -> Result<Vec<Tensor>> {
    let Some(format) = ggml_type(tensor) else {
        return tensor.unbind(0)?.iter().map(|part| part.dequantize().contiguous()).collect();
    };
    let (dims, bytes) = (tensor.dims(), tensor.block_bytes()?);
    let each = bytes.len() / dims[0].max(1);
    let part = |bytes| Tensor::from_blocks(format, &dims[1..], tensor.dtype(), bytes, &tensor.device());
    bytes.chunks_exact(each.max(1)).map(part).collect()
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

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(GgufValue::as_bool)
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
