//! Fourier transforms of every kind of length, against the sum that they are. Small ones against PyTorch's:
//! `operations.rs`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::f64::consts::PI;

use taper::{
    DType, Result, Tensor,
    fft::{
        Norm, StftOptions, StftPadding, fft, fftn, hfft, hfftn, ifft, ifftn, ihfft, ihfftn, irfft, irfftn,
        istft, rfft, rfftn, stft,
    },
};
use taper_testing::{assert_close, numbers};
use tensor_core::{Fourier, FourierKind};

use crate::common::{device, needs};

/// Lengths with small factors, primes of every size, one product, several factors, and a chirp.
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
fn mirrored_signals_there_and_back() {
    let x = tensor(&numbers(4 * 6 * 9, 3), &[4, 6, 9], DType::F32);
    for norm in [Norm::Backward, Norm::Forward, Norm::Ortho] {
        let half = ihfft(&x, None, 2, norm).unwrap();
        assert_eq!(half.dims(), [4, 6, 5, 2]);
        let back = hfft(&half, Some(9), -1, norm).unwrap();
        assert_close(&back.to_f64_vec().unwrap(), &x.to_f64_vec().unwrap(), (1e-5, 1e-5), "one axis");
        let half = ihfftn(&x, [0, 1], norm).unwrap();
        assert_eq!(half.dims(), [4, 4, 9, 2]);
        let back = hfftn(&half, Some(6), [0, 1], norm).unwrap();
        assert_close(&back.to_f64_vec().unwrap(), &x.to_f64_vec().unwrap(), (1e-5, 1e-5), "two axes");
    }
}

#[test]
fn short_time_spectra_there_and_back() {
    for dtype in [DType::F32, DType::F64] {
        if !needs(&device(), dtype) {
            continue;
        }
        let signal = tensor(&numbers(2 * 3 * 1000, 7), &[2, 3, 1000], dtype);
        let hann = Tensor::hann_window(64, true, (dtype, &device())).unwrap();
        let hamming = Tensor::hamming_window(50, false, 0.54, 0.46, (dtype, &device())).unwrap();
        let default = StftOptions::default();
        for (n_fft, options, frames) in [
            (64, StftOptions { window: Some(&hann), ..default.clone() }, 63),
            (
                64,
                StftOptions { window: Some(&hann), hop_length: Some(7), onesided: false, ..default.clone() },
                143,
            ),
            (
                64,
                StftOptions {
                    window: Some(&hamming),
                    win_length: Some(50),
                    normalized: true,
                    ..default.clone()
                },
                63,
            ),
            (65, StftOptions { hop_length: Some(65), padding: StftPadding::Zeros, ..default.clone() }, 16),
            (
                50,
                StftOptions {
                    window: Some(&hamming),
                    center: false,
                    hop_length: Some(25),
                    ..default.clone()
                },
                39,
            ),
            (1, StftOptions { hop_length: Some(1), ..default.clone() }, 1000),
        ] {
            let spectra = stft(&signal, n_fft, &options).unwrap();
            let frequencies = if options.onesided { n_fft / 2 + 1 } else { n_fft };
            assert_eq!(spectra.dims(), [2, 3, frequencies, frames, 2], "{options:?}");
            let back = istft(&spectra, n_fft, Some(1000), &options).unwrap();
            assert_eq!(back.dims(), [2, 3, 1000]);
            // The last frame may end before the signal.
            let hop = options.hop_length.unwrap_or(n_fft / 4);
            let edge = if options.center { n_fft / 2 } else { 0 };
            let end = (n_fft + hop * (frames - 1) - edge).min(1000);
            let within = if dtype == DType::F64 { (1e-11, 1e-11) } else { (1e-4, 1e-4) };
            let both = [&back, &signal].map(|t| t.narrow(-1, 0, end).unwrap().to_f64_vec().unwrap());
            assert_close(&both[0], &both[1], within, &format!("{n_fft} {options:?}"));
            let rest = back.narrow(-1, end, 1000 - end).unwrap();
            assert!(rest.eq_scalar(0.0).all().item::<bool>().unwrap());
        }
        // The Hann window begins with 0, so no other frame covers that sample.
        let options = StftOptions { window: Some(&hann), center: false, ..default.clone() };
        let back = istft(&stft(&signal, 64, &options).unwrap(), 64, None, &options).unwrap();
        let lost = back.select(0, 0).unwrap().select(0, 0).unwrap().isnan().to_vec::<bool>().unwrap();
        assert_eq!(lost.iter().filter(|&&lost| lost).count(), 1);
        assert!(lost[0]);
    }
}

#[test]
fn what_no_frames_are_of() {
    let x = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0], &[5], DType::F32);
    let said = |result: Result<Tensor>, what: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    let default = StftOptions::default();
    said(stft(&x.sum(), 4, &default), "stft: a single number");
    said(stft(&x, 0, &default), "stft: frames of 0");
    said(stft(&x, 2, &default), "one every 0");
    said(stft(&x, 4, &StftOptions { win_length: Some(5), ..default.clone() }), "a window from 1 to 4");
    said(stft(&x, 4, &StftOptions { window: Some(&x), ..default.clone() }), "a window [5]: give [4]");
    said(stft(&x, 12, &default), "none 6 from its ends to mirror");
    said(
        stft(&x, 6, &StftOptions { center: false, ..default.clone() }),
        "a frame of 6 numbers of a signal of 5",
    );
    let spectra = stft(&x, 4, &default).unwrap();
    said(istft(&x, 4, None, &default), "istft: shape [5] holds no complex numbers");
    said(istft(&spectra, 6, None, &default), "give [..., 4, frames, 2]");
    said(istft(&spectra.narrow(1, 0, 0).unwrap(), 4, None, &default), "at least one frame");
    said(
        istft(&spectra, 4, None, &StftOptions { hop_length: Some(5), ..default.clone() }),
        "numbers between are lost",
    );
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

/// The kernel of a device and the composition of the others: values, including frequencies that have a
/// mirror.
#[test]
fn a_kernel_and_its_composition_agree() {
    for kind in [FourierKind::Forward, FourierKind::Inverse, FourierKind::RealToHalf, FourierKind::HalfToReal]
    {
        for n in LENGTHS {
            let of = Fourier { kind, length: n, factor: 0.25, mirrored: 3.0 };
            let shape = match kind {
                FourierKind::Forward | FourierKind::Inverse => vec![2, n, 2],
                FourierKind::RealToHalf => vec![2, n],
                FourierKind::HalfToReal => vec![2, n / 2 + 1, 2],
            };
            let x = tensor(&numbers(shape.iter().product(), 11), &shape, DType::F32);
            let (found, composed) = (of.apply(&x).unwrap(), of.composed(&x).unwrap());
            assert_eq!(found.shape(), composed.shape());
            let both = [found, composed].map(|t| t.to_f64_vec().unwrap());
            assert_close(&both[0], &both[1], within(n, DType::F32), &format!("{of:?}"));
        }
    }
}

/// A transform is a linear map: ⟨F·x, y⟩ = ⟨x, Fᵀ·y⟩, and differentiating the gradient of x with respect to
/// y gives F again.
#[test]
fn gradients_are_adjoints_and_have_gradients() {
    use taper::{grad_of, prelude::TensorGrad};
    for n in [1, 2, 5, 8, 37, 326] {
        for half in [false, true] {
            let spectrum = |x: &Tensor| match half {
                true => irfft(x, Some(n), 1, Norm::Backward),
                false => rfft(x, Some(n), 1, Norm::Ortho),
            };
            let shape = if half { vec![3, n / 2 + 1, 2] } else { vec![3, n] };
            let x = tensor(&numbers(shape.iter().product(), 1), &shape, DType::F32).requires_grad();
            let y = spectrum(&x).unwrap();
            let weights = tensor(&numbers(y.numel(), 2), y.dims(), DType::F32).requires_grad();
            let inner = y.mul(&weights).unwrap().sum();
            let gradient = grad_of(&inner, &x, true).unwrap();
            let other = gradient.mul(&x).unwrap().sum();
            let both = [&inner, &other].map(|t| t.to_f64_vec().unwrap());
            assert_close(&both[0], &both[1], (1e-4, 1e-3), &format!("{n}, half: {half}"));
            let again = grad_of(&other, &weights, false).unwrap();
            let both = [&again, &y].map(|t| t.to_f64_vec().unwrap());
            assert_close(&both[0], &both[1], within(n, DType::F32), &format!("{n}, half: {half}"));
        }
    }
}

/// Numbers in every order in memory, along every axis.
#[test]
fn signals_that_lie_in_any_order() {
    let base = tensor(&numbers(6 * 10 * 4, 4), &[6, 10, 4], DType::F32);
    let views = [
        base.permute([2, 0, 1]).unwrap(),
        base.flip([0, 1, 2]).unwrap(),
        base.slice_step(1, 1..10, 3).unwrap(),
        base.narrow(2, 1, 1).unwrap().expand([6, 10, 5]).unwrap(),
        // Windows that overlap.
        base.select(2, 3).unwrap().unfold(1, 4, 1).unwrap(),
    ];
    for (k, x) in views.iter().enumerate() {
        let plain = tensor(&x.to_f64_vec().unwrap(), x.dims(), DType::F32);
        for axis in 0..3 {
            let of = |x: &Tensor| rfft(x, None, axis, Norm::Backward).unwrap();
            let both = [x, &plain].map(|x| of(x).to_f64_vec().unwrap());
            assert_close(&both[0], &both[1], (0.0, 1e-5), &format!("view {k}, axis {axis}"));
            let back = |x: &Tensor| irfft(&of(x), Some(x.dims()[axis]), axis, Norm::Backward).unwrap();
            assert_close(
                &back(x).to_f64_vec().unwrap(),
                &x.to_f64_vec().unwrap(),
                (0.0, 1e-5),
                "there and back",
            );
        }
    }
}
