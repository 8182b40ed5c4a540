//! Long runs: dropped graphs free their memory, threads share a device, and a million operations fit a small
//! stack.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, tensor};
use taper::{ErrorKind, prelude::*};
use taper::{Scalar, eval_pending};

#[test]
fn a_million_additions_build_evaluate_differentiate_and_drop_on_a_small_stack() {
    let run = || -> Result<()> {
        let d = device();
        let x = Tensor::zeros([2], &d)?.requires_grad();
        let mut y = &x * 1.0;
        for _ in 0..1_000_000 {
            y = &y + 1.0;
        }
        assert_eq!(y.to_vec::<f32>()?, [1e6, 1e6]);
        y.sum().backward()?;
        assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0, 1.0]);
        Ok(())
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap().unwrap();
}

#[test]
fn dropped_graphs_are_gone() -> Result<()> {
    if taper_testing::run_alone(dropped_graphs_are_gone) {
        return Ok(());
    }
    let d = device();
    let x = tensor(&[64], 1, DType::F32, &d)?.requires_grad();
    for _ in 0..200_000 {
        let _ = &x * 2.0;
    }
    eval_pending()?;
    assert!(d.memory().allocated < 64 << 20);
    x.powi(2).sum().backward()?;
    assert_eq!(x.grad().unwrap().numel(), 64);
    Ok(())
}

#[test]
fn threads_build_and_evaluate_graphs_that_share_nodes() -> Result<()> {
    let d = device();
    let x = tensor(&[100], 1, DType::F32, &d)?.requires_grad();
    let shared = (&x * 2.0).exp();
    let expected = shared.sum().item::<f32>()?;
    let fresh = (&x * 2.0).exp();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let fresh = fresh.clone();
            std::thread::spawn(move || -> Result<f32> {
                let mut found = 0.0;
                for _ in 0..20 {
                    found = (&fresh + f64::from(i)).sum().item::<f32>()? - i as f32 * 100.0;
                }
                Ok(found)
            })
        })
        .collect();
    for thread in threads {
        let found = thread.join().unwrap()?;
        assert!((found - expected).abs() < 1e-2 * expected.abs(), "{found} {expected}");
    }
    Ok(())
}

#[test]
fn the_same_program_gives_the_same_bits() -> Result<()> {
    let d = device();
    let run = || -> Result<Vec<f32>> {
        let rng = Generator::seed(9, &d);
        let x = Tensor::randn([50, 20], &rng)?;
        let w = Tensor::randn([20, 10], &rng)?.requires_grad();
        x.matmul(&w)?.tanh().log_softmax(1)?.mean().backward()?;
        w.grad().unwrap().to_vec::<f32>()
    };
    let first = run()?;
    assert_eq!(run()?, first);
    assert_eq!(run()?, first);
    Ok(())
}

#[test]
fn failures_of_memory_leave_the_device_usable() -> Result<()> {
    let d = device();
    let x = tensor(&[10], 1, DType::F32, &d)?;
    let before = x.to_vec::<f32>()?;
    let absurd = Tensor::full([1 << 59], Scalar::Float(1.0), &d).and_then(|t| t.eval());
    let error = absurd.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooLarge { .. } | ErrorKind::OutOfMemory { .. }), "{error}");
    let terabyte = Tensor::zeros([1 << 38], &d).and_then(|t| t.eval());
    let error = terabyte.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooLarge { .. } | ErrorKind::OutOfMemory { .. }), "{error}");
    // A view may be that large, but a result computed from it may not.
    for axis in [1u64 << 40, 1 << 55] {
        let error = x.narrow(0, 0, 1)?.expand([axis as usize])?.cumsum(0)?.eval().unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::TooLarge { .. } | ErrorKind::OutOfMemory { .. }),
            "{error}"
        );
    }
    assert_eq!(x.to_vec::<f32>()?, before);
    Ok(())
}

#[test]
fn work_inside_rayons_own_threads_never_waits_for_itself() {
    use rayon::prelude::*;
    let d = device();
    let sums: Vec<f32> = (0..16usize)
        .into_par_iter()
        .map(|i| {
            let x = Tensor::full([600, 600], i as f64, &d).unwrap();
            x.matmul(&x).unwrap().mul_scalar(0.0).add(&x).unwrap().mean().item::<f32>().unwrap()
        })
        .collect();
    assert!(sums.iter().enumerate().all(|(i, s)| (s - i as f32).abs() < 1e-3), "{sums:?}");
}
