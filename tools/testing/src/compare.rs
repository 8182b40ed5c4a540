//! Comparison of results with expected values, to a tolerance.

use tensor_core::{DType, Device, Result, Tensor};

use crate::reference_with;

/// The relative and absolute tolerance for a dtype's results after a handful of operations; 0 for
/// integers and bools.
pub fn tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (1e-12, 1e-13),
        DType::F32 => (2e-5, 1e-6),
        DType::F16 => (2e-3, 1e-3),
        DType::BF16 => (1.6e-2, 1e-2),
        // Two roundings, in the normal and in the subnormal range.
        _ if dtype.is_float() => (2.0 * dtype.epsilon(), 2.0 * dtype.epsilon() * dtype.smallest_normal()),
        _ => (0.0, 0.0),
    }
}

/// Panics unless two lists agree to `rtol·|expected| + atol`, NaN with NaN and infinities exactly.
///
/// # Panics
/// Lists of different lengths, or an element outside the tolerance; the message names it.
#[track_caller]
pub fn assert_close(found: &[f64], expected: &[f64], within: (f64, f64), what: &str) {
    if let Some(difference) = difference(found, expected, within) {
        panic!("{what}: {difference}");
    }
}

/// A description of the first difference of two lists beyond `rtol·|expected| + atol`: NaN equals NaN,
/// and infinities are compared exactly.
pub fn difference(found: &[f64], expected: &[f64], (rtol, atol): (f64, f64)) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("lengths: {} elements, expected {}", found.len(), expected.len()));
    }
    found.iter().zip(expected).enumerate().find_map(|(i, (&f, &e))| {
        let same = if e.is_nan() {
            f.is_nan()
        } else if e.is_infinite() {
            f == e
        } else {
            (f - e).abs() <= rtol * e.abs() + atol
        };
        (!same).then(|| format!("element {i} is {f}, expected {e}"))
    })
}

/// Panics unless the tensor's elements are within 10⁻⁵ of these, relatively or absolutely; NaN equals
/// NaN.
///
/// # Panics
/// A different number of elements, or an element outside the tolerance.
#[track_caller]
pub fn assert_elements(found: &Tensor, expected: &[f64]) {
    let found = found.to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.len(), "{found:?} is not {expected:?}");
    for (f, e) in found.iter().zip(expected) {
        let same = (f - e).abs() <= 1e-5 * e.abs().max(1.0) || (f.is_nan() && e.is_nan()) || f == e;
        assert!(same, "{found:?} is not {expected:?}");
    }
}

/// Runs `f` on `device` and on the reference backend, with the same dtypes, and compares the results:
/// shape, dtype, and values to `within` (relative and absolute), or to the dtype's [`tolerance`].
///
/// # Panics
/// The results differ; the message has the difference and `what`.
#[track_caller]
pub fn agree(device: &Device, what: &str, within: Option<(f64, f64)>, f: impl Fn(&Device) -> Result<Tensor>) {
    let found = f(device).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (reference, _) = reference_with(&device.info().dtypes);
    let expected = f(&reference).unwrap_or_else(|e| panic!("{what} on the reference: {e}"));
    assert_eq!(found.shape(), expected.shape(), "{what}: shapes");
    assert_eq!(found.dtype(), expected.dtype(), "{what}: dtypes");
    let tolerance = within.unwrap_or_else(|| tolerance(found.dtype()));
    let values = found.to_f64_vec().unwrap_or_else(|e| panic!("{what}: {e}"));
    let reference = expected.to_f64_vec().unwrap();
    assert_close(&values, &reference, tolerance, what);
}
