//! The parts of a step that recurrent models share.

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

/// The convolution of each feature of `x` `[N, L, features]` with the steps before it: those of `before`
/// `[N, kernel − 1, features]`, or zeros. `weight` is `[features, 1, kernel]`. The second result has the last
/// steps of both, for the next call.
#[track_caller]
pub(crate) fn causal_convolution(
    x: &Tensor,
    before: Option<&Tensor>,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<(Tensor, Tensor)> {
    let (kernel, length) = (weight.dims()[2], x.dims()[1]);
    let whole = match before {
        Some(before) => Tensor::concat(&[before, x], 1)?,
        None => x.pad(&[(0, 0), (kernel - 1, 0), (0, 0)], 0.0)?,
    };
    let weight = weight.squeeze(1)?.t()?;
    let mut sum = whole.narrow(1, 0, length)?.mul(&weight.select(0, 0)?)?;
    for k in 1..kernel {
        sum = sum.add(&whole.narrow(1, k, length)?.mul(&weight.select(0, k)?)?)?;
    }
    if let Some(bias) = bias {
        sum = sum.add(bias)?;
    }
    Ok((sum, whole.narrow(1, length, kernel - 1)?))
}
