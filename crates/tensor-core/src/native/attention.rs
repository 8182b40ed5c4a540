//! Attention as data: [`Attention`], a kernel that a backend may have of its own. It never holds a score for
//! each query and key.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// One pass of attention, out = dropout(softmax(query · keyᵀ · scale + mask)) · value, as a [`CustomKernel`]
/// whose implementation is this very value: a backend that asks a [`Request`] for an `Attention` computes it
/// by what is written here, in tiles of queries and keys.
///
/// Inputs and results of each pass are listed at [`AttentionPass`], with batch axes `…` that are equal in all
/// of them, and of any strides. After them come, where the fields say so, a mask and a place in a stream of
/// random numbers. Where a device has no such kernel ([`crate::Tensor::has_custom_kernel`]), the caller
/// composes attention of other operations.
///
/// Dao: FlashAttention-2, faster attention with better parallelism and work partitioning (2023).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Which pass.
    pub pass: AttentionPass,
    /// What scores are multiplied by.
    pub scale: f64,
    /// Where it is `Some(first)`, query i sees keys 0 to `first` + i alone.
    pub causal: Option<usize>,
    /// Whether there is a mask, `[…, L, S]`: bool, true where a query sees a key, or numbers of the query's
    /// dtype that are added to the scores.
    pub mask: bool,
    /// The probability with which a weight is dropped. The last input is then i64 `[2]`: the seed and the
    /// offset of a stream, of which query i and key j of flat batch position b out of B draw element (i·B +
    /// b)·S + j of an f32 [`crate::RandomKind::Uniform`]. A weight is kept where that is not below the
    /// probability.
    pub dropout: Option<f64>,
}

/// The passes of [`Attention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionPass {
    /// query `[…, L, E]`, key `[…, S, E]`, value `[…, S, V]` → out `[…, L, V]`, and the logarithm of the sum
    /// of each query's exponentiated scores, `[…, L]`. A query that sees no key gives zeros and a logarithm
    /// of +∞.
    Forward,
    /// query, key, value, out, logarithms, the gradient with respect to out → the gradients with respect to
    /// query, key and value.
    Backward,
}

impl AttentionPass {
    /// How many tensors it reads before the mask.
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
        if wanted.iter().zip(inputs).any(|(wanted, (shape, own))| wanted != shape || own != dtype) {
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
            && !rest.next().is_some_and(|(place, own)| place.dims() == [2] && *own == DType::I64)
        {
            return wrong(&"the place in the stream is i64 [2]");
        }
        Ok(match self.pass {
            AttentionPass::Forward => vec![(out, *dtype), (logarithms, *dtype)],
            AttentionPass::Backward => [query, key, value].map(|t| (t.clone(), *dtype)).into(),
        })
    }

    fn key(&self) -> Vec<u64> {
        let pass = match self.pass {
            AttentionPass::Forward => 0,
            AttentionPass::Backward => 1,
        };
        let causal = self.causal.map_or(0, |first| first as u64 + 1);
        // A probability is not NaN.
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
