//! Greatest and least elements so far as data: [`RunningExtreme`], a kernel that a backend may have of its
//! own. One pass gives elements and places.

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// The greatest elements so far along the last axis, or the least, and their places there, as a
/// [`CustomKernel`] whose implementation is this very value: a backend that asks a [`Request`] for a
/// `RunningExtreme` computes them by what is written here. A row-major tensor of at least one axis, no longer
/// than i32 counts, gives one of its shape and dtype, and i64 places: the last among equals, of which −0 and
/// 0 are two. A NaN stays. Where a device has no such kernel ([`crate::Tensor::has_custom_kernel`]), the
/// caller reads the elements by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningExtreme {
    /// Whether it is the least.
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
