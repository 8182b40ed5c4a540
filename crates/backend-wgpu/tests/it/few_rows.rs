//! Products of 1 to 9 rows or columns, whose kernels share k between invocations, and products of few tiles,
//! whose k is cut into parts: every layout, dtype and epilogue, on a device that takes itself for a GPU and
//! reports each index out of range.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, OnceLock};

use crate::common::{agree_in_turn, agree_on, all_devices, device, numbers, today, tolerance};
use backend_wgpu::{Forced, Form, Options};
use taper_testing::make_scales_small;
use tensor_core::{Affine, AffineBits, BlockFormat, DType, Device, GgmlType, Kernel, Layout, Shape};

/// The devices under test: one with tiled kernels, without subgroups, and one with the choices of a large
/// GPU.
fn all() -> &'static [(&'static str, Device)] {
    static ALL: OnceLock<Vec<(&'static str, Device)>> = OnceLock::new();
    today(ALL.get_or_init(|| {
        if device().is_none() {
            return Vec::new();
        }
        let forced =
            Forced { form: Form::Tiled, invocations: Some(1 << 16), trace: true, ..Forced::default() };
        let large = backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap();
        let tiled = all_devices().iter().filter(|(name, _)| name.starts_with("tiled")).cloned();
        tiled.chain([("as a large GPU, traced", large)]).collect()
    }))
}

/// The layouts of a matrix: contiguous, transposed, and slices that begin at any element.
fn layouts(rows: usize, columns: usize) -> Vec<Layout> {
    let wide = Layout::contiguous([rows + 3, columns + 7]);
    let tall = Layout::contiguous([columns + 8, rows + 4]);
    vec![
        Layout::contiguous([rows, columns]),
        Layout::contiguous([columns, rows]).permute(&[1, 0]),
        wide.slice(0, 2, rows, 1).slice(1, 3, columns, 1),
        tall.slice(0, 4, columns, 1).slice(1, 4, rows, 1).permute(&[1, 0]),
    ]
}

/// Compares a kernel's results with the reference, on all devices, or on the one whose turn it is.
fn agree(what: &str, kernel: &Kernel, turn: Option<usize>) {
    let dtype = kernel.operands[0].dtype;
    let inputs: Vec<_> = (0..2)
        .map(|k| {
            let values = numbers(kernel.operands[k].layout.span().1, 1 + k as u64);
            let whole = |x: &f64| if dtype.is_float() { *x } else { (x * 20.0).round() };
            (dtype, values.iter().map(whole).collect())
        })
        .collect();
    let terms: usize = kernel.reduced_axes().iter().map(|&axis| kernel.space[axis]).product();
    let within = tolerance(dtype) * 4.0 * (terms as f64).sqrt().max(1.0);
    match turn {
        Some(number) => agree_in_turn(number, all(), what, kernel, &[], &inputs, within),
        None => agree_on(all(), what, kernel, &[], &inputs, within),
    }
}

/// A product, transposed or not. Every layout runs on all devices in f32; dtypes change only loads, stores
/// and types, so that others run on one device after the other.
fn product(dtype: DType, [m, n, k]: [usize; 3], lhs: usize, rhs: usize, turned: bool, turn: Option<usize>) {
    let (a, b) = (layouts(m, k).swap_remove(lhs), layouts(k, n).swap_remove(rhs));
    let what = format!("{dtype}, {m} x {k} x {n}, layouts {lhs} and {rhs}");
    match turned {
        false => agree(&what, &Kernel::matmul(dtype, &a, &b), turn),
        true => agree(
            &format!("{what}, transposed"),
            &Kernel::matmul(dtype, &b.permute(&[1, 0]), &a.permute(&[1, 0])),
            turn,
        ),
    }
}

#[test]
fn one_to_nine_rows_in_every_layout() {
    for m in 1..=9 {
        // The kernels of 3 and 4 rows, and of 5 to 8, are the same.
        for (i, [n, k]) in [[36, 64], [37, 67], [5, 301]].into_iter().enumerate() {
            let kinds = if [1, 2, 3, 8, 9].contains(&m) { 4 } else { 1 };
            (0..kinds)
                .for_each(|kind| product(DType::F32, [m, n, k], (m + i) % 4, (kind + m) % 4, false, None));
        }
    }
}

#[test]
fn few_columns_and_long_sums() {
    for m in [1, 3, 8] {
        for rhs in 0..2 {
            product(DType::F32, [m, 200, 16], 0, rhs, true, None);
            product(DType::F32, [m, 6, 4099], 0, rhs, true, None);
            product(DType::F32, [m, 8, 4096], 0, rhs, false, None);
            product(DType::F32, [m, 1030, 260], 0, rhs, false, None);
        }
    }
}

#[test]
fn every_dtype_of_few_rows() {
    for (i, dtype) in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool).enumerate() {
        // Eight and narrower types differ from the wider ones only in their loads and stores.
        for (rhs, [m, n, k]) in [(0, [3, 20, 64]), (1, [3, 20, 64]), (2, [1, 7, 33])] {
            product(dtype, [m, n, k], 0, rhs, false, Some(i + rhs));
        }
    }
}

#[test]
fn batches_of_few_rows() {
    for dtype in [DType::F32, DType::BF16] {
        for (m, n, k) in [(1, 64, 40), (4, 40, 64), (2, 9, 70)] {
            let lhs = Layout::contiguous([3, m, k]);
            for rhs in [Layout::contiguous([3, k, n]), Layout::contiguous([3, n, k]).permute(&[0, 2, 1])] {
                agree(
                    &format!("a batch, {dtype}, {m} x {k} x {n}"),
                    &Kernel::matmul(dtype, &lhs, &rhs),
                    None,
                );
            }
        }
    }
}

#[test]
fn few_tiles_are_cut_along_their_terms() {
    for dtype in [DType::F32, DType::F16, DType::I32, DType::F64] {
        for (i, [m, n, k]) in
            [[20, 24, 200], [33, 37, 331], [64, 128, 784], [10, 11, 1030]].into_iter().enumerate()
        {
            for rhs in 0..2 {
                let turn = (dtype != DType::F32).then_some(i + rhs);
                product(dtype, [m, n, k], 1 - rhs, rhs, false, turn);
            }
        }
    }
}

#[test]
fn epilogues_of_few_rows_and_of_parts() {
    use taper_testing::epilogues::{epilogues, operands};
    for [m, n, k] in [[2, 20, 64], [1, 8, 2000], [20, 24, 200]] {
        let kernel = Kernel::matmul(
            DType::F32,
            &Layout::contiguous([m, k]),
            &Layout::contiguous([n, k]).permute(&[1, 0]),
        );
        for case in epilogues(&kernel) {
            let inputs: Vec<_> = operands(&kernel).into_iter().chain(case.inputs).collect();
            let what = format!("{} after {m} x {k} x {n}", case.what);
            agree_on(all(), &what, &case.kernel, &case.scalars, &inputs, 4e-3);
        }
    }
}

/// Random blocks of a format, with small scales, as numbers.
fn blocks(format: GgmlType, shape: &[usize]) -> Vec<f64> {
    let len = format.bytes(&Shape::from(shape)).unwrap();
    let mut bytes: Vec<u8> = numbers(len, 3).iter().map(|x| (x * 1000.0) as i64 as u8).collect();
    bytes.chunks_mut(format.block_bytes()).for_each(|block| make_scales_small(format, block));
    bytes.into_iter().map(f64::from).collect()
}

#[test]
fn weights_in_blocks() {
    for (number, format) in GgmlType::ALL.into_iter().enumerate() {
        let (n, k) = (20, 2 * format.block_elements());
        let weight = Layout::contiguous([n, k]);
        // How an element is decoded does not depend on the number of rows.
        let every_form = matches!(format, GgmlType::Q4_0 | GgmlType::Q6_K);
        let forms = [(1, DType::F32), (2, DType::F16), (3, DType::F32), (40, DType::F32)];
        for &(m, dtype) in &forms[..if every_form { 4 } else { 1 }] {
            // x wᵀ, and x w, which reads a block across its columns.
            for (i, (inner, w)) in [(k, weight.permute(&[1, 0])), (n, weight.clone())].into_iter().enumerate()
            {
                let mut kernel = Kernel::matmul(dtype, &Layout::contiguous([m, inner]), &w);
                kernel.operands[1].format = Some(Arc::new(format));
                let inputs = [(dtype, numbers(m * inner, 1)), (DType::U8, blocks(format, &[n, k]))];
                let what = format!("{m} rows times {}, {inner} terms, in {dtype}", format.name());
                let within = 40.0 * tolerance(dtype);
                match every_form {
                    true => agree_on(all(), &what, &kernel, &[], &inputs, within),
                    false => agree_in_turn(number + i, all(), &what, &kernel, &[], &inputs, within),
                }
            }
        }
    }
}

#[test]
fn weights_in_groups() {
    let (n, k) = (12, 64);
    let shape = Shape::from([n, k]);
    for bits in AffineBits::ALL {
        // One group, one for each row or column, and runs of a row or column.
        let scales = [(vec![1], 0), (vec![n], 0), (vec![k], 1), (vec![n, 4], 1), (vec![3, k], 0)];
        for (number, (scale, axis)) in scales.into_iter().enumerate() {
            let scale = Shape::from(&scale[..]);
            let len = if matches!(bits, AffineBits::I4 | AffineBits::U4) { n * k / 2 } else { n * k };
            let integers: Vec<u8> = numbers(len, 3).iter().map(|x| (x * 1000.0) as i64 as u8).collect();
            let scales: Vec<f32> = numbers(scale.numel(), 4).iter().map(|&x| x as f32 / 64.0).collect();
            let zeros: Vec<f32> =
                numbers(scale.numel(), 5).iter().map(|x| (x * 4.0).round() as f32).collect();
            let (format, bytes) =
                Affine::encode(bits, &shape, &integers, (&scale, &scales), Some(&zeros), axis).unwrap();
            let format: Arc<dyn BlockFormat> = Arc::new(format);
            let bytes: Vec<f64> = bytes.into_iter().map(f64::from).collect();
            let weight = Layout::contiguous([n, k]);
            // How an element is decoded does not depend on the number of rows.
            let forms = [(2, DType::F32), (20, DType::F32), (1, DType::BF16)];
            let count = if matches!(bits, AffineBits::I4) { forms.len() } else { 1 };
            for &(m, dtype) in &forms[..count] {
                for (i, (inner, w)) in
                    [(k, weight.permute(&[1, 0])), (n, weight.clone())].into_iter().enumerate()
                {
                    let mut kernel = Kernel::matmul(dtype, &Layout::contiguous([m, inner]), &w);
                    kernel.operands[1].format = Some(Arc::clone(&format));
                    let inputs = [(dtype, numbers(m * inner, 1)), (DType::U8, bytes.clone())];
                    let what =
                        format!("{m} rows times {bits:?} in groups of {scale}, {inner} terms, in {dtype}");
                    agree_in_turn(number + i, all(), &what, &kernel, &[], &inputs, 40.0 * tolerance(dtype));
                }
            }
        }
    }
}
