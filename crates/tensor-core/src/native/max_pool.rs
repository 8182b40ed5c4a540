//! [`MaxPool`]: the greatest element of each window, as a native kernel that a backend may implement. It
//! does not materialize the windows.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// The greatest element of each window of planes and its position, as a [`CustomKernel`] whose
/// implementation is this value itself: a backend that asks a [`Request`] for a `MaxPool` computes it
/// from these fields.
///
/// The input `[N, D, H, W]` is row-major and of a floating-point dtype. Element (a, b, c) of window (i,
/// j, k) of a plane is at (i·s₀ + a·d₀ − p₀, j·s₁ + b·d₁ − p₁, k·s₂ + c·d₂ − p₂) for strides s,
/// dilations d and paddings p; positions outside the plane are skipped. Results are the greatest
/// elements, `[N, outputs…]` of the input's dtype, and their flat positions in their planes, i32. NaN is
/// the greatest, and the first of equal elements wins. On a device without this kernel
/// ([`crate::Tensor::has_custom_kernel`]), the caller composes the operation from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool {
    /// The number of elements of a window along each axis.
    pub window: [usize; 3],
    /// The distance between windows.
    pub stride: [usize; 3],
    /// The distance between the elements of a window.
    pub dilation: [usize; 3],
    /// The distance by which the first window begins before the plane.
    pub padding: [usize; 3],
    /// The number of windows.
    pub outputs: [usize; 3],
}

impl MaxPool {
    /// The first element of window `i` along an axis that is within the plane.
    #[must_use]
    pub fn first(&self, axis: usize, i: usize) -> usize {
        let (start, pad, step) = (i * self.stride[axis], self.padding[axis], self.dilation[axis]);
        start + pad.saturating_sub(start).div_ceil(step) * step - pad
    }
}

impl CustomKernel for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        let [(planes, dtype)] = inputs else { return wrong(&"planes are needed") };
        let &[n, ref sizes @ ..] = planes.dims() else { return wrong(&"planes are [N, D, H, W]") };
        if sizes.len() != 3 || !dtype.is_float() {
            return wrong(&"planes are [N, D, H, W] of a floating-point dtype");
        }
        if sizes.iter().product::<usize>() > i32::MAX as usize {
            return wrong(&"i32 counts the elements of a plane");
        }
        for (axis, &size) in sizes.iter().enumerate() {
            let parts = [self.window[axis], self.stride[axis], self.dilation[axis], self.outputs[axis]];
            if parts.contains(&0) {
                return wrong(&"windows, strides, dilations and numbers of windows are above 0");
            }
            let reach = (self.window[axis] - 1).checked_mul(self.dilation[axis]);
            let last = (self.outputs[axis] - 1).checked_mul(self.stride[axis]);
            // The first window ends earliest, and the last one begins latest; windows that begin before
            // the plane may miss it.
            let before = self.padding[axis].div_ceil(self.stride[axis]).min(self.outputs[axis]);
            let within = matches!((reach, last), (Some(reach), Some(_)) if reach >= self.padding[axis])
                && (0..before).chain([self.outputs[axis] - 1]).all(|i| self.first(axis, i) < size);
            if !within {
                return wrong(&"every window has an element within the plane");
            }
        }
        let shape: Shape = [n].into_iter().chain(self.outputs).collect();
        Ok(vec![(shape.clone(), *dtype), (shape, DType::I32)])
    }

    fn key(&self) -> Vec<u64> {
        let of = [self.window, self.stride, self.dilation, self.padding, self.outputs];
        of.iter().flatten().map(|&n| n as u64).collect()
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(window: usize, stride: usize, dilation: usize, padding: usize, outputs: usize) -> MaxPool {
        MaxPool {
            window: [1, 1, window],
            stride: [1, 1, stride],
            dilation: [1, 1, dilation],
            padding: [0, 0, padding],
            outputs: [1, 1, outputs],
        }
    }

    fn fits(pool: MaxPool, size: usize) -> bool {
        pool.results(&[(Shape::from([2, 1, 1, size]), DType::F32)]).is_ok()
    }

    #[test]
    fn every_window_has_an_element() {
        assert!(fits(of(3, 2, 1, 1, 4), 7));
        assert!(fits(of(3, 2, 1, 1, 5), 8), "the last window has one element, the plane's last");
        assert!(!fits(of(3, 2, 1, 1, 5), 7), "the last window begins past the end");
        assert!(!fits(of(2, 1, 1, 2, 3), 7), "the first window ends before the plane");
        assert!(fits(of(2, 1, 9, 8, 4), 5));
        assert!(!fits(of(2, 1, 9, 8, 9), 5), "elements of the fifth window lie on both sides of the plane");
        assert!(!fits(of(2, usize::MAX, 1, 0, 3), 7));
        assert!(!fits(of(0, 1, 1, 0, 3), 7));
        assert!(of(1, 1, 1, 0, 1).results(&[(Shape::from([2, 3]), DType::F32)]).is_err());
        assert!(of(1, 1, 1, 0, 1).results(&[(Shape::from([2, 1, 1, 3]), DType::I32)]).is_err());
    }

    #[test]
    fn the_first_element_within() {
        let pool = of(3, 2, 2, 1, 4);
        assert_eq!([0, 1, 2].map(|i| pool.first(2, i)), [1, 1, 3]);
    }
}
