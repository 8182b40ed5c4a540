//! [`SearchSorted`]: the insertion points of values in sorted numbers, as a native kernel that
//! a backend may implement.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// For each value, the number of sorted numbers that precede it, as a [`CustomKernel`] whose
/// implementation is this value itself: a backend that asks a [`Request`] for `SearchSorted` computes it from
/// these fields. Sorted numbers `[…, n]` and values `[…, m]` of one dtype and equal leading axes,
/// row-major, give i32 `[…, m]`: in each row, the count of numbers less than a value, or less than or
/// equal to it if `right`. NaN is the greatest, and equal to itself. On a device without this kernel
/// ([`crate::Tensor::has_custom_kernel`]), the caller composes the operation from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchSorted {
    /// Whether numbers equal to a value precede it.
    pub right: bool,
}

impl CustomKernel for SearchSorted {
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
