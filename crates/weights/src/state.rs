//! Prepares state dicts for writing.

use nn::StateDict;
use tensor_core::{Error, Result, Tensor, eval_all};

/// The tensors of a state dict, computed, decoded and contiguous, so that errors occur before anything is
/// written.
#[track_caller]
pub(crate) fn computed(dict: &StateDict) -> Result<Vec<(&str, Tensor)>> {
    Error::here_in(eval_all(&dict.values().collect::<Vec<_>>()))?;
    let tensors =
        dict.iter().map(|(name, tensor)| Ok((name.as_str(), tensor.detach().dequantize().contiguous()?)));
    tensors.collect()
}
