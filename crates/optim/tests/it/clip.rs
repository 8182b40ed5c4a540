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
    // Below the bound nothing changes.
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
