//! Backward passes, resets and drops on several threads, which share leaves and graphs.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
};

use crate::common::{device, of};
use taper::autograd::{Function, apply};
use taper::prelude::*;

const THREADS: usize = 6;

/// Between a thread's look at the gradient and its new sum, other threads' sums were lost.
#[test]
fn no_thread_loses_anothers_gradient() -> Result<()> {
    let passes: usize = if device().name() == "cpu" { 2000 } else { 40 };
    let leaf = of(&[1.0, 2.0], &[2], DType::F32, &device())?.requires_grad();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    for _ in 0..passes {
                        leaf.sum().backward()?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap())
    })?;
    assert_eq!(leaf.grad().unwrap().to_vec::<f32>()?, [(THREADS * passes) as f32; 2]);
    Ok(())
}

/// If two threads called backward on a graph at the same time, both went through it, and both added its
/// gradients.
#[test]
fn one_of_many_passes_uses_a_graph_up() -> Result<()> {
    let rounds = if device().name() == "cpu" { 400 } else { 20 };
    for round in 0..rounds {
        let leaf = of(&[3.0], &[], DType::F32, &device())?.requires_grad();
        let shared = leaf.powi(2);
        // Some threads share the whole graph, some only its lower part.
        let outputs: Vec<Tensor> = (0..THREADS)
            .map(|k| if round % 2 == 0 { shared.clone() } else { &shared * (k + 1) as f64 })
            .collect();
        let (start, passed) = (Barrier::new(THREADS), AtomicUsize::new(0));
        let last = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (k, output) in outputs.iter().enumerate() {
                let (start, passed, last) = (&start, &passed, &last);
                scope.spawn(move || {
                    start.wait();
                    match output.backward() {
                        Ok(()) => {
                            passed.fetch_add(1, Ordering::Relaxed);
                            last.store(k, Ordering::Relaxed);
                        }
                        Err(error) => assert!(error.to_string().contains("used up"), "{error}"),
                    }
                });
            }
        });
        assert_eq!(passed.load(Ordering::Relaxed), 1);
        let scale = if round % 2 == 0 { 1 } else { last.load(Ordering::Relaxed) + 1 };
        assert_eq!(leaf.grad().unwrap().item::<f32>()?, 6.0 * scale as f32);
    }
    Ok(())
}

/// A pass that keeps the graph went through nodes that another pass was releasing, and returned only a part
/// of the gradient.
#[test]
fn a_pass_beside_one_that_uses_the_graph_up_is_whole_or_fails() -> Result<()> {
    let rounds = if device().name() == "cpu" { 400 } else { 20 };
    for _ in 0..rounds {
        let leaf = of(&[3.0], &[], DType::F32, &device())?.requires_grad();
        let mut y = leaf.clone();
        for _ in 0..20 {
            y = y.add(&leaf)?;
            y.eval()?;
        }
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                y.backward().unwrap();
            });
            scope.spawn(|| {
                start.wait();
                match taper::grad(&[&y], &[&leaf], false) {
                    Ok(found) => {
                        assert_eq!(found[0].as_ref().map(|g| g.item::<f32>().unwrap()), Some(21.0));
                    }
                    Err(error) => assert!(error.to_string().contains("used up"), "{error}"),
                }
            });
        });
        assert_eq!(leaf.grad().unwrap().item::<f32>()?, 21.0);
    }
    Ok(())
}

/// A leaf that took several values in one graph gets the sum of what arrives at each.
#[test]
fn a_leaf_met_twice_gets_one_sum() -> Result<()> {
    let x = of(&[2.0], &[], DType::F32, &device())?.requires_grad();
    let before = &x * 3.0;
    x.assign(&of(&[5.0], &[], DType::F32, &device())?)?;
    let after = &x * 10.0;
    before.add(&after)?.backward()?;
    assert_eq!(x.grad().unwrap().item::<f32>()?, 13.0);
    before.detach().add(&(&x * 1.0))?.backward()?;
    assert_eq!(x.grad().unwrap().item::<f32>()?, 14.0);
    Ok(())
}

/// Holds a tensor.
#[derive(Debug)]
struct Holder(#[allow(dead_code)] Tensor);
impl Function for Holder {
    type Output = Tensor;
    fn name(&self) -> &'static str {
        "Holder"
    }
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(inputs[0].clone())
    }
    fn backward(&self, _: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradient.clone())])
    }
}

/// Chains that do not run through inputs were dropped by recursion.
#[test]
fn long_chains_of_leaves_and_functions_are_dropped_on_a_small_stack() {
    const LONG: usize = 200_000;
    let run = || -> Result<()> {
        let d = device();
        let value = Tensor::zeros([], &d)?;
        value.eval()?;
        let leaf = || value.clone().requires_grad();
        // Each leaf the gradient of the next.
        let mut x = leaf();
        for _ in 0..LONG {
            let next = leaf();
            next.set_grad(Some(x));
            x = next;
        }
        drop(x);
        // Each leaf a field of the next one's function.
        let input = leaf();
        let mut x = leaf();
        for _ in 0..LONG {
            x = apply(Holder(x), &[&input])?;
        }
        drop(x);
        // Both, and inputs between.
        let mut x = leaf();
        for k in 0..LONG {
            x = match k % 3 {
                0 => apply(Holder(x), &[&input])?,
                1 => x + 1.0,
                _ => {
                    let next = leaf();
                    next.set_grad(Some(x));
                    next
                }
            };
        }
        drop(x);
        Ok(())
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap().unwrap();
}
