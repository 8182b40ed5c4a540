//! [`Nonzero`]: the indices of true elements, as a native kernel that a backend may implement.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// The indices of a mask's true elements, as a [`CustomKernel`] whose implementation is this value
/// itself: a backend that asks a [`Request`] for `Nonzero` computes them from these fields. A row-major
/// bool mask of any shape gives i64 `[count, rank]`: the coordinates of each true element, in row-major
/// order. The caller has counted them; another count is an error of the launch. On a device without this
/// kernel ([`crate::Tensor::has_custom_kernel`]), the caller composes the operation: a running count
/// gives the output row of each true element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonzero {
    /// The number of true elements.
    pub count: usize,
}

impl CustomKernel for Nonzero {
    fn name(&self) -> &'static str {
        "nonzero"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        match inputs {
            [(mask, DType::Bool)] if self.count <= mask.numel() => {
                Ok(vec![([self.count, mask.rank()].into(), DType::I64)])
            }
            _ => wrong(&"a mask of bools with at least as many elements is needed"),
        }
    }

    fn key(&self) -> Vec<u64> {
        vec![self.count as u64]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }
}
