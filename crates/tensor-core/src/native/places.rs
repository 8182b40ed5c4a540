//! Places among sorted numbers as data: [`Places`], a kernel that a backend may have of its own.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// How many of sorted numbers come before each value, as a [`CustomKernel`] whose implementation is this very
/// value: a backend that asks a [`Request`] for `Places` computes them by what is written here. Sorted
/// numbers `[…, n]` and values `[…, m]` of one dtype and equal leading axes, row-major, give i32 `[…, m]`: of
/// each row the numbers below a value, or not above it if `right`. NaN is the greatest, and equal to itself.
/// Where a device has no such kernel ([`crate::Tensor::has_custom_kernel`]), the caller composes it of other
/// operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Whether what equals a value comes before it.
    pub right: bool,
}

impl CustomKernel for Places {
    fn name(&self) -> &'static str {
        "searchsorted"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        let [(sorted, dtype), (values, of_values)] = inputs else {
            return wrong(&"sorted numbers and values are needed");
        };
        match (sorted.dims().split_last(), values.dims().split_last()) {
            (Some((&n, lead)), Some((_, other)))
                if lead == other && dtype == of_values && n <= i32::MAX as usize =>
            {
                Ok(vec![(values.clone(), DType::I32)])
            }
            _ => wrong(&"rows of sorted numbers, of at most i32's reach, take rows of values of their dtype"),
        }
    }

    fn key(&self) -> Vec<u64> {
        vec![u64::from(self.right)]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }

    fn is_batched(&self) -> bool {
        true
    }
}
