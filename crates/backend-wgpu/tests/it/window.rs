//! Tensors larger than one binding, with bindings of 16 KiB: every kind of kernel in pieces, and kernels
//! that cannot be cut.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::OnceLock;

use crate::common::{agree_on, device, numbers, read, scatter, to_bytes, today};
use backend_wgpu::{Forced, Form, Options};
use smallvec::SmallVec;
use tensor_core::{
    ArgReduceOp, BinaryOp, CumulativeOp, DType, Device, ErrorKind, Kernel, Launch, Layout, RandomKind,
    ReduceOp, Scalar, ScatterOp, Shape,
    kernel::{Compiled, IndexedAxis, Instr, Operand, Program},
};

/// Elements of four bytes in one binding; also the number of smaller elements in their tests.
const BINDING: usize = 4096;

fn devices() -> &'static [(&'static str, Device)] {
    devices_for(4)
}

/// Devices whose bindings hold [`BINDING`] elements of this size.
fn devices_for(size: usize) -> &'static [(&'static str, Device)] {
    static DEVICES: [OnceLock<Vec<(&'static str, Device)>>; 3] = [const { OnceLock::new() }; 3];
    today(DEVICES[size.ilog2() as usize].get_or_init(|| {
        if device().is_none() {
            return Vec::new();
        }
        let open = |no_immediates, form| {
            let binding_bytes = Some((size * BINDING) as u64);
            let forced = Forced { no_immediates, form, binding_bytes, ..Forced::default() };
            backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap()
        };
        vec![("direct", open(false, Form::Direct)), ("tiled", open(true, Form::Tiled))]
    }))
}

fn agree(what: &str, kernel: &Kernel, scalars: &[Scalar], inputs: &[crate::common::Input], tolerance: f64) {
    // With smaller elements, bindings hold as many of them.
    let outputs = kernel.outputs.iter().map(|output| output.dtype);
    let size = kernel.operands.iter().map(|operand| operand.dtype).chain(outputs).map(DType::size).min();
    agree_on(devices_for(size.unwrap_or(4).min(4)), what, kernel, scalars, inputs, tolerance);
}

/// A program that adds or multiplies all inputs.
fn program(dtype: DType, inputs: u16, op: BinaryOp) -> Program {
    let mut p = Program { inputs: vec![dtype; usize::from(inputs)], ..Program::default() };
    p.instrs.extend((0..inputs).map(Instr::Load));
    for k in 1..inputs {
        let before = if k == 1 { 0 } else { p.instrs.len() as u16 - 1 };
        p.instrs.push(Instr::Binary(op, before, k));
    }
    p.dtypes = vec![dtype; p.instrs.len()];
    p.outputs = vec![p.instrs.len() as u16 - 1];
    p
}

fn map(shape: &[usize], inputs: Vec<Layout>, program: Program) -> Kernel {
    Kernel::map(shape.into(), inputs, program)
}

#[test]
fn maps() {
    for (rows, columns) in [(100, 100), (3, 5001), (5000, 3), (1, 7777), (70, 64), (129, 33), (3, 4095)] {
        let shape = [rows, columns];
        let n = rows * columns;
        let whole = Layout::contiguous(shape);
        let operands = [
            ("contiguous", whole.clone()),
            ("a row for all", Layout::new(shape, &[0, 1], 3)),
            ("a column for all", Layout::new(shape, &[1, 0], 5)),
            ("backwards", whole.flip(0).flip(1)),
            // These are transposed relative to the output, and are copied to its order first.
            ("transposed", Layout::contiguous([columns, rows]).permute(&[1, 0])),
            ("transposed and backwards", Layout::contiguous([columns, rows]).permute(&[1, 0]).flip(0)),
        ];
        for (what, other) in operands {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::U8] {
                let kernel =
                    map(&shape, vec![whole.clone(), other.clone()], program(dtype, 2, BinaryOp::Add));
                let held = |x: f64| if dtype.is_float() { x } else { x.abs() * 50.0 };
                let inputs = [(n, 1), (n + 8, 2)]
                    .map(|(n, seed)| (dtype, numbers(n, seed).into_iter().map(held).collect()));
                agree(&format!("{what} {dtype} of {shape:?}"), &kernel, &[], &inputs, 4e-3);
            }
        }
    }
}

#[test]
fn positions_count_through_the_whole() {
    let p = Program {
        instrs: vec![
            Instr::Arange { start: 0, step: 1 },
            Instr::Random { kind: RandomKind::Bits, seed: 2, offset: 3 },
        ],
        dtypes: vec![DType::I32, DType::U32],
        inputs: vec![],
        scalars: vec![DType::I32, DType::I32, DType::I64, DType::I64],
        outputs: vec![0, 1],
    };
    let scalars = [Scalar::Int(5), Scalar::Int(-3), Scalar::Int(77), Scalar::Int((1 << 32) - 900)];
    for n in [4096, 4097, 19_999] {
        agree("positions", &map(&[n], vec![], p.clone()), &scalars, &[], 0.0);
    }
}

#[test]
fn an_output_in_an_inputs_buffer() {
    for (name, device) in devices() {
        let n = 10_001;
        let backend = device.backend();
        let values = numbers(n, 1);
        let x = backend.upload(DType::F32, &to_bytes(DType::F32, &values)).unwrap();
        let one = backend.upload(DType::F32, &to_bytes(DType::F32, &[1.0])).unwrap();
        let layouts = vec![Layout::contiguous([n]), Layout::new([n], &[0], 0)];
        let kernel = map(&[n], layouts, program(DType::F32, 2, BinaryOp::Add));
        let compiled = Compiled::default();
        for _ in 0..3 {
            let launch = Launch {
                kernel: &kernel,
                compiled: &compiled,
                scalars: &[],
                inputs: &[x.clone(), one.clone()],
                outputs: std::slice::from_ref(&x),
                tickets: &[],
            };
            backend.run(&launch).unwrap();
        }
        for (found, value) in read(device, &x).unwrap().iter().zip(values) {
            assert_eq!(*found, f64::from(value as f32 + 1.0 + 1.0 + 1.0), "{name}");
        }
    }
}

#[test]
fn reductions() {
    for shape in [vec![100, 100], vec![20_000], vec![3, 5000], vec![5000, 3], vec![6, 30, 70], vec![2, 4096]]
    {
        for mask in 1u32..1 << shape.len() {
            let axes: SmallVec<[usize; 5]> = (0..shape.len()).filter(|a| mask >> a & 1 == 1).collect();
            for dtype in [DType::F32, DType::F16, DType::F64] {
                for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max] {
                    let layout = Layout::contiguous(&shape[..]);
                    let n = layout.numel();
                    let kernel = Kernel::reduce(
                        op,
                        shape[..].into(),
                        &axes.clone(),
                        vec![layout.clone(), layout],
                        program(dtype, 2, BinaryOp::Mul),
                    );
                    let inputs = [(dtype, numbers(n, 3)), (dtype, numbers(n, 4))];
                    let tolerance = match dtype {
                        DType::F16 => 4e-3,
                        _ => 1e-5,
                    };
                    agree(
                        &format!("{op:?} {dtype} of {shape:?} over {axes:?}"),
                        &kernel,
                        &[],
                        &inputs,
                        tolerance,
                    );
                }
            }
        }
    }
    // Many results of few elements, in another order than that of memory.
    let layout = Layout::contiguous([2, 6400]).permute(&[1, 0]);
    let kernel = Kernel::reduce(
        ReduceOp::Sum,
        Shape::from([6400, 2]),
        &[1],
        vec![layout],
        program(DType::F32, 1, BinaryOp::Add),
    );
    agree("pairs", &kernel, &[], &[(DType::F32, numbers(12_800, 3))], 1e-6);
}

#[test]
fn rows() {
    let p = Program {
        instrs: vec![
            Instr::Load(0),
            Instr::Load(1),
            Instr::Arange { start: 0, step: 1 },
            Instr::Binary(BinaryOp::Mul, 0, 1),
            Instr::Binary(BinaryOp::Add, 3, 2),
            Instr::Fold(ReduceOp::Mean, 4),
            Instr::Binary(BinaryOp::Sub, 4, 5),
        ],
        dtypes: vec![DType::F32; 7],
        inputs: vec![DType::F32; 2],
        scalars: vec![DType::F32; 2],
        outputs: vec![6, 5],
    };
    let halves = Program {
        dtypes: vec![DType::F16; 7],
        inputs: vec![DType::F16; 2],
        scalars: vec![DType::F16; 2],
        ..p.clone()
    };
    for (shape, row_axes) in [
        (vec![200, 60], 1),
        (vec![9000, 1], 1),
        (vec![5000, 3], 1),
        (vec![3, 50, 40], 1),
        (vec![40, 70, 4, 3], 2),
        (vec![5, 31, 64], 1),
    ] {
        let whole = Layout::contiguous(Shape::from(&shape[..]));
        let n = whole.numel();
        let mut turned: Vec<usize> = (1..shape.len()).collect();
        turned.push(0);
        let first_last: Shape = [&shape[shape.len() - 1..], &shape[..shape.len() - 1]].concat().into();
        let across = Layout::contiguous(first_last).permute(&turned);
        let lead = shape.len() - row_axes;
        let mut strides = Shape::from(&shape[..lead]).contiguous_strides();
        strides.resize(shape.len(), 0);
        for (x, y) in [
            (&whole, &whole),
            (&across, &whole.flip(0)),
            (&whole, &Layout::new(shape.as_slice(), &strides, 3)),
        ] {
            // The reference rounds a half type after each instruction.
            for (dtype, p, tolerance) in [(DType::F32, &p, 2e-5), (DType::F16, &halves, 2e-2)] {
                let kernel = Kernel::rows(
                    shape.as_slice().into(),
                    row_axes,
                    [x.clone(), y.clone()],
                    p.clone(),
                    &[false, true],
                );
                let inputs = [(dtype, numbers(n, 1)), (dtype, numbers(n + 3, 2))];
                let scalars = [Scalar::Float(1.0), Scalar::Float(1e-4)].map(|scalar| scalar.cast(dtype));
                let what = format!("{row_axes} axes of {shape:?} of {dtype}, {x:?}");
                agree(&what, &kernel, &scalars, &inputs, tolerance);
            }
        }
    }
}

#[test]
fn indices_of_extremes() {
    // Lines that fit a binding, and lines longer than one, contiguous and strided.
    let turned = Layout::contiguous([3, 6000]).permute(&[1, 0]);
    for (layout, axis) in [
        (Layout::contiguous([640, 20]), 1),
        (Layout::contiguous([640, 20]), 0),
        (Layout::contiguous([64, 30, 10]), 2),
        (Layout::contiguous([64, 30, 10]), 1),
        (Layout::contiguous([64, 30, 10]), 0),
        (Layout::contiguous([20_000]), 0),
        (Layout::contiguous([20_000]).flip(0), 0),
        (Layout::contiguous([3, 5000]), 1),
        (Layout::contiguous([5, 3000]), 0),
        (turned.clone(), 0),
        (turned, 1),
    ] {
        let n = layout.numel();
        for dtype in [DType::F32, DType::F16, DType::I32, DType::F64] {
            // Equal numbers, of which the first wins, and sometimes a NaN, which wins over all numbers.
            let mut values: Vec<f64> = numbers(n, 3).iter().map(|x| (x * 9.0).round()).collect();
            let nan = if dtype.is_float() { f64::NAN } else { 0.0 };
            for at in [n / 2, n / 2 + 1, n - 2] {
                values[at] = nan;
            }
            for op in [ArgReduceOp::ArgMax, ArgReduceOp::ArgMin] {
                let kernel = Kernel::arg_reduce(op, axis, Operand::new(dtype, layout.clone()));
                let what = format!("{op:?} {dtype} of {layout:?} over {axis}");
                agree(&what, &kernel, &[], &[(dtype, values.clone())], 0.0);
            }
        }
    }
}

#[test]
fn lines() {
    for dtype in [DType::F32, DType::F16, DType::U8] {
        // Indices have four bytes each, for every dtype of the input.
        let shapes = match dtype {
            DType::F32 => [[640, 20], [7, 1500], [3, 3000], [40, 300]],
            _ => [[1900, 20], [7, 4000], [3, 3001], [140, 301]],
        };
        for (shape, axis) in shapes.map(|shape| (shape, 1)) {
            let whole = Layout::contiguous(shape);
            let turned = Layout::contiguous([shape[1], shape[0]]).permute(&[1, 0]);
            for input in [whole, turned, Layout::new(shape, &[0, 1], 3), Layout::new(shape, &[1, 0], 3)] {
                // Small sums of f16 are exact.
                let held = |x: &f64| if dtype == DType::U8 { x.abs() * 3.0 } else { *x * 3.0 }.round();
                let mut values: Vec<f64> = numbers(shape[0] * shape[1] + 3, 4).iter().map(held).collect();
                if dtype == DType::F16 {
                    (1..values.len()).for_each(|i| values[i] = -values[i - 1].signum() * values[i].abs());
                }
                let inputs = [(dtype, values)];
                let what = format!("{input:?} of {dtype} along {axis}");
                for op in [CumulativeOp::Sum, CumulativeOp::ArgMax] {
                    let kernel = Kernel::cumulative(op, axis, true, Operand::new(dtype, input.clone()));
                    agree_on(devices(), &what, &kernel, &[], &inputs, 0.0);
                }
                for k in [2, 100, shape[axis]] {
                    let k = k.min(shape[axis]);
                    let kernel = Kernel::arg_sort(axis, k == 2, k, Operand::new(dtype, input.clone()));
                    agree_on(devices(), &format!("{k} of {what}"), &kernel, &[], &inputs, 0.0);
                }
            }
        }
    }
    // The keys of a sort need memory too; they are twice as wide as its indices.
    let input = Layout::new([4, 1500], &[0, 1], 0);
    let kernel = Kernel::arg_sort(1, false, 1500, Operand::new(DType::F64, input));
    agree("a row for all", &kernel, &[], &[(DType::F64, numbers(1500, 2))], 0.0);
}

#[test]
fn products() {
    let plain = |r: usize, c: usize| Layout::contiguous([r, c]);
    let turned = |r: usize, c: usize| Layout::contiguous([c, r]).permute(&[1, 0]);
    // Windows of rows; one row, whose columns are cut; a transposed left operand; and operands that only
    // fit in parts of k, the right one alone and both.
    for (m, n, k) in [
        (640, 16, 40),
        (3000, 1, 7),
        (300, 64, 10),
        (1, 6400, 4),
        (64, 200, 16),
        (64, 72, 64),
        (5, 30, 700),
        (33, 65, 401),
        (3, 2, 9001),
    ] {
        for lhs in [plain(m, k), turned(m, k)] {
            for rhs in [plain(k, n), turned(k, n)] {
                let kernel = Kernel::matmul(DType::F32, &lhs.clone(), &rhs);
                let inputs = [(DType::F32, numbers(m * k, 1)), (DType::F32, numbers(k * n, 2))];
                agree(&format!("{m} x {k} x {n} of {lhs:?}"), &kernel, &[], &inputs, 3e-5);
            }
        }
    }
    let (m, n, k) = (16, 24, 20);
    let kernel = Kernel::matmul(
        DType::F32,
        &Layout::contiguous([6, 4, m, k]),
        &Layout::contiguous([6, 1, k, n]).expand(&Shape::from([6, 4, k, n])),
    );
    let inputs = [(DType::F32, numbers(24 * m * k, 1)), (DType::F32, numbers(6 * k * n, 2))];
    agree("batches", &kernel, &[], &inputs, 1e-5);
}

/// Parts along k are added up without rounding, and integers wrap.
#[test]
fn products_in_parts_of_other_dtypes() {
    let (m, n, k) = (9, 40, 500);
    for dtype in [DType::F16, DType::BF16, DType::F64, DType::I32, DType::U8, DType::I64] {
        let kernel = Kernel::matmul(dtype, &Layout::contiguous([2, m, k]), &Layout::contiguous([2, k, n]));
        let scale = if dtype.is_float() { 1.0 } else { 100.0 };
        let values = |n, seed| numbers(n, seed).iter().map(|v| v.abs() * scale).collect();
        let inputs = [(dtype, values(2 * m * k, 1)), (dtype, values(2 * k * n, 2))];
        agree(&format!("parts of {dtype}"), &kernel, &[], &inputs, crate::common::tolerance(dtype) * 4.0);
    }
}

#[test]
fn by_index() {
    let whole = |n: usize, below: u32| -> Vec<f64> {
        (0..n as u64).map(|i| f64::from(tensor_core::philox(9, i)[0] % below)).collect()
    };
    for dtype in [DType::F32, DType::F64] {
        // A small table that is read often, and large rows that are read along themselves.
        for (table, index, axis) in [([10, 20], [640, 20], 0), ([640, 20], [640, 30], 1)] {
            let kernel = Kernel::gather(
                axis,
                Operand::new(dtype, Layout::contiguous(table)),
                Operand::new(DType::I32, Layout::contiguous(index)),
            );
            let positions = whole(index[0] * index[1], table[axis] as u32);
            let inputs = [(dtype, numbers(table[0] * table[1], 1)), (DType::I32, positions)];
            agree(&format!("gather {dtype} along {axis}"), &kernel, &[], &inputs, 0.0);
        }
        for reach in [640, 500] {
            let (base, index) = (Layout::contiguous([640, 20]), Layout::contiguous([reach, 30]));
            let inputs = [
                (dtype, numbers(640 * 20, 1)),
                (DType::I32, whole(reach * 30, 20)),
                (dtype, numbers(reach * 30, 2)),
            ];
            for op in [ScatterOp::Add, ScatterOp::Max, ScatterOp::Replace] {
                let kernel = scatter(op, 1, dtype, DType::I32, base.clone(), index.clone(), index.clone());
                agree(&format!("{} {dtype} of {reach}", op.name()), &kernel, &[], &inputs, 1e-5);
            }
        }
    }
}

/// Tables, results, indices and sources that are longer than a binding along the indexed axis.
#[test]
fn by_index_over_more_than_a_binding() {
    let whole = |n: usize, below: usize| -> Vec<f64> {
        (0..n as u64).map(|i| f64::from(tensor_core::philox(9, i)[0] % below as u32)).collect()
    };
    let rows = |n: usize, columns: usize| Layout::new([n, columns], &[1, 0], 0);
    let across = |n: usize, columns: usize| Layout::contiguous([columns, n]).permute(&[1, 0]);
    // The windows of a table depend on the bytes of an element alone; the other dtypes take three tables
    // each.
    let cases = [(2300, 8, 2), (700, 1000, 16), (5000, 5000, 1), (700, 300, 33), (3, 5, 9000), (65, 40, 64)];
    for (dtype, cases) in [(DType::F32, &cases[..]), (DType::F64, &cases[..3]), (DType::BF16, &cases[..3])] {
        for &(table, picked, columns) in cases {
            for input in [
                Layout::contiguous([table, columns]),
                Layout::contiguous([table, columns]).flip(0),
                across(table, columns),
            ] {
                for index in [rows(picked, columns), Layout::contiguous([picked, columns])] {
                    let kernel = Kernel::gather(
                        0,
                        Operand::new(dtype, input.clone()),
                        Operand::new(DType::I32, index),
                    );
                    let inputs =
                        [(dtype, numbers(table * columns, 1)), (DType::I32, whole(picked * columns, table))];
                    agree(&format!("gather {dtype} {picked} of {input:?}"), &kernel, &[], &inputs, 0.0);
                }
            }
            let spread = Layout::new([table, columns], &[0, 0], 0);
            for base in [Layout::contiguous([table, columns]), spread, across(table, columns)] {
                for (index, src) in [
                    (rows(picked, columns), Layout::contiguous([picked, columns])),
                    (rows(picked, columns), across(picked, columns)),
                    (Layout::contiguous([picked, columns]), Layout::new([picked, columns], &[0, 0], 0)),
                ] {
                    let inputs = [
                        (dtype, numbers(table * columns, 1)),
                        (DType::I32, whole(picked * columns, table)),
                        (dtype, numbers(picked * columns, 2)),
                    ];
                    // The reference rounds a half type after each addition.
                    let rounded = crate::common::tolerance(dtype) * 16.0;
                    for (op, tolerance) in [(ScatterOp::Add, rounded), (ScatterOp::Replace, 0.0)] {
                        let (base, index, src) = (base.clone(), index.clone(), src.clone());
                        let what = format!("{} {dtype} {picked} to {base:?}", op.name());
                        let kernel = scatter(op, 0, dtype, DType::I32, base, index, src);
                        agree(&what, &kernel, &[], &inputs, tolerance);
                    }
                }
            }
        }
    }
    // Along an axis in the middle, with a source that does not cover all of the other axes.
    let (base, index) = (Layout::contiguous([2, 900, 5]), Layout::contiguous([1, 2500, 4]));
    let kernel = scatter(ScatterOp::Add, 1, DType::F32, DType::I32, base, index.clone(), index);
    let inputs =
        [(DType::F32, numbers(9000, 1)), (DType::I32, whole(10_000, 900)), (DType::F32, numbers(10_000, 2))];
    agree("in the middle", &kernel, &[], &inputs, 1e-5);
}

#[test]
fn an_index_outside_all_parts_is_told() {
    for (name, device) in devices() {
        let (table, index) = (Layout::contiguous([5000, 2]), Layout::new([3, 2], &[1, 0], 0));
        let gather = Kernel::gather(
            0,
            Operand::new(DType::F32, table.clone()),
            Operand::new(DType::I32, index.clone()),
        );
        let add =
            scatter(ScatterOp::Add, 0, DType::F32, DType::I32, table, index, Layout::contiguous([3, 2]));
        for bad in [-1, 5000, 8192] {
            let inputs = [
                (DType::F32, numbers(10_000, 1)),
                (DType::I32, vec![4999.0, f64::from(bad), 0.0]),
                (DType::F32, numbers(6, 1)),
            ];
            for (wanted, kernel, inputs) in
                [("gather", &gather, &inputs[..2]), ("scatter_add", &add, &inputs)]
            {
                let error = crate::common::run(device, kernel, &[], inputs).unwrap_err();
                let ErrorKind::IndexOutOfRange { op, index, axis, size } = *error.kind() else {
                    panic!("{name}: {error}")
                };
                assert_eq!((op, index, axis, size), (wanted, i64::from(bad), 0, 5000), "{name}");
            }
        }
    }
}

#[test]
fn copies() {
    for dtype in [DType::F32, DType::U8, DType::BF16, DType::F64] {
        let out = Layout::contiguous([100, 130]);
        let kernel = Kernel::copy(
            dtype,
            Shape::from([100, 130]),
            true,
            vec![
                (out.slice(1, 0, 60, 1), Layout::contiguous([60, 100]).permute(&[1, 0])),
                (out.slice(1, 65, 30, 2), Layout::contiguous([100, 30]).flip(0)),
            ],
        );
        let positive = |n, seed| numbers(n, seed).iter().map(|v| (v * 50.0).abs()).collect();
        let inputs = [(dtype, positive(6000, 1)), (dtype, positive(3000, 2))];
        agree(&format!("copies of {dtype}"), &kernel, &[Scalar::Int(7).cast(dtype)], &inputs, 1e-6);
    }
}

#[test]
fn what_cannot_be_cut_is_told_and_leaves_the_device_usable() {
    for (name, device) in devices() {
        let refused = [
            Kernel::cumulative(
                CumulativeOp::Sum,
                0,
                false,
                Operand::new(DType::F32, Layout::contiguous([5000])),
            ),
            // Its keys do not fit, although its input and output do.
            Kernel::arg_sort(0, false, 3, Operand::new(DType::F32, Layout::new([5000], &[0], 0))),
        ];
        for kernel in refused {
            let inputs = [(DType::F32, numbers(5000, 1)), (DType::I32, vec![0.0; 5000])];
            let inputs = [inputs[0].clone(), inputs[1].clone(), inputs[0].clone()];
            let error = crate::common::run(device, &kernel, &[], &inputs).unwrap_err();
            let ErrorKind::Unsupported { hint, .. } = error.kind() else {
                panic!("{name}: {}: {error}", kernel.name())
            };
            assert!(hint.contains("16384") && hint.contains("binding"), "{name}: {hint}");
            device.synchronize().unwrap();
            let n = 30_000;
            let works = map(&[n], vec![Layout::contiguous([n])], program(DType::F32, 1, BinaryOp::Add));
            assert!(
                crate::common::run(device, &works, &[], &[(DType::F32, vec![1.5; n])]).unwrap()[0]
                    == vec![1.5; n]
            );
        }
    }
}

/// With the adapter's own limits: two tensors larger than a binding, if such tensors may exist.
#[test]
fn a_tensor_over_the_adapters_own_binding() {
    let Some(device) = device() else { return };
    // lavapipe binds at most 128 MiB; on other adapters this is an ordinary tensor.
    let n = (128 << 20) / 4 + 1000;
    if device.info().limits.max_buffer_bytes < 4 * n as u64 {
        let found = device.backend().allocate(DType::F32, n);
        assert!(matches!(found.as_ref().map_err(|e| e.kind()), Err(ErrorKind::TooLarge { .. })), "{found:?}");
        return;
    }
    let p = Program {
        instrs: vec![Instr::Arange { start: 0, step: 1 }],
        dtypes: vec![DType::I32],
        inputs: vec![],
        scalars: vec![DType::I32, DType::I32],
        outputs: vec![0],
    };
    let backend = device.backend();
    let out = backend.allocate(DType::I32, n).unwrap();
    let kernel = map(&[n], vec![], p);
    let scalars = [Scalar::Int(1), Scalar::Int(1)];
    let launch = Launch {
        kernel: &kernel,
        compiled: &Compiled::default(),
        scalars: &scalars,
        inputs: &[],
        outputs: std::slice::from_ref(&out),
        tickets: &[],
    };
    backend.run(&launch).unwrap();
    let sum = Kernel::reduce(
        ReduceOp::Max,
        n.into(),
        &[0],
        vec![Layout::contiguous([n])],
        program(DType::I32, 1, BinaryOp::Add),
    );
    let most = backend.allocate(DType::I32, 1).unwrap();
    let launch = Launch {
        kernel: &sum,
        compiled: &Compiled::default(),
        scalars: &[],
        inputs: std::slice::from_ref(&out),
        outputs: std::slice::from_ref(&most),
        tickets: &[],
    };
    backend.run(&launch).unwrap();
    assert_eq!(read(device, &most).unwrap(), [n as f64]);
    for at in [0, n / 2, n - 1] {
        let mut bytes = [0; 4];
        backend.download(&out, at, &mut bytes).unwrap();
        assert_eq!(i32::from_ne_bytes(bytes), at as i32 + 1);
    }
}

/// Programs read at indices: indices and results are larger than a binding, and the table fits one,
/// anywhere in a larger buffer.
#[test]
fn programs_that_read_at_indices() {
    let program = |op| Program {
        instrs: vec![
            Instr::Load(0),
            Instr::LoadAt { input: 1, index: 0 },
            Instr::Load(2),
            Instr::Binary(op, 1, 2),
        ],
        dtypes: vec![DType::I32, DType::F32, DType::F32, DType::F32],
        inputs: vec![DType::I32, DType::F32, DType::F32],
        scalars: vec![],
        outputs: vec![3],
    };
    for (rows, columns) in [(100, 100), (3, 5001), (5000, 3)] {
        let n = rows * columns;
        let whole = Layout::contiguous([rows, columns]);
        let tables = [
            (
                "rows",
                Layout::new([rows, columns], &[0, 1], 9000),
                Layout::new([rows, columns], &[1, 0], 0),
                columns,
            ),
            ("elements", Layout::new([rows, columns], &[0, 0], 9001), whole.clone(), 1),
            ("columns", Layout::new([rows, columns], &[7, 0], 1), whole.clone(), 1),
        ];
        for (what, table, index, stride) in tables {
            let size = (4000 / stride).clamp(1, 7);
            let axis = IndexedAxis { axis: 0, size, stride: stride as isize };
            let layouts = || vec![index.clone(), table.clone(), whole.clone()];
            let map = map(&[rows, columns], layouts(), program(BinaryOp::Add));
            let sum = Kernel::reduce(
                ReduceOp::Sum,
                [rows, columns].into(),
                &[1],
                layouts(),
                program(BinaryOp::Mul),
            );
            for kernel in [map, sum] {
                let kernel = kernel.with_indexed([None, Some(axis), None]);
                let reach = kernel.operands[1].reach().span().1;
                let indices: Vec<f64> =
                    numbers(n, 5).iter().map(|x| ((x + 2.0) * 0.2499 * size as f64).floor()).collect();
                let inputs =
                    [(DType::I32, indices), (DType::F32, numbers(reach, 6)), (DType::F32, numbers(n, 7))];
                agree(
                    &format!("{what} by {:?} of {rows} x {columns}", kernel.name()),
                    &kernel,
                    &[],
                    &inputs,
                    1e-4,
                );
            }
        }
    }
    // A table that fits no binding is left to a gather, which the scheduler creates.
    for (name, device) in devices() {
        assert!(device.info().limits.max_indexed_bytes <= 4 * BINDING as u64);
        let axis = IndexedAxis { axis: 0, size: BINDING + 1, stride: 1 };
        let layouts = vec![Layout::contiguous([3]), Layout::new([3], &[0], 0), Layout::contiguous([3])];
        let kernel = map(&[3], layouts, program(BinaryOp::Add)).with_indexed([None, Some(axis), None]);
        let inputs =
            [(DType::I32, vec![0.0; 3]), (DType::F32, vec![0.0; BINDING + 1]), (DType::F32, vec![0.0; 3])];
        let error = crate::common::run(device, &kernel, &[], &inputs).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{name}: {error}");
    }
}
