//! Copies between devices: nodes like any other, computed when a result that depends on them is read.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use pollster::block_on;
use taper::autograd::{TensorGrad, grad, no_grad};
use taper::tensor_core::{Backend, ErrorKind, eval_pending};
use taper::{DType, Device, Result, Tensor};
use taper_testing::{Reference, hooked, reference, reference_backend};

use crate::common::{device, of};

#[test]
fn building_copies_nothing() -> Result<()> {
    let (here, there) = (device(), reference_backend());
    let (there, backend) = there;
    let x = of(&[1.0, 2.0, 3.0], &[3], DType::F32, &here)?;
    let double = &x * 2.0;
    let copy = double.to(&there)?;
    let y = &copy + 1.0;
    assert_eq!(copy.device(), there);
    assert!(!double.is_evaluated() && !copy.is_evaluated());
    assert_eq!(backend.memory().allocated, 0);
    assert_eq!(y.to_vec::<f32>()?, [3.0, 5.0, 7.0]);
    assert!(double.is_evaluated() && copy.is_evaluated() && copy.inputs().is_empty());
    // A copy of a view has only the elements that the view shows.
    let view = of(&[1.0, 2.0, 3.0, 4.0], &[2, 2], DType::F32, &here)?.t()?.flip([0])?;
    assert_eq!(view.to(&there)?.to_vec::<f32>()?, [2.0, 4.0, 1.0, 3.0]);
    assert_eq!(view.to(&there)?.to(&here)?.sum().item::<f32>()?, 10.0);
    assert_eq!(Tensor::zeros([0, 3], &here)?.to(&there)?.to_vec::<f32>()?, [0f32; 0]);
    Ok(())
}

#[test]
fn a_graph_may_cross_devices_often() {
    const LONG: usize = 20_000;
    let run = || -> Result<()> {
        let (a, b) = (reference(), reference());
        let start = of(&[1.0], &[1], DType::F64, &a)?.requires_grad();
        let mut x = start.clone();
        for _ in 0..LONG {
            x = (x.to(&b)? + 1.0).to(&a)? + 1.0;
        }
        assert_eq!(x.item::<f64>()?, 1.0 + 2.0 * LONG as f64);
        x.sum().backward()?;
        assert_eq!(start.grad().unwrap().item::<f64>()?, 1.0);
        // One dropped before it was looked at.
        let mut x = start;
        for _ in 0..LONG {
            x = x.to(&b)?.to(&a)?;
        }
        drop(x);
        Ok(())
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap().unwrap();
}

/// Two devices that need each other's results, twice over.
#[test]
fn devices_take_turns() -> Result<()> {
    let (here, there) = (device(), reference());
    let x = of(&[1.0, 2.0], &[2], DType::F32, &here)?.requires_grad();
    let shared = x.powi(2);
    let left = shared.to(&there)? * 3.0;
    let right = (&shared + 1.0).to(&there)?;
    let back = left.mul(&right)?.to(&here)?.add(&shared)?;
    let again = back.to(&there)?;
    assert_eq!(again.to_vec::<f32>()?, [7.0, 64.0]);
    // 3x⁴ + 4x²
    let first = grad(&[&again.sum()], &[&x], true)?.remove(0).unwrap();
    assert_eq!(first.device(), here);
    assert_eq!(first.to_vec::<f32>()?, [20.0, 112.0]);
    let second = grad(&[&first.sum()], &[&x], false)?.remove(0).unwrap();
    assert_eq!(second.to_vec::<f32>()?, [44.0, 152.0]);
    Ok(())
}

#[test]
fn what_is_held_on_several_devices_is_computed_at_a_step() -> Result<()> {
    let (here, (there, backend)) = (device(), reference_backend());
    let x = of(&[1.0, 2.0], &[2], DType::F32, &here)?;
    let loss = no_grad(|| (&x * 2.0).to(&there)).unwrap();
    let back = (&loss + 1.0).to(&here)?;
    eval_pending()?;
    assert!(loss.is_evaluated() && back.is_evaluated());
    drop(loss);
    assert_eq!(backend.memory().allocated, 0, "nothing holds what it was copied from");
    assert_eq!(back.to_vec::<f32>()?, [3.0, 5.0]);
    Ok(())
}

#[test]
fn a_copy_that_fails_names_its_line() -> Result<()> {
    let (there, backend) = reference_backend();
    let x = of(&[1.0, 2.0], &[2], DType::F32, &device())?;
    let copy = x.to(&there)?;
    let line = line!() - 1;
    let y = &copy + 1.0;
    backend.fail_in.store(1, std::sync::atomic::Ordering::Relaxed);
    let error = y.eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("transfers.rs") && text.contains(&format!(":{line}:")), "{text}");
    assert!(!copy.is_evaluated());
    // A second evaluation continues from there.
    assert_eq!(y.to_vec::<f32>()?, [2.0, 3.0]);
    let (narrow, _) = taper_testing_without_f64();
    if device().supports(DType::F64) {
        let error = of(&[1.0], &[1], DType::F64, &device())?.to(&narrow).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
    Ok(())
}

fn taper_testing_without_f64() -> (Device, Arc<Reference>) {
    taper_testing::reference_with(&[DType::F32, DType::I32, DType::Bool])
}

#[test]
fn reads_that_are_awaited_cross_devices() -> Result<()> {
    let there = reference();
    let x = of(&[1.0, 2.0], &[2], DType::F32, &device())?;
    let y = (&x + 1.0).to(&there)? * 2.0;
    assert_eq!(block_on(y.to_vec_async::<f32>())?, [4.0, 6.0]);
    let z = y.to(&device())?.sum();
    assert_eq!(block_on(z.item_async::<f32>())?, 10.0);
    Ok(())
}

/// The kernels of two threads on two devices run at the same time: each waits for the other's.
#[test]
fn two_devices_work_at_the_same_time() -> Result<()> {
    let running = Arc::new((Mutex::new([0; 2]), Condvar::new()));
    // A reference whose kernels wait until one of the other device runs as well.
    let device = |own: usize| {
        let running = Arc::clone(&running);
        hooked(reference_backend().1, move |plain, launch| {
            let (begun, changed) = &*running;
            let mut begun = begun.lock().unwrap();
            begun[own] += 1;
            changed.notify_all();
            let (begun, timeout) = changed
                .wait_timeout_while(begun, Duration::from_secs(20), |begun| begun[1 - own] < begun[own])
                .unwrap();
            assert!(!timeout.timed_out(), "the other device was held up: {begun:?}");
            drop(begun);
            plain.run(launch)
        })
    };
    let devices = [device(0), device(1)];
    std::thread::scope(|s| {
        for d in &devices {
            let source = reference();
            s.spawn(move || {
                let mut x = of(&[1.0, 2.0], &[2], DType::F32, &source).unwrap();
                for _ in 0..20 {
                    // A whole evaluation each, with a copy before it.
                    x = (x.to(d).unwrap() + 1.0).to(&source).unwrap();
                    x.eval().unwrap();
                }
                assert_eq!(x.to_vec::<f32>().unwrap(), [21.0, 22.0]);
            });
        }
    });
    Ok(())
}
