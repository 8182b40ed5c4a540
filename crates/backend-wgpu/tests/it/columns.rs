//! Reductions down columns: widths and heights around those of a workgroup, kept and reduced axes in every
//! order, narrow dtypes, special values.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{agree, agree_on, devices, numbers, reduce, run, tolerance};
use backend_wgpu::{Forced, Form, Options};
use tensor_core::{
    BinaryOp, DType, Kernel, Layout, ReduceOp, Shape,
    kernel::{Instr, Program},
};

/// One vector of columns, a workgroup's columns, those of vectors, and one fewer and more of each; heights
/// around the least for a workgroup, its lanes, the steps that it unrolls and its parts.
#[test]
fn sizes_around_every_bound() {
    for columns in [1, 3, 4, 5, 31, 32, 33, 36, 127, 128, 129, 132] {
        for rows in [1, 15, 16, 17, 63, 64, 65, 257, 600] {
            let layout = Layout::contiguous([rows, columns]);
            let inputs = [(DType::F32, numbers(rows * columns, 5))];
            for op in [ReduceOp::Sum, ReduceOp::Max] {
                let what = format!("{op:?} of {rows} x {columns}");
                agree(&what, &reduce(op, &[0], &layout, DType::F32), &[], &inputs, 1e-5);
            }
        }
    }
}

#[test]
fn columns_of_every_dtype() {
    for dtype in DType::ALL {
        let op = if dtype == DType::Bool { ReduceOp::Any } else { ReduceOp::Sum };
        for (rows, columns) in [(40, 70), (300, 132), (9000, 4)] {
            let values: Vec<f64> = match dtype.is_float() {
                true => numbers(rows * columns, 3),
                false => numbers(rows * columns, 3).iter().map(|x| (x * 10.0).round()).collect(),
            };
            let layout = Layout::contiguous([rows, columns]);
            let what = format!("{op:?} of {rows} x {columns} of {dtype}");
            let allowed = tolerance(dtype) * 50.0;
            agree(&what, &reduce(op, &[0], &layout, dtype), &[], &[(dtype, values)], allowed);
        }
    }
}

/// Every set of kept axes of four, dense, permuted and offset, with the last axis short, of four and long.
#[test]
fn one_to_four_axes() {
    for last in [3, 4, 40] {
        let whole = Layout::contiguous([6, 5, 9, last]);
        let inputs = [(DType::F32, numbers(whole.numel(), 7))];
        let views = [
            whole.clone(),
            whole.permute(&[2, 3, 0, 1]),
            whole.permute(&[3, 0, 1, 2]),
            whole.slice(1, 1, 4, 1),
        ];
        for view in &views {
            for mask in 1..16u32 {
                let axes: Vec<usize> = (0..4).filter(|a| mask >> a & 1 == 1).collect();
                let kernel = reduce(ReduceOp::Mean, &axes, view, DType::F32);
                agree(&format!("over {axes:?} of {view:?}"), &kernel, &[], &inputs, 1e-5);
            }
        }
    }
}

/// A row times a matrix, as a product of one row is computed: one operand is the same for all columns.
#[test]
fn rows_times_matrices() {
    for (k, n) in [(16, 4), (129, 36), (700, 33), (5000, 64)] {
        let program = Program {
            instrs: vec![Instr::Load(0), Instr::Load(1), Instr::Binary(BinaryOp::Mul, 0, 1)],
            dtypes: vec![DType::F32; 3],
            inputs: vec![DType::F32; 2],
            scalars: vec![],
            outputs: vec![2],
        };
        let layouts = vec![Layout::new([k, n], &[1, 0], 0), Layout::contiguous([k, n])];
        let kernel = Kernel::reduce(ReduceOp::Sum, Shape::from([k, n]), &[0], layouts, program);
        let inputs = [(DType::F32, numbers(k, 1)), (DType::F32, numbers(k * n, 2))];
        agree(&format!("1 x {k} x {n}"), &kernel, &[], &inputs, 1e-5);
    }
}

#[test]
fn special_values_stay_in_their_column() {
    let (rows, columns) = (500, 36);
    for at in [0, 35, 249 * 36 + 17, rows * columns - 1] {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
            let mut values = numbers(rows * columns, 2);
            values[at] = value;
            for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum, ReduceOp::Mean] {
                let kernel = reduce(op, &[0], &Layout::contiguous([rows, columns]), DType::F32);
                let what = format!("{op:?} with {value} at {at}");
                agree(&what, &kernel, &[], &[(DType::F32, values.clone())], 1e-5);
            }
        }
    }
}

#[test]
fn sums_of_columns_repeat_bit_by_bit_and_stay_accurate() {
    let (rows, columns) = (20_000, 12);
    let kernel = reduce(ReduceOp::Sum, &[0], &Layout::contiguous([rows, columns]), DType::F32);
    let input = [(DType::F32, vec![0.1; rows * columns])];
    for (name, device) in devices() {
        let first = run(device, &kernel, &[], &input).unwrap();
        assert_eq!(first, run(device, &kernel, &[], &input).unwrap(), "{name}");
        let expected = f64::from(0.1f32) * rows as f64;
        for sum in &first[0] {
            assert!((sum / expected - 1.0).abs() < 1e-6, "{name}: {sum}");
        }
    }
}

/// Bindings smaller than the buffer.
#[test]
fn columns_in_windows() {
    if devices().is_empty() {
        return;
    }
    let forced = Forced { form: Form::Tiled, binding_bytes: Some(1 << 14), ..Forced::default() };
    let device = backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap();
    for (rows, columns) in [(1000, 36), (3000, 4), (130, 257)] {
        let kernel = reduce(ReduceOp::Sum, &[0], &Layout::contiguous([rows, columns]), DType::F32);
        let inputs = [(DType::F32, numbers(rows * columns, 6))];
        let what = format!("{rows} x {columns} in windows");
        agree_on(&[("small bindings", device.clone())], &what, &kernel, &[], &inputs, 1e-5);
    }
}
