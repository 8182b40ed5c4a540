//! Code that every test file needs: the device under test, the plain reference to compare with, and
//! tolerances.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

use taper::{DType, Device, ErrorKind, Result, Tensor};
use taper_operations::Draw;
use taper_testing::settings::setting;
pub(crate) use taper_testing::{VIEWS, assert_close, numbers, of, reference_device, tensor};

/// The device under test: `TAPER_TEST=device=…`, or the CPU. `cargo xtask test-all-backends` runs the suite
/// on each.
pub(crate) fn device() -> Device {
    match setting("device").as_deref() {
        // The suite itself can be tried on the reference.
        Some("reference") => reference_device(),
        Some(name) => taper::device(name).unwrap(),
        None => taper::cpu(),
    }
}

/// Another device on the same processor or adapter as the one under test.
pub(crate) fn second_device() -> Device {
    logical_device(1)
}

/// A device of that number on the same processor or adapter as the one under test.
pub(crate) fn logical_device(number: usize) -> Device {
    match device().name() {
        "reference" => taper_testing::reference_backend().0,
        name => taper::device(&format!("{name}#{number}")).unwrap(),
    }
}

/// Whether special forms of the CPU's kernels are off in this run: operations with kernels of their own are
/// then composed of others.
pub(crate) fn has_plain_forms() -> bool {
    std::env::var_os("TAPER_CPU_FORMS").is_some()
}

/// Whether the device under test has `dtype`. A test that skips it prints a line.
pub(crate) fn has(device: &Device, dtype: DType) -> bool {
    let has = device.supports(dtype);
    if !has {
        eprintln!("note: {device} has no {dtype}: this part is not tested here");
    }
    has
}

/// Whether a whole test that needs `dtype` can run here. If not, the summary of `cargo xtask
/// test-all-backends` counts it as skipped, and says why.
pub(crate) fn needs(device: &Device, dtype: DType) -> bool {
    if has(device, dtype) {
        return true;
    }
    taper_testing::settings::skip(&format!("{device} has no {dtype}"));
    false
}

/// A tensor whose elements are in memory, though it has the same number everywhere.
pub(crate) fn in_memory(constant: Tensor) -> Result<Tensor> {
    constant.eval()?;
    Ok(constant)
}

/// Whether this run takes a case of a test with many, by the case's name: on a GPU `cargo xtask
/// test-all-backends` deals them to the forms of its kernels, `TAPER_TEST=deal=tiled@20785`.
pub(crate) fn drawn(case: impl std::fmt::Display) -> bool {
    Draw::from_env().takes_case(case)
}

/// Whether this run takes every case.
pub(crate) fn every_case() -> bool {
    Draw::from_env() == Draw::ALL
}

/// Whether a line of `bytes` bytes is longer than the bindings that `TAPER_TEST=wgpu.binding_bytes=…` forces.
/// An operation that needs whole lines must then refuse it, and be usable afterwards.
pub(crate) fn refused<T>(bytes: usize, result: impl FnOnce() -> Result<T>) -> bool {
    let forced = setting("wgpu.binding_bytes").and_then(|bytes| bytes.parse().ok());
    if forced.is_none_or(|binding: usize| bytes <= binding) || !device().name().starts_with("wgpu") {
        return false;
    }
    let error = result().map(|_| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("split the tensor"), "{error}");
    true
}

/// Runs `f` on the device under test and on the reference, and compares the results: shape, dtype, values.
#[track_caller]
pub(crate) fn agree(what: &str, f: impl Fn(&Device) -> Result<Tensor>) {
    taper_testing::agree(&device(), what, None, f);
}

/// Like [`agree`], with a tolerance of its own.
#[track_caller]
pub(crate) fn agree_within(what: &str, within: Option<(f64, f64)>, f: impl Fn(&Device) -> Result<Tensor>) {
    taper_testing::agree(&device(), what, within, f);
}
