//! Fourier transforms of every kind of length, against the sum that they are. Small ones against PyTorch's: `operations.rs`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::f64::consts::PI;

use taper::{
    DType, Result, Tensor,
    fft::{Norm, fft, fftn, ifft, ifftn, irfft, irfftn, rfft, rfftn},
};
use taper_testing::{assert_close, numbers};

use crate::common::{device, needs};

/// Products of small factors, primes of every size, one product, several factors, and what is a chirp.
const LENGTHS: [usize; 14] = [1, 2, 3, 31, 32, 33, 37, 64, 97, 163, 326, 1000, 1024, 1155];

/// The sum itself, in f64.
fn sum(x: &[f64], inverse: bool) -> Vec<f64> {
    let n = x.len() / 2;
    let sign = if inverse { 2.0 } else { -2.0 };
    let term = |k: usize, j: usize| {
        let (sin, cos) = (sign * PI * ((j * k) % n) as f64 / n as f64).sin_cos();
        (x[2 * j] * cos - x[2 * j + 1] * sin, x[2 * j] * sin + x[2 * j + 1] * cos)
    };
    (0..n)
        .flat_map(|k| {
            let all = (0..n).map(|j| term(k, j)).fold((0.0, 0.0), |s, t| (s.0 + t.0, s.1 + t.1));
            [all.0, all.1]
        })
        .collect()
}

fn tensor(values: &[f64], shape: &[usize], dtype: DType) -> Tensor {
    taper_testing::of(values, shape, dtype, &device()).unwrap()
}

/// Rounding grows as the root of the length.
fn within(n: usize, dtype: DType) -> (f64, f64) {
    let unit = if dtype == DType::F64 { 1e-15 } else { 4e-7 };
    (0.0, unit * 4.0 * (n as f64).sqrt() * (n as f64).ln().max(1.0))
}

#[test]
fn every_kind_of_length_there_and_back() {
    for dtype in [DType::F32, DType::F64] {
        if !needs(&device(), dtype) {
            continue;
        }
        for n in LENGTHS {
            let values: Vec<f64> = numbers(2 * n, 5).into_iter().map(|v| f64::from(v as f32)).collect();
            let x = tensor(&values, &[n, 2], dtype);
            let what = format!("{n} of {dtype}");
            let y = fft(&x, None, -1, Norm::Backward).unwrap();
            assert_close(&y.to_f64_vec().unwrap(), &sum(&values, false), within(n, dtype), &what);
            let inverse = ifft(&x, None, -1, Norm::Forward).unwrap();
            assert_close(&inverse.to_f64_vec().unwrap(), &sum(&values, true), within(n, dtype), &what);
            let back = ifft(&y, None, -1, Norm::Backward).unwrap();
            assert_close(&back.to_f64_vec().unwrap(), &values, within(n, dtype), &what);
            let real = x.select(-1, 0).unwrap();
            let half = rfft(&real, None, 0, Norm::Ortho).unwrap();
            assert_eq!(half.dims(), [n / 2 + 1, 2]);
            let back = irfft(&half, Some(n), 0, Norm::Ortho).unwrap();
            assert_close(&back.to_f64_vec().unwrap(), &real.to_f64_vec().unwrap(), within(n, dtype), &what);
        }
    }
}

#[test]
fn several_axes_in_batches_and_with_gradients() {
    let x = tensor(&numbers(3 * 40 * 6, 1), &[3, 40, 6], DType::F32);
    let spectrum = rfftn(&x, [0, 1], Norm::Backward).unwrap();
    assert_eq!(spectrum.dims(), [3, 21, 6, 2]);
    let back = irfftn(&spectrum, Some(40), [0, 1], Norm::Backward).unwrap();
    assert_close(&back.to_f64_vec().unwrap(), &x.to_f64_vec().unwrap(), (0.0, 1e-5), "real");
    let pairs = Tensor::stack(&[&x, &x.square()], -1).unwrap();
    let back = ifftn(&fftn(&pairs, .., Norm::Ortho).unwrap(), .., Norm::Ortho).unwrap();
    assert_close(&back.to_f64_vec().unwrap(), &pairs.to_f64_vec().unwrap(), (1e-5, 1e-5), "complex");
    // A convolution is a product of spectra: its gradient in one factor is the other, turned.
    use taper::prelude::TensorGrad;
    let (a, b) =
        (tensor(&[1.0, 2.0, 3.0], &[3], DType::F32).requires_grad(), tensor(&[1.0, -1.0], &[2], DType::F32));
    let of = |x: &Tensor| rfft(x, Some(4), 0, Norm::Backward);
    let product = |a: &Tensor, b: &Tensor| -> Result<Tensor> {
        let (re, im) = (b.narrow(-1, 0, 1)?, b.narrow(-1, 1, 1)?);
        let turned = Tensor::concat(&[a.narrow(-1, 1, 1)?.neg(), a.narrow(-1, 0, 1)?], -1)?;
        a.mul(&re)?.add(&turned.mul(&im)?)
    };
    let y = irfft(&product(&of(&a).unwrap(), &of(&b).unwrap()).unwrap(), Some(4), 0, Norm::Backward).unwrap();
    assert_close(&y.to_f64_vec().unwrap(), &[1.0, 1.0, 1.0, -3.0], (0.0, 1e-5), "convolution");
    let weights = tensor(&[1.0, 10.0, 100.0, 1000.0], &[4], DType::F32);
    y.mul(&weights).unwrap().sum().backward().unwrap();
    assert_close(&a.grad().unwrap().to_f64_vec().unwrap(), &[-9.0, -90.0, -900.0], (1e-4, 1e-3), "gradient");
}

#[test]
fn what_no_transform_is_of() {
    let x = tensor(&[1.0, 2.0, 3.0], &[3], DType::F32);
    let said = |result: Result<Tensor>, what: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    said(fft(&x, None, 0, Norm::Backward), "a last axis of 2");
    said(rfft(&x, Some(0), 0, Norm::Backward), "a transform of no numbers");
    said(rfft(&x, None, 1, Norm::Backward), "out of range");
    said(irfft(&x, None, 0, Norm::Backward), "a last axis of 2");
    let one = tensor(&[1.0, 0.0], &[1, 2], DType::F32);
    said(irfft(&one, None, 0, Norm::Backward), "a transform of no numbers");
    assert_eq!(irfft(&one, Some(1), 0, Norm::Backward).unwrap().to_vec::<f32>().unwrap(), [1.0]);
    said(fftn(&one, [0, -1], Norm::Backward), "given twice");
}
