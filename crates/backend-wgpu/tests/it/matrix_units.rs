//! Products of f16 on matrix units: in plain WGSL on every adapter, and with cooperative matrices on an
//! adapter that has them (docs/testing.md names a software adapter).
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::OnceLock;

use crate::common::{agree_on, device, numbers, run, tolerance};
use backend_wgpu::{Forced, Form, MatrixUnits, Options};
use taper_testing::epilogues::{epilogues, operands};
use tensor_core::{DType, Device, Kernel, Layout, Shape};

/// A product that is large enough for matrix units.
fn product(m: usize, k: usize, n: usize) -> Kernel {
    Kernel::matmul(DType::F16, &Layout::contiguous([m, k]), &Layout::contiguous([k, n]))
}

/// Whether a device multiplies with cooperative matrices.
fn is_cooperative(device: &Device) -> bool {
    let source = device.backend().source(&product(64, 64, 64));
    source.iter().any(|text| text.contains("coopMultiplyAdd"))
}

/// Devices with the kernel for matrix units: traced, as a large GPU that cuts products into parts, and in
/// short dispatches; and one with cooperative matrices, if the adapter has them.
fn all() -> &'static [(&'static str, Device)] {
    static ALL: OnceLock<Vec<(&'static str, Device)>> = OnceLock::new();
    ALL.get_or_init(|| {
        if device().is_none() {
            return Vec::new();
        }
        let open = |forced: Forced, matrix_units| {
            backend_wgpu::open(0, &Options { forced, matrix_units: Some(matrix_units), ..Options::default() })
                .unwrap()
        };
        let plain = Forced { form: Form::Tiled, matrix_units: Some(MatrixUnits::Plain), ..Forced::default() };
        let large = Forced { invocations: Some(1 << 16), trace: true, ..plain.clone() };
        let short = Forced { dispatch_work: Some(1 << 16), no_immediates: true, ..plain };
        let mut all = vec![
            ("in plain WGSL as a large GPU, traced", open(large, false)),
            ("in plain WGSL, short dispatches", open(short, false)),
        ];
        let traced = open(Forced { trace: true, invocations: Some(1 << 16), ..Forced::default() }, true);
        if is_cooperative(&traced) {
            all.push(("cooperative matrices, traced", traced));
            all.push(("cooperative matrices", open(Forced::default(), true)));
        }
        all
    })
}

/// One of the devices in plain WGSL, in turn, and one of those with cooperative matrices.
fn in_turn(number: usize) -> Vec<(&'static str, Device)> {
    all().iter().skip(number % 2).step_by(2).cloned().collect()
}

/// Two inputs, which f16 holds.
fn inputs(kernel: &Kernel) -> Vec<(DType, Vec<f64>)> {
    (0..2).map(|k| (DType::F16, numbers(kernel.operands[k].layout.span().1, 1 + k as u64))).collect()
}

/// Compares a kernel with the reference, rounded to f16 and with its sums in f32, on devices in turn.
fn agree(number: usize, what: &str, kernel: &Kernel) {
    let terms: usize = kernel.reduced_axes().iter().map(|&axis| kernel.space[axis]).product();
    let mut wide = kernel.clone();
    wide.outputs[0].dtype = DType::F32;
    let inputs = inputs(kernel);
    let within = 4.0 * tolerance(DType::F32) * (terms as f64).sqrt().max(1.0);
    agree_on(&in_turn(number), what, kernel, &[], &inputs, 4e-3);
    agree_on(&in_turn(number + 1), &format!("{what}, in f32"), &wide, &[], &inputs, within);
}

#[test]
fn sizes_on_and_off_the_edges_of_tiles() {
    let sizes =
        [(64, 32, 64), (65, 33, 63), (9, 7, 200), (130, 100, 68), (16, 0, 16), (12, 1, 12), (100, 65, 129)];
    for (i, (m, k, n)) in sizes.into_iter().enumerate() {
        agree(i, &format!("{m} x {k} x {n}"), &product(m, k, n));
    }
}

#[test]
fn every_layout_of_both_operands() {
    let pick = |rows: usize, columns: usize| {
        let wide = Layout::contiguous([rows + 3, columns + 7]);
        let tall = Layout::contiguous([columns + 8, rows + 4]);
        [
            Layout::contiguous([rows, columns]),
            Layout::contiguous([columns, rows]).permute(&[1, 0]),
            wide.slice(0, 2, rows, 1).slice(1, 3, columns, 1),
            tall.slice(0, 3, columns, 1).slice(1, 1, rows, 1).permute(&[1, 0]),
            Layout::contiguous([rows, columns]).flip(0).flip(1),
            Layout::contiguous([1, columns]).expand(&Shape::from([rows, columns])),
        ]
    };
    for (i, a) in pick(68, 36).iter().enumerate() {
        for (j, b) in pick(36, 72).iter().enumerate() {
            // A layout's loads do not depend on the other operand's.
            if i == j || i + 1 == j || i * j == 2 {
                agree(j, &format!("layouts {i} and {j}"), &Kernel::matmul(DType::F16, a, b));
            }
        }
    }
}

#[test]
fn batches_and_windows() {
    let lhs = Layout::contiguous([3, 40, 20]).expand(&Shape::from([2, 3, 40, 20]));
    let rhs = Layout::contiguous([2, 1, 20, 70]).expand(&Shape::from([2, 3, 20, 70]));
    agree(0, "a batch", &Kernel::matmul(DType::F16, &lhs, &rhs));
    // A convolution of 3 × 3 over 4 channels.
    let space = Shape::from([2, 12, 8, 8, 4, 3, 3]);
    let images = Layout::new(space.clone(), &[400, 0, 10, 1, 100, 10, 1], 0);
    let weight = Layout::new(space, &[0, 36, 0, 0, 9, 3, 1], 0);
    agree(1, "a convolution", &Kernel::contract(DType::F16, images.clone(), weight.clone(), &[4, 5, 6]));
    agree(0, "a convolution, swapped", &Kernel::contract(DType::F16, weight, images, &[4, 5, 6]));
}

#[test]
fn sums_of_many_terms_in_parts() {
    for (i, (m, k, n)) in [(64, 1000, 64), (70, 784, 128), (20, 3001, 24)].into_iter().enumerate() {
        agree(i, &format!("{m} x {k} x {n}"), &product(m, k, n));
    }
}

#[test]
fn epilogues_of_fragments() {
    for (i, (m, k, n)) in [(64, 32, 64), (70, 40, 44), (20, 1030, 25)].into_iter().enumerate() {
        let kernel = product(m, k, n);
        for (j, case) in epilogues(&kernel).into_iter().enumerate() {
            let inputs: Vec<_> = operands(&kernel).into_iter().chain(case.inputs).collect();
            let what = format!("{} after {m} x {k} x {n}", case.what);
            agree_on(&in_turn(i + j), &what, &case.kernel, &case.scalars, &inputs, 1e-2);
        }
    }
}

/// Zeros that pad the operands beyond their edges meet infinities only in results that do not exist.
#[test]
fn infinities_and_nan_stay_in_their_rows_and_columns() {
    let (m, k, n) = (70, 33, 66);
    let mut values = [numbers(m * k, 1), numbers(k * n, 2)];
    values[0][69 * k + 32] = f64::INFINITY;
    values[1][32 * n + 65] = f64::NAN;
    let [a, b] = values;
    for (name, device) in all() {
        let found = run(device, &product(m, k, n), &[], &[(DType::F16, a.clone()), (DType::F16, b.clone())]);
        for (i, &x) in found.unwrap()[0].iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let expected = match (row == 69, column == 65) {
                (_, true) => x.is_nan(),
                (true, false) => x.is_infinite(),
                _ => x.is_finite(),
            };
            assert!(expected, "{name}: {x} at {row}, {column}");
        }
    }
}

/// f16 has numbers down to 2⁻²⁴, whose products f32 holds; and sums beyond the greatest f16.
#[test]
fn sums_are_f32() {
    let mut kernel = product(64, 32, 64);
    kernel.outputs[0].dtype = DType::F32;
    for (value, tolerance) in [(60_000.0, 0.0_f64), (2f64.powi(-12), 0.0), (2f64.powi(-24), 1e-40)] {
        let inputs = [(DType::F16, vec![value; 64 * 32]), (DType::F16, vec![value; 64 * 32])];
        for (name, device) in all() {
            let found = run(device, &kernel, &[], &inputs).unwrap();
            let exact = |x: f64| {
                let half = tensor_core::f16::from_f64(x).to_f64();
                32.0 * half * half
            };
            let expected = exact(value);
            let near = |x: f64| (x - expected).abs() <= tolerance.max(1e-6 * expected);
            assert!(found[0].iter().all(|&x| near(x)), "{name}: {} for {expected}", found[0][0]);
        }
    }
}

#[test]
fn an_adapter_without_matrix_units_has_the_other_kernels() {
    if device().is_none() {
        return;
    }
    let open = |matrix_units| {
        backend_wgpu::open(0, &Options { matrix_units: Some(matrix_units), ..Options::default() }).unwrap()
    };
    let (asked, refused) = (open(true), open(false));
    let kernel = product(64, 64, 64);
    let plain = refused.backend().source(&kernel);
    assert!(!plain.is_empty() && !is_cooperative(&refused));
    let source = asked.backend().source(&kernel);
    if is_cooperative(&asked) {
        let found = source.iter().flat_map(|text| text.lines()).find(|line| line.contains("coop_mat"));
        return eprintln!("skipped: the adapter has matrix units: {}", found.unwrap_or_default());
    }
    assert_eq!(source, plain);
}
