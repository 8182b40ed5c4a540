//! Places of what is true as data: [`Nonzero`], a kernel that a backend may have of its own.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// The places of the elements of a mask that are true, as a [`CustomKernel`] whose implementation is this
/// very value: a backend that asks a [`Request`] for `Nonzero` computes them by what is written here. A bool
/// mask of any shape, row-major, gives i64 `[count, rank]`: the coordinates of each, in row-major order. The
/// caller has counted them; another count is an error of the launch. Where a device has no such kernel
/// ([`crate::Tensor::has_custom_kernel`]), the caller composes it: each true element goes to the place that a
/// running count gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonzero {
    /// How many elements are true.
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
