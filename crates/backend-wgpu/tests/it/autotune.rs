//! Measured variants of matrix products: found once, kept, loaded again, and never measured unless
//! requested.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use crate::common::{close, device, numbers, run};
use backend_wgpu::{Forced, Form, Options, WgpuBackend};
use tensor_core::{
    DType, Device, ErrorKind, Kernel, Launch, Layout,
    kernel::{Compiled, Operand},
};

const N: usize = 128;

fn open(dir: Option<&Path>, autotune: bool, form: Form) -> Device {
    let cache_dir = dir.map(Path::to_path_buf);
    let forced = Forced { form, ..Forced::default() };
    backend_wgpu::open(0, &Options { autotune, cache_dir, forced, ..Options::default() }).unwrap()
}

fn backend<T>(device: &Device, ask: impl FnOnce(&WgpuBackend) -> T) -> T {
    let any: &dyn std::any::Any = device.backend().as_ref();
    ask(any.downcast_ref().unwrap())
}

fn pipelines(device: &Device) -> usize {
    backend(device, WgpuBackend::pipelines)
}

fn product(m: usize, n: usize, k: usize, dtype: DType) -> Kernel {
    let (lhs, rhs) = (Layout::contiguous([m, k]), Layout::contiguous([k, n]));
    Kernel::matmul(dtype, &lhs, &rhs)
}

/// Computes and checks a product of a class that is worth measuring.
fn multiply(device: &Device) {
    let (a, b) = (numbers(N * N, 1), numbers(N * N, 2));
    let inputs = [(DType::F32, a.clone()), (DType::F32, b.clone())];
    let found = run(device, &product(N, N, N, DType::F32), &[], &inputs).unwrap();
    for (i, &found) in found[0].iter().enumerate() {
        let expected: f64 = (0..N).map(|k| a[i / N * N + k] * b[k * N + i % N]).sum();
        assert!(close(found, expected, 1e-4), "element {i} is {found}, expected {expected}");
    }
}

/// The lines of a file of choices, without its header.
fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with("taper tuning 1\n"), "{text}");
    text.lines().skip(3).map(str::to_string).collect()
}

#[test]
fn the_best_way_is_measured_once_and_kept() {
    if device().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let first = open(Some(dir.path()), true, Form::Auto);
    let file = backend(&first, |b| b.tuning_file().map(Path::to_path_buf)).unwrap();
    assert!(file.starts_with(dir.path()) && !file.exists());
    // Too small to measure.
    run(&first, &product(8, 8, 8, DType::F32), &[], &vec![(DType::F32, vec![1.0; 64]); 2]).unwrap();
    assert!(!file.exists());
    let before = pipelines(&first);
    multiply(&first);
    // Every variant was compiled.
    assert!(pipelines(&first) >= before + 4, "{} pipelines", pipelines(&first));
    let found = lines(&file);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("auto f32 128 128 128 1 inner outer = "), "{found:?}");
    // Another size of the same class measures nothing.
    let (before, n) = (pipelines(&first), N - 28);
    run(&first, &product(n, n, N, DType::F32), &[], &vec![(DType::F32, vec![1.0; N * N]); 2]).unwrap();
    assert!(pipelines(&first) <= before + 1);
    drop(first);

    // Neither does the next process; it compiles only the variant that it runs, which may be a product in
    // parts and their sum.
    let next = open(Some(dir.path()), true, Form::Auto);
    multiply(&next);
    assert!((1..=2).contains(&pipelines(&next)), "{} pipelines", pipelines(&next));
    assert_eq!(lines(&file), found);
    // Another family of forms measures its own choice, which is added to the file.
    let tiled = open(Some(dir.path()), true, Form::Tiled);
    multiply(&tiled);
    let both = lines(&file);
    assert!(both.len() == 2 && both.contains(&found[0]), "{both:?}");
    assert!(both.iter().any(|line| line.starts_with("tiled ") && line.contains(" = tile ")), "{both:?}");
}

#[test]
fn a_damaged_file_is_measured_anew() {
    if device().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let first = open(Some(dir.path()), true, Form::Direct);
    multiply(&first);
    let file = backend(&first, |b| b.tuning_file().map(Path::to_path_buf)).unwrap();
    drop(first);
    let whole = std::fs::read(&file).unwrap();
    for damaged in [
        vec![],
        vec![0xff; 1000],
        whole[..whole.len() - 1].to_vec(),
        whole.iter().map(|&b| if b == b'8' { b'9' } else { b }).collect(),
    ] {
        std::fs::write(&file, &damaged).unwrap();
        let device = open(Some(dir.path()), true, Form::Direct);
        multiply(&device);
        assert!(pipelines(&device) > 1, "it was believed");
        let found = lines(&file);
        assert!(found.len() == 1 && found[0].starts_with("direct f32 128"), "{found:?}");
    }
}

#[test]
fn nothing_is_measured_or_kept_where_it_is_not_asked_for() {
    if device().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let plain = open(Some(dir.path()), false, Form::Auto);
    multiply(&plain);
    // A product that is cut along its sum has a second one.
    assert!((1..=2).contains(&pipelines(&plain)));
    assert_eq!(backend(&plain, |b| b.tuning_file().map(Path::to_path_buf)), None);
    plain.synchronize().unwrap();
    drop(plain);
    let kept = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().path());
    assert!(kept.into_iter().all(|path| path.extension().is_some_and(|e| e == "pipelines")));
    // Requested without a cache directory: the results are kept only for this device.
    let alone = open(None, true, Form::Auto);
    multiply(&alone);
    let before = pipelines(&alone);
    multiply(&alone);
    assert_eq!(pipelines(&alone), before);
}

/// Measuring waits for the device, but an error of earlier work is still reported by the next read.
#[test]
fn a_bad_index_before_a_measurement_is_told_by_its_own_ticket() {
    if device().is_none() {
        return;
    }
    let device = open(None, true, Form::Auto);
    let backend = device.backend();
    let launch = |kernel: &Kernel, inputs: &[tensor_core::Storage], numel: usize| {
        let tickets = crate::common::tickets(kernel);
        let output = backend.allocate(DType::F32, numel).unwrap();
        let launch = Launch {
            kernel,
            compiled: &Compiled::default(),
            scalars: &[],
            inputs,
            outputs: std::slice::from_ref(&output),
            tickets: &tickets,
        };
        backend.run(&launch).unwrap();
        (output, tickets)
    };
    let numbers = backend.upload(DType::F32, &[0; 4 * N * N]).unwrap();
    let index = backend.upload(DType::I32, &[9; 8]).unwrap();
    let gather = Kernel::gather(
        0,
        Operand::new(DType::F32, Layout::contiguous([4])),
        Operand::new(DType::I32, Layout::contiguous([2])),
    );
    let (_, tickets) = launch(&gather, &[numbers.clone(), index], 2);
    let (output, none) = launch(&product(N, N, N, DType::F32), &[numbers.clone(), numbers], N * N);
    assert!(none.is_empty());
    backend.download(&output, 0, &mut [0; 4]).unwrap();
    let error = tickets[0].1.result().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { op: "gather", .. }), "{error}");
}

/// Each variant computes the product correctly, at sizes on and off its edges.
#[test]
fn every_class_is_computed_right() {
    if device().is_none() {
        return;
    }
    let devices = [("autotuned", open(None, true, Form::Auto))];
    for (m, n, k, dtype) in [
        (2, 3000, 200, DType::F32),
        (130, 66, 127, DType::F32),
        (100, 101, 128, DType::F64),
        (65, 130, 128, DType::F16),
        (64, 130, 130, DType::I32),
    ] {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let whole = |v: Vec<f64>| -> Vec<f64> {
            if dtype.is_float() { v } else { v.iter().map(|x| (x * 9.0).round()).collect() }
        };
        let inputs = [(dtype, whole(a)), (dtype, whole(b))];
        let kernel = product(m, n, k, dtype);
        let tolerance = crate::common::tolerance(dtype) * 30.0;
        crate::common::agree_on(&devices, "product", &kernel, &[], &inputs, tolerance);
    }
}
