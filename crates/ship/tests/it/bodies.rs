//! Each body of a kernel that can be shipped, by each compiler.

use nn::functional::max_pool2d;
use tensor_core::{DType, Result, Tensor};

use crate::programs::{case, check};

fn floats(shape: &[usize], seed: u64) -> Tensor {
    let n: usize = shape.iter().product();
    let mut state = seed;
    let numbers: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u32 << 22) as f32 - 2.0
        })
        .collect();
    Tensor::from_vec(numbers, shape.to_vec(), &backend_cpu::cpu()).unwrap()
}

fn integers(shape: &[usize], seed: u64, modulus: f64, dtype: DType) -> Tensor {
    let raw = floats(shape, seed).mul_scalar(1000.0).abs();
    raw.remainder_scalar(modulus).floor().to_dtype(dtype).unwrap().contiguous()
}

#[test]
fn linear() {
    let (x, w, b) = (floats(&[3, 20], 1), floats(&[10, 20], 2), floats(&[10], 3));
    let dense = move |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let y = x[0].matmul(&w.t()?)?.add(&b)?.relu();
        Ok(vec![y.softmax(1)?])
    };
    check(&[case("linear", 1e-6, vec![x], dense)]);
}

#[test]
fn pooling() {
    let x = floats(&[1, 2, 9, 8], 1);
    let pool = |x: &[Tensor]| Ok(vec![max_pool2d(&x[0], [3, 3])?]);
    let _ = integers(&[3], 1, 10.0, DType::I32);
    check(&[case("pool", 0.0, vec![x], pool)]);
}
