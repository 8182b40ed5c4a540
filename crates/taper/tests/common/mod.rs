//! What every test file needs: the device under test, the plain reference to compare with, and how closely.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

#[path = "../../../tensor-core/tests/reference/mod.rs"]
pub(crate) mod reference;

use taper::{DType, Device, Error, Result, Tensor};

/// The device under test: `TAPER_TEST_DEVICE`, or the CPU. `cargo xtask test-all-backends` runs the suite on each.
pub(crate) fn device() -> Device {
    match std::env::var("TAPER_TEST_DEVICE").as_deref() {
        // The suite itself can be tried on the reference.
        Ok("reference") => reference_device(),
        Ok(name) => taper::device(name).unwrap(),
        Err(_) => taper::cpu(),
    }
}

/// The reference, one for a thread.
pub(crate) fn reference_device() -> Device {
    thread_local! {
        static REFERENCE: Device = reference::reference();
    }
    REFERENCE.with(Device::clone)
}

/// Whether the device under test has `dtype`. A test that goes on without one says so.
pub(crate) fn has(device: &Device, dtype: DType) -> bool {
    let has = device.supports(dtype);
    if !has {
        eprintln!("note: {device} has no {dtype}: this part is not tested here");
    }
    has
}

/// Whether a whole test that needs `dtype` can run here. If not, the summary of `cargo xtask test-all-backends` counts it as
/// skipped, and says why.
pub(crate) fn needs(device: &Device, dtype: DType) -> bool {
    if has(device, dtype) {
        return true;
    }
    if let Ok(log) = std::env::var("TAPER_SKIP_LOG") {
        use std::io::Write;
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        let name = std::thread::current().name().unwrap_or("a test").to_string();
        writeln!(log, "{name}\t{device} has no {dtype}").unwrap();
    }
    false
}

/// Whether a line over so many bytes is longer than the bindings that `TAPER_WGPU_BINDING_BYTES` forces. An operation that takes
/// lines whole must then refuse it, and be usable afterwards.
pub(crate) fn refused<T>(bytes: usize, result: impl FnOnce() -> Result<T>) -> bool {
    let forced = std::env::var("TAPER_WGPU_BINDING_BYTES").ok().and_then(|v| v.parse::<usize>().ok());
    if forced.is_none_or(|binding| bytes <= binding) || !device().name().starts_with("wgpu") {
        return false;
    }
    let error = result().map(|_| ()).unwrap_err();
    assert!(matches!(error.root(), Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("split the tensor"), "{error}");
    true
}

/// Relative and absolute closeness that a dtype's results can be held to after a handful of operations.
pub(crate) fn tolerance(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (1e-12, 1e-13),
        DType::F32 => (2e-5, 1e-6),
        DType::F16 => (2e-3, 1e-3),
        DType::BF16 => (1.6e-2, 1e-2),
        _ => (0.0, 0.0),
    }
}

/// Panics unless two lists agree to `rtol·|expected| + atol`, NaN with NaN and infinities exactly.
#[track_caller]
pub(crate) fn assert_close(found: &[f64], expected: &[f64], (rtol, atol): (f64, f64), what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: lengths");
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let same = if e.is_nan() {
            f.is_nan()
        } else if e.is_infinite() {
            f == e
        } else {
            (f - e).abs() <= rtol * e.abs() + atol
        };
        assert!(same, "{what}: element {i} is {f}, expected {e}");
    }
}

/// Runs `f` on the device under test and on the reference, and compares what it gives: shape, dtype, values.
#[track_caller]
pub(crate) fn agree(what: &str, f: impl Fn(&Device) -> Result<Tensor>) {
    agree_within(what, None, f);
}

/// Like [`agree`], with a tolerance of its own.
#[track_caller]
pub(crate) fn agree_within(what: &str, within: Option<(f64, f64)>, f: impl Fn(&Device) -> Result<Tensor>) {
    let found = f(&device()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let expected = f(&reference_device()).unwrap_or_else(|e| panic!("{what} on the reference: {e}"));
    assert_eq!(found.shape(), expected.shape(), "{what}: shapes");
    assert_eq!(found.dtype(), expected.dtype(), "{what}: dtypes");
    let tolerance = within.unwrap_or_else(|| tolerance(found.dtype()));
    let values = found.to_f64_vec().unwrap_or_else(|e| panic!("{what}: {e}"));
    let reference = expected.to_f64_vec().unwrap();
    assert_close(&values, &reference, tolerance, what);
}

/// Numbers between −2 and 2 without a pattern, the same on every device.
pub(crate) fn numbers(n: usize, seed: u64) -> Vec<f64> {
    (0..n)
        .map(|i| f64::from(taper::tensor_core::philox(seed, i as u64)[0]) / f64::from(u32::MAX) * 4.0 - 2.0)
        .collect()
}

/// A tensor of [`numbers`], in a dtype.
pub(crate) fn tensor(shape: &[usize], seed: u64, dtype: DType, device: &Device) -> Result<Tensor> {
    let scale = if dtype.is_float() { 1.0 } else { 4.0 };
    let values: Vec<f64> = numbers(shape.iter().product(), seed).into_iter().map(|v| v * scale).collect();
    of(&values, shape, dtype, device)
}

/// A tensor of given numbers in a dtype, converted on the host.
pub(crate) fn of(values: &[f64], shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    match dtype {
        DType::F64 => Tensor::from_slice(values, shape, device),
        DType::F32 => Tensor::from_vec(values.iter().map(|&v| v as f32).collect(), shape, device),
        DType::F16 => {
            Tensor::from_vec(values.iter().map(|&v| taper::f16::from_f64(v)).collect(), shape, device)
        }
        DType::BF16 => {
            Tensor::from_vec(values.iter().map(|&v| taper::bf16::from_f64(v)).collect(), shape, device)
        }
        DType::I64 => Tensor::from_vec(values.iter().map(|&v| v as i64).collect(), shape, device),
        DType::I32 => Tensor::from_vec(values.iter().map(|&v| v as i32).collect(), shape, device),
        DType::U32 => Tensor::from_vec(values.iter().map(|&v| v.abs() as u32).collect(), shape, device),
        DType::U8 => Tensor::from_vec(values.iter().map(|&v| v.abs() as u8).collect(), shape, device),
        DType::Bool => Tensor::from_vec(values.iter().map(|&v| v > 0.0).collect(), shape, device),
    }
}

/// The same logical kind of tensor in every way it may lie in memory: name, and how to make it of a base tensor.
pub(crate) type View = (&'static str, fn(&Device, DType, u64) -> Result<Tensor>);

/// Layouts that every operation meets.
pub(crate) const VIEWS: &[View] = &[
    ("contiguous", |d, t, s| tensor(&[3, 4, 5], s, t, d)),
    ("0-d", |d, t, s| tensor(&[], s, t, d)),
    ("empty", |d, t, s| tensor(&[3, 0, 5], s, t, d)),
    ("size 1", |d, t, s| tensor(&[1, 1], s, t, d)),
    ("odd", |d, t, s| tensor(&[7, 13], s, t, d)),
    ("transposed", |d, t, s| tensor(&[5, 4, 3], s, t, d)?.permute([2, 1, 0])),
    ("sliced", |d, t, s| tensor(&[6, 9, 5], s, t, d)?.slice_step(1, 1..9, 2)?.slice(0, 2..5)),
    ("expanded", |d, t, s| tensor(&[3, 1, 5], s, t, d)?.expand([3, 4, 5])),
    ("flipped", |d, t, s| tensor(&[3, 4, 5], s, t, d)?.flip([0, 2])),
];
