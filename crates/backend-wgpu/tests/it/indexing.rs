//! Gather, scatter-add and copies: axes, layouts, dtypes.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{INDEX_DTYPES, Input, agree, devices, numbers, run, scatter, tiled, tolerance};
use tensor_core::{DType, Kernel, Layout, Scalar, ScatterOp, Shape, kernel::Operand};

/// `n` whole numbers below `below`.
fn whole(n: usize, below: usize, seed: u64) -> Vec<f64> {
    (0..n).map(|i| f64::from(tensor_core::philox(seed, i as u64)[0] % below as u32)).collect()
}

#[test]
fn gathers() {
    for dtype in DType::ALL {
        for index_dtype in INDEX_DTYPES {
            for axis in 0..3 {
                let input = Layout::contiguous([6, 7, 8]).permute(&[2, 0, 1]).flip(1);
                let mut shape = [4, 3, 5];
                shape[axis] = 9;
                let n: usize = shape.iter().product();
                let index = Layout::contiguous(shape);
                let kernel = Kernel::gather(
                    axis,
                    Operand::new(dtype, input.clone()),
                    Operand::new(index_dtype, index),
                );
                let size = input.shape()[axis];
                agree(
                    &format!("gather {dtype} by {index_dtype} along {axis}"),
                    &kernel,
                    &[],
                    &[(dtype, numbers(336, 1)), (index_dtype, whole(n, size, 2))],
                    tolerance(dtype),
                );
            }
        }
    }
    // Rows of a table, as an embedding reads them: with and without vectors, forwards and backwards, wide
    // and narrow.
    for (columns, offset) in [(16, 0), (300, 0), (18, 0), (16, 2), (1, 0)] {
        for dtype in [DType::F32, DType::U8, DType::F64] {
            let table = Layout::new([10, columns], &[columns as isize, 1], offset);
            let tables = [table.flip(0), table.flip(1), table];
            for input in tables {
                let index = Layout::new([500, columns], &[1, 0], 0);
                let kernel =
                    Kernel::gather(0, Operand::new(dtype, input.clone()), Operand::new(DType::I32, index));
                let inputs = [(dtype, numbers(10 * columns + offset, 1)), (DType::I32, whole(500, 10, 3))];
                agree(&format!("rows of {input:?}"), &kernel, &[], &inputs, tolerance(dtype));
            }
        }
    }
}

const SCATTERS: [ScatterOp; 4] = [ScatterOp::Add, ScatterOp::Max, ScatterOp::Min, ScatterOp::Replace];

#[test]
fn scatters_in_every_dtype() {
    let dtypes = [DType::F32, DType::BF16, DType::I32, DType::U8, DType::U32, DType::I64, DType::F64];
    for (number, dtype) in dtypes.into_iter().enumerate() {
        // An index is loaded by a function of its own: f32 is moved by all kinds of indices, and every other
        // dtype by one kind that every device has.
        let first = number % 4;
        let by = if dtype == DType::F32 { 0..INDEX_DTYPES.len() } else { first..first + 1 };
        for &index_dtype in &INDEX_DTYPES[by] {
            for (axis, op) in (0..3).flat_map(|axis| SCATTERS.map(|op| (axis, op))) {
                let base = Layout::contiguous([6, 5, 4]);
                let mut shape = [3, 5, 2];
                shape[axis] = 11;
                let n: usize = shape.iter().product();
                let kernel = scatter(
                    op,
                    axis,
                    dtype,
                    index_dtype,
                    base.clone(),
                    Layout::contiguous(shape),
                    Layout::contiguous(shape).flip(axis),
                );
                let inputs: [Input; 3] = [
                    (dtype, numbers(120, 1)),
                    (index_dtype, whole(n, base.shape()[axis], 2)),
                    (dtype, numbers(n, 3)),
                ];
                // The reference rounds a half type after each addition.
                agree(&format!("{} {dtype}", op.name()), &kernel, &[], &inputs, tolerance(dtype) * 8.0);
            }
        }
    }
}

#[test]
fn scatters_by_lines() {
    // Few long lines and many short ones: both forms of the kernel, with a base that is one expanded value.
    for (rows, columns, length) in [(300, 64, 200), (2000, 1, 50), (3, 700, 40)] {
        let base = Layout::new([rows, columns], &[0, 0], 0);
        let index = Layout::new([length, columns], &[1, 0], 0);
        let src = Layout::contiguous([length, columns]);
        for op in SCATTERS {
            let kernel = scatter(op, 0, DType::F32, DType::I32, base.clone(), index.clone(), src.clone());
            let inputs = [
                (DType::F32, vec![0.5]),
                (DType::I32, whole(length, rows, 2)),
                (DType::F32, numbers(length * columns, 3)),
            ];
            agree(&format!("{} by lines", op.name()), &kernel, &[], &inputs, 1e-5);
        }
    }
    let kernel = scatter(
        ScatterOp::Add,
        0,
        DType::F32,
        DType::I32,
        Layout::contiguous([4]),
        Layout::contiguous([0]),
        Layout::contiguous([0]),
    );
    let inputs = [(DType::F32, numbers(4, 1)), (DType::I32, vec![]), (DType::F32, vec![])];
    agree("nothing to add", &kernel, &[], &inputs, 0.0);
}

#[test]
fn copies_and_fills() {
    for dtype in DType::ALL {
        // A concatenation along axis 1 and a padding with gaps.
        let out = Layout::contiguous([4, 10]);
        let concat = Kernel::copy(
            dtype,
            Shape::from([4, 10]),
            false,
            vec![
                (out.slice(1, 0, 3, 1), Layout::contiguous([3, 4]).permute(&[1, 0])),
                (out.slice(1, 3, 7, 1), Layout::contiguous([4, 7]).flip(0)),
            ],
        );
        agree("concat", &concat, &[], &[(dtype, numbers(12, 1)), (dtype, numbers(28, 2))], tolerance(dtype));
        for value in [0.0, 1.0, f64::INFINITY, f64::NAN] {
            let pad = Kernel::copy(
                dtype,
                Shape::from([4, 10]),
                true,
                vec![(out.slice(0, 1, 2, 1).slice(1, 1, 4, 2), Layout::contiguous([2, 4]))],
            );
            agree(
                "pad",
                &pad,
                &[Scalar::Float(value).cast(dtype)],
                &[(dtype, numbers(8, 1))],
                tolerance(dtype),
            );
        }
        // One run into another, with and without vectors.
        for (offset, n) in [(0, 64), (4, 64), (1, 64), (0, 63)] {
            let dense = Kernel::copy(
                dtype,
                Shape::from([n]),
                false,
                vec![(Layout::contiguous([n]), Layout::new([n], &[1], offset))],
            );
            agree("dense", &dense, &[], &[(dtype, numbers(70, 1))], tolerance(dtype));
        }
        let empty = Kernel::copy(dtype, Shape::from([0, 3]), true, []);
        agree("empty", &empty, &[Scalar::Int(1).cast(dtype)], &[], 0.0);
    }
}

/// Transposes of every size around an invocation's block, and copies whose source is expanded, strided or
/// not aligned to vectors.
#[test]
fn copies_of_views() {
    let dtype = DType::F32;
    let copy = |src: &Layout| {
        let dst = Layout::contiguous(src.shape().clone());
        let shape = src.shape().clone();
        let regions = vec![(dst, src.clone())];
        Kernel::copy(dtype, shape, false, regions)
    };
    let inputs = [(dtype, numbers(25_000, 1))];
    for (rows, columns) in [(4, 4), (16, 16), (20, 36), (36, 20), (132, 60), (52, 100), (17, 33), (64, 6)] {
        for batch in [1, 3] {
            let src = Layout::contiguous([batch, columns, rows]).permute(&[0, 2, 1]);
            agree(&format!("{rows} x {columns} turned"), &copy(&src), &[], &inputs, 0.0);
        }
    }
    for (columns, strides, offset) in [
        (64, [0, 0], 5),
        (64, [1, 0], 0),
        (64, [70, 1], 0),
        (64, [68, 1], 4),
        (64, [64, 1], 3),
        (64, [200, 3], 1),
        (64, [64, -1], 63),
        (63, [64, 1], 0),
        (63, [0, 2], 1),
        (4, [4, 1], 0),
        (1, [7, 1], 0),
    ] {
        let src = Layout::new([50, columns], &strides, offset);
        agree(&format!("{src:?}"), &copy(&src), &[], &inputs, 0.0);
    }
}

/// Long scatters: lengths around a chunk, its levels and a block of the sort; an index without repeats, one
/// that repeats a single element, and one whose repeats are very unequal.
#[test]
fn scatters_by_segments() {
    for length in [63, 64, 65, 129, 1023, 1025, 2048, 2049, 5000] {
        for (rows, columns) in [(300, 1), (7, 8), (5000, 3)] {
            let indices: [Vec<f64>; 3] = [
                (0..length).map(|i| ((i * 7) % rows) as f64).collect(),
                vec![(rows / 2) as f64; length],
                // Half of the positions name element 0, a quarter element 1, and so on.
                whole(length, 1 << 20, 3)
                    .iter()
                    .map(|x| (20.0 - (x + 1.0).log2().ceil()).min(rows as f64 - 1.0))
                    .collect(),
            ];
            for index in indices {
                for op in [ScatterOp::Add, ScatterOp::Max] {
                    let kernel = scatter(
                        op,
                        0,
                        DType::F32,
                        DType::I64,
                        Layout::contiguous([rows, columns]),
                        Layout::new([length, columns], &[1, 0], 0),
                        Layout::contiguous([length, columns]),
                    );
                    let inputs = [
                        (DType::F32, numbers(rows * columns, 1)),
                        (DType::I64, index.clone()),
                        (DType::F32, numbers(length * columns, 3)),
                    ];
                    let what = format!("{} of {length} x {columns} to {rows}", op.name());
                    // The reference adds one value after the other.
                    agree(&what, &kernel, &[], &inputs, 3e-4);
                }
            }
        }
    }
}

/// Lines of an index that varies along other axes too, every dtype, and sources and indices that are
/// permuted, flipped, offset or one repeated element.
#[test]
fn segments_of_every_dtype_and_layout() {
    let dtypes = [DType::F32, DType::BF16, DType::I32, DType::U8, DType::U32, DType::I64, DType::F64];
    for (n, &dtype) in dtypes.iter().enumerate() {
        // Every dtype of indices, every axis and both operations occur, but not with each other.
        let (axis, index_dtype) = (n % 3, INDEX_DTYPES[n % INDEX_DTYPES.len()]);
        let op = if n % 2 == 0 { ScatterOp::Add } else { ScatterOp::Min };
        let mut shape = [3, 5, 4];
        shape[axis] = 90;
        let mut goal = shape;
        goal[axis] = 11;
        let (base, contiguous) = (Layout::contiguous(goal), Layout::contiguous(shape));
        let mut last = contiguous.strides().to_vec();
        last[(axis + 1) % 3] = 0;
        let rows: Vec<isize> = (0..3).map(|a| isize::from(a == axis)).collect();
        let cases = [
            (contiguous.flip(axis), contiguous.flip(2)),
            (Layout::new(shape, &last, 0), contiguous.clone()),
            (Layout::new(shape, &rows, 2), contiguous.clone()),
            (Layout::new(shape, &rows, 2), Layout::new(shape, &[0; 3], 1)),
        ];
        for (index, src) in cases {
            let kernel = scatter(op, axis, dtype, index_dtype, base.clone(), index, src);
            let n = contiguous.numel();
            let inputs: [Input; 3] =
                [(dtype, numbers(base.numel(), 1)), (index_dtype, whole(n, 11, 2)), (dtype, numbers(n, 3))];
            // The reference rounds a half type after each addition.
            let allowed = tolerance(dtype) * if dtype == DType::BF16 { 20.0 } else { 8.0 };
            agree(&format!("{} {dtype} by {index_dtype}", op.name()), &kernel, &[], &inputs, allowed);
        }
    }
}

/// NaN, infinities and zeros reach the elements that they are added to, and no others; the sums repeat bit
/// by bit.
#[test]
fn segments_of_special_values() {
    let (length, rows, columns) = (3000, 40, 4);
    let mut values = numbers(length * columns, 3);
    for (at, value) in [(0, f64::NAN), (700, f64::INFINITY), (5000, f64::NEG_INFINITY), (11_999, -0.0)] {
        values[at] = value;
    }
    for op in [ScatterOp::Add, ScatterOp::Max, ScatterOp::Min] {
        let kernel = scatter(
            op,
            0,
            DType::F32,
            DType::I32,
            Layout::contiguous([rows, columns]),
            Layout::new([length, columns], &[1, 0], 0),
            Layout::contiguous([length, columns]),
        );
        let inputs = [
            (DType::F32, vec![-0.0; rows * columns]),
            (DType::I32, whole(length, rows, 2)),
            (DType::F32, values.clone()),
        ];
        agree(op.name(), &kernel, &[], &inputs, 2e-5);
        for (name, device) in devices() {
            let bits = || -> Vec<u64> {
                run(device, &kernel, &[], &inputs).unwrap()[0].iter().map(|x| x.to_bits()).collect()
            };
            assert_eq!(bits(), bits(), "{name}");
        }
    }
}

/// The per-line form would walk every position in one invocation; segments are chunks of 64 in levels.
#[test]
fn long_scatters_are_sorted_on_hardware() {
    let Some(device) = tiled() else { return };
    let passes = |length: usize| {
        let kernel = scatter(
            ScatterOp::Add,
            0,
            DType::F32,
            DType::I32,
            Layout::contiguous([100, 8]),
            Layout::new([length, 8], &[1, 0], 0),
            Layout::contiguous([length, 8]),
        );
        let source = device.backend().source(&kernel);
        source.iter().filter(|text| text.contains("fn push(")).count()
    };
    assert_eq!([63, 64, 65, 2048, 2049].map(passes), [0, 1, 2, 2, 3]);
}
