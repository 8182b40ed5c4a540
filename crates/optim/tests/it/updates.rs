//! Behaviour that all optimizers share: checks, groups, state, and that a failure changes nothing.
//! `taper/tests` compares their updates with PyTorch's.
#![allow(clippy::unwrap_used)]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::common::{assert_close, bits, device, devices, reference::reference_backend, shown};
use autograd::TensorGrad;
use optim::*;
use taper_testing::{hooked, reference};
use tensor_core::{DType, Device, Error, ErrorKind, State, Stateful, Tensor};

fn matrix(device: &Device, values: [f32; 6]) -> Tensor {
    Tensor::from_slice(&values, [2, 3], device).unwrap().requires_grad()
}

fn start(device: &Device) -> Tensor {
    matrix(device, [0.5, -1.0, 2.0, 0.25, -0.75, 1.5])
}

/// A gradient that depends on the parameter and the step.
fn set_grad(x: &Tensor, step: i32) {
    let value = x.detach();
    let grad = value.powi(2).sub(&value.mul_scalar(0.3 * f64::from(step))).unwrap().add_scalar(0.1);
    grad.eval().unwrap();
    x.set_grad(Some(grad));
}

/// Runs a function with the settings of each optimizer, different from the defaults.
macro_rules! with_each {
    ($f:ident $(, $argument:expr)*) => {
        let betas = (0.8, 0.95);
        $f(SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() } $(, $argument)*);
        $f(AdamConfig { lr: 0.1, betas, amsgrad: true, ..Default::default() } $(, $argument)*);
        $f(AdamWConfig { lr: 0.1, betas, ..Default::default() } $(, $argument)*);
        $f(NAdamConfig { lr: 0.1, betas, ..Default::default() } $(, $argument)*);
        $f(RAdamConfig { lr: 0.1, betas, ..Default::default() } $(, $argument)*);
        $f(AdamaxConfig { lr: 0.1, betas, ..Default::default() } $(, $argument)*);
        $f(RmsPropConfig { lr: 0.1, centered: true, momentum: 0.5, ..Default::default() } $(, $argument)*);
        $f(AdagradConfig { lr: 0.1, lr_decay: 0.1, ..Default::default() } $(, $argument)*);
        $f(AdadeltaConfig { lr: 0.1, ..Default::default() } $(, $argument)*);
        $f(AsgdConfig { lr: 0.1, lambd: 0.1, t0: 3.0, ..Default::default() } $(, $argument)*);
        $f(RpropConfig { lr: 0.1, etas: (0.4, 1.3), ..Default::default() } $(, $argument)*);
        $f(LionConfig { lr: 0.1, betas, ..Default::default() } $(, $argument)*);
        $f(MuonConfig { lr: 0.1, ns_steps: 3, ..Default::default() } $(, $argument)*);
    };
}

#[test]
fn a_resumed_optimizer_gives_the_same_bits() {
    fn resumes<C: UpdateRule + Default>(config: C, device: &Device) {
        let (a, b) = (start(device), start(device));
        let mut first = ParamGroups::new([a.clone()], config);
        for step in 0..7 {
            set_grad(&a, step);
            first.step().unwrap();
        }
        b.assign(&a.detach()).unwrap();
        let saved = first.state_dict();
        let mut second = ParamGroups::new([b.clone()], C::default());
        second.load_state_dict(&saved).unwrap();
        assert_eq!(shown(&second.state_dict()), shown(&saved), "{config:?}");
        for step in 7..12 {
            for (x, optimizer) in [(&a, &mut first), (&b, &mut second)] {
                set_grad(x, step);
                optimizer.step().unwrap();
            }
        }
        assert_eq!(bits(&a), bits(&b), "{config:?}");
        assert_ne!(bits(&a), bits(&start(device)));
        assert_eq!(shown(&first.state_dict()), shown(&second.state_dict()), "{config:?}");
    }
    for device in devices() {
        with_each!(resumes, &device);
    }
}

/// A step takes memory if it is the first, which creates the state, or if other tensors hold the parameters'
/// values.
#[test]
fn a_step_that_runs_out_of_memory_changes_nothing() {
    fn fails<C: UpdateRule>(config: C) {
        for is_first in [true, false] {
            let (device, backend) = reference_backend();
            // Two shapes, so that there are several kernels.
            let wide = |shape: [usize; 2]| Tensor::full(shape, 0.5f32, &device).unwrap().requires_grad();
            let parameters = [start(&device), start(&device), wide([4, 4])];
            let mut optimizer = ParamGroups::new(parameters.clone(), config);
            let set = |step| parameters.iter().for_each(|x| set_grad(x, step));
            set(0);
            if !is_first {
                optimizer.step().unwrap();
                set(1);
            }
            let held = parameters.each_ref().map(|x| x.detach());
            let before = (parameters.each_ref().map(bits), shown(&optimizer.state_dict()));
            let mut failures = 0;
            for n in 1.. {
                backend.fail_in.store(n, Ordering::Relaxed);
                let result = optimizer.step();
                backend.fail_in.store(0, Ordering::Relaxed);
                let Err(error) = result else { break };
                assert!(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "{error}");
                assert_eq!((parameters.each_ref().map(bits), shown(&optimizer.state_dict())), before);
                failures += 1;
            }
            assert!(failures > 1, "{config:?}");
            assert_ne!(parameters.each_ref().map(bits), before.0);
            assert_eq!(held.each_ref().map(bits), before.0);
        }
    }
    with_each!(fails);
}

/// From the second step on an elementwise update overwrites the old values.
#[test]
fn a_later_step_takes_no_memory() {
    fn stays<C: UpdateRule>(config: C, device: &Device) {
        let parameters: Vec<Tensor> = (0..3).map(|_| start(device)).collect();
        let mut optimizer = ParamGroups::new(parameters.clone(), config);
        let set = |step| parameters.iter().for_each(|x| set_grad(x, step));
        set(0);
        optimizer.step().unwrap();
        for step in 1..3 {
            set(step);
            device.reset_peak();
            let before = device.memory();
            optimizer.step().unwrap();
            let after = device.memory();
            if C::NAME == "Muon" {
                // Muon multiplies matrices, which takes memory.
                assert!(after.allocations > before.allocations);
                continue;
            }
            assert_eq!((after.allocations, after.peak), (before.allocations, before.allocated), "{config:?}");
        }
    }
    // A new device, whose counts start at 0.
    let device = Device::new(Arc::new(backend_cpu::CpuBackend::new()));
    with_each!(stays, &device);
}

/// A graph whose gradients are pending keeps the values that it was built with.
#[test]
fn a_graph_keeps_its_values_when_a_step_is_taken() {
    for device in devices() {
        let x = start(&device);
        let mut sgd = Sgd::new([x.clone()], SgdConfig { lr: 0.5, ..Default::default() });
        let y = x.powi(2).sum();
        y.eval().unwrap();
        let waits = x.powi(3).sum();
        for step in 0..2 {
            set_grad(&x, step);
            sgd.step().unwrap();
        }
        x.set_grad(None);
        y.add(&waits).unwrap().backward().unwrap();
        let old = start(&device).detach();
        let expected = old.mul_scalar(2.0).add(&old.powi(2).mul_scalar(3.0)).unwrap().to_f64_vec().unwrap();
        assert_close(&x.grad().unwrap(), &expected);
    }
}

/// After a kernel fails in a step that overwrites, each parameter and its state are as before the step, or
/// as after it.
#[test]
fn a_device_that_fails_within_a_step_leaves_each_parameter_whole() {
    let stepped = |x: &Tensor, steps: i32| {
        let mut adam = Adam::new([x.clone()], AdamConfig { lr: 0.1, ..Default::default() });
        for step in 0..steps {
            set_grad(x, step);
            adam.step().unwrap();
        }
        shown(&adam.state_dict()).into_iter().filter(|part| part.starts_with("state")).collect::<Vec<_>>()
    };
    let fail_in = Arc::new(AtomicU64::new(0));
    let left = Arc::clone(&fail_in);
    let device = hooked(reference_backend().1, move |plain, launch| {
        if left.load(Ordering::Relaxed) > 0 && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            return Err(Error::new(ErrorKind::DeviceLost {
                device: "hooked".into(),
                reason: "a test".into(),
            }));
        }
        plain.run(launch)
    });
    let other = |device: &Device| Tensor::full([4], 0.5f32, device).unwrap().requires_grad();
    let parameters = [start(&device), other(&device)];
    let mut adam = Adam::new(parameters.clone(), AdamConfig { lr: 0.1, ..Default::default() });
    for step in 0..2 {
        parameters.iter().for_each(|x| set_grad(x, step));
        // Each shape has its own kernel.
        fail_in.store(2 * step as u64, Ordering::Relaxed);
        assert_eq!(adam.step().is_err(), step == 1);
    }
    fail_in.store(0, Ordering::Relaxed);
    let plain = reference();
    let (after, before) = (start(&plain), other(&plain));
    let states = [stepped(&after, 2), stepped(&before, 1)];
    assert_eq!((bits(&parameters[0]), bits(&parameters[1])), (bits(&after), bits(&before)));
    let state = shown(&adam.state_dict());
    assert!(states[0].iter().all(|part| state.contains(part)), "{state:?}");
    assert!(states[1].iter().all(|part| state.contains(&part.replace("state.0", "state.1"))), "{state:?}");
}

/// Invalid settings are errors of the step, which name the setting and change nothing.
fn refuses<C: UpdateRule>(config: C, part: &str) {
    for device in devices() {
        let x = start(&device);
        set_grad(&x, 0);
        let mut optimizer = ParamGroups::new([x.clone()], config);
        let before = shown(&optimizer.state_dict());
        let message = optimizer.step().unwrap_err().to_string();
        assert!(message.starts_with(&format!("{}: {part}", C::NAME)), "{message}");
        assert_eq!((bits(&x), shown(&optimizer.state_dict())), (bits(&start(&device)), before));
    }
}

#[test]
fn settings_that_make_no_sense_are_errors_and_change_nothing() {
    let adam = AdamConfig::default();
    refuses(AdamConfig { lr: -1.0, ..adam }, "lr -1");
    refuses(AdamConfig { eps: -1e-8, ..adam }, "eps -");
    refuses(AdamConfig { betas: (1.0, 0.999), ..adam }, "betas.0 1");
    refuses(AdamConfig { betas: (0.9, -0.1), ..adam }, "betas.1 -0.1");
    refuses(AdamConfig { betas: (f64::NAN, 0.9), ..adam }, "betas.0 NaN");
    refuses(AdamConfig { weight_decay: f64::INFINITY, ..adam }, "weight_decay inf");
    refuses(AdamWConfig { betas: (0.9, 1.0), ..Default::default() }, "betas.1 1");
    refuses(NAdamConfig { momentum_decay: -1.0, ..Default::default() }, "momentum_decay -1");
    refuses(NAdamConfig { betas: (2.0, 0.9), ..Default::default() }, "betas.0 2");
    refuses(RAdamConfig { lr: f64::NAN, ..Default::default() }, "lr NaN");
    refuses(AdamaxConfig { eps: -1.0, ..Default::default() }, "eps -1");
    refuses(RmsPropConfig { alpha: 1.5, ..Default::default() }, "alpha 1.5");
    refuses(RmsPropConfig { momentum: -0.5, ..Default::default() }, "momentum -0.5");
    refuses(AdagradConfig { lr_decay: -1.0, ..Default::default() }, "lr_decay -1");
    refuses(
        AdagradConfig { initial_accumulator_value: -1.0, ..Default::default() },
        "initial_accumulator_value -1",
    );
    refuses(AsgdConfig { lambd: -1.0, ..Default::default() }, "lambd -1");
    refuses(AsgdConfig { t0: f64::NAN, ..Default::default() }, "t0 NaN");
    refuses(RpropConfig { etas: (1.0, 1.2), ..Default::default() }, "etas 1, 1.2");
    refuses(RpropConfig { etas: (0.5, 1.0), ..Default::default() }, "etas 0.5, 1");
    refuses(RpropConfig { step_sizes: (2.0, 1.0), ..Default::default() }, "step_sizes 2, 1");
    refuses(AdadeltaConfig { rho: 1.1, ..Default::default() }, "rho 1.1");
    refuses(LionConfig { betas: (0.9, 1.0), ..Default::default() }, "betas.1 1");
    refuses(MuonConfig { ns_steps: 100, ..Default::default() }, "ns_steps 100");
    refuses(MuonConfig { momentum: 1.5, ..Default::default() }, "momentum 1.5");
    refuses(
        MuonConfig { ns_coefficients: (1.0, f64::NAN, 0.0), ..Default::default() },
        "ns_coefficients 1, NaN",
    );
}

#[test]
fn parameters_that_make_no_sense_are_errors() {
    let device = device();
    fn says<C: UpdateRule>(mut optimizer: ParamGroups<C>, part: &str) {
        let message = optimizer.step().unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let x = start(&device);
    let config = AdamConfig::default();
    says(Adam::new([], config), "there are no parameters");
    let mut empty = Adam::new([x.clone()], config);
    empty.add_group([], config);
    says(empty, "group 1 has no parameters");
    let mut twice = Adam::new([x.clone()], config);
    twice.add_group([x.clone()], config);
    says(twice, "given twice");
    says(Adam::new([x.detach()], config), "no parameter");
    let vector = Tensor::zeros([3], &device).unwrap().requires_grad();
    says(Muon::new([vector], MuonConfig::default()), "Muon: a parameter of shape [3]: only matrices");
    x.set_grad(Some(Tensor::ones([3, 2], &device).unwrap()));
    says(Adam::new([x.clone()], config), "[3, 2]");
    x.set_grad(Some(Tensor::ones([2, 3], (DType::F64, &device)).unwrap()));
    says(Adam::new([x.clone()], config), "f64");
    assert_eq!(bits(&x), bits(&start(&device)));
}

#[test]
fn a_parameter_without_a_gradient_is_passed_over() {
    for device in devices() {
        let (x, idle) = (start(&device), start(&device));
        // Its weight decay would move it.
        let config = AdamWConfig { lr: 0.1, weight_decay: 0.5, ..Default::default() };
        let mut adamw = AdamW::new([idle.clone(), x.clone()], config);
        for step in 0..3 {
            set_grad(&x, step);
            adamw.step().unwrap();
        }
        assert_eq!(bits(&idle), bits(&start(&device)));
        let state = adamw.state_dict();
        assert!(state.get("state.0.step").is_none());
        assert_eq!(state.number("state.1.step"), Some(tensor_core::Scalar::Int(3)));
        // It begins with its own first step.
        set_grad(&idle, 0);
        adamw.step().unwrap();
        assert_eq!(adamw.state_dict().number("state.0.step"), Some(tensor_core::Scalar::Int(1)));
    }
}

#[test]
fn a_state_of_something_else_is_an_error_and_changes_nothing() {
    let device = device();
    let x = start(&device);
    let mut adam = Adam::new([x.clone()], AdamConfig { lr: 0.1, ..Default::default() });
    set_grad(&x, 0);
    adam.step().unwrap();
    let saved = adam.state_dict();
    let mut other = Adam::new([start(&device)], AdamConfig::default());
    let before = shown(&other.state_dict());
    let mut misfit = |change: &dyn Fn(&mut State), part: &str| {
        let mut state = saved.clone();
        change(&mut state);
        let message = other.load_state_dict(&state).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert_eq!(shown(&other.state_dict()), before);
    };
    misfit(&|s| drop(s.remove("state.0.exp_avg")), "missing [\"state.0.exp_avg\"]");
    misfit(&|s| drop(s.remove("state.0.step")), "missing [\"state.0.step\"]");
    misfit(&|s| drop(s.remove("param_groups.0.betas.1")), "missing [\"param_groups.0.betas.1\"]");
    misfit(&|s| s.insert("state.0.step", -4i64), "state.0.step: the integer -4");
    misfit(&|s| s.insert("state.0.step", 4.0), "an integer is expected");
    misfit(&|s| s.insert("state.0.exp_avg_sq", Tensor::zeros([3, 2], &device).unwrap()), "f32 [3, 2] where");
    misfit(&|s| s.insert("state.1.step", 4i64), "unexpected [\"state.1.step\"]");
    misfit(&|s| s.insert("param_groups.1.lr", 0.5), "unexpected [\"param_groups.1.lr\"]");
    misfit(&|s| s.insert("param_groups.0.params", 3i64), "3 parameters, this group has 1");

    // The state of another optimizer, with other settings and other parts.
    let mut rms = RmsProp::new([start(&device)], RmsPropConfig::default());
    let message = rms.load_state_dict(&saved).unwrap_err().to_string();
    assert!(message.contains("param_groups.0.alpha") && message.contains("state.0.exp_avg"), "{message}");
    let mut muon = Muon::new([start(&device)], MuonConfig::default());
    let mut state = muon.state_dict();
    state.insert("param_groups.0.adjust_lr_fn", 7i64);
    let message = muon.load_state_dict(&state).unwrap_err().to_string();
    assert!(message.contains("adjust_lr_fn: there is no choice 7"), "{message}");
}

#[test]
fn settings_may_change_between_steps() {
    let device = device();
    let x = start(&device);
    let mut adam = Adam::new([x.clone()], AdamConfig { lr: 0.1, ..Default::default() });
    set_grad(&x, 0);
    adam.step().unwrap();
    // A part of the state that was not kept until now begins with zeros.
    adam.groups_mut()[0].config.amsgrad = true;
    set_grad(&x, 1);
    adam.step().unwrap();
    assert!(adam.state_dict().tensor("state.0.max_exp_avg_sq").is_some());
    let before = bits(&x);
    adam.groups_mut()[0].config.lr = 0.0;
    adam.step().unwrap();
    assert_eq!(bits(&x), before);
}

#[test]
fn half_precision_is_computed_in_f32_and_rounded_once() {
    let device = device();
    for dtype in [DType::F16, DType::BF16] {
        // 0.999 is 1 in bf16: a mean square that began with 0 would stay 0.
        let x = Tensor::full([1], 1.0, (dtype, &device)).unwrap().requires_grad();
        let mut adam = Adam::new([x.clone()], AdamConfig { lr: 0.125, ..Default::default() });
        x.set_grad(Some(x.detach().full_like(0.5)));
        for expected in [0.875, 0.75] {
            adam.step().unwrap();
            assert_close(&x, &[expected]);
        }
        let state = adam.state_dict();
        let square = state.tensor("state.0.exp_avg_sq").unwrap();
        assert_eq!(square.dtype(), dtype);
        assert!((square.to_f64_vec().unwrap()[0] / (0.25 * (1.0 - 0.999f64.powi(2))) - 1.0).abs() < 0.01);
    }
}

#[test]
fn states_follow_a_parameter_that_moves() {
    let (here, there) = (device(), device());
    let (x, stays) = (start(&here), start(&here));
    let config = AdamConfig { lr: 0.1, ..Default::default() };
    let (mut moved, mut still) = (Adam::new([x.clone()], config), Adam::new([stays.clone()], config));
    for step in 0..4 {
        if step == 2 {
            x.assign(&x.detach().to(&there).unwrap()).unwrap();
        }
        for (x, adam) in [(&x, &mut moved), (&stays, &mut still)] {
            set_grad(x, step);
            adam.step().unwrap();
        }
    }
    assert_eq!((x.device(), bits(&x)), (there, bits(&stays)));
}

/// The updates of parameters of one shape share kernels, up to the device's limit on results.
#[test]
fn a_step_takes_few_launches() {
    let launches = |shapes: &[[usize; 2]]| {
        let (device, backend) = reference_backend();
        let make = |shape: &[usize; 2]| Tensor::zeros(*shape, &device).unwrap().requires_grad();
        let parameters: Vec<Tensor> = shapes.iter().map(make).collect();
        let mut sgd = Sgd::new(parameters.clone(), SgdConfig { momentum: 0.9, ..Default::default() });
        for _ in 0..2 {
            for x in &parameters {
                let grad = x.detach().full_like(0.5);
                grad.eval().unwrap();
                grad.eval().unwrap();
                x.set_grad(Some(grad));
            }
            backend.kernels.lock().unwrap().clear();
            sgd.step().unwrap();
        }
        backend.kernels.lock().unwrap().values().sum::<usize>()
    };
    // Two results each, four in a kernel.
    assert_eq!(launches(&[[4, 4]; 8]), 4);
    assert_eq!(launches(&[[4, 4], [4, 5]]), 2);
}

/// A user's update rule that is wrong for one parameter changes none.
#[test]
fn an_update_of_another_shape_is_an_error_and_changes_nothing() {
    #[derive(Clone, Copy, Debug)]
    struct Wrong(f64);
    #[derive(Clone, Debug, Default)]
    struct Nothing;
    impl ParamState for Nothing {
        fn parts(&mut self) -> Vec<(&'static str, Part<'_>)> {
            vec![]
        }
    }
    impl UpdateRule for Wrong {
        const NAME: &'static str = "Wrong";
        type State = Nothing;
        fn check(&self) -> tensor_core::Result<()> {
            Ok(())
        }
        fn lr(&mut self) -> &mut f64 {
            &mut self.0
        }
        fn settings(&mut self) -> Vec<(&'static str, Setting<'_>)> {
            vec![("lr", Setting::Float(&mut self.0))]
        }
        fn update(&self, x: &Tensor, grad: &Tensor, _: &mut Nothing) -> tensor_core::Result<Tensor> {
            if x.rank() == 1 { grad.unsqueeze(0) } else { x.sub(grad) }
        }
    }
    let device = device();
    let (x, y) = (start(&device), Tensor::zeros([3], &device).unwrap().requires_grad());
    set_grad(&x, 0);
    set_grad(&y, 0);
    let error = ParamGroups::new([x.clone(), y], Wrong(0.1)).step().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ShapeMismatch { op: "Wrong", .. }), "{error}");
    assert_eq!(bits(&x), bits(&start(&device)));
}

/// More updates than may be pending on a thread at once: some are computed while others are built.
#[test]
fn many_parameters_step_as_one_does() {
    for device in devices() {
        let parameters: Vec<Tensor> = (0..400).map(|_| start(&device)).collect();
        let mut adam = Adam::new(parameters.clone(), AdamConfig { lr: 0.1, ..Default::default() });
        let alone = start(&device);
        let mut single = Adam::new([alone.clone()], AdamConfig { lr: 0.1, ..Default::default() });
        for step in 0..2 {
            parameters.iter().chain([&alone]).for_each(|x| set_grad(x, step));
            adam.step().unwrap();
            single.step().unwrap();
        }
        assert!(parameters.iter().all(|x| bits(x) == bits(&alone)));
        assert_ne!(bits(&alone), bits(&start(&device)));
    }
}
