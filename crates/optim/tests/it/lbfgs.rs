//! L-BFGS: its closure, and that a failed step changes nothing. `taper/tests` compares its steps with
//! PyTorch's.
#![allow(clippy::unwrap_used)]

use std::{cell::Cell, sync::atomic::Ordering};

use crate::common::{bits, device, devices, reference::reference_backend, shown};
use autograd::{TensorGrad, no_grad};
use optim::{Lbfgs, LbfgsConfig, LineSearch, Optimizer};
use tensor_core::{DType, Device, Error, ErrorKind, Result, Stateful, Tensor};

const WOLFE: LbfgsConfig = LbfgsConfig {
    lr: 1.0,
    max_iter: 4,
    max_eval: None,
    tolerance_grad: 1e-7,
    tolerance_change: 1e-9,
    history_size: 3,
    line_search_fn: Some(LineSearch::StrongWolfe),
    maximize: false,
};

fn start(device: &Device) -> Tensor {
    Tensor::new([-1.25f32, 1.5, 0.5, 0.25], device).unwrap().requires_grad()
}

/// Rosenbrock's function of two pairs.
fn valley(x: &Tensor) -> Result<Tensor> {
    let pairs = x.reshape([2, 2])?;
    let (a, b) = (pairs.select(1, 0)?, pairs.select(1, 1)?);
    let loss = (1.0 - &a).powi(2).add(&(b.sub(&a.powi(2))?.powi(2) * 10.0))?.sum();
    loss.backward()?;
    Ok(loss)
}

#[test]
fn it_finds_the_minimum() {
    for device in devices() {
        let x = start(&device);
        let mut lbfgs = Lbfgs::new([x.clone()], LbfgsConfig { max_iter: 60, ..WOLFE });
        let first = lbfgs.step(|| valley(&x)).unwrap();
        // The loss before the step.
        assert!(first > 1.0);
        assert!(x.to_f64_vec().unwrap().iter().all(|v| (v - 1.0).abs() < 1e-2), "{x}");
        // The step also works where gradients are off around it.
        no_grad(|| lbfgs.step(|| valley(&x))).unwrap();
    }
}

#[test]
fn a_resumed_one_gives_the_same_bits() {
    for device in devices() {
        for config in [WOLFE, LbfgsConfig { lr: 0.02, line_search_fn: None, ..WOLFE }] {
            let (a, b) = (start(&device), start(&device));
            let mut first = Lbfgs::new([a.clone()], config);
            (0..3).for_each(|_| {
                first.step(|| valley(&a)).unwrap();
            });
            b.assign(&a.detach()).unwrap();
            let saved = first.state_dict();
            let mut second = Lbfgs::new([b.clone()], LbfgsConfig::default());
            second.load_state_dict(&saved).unwrap();
            assert_eq!((shown(&second.state_dict()), second.config), (shown(&saved), config));
            for _ in 0..2 {
                let losses = (first.step(|| valley(&a)).unwrap(), second.step(|| valley(&b)).unwrap());
                assert_eq!(losses.0.to_bits(), losses.1.to_bits());
            }
            assert_eq!(bits(&a), bits(&b));
        }
    }
}

#[test]
fn a_step_that_fails_changes_nothing() {
    let (device, backend) = reference_backend();
    let x = start(&device);
    let mut lbfgs = Lbfgs::new([x.clone()], WOLFE);
    lbfgs.step(|| valley(&x)).unwrap();
    let before = (bits(&x), shown(&lbfgs.state_dict()));
    // The closure fails at its n-th call.
    for n in 1..4 {
        let calls = Cell::new(0);
        let error = lbfgs.step(|| {
            calls.set(calls.get() + 1);
            if calls.get() == n { Err(Error::invalid("mine", "no more")) } else { valley(&x) }
        });
        assert!(error.unwrap_err().to_string().starts_with("mine: no more"));
        assert_eq!((bits(&x), shown(&lbfgs.state_dict())), before);
    }
    // Memory runs out at each point in turn.
    let mut failures = 0;
    for n in (1..).step_by(7) {
        backend.fail_in.store(n, Ordering::Relaxed);
        let result = lbfgs.step(|| valley(&x));
        backend.fail_in.store(0, Ordering::Relaxed);
        let Err(error) = result else { break };
        assert!(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "{error}");
        assert_eq!((bits(&x), shown(&lbfgs.state_dict())), before);
        failures += 1;
    }
    assert!(failures > 5, "{failures}");
    assert_ne!(bits(&x), before.0);
}

#[test]
fn what_makes_no_sense_is_said() {
    let device = device();
    let x = start(&device);
    let says = |mut lbfgs: Lbfgs, part: &str| {
        let message = lbfgs.step(|| valley(&x)).unwrap_err().to_string();
        assert!(message.starts_with("Lbfgs: ") && message.contains(part), "{message}");
        assert_eq!(bits(&x), bits(&start(&device)));
    };
    let with = |config| Lbfgs::new([x.clone()], config);
    says(with(LbfgsConfig { lr: -1.0, ..WOLFE }), "lr -1");
    says(with(LbfgsConfig { tolerance_grad: f64::NAN, ..WOLFE }), "tolerance_grad NaN");
    says(with(LbfgsConfig { max_iter: 0, ..WOLFE }), "max_iter 0");
    says(with(LbfgsConfig { max_eval: Some(0), ..WOLFE }), "max_eval 0");
    says(with(LbfgsConfig { history_size: 0, ..WOLFE }), "history_size 0");
    says(Lbfgs::new([], WOLFE), "no parameters");
    says(Lbfgs::new([x.clone(), x.clone()], WOLFE), "given twice");
    let wide = Tensor::zeros([2], (DType::F64, &device)).unwrap().requires_grad();
    says(Lbfgs::new([x.clone(), wide], WOLFE), "one dtype, on one device");

    let mut lbfgs = with(WOLFE);
    let message = lbfgs.step(|| Ok(x.sum().detach())).unwrap_err().to_string();
    assert!(message.contains("call loss.backward() in the closure"), "{message}");
    let message = lbfgs.step(|| Ok(x.detach())).unwrap_err().to_string();
    assert!(message.contains("a loss of shape [4]"), "{message}");
    // A step without a closure, as of any optimizer, is an error.
    let message = Optimizer::step(&mut lbfgs).unwrap_err().to_string();
    assert!(message.contains("with a closure"), "{message}");

    let mut state = lbfgs.state_dict();
    state.insert("state.0.d", Tensor::zeros([3], &device).unwrap());
    let message = lbfgs.load_state_dict(&state).unwrap_err().to_string();
    assert!(message.contains("state.0.d"), "{message}");
    lbfgs.step(|| valley(&x)).unwrap();
    let mut state = lbfgs.state_dict();
    state.insert("state.0.old_dirs.0", Tensor::zeros([3], &device).unwrap());
    let before = shown(&lbfgs.state_dict());
    let message = lbfgs.load_state_dict(&state).unwrap_err().to_string();
    assert!(message.contains("state.0.old_dirs.0"), "{message}");
    assert_eq!(shown(&lbfgs.state_dict()), before);
}

#[test]
fn what_is_kept_follows_the_parameters() {
    let (here, there) = (device(), device());
    let (a, b) = (start(&here), start(&here));
    let (mut moved, mut stays) = (Lbfgs::new([a.clone()], WOLFE), Lbfgs::new([b.clone()], WOLFE));
    for step in 0..3 {
        if step == 1 {
            a.assign(&a.detach().to(&there).unwrap()).unwrap();
        }
        moved.step(|| valley(&a)).unwrap();
        stays.step(|| valley(&b)).unwrap();
    }
    assert_eq!((a.device(), bits(&a)), (there, bits(&b)));
}
