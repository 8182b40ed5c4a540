//! Matrix products: sizes at and off every tile, any strides, batches, dtypes, in every form.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{agree, numbers, tolerance};
use tensor_core::{DType, Kernel, Layout, Shape, kernel::MatMulKernel};

fn matmul(batch: &[usize], m: usize, n: usize, k: usize, dtype: DType, lhs: Layout, rhs: Layout) -> Kernel {
    Kernel::MatMul(MatMulKernel { batch: batch.into(), m, n, k, dtype, lhs, rhs })
}

fn values(dtype: DType, n: usize, seed: u64) -> Vec<f64> {
    numbers(n, seed).iter().map(|x| if dtype.is_float() { *x } else { (x * 20.0).round() }).collect()
}

#[test]
fn all_sizes() {
    for (m, n, k) in [
        (1, 1, 1),
        (1, 7, 5),
        (5, 1, 9),
        (3, 4, 0),
        (0, 4, 3),
        (4, 4, 4),
        (8, 8, 8),
        (7, 9, 11),
        (64, 64, 16),
        (65, 63, 17),
        (33, 128, 40),
        (100, 36, 52),
        (1, 300, 64),
        (128, 10, 784),
    ] {
        let (a, b) = (Layout::contiguous([m, k]), Layout::contiguous([k, n]));
        let inputs = [(DType::F32, numbers(m * k, 1)), (DType::F32, numbers(k * n, 2))];
        agree(
            &format!("{m} x {k} x {n}"),
            &matmul(&[], m, n, k, DType::F32, a, b),
            &[],
            &inputs,
            1e-6 * (k as f64).sqrt().max(1.0) * 4.0,
        );
    }
}

#[test]
fn any_strides() {
    let big = Layout::contiguous([24, 24]);
    let pick = |rows: usize, columns: usize| -> Vec<(&str, Layout)> {
        vec![
            ("plain", Layout::contiguous([rows, columns])),
            ("transposed", Layout::contiguous([columns, rows]).permute(&[1, 0])),
            ("sliced", big.slice(0, 1, rows, 1).slice(1, 3, columns, 1)),
            ("sliced in vectors", big.slice(0, 4, rows, 1).slice(1, 4, columns, 1)),
            ("transposed slice", big.slice(0, 4, columns, 1).slice(1, 4, rows, 1).permute(&[1, 0])),
            ("flipped", Layout::contiguous([rows, columns]).flip(0).flip(1)),
            ("one row", Layout::contiguous([1, columns]).expand(&Shape::from([rows, columns]))),
            ("one column", Layout::contiguous([rows, 1]).expand(&Shape::from([rows, columns]))),
            ("every second", Layout::contiguous([rows * 2, columns]).slice(0, 0, rows, 2)),
        ]
    };
    for (m, n, k) in [(12, 20, 8), (1, 20, 8), (12, 1, 8)] {
        for (left, a) in pick(m, k) {
            for (right, b) in pick(k, n) {
                let inputs = [(DType::F32, numbers(576, 1)), (DType::F32, numbers(576, 2))];
                agree(
                    &format!("{m} x {k} x {n}, {left} x {right}"),
                    &matmul(&[], m, n, k, DType::F32, a.clone(), b),
                    &[],
                    &inputs,
                    1e-5,
                );
            }
        }
    }
}

#[test]
fn batches_and_dtypes() {
    for dtype in
        [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32, DType::U8, DType::I64, DType::F64]
    {
        // A small tile, one in the middle, and one of the largest, with vectors and without.
        // And a vector on either side, long enough to be split among threads.
        for (m, n, k) in [(9, 12, 10), (72, 68, 20), (130, 66, 7), (1, 12, 1100), (7, 1, 1100)] {
            let shape = Shape::from([2, 3]);
            let lhs = Layout::contiguous([3, m, k]).expand(&Shape::from([2, 3, m, k]));
            let rhs = Layout::contiguous([2, 1, k, n]).expand(&Shape::from([2, 3, k, n]));
            let inputs = [(dtype, values(dtype, 3 * m * k, 1)), (dtype, values(dtype, 2 * k * n, 2))];
            agree(
                &format!("batched {dtype}, {m} x {k} x {n}"),
                &matmul(&shape, m, n, k, dtype, lhs, rhs),
                &[],
                &inputs,
                tolerance(dtype) * if k > 1000 { 30.0 } else { 4.0 },
            );
        }
    }
}

#[test]
fn larger_blocks() {
    for (m, n, k) in [(260, 264, 100), (256, 257, 64), (130, 400, 33)] {
        let a = Layout::contiguous([k, m]).permute(&[1, 0]);
        let inputs = [(DType::F32, numbers(m * k, 1)), (DType::F32, numbers(k * n, 2))];
        for (a, b) in [
            (a.clone(), Layout::contiguous([k, n])),
            (Layout::contiguous([m, k]), Layout::contiguous([n, k]).permute(&[1, 0])),
            (Layout::contiguous([m, k]), Layout::contiguous([k, n])),
        ] {
            agree("large", &matmul(&[], m, n, k, DType::F32, a, b), &[], &inputs, 3e-5);
        }
    }
}

#[test]
fn more_tiles_than_workgroups_of_one_axis() {
    // 70,000 batches of one tile each, and of one block where there are no tiles.
    let (lhs, rhs) = (Layout::new([70_000, 5, 2], &[0, 2, 1], 0), Layout::new([70_000, 2, 6], &[0, 6, 1], 0));
    let inputs = [(DType::F32, numbers(10, 1)), (DType::F32, numbers(12, 2))];
    agree("many tiles", &matmul(&[70_000], 5, 6, 2, DType::F32, lhs, rhs), &[], &inputs, 1e-6);
    // And of one element.
    let lhs = Layout::new([70_000, 1, 2], &[0, 2, 1], 0);
    let rhs = Layout::new([70_000, 2, 1], &[0, 1, 1], 0);
    agree(
        "many",
        &matmul(&[70_000], 1, 1, 2, DType::F32, lhs, rhs),
        &[],
        &[(DType::F32, vec![2.0, 3.0]), (DType::F32, vec![5.0, 7.0])],
        0.0,
    );
}
