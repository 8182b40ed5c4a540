//! SGD: its update compared with results worked out by hand, and that a failed step changes nothing.
#![allow(clippy::unwrap_used)]

use crate::common::{assert_close, device};
use autograd::{TensorGrad, func::vmap};
use optim::{ExponentialLr, LrScheduler, Optimizer, Sgd, SgdConfig};
use tensor_core::{DType, Device, ErrorKind, State, StateValue, Stateful, Tensor};

fn leaf(values: &[f32], device: &Device) -> Tensor {
    Tensor::from_slice(values, [values.len()], device).unwrap().requires_grad()
}

/// The momentum buffers in an optimizer's state.
fn momenta(sgd: &Sgd) -> Vec<Tensor> {
    let tensor = |(_, value)| match value {
        StateValue::Tensor(tensor) => Some(tensor),
        StateValue::Number(_) => None,
    };
    sgd.state_dict().into_iter().filter_map(tensor).collect()
}

/// The parameter's values after each of three steps with the gradients 1, 2, 3.
fn course(config: SgdConfig) -> Vec<f64> {
    let x = leaf(&[1.0], &device());
    let mut sgd = Sgd::new([x.clone()], config);
    (1..=3)
        .map(|g| {
            x.set_grad(Some(x.detach().full_like(g)));
            sgd.step().unwrap();
            x.to_f64_vec().unwrap()[0]
        })
        .collect()
}

#[track_caller]
fn follows(config: SgdConfig, expected: [f64; 3]) {
    for (found, expected) in course(config).into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }
}

#[test]
fn the_update_is_pytorchs() {
    let base = SgdConfig { lr: 0.1, ..Default::default() };
    follows(base, [0.9, 0.7, 0.4]);
    follows(SgdConfig { maximize: true, ..base }, [1.1, 1.3, 1.6]);
    follows(SgdConfig { weight_decay: 0.5, ..base }, [0.85, 0.6075, 0.277125]);
    // The penalty pulls toward 0 also if the objective is maximized.
    follows(SgdConfig { weight_decay: 0.5, maximize: true, ..base }, [1.05, 1.1975, 1.437625]);
    // b: 1, 2.5, 4.25
    follows(SgdConfig { momentum: 0.5, ..base }, [0.9, 0.65, 0.225]);
    // The first b is the whole gradient, with dampening or without: 1, 0.5 + 1.5, 1 + 2.25.
    follows(SgdConfig { momentum: 0.5, dampening: 0.25, ..base }, [0.9, 0.7, 0.375]);
    // g + 0.5 b: 1.5, 3.25, 5.125
    follows(SgdConfig { momentum: 0.5, nesterov: true, ..base }, [0.85, 0.525, 0.0125]);
}

#[test]
fn settings_that_make_no_sense_are_errors_and_change_nothing() {
    let x = leaf(&[1.0], &device());
    x.set_grad(Some(x.detach().ones_like()));
    let good = SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() };
    let mut sgd = Sgd::new([x.clone()], good);
    for bad in [
        SgdConfig { lr: f64::NAN, ..good },
        SgdConfig { lr: -0.1, ..good },
        SgdConfig { lr: f64::INFINITY, ..good },
        SgdConfig { momentum: -0.9, ..good },
        SgdConfig { momentum: f64::NAN, ..good },
        SgdConfig { dampening: f64::NAN, ..good },
        SgdConfig { weight_decay: -1.0, ..good },
        SgdConfig { nesterov: true, dampening: 0.1, ..good },
        SgdConfig { nesterov: true, momentum: 0.0, ..good },
    ] {
        sgd.groups_mut()[0].config = bad;
        let message = sgd.step().unwrap_err().to_string();
        assert!(message.starts_with("Sgd: "), "{message}");
        assert_close(&x, &[1.0]);
        assert!(sgd.state_dict().get("state.0.momentum_buffer").is_none());
    }
    sgd.groups_mut()[0].config = good;
    sgd.step().unwrap();
    assert_close(&x, &[0.9]);
}

#[test]
fn parameters_that_make_no_sense_are_errors() {
    let device = device();
    let x = leaf(&[1.0], &device);
    let says = |mut sgd: Sgd, part: &str| {
        let message = sgd.step().unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    says(Sgd::new([], SgdConfig::default()), "no parameters");
    says(Sgd::new([x.clone(), x.clone()], SgdConfig::default()), "given twice");
    says(Sgd::new([x.detach()], SgdConfig::default()), "no parameter");
    x.set_grad(Some(Tensor::ones([2], &device).unwrap()));
    says(Sgd::new([x.clone()], SgdConfig::default()), "[2]");
    x.set_grad(Some(Tensor::ones([1], (DType::F64, &device)).unwrap()));
    says(Sgd::new([x.clone()], SgdConfig::default()), "f64");
}

#[test]
fn groups_have_settings_of_their_own_and_may_live_on_several_devices() {
    let (here, there) = (device(), device());
    let (a, b, idle) = (leaf(&[1.0], &here), leaf(&[1.0], &there), leaf(&[1.0], &here));
    let mut sgd = Sgd::new([a.clone(), idle.clone()], SgdConfig { lr: 0.1, ..Default::default() });
    sgd.add_group([b.clone()], SgdConfig { lr: 0.5, ..Default::default() });
    for x in [&a, &b] {
        x.powi(2).sum().backward().unwrap();
    }
    sgd.step().unwrap();
    assert_close(&a, &[0.8]);
    assert_close(&b, &[0.0]);
    assert_close(&idle, &[1.0]);
    sgd.zero_grad();
    assert!(a.grad().is_none() && b.grad().is_none());
    assert_eq!((sgd.groups().len(), sgd.parameters().len()), (2, 3));
    let mut scheduler = LrScheduler::new(ExponentialLr::new(0.5), &mut sgd);
    scheduler.step(&mut sgd).unwrap();
    assert_eq!((sgd.learning_rates(), scheduler.steps()), (vec![0.05, 0.25], 1));
}

#[test]
fn momentum_follows_a_parameter_that_moves() {
    let (here, there) = (device(), device());
    let x = leaf(&[1.0], &here);
    let mut sgd = Sgd::new([x.clone()], SgdConfig { lr: 0.1, momentum: 0.5, ..Default::default() });
    x.set_grad(Some(x.detach().ones_like()));
    sgd.step().unwrap();
    x.assign(&x.detach().to(&there).unwrap()).unwrap();
    x.set_grad(Some(x.detach().ones_like()));
    sgd.step().unwrap();
    assert_close(&x, &[0.75]);
    assert_eq!(x.device(), there);
}

#[test]
fn a_label_out_of_range_fails_the_step_and_changes_nothing() {
    let device = device();
    let x = leaf(&[1.0, 2.0], &device);
    let mut sgd = Sgd::new([x.clone()], SgdConfig { lr: 0.1, ..Default::default() });
    let index = Tensor::new([5i32], &device).unwrap();
    x.gather(0, &index).unwrap().sum().backward().unwrap();
    let error = sgd.step().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { index: 5, .. }), "{error}");
    assert_close(&x, &[1.0, 2.0]);
    sgd.zero_grad();
    x.sum().backward().unwrap();
    sgd.step().unwrap();
    assert_close(&x, &[0.9, 1.9]);
}

#[test]
fn a_slice_of_vmap_that_is_still_held_does_not_stop_a_step() {
    let device = device();
    let x = leaf(&[1.0, 2.0], &device);
    let mut sgd = Sgd::new([x.clone()], SgdConfig { lr: 0.1, ..Default::default() });
    let held = std::cell::RefCell::new(None);
    let keep = |slices: &[Tensor]| {
        held.replace(Some(&slices[0] * 2.0));
        Ok(slices[0].clone())
    };
    let _ = vmap(keep, &[Tensor::ones([3, 2], &device).unwrap()], &[Some(0)]).unwrap();
    x.sum().backward().unwrap();
    sgd.step().unwrap();
    assert_close(&x, &[0.9, 1.9]);
    let error = held.take().unwrap().to_vec::<f32>().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { op: "vmap", .. }), "{error}");
}

#[test]
fn the_state_goes_on_where_it_was_saved() {
    let device = device();
    let config = SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() };
    let (a, b) = (leaf(&[1.0], &device), leaf(&[1.0], &device));
    let (mut first, mut second) = (Sgd::new([a.clone()], config), Sgd::new([b.clone()], config));
    let step = |x: &Tensor, sgd: &mut Sgd| {
        sgd.zero_grad();
        x.powi(2).sum().backward().unwrap();
        sgd.step().unwrap();
    };
    step(&a, &mut first);
    step(&a, &mut first);
    b.assign(&a.detach()).unwrap();
    let saved = first.state_dict();
    let names: Vec<&str> = saved.iter().map(|(name, _)| name).collect();
    let group = ["dampening", "lr", "maximize", "momentum", "nesterov", "params", "weight_decay"];
    let group = group.map(|name| format!("param_groups.0.{name}"));
    assert_eq!(names[..7], group);
    assert_eq!(names[7..], ["state.0.momentum_buffer"]);
    second.groups_mut()[0].config.lr = 0.5;
    second.load_state_dict(&saved).unwrap();
    assert_eq!(second.groups()[0].config, config);
    step(&a, &mut first);
    step(&b, &mut second);
    assert_eq!(a.item::<f32>().unwrap(), b.item::<f32>().unwrap());

    // Mismatches are reported by name, and change nothing.
    second.groups_mut()[0].config.lr = 0.5;
    let before = format!("{:?}", momenta(&second)[0].to_vec::<f32>());
    let misfit = |change: &dyn Fn(&mut State), part: &str, second: &mut Sgd| {
        let mut state = saved.clone();
        change(&mut state);
        let message = second.load_state_dict(&state).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    let momentum = |size: usize| Tensor::zeros([size], &device).unwrap();
    misfit(&|s| s.insert("state.1.momentum_buffer", momentum(1)), "state.1.momentum_buffer", &mut second);
    misfit(&|s| s.insert("state.0.momentum_buffer", momentum(2)), "a tensor f32 [2] where", &mut second);
    misfit(&|s| s.insert("state.0.velocity", momentum(1)), "unexpected [\"state.0.velocity\"]", &mut second);
    misfit(&|s| s.insert("param_groups.1.lr", 0.1), "param_groups.1.lr", &mut second);
    misfit(&|s| s.insert("param_groups.0.params", 2usize), "2 parameters, this group has 1", &mut second);
    misfit(&|s| drop(s.remove("param_groups.0.params")), "missing [\"param_groups.0.params\"]", &mut second);
    misfit(&|s| s.insert("param_groups.0.lr", 1i64), "a floating-point number", &mut second);
    assert_eq!(second.groups()[0].config.lr, 0.5);
    assert_eq!(format!("{:?}", momenta(&second)[0].to_vec::<f32>()), before);
}

#[test]
fn a_schedule_goes_on_from_its_state() {
    let device = device();
    let x = leaf(&[1.0], &device);
    let mut sgd = Sgd::new([x.clone()], SgdConfig { lr: 0.1, ..Default::default() });
    let mut first = LrScheduler::new(ExponentialLr::new(0.9), &mut sgd);
    (0..3).for_each(|_| first.step(&mut sgd).unwrap());
    let saved = (first.state_dict(), sgd.state_dict());
    // A new scheduler takes its base rates from the optimizer, whose state is loaded after the scheduler was
    // made, or before.
    for optimizer_first in [false, true] {
        let mut other = Sgd::new([x.clone()], SgdConfig { lr: 7.0, ..Default::default() });
        if optimizer_first {
            other.load_state_dict(&saved.1).unwrap();
        }
        let mut second = LrScheduler::new(ExponentialLr::new(0.9), &mut other);
        other.load_state_dict(&saved.1).unwrap();
        second.load_state_dict(&saved.0).unwrap();
        assert_eq!(other.learning_rates(), sgd.learning_rates());
        second.step(&mut other).unwrap();
        assert_eq!(second.rates(), other.learning_rates());
        assert_eq!(second.rates()[0].to_bits(), (0.1 * 0.9f64.powf(4.0)).to_bits());
    }
    let mut wide = Sgd::new([x.clone()], SgdConfig::default());
    wide.add_group([leaf(&[1.0], &device)], SgdConfig::default());
    let mut second = LrScheduler::new(ExponentialLr::new(0.9), &mut wide);
    let message = second.load_state_dict(&saved.0).unwrap_err().to_string();
    assert!(message.contains("base_lrs.1") && second.steps() == 0, "{message}");
}

#[test]
fn a_kept_loss_does_not_pin_its_graph() {
    let device = device();
    let x = leaf(&[1.0], &device);
    let mut sgd = Sgd::new([x.clone()], SgdConfig { lr: 0.1, ..Default::default() });
    let mut losses = Vec::new();
    for _ in 0..5 {
        sgd.zero_grad();
        let loss = x.powi(2).sum();
        loss.backward().unwrap();
        losses.push(loss.detach());
        sgd.step().unwrap();
        assert!(losses.iter().all(Tensor::is_evaluated));
    }
}
