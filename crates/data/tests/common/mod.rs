//! The device of these tests: the plain reference backend, which is slow, exact, and can be made to fail.
#![allow(dead_code, clippy::unwrap_used)]

#[path = "../../../tensor-core/tests/reference/mod.rs"]
pub(crate) mod reference;

use tensor_core::{Device, Tensor};

/// A device of its own for each call.
pub(crate) fn device() -> Device {
    reference::reference()
}

/// Panics unless the tensor's elements are within 10⁻⁵ of these, relatively or absolutely; NaN is NaN.
#[track_caller]
pub(crate) fn assert_close(found: &Tensor, expected: &[f64]) {
    let found = found.to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.len(), "{found:?} is not {expected:?}");
    for (f, e) in found.iter().zip(expected) {
        let same = (f - e).abs() <= 1e-5 * e.abs().max(1.0) || (f.is_nan() && e.is_nan());
        assert!(same, "{found:?} is not {expected:?}");
    }
}
