//! Inputs of tests: pseudo-random numbers, tensors of them, and every memory layout of a tensor.

use tensor_core::{DType, Device, GgmlType, Kind, Result, Scalar, Tensor, philox};

/// Pseudo-random numbers between −2 and 2, the same on every device.
pub fn numbers(n: usize, seed: u64) -> Vec<f64> {
    (0..n).map(|i| f64::from(philox(seed, i as u64)[0]) / f64::from(u32::MAX) * 4.0 - 2.0).collect()
}

/// A tensor of [`numbers`], in f32.
///
/// # Errors
/// Whatever the device reports.
pub fn floats(shape: &[usize], seed: u64, device: &Device) -> Result<Tensor> {
    tensor(shape, seed, DType::F32, device)
}

/// A tensor of [`numbers`] in a dtype: between −2 and 2 for floats, between −8 and 8 (or 0 and 8) for
/// integers.
///
/// # Errors
/// Whatever the device reports.
pub fn tensor(shape: &[usize], seed: u64, dtype: DType, device: &Device) -> Result<Tensor> {
    let scale = if dtype.is_float() { 1.0 } else { 4.0 };
    let values: Vec<f64> = numbers(shape.iter().product(), seed).into_iter().map(|v| v * scale).collect();
    of(&values, shape, dtype, device)
}

/// A tensor of given numbers in a dtype, converted on the host. Unsigned integers take absolute values,
/// and bools are true for positive numbers.
///
/// # Errors
/// Whatever the device reports.
pub fn of(values: &[f64], shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    let number = |&v: &f64| match dtype.info().kind {
        Kind::Bool => Scalar::Bool(v > 0.0),
        Kind::Unsigned => Scalar::Float(v.abs()),
        Kind::Signed | Kind::Float => Scalar::Float(v),
    };
    let numbers: Vec<Scalar> = values.iter().map(number).collect();
    Tensor::from_bytes_of(dtype, &Scalar::to_bytes(dtype, &numbers), shape, device)
}

/// A memory layout of a tensor: its name, and a function that makes a tensor of a dtype and a seed with
/// it.
pub type View = (&'static str, fn(&Device, DType, u64) -> Result<Tensor>);

/// The layouts on which every operation is tested.
pub const VIEWS: &[View] = &[
    ("contiguous", |d, t, s| tensor(&[3, 4, 5], s, t, d)),
    ("0-d", |d, t, s| tensor(&[], s, t, d)),
    ("empty", |d, t, s| tensor(&[3, 0, 5], s, t, d)),
    ("size 1", |d, t, s| tensor(&[1, 1], s, t, d)),
    ("odd", |d, t, s| tensor(&[7, 13], s, t, d)),
    ("transposed", |d, t, s| tensor(&[5, 4, 3], s, t, d)?.permute([2, 1, 0])),
    ("sliced", |d, t, s| tensor(&[6, 9, 5], s, t, d)?.slice_step(1, 1..9, 2)?.slice(0, 2..5)),
    ("expanded", |d, t, s| tensor(&[3, 1, 5], s, t, d)?.expand([3, 4, 5])),
    ("flipped", |d, t, s| tensor(&[3, 4, 5], s, t, d)?.flip([0, 2])),
];

/// A tensor of given scalars, each cast to `dtype` as [`Scalar::cast`] does.
///
/// # Errors
/// Whatever the device reports.
pub fn of_scalars(values: &[Scalar], shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::from_bytes_of(dtype, &Scalar::to_bytes(dtype, values), shape, device)
}

/// The elements of a tensor in row-major order, each in its own category, so that no integer is rounded.
/// Evaluates the tensor.
///
/// # Errors
/// Whatever the device reports.
pub fn to_scalars(tensor: &Tensor) -> Result<Vec<Scalar>> {
    Ok(Scalar::from_bytes(tensor.dtype(), &tensor.read_bytes()?))
}

/// A memory layout of a tensor with given elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Transposed: the axes are stored in reverse order.
    Transposed,
    /// Sliced: every other element along each axis of a larger buffer, from the second one on.
    Sliced,
    /// Flipped along every axis.
    Flipped,
    /// Expanded: the first axis with several elements repeats its first one, so the elements differ from
    /// those given.
    Expanded,
}

/// All of them.
pub const LAYOUTS: &[Layout] = &[Layout::Transposed, Layout::Sliced, Layout::Flipped, Layout::Expanded];

/// A tensor of given numbers, as in [`of`], stored in one of [`LAYOUTS`].
///
/// # Errors
/// Whatever the device reports.
pub fn laid_out(
    values: &[f64],
    shape: &[usize],
    layout: Layout,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let rank = shape.len();
    let strides: Vec<usize> = (0..rank).map(|axis| shape[axis + 1..].iter().product()).collect();
    // The elements in row-major order of `sizes`, each the element of `values` at the index that `at`
    // gives.
    let gathered = |sizes: &[usize], at: &dyn Fn(&[usize]) -> usize| -> Vec<f64> {
        let mut index = vec![0; sizes.len()];
        (0..sizes.iter().product::<usize>())
            .map(|mut i| {
                for axis in (0..sizes.len()).rev() {
                    (index[axis], i) = (i % sizes[axis], i / sizes[axis]);
                }
                values[at(&index)]
            })
            .collect()
    };
    match layout {
        Layout::Transposed => {
            let sizes: Vec<usize> = shape.iter().rev().copied().collect();
            let base = gathered(&sizes, &|i| i.iter().rev().zip(&strides).map(|(i, s)| i * s).sum());
            of(&base, &sizes, dtype, device)?.permute((0..rank).rev().collect::<Vec<_>>())
        }
        Layout::Sliced => {
            let sizes: Vec<usize> = shape.iter().map(|n| if *n == 0 { 0 } else { 2 * n + 1 }).collect();
            let place = |i: &[usize]| {
                let at =
                    |axis: usize| (i[axis].max(1) - 1).div_euclid(2).min(shape[axis] - 1) * strides[axis];
                (0..rank).map(at).sum()
            };
            let mut view = of(&gathered(&sizes, &place), &sizes, dtype, device)?;
            for axis in (0..rank).filter(|axis| shape[*axis] > 0) {
                view = view.slice_step(axis, 1..2 * shape[axis], 2)?;
            }
            Ok(view)
        }
        Layout::Flipped => {
            let place = |i: &[usize]| (0..rank).map(|axis| (shape[axis] - 1 - i[axis]) * strides[axis]).sum();
            of(&gathered(shape, &place), shape, dtype, device)?.flip((0..rank).collect::<Vec<_>>())
        }
        Layout::Expanded => {
            let wide = shape.iter().position(|n| *n > 1);
            let mut sizes = shape.to_vec();
            wide.into_iter().for_each(|axis| sizes[axis] = 1);
            let base = gathered(&sizes, &|i| i.iter().zip(&strides).map(|(i, s)| i * s).sum());
            of(&base, &sizes, dtype, device)?.expand(shape)
        }
    }
}

/// Makes the scales and offsets of a block of any bytes small: about 2⁻⁷ in a block of 32 elements, and 2⁻⁹
/// in one of 256, whose groups have scales of their own.
pub fn make_scales_small(format: GgmlType, block: &mut [u8]) {
    if format == GgmlType::MXFP4 {
        // The exponent of a power of two, plus 127.
        block[0] = 119 | block[0] & 3;
    }
    // An f16 with the exponent of 2⁻⁸ or 2⁻¹⁰, and any fraction.
    let exponent = if format.block_elements() == 32 { 0x1c } else { 0x14 };
    for at in f16_places(format) {
        block[at + 1] = exponent | block[at + 1] & 3;
    }
}

/// The bytes of a block at which its f16 begin: scales, and offsets.
fn f16_places(format: GgmlType) -> &'static [usize] {
    match format {
        GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 | GgmlType::IQ4_NL | GgmlType::IQ4_XS => &[0],
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q2_K => &[80, 82],
        GgmlType::Q3_K => &[108],
        GgmlType::Q6_K => &[208],
        GgmlType::TQ2_0 => &[64],
        GgmlType::MXFP4 => &[],
    }
}
