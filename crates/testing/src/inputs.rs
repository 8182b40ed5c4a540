//! What operations are tried with: numbers without a pattern, tensors of them, and every way a tensor may lie
//! in memory.

use tensor_core::{DType, Device, Kind, Result, Scalar, Tensor, philox};

/// Numbers between −2 and 2 without a pattern, the same on every device.
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

/// A tensor of given numbers in a dtype, converted on the host. Unsigned integers take magnitudes, bools
/// whether a number is above 0.
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

/// The same logical kind of tensor in every way it may lie in memory: name, and how to make it of a base
/// tensor.
pub type View = (&'static str, fn(&Device, DType, u64) -> Result<Tensor>);

/// Layouts that every operation meets.
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
/// Computes them.
///
/// # Errors
/// Whatever the device reports.
pub fn to_scalars(tensor: &Tensor) -> Result<Vec<Scalar>> {
    Ok(Scalar::from_bytes(tensor.dtype(), &tensor.read_bytes()?))
}

/// A way in which a tensor of given elements may lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Its axes in reverse order.
    Transposed,
    /// Every other element along each axis of something larger, from the second on.
    Sliced,
    /// Backwards along every axis.
    Flipped,
    /// The first element of the first axis that has several, for all of them: other elements than given.
    Expanded,
}

/// All of them.
pub const LAYOUTS: &[Layout] = &[Layout::Transposed, Layout::Sliced, Layout::Flipped, Layout::Expanded];

/// A tensor of given numbers, as [`of`], that lies in memory in one of [`LAYOUTS`].
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
    // Elements in row-major order of `sizes`, each the one of `values` at the place that `at` gives.
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
