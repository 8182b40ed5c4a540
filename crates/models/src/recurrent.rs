//! The part of a step that recurrent models share.

use tensor_core::{DType, Device, Result, Tensor};

use crate::KvCache;

/// Begins a step of tokens `[N, L]`, and gives its mask `[N, L, 1]`, which is 0 at the padding of a batch;
/// none if no token of the step is padding.
#[track_caller]
pub(crate) fn padding_mask(
    cache: Option<&mut KvCache>,
    [batch, length]: [usize; 2],
    dtype: DType,
    device: &Device,
) -> Result<Option<Tensor>> {
    let Some(cache) = cache else { return Ok(None) };
    cache.check_batch(batch)?;
    cache.begin(length, dtype, device)?;
    let (first, pads) = (cache.len(), cache.pads());
    if pads.iter().all(|&pad| pad <= first) {
        return Ok(None);
    }
    let seen = pads.iter().flat_map(|&pad| (first..first + length).map(move |at| at >= pad));
    let mask = Tensor::from_vec(seen.collect::<Vec<bool>>(), [pads.len(), length, 1], device)?;
    Ok(Some(mask.to_dtype(dtype)?))
}
