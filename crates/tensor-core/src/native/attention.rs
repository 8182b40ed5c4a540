//! [`Attention`]: fused attention as a native kernel, which a backend may implement. It never stores the
//! matrix of scores.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// One pass of attention, out = dropout(softmax(query · keyᵀ · scale + mask)) · value, as a
/// [`CustomKernel`] whose implementation is this value itself: a backend that asks a [`Request`] for an
/// `Attention` computes the pass from these fields, in tiles of queries and keys.
///
/// [`AttentionPass`] lists the inputs and results of each pass. Their batch axes `…` are equal in all of
/// them, and the inputs have any strides. A mask and a position in a stream of random numbers follow, if
/// the fields ask for them. On a device without this kernel ([`crate::Tensor::has_custom_kernel`]), the
/// caller composes attention from other operations.
///
/// Dao: FlashAttention-2, faster attention with better parallelism and work partitioning (2023).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// The pass to compute.
    pub pass: AttentionPass,
    /// The factor of the scores.
    pub scale: f64,
    /// `Some(first)`: query i sees only keys 0 to `first` + i.
    pub causal: Option<usize>,
    /// Whether there is a mask, `[…, L, S]`: either bool, true where a query sees a key, or numbers of
    /// the query's dtype that are added to the scores.
    pub mask: bool,
    /// The probability with which a weight is dropped. The last input is then u32 `[4]`: the low and the
    /// high word of the seed, and those of the offset of a random stream. Query i and key j of flat
    /// batch position b out of B use element (i·B + b)·S + j of an f32 [`crate::RandomKind::Uniform`];
    /// the weight is kept if that element is at least the probability.
    pub dropout: Option<f64>,
}

/// The passes of [`Attention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionPass {
    /// query `[…, L, E]`, key `[…, S, E]`, value `[…, S, V]` → out `[…, L, V]`, and the log-sum-exp of
    /// each query's scores, `[…, L]`, f32 for half types. A query that sees no key gives zeros, and +∞
    /// in place of the log-sum-exp.
    Forward,
    /// query, key, value, out, log-sum-exp, gradient of out → gradients of query, key and value.
    Backward,
}

impl AttentionPass {
    /// The number of input tensors before the mask.
    pub const fn inputs(self) -> usize {
        match self {
            AttentionPass::Forward => 3,
            AttentionPass::Backward => 6,
        }
    }
}

impl CustomKernel for Attention {
    fn name(&self) -> &'static str {
        match self.pass {
            AttentionPass::Forward => "attention",
            AttentionPass::Backward => "attention_backward",
        }
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let count = self.pass.inputs() + usize::from(self.mask) + usize::from(self.dropout.is_some());
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        if inputs.len() != count {
            return wrong(&format_args!("there are {} for {count}", inputs.len()));
        }
        let (query, dtype) = &inputs[0];
        let (key, value) = (&inputs[1].0, &inputs[2].0);
        let (&[ref batch @ .., rows, width], &[.., keys, features]) = (query.dims(), value.dims()) else {
            return wrong(&"each has the axes [..., length, features]");
        };
        let shape = |last: &[usize]| -> Shape { batch.iter().chain(last).copied().collect() };
        let (out, logarithms) = (shape(&[rows, features]), shape(&[rows]));
        let mut wanted = vec![shape(&[rows, width]), shape(&[keys, width]), shape(&[keys, features])];
        if self.pass == AttentionPass::Backward {
            wanted.extend([out.clone(), logarithms.clone(), out.clone()]);
        }
        // The log-sum-exp is the fifth input of the backward pass.
        let dtypes = |k: usize| if k == 4 { dtype.compute() } else { *dtype };
        let mut all = wanted.iter().zip(inputs).enumerate();
        if all.any(|(k, (wanted, (shape, own)))| wanted != shape || *own != dtypes(k)) {
            return wrong(
                &"query [..., L, E], key [..., S, E] and value [..., S, V] have one dtype and equal batch axes",
            );
        }
        let mut rest = inputs[self.pass.inputs()..].iter();
        if self.mask
            && !rest.next().is_some_and(|(mask, own)| {
                *mask == shape(&[rows, keys]) && (*own == DType::Bool || own == dtype)
            })
        {
            return wrong(&"a mask is [..., L, S], of bool or the query's dtype");
        }
        if self.dropout.is_some()
            && !rest.next().is_some_and(|(place, own)| place.dims() == [4] && *own == DType::U32)
        {
            return wrong(&"the place in the stream is u32 [4]");
        }
        Ok(match self.pass {
            AttentionPass::Forward => vec![(out, *dtype), (logarithms, dtype.compute())],
            AttentionPass::Backward => [query, key, value].map(|t| (t.clone(), *dtype)).into(),
        })
    }

    fn key(&self) -> Vec<u64> {
        let pass = match self.pass {
            AttentionPass::Forward => 0,
            AttentionPass::Backward => 1,
        };
        let causal = self.causal.map_or(0, |first| first as u64 + 1);
        // Unambiguous as "none": a probability is never NaN.
        let dropout = self.dropout.map_or(u64::MAX, f64::to_bits);
        vec![pass, self.scale.to_bits(), causal, u64::from(self.mask), dropout]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }

    fn takes_strides(&self) -> bool {
        true
    }
}
