//! [`RunningExtreme`]: `cummax` and `cummin`, as a native kernel that a backend may implement. One pass
//! gives both elements and indices.

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// The greatest (or least) elements so far along the last axis, and their indices, as a [`CustomKernel`]
/// whose implementation is this value itself: a backend that asks a [`Request`] for a `RunningExtreme`
/// computes them from these fields. A row-major tensor with at least one axis, whose length fits in i32,
/// gives a tensor of its shape and dtype, and i64 indices: the last of equal elements wins, −0 and 0 are
/// equal, and NaN persists. On a device without this kernel ([`crate::Tensor::has_custom_kernel`]), the
/// caller gathers the elements by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningExtreme {
    /// Whether it is the least rather than the greatest.
    pub least: bool,
}

impl CustomKernel for RunningExtreme {
    fn name(&self) -> &'static str {
        if self.least { "cummin" } else { "cummax" }
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        match inputs {
            [(shape, dtype)] if shape.last().is_some_and(|&n| n <= i32::MAX as usize) => {
                Ok(vec![(shape.clone(), *dtype), (shape.clone(), DType::I64)])
            }
            _ => Err(misfit(self, inputs, &"one tensor with an axis that i32 counts is needed")),
        }
    }

    fn key(&self) -> Vec<u64> {
        vec![u64::from(self.least)]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }

    fn is_batched(&self) -> bool {
        true
    }
}
