//! Linear algebra on the CPU: values by their defining properties, gradients against finite differences,
//! errors, layouts.
#![allow(clippy::unwrap_used)]

mod blocks;
mod errors;
mod gpu;
mod gradients;
mod rank;
mod repeated;
mod scales;
mod second;
mod torch;
mod values;

use tensor_core::{DType, Device, Result, Shape, Tensor};

fn cpu() -> Device {
    backend_cpu::cpu()
}

/// Pseudo-random numbers between −2 and 2.
fn numbers(shape: &[usize], seed: u64, dtype: DType) -> Tensor {
    taper_testing::tensor(shape, seed, dtype, &cpu()).unwrap()
}

fn random(shape: &[usize], seed: u64) -> Tensor {
    numbers(shape, seed, DType::F64)
}

/// A symmetric positive-definite batch: A·Aᵀ + 1.
fn definite(a: &Tensor) -> Result<Tensor> {
    let n = a.dims()[a.rank() - 1];
    a.matmul(&a.transpose(-2, -1)?)?.add(&Tensor::eye(n, (a.dtype(), &cpu()))?)
}

fn symmetric(a: &Tensor) -> Result<Tensor> {
    Ok(a.add(&a.transpose(-2, -1)?)?.mul_scalar(0.5))
}

fn eye_like(a: &Tensor, n: usize) -> Tensor {
    let lead: Shape = a.dims()[..a.rank() - 2].iter().copied().chain([n, n]).collect();
    Tensor::eye(n, (a.dtype(), &cpu())).unwrap().expand(lead.dims()).unwrap()
}

#[track_caller]
fn close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}: shapes");
    assert_eq!(found.dtype(), expected.dtype(), "{what}: dtypes");
    let tolerance = if found.dtype() == DType::F64 { (1e-10, 1e-10) } else { (1e-4, 1e-4) };
    taper_testing::assert_close(
        &found.to_f64_vec().unwrap(),
        &expected.to_f64_vec().unwrap(),
        tolerance,
        what,
    );
}

#[track_caller]
fn elements(found: &Tensor, expected: &[f64]) {
    taper_testing::assert_close(&found.to_f64_vec().unwrap(), expected, (1e-10, 1e-10), "elements");
}
