//! Clipping of gradients.
#![allow(clippy::unwrap_used)]

use crate::common::{assert_close, device};
use autograd::TensorGrad;
use optim::{clip_grad_norm, clip_grad_value};
use tensor_core::{DType, Device, Tensor};

fn with_grad(grad: &[f32], device: &Device) -> Tensor {
    let x = Tensor::zeros([grad.len()], device).unwrap().requires_grad();
    x.set_grad(Some(Tensor::from_slice(grad, [grad.len()], device).unwrap()));
    x
}

#[test]
fn norms_count_all_gradients_on_all_devices() {
    let (here, there) = (device(), device());
    let parameters = [with_grad(&[3.0, 0.0], &here), with_grad(&[4.0], &there), leafless(&here)];
    let norm = clip_grad_norm(&parameters, 1.0).unwrap();
    assert_close(&norm, &[5.0]);
    assert_close(&parameters[0].grad().unwrap(), &[0.6, 0.0]);
    assert_close(&parameters[1].grad().unwrap(), &[0.8]);
    assert_eq!(parameters[1].grad().unwrap().device(), there);
    // A norm below the bound changes nothing.
    assert_close(&clip_grad_norm(&parameters, 7.0).unwrap(), &[1.0]);
    assert_close(&parameters[0].grad().unwrap(), &[0.6, 0.0]);
    assert_close(&clip_grad_norm(&parameters[2..], 1.0).unwrap(), &[0.0]);
}

fn leafless(device: &Device) -> Tensor {
    Tensor::zeros([2], device).unwrap().requires_grad()
}

#[test]
fn half_precision_does_not_overflow() {
    let device = device();
    let x = Tensor::zeros([2], (DType::F16, &device)).unwrap().requires_grad();
    x.set_grad(Some(x.detach().full_like(30000.0)));
    let norm = clip_grad_norm(std::slice::from_ref(&x), 1.0).unwrap();
    assert!((norm.to_f64_vec().unwrap()[0] / 42426.4 - 1.0).abs() < 1e-3);
    assert_eq!(x.grad().unwrap().dtype(), DType::F16);
}

#[test]
fn values_are_held_within_the_limit() {
    let x = with_grad(&[-3.0, 0.5, 2.0], &device());
    clip_grad_value(std::slice::from_ref(&x), 1.0).unwrap();
    assert_close(&x.grad().unwrap(), &[-1.0, 0.5, 1.0]);
    for bad in [-1.0, f64::NAN] {
        assert!(clip_grad_value(std::slice::from_ref(&x), bad).is_err());
        assert!(clip_grad_norm(std::slice::from_ref(&x), bad).is_err());
    }
    assert!(clip_grad_norm::<Tensor>(&[], 1.0).is_err());
}

/// Squares of these gradients overflow or underflow; the norm and the clipped gradients do not.
#[test]
fn gradients_at_the_ends_of_the_range_are_clipped_by_their_norm() {
    let device = device();
    // Magnitudes up to which the results of all backends are normal numbers.
    for (size, dtype) in [
        (1e-30, DType::F32),
        (1e-22, DType::F32),
        (1e-12, DType::F32),
        (1.0, DType::F32),
        (1e18, DType::F32),
        (1e20, DType::F32),
        (1e37, DType::F32),
        (1e-300, DType::F64),
        (1e-170, DType::F64),
        (1e160, DType::F64),
        (1e300, DType::F64),
        (1e-6, DType::F16),
        (1e4, DType::F16),
        (1e-30, DType::BF16),
        (1e30, DType::BF16),
    ] {
        let pair = [3.0, 4.0].map(|v| {
            let x = Tensor::zeros([2], (dtype, &device)).unwrap().requires_grad();
            let grad = Tensor::new([v * size, 0.0], (DType::F64, &device)).unwrap().to_dtype(dtype).unwrap();
            x.set_grad(Some(grad));
            x
        });
        let rounding = match dtype {
            DType::F64 => 1e-14,
            DType::F32 => 1e-6,
            _ => 0.1,
        };
        let near = |t: &Tensor, wanted: f64| {
            let found = t.to_f64_vec().unwrap()[0];
            assert!((found / wanted - 1.0).abs() <= rounding, "{size:e} {dtype}: {found:e} for {wanted:e}");
        };
        let norm = clip_grad_norm(&pair, size).unwrap();
        near(&norm, 5.0 * size);
        // 10⁻⁶ is added to the norm, as in PyTorch.
        let factor = (size / (5.0 * size + 1e-6)).min(1.0);
        // A number below the dtype's least normal number may be 0.
        if size * factor > 1e-36 || (dtype == DType::F64 && size * factor > 1e-306) {
            near(&pair[0].grad().unwrap(), 3.0 * size * factor);
            near(&pair[1].grad().unwrap(), 4.0 * size * factor);
        }
    }
    // A norm that the dtype cannot represent.
    let x = with_grad(&[3e38, 3e38, 3e38, 3e38], &device);
    assert!(clip_grad_norm(std::slice::from_ref(&x), 1.0).unwrap().to_f64_vec().unwrap()[0].is_infinite());
    assert_close(&x.grad().unwrap(), &[0.5; 4]);
    // Infinities and NaN stay.
    let x = with_grad(&[f32::INFINITY, 1.0], &device);
    clip_grad_norm(std::slice::from_ref(&x), 1.0).unwrap();
    let clipped = x.grad().unwrap().to_f64_vec().unwrap();
    assert!(clipped[0].is_nan() && clipped[1] == 0.0);
    let x = with_grad(&[f32::NAN, 1.0], &device);
    assert!(clip_grad_norm(std::slice::from_ref(&x), 1.0).unwrap().to_f64_vec().unwrap()[0].is_nan());
}
