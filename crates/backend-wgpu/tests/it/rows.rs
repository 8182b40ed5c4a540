//! Row kernels: softmax, its logarithm and layer norm over rows of every length, folds of every kind and
//! dtype, in every form.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Input, agree, all_devices, close, devices, numbers, run, tiled, tolerance};
use tensor_core::{
    BinaryOp as B, DType, Kernel, Layout, RandomKind, ReduceOp, Scalar, Shape, UnaryOp as U,
    kernel::{Instr, Program, Reg},
};

/// A program that loads all inputs and then runs `rest`.
fn program(inputs: &[DType], rest: &[(Instr, DType)], outputs: &[Reg]) -> Program {
    let mut p = Program { inputs: inputs.to_vec(), outputs: outputs.to_vec(), ..Program::default() };
    for (k, &d) in inputs.iter().enumerate() {
        p.instrs.push(Instr::Load(k as u16));
        p.dtypes.push(d);
    }
    for &(instr, dtype) in rest {
        p.instrs.push(instr);
        p.dtypes.push(dtype);
    }
    p
}

fn rows(shape: &[usize], row_axes: usize, inputs: &[Layout], program: Program, per_row: &[bool]) -> Kernel {
    let inputs = inputs.iter().cloned();
    Kernel::rows(shape.into(), row_axes, inputs, program, per_row)
}

fn softmax(dtype: DType) -> Program {
    let rest = [
        Instr::Fold(ReduceOp::Max, 0),
        Instr::Binary(B::Sub, 0, 1),
        Instr::Unary(U::Exp, 2),
        Instr::Fold(ReduceOp::Sum, 3),
        Instr::Binary(B::Div, 3, 4),
    ];
    program(&[dtype], &rest.map(|i| (i, dtype)), &[5])
}

fn log_softmax(dtype: DType) -> Program {
    let rest = [
        Instr::Fold(ReduceOp::Max, 0),
        Instr::Binary(B::Sub, 0, 1),
        Instr::Unary(U::Exp, 2),
        Instr::Fold(ReduceOp::Sum, 3),
        Instr::Unary(U::Log, 4),
        Instr::Binary(B::Sub, 2, 5),
    ];
    program(&[dtype], &rest.map(|i| (i, dtype)), &[6])
}

/// The normalised row, its mean and its variance; the launch's scalar is added to the variance.
fn layer_norm(dtype: DType) -> Program {
    let rest = [
        Instr::Fold(ReduceOp::Mean, 0),
        Instr::Binary(B::Sub, 0, 1),
        Instr::Powi(2, 2),
        Instr::Fold(ReduceOp::Mean, 3),
        Instr::Scalar(0),
        Instr::Binary(B::Add, 4, 5),
        Instr::Unary(U::Rsqrt, 6),
        Instr::Binary(B::Mul, 2, 7),
    ];
    let mut p = program(&[dtype], &rest.map(|i| (i, dtype)), &[8, 1, 4]);
    p.scalars = vec![dtype];
    p
}

/// Runs a kernel on every device and compares with a function applied to each row.
fn each_row(
    what: &str,
    kernel: &Kernel,
    x: &[f64],
    n: usize,
    tolerance: f64,
    f: impl Fn(&[f64]) -> Vec<f64>,
) {
    for (name, device) in devices() {
        let found = run(device, kernel, &[Scalar::Float(1e-5)], &[(DType::F32, x.to_vec())]).unwrap();
        for (r, row) in x.chunks(n).enumerate() {
            let row: Vec<f64> = row.iter().map(|&v| f64::from(v as f32)).collect();
            let expected = f(&row);
            let full = &found[0][r * n..][..n];
            let steady = found[1..].iter().map(|o| o[r]);
            for (i, (f, e)) in full.iter().copied().chain(steady).zip(&expected).enumerate() {
                assert!(
                    close(f, *e, tolerance),
                    "{what} on {name}: element {i} of row {r} is {f}, expected {e}"
                );
            }
        }
    }
}

fn expected_softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
    row.iter().map(|v| (v - max).exp() / sum).collect()
}

fn expected_layer_norm(row: &[f64]) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    let scaled = row.iter().map(|v| (v - mean) / (variance + 1e-5).sqrt());
    scaled.chain([mean, variance]).collect()
}

#[test]
fn rows_of_every_length() {
    let few = [1, 3, 10, 63, 64, 65, 1000, 1025, 5000].map(|n| (7, n));
    for (count, n) in
        few.into_iter().chain([(1, 20_000), (100_000, 3), (513, 129), (1030, 16), (17, 1000), (17, 1004)])
    {
        let x: Vec<f64> = numbers(count * n, n as u64).iter().map(|v| v * 3.0 + 1.0).collect();
        let shape = [count, n];
        let whole = [Layout::contiguous(shape)];
        let kernel = rows(&shape, 1, &whole, softmax(DType::F32), &[false]);
        each_row(&format!("softmax of {shape:?}"), &kernel, &x, n, 2e-6, expected_softmax);
        let kernel = rows(&shape, 1, &whole, log_softmax(DType::F32), &[false]);
        each_row(&format!("log_softmax of {shape:?}"), &kernel, &x, n, 2e-6, |row| {
            expected_softmax(row).into_iter().map(f64::ln).collect()
        });
        let kernel = rows(&shape, 1, &whole, layer_norm(DType::F32), &[false, true, true]);
        each_row(&format!("layer norm of {shape:?}"), &kernel, &x, n, 2e-5, expected_layer_norm);
    }
}

#[test]
fn more_rows_than_workgroups_go_one_way() {
    // A row shared by all, and one number for each row.
    let (count, n) = (65_700, 513);
    let shape = [count, n];
    let rest = [Instr::Binary(B::Add, 0, 1), Instr::Fold(ReduceOp::Mean, 2)];
    let p = program(&[DType::F32; 2], &rest.map(|i| (i, DType::F32)), &[3]);
    let inputs = [Layout::new(shape, &[0, 1], 0), Layout::new(shape, &[1, 0], 0)];
    let kernel = rows(&shape, 1, &inputs, p, &[true]);
    let own: Vec<f64> = (0..count).map(|r| r as f64).collect();
    for (name, device) in devices() {
        let inputs: [Input; 2] = [(DType::F32, vec![0.5; n]), (DType::F32, own.clone())];
        let found = run(device, &kernel, &[], &inputs).unwrap();
        for (r, &f) in found[0].iter().enumerate() {
            assert!(close(f, r as f64 + 0.5, 1e-6), "row {r} on {name}: {f}");
        }
    }
}

#[test]
fn nan_and_infinity_pass() {
    for n in [1, 10, 64, 700] {
        let mut x = numbers(6 * n, 2);
        for (r, value) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().enumerate() {
            x[r * n + n / 2] = value;
        }
        x[3 * n..4 * n].fill(f64::NEG_INFINITY);
        x[4 * n] = f64::NAN;
        x[5 * n - 1] = f64::INFINITY;
        let rest =
            [Instr::Fold(ReduceOp::Max, 0), Instr::Fold(ReduceOp::Min, 0), Instr::Fold(ReduceOp::Sum, 0)];
        let p = program(&[DType::F32], &rest.map(|i| (i, DType::F32)), &[0, 1, 2, 3]);
        let kernel = rows(&[6, n], 1, &[Layout::contiguous([6, n])], p, &[false, true, true, true]);
        each_row(&format!("extremes of {n}"), &kernel, &x, n, 1e-5, |row| {
            let nan = row.iter().any(|v| v.is_nan());
            let pick = |f: fn(f64, f64) -> f64| {
                if nan { f64::NAN } else { row.iter().copied().reduce(f).unwrap() }
            };
            let folds = [pick(f64::max), pick(f64::min), row.iter().sum()];
            row.iter().copied().chain(folds).collect()
        });
        let kernel = rows(&[6, n], 1, &[Layout::contiguous([6, n])], softmax(DType::F32), &[false]);
        each_row(&format!("softmax of {n}"), &kernel, &x, n, 1e-5, |row| {
            // A NaN, or an infinity minus itself, makes the whole row NaN.
            let spoilt = row.iter().any(|v| v.is_nan() || *v == f64::INFINITY)
                || row.iter().all(|v| *v == f64::NEG_INFINITY);
            if spoilt { vec![f64::NAN; n] } else { expected_softmax(row) }
        });
    }
}

fn lacking(op: ReduceOp, dtype: DType) -> bool {
    match op {
        ReduceOp::Any | ReduceOp::All => dtype != DType::Bool,
        ReduceOp::Mean => !dtype.is_float(),
        ReduceOp::Sum | ReduceOp::Prod => dtype == DType::Bool,
        _ => false,
    }
}

#[test]
fn folds_of_every_kind_and_dtype() {
    for dtype in DType::ALL {
        for &op in ReduceOp::ALL.iter().filter(|&&op| !lacking(op, dtype)) {
            for (shape, row_axes) in [(vec![3, 4, 5], 2), (vec![9, 50], 1), (vec![33], 1), (vec![70, 1], 1)] {
                // The larger of the element and its row's result; and the result.
                let rest = [Instr::Fold(op, 0), Instr::Cast(1), Instr::Binary(B::Maximum, 0, 2)];
                let p = program(&[dtype], &rest.map(|i| (i, dtype)), &[3, 2]);
                let layout = Layout::contiguous(Shape::from(&shape[..]));
                let n = layout.numel();
                let values: Vec<f64> = match op {
                    ReduceOp::Prod if dtype.is_float() => {
                        numbers(n, 3).iter().map(|x| 1.0 + x * 1e-2).collect()
                    }
                    _ => numbers(n, 3).iter().map(|x| x * 10.0).collect(),
                };
                agree(
                    &format!("{op:?} of {dtype} over {row_axes} axes of {shape:?}"),
                    &rows(&shape, row_axes, &[layout], p, &[false, true]),
                    &[],
                    &[(dtype, values)],
                    tolerance(dtype) * 30.0,
                );
            }
        }
    }
}

#[test]
fn integers_wrap_over_long_rows() {
    let (count, n) = (5, 3000);
    let x: Vec<f64> = numbers(count * n, 8).iter().map(|v| (v * 1e9).round()).collect();
    let rest = [Instr::Fold(ReduceOp::Sum, 0), Instr::Fold(ReduceOp::Max, 0), Instr::Binary(B::Sub, 0, 2)];
    let p = program(&[DType::I32], &rest.map(|i| (i, DType::I32)), &[1, 2, 3]);
    let kernel = rows(&[count, n], 1, &[Layout::contiguous([count, n])], p, &[true, true, false]);
    for (name, device) in devices() {
        let found = run(device, &kernel, &[], &[(DType::I32, x.clone())]).unwrap();
        for (r, row) in x.chunks(n).enumerate() {
            let row: Vec<i32> = row.iter().map(|&v| v as i32).collect();
            let sum = row.iter().fold(0i32, |s, &v| s.wrapping_add(v));
            let max = row.iter().copied().max().unwrap();
            assert_eq!((found[0][r], found[1][r]), (f64::from(sum), f64::from(max)), "{name}");
            for (i, &v) in row.iter().enumerate() {
                assert_eq!(found[2][r * n + i], f64::from(v.wrapping_sub(max)), "{name}");
            }
        }
    }
}

#[test]
fn half_types_add_up_wider() {
    for dtype in [DType::F16, DType::BF16] {
        let (count, n) = (4, 3000);
        let rest = [Instr::Fold(ReduceOp::Mean, 0), Instr::Binary(B::Sub, 0, 1)];
        let p = program(&[dtype], &rest.map(|i| (i, dtype)), &[1, 2]);
        let kernel = rows(&[count, n], 1, &[Layout::contiguous([count, n])], p, &[true, false]);
        for (name, device) in devices() {
            let found = run(device, &kernel, &[], &[(dtype, vec![1.5; count * n])]).unwrap();
            assert_eq!(found, [vec![1.5; count], vec![0.0; count * n]], "{dtype} on {name}");
        }
    }
}

/// Results at every depth; some are expensive and needed again later.
#[test]
fn outputs_at_every_depth() {
    for dtype in [DType::F32, DType::F16, DType::F64] {
        let rest = [
            Instr::Unary(U::Exp, 0),
            Instr::Fold(ReduceOp::Sum, 2),
            Instr::Binary(B::Div, 2, 3),
            Instr::Unary(U::Tanh, 4),
            Instr::Fold(ReduceOp::Mean, 5),
            Instr::Binary(B::Sub, 5, 6),
            Instr::Binary(B::Mul, 7, 1),
            Instr::Fold(ReduceOp::Max, 8),
            Instr::Binary(B::Add, 8, 2),
            Instr::Binary(B::Add, 10, 9),
            Instr::Binary(B::Add, 5, 9),
            Instr::Binary(B::Mul, 6, 1),
        ];
        for outputs in [[11, 2, 12, 13], [12, 11, 5, 6], [7, 12, 11, 3], [8, 4, 2, 9], [2, 11, 4, 12]] {
            let per_row = outputs.map(|r| matches!(r, 3 | 6 | 9 | 13));
            for (shape, row_axes) in [
                (vec![4, 40], 1),
                (vec![3, 2, 5, 4], 2),
                (vec![64], 1),
                (vec![420, 40], 1),
                (vec![300, 7, 8], 2),
            ] {
                let p = program(&[dtype; 2], &rest.map(|i| (i, dtype)), &outputs);
                let whole = Layout::contiguous(Shape::from(&shape[..]));
                // The second input is one number for each row.
                let lead = shape.len() - row_axes;
                let mut strides = Shape::from(&shape[..lead]).contiguous_strides();
                strides.resize(shape.len(), 0);
                let steady = Layout::new(shape.as_slice(), &strides, 1);
                let n = whole.numel();
                let inputs = [(dtype, numbers(n, 1)), (dtype, numbers(n + 1, 2))];
                let kernel = rows(&shape, row_axes, &[whole, steady], p, &per_row);
                agree(&format!("{outputs:?} of {dtype}"), &kernel, &[], &inputs, tolerance(dtype) * 30.0);
            }
        }
    }
}

#[test]
fn many_folds_of_one_phase() {
    let mut rest = Vec::new();
    for (k, op) in
        [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Mean, ReduceOp::Prod].iter().enumerate()
    {
        rest.push((Instr::Fold(*op, 0), DType::F32));
        rest.push((Instr::Unary(U::Abs, 1 + 2 * k as u16), DType::F32));
    }
    rest.push((Instr::Unary(U::IsNan, 0), DType::Bool));
    rest.push((Instr::Fold(ReduceOp::Any, 11), DType::Bool));
    rest.push((Instr::Fold(ReduceOp::All, 11), DType::Bool));
    for n in [5, 60] {
        let p = program(&[DType::F32], &rest, &[2, 4, 6, 8]);
        let kernel = rows(&[9, n], 1, &[Layout::contiguous([9, n])], p, &[true; 4]);
        let mut x = numbers(9 * n, 5);
        agree("four", &kernel, &[], &[(DType::F32, x.clone())], 1e-5);
        x[3] = f64::NAN;
        let p = program(&[DType::F32], &rest, &[10, 12, 13, 9]);
        let kernel = rows(&[9, n], 1, &[Layout::contiguous([9, n])], p, &[true; 4]);
        agree("others", &kernel, &[], &[(DType::F32, x)], 1e-5);
    }
}

#[test]
fn positions_and_random_numbers_in_rows() {
    let rest = [
        (Instr::Arange { start: 0, step: 1 }, DType::F32),
        (Instr::Random { kind: RandomKind::Uniform, seed: 2, offset: 3 }, DType::F32),
        (Instr::Binary(B::Add, 1, 2), DType::F32),
        (Instr::Binary(B::Mul, 3, 0), DType::F32),
        (Instr::Fold(ReduceOp::Mean, 4), DType::F32),
        (Instr::Binary(B::Sub, 2, 5), DType::F32),
    ];
    let mut p = program(&[DType::F32], &rest, &[6, 5]);
    p.scalars = vec![DType::F32, DType::F32, DType::I64, DType::I64];
    let kernel = rows(&[7, 5, 4], 2, &[Layout::contiguous([7, 5, 4])], p, &[false, true]);
    let scalars = [Scalar::Float(1.0), Scalar::Float(0.5), Scalar::Int(3), Scalar::Int(1 << 33)];
    agree("positions", &kernel, &scalars, &[(DType::F32, numbers(140, 1))], 1e-5);
}

#[test]
fn no_rows() {
    let kernel = rows(&[0, 5], 1, &[Layout::contiguous([0, 5])], softmax(DType::F32), &[false]);
    agree("none", &kernel, &[], &[(DType::F32, vec![])], 0.0);
}

/// Compares the devices with the one whose invocations have a row each and walk it in a loop: the reference
/// is too slow for long rows.
fn agree_with_loops(what: &str, kernel: &Kernel, inputs: &[Input], tolerance: f64) {
    let direct = all_devices().iter().find(|(name, _)| name.contains("direct"));
    let Some(expected) = direct.map(|(_, device)| run(device, kernel, &[], inputs).unwrap()) else { return };
    for (name, device) in devices() {
        for (found, expected) in run(device, kernel, &[], inputs).unwrap().iter().zip(&expected) {
            assert_eq!(found.len(), expected.len(), "{what} on {name}");
            for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
                assert!(close(f, e, tolerance), "{what} on {name}: element {i} is {f}, expected {e}");
            }
        }
    }
}

/// Rows that stay in registers, with one, two and four groups of four elements for each invocation, and
/// rows just too long for that; whole vectors and others; half types, which share words.
#[test]
fn rows_around_the_registers_of_a_workgroup() {
    let lengths = [
        4, 8, 12, 31, 32, 33, 124, 127, 128, 129, 132, 508, 511, 516, 1020, 1023, 1024, 1025, 1028, 2044,
        2047, 2048, 2049, 2052, 4092, 4095, 4096, 4097, 4100,
    ];
    for n in lengths {
        let shape = [3, n];
        let x: Vec<f64> = numbers(3 * n, n as u64).iter().map(|v| v * 3.0 + 1.0).collect();
        let whole = [Layout::contiguous(shape)];
        let kernel = rows(&shape, 1, &whole, softmax(DType::F32), &[false]);
        each_row(&format!("softmax of {shape:?}"), &kernel, &x, n, 2e-6, expected_softmax);
        let kernel = rows(&shape, 1, &whole, layer_norm(DType::F32), &[false, true, true]);
        each_row(&format!("layer norm of {shape:?}"), &kernel, &x, n, 2e-5, expected_layer_norm);
        for dtype in [DType::F16, DType::BF16] {
            let kernel = rows(&shape, 1, &whole, log_softmax(dtype), &[false]);
            let what = format!("log softmax of {dtype} of {shape:?}");
            agree_with_loops(&what, &kernel, &[(dtype, x.clone())], tolerance(dtype) * 4.0);
        }
    }
}

/// Rows of every layout beside a weight for each column and one for each row: dense, offset by an odd
/// number, permuted, backwards and one element for all.
#[test]
fn rows_of_views_in_registers() {
    let dtype = DType::F32;
    let rest = [
        Instr::Fold(ReduceOp::Max, 0),
        Instr::Binary(B::Sub, 0, 3),
        Instr::Unary(U::Exp, 4),
        Instr::Binary(B::Mul, 5, 1),
        Instr::Fold(ReduceOp::Sum, 6),
        Instr::Binary(B::Div, 6, 7),
        Instr::Binary(B::Add, 8, 2),
        Instr::Fold(ReduceOp::Min, 9),
        Instr::Binary(B::Sub, 9, 10),
    ];
    let weighted = program(&[dtype; 3], &rest.map(|i| (i, dtype)), &[11, 9, 7]);
    for (count, n) in [(5, 16), (5, 18), (2, 1040), (3, 2064), (3, 2065)] {
        let shape = [count, n];
        let (wide, odd) = (n as isize + 4, n as isize + 3);
        let views = [
            Layout::contiguous(shape),
            Layout::new(shape, &[wide, 1], 4),
            Layout::new(shape, &[wide, 1], 3),
            Layout::new(shape, &[odd, 1], 0),
            Layout::contiguous([n, count]).permute(&[1, 0]),
            Layout::contiguous(shape).flip(1),
            Layout::new(shape, &[0, 0], 1),
            Layout::new(shape, &[0, 1], 0),
        ];
        for view in views {
            let layouts = [view.clone(), Layout::new(shape, &[0, 1], 0), Layout::new(shape, &[1, 0], 1)];
            let kernel = rows(&shape, 1, &layouts, weighted.clone(), &[false, false, true]);
            let weights = numbers(n, 2).iter().map(|x| x.abs() + 0.1).collect();
            let inputs =
                [(dtype, numbers((n + 4) * count + 4, 1)), (dtype, weights), (dtype, numbers(count + 1, 3))];
            agree_with_loops(&format!("{view:?}"), &kernel, &inputs, 1e-5);
        }
    }
}

#[test]
fn special_values_stay_in_their_row() {
    for n in [40, 41, 1028, 1029, 4096] {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
            for at in [0, n - 1, n + n / 2] {
                let mut values = numbers(3 * n, 2);
                values[at] = value;
                let shape = [3, n];
                let kernel = rows(&shape, 1, &[Layout::contiguous(shape)], log_softmax(DType::F32), &[false]);
                agree_with_loops(&format!("{value} at {at}"), &kernel, &[(DType::F32, values)], 1e-5);
            }
        }
    }
}

/// The claim of the form in registers: each element is loaded once and stored once.
#[test]
fn elements_are_read_once_and_written_once() {
    let Some(device) = tiled() else { return };
    for (n, groups) in [(64, 1), (1024, 1), (1028, 2), (2048, 2), (4096, 4)] {
        let shape = [3, n];
        for program in [softmax(DType::F32), log_softmax(DType::F32)] {
            let kernel = rows(&shape, 1, &[Layout::contiguous(shape)], program, &[false]);
            let source = device.backend().source(&kernel).concat();
            let calls = |function: &str| {
                source.matches(function).count() - source.matches(&format!("fn {function}")).count()
            };
            assert_eq!([calls("load4_in0("), calls("store4_out0(")], [groups; 2], "{n}");
            assert_eq!([calls("load_in0("), calls("store_out0(")], [0; 2], "{n}");
            let exponentials = source.matches("exp_f32(r").count();
            assert_eq!(exponentials, 4 * groups, "{n}");
        }
    }
}
