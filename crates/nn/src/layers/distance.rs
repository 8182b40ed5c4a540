//! Distances of two inputs, and local response normalization, as layers.

use std::fmt;

use tensor_core::{Result, Tensor};

use super::{layer, record, stateless};
use crate::functions;

/// The cosine similarity of two tensors along an axis:
/// [`functional::cosine_similarity`](crate::functional::cosine_similarity).
/// `torch.nn.CosineSimilarity`.
#[derive(Clone, Copy, Debug)]
pub struct CosineSimilarity {
    /// The axis, 1 by default.
    pub axis: isize,
    /// The least norm in the denominator: 1e-8 by default.
    pub eps: f64,
}

impl Default for CosineSimilarity {
    fn default() -> CosineSimilarity {
        CosineSimilarity { axis: 1, eps: 1e-8 }
    }
}

impl CosineSimilarity {
    /// The cosine similarities; the axis is removed.
    ///
    /// # Errors
    /// As [`functional::cosine_similarity`](crate::functional::cosine_similarity).
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        record!(self, functions::cosine_similarity(x1, x2, self.axis, self.eps))
    }
}

/// The p-norm of two tensors' difference along the last axis:
/// [`functional::pairwise_distance`](crate::functional::pairwise_distance).
/// `torch.nn.PairwiseDistance`.
#[derive(Clone, Copy, Debug)]
pub struct PairwiseDistance {
    /// The power of the norm, 2 by default.
    pub p: f64,
    /// Added to the difference: 1e-6 by default.
    pub eps: f64,
    /// Whether the axis is kept with size 1. Off by default.
    pub keepdim: bool,
}

impl Default for PairwiseDistance {
    fn default() -> PairwiseDistance {
        PairwiseDistance { p: 2.0, eps: 1e-6, keepdim: false }
    }
}

impl PairwiseDistance {
    /// The distances.
    ///
    /// # Errors
    /// As [`functional::pairwise_distance`](crate::functional::pairwise_distance).
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        let distance = functions::pairwise_distance(x1, x2, self.p, self.eps)?;
        record!(self, if self.keepdim { distance.unsqueeze(-1) } else { Ok(distance) })
    }
}

/// Divides each element by a power of the mean square of neighbouring channels:
/// [`functional::local_response_norm`](crate::functional::local_response_norm). `torch.nn.LocalResponseNorm`.
#[derive(Clone, Copy)]
pub struct LocalResponseNorm {
    /// The number of neighbouring channels.
    pub size: usize,
    /// The factor α of the mean square: 1e-4 by default.
    pub alpha: f64,
    /// The exponent β: 0.75 by default.
    pub beta: f64,
    /// The constant k that is added to the mean square: 1 by default.
    pub k: f64,
}

impl LocalResponseNorm {
    /// A layer over `size` channels, with PyTorch's other defaults.
    pub fn new(size: usize) -> LocalResponseNorm {
        LocalResponseNorm { size, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }

    /// The output for an input `[N, C, …]`.
    ///
    /// # Errors
    /// As [`functional::local_response_norm`](crate::functional::local_response_norm).
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, functions::local_response_norm(input, self.size, self.alpha, self.beta, self.k))
    }
}

impl fmt::Debug for LocalResponseNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LocalResponseNorm { size, alpha, beta, k } = self;
        write!(f, "LocalResponseNorm({size}, alpha={alpha:?}, beta={beta:?}, k={k:?})")
    }
}

stateless!(CosineSimilarity, PairwiseDistance, LocalResponseNorm);
layer!(LocalResponseNorm);
