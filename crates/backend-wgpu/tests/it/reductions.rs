//! Reductions and arg-reductions, over axes, layouts, lengths and dtypes, in every form.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{agree, device, devices, load, numbers, reduce, run, tiled, tolerance};
use tensor_core::{
    ArgReduceOp, BinaryOp, DType, Kernel, Layout, ReduceOp, Shape,
    kernel::{Instr, Operand, Program},
};

fn lacking(op: ReduceOp, dtype: DType) -> bool {
    match op {
        ReduceOp::Any | ReduceOp::All => dtype != DType::Bool,
        ReduceOp::Mean => !dtype.is_float(),
        ReduceOp::Sum | ReduceOp::Prod => dtype == DType::Bool,
        _ => false,
    }
}

#[test]
fn every_reduction_of_every_dtype() {
    for dtype in DType::ALL {
        for &op in ReduceOp::ALL.iter().filter(|&&op| !lacking(op, dtype)) {
            for (shape, axes) in [
                (vec![3, 4, 5], vec![1]),
                (vec![2, 700], vec![1]),
                (vec![700, 3], vec![0]),
                (vec![50], vec![0]),
            ] {
                let layout = Layout::contiguous(Shape::from(&shape[..]));
                let n = layout.numel();
                // Products of many numbers stay near 1.
                let values: Vec<f64> = match op {
                    ReduceOp::Prod if dtype.is_float() => {
                        numbers(n, 3).iter().map(|x| 1.0 + x * 1e-2).collect()
                    }
                    _ => numbers(n, 3).iter().map(|x| x * 10.0).collect(),
                };
                let tolerance = tolerance(dtype) * 30.0;
                agree(
                    &format!("{op:?} of {dtype} over {axes:?} of {shape:?}"),
                    &reduce(op, &axes, &layout, dtype),
                    &[],
                    &[(dtype, values)],
                    tolerance,
                );
            }
        }
    }
}

/// Rows and columns that an invocation reads by 4, 8 or 16 elements, or for 8 results, and others that do
/// not allow it.
#[test]
fn vectors_of_every_width() {
    let with = |instrs: usize| {
        let mut program = load(DType::F32);
        for n in 0..instrs as u16 {
            program.instrs.push(Instr::Binary(BinaryOp::Add, n, 0));
            program.dtypes.push(DType::F32);
        }
        program.outputs = vec![instrs as u16];
        program
    };
    let shapes: [(&[usize], usize); 10] = [
        (&[40, 48], 1),
        (&[40, 40], 1),
        (&[40, 36], 1),
        (&[3, 5008], 1),
        (&[9, 7, 64], 1),
        (&[3, 19, 8192], 1),
        (&[1, 270, 8200], 1),
        (&[1, 20, 8196], 1),
        (&[70_000], 0),
        (&[2, 30_008], 1),
    ];
    for (shape, axis) in shapes {
        let whole = Shape::from(shape);
        let strides = whole.contiguous_strides();
        for instrs in if whole.numel() < 100_000 { &[0, 2, 6, 40][..] } else { &[0, 6] } {
            let instrs = *instrs;
            for (op, offset) in
                [(ReduceOp::Sum, 0), (ReduceOp::Sum, 4), (ReduceOp::Max, 8), (ReduceOp::Mean, 1)]
            {
                let layout = Layout::new(whole.clone(), &strides, offset);
                let kernel = Kernel::reduce(op, whole.clone(), &[axis], vec![layout], with(instrs));
                let values: Vec<f64> =
                    numbers(whole.numel() + offset, 3).into_iter().map(|x| x / (instrs + 1) as f64).collect();
                let what = format!("{op:?} of {shape:?} from {offset}, {instrs} instructions");
                agree(&what, &kernel, &[], &[(DType::F32, values)], 2e-4);
            }
        }
    }
}

#[test]
fn every_axis_and_layout() {
    let whole = Layout::contiguous([4, 6, 10, 3]);
    let n = whole.numel();
    let wide = Shape::from([4, 6, 10, 3]);
    let views = [
        whole.clone(),
        whole.permute(&[3, 1, 0, 2]),
        whole.slice(2, 9, 4, -2).flip(0),
        whole.slice(1, 2, 1, 1).expand(&wide),
        whole.slice(2, 2, 1, 1).slice(3, 1, 1, 1).expand(&wide),
    ];
    for view in &views {
        for mask in 0..16u32 {
            let axes: Vec<usize> = (0..4).filter(|a| mask >> a & 1 == 1).collect();
            for op in [ReduceOp::Sum, ReduceOp::Max] {
                agree(
                    &format!("{op:?} over {axes:?} of {view:?}"),
                    &reduce(op, &axes, view, DType::F32),
                    &[],
                    &[(DType::F32, numbers(n, 7))],
                    2e-5,
                );
            }
        }
    }
}

/// Results and elements in groups of four, from aligned offsets and others.
#[test]
fn neighbours_are_read_together() {
    let big = Layout::contiguous([24, 48]);
    for (start, size) in [(0, 48), (4, 40), (4, 42), (3, 40), (1, 3)] {
        for axis in [0, 1] {
            let layout = big.slice(1, start, size, 1);
            for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Mean] {
                for dtype in [DType::F32, DType::F64] {
                    let kernel = reduce(op, &[axis], &layout, dtype);
                    let what = format!("{op:?} of {start}..+{size} along {axis}");
                    agree(&what, &kernel, &[], &[(dtype, numbers(24 * 48, 4))], 1e-5);
                }
            }
        }
    }
}

#[test]
fn long_reductions_go_in_parts() {
    for (shape, axes) in [
        (vec![100_003], vec![0]),
        (vec![3, 40_000], vec![1]),
        (vec![40_000, 3], vec![0]),
        (vec![20, 7, 900], vec![0, 2]),
        (vec![2, 300, 300], vec![1, 2]),
    ] {
        let layout = Layout::contiguous(Shape::from(&shape[..]));
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min] {
            for dtype in [DType::F32, DType::BF16] {
                agree(
                    &format!("{op:?} of {shape:?}"),
                    &reduce(op, &axes, &layout, dtype),
                    &[],
                    &[(dtype, numbers(layout.numel(), 9))],
                    tolerance(dtype) * 20.0,
                );
            }
        }
    }
}

#[test]
fn nothing_to_reduce_and_nothing_reduced() {
    let empty = Layout::contiguous([3, 0, 2]);
    for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Prod] {
        agree("of nothing", &reduce(op, &[1], &empty, DType::F32), &[], &[(DType::F32, vec![])], 0.0);
        agree("to nothing", &reduce(op, &[0], &empty, DType::F32), &[], &[(DType::F32, vec![])], 0.0);
    }
    agree("any", &reduce(ReduceOp::Any, &[1], &empty, DType::Bool), &[], &[(DType::Bool, vec![])], 0.0);
    let scalar = Layout::new(Shape::scalar(), &[], 2);
    agree(
        "0-d",
        &reduce(ReduceOp::Sum, &[], &scalar, DType::F32),
        &[],
        &[(DType::F32, vec![1.0, 2.0, 3.0])],
        0.0,
    );
}

#[test]
fn nan_and_infinity_pass() {
    for n in [40, 5000] {
        for at in [0, n / 2, n - 1] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut values = numbers(n, 2);
                values[at] = value;
                for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum] {
                    let kernel = reduce(op, &[0], &Layout::contiguous([n]), DType::F32);
                    agree("nan", &kernel, &[], &[(DType::F32, values.clone())], 1e-5);
                }
            }
        }
    }
    let lowest = vec![f64::NEG_INFINITY; 300];
    agree(
        "all low",
        &reduce(ReduceOp::Max, &[0], &Layout::contiguous([300]), DType::F32),
        &[],
        &[(DType::F32, lowest)],
        0.0,
    );
}

#[test]
fn a_prologue_with_several_inputs() {
    let program = Program {
        instrs: vec![Instr::Load(0), Instr::Load(1), Instr::Binary(BinaryOp::Mul, 0, 1), Instr::Cast(2)],
        dtypes: vec![DType::F32, DType::F32, DType::F32, DType::F32],
        inputs: vec![DType::F32, DType::F32],
        scalars: vec![],
        outputs: vec![3],
    };
    let kernel = Kernel::reduce(
        ReduceOp::Sum,
        Shape::from([5, 400, 6]),
        &[1],
        vec![Layout::contiguous([5, 400, 6]), Layout::new([5, 400, 6], &[0, 1, 0], 3)],
        program,
    );
    agree("dot", &kernel, &[], &[(DType::F32, numbers(12_000, 1)), (DType::F32, numbers(403, 2))], 1e-5);
}

#[test]
fn sums_repeat_bit_by_bit_and_stay_accurate() {
    for (name, device) in devices() {
        let n = 1_000_000;
        let kernel = reduce(ReduceOp::Sum, &[0], &Layout::contiguous([n]), DType::F32);
        let input = [(DType::F32, vec![0.1; n])];
        let first = run(device, &kernel, &[], &input).unwrap();
        assert_eq!(first, run(device, &kernel, &[], &input).unwrap(), "{name}");
        let expected = f64::from(0.1f32) * n as f64;
        assert!((first[0][0] / expected - 1.0).abs() < 1e-6, "{name}: {}", first[0][0]);
    }
}

#[test]
fn indices_of_extremes() {
    let cases = [
        (vec![5, 7], 0, 35),
        (vec![5, 7], 1, 35),
        (vec![3, 5000], 1, 15000),
        (vec![9000], 0, 9000),
        (vec![4, 3, 5], 1, 60),
    ];
    for (shape, axis, n) in cases {
        for op in [ArgReduceOp::ArgMax, ArgReduceOp::ArgMin] {
            for dtype in [DType::F32, DType::BF16, DType::I32, DType::U8, DType::I64, DType::F64] {
                let layout = Layout::contiguous(Shape::from(&shape[..]));
                // Few distinct values: the first of equal values must win.
                let mut values: Vec<f64> = numbers(n, 4).iter().map(|x| (x * 3.0).round().abs()).collect();
                for nan in [false, true] {
                    if nan && dtype.is_float() {
                        values[n / 2] = f64::NAN;
                        values[n / 2 + 1] = f64::NAN;
                    }
                    for layout in [layout.clone(), layout.flip(axis)] {
                        let kernel = Kernel::arg_reduce(op, axis, Operand::new(dtype, layout));
                        agree(&format!("{op:?} of {dtype}"), &kernel, &[], &[(dtype, values.clone())], 0.0);
                    }
                }
            }
        }
    }
}

/// Rows and columns with lengths around the lanes of a result and the parts of an axis; all elements equal,
/// so that only the order decides, or with one extreme at the ends, or with NaN.
#[test]
fn indices_of_extremes_around_every_bound() {
    let lengths = [1, 15, 16, 17, 127, 128, 257, 1025, 20_000];
    for length in lengths {
        for results in [1, 3, 33] {
            let n = length * results;
            if n > 100_000 {
                continue;
            }
            for (axis, shape) in [(1, [results, length]), (0, [length, results])] {
                let layout = Layout::contiguous(shape);
                let at = |r: usize, i: usize| if axis == 1 { r * length + i } else { i * results + r };
                let equal = vec![-0.0; n];
                let mut zeros = equal.clone();
                (0..n).step_by(3).for_each(|i| zeros[i] = 0.0);
                let mut last = numbers(n, 5);
                (0..results).for_each(|r| last[at(r, length - 1)] = 9.0);
                let mut nan = numbers(n, 6);
                (0..results).for_each(|r| nan[at(r, length * 2 / 3)] = f64::NAN);
                (0..results).for_each(|r| nan[at(r, length - 1)] = f64::NAN);
                let infinite: Vec<f64> = vec![f64::NEG_INFINITY; n];
                for values in [equal, zeros, last, nan, infinite] {
                    for op in [ArgReduceOp::ArgMax, ArgReduceOp::ArgMin] {
                        let kernel = Kernel::arg_reduce(op, axis, Operand::new(DType::F32, layout.clone()));
                        let what = format!("{op:?} along {axis} of {shape:?}");
                        agree(&what, &kernel, &[], &[(DType::F32, values.clone())], 0.0);
                    }
                }
            }
        }
    }
}

/// A row of a vocabulary is searched by workgroups in parts, and one workgroup compares the winners.
#[test]
fn a_long_search_is_shared() {
    let Some(device) = tiled() else { return };
    let kernel =
        Kernel::arg_reduce(ArgReduceOp::ArgMax, 1, Operand::new(DType::F32, Layout::contiguous([1, 50_257])));
    let source = device.backend().source(&kernel);
    // On a large device the winners are compared in a tree as well.
    assert_eq!(source.len(), 2);
    assert!(source[0].contains("best_values"));
}

#[test]
fn more_results_than_workgroups() {
    let Some(device) = device() else { return };
    let n = 70_000 * 64;
    let kernel = reduce(ReduceOp::Sum, &[1], &Layout::new([n, 2], &[0, 1], 0), DType::F32);
    let found = run(device, &kernel, &[], &[(DType::F32, vec![1.0, 2.0])]).unwrap();
    assert!(found[0].iter().all(|&v| v == 3.0));
}
