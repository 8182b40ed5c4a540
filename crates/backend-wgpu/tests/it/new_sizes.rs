//! New sizes compile nothing: shapes and strides are parameters of a kernel, not part of its text.
#![allow(clippy::unwrap_used, clippy::panic)]

use backend_wgpu::{Options, WgpuBackend};
use tensor_core::{DType, Device, Result, Tensor};

use crate::common::devices;

fn pipelines(device: &Device) -> usize {
    let any: &dyn std::any::Any = device.backend().as_ref();
    any.downcast_ref::<WgpuBackend>().unwrap().pipelines()
}

/// The kernels of a training step: products, a map, rows, reductions along either axis, an update.
fn step(batch: usize, device: &Device) -> Result<f32> {
    let x = Tensor::ones((batch, 24), device)?;
    let (w, v) = (Tensor::ones((24, 16), device)? * 0.01, Tensor::ones((16, 8), device)? * 0.1);
    let hidden = x.matmul(&w)?.tanh();
    let scores = hidden.matmul(&v)?;
    let shares = scores.sub(&scores.amax(1, true)?)?.exp();
    let shares = shares.div(&shares.sum_axis(1, true)?)?;
    let of_v = hidden.t()?.matmul(&shares)?;
    let next = v.sub(&(of_v * 0.01))?;
    next.sum().add(&shares.sum_axis(0, false)?.sum())?.item::<f32>()
}

#[test]
fn no_size_compiles_anything_that_its_class_has() -> Result<()> {
    if devices().is_empty() {
        return Ok(());
    }
    let options = Options { cache_dir: None, ..Options::default() };
    let device = backend_wgpu::open(0, &options)?;
    assert!(device.supports(DType::F32));
    // Few or many rows, whole vectors of four or not: these select forms of kernels, of which there are a
    // bounded number.
    let classes = (1..=17).chain([32, 33, 64, 65, 127, 128, 129, 255, 256, 257, 300, 301, 302, 304]);
    for batch in classes {
        step(batch, &device)?;
    }
    let warm = pipelines(&device);
    for batch in (18..300).step_by(7).chain(305..330) {
        let total = step(batch, &device)?;
        assert!(total.is_finite(), "{batch}: {total}");
    }
    assert_eq!(pipelines(&device), warm, "a new size compiled something");
    Ok(())
}
