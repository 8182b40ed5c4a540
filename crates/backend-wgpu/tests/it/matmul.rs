//! Matrix products: sizes on and off tile boundaries, any strides, batches, dtypes, in every form.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::OnceLock;

use crate::common::{agree, agree_on, device, numbers, today, tolerance};
use backend_wgpu::{Forced, Form, Options};
use tensor_core::{DType, Device, Kernel, Layout, Scalar, Shape};

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
            &Kernel::matmul(DType::F32, &a, &b),
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
                    &Kernel::matmul(DType::F32, &a, &b),
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
        // A small tile, a medium one and a large one, with and without vectors; and a vector on either
        // side, long enough to be split between invocations.
        for (m, n, k) in [(9, 12, 10), (72, 68, 20), (130, 66, 7), (1, 12, 1100), (7, 1, 1100)] {
            let lhs = Layout::contiguous([3, m, k]).expand(&Shape::from([2, 3, m, k]));
            let rhs = Layout::contiguous([2, 1, k, n]).expand(&Shape::from([2, 3, k, n]));
            let inputs = [(dtype, values(dtype, 3 * m * k, 1)), (dtype, values(dtype, 2 * k * n, 2))];
            agree(
                &format!("batched {dtype}, {m} x {k} x {n}"),
                &Kernel::matmul(dtype, &lhs, &rhs),
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
            agree("large", &Kernel::matmul(DType::F32, &a, &b), &[], &inputs, 3e-5);
        }
    }
}

#[test]
fn more_tiles_than_workgroups_of_one_axis() {
    // 70,000 batches of one tile each, or of one block each in the direct form.
    let (lhs, rhs) = (Layout::new([70_000, 5, 2], &[0, 2, 1], 0), Layout::new([70_000, 2, 6], &[0, 6, 1], 0));
    let inputs = [(DType::F32, numbers(10, 1)), (DType::F32, numbers(12, 2))];
    agree("many tiles", &Kernel::matmul(DType::F32, &lhs, &rhs), &[], &inputs, 1e-6);
    // The same with one element each.
    let lhs = Layout::new([70_000, 1, 2], &[0, 2, 1], 0);
    let rhs = Layout::new([70_000, 2, 1], &[0, 1, 1], 0);
    agree(
        "many",
        &Kernel::matmul(DType::F32, &lhs, &rhs),
        &[],
        &[(DType::F32, vec![2.0, 3.0]), (DType::F32, vec![5.0, 7.0])],
        0.0,
    );
}

/// Convolutions, forward and backward, and other sums of products over several axes: a weight over windows
/// of images.
#[test]
fn contractions_over_windows() {
    let sizes = [(9, 3, 1, 1, [3, 5]), (12, 2, 2, 1, [4, 8]), (11, 3, 2, 2, [1, 2]), (20, 5, 1, 1, [8, 33])];
    for (number, (size, window, step, dilation, channels)) in sizes.into_iter().enumerate() {
        let [from, to] = channels;
        let places = (size - (window - 1) * dilation - 1) / step + 1;
        let space = Shape::from([2, to, places, places, from, window, window]);
        let (row, image) = (size as isize, (size * size) as isize);
        let (step, dilation, taps) = (step as isize, dilation as isize, window as isize);
        let along = |n, s| if n > 1 { s } else { 0 };
        let images = Layout::new(
            space.clone(),
            &[from as isize * image, 0, step * row, step, along(from, image), dilation * row, dilation],
            0,
        );
        let weight = Layout::new(
            space.clone(),
            &[0, from as isize * taps * taps, 0, 0, along(from, taps * taps), taps, 1],
            0,
        );
        let outputs = Layout::new(
            space.clone(),
            &[(to * places * places) as isize, (places * places) as isize, places as isize, 1, 0, 0, 0],
            0,
        );
        let numel = |layout: &Layout| layout.span().1;
        for (i, dtype) in [DType::F32, DType::F64, DType::I32, DType::F16].into_iter().enumerate() {
            // How the axes are counted does not depend on the dtype: the others take two of the four.
            if dtype != DType::F32 && (number + i) % 2 == 0 {
                continue;
            }
            let scale = if dtype.is_float() { 1.0 } else { 9.0 };
            let values = |layout: &Layout, seed: u64| -> (DType, Vec<f64>) {
                (dtype, numbers(numel(layout), seed).iter().map(|v| v * scale).collect())
            };
            let tolerance = tolerance(dtype) * 40.0;
            // The result; the gradient of the weight; and the two operands swapped.
            for (what, lhs, rhs, reduced) in [
                ("forward", &images, &weight, &[4, 5, 6][..]),
                ("swapped", &weight, &images, &[4, 5, 6]),
                ("weight", &images, &outputs, &[0, 2, 3]),
                ("turned", &outputs, &images, &[0, 2, 3]),
                ("one sum", &outputs, &weight, &[0, 1, 2, 3, 4, 5, 6]),
            ] {
                let kernel = Kernel::contract(dtype, lhs.clone(), rhs.clone(), reduced);
                let inputs = [values(lhs, 1), values(rhs, 2)];
                agree(&format!("{what} of {space} in {dtype}"), &kernel, &[], &inputs, tolerance);
            }
        }
    }
}

/// Channels last: both operands are dense along the terms, and are read four at a time over several axes.
#[test]
fn contractions_over_dense_channels() {
    let (size, channels, to) = (10, 8, 12);
    let space = Shape::from([2, 8, 8, to, 3, 3, channels]);
    let (c, row) = (channels as isize, (channels * size) as isize);
    let images = Layout::new(space.clone(), &[row * size as isize, row, c, 0, row, c, 1], 0);
    let weight = Layout::new(space.clone(), &[0, 0, 0, 9 * c, 3 * c, c, 1], 0);
    for (lhs, rhs) in [(&images, &weight), (&weight, &images)] {
        let kernel = Kernel::contract(DType::F32, lhs.clone(), rhs.clone(), &[4, 5, 6]);
        let inputs = [(DType::F32, numbers(lhs.span().1, 1)), (DType::F32, numbers(rhs.span().1, 2))];
        agree("channels last", &kernel, &[], &inputs, 1e-5);
    }
}

/// Products of integers of 8 bits, four at a time and one at a time: the same numbers as the reference's, in
/// wider sums and wrapped.
#[test]
fn integers_of_eight_bits() {
    static BOTH: OnceLock<Vec<(&'static str, Device)>> = OnceLock::new();
    let both = BOTH.get_or_init(|| {
        if device().is_none() {
            return Vec::new();
        }
        let open = |no_dots: bool| {
            let trace = !no_dots;
            let forced = Forced { form: Form::Tiled, no_dots, trace, ..Forced::default() };
            backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap()
        };
        vec![("four at a time, traced", open(false)), ("one at a time", open(true))]
    });
    let has =
        |device: &Device, kernel: &Kernel, text: &str| device.backend().source(kernel)[0].contains(text);
    for (dtype, dot) in [(DType::I8, "dot4I8Packed"), (DType::U8, "dot4U8Packed")] {
        let plain = Kernel::matmul(dtype, &Layout::contiguous([64, 64]), &Layout::contiguous([64, 64]));
        for (i, (_, device)) in both.iter().enumerate() {
            assert_eq!(has(device, &plain, dot), i == 0);
        }
        for (m, n, k) in [(64, 64, 32), (33, 70, 45), (130, 72, 20), (9, 9, 7), (20, 24, 300)] {
            let whole = Layout::contiguous([m + 1, k + 3]);
            let left = [
                Layout::contiguous([m, k]),
                Layout::contiguous([k, m]).permute(&[1, 0]),
                whole.slice(0, 1, m, 1).slice(1, 3, k, 1),
            ];
            let right = [Layout::contiguous([k, n]), Layout::contiguous([n, k]).permute(&[1, 0])];
            for (i, a) in left.iter().enumerate() {
                for (j, b) in right.iter().enumerate().filter(|(j, _)| m == 33 || (i + m) % 2 == *j) {
                    let values = |layout: &Layout, seed: u64| -> Vec<f64> {
                        let [least, greatest] = [dtype.least(), dtype.greatest()].map(Scalar::as_f64);
                        let all = numbers(layout.span().1, seed).into_iter();
                        all.map(|x| (x * 127.0).round().clamp(least, greatest)).collect()
                    };
                    let inputs = [(dtype, values(a, 1)), (dtype, values(b, 2))];
                    let mut kernel = Kernel::matmul(dtype, a, b);
                    let what = format!("{dtype}, {m} x {k} x {n}, layouts {i} and {j}");
                    agree_on(today(both), &what, &kernel, &[], &inputs, 0.0);
                    if i == 0 {
                        kernel.outputs[0].dtype = DType::I32;
                        agree_on(today(both), &format!("{what}, wide"), &kernel, &[], &inputs, 0.0);
                    }
                }
            }
        }
    }
}
