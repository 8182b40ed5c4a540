//! [`Distances`]: distances between pairs of points, as a native kernel that a backend may implement. It
//! does not materialize the differences.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// The distances between points, which are rows, as a [`CustomKernel`] whose implementation is this
/// value itself: a backend that asks a [`Request`] for `Distances` computes them from these fields.
/// Inputs are row-major, of one floating-point dtype, and so is the result:
///
/// - points `[…, P, M]` and `[…, R, M]` with equal leading axes give `[…, P, R]`, the distance from each
///   of the first to each of the second;
/// - points `[…, N, M]` alone give `[…, N·(N − 1) / 2]`, the distances of the pairs (0, 1), (0, 2), …,
///   (1, 2), …
///
/// On a device without this kernel ([`crate::Tensor::has_custom_kernel`]), the caller composes the
/// operation from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distances {
    /// The metric.
    pub measure: Measure,
}

/// The metric of [`Distances`], as a function of the differences d of two points' coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Measure {
    /// The number of nonzero d.
    Unequal,
    /// Σ|d|.
    Sum,
    /// √Σd².
    Euclidean,
    /// max |d|; NaN if any d is NaN.
    Greatest,
}

impl Measure {
    /// The metric of the p-norm, if it is one of these.
    #[must_use]
    pub fn of_power(p: f64) -> Option<Measure> {
        match p {
            0.0 => Some(Measure::Unequal),
            1.0 => Some(Measure::Sum),
            2.0 => Some(Measure::Euclidean),
            f64::INFINITY => Some(Measure::Greatest),
            _ => None,
        }
    }
}

impl CustomKernel for Distances {
    fn name(&self) -> &'static str {
        "distances"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        let (Some((points, dtype)), rest) = (inputs.first(), inputs.get(1..).unwrap_or_default()) else {
            return wrong(&"points are needed");
        };
        let &[ref lead @ .., n, m] = points.dims() else { return wrong(&"points are rows of matrices") };
        if !dtype.is_float() {
            return wrong(&"points are of a floating-point dtype");
        }
        let shape = match rest {
            [] => lead.iter().copied().chain([n * n.saturating_sub(1) / 2]).collect(),
            [(others, of_others)] => match *others.dims() {
                [ref other @ .., r, k] if other == lead && k == m && of_others == dtype => {
                    lead.iter().copied().chain([n, r]).collect()
                }
                _ => {
                    return wrong(
                        &"the other points have as many coordinates, of the same dtype, and the same leading axes",
                    );
                }
            },
            _ => return wrong(&"points are one tensor or two"),
        };
        Ok(vec![(shape, *dtype)])
    }

    fn key(&self) -> Vec<u64> {
        vec![self.measure as u64]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }

    fn is_batched(&self) -> bool {
        true
    }
}
