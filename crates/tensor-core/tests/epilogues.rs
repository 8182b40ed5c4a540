//! The choice of epilogues, checked by the numbers of kernels on the reference backend.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use taper_testing::{Reference, reference_limited, tensor};
use tensor_core::{DType, Device, Generator, Result, Tensor, eval_all};

/// The kernels that compute some tensors, by name, on a device whose epilogues have at most
/// `max_epilogue` instructions.
fn kernels_within(
    max_epilogue: usize,
    f: impl Fn(&Device) -> Result<Vec<Tensor>>,
) -> BTreeMap<&'static str, usize> {
    let (device, backend) = reference_limited(|limits| limits.max_epilogue = max_epilogue);
    let count = |backend: &Reference| backend.kernels.lock().unwrap().drain().collect();
    let results = f(&device).unwrap();
    count(&backend) as BTreeMap<_, _>;
    eval_all(&results.iter().collect::<Vec<_>>()).unwrap();
    count(&backend)
}

fn kernels(f: impl Fn(&Device) -> Result<Vec<Tensor>>) -> Vec<(&'static str, usize)> {
    kernels_within(16, f).into_iter().collect()
}

/// Two operands in memory, and a vector.
fn operands(d: &Device) -> Result<[Tensor; 3]> {
    let all = [
        tensor(&[4, 5], 1, DType::F32, d)?,
        tensor(&[5, 6], 2, DType::F32, d)?,
        tensor(&[6], 3, DType::F32, d)?,
    ];
    eval_all(&all.iter().collect::<Vec<_>>())?;
    Ok(all)
}

#[test]
fn elementwise_readers_are_part_of_the_product() {
    let one = [("matmul", 1)];
    let bias = |d: &Device| {
        let [x, w, b] = operands(d)?;
        Ok(vec![x.matmul(&w)?.add(&b)?.relu()])
    };
    assert_eq!(kernels(bias), one);
    // A device without epilogues runs two kernels.
    let apart: Vec<_> = kernels_within(0, bias).into_iter().collect();
    assert_eq!(apart, [("map", 1), ("matmul", 1)]);
    // A residual, a cast, and a product that is only read transposed.
    let others = |d: &Device| {
        let [x, w, b] = operands(d)?;
        let residual = tensor(&[6, 4], 4, DType::F32, d)?;
        residual.eval()?;
        let bias = b.unsqueeze(1)?;
        Ok(vec![x.matmul(&w)?.t()?.add(&bias)?.add(&residual)?.to_dtype(DType::F16)?])
    };
    assert_eq!(kernels(others), one);
    // The same elements in the same order under another shape.
    let reshaped = |d: &Device| {
        let [x, w, _] = operands(d)?;
        let scale = tensor(&[2, 1, 6], 5, DType::F32, d)?.slice(0, ..1)?;
        scale.eval()?;
        Ok(vec![x.matmul(&w)?.reshape([2, 2, 6])?.mul(&scale)?])
    };
    assert_eq!(kernels(reshaped), one);
    // If two products are added, one becomes the other's operand.
    let two = |d: &Device| {
        let [x, w, b] = operands(d)?;
        Ok(vec![x.matmul(&w)?.add(&x.exp().matmul(&w)?)?.add(&b)?.tanh()])
    };
    assert_eq!(kernels(two), [("map", 1), ("matmul", 2)]);
}

#[test]
fn a_product_that_others_read_is_stored_too() {
    // The product is kept by its tensor.
    let kept = |d: &Device| {
        let [x, w, _] = operands(d)?;
        let product = x.matmul(&w)?;
        Ok(vec![product.clone(), product.relu()])
    };
    assert_eq!(kernels(kept), [("matmul", 1)]);
    // The product is read by a later kernel too.
    let later = |d: &Device| {
        let [x, w, _] = operands(d)?;
        let product = x.matmul(&w)?;
        Ok(vec![product.relu(), x.t()?.matmul(&product)?])
    };
    assert_eq!(kernels(later), [("matmul", 2)]);
}

#[test]
fn other_readers_have_kernels_of_their_own() {
    // The map needs a sum of the product first.
    let sums = |d: &Device| {
        let [x, w, _] = operands(d)?;
        let product = x.matmul(&w)?;
        Ok(vec![product.mul(&product.sum_axis(0, false)?)?])
    };
    assert_eq!(kernels(sums), [("map", 1), ("matmul", 1), ("sum", 1)]);
    // The map is a row kernel.
    let rows = |d: &Device| {
        let [x, w, b] = operands(d)?;
        Ok(vec![x.matmul(&w)?.add(&b)?.softmax(-1)?])
    };
    assert_eq!(kernels(rows), kernels_within(0, rows).into_iter().collect::<Vec<_>>());
    // A part of the product, and a bias that cannot be viewed in the product's shape.
    let part = |d: &Device| {
        let [x, w, _] = operands(d)?;
        Ok(vec![x.matmul(&w)?.slice(0, 1..)?.relu()])
    };
    assert_eq!(kernels(part), [("map", 1), ("matmul", 1)]);
    let across = |d: &Device| {
        let [x, w, _] = operands(d)?;
        let bias = tensor(&[8], 5, DType::F32, d)?;
        bias.eval()?;
        Ok(vec![x.matmul(&w)?.reshape([3, 8])?.add(&bias)?])
    };
    assert_eq!(kernels(across), [("map", 1), ("matmul", 1)]);
    // Random numbers depend on the flat position.
    let random = |d: &Device| {
        let [x, w, _] = operands(d)?;
        Ok(vec![x.matmul(&w)?.mul(&Tensor::rand([4, 6], &Generator::seed(1, d))?)?])
    };
    assert_eq!(kernels(random), [("map", 1), ("matmul", 1)]);
    // The epilogue is longer than the device allows for many results; few are not worth a kernel.
    let of_rows = |rows: usize| {
        let long = move |d: &Device| {
            let x = tensor(&[rows, 5], 1, DType::F32, d)?;
            let [_, w, b] = operands(d)?;
            x.eval()?;
            Ok(vec![x.matmul(&w)?.add(&b)?.relu()])
        };
        kernels_within(3, long).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(of_rows(4096), [("map", 1), ("matmul", 1)]);
    assert_eq!(of_rows(4), [("matmul", 1)]);
}

/// An epilogue uses no more memory than separate kernels: an update in place stays in place.
#[test]
fn updates_in_place_stay_in_place() {
    let run = |max_epilogue: usize| {
        let (device, backend) = reference_limited(|limits| limits.max_epilogue = max_epilogue);
        let [x, w, _] = operands(&device).unwrap();
        let mut velocity = tensor(&[4, 6], 5, DType::F32, &device).unwrap();
        let mut weight = tensor(&[4, 6], 6, DType::F32, &device).unwrap();
        eval_all(&[&velocity, &weight]).unwrap();
        for _ in 0..3 {
            let next = (velocity * 0.9).add(&x.matmul(&w).unwrap()).unwrap();
            weight = weight.sub(&(&next * 0.1)).unwrap();
            velocity = next;
            eval_all(&[&velocity, &weight]).unwrap();
        }
        let found = backend.kernels.lock().unwrap().get("map").copied().unwrap_or(0);
        (found, weight.to_f64_vec().unwrap())
    };
    let ((fused, found), (apart, expected)) = (run(16), run(0));
    assert_eq!((fused, apart), (3, 3));
    assert_eq!(found, expected);
}

#[test]
fn an_activation_of_few_results_is_an_epilogue() {
    let gelu = |d: &Device| {
        let [x, w, b] = operands(d)?;
        Ok(vec![x.matmul(&w)?.add(&b)?.gelu()])
    };
    assert_eq!(kernels(gelu), [("matmul", 1)]);
}
