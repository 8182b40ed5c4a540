//! Attention by blocks of queries, with a gradient that recomputes the weights, so that no matrix of all
//! scores is stored.
//!
//! If the device has a kernel for [`Attention`], that computes everything. Otherwise a block is a few matrix
//! products and elementwise operations. Both use the same random numbers for dropout.

use std::sync::Arc;

use autograd::{Function, is_grad_enabled};
use tensor_core::{Attention, AttentionPass, DType, Error, Result, Tensor, eval_all};

use super::Weighting;

/// The number of queries in a block.
const QUERIES: usize = 256;

/// A function of query `[…, L, E]`, key `[…, S, E]`, value `[…, S, V]` and an optional mask `[…, L, S]`,
/// with equal batch axes. It returns the output and the log-sum-exp of each query's scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    pub(super) weighting: Weighting,
}

impl Function for Blocked {
    type Output = (Tensor, Tensor);

    fn name(&self) -> &'static str {
        "ScaledDotProductAttention"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<(Tensor, Tensor)> {
        let own: Vec<Tensor> = inputs.iter().map(|&t| t.clone()).collect();
        if let Some(results) = self.kernel(AttentionPass::Forward, &own[..3], own.get(3))? {
            return pair(results);
        }
        let wide = own.iter().map(widened).collect::<Result<Vec<Tensor>>>()?;
        let (out, logarithms) = self.forward_by_blocks(&wide)?;
        Ok((out.to_dtype(inputs[0].dtype())?, logarithms))
    }

    fn backward(
        &self,
        inputs: &[Tensor],
        (out, logarithms): &(Tensor, Tensor),
        (gradient, _): &(Option<Tensor>, Option<Tensor>),
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(gradient) = gradient else { return Ok(vec![None; inputs.len()]) };
        let found = if is_grad_enabled() {
            // Second derivatives are requested, so the gradient consists of operations that have one.
            let wide = inputs.iter().map(widened).collect::<Result<Vec<Tensor>>>()?;
            self.backward_of_whole(&wide, &widened(gradient)?)?
        } else {
            let mut given = inputs[..3].to_vec();
            given.extend([out.clone(), logarithms.clone(), gradient.to_dtype(inputs[0].dtype())?]);
            match self.kernel(AttentionPass::Backward, &given, inputs.get(3))? {
                Some(results) => results,
                None => {
                    let given = given.iter().map(widened).collect::<Result<Vec<Tensor>>>()?;
                    self.backward_by_blocks(&given, inputs.get(3).map(widened).transpose()?.as_ref())?
                }
            }
        };
        let mut gradients = Vec::with_capacity(inputs.len());
        for (found, input) in found.into_iter().zip(inputs) {
            gradients.push(Some(found.to_dtype(input.dtype())?));
        }
        // A mask that requires gradients does not reach this code.
        gradients.resize(inputs.len(), None);
        Ok(gradients)
    }
}

/// Reduced floats converted to f32.
#[track_caller]
fn widened(tensor: &Tensor) -> Result<Tensor> {
    if tensor.dtype().is_reduced_float() { tensor.to_dtype(DType::F32) } else { Ok(tensor.clone()) }
}

#[track_caller]
fn pair(results: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
    <[Tensor; 2]>::try_from(results)
        .map(|[out, logarithms]| (out, logarithms))
        .map_err(|found| Error::invalid(super::OP, format!("{} results for two", found.len())))
}

/// Queries `start..start + rows` and the keys that they attend to.
struct Block {
    start: usize,
    rows: usize,
    seen: usize,
    /// `[…, rows, E]`, `[…, seen, E]` and `[…, seen, V]`.
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// `[…, rows, seen]`.
    scores: Tensor,
    kept: Option<Tensor>,
}

impl Blocked {
    /// Whether the device has a kernel for query, key and value as they are.
    #[track_caller]
    pub(super) fn has_kernel(&self, inputs: &[Tensor]) -> Result<bool> {
        let Weighting { scale, causal, .. } = self.weighting;
        let kernel = Attention { pass: AttentionPass::Forward, scale, causal, mask: false, dropout: None };
        Tensor::has_custom_kernel(Arc::new(kernel), &inputs.iter().take(3).collect::<Vec<_>>())
    }

    /// Query, key, value and mask in f32, if the device has a kernel for that, which is for callers that
    /// found none for their half type: it rounds once, while composed operations round at each step.
    #[track_caller]
    pub(super) fn widened(&self, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        let dtype = inputs[0].dtype();
        if dtype.compute() == dtype {
            return Ok(None);
        }
        let mut wide = Vec::with_capacity(inputs.len());
        for input in inputs {
            let is_half = input.dtype() == dtype;
            wide.push(if is_half { input.to_dtype(dtype.compute())? } else { input.clone() });
        }
        Ok(self.has_kernel(&wide)?.then_some(wide))
    }

    /// The results of the device's own kernel, if it has one.
    #[track_caller]
    fn kernel(
        &self,
        pass: AttentionPass,
        inputs: &[Tensor],
        mask: Option<&Tensor>,
    ) -> Result<Option<Vec<Tensor>>> {
        let Weighting { scale, causal, draws } = self.weighting;
        let mut kernel = Attention { pass, scale, causal, mask: false, dropout: None };
        let mut all: Vec<&Tensor> = inputs.iter().collect();
        if !Tensor::has_custom_kernel(Arc::new(kernel), &all)? {
            return Ok(None);
        }
        kernel.mask = mask.is_some();
        all.extend(mask);
        let mut place = None;
        if let Some(draws) = draws {
            kernel.dropout = Some(draws.p);
            let words = [draws.seed, draws.first].map(|word| [word as u32, (word >> 32) as u32]);
            place = Some(Tensor::from_vec(words.concat(), [4], &inputs[0].device())?);
        }
        all.extend(place.as_ref());
        Tensor::custom_kernel(Arc::new(kernel), &all).map(Some)
    }

    #[track_caller]
    fn block(&self, inputs: &[Tensor], mask: Option<&Tensor>, start: usize) -> Result<Block> {
        let (query, key) = (&inputs[0], &inputs[1]);
        let (length, keys) = (query.dims()[query.rank() - 2], key.dims()[key.rank() - 2]);
        let rows = QUERIES.min(length - start);
        let seen = self.weighting.causal.map_or(keys, |first| keys.min(first + start + rows));
        let query = query.narrow(-2, start, rows)?;
        let (key, value) = (key.narrow(-2, 0, seen)?, inputs[2].narrow(-2, 0, seen)?);
        let mask = mask.map(|mask| mask.narrow(-2, start, rows)?.narrow(-1, 0, seen)).transpose()?;
        let scores = self.weighting.scores(&query, &key, mask.as_ref(), start)?;
        let kept = match self.weighting.draws {
            Some(draws) => {
                let batch = &query.dims()[..query.rank() - 2];
                let dims: Vec<usize> = batch.iter().copied().chain([rows, keys]).collect();
                Some(draws.kept(&dims, start, seen, query.dtype(), &query.device())?)
            }
            None => None,
        };
        Ok(Block { start, rows, seen, query, key, value, scores, kept })
    }

    #[track_caller]
    fn forward_by_blocks(&self, inputs: &[Tensor]) -> Result<(Tensor, Tensor)> {
        let length = inputs[0].dims()[inputs[0].rank() - 2];
        let (mut outs, mut logarithms) = (Vec::new(), Vec::new());
        for start in (0..length).step_by(QUERIES) {
            let Block { value, scores, kept, .. } = self.block(inputs, inputs.get(3), start)?;
            let greatest = scores.amax(-1, true)?;
            // A query whose keys are all masked: −∞ − −∞ would be NaN.
            let base = greatest.masked_fill(&greatest.eq_scalar(f64::NEG_INFINITY), 0.0)?;
            let weights = scores.sub(&base)?.exp();
            let sums = weights.sum_axis(-1, true)?;
            let blind = sums.eq_scalar(0.0);
            let weights = match kept {
                Some(kept) => weights.mul(&kept)?,
                None => weights,
            };
            outs.push(weights.matmul(&value)?.div(&sums.masked_fill(&blind, 1.0)?)?);
            logarithms.push(base.add(&sums.log())?.masked_fill(&blind, f64::INFINITY)?.squeeze(-1)?);
        }
        Ok((joined(outs, -2)?, joined(logarithms, -1)?))
    }

    #[track_caller]
    fn backward_by_blocks(&self, given: &[Tensor], mask: Option<&Tensor>) -> Result<Vec<Tensor>> {
        let (out, logarithms, gradient) = (&given[3], &given[4], &given[5]);
        let (length, keys) = (given[0].dims()[given[0].rank() - 2], given[1].dims()[given[1].rank() - 2]);
        let sums = out.mul(gradient)?.sum_axis(-1, true)?;
        // In a single evaluation the parts of all blocks would be added at its end, and exist together until
        // then.
        let is_long = length > QUERIES;
        if is_long {
            eval_all(&[gradient, &sums])?;
        }
        let mut of_query = Vec::new();
        let mut of_key_and_value: [Option<Tensor>; 2] = [None, None];
        for start in (0..length).step_by(QUERIES) {
            let Block { start, rows, seen, query, key, value, scores, kept } =
                self.block(given, mask, start)?;
            let part = |t: &Tensor| t.narrow(-2, start, rows);
            let gradient = part(gradient)?;
            let mut weights = scores.sub(&part(&logarithms.unsqueeze(-1)?)?)?.exp();
            let mut of_weights = gradient.matmul(&value.transpose(-2, -1)?)?;
            if let Some(kept) = &kept {
                of_weights = of_weights.mul(kept)?;
            }
            let of_scores = weights.mul(&of_weights.sub(&part(&sums)?)?)?.mul_scalar(self.weighting.scale);
            if let Some(kept) = &kept {
                weights = weights.mul(kept)?;
            }
            of_query.push(of_scores.matmul(&key)?);
            let parts =
                [of_scores.transpose(-2, -1)?.matmul(&query)?, weights.transpose(-2, -1)?.matmul(&gradient)?];
            for (total, part) in of_key_and_value.iter_mut().zip(parts) {
                let mut padding = vec![(0, 0); part.rank()];
                let axis = part.rank() - 2;
                padding[axis] = (0, keys - seen);
                let part = if seen < keys { part.pad(&padding, 0.0)? } else { part };
                *total = Some(match total.take() {
                    Some(total) => total.add(&part)?,
                    None => part,
                });
            }
            if is_long {
                let parts: Vec<&Tensor> =
                    of_query.last().into_iter().chain(of_key_and_value.iter().flatten()).collect();
                eval_all(&parts)?;
            }
        }
        Ok([Some(joined(of_query, -2)?)].into_iter().chain(of_key_and_value).flatten().collect())
    }

    /// Computes whole matrices of scores.
    #[track_caller]
    fn backward_of_whole(&self, inputs: &[Tensor], gradient: &Tensor) -> Result<Vec<Tensor>> {
        let (query, key, value) = (&inputs[0], &inputs[1], &inputs[2]);
        let weights = self.weighting.weights(query, key, inputs.get(3))?;
        let mut of_weights = gradient.matmul(&value.transpose(-2, -1)?)?;
        let mut dropped = weights.clone();
        if let Some(kept) = self.weighting.kept(&weights)? {
            of_weights = of_weights.mul(&kept)?;
            dropped = dropped.mul(&kept)?;
        }
        let sums = weights.mul(&of_weights)?.sum_axis(-1, true)?;
        let of_scores = weights.mul(&of_weights.sub(&sums)?)?.mul_scalar(self.weighting.scale);
        Ok(vec![
            of_scores.matmul(key)?,
            of_scores.transpose(-2, -1)?.matmul(query)?,
            dropped.transpose(-2, -1)?.matmul(gradient)?,
        ])
    }
}

#[track_caller]
fn joined(mut parts: Vec<Tensor>, axis: isize) -> Result<Tensor> {
    match parts.len() {
        1 => Ok(parts.remove(0)),
        _ => Tensor::concat(&parts, axis),
    }
}
