//! Cumulative operations and sorts, over axes, layouts, lengths and dtypes, in every form.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{agree, devices, numbers, run, tolerance};
use tensor_core::{CumulativeOp, DType, Kernel, Layout, Shape, kernel::Operand};

fn cumulative(op: CumulativeOp, axis: usize, reverse: bool, dtype: DType, input: &Layout) -> Kernel {
    Kernel::cumulative(op, axis, reverse, Operand::new(dtype, input.clone()))
}

fn sort(axis: usize, descending: bool, k: usize, dtype: DType, input: &Layout) -> Kernel {
    Kernel::arg_sort(axis, descending, k, Operand::new(dtype, input.clone()))
}

fn lacking(op: CumulativeOp, dtype: DType) -> bool {
    !op.is_arg() && (dtype == DType::Bool || (op == CumulativeOp::LogSumExp && !dtype.is_float()))
}

/// Few different whole numbers, which any dtype can hold.
fn few(n: usize, seed: u64) -> Vec<f64> {
    numbers(n, seed).iter().map(|x| (x * 2.0).round().abs()).collect()
}

#[test]
fn every_dtype() {
    for dtype in DType::ALL {
        for (shape, axis) in [(vec![3, 4, 5], 1), (vec![2, 300], 1), (vec![300, 3], 0), (vec![1, 1], 1)] {
            let layout = Layout::contiguous(Shape::from(&shape[..]));
            let inputs = [(dtype, few(layout.numel(), 3))];
            let what = format!("of {dtype} along {axis} of {shape:?}");
            for &op in CumulativeOp::ALL.iter().filter(|&&op| !lacking(op, dtype)) {
                // Sums of half types stay in the range where every whole number is representable.
                let within = if op == CumulativeOp::Sum { 0.0 } else { tolerance(dtype) * 40.0 };
                let within = if dtype == DType::BF16 { 0.03 } else { within };
                for reverse in [false, true] {
                    let kernel = cumulative(op, axis, reverse, dtype, &layout);
                    agree(&format!("{} {what}", op.name()), &kernel, &[], &inputs, within);
                }
            }
            for k in [1, shape[axis].div_ceil(3), shape[axis]] {
                for descending in [false, true] {
                    let kernel = sort(axis, descending, k, dtype, &layout);
                    agree(&format!("the first {k} {what}"), &kernel, &[], &inputs, 0.0);
                }
            }
        }
    }
}

#[test]
fn every_axis_and_layout() {
    let whole = Layout::contiguous([4, 6, 10, 3]);
    let wide = Shape::from([4, 6, 10, 3]);
    let views = [
        whole.clone(),
        whole.permute(&[3, 1, 0, 2]),
        whole.slice(2, 9, 4, -2).flip(0),
        whole.slice(1, 2, 1, 1).expand(&wide),
        whole.slice(2, 2, 1, 1).slice(3, 1, 1, 1).expand(&wide),
    ];
    let inputs = [(DType::F32, few(whole.numel(), 7))];
    for view in &views {
        for axis in 0..4 {
            let what = format!("axis {axis} of {view:?}");
            for reverse in [false, true] {
                for op in [CumulativeOp::Sum, CumulativeOp::ArgMax, CumulativeOp::ArgMin] {
                    let kernel = cumulative(op, axis, reverse, DType::F32, view);
                    agree(&what, &kernel, &[], &inputs, 0.0);
                }
                for k in [view.shape()[axis], 2] {
                    agree(&what, &sort(axis, reverse, k, DType::F32, view), &[], &inputs, 0.0);
                }
            }
        }
    }
}

#[test]
fn lines_of_every_length() {
    for n in [127, 128, 1023, 1024, 1025, 4096, 9001, 40_000] {
        for (shape, axis) in [([2, n], 1), ([n, 2], 0)] {
            let layout = Layout::contiguous(shape);
            let what = format!("along {axis} of {shape:?}");
            let inputs = [(DType::F32, few(2 * n, 5))];
            for op in [CumulativeOp::Sum, CumulativeOp::ArgMin] {
                for reverse in [false, true] {
                    let kernel = cumulative(op, axis, reverse, DType::F32, &layout);
                    agree(&what, &kernel, &[], &inputs, 0.0);
                }
            }
            for k in [1, 10, 100, 1500, n] {
                let kernel = sort(axis, k % 3 == 1, k.min(n), DType::F32, &layout);
                agree(&format!("{k} {what}"), &kernel, &[], &inputs, 0.0);
            }
        }
    }
    // Products in parts would overflow and then meet a zero: each line has to be one part.
    let mut values = vec![2.0; 5000];
    values[0] = 0.0;
    let kernel = cumulative(CumulativeOp::Prod, 0, false, DType::F32, &Layout::contiguous([5000]));
    agree("a product after a zero", &kernel, &[], &[(DType::F32, values)], 0.0);
    let kernel = cumulative(CumulativeOp::Prod, 0, false, DType::I32, &Layout::contiguous([5000]));
    agree("wrapping products", &kernel, &[], &[(DType::I32, vec![3.0; 5000])], 0.0);
}

/// Long lines are sorted by the digits of their keys: in one pass to eight, with the sums of the counts of
/// tiles made by every workgroup or apart, and the last tile full or not.
#[test]
fn long_lines_by_their_digits() {
    for dtype in DType::ALL {
        let lengths: &[usize] = match dtype.size() {
            1 => &[2050, 3072, 100_001],
            2 => &[6145, 100_001],
            4 => &[90_000, 100_001],
            _ => &[600_000],
        };
        for &n in lengths {
            let layout = Layout::contiguous([n]);
            let far: Vec<f64> = numbers(n, 9).iter().map(|x| x * 1000.0).collect();
            let all_equal = vec![1.0; n];
            for (values, descending) in
                [(few(n, 3), false), (far.clone(), true), (all_equal, true), (far, false)]
            {
                let kernel = sort(0, descending, n, dtype, &layout);
                agree(&format!("{n} of {dtype}, {descending}"), &kernel, &[], &[(dtype, values)], 0.0);
            }
        }
    }
    // Lines that are not contiguous, several of them, and only the first part of their order.
    for (shape, axis, k) in [([3, 60_000], 1, 60_000), ([70_000, 3], 0, 70_000), ([2, 90_000], 1, 50_000)] {
        let layout = Layout::contiguous(shape);
        let inputs = [(DType::F32, numbers(layout.numel(), 2))];
        for input in [&layout, &layout.flip(axis)] {
            let kernel = sort(axis, false, k, DType::F32, input);
            agree(&format!("{k} along {axis} of {shape:?}"), &kernel, &[], &inputs, 0.0);
        }
    }
}

/// The first few of long lines are selected: ties at the last one, keys of all sizes, several levels.
#[test]
fn the_first_few_of_long_lines() {
    for dtype in DType::ALL {
        for (n, k) in [(1025, 256), (4097, 1), (9001, 50), (9001, 1024)] {
            let layout = Layout::contiguous([2, n]);
            let far: Vec<f64> = numbers(2 * n, 9).iter().map(|x| x * 1000.0).collect();
            for (values, descending) in [(few(2 * n, 3), false), (far, true), (vec![1.0; 2 * n], false)] {
                let kernel = sort(1, descending, k, dtype, &layout);
                let what = format!("the first {k} of {n} of {dtype}, {descending}");
                agree(&what, &kernel, &[], &[(dtype, values)], 0.0);
            }
        }
    }
    for (shape, axis, k) in [([1, 300_000], 1, 700), ([20_000, 3], 0, 9)] {
        let layout = Layout::contiguous(shape);
        let inputs = [(DType::F32, few(layout.numel(), 8))];
        for input in [&layout, &layout.flip(axis)] {
            let kernel = sort(axis, true, k, DType::F32, input);
            agree(&format!("the first {k} along {axis} of {shape:?}"), &kernel, &[], &inputs, 0.0);
        }
    }
}

/// Products too long for one dispatch: each stretch starts from the last product of the one before.
#[test]
fn long_products_go_in_stretches() {
    for (shape, axis) in [([1, 70_001], 1), ([3, 33_000], 1), ([40_000, 2], 0)] {
        let layout = Layout::contiguous(shape);
        // Signs, zeros at the end, and factors whose products neither vanish nor overflow.
        let mut values: Vec<f64> =
            (0..layout.numel()).map(|i| [2.0, -1.0, 0.5, -1.0, 1.0, 4.0, 0.25][i / 2 % 7]).collect();
        let end = values.len() - 9;
        values[end] = 0.0;
        for dtype in [DType::F32, DType::F64] {
            for reverse in [false, true] {
                let kernel = cumulative(CumulativeOp::Prod, axis, reverse, dtype, &layout);
                let what = format!("a product of {dtype} along {axis} of {shape:?}");
                agree(&what, &kernel, &[], &[(dtype, values.clone())], 0.0);
            }
        }
    }
}

/// Lines that are neighbours in memory, in parts whose totals are scanned by a workgroup.
#[test]
fn columns_in_parts() {
    for (rows, columns) in [(127, 5), (9000, 3), (20_000, 1), (8200, 40)] {
        let layout = Layout::contiguous([rows, columns]);
        let inputs = [(DType::F32, numbers(rows * columns, 4))];
        for op in [CumulativeOp::Sum, CumulativeOp::LogSumExp, CumulativeOp::ArgMax] {
            for reverse in [false, true] {
                let kernel = cumulative(op, 0, reverse, DType::F32, &layout);
                let what = format!("{} of {rows} x {columns}", op.name());
                agree(&what, &kernel, &[], &inputs, if op.is_arg() { 0.0 } else { 1e-4 });
            }
        }
    }
}

#[test]
fn nothing_along_the_axis_and_nothing_else() {
    for (shape, axis) in [([3, 0], 1), ([0, 3], 1)] {
        let layout = Layout::contiguous(shape);
        let inputs = [(DType::F32, vec![])];
        agree("none", &cumulative(CumulativeOp::Sum, axis, false, DType::F32, &layout), &[], &inputs, 0.0);
        agree("none", &sort(axis, false, shape[axis], DType::F32, &layout), &[], &inputs, 0.0);
    }
    let none = sort(1, false, 0, DType::F32, &Layout::contiguous([2, 3]));
    agree("the first none", &none, &[], &[(DType::F32, numbers(6, 1))], 0.0);
}

#[test]
fn special_values() {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1.0, -1.0, 1e-40, -1e-40, 3e38];
    for n in [40, 3000] {
        for dtype in [DType::F32, DType::F64] {
            let draw = |seed: u64| -> Vec<f64> {
                (0..n)
                    .map(|i| special[tensor_core::philox(seed, i as u64)[0] as usize % special.len()])
                    .collect()
            };
            let layout = Layout::contiguous([n]);
            for seed in 0..4 {
                let inputs = [(dtype, draw(seed))];
                for descending in [false, true] {
                    for k in [3, n / 2, n] {
                        agree("special", &sort(0, descending, k, dtype, &layout), &[], &inputs, 0.0);
                    }
                    // WGSL may treat denormal numbers as zero in float comparisons.
                    let inputs = [(
                        dtype,
                        draw(seed).iter().map(|x| if x.abs() < 1e-30 { 0.0 } else { *x }).collect(),
                    )];
                    for op in [CumulativeOp::ArgMax, CumulativeOp::ArgMin] {
                        agree("special", &cumulative(op, 0, descending, dtype, &layout), &[], &inputs, 0.0);
                    }
                }
            }
        }
    }
    for at in [0, 20, 4999] {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut values = numbers(5000, 2);
            values[at] = value;
            for op in [CumulativeOp::Sum, CumulativeOp::LogSumExp] {
                let kernel = cumulative(op, 0, false, DType::F32, &Layout::contiguous([5000]));
                agree(op.name(), &kernel, &[], &[(DType::F32, values.clone())], 1e-4);
            }
        }
    }
}

#[test]
fn sums_repeat_bit_by_bit_and_stay_accurate() {
    for (name, device) in devices() {
        let n = 300_000;
        let kernel = cumulative(CumulativeOp::Sum, 0, false, DType::F32, &Layout::contiguous([n]));
        let input = [(DType::F32, vec![0.1; n])];
        let first = run(device, &kernel, &[], &input).unwrap();
        assert_eq!(first, run(device, &kernel, &[], &input).unwrap(), "{name}");
        for i in (0..n).step_by(991) {
            let expected = f64::from(0.1f32) * (i + 1) as f64;
            assert!((first[0][i] / expected - 1.0).abs() < 2e-6, "{name}: {} at {i}", first[0][i]);
        }
    }
}
