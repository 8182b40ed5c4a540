//! Nothing is computed twice: results that are read one after the other share what they depend on, as if each
//! operation had been computed when it was called; and values that are kept for that are released.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use taper::{
    custom::{Function, apply},
    prelude::*,
    tensor_core::kernel::Body,
};
use taper_testing::hooked;

use crate::common::device;

/// The device under test, and counts of its products and of all its kernels.
fn counting() -> (Device, Arc<[AtomicUsize; 2]>) {
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let count = counts.clone();
    let device = hooked(device().backend().clone(), move |backend, launch| {
        count[0].fetch_add(usize::from(matches!(launch.kernel.body, Body::Contract(_))), Ordering::Relaxed);
        count[1].fetch_add(1, Ordering::Relaxed);
        backend.run(launch)
    });
    (device, counts)
}

fn taken(counts: &[AtomicUsize; 2]) -> [usize; 2] {
    [0, 1].map(|k| counts[k].swap(0, Ordering::Relaxed))
}

fn matrix(n: usize, d: &Device) -> Result<Tensor> {
    let numbers = (0..n * n).map(|i| (i * 7 % 11) as f32 / 64.0 - 0.05).collect();
    Tensor::from_vec(numbers, [n, n], d)
}

#[test]
fn a_statistic_of_each_layer_computes_each_layer_once() -> Result<()> {
    let (d, counts) = counting();
    let (w, x) = (matrix(16, &d)?, matrix(16, &d)?);
    let means = no_grad(|| {
        let mut h = x;
        let mut means = Vec::new();
        for _ in 0..30 {
            h = h.matmul(&w)?.relu();
            means.push(h.mean());
        }
        Result::Ok(means)
    })?;
    let in_order: Vec<f32> = means.iter().map(|mean| mean.item::<f32>()).collect::<Result<_>>()?;
    assert_eq!(taken(&counts)[0], 30);
    let again: Vec<f32> = means.iter().rev().map(|mean| mean.item::<f32>()).collect::<Result<_>>()?;
    assert_eq!(taken(&counts), [0, 0]);
    assert!(again.iter().rev().eq(&in_order));
    Ok(())
}

#[test]
fn a_loss_and_an_accuracy_share_the_network() -> Result<()> {
    let (d, counts) = counting();
    for tracked in [false, true] {
        let w = if tracked { matrix(16, &d)?.requires_grad() } else { matrix(16, &d)? };
        let targets = Tensor::from_vec((0..16).collect::<Vec<i32>>(), [16], &d)?;
        let evaluate = |x: &Tensor| -> Result<(Tensor, Tensor)> {
            let logits = x.matmul(&w)?.relu().matmul(&w)?;
            let right = logits.argmax_axis(1, false)?.eq(&targets.to_dtype(d.int_dtype())?)?;
            Ok((cross_entropy(&logits, &targets)?, right.to_dtype(DType::F32)?.mean()))
        };
        let x = matrix(16, &d)?;
        let (loss, accuracy) = evaluate(&x)?;
        loss.item::<f32>()?;
        accuracy.item::<f32>()?;
        assert_eq!(taken(&counts)[0], 2, "tracked: {tracked}");
        // In the other order.
        let (loss, accuracy) = evaluate(&x)?;
        accuracy.item::<f32>()?;
        loss.item::<f32>()?;
        assert_eq!(taken(&counts)[0], 2, "tracked: {tracked}");
    }
    Ok(())
}

#[test]
fn heads_share_their_trunk() -> Result<()> {
    let (d, counts) = counting();
    let (w, x) = (matrix(16, &d)?, matrix(16, &d)?);
    let heads = {
        // No handle holds the trunk.
        let trunk = x.matmul(&w)?.tanh().matmul(&w)?.softmax(1)?;
        (0..10)
            .map(|k| Ok(trunk.narrow(1, k, 2)?.matmul(&w.narrow(0, 0, 2)?)?.sum()))
            .collect::<Result<Vec<_>>>()?
    };
    let kernels: Vec<usize> = heads
        .iter()
        .map(|head| {
            head.item::<f32>()?;
            Ok(taken(&counts)[0])
        })
        .collect::<Result<_>>()?;
    assert_eq!(kernels, [3, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    Ok(())
}

#[test]
fn both_results_of_a_maximum_share_what_they_are_of() -> Result<()> {
    let (d, counts) = counting();
    let (w, x) = (matrix(16, &d)?, matrix(16, &d)?);
    let (values, indices) = x.matmul(&w)?.softmax(1)?.max_axis(1, false)?;
    values.to_vec::<f32>()?;
    indices.to_vec::<i64>()?;
    assert_eq!(taken(&counts)[0], 1);
    Ok(())
}

#[test]
fn a_value_that_is_kept_for_others_is_released_with_them() -> Result<()> {
    if taper_testing::run_alone(a_value_that_is_kept_for_others_is_released_with_them) {
        return Ok(());
    }
    let (d, _) = counting();
    let (w, x) = (matrix(64, &d)?, matrix(64, &d)?);
    x.matmul(&w)?.sum().item::<f32>()?;
    let before = d.memory().allocated;
    let bytes = 64 * 64 * 4;
    for dropped in [false, true] {
        let hidden = x.matmul(&w)?;
        let (first, second) = (hidden.sum(), hidden.exp().mean());
        drop(hidden);
        first.item::<f32>()?;
        let kept = d.memory().allocated - before;
        assert!((bytes..bytes + 1024).contains(&kept), "{kept} bytes are kept for the second reader");
        if dropped {
            drop(second);
        } else {
            second.item::<f32>()?;
        }
        drop(first);
        assert!(d.memory().allocated - before < 1024, "{} bytes stay", d.memory().allocated - before);
    }
    Ok(())
}

/// x · y with a gradient rule that reads both.
#[derive(Debug)]
struct Product;

impl Function for Product {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Product"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        inputs[0].mul(inputs[1])
    }

    fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradient.mul(&inputs[1])?), Some(gradient.mul(&inputs[0])?)])
    }
}

/// A value that only the gradient rule of a function still reads is not overwritten, also in an evaluation
/// that keeps another value for a pending reader.
#[test]
fn what_a_gradient_rule_reads_is_not_overwritten() -> Result<()> {
    let (d, _) = counting();
    let w = matrix(16, &d)?;
    let (x, y) = (matrix(16, &d)?.requires_grad(), matrix(16, &d)?.requires_grad());
    let (product, other) = {
        let (a, b) = (&x + 1.0, &y * 2.0);
        a.eval()?;
        b.eval()?;
        let trunk = w.matmul(&w)?;
        let product = apply(Product, &[&a, &b])?;
        (product.add(&trunk)?.relu(), trunk.exp().sum())
    };
    let read = product.to_vec::<f32>()?;
    other.item::<f32>()?;
    product.sum().backward()?;
    let active = read.iter().map(|&v| if v > 0.0 { 1.0 } else { 0.0 });
    let factors = y.to_vec::<f32>()?;
    let expected: Vec<f32> = active.zip(&factors).map(|(is, y)| is * 2.0 * y).collect();
    assert_eq!(x.grad().map(|gradient| gradient.to_vec::<f32>()).transpose()?, Some(expected));
    Ok(())
}

#[test]
fn a_contiguous_copy_is_made_when_it_is_read() -> Result<()> {
    let (d, counts) = counting();
    let x = matrix(16, &d)?;
    let copy = x.t()?.matmul(&x)?.t()?.contiguous()?;
    assert_eq!(taken(&counts), [0, 0]);
    copy.eval()?;
    assert_eq!(taken(&counts)[0], 1);
    assert_eq!(copy.to_vec::<f32>()?, x.t()?.matmul(&x)?.t()?.to_vec::<f32>()?);
    Ok(())
}
