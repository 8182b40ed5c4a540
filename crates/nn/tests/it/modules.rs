//! The contents of modules: names, roles, state dicts, moving, training.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, sync::atomic::Ordering};

use crate::common::{assert_close, device, reference::reference_backend};
use autograd::TensorGrad;
use nn::{
    Dropout, Field, Layer, Linear, Module, NameMap, Parameter, Relu, Sequential, StateDict, Training,
    Unmatched, lora::Targets,
};
use tensor_core::{DType, Device, ErrorKind, Generator, Tensor};

#[derive(Module)]
struct Net {
    fc1: Linear,
    layers: Vec<Linear>,
    scale: Parameter,
    shift: Option<Tensor>,
    absent: Option<Tensor>,
    mean: Tensor,
    #[module(constant)]
    constant: Tensor,
    name: &'static str,
    training: Training,
}

fn net(device: &Device) -> Net {
    let rng = Generator::seed(1, device);
    Net {
        fc1: Linear::new(3, 2, &rng).unwrap(),
        layers: vec![Linear::new(2, 2, &rng).unwrap(), Linear::new(2, 1, &rng).unwrap()],
        scale: Parameter::new(Tensor::ones([2], device).unwrap()).unwrap(),
        shift: Some(Tensor::zeros([2], device).unwrap().requires_grad()),
        absent: None,
        mean: Tensor::zeros([2], device).unwrap().into_cell(false).unwrap(),
        constant: Tensor::ones([1], device).unwrap(),
        name: "net",
        training: Training::default(),
    }
}

fn names(list: Vec<(String, Tensor)>) -> Vec<String> {
    list.into_iter().map(|(name, _)| name).collect()
}

const PARAMETERS: [&str; 8] = [
    "fc1.weight",
    "fc1.bias",
    "layers.0.weight",
    "layers.0.bias",
    "layers.1.weight",
    "layers.1.bias",
    "scale",
    "shift",
];

#[test]
fn names_and_roles_are_pytorchs() {
    let net = net(&device());
    assert_eq!(net.name, "net");
    assert_eq!(names(net.named_parameters()), PARAMETERS);
    assert_eq!(names(net.named_buffers()), ["mean"]);
    assert_eq!(net.num_parameters(), 6 + 2 + 4 + 2 + 2 + 1 + 2 + 2);
    let mut all: Vec<_> = net.state_dict().into_keys().collect();
    all.sort_unstable();
    let mut expected: Vec<_> = PARAMETERS.iter().copied().chain(["mean"]).collect();
    expected.sort_unstable();
    assert_eq!(all, expected);
    assert!(net.absent.is_none());
}

#[test]
fn containers_name_what_they_hold() {
    let device = device();
    let cell = || Tensor::ones([1], &device).unwrap().requires_grad();
    assert_eq!(names([cell(), cell()].named_parameters()), ["0", "1"]);
    assert_eq!(names((cell(), vec![cell()]).named_parameters()), ["0", "1.0"]);
    assert_eq!(names(Some(cell()).named_parameters()), [""]);
    let map = BTreeMap::from([("b".to_string(), cell()), ("a".to_string(), cell())]);
    assert_eq!(names(map.named_parameters()), ["a", "b"]);
    fn is_field(_: &(impl Field + ?Sized)) {}
    is_field(&cell());
}

#[test]
fn frozen_parameters_stay_parameters() {
    let device = device();
    let net = net(&device);
    net.fc1.set_requires_grad(false).unwrap();
    net.scale.set_requires_grad(false).unwrap();
    assert_eq!(names(net.named_parameters()), PARAMETERS);
    let x = Tensor::ones([1, 3], &device).unwrap();
    net.layers[0].forward(&net.fc1.forward(&x).unwrap()).unwrap().sum().backward().unwrap();
    assert!(net.fc1.weight.grad().is_none() && net.layers[0].weight.grad().is_some());
    net.zero_grad();
    assert!(net.layers[0].weight.grad().is_none());
}

#[test]
fn parameters_are_selected_by_their_names() {
    let rng = Generator::seed(0, &device());
    let model: Vec<Linear> = (0..12).map(|_| Linear::new(2, 2, &rng).unwrap()).collect();
    let count = |targets: &Targets| {
        let (fitting, others) =
            (model.parameters_matching(targets).unwrap(), model.parameters_except(targets).unwrap());
        assert_eq!(fitting.len() + others.len(), 24);
        fitting.len()
    };
    assert_eq!(count(&["bias"].into()), 12);
    assert_eq!(count(&["3.bias", "1.weight"].into()), 2); // not 11.weight
    assert_eq!(count(&Targets::Glob("1*.weight".into())), 3);
    assert_eq!(count(&Targets::Regex(r"\d\.(weight|bias)".into())), 20);
    assert_eq!(count(&Targets::Glob("*".into())), 24);
    for (targets, part) in [
        (Targets::Glob("head.*".into()), "and 16 more]"),
        (Targets::Regex("(".into()), "no regular expression"),
        (Targets::AllLinear, "AllLinear selects layers"),
    ] {
        let message = model.parameters_matching(&targets).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert!(model.set_requires_grad_matching(&targets, false).is_err());
    }
    assert_eq!(model.trainable_parameters().len(), 24);
    model.set_requires_grad_matching(&["bias"].into(), false).unwrap();
    assert_eq!(model.trainable_parameters().len(), 12);
    let object: &dyn Module = &model;
    object.set_requires_grad_matching(&["bias"].into(), true).unwrap();
    assert_eq!(model.trainable_parameters().len(), 24);
}

#[test]
fn freezing_changes_no_kind_and_no_count() {
    let device = device();
    let net = net(&device);
    let (count, saved) = (net.num_parameters(), net.state_dict().into_keys().collect::<Vec<_>>());
    net.freeze().unwrap();
    assert_eq!(names(net.named_parameters()), PARAMETERS);
    assert_eq!((net.num_parameters(), names(net.named_buffers())), (count, vec!["mean".to_string()]));
    assert_eq!(net.state_dict().into_keys().collect::<Vec<_>>(), saved);
    assert!(net.trainable_parameters().is_empty());
    // A copy of what is frozen is frozen, and of the same kinds.
    let held = (Tensor::ones([2], &device).unwrap().requires_grad(), net.mean.clone());
    held.freeze().unwrap();
    let copy = held.deep_copy().unwrap();
    assert_eq!(
        (names(copy.named_parameters()), names(copy.named_buffers())),
        (vec!["0".into()], vec!["1".into()])
    );
    assert!(copy.trainable_parameters().is_empty());
    copy.unfreeze().unwrap();
    assert_eq!(copy.trainable_parameters().len(), 1);
    net.unfreeze().unwrap();
    assert_eq!(net.trainable_parameters().len(), PARAMETERS.len());
    assert!(!net.mean.is_tracked() && !net.constant.is_tracked());
    net.shift.as_ref().unwrap().sum().backward().unwrap();
    assert!(net.shift.as_ref().unwrap().grad().is_some());
}

#[test]
fn a_cell_is_a_parameter_from_when_it_wants_gradients_to_when_it_is_made_a_buffer() {
    let device = device();
    let cell = Tensor::ones([2], &device).unwrap().into_cell(false).unwrap();
    assert!(!cell.is_parameter());
    cell.set_requires_grad(true).unwrap();
    cell.set_requires_grad(false).unwrap();
    assert!(cell.is_parameter());
    let cell = cell.into_cell(false).unwrap();
    assert!(!cell.is_parameter() && !Tensor::ones([2], &device).unwrap().is_parameter());
}

#[test]
fn tensors_that_are_neither_trained_nor_saved_are_named() {
    #[derive(Module)]
    struct Forgetful {
        body: Linear,
        inner: (Tensor, Vec<Tensor>),
        #[module(constant)]
        table: Option<Tensor>,
    }
    let device = device();
    let plain = || Tensor::ones([2], &device).unwrap();
    let cell = plain().into_cell(true).unwrap();
    let rng = Generator::seed(0, &device);
    // A layer that was made by hand of a tensor that is no cell is named too.
    let body = Linear { bias: Some(plain()), ..Linear::new(2, 2, &rng).unwrap() };
    let net = Forgetful { body, inner: (plain(), vec![cell, plain()]), table: Some(plain()) };
    assert_eq!(net.undeclared_tensors(), ["body.bias", "inner.0", "inner.1.1"]);
    assert_eq!(names(net.named_parameters()), ["body.weight", "inner.1.0"]);
    assert!(net.state_dict().keys().eq(["body.weight", "inner.1.0"]));
}

#[test]
fn a_shared_parameter_is_listed_once_and_saved_under_each_name() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let first = Linear::new(2, 2, &rng).unwrap();
    let mut tied = (first.clone(), Linear { bias: None, ..first });
    assert_eq!(names(tied.named_parameters()), ["0.weight", "0.bias"]);
    assert_eq!(tied.state_dict().len(), 3);
    tied.to(&crate::common::device()).unwrap();
    assert_eq!(tied.0.weight.id(), tied.1.weight.id());
    assert_eq!(tied.0.weight.device(), tied.1.weight.device());
}

#[test]
fn a_state_dict_is_a_snapshot_that_can_be_taken_over() {
    let (here, there) = (device(), device());
    let (a, b) = (net(&here), net(&there));
    let saved = a.state_dict();
    a.scale.assign(&a.scale.zeros_like()).unwrap();
    assert_close(&saved["scale"], &[1.0, 1.0]);
    b.scale.assign(&b.scale.zeros_like()).unwrap();
    b.load_state_dict(&saved).unwrap();
    assert_close(&b.scale, &[1.0, 1.0]);
    assert_eq!(b.scale.device(), there);
    assert!(b.scale.is_tracked() && !b.mean.is_tracked());
}

#[test]
fn a_dict_that_does_not_fit_changes_nothing() {
    let device = device();
    let net = net(&device);
    let before = net.fc1.weight.to_vec::<f32>().unwrap();
    let mut dict = net.state_dict();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, &device).unwrap();
    dict.insert("fc1.weight".into(), zeros(&[2, 3]));
    dict.insert("fc1.bias".into(), zeros(&[3]));
    dict.insert("scale".into(), Tensor::zeros([2], (DType::Bool, &device)).unwrap());
    dict.insert("fc9.bias".into(), zeros(&[3]));
    dict.remove("shift");
    let error = net.load_state_dict(&dict).unwrap_err();
    let ErrorKind::StateDict { missing, unexpected, mismatched } = error.kind() else { panic!("{error}") };
    assert_eq!((missing, unexpected), (&vec!["shift".to_string()], &vec!["fc9.bias".to_string()]));
    assert_eq!(mismatched[0], "fc1.bias: f32 [3] in the dict, f32 [2] in the module");
    assert_eq!(mismatched[1], "scale: bool [2] in the dict, f32 [2] in the module");
    // A lenient load forgives names, not shapes.
    assert!(net.load_matching(&dict).is_err());
    assert_eq!(net.fc1.weight.to_vec::<f32>().unwrap(), before);
    dict.remove("fc1.bias");
    dict.remove("scale");
    let unmatched = net.load_matching(&dict).unwrap();
    let expected = Unmatched {
        missing: vec!["fc1.bias".into(), "scale".into(), "shift".into()],
        unexpected: vec!["fc9.bias".into()],
    };
    assert_eq!(unmatched, expected);
    assert_close(&net.fc1.weight, &[0.0; 6]);
}

#[test]
fn a_value_that_cannot_be_computed_changes_nothing() {
    let device = device();
    let linear = Linear::new(2, 2, &Generator::seed(0, &device)).unwrap();
    let before = linear.bias.as_ref().unwrap().to_f64_vec().unwrap();
    let bad = Tensor::new([9i32, 9], &device).unwrap();
    let dict = StateDict::from([
        ("bias".to_string(), Tensor::zeros([2], &device).unwrap()),
        (
            "weight".to_string(),
            Tensor::zeros([2, 2], &device)
                .unwrap()
                .gather(0, &bad.reshape([1, 2]).unwrap())
                .unwrap()
                .expand([2, 2])
                .unwrap(),
        ),
    ]);
    assert!(linear.load_state_dict(&dict).is_err());
    assert_eq!(linear.bias.as_ref().unwrap().to_f64_vec().unwrap(), before);
}

#[test]
fn a_module_moves_whole_with_its_gradients() {
    let (here, there) = (device(), device());
    let mut net = net(&here);
    let held = net.fc1.weight.clone();
    net.fc1.weight.powi(2).sum().backward().unwrap();
    net.to(&there).unwrap();
    for (name, tensor) in net.named_parameters().into_iter().chain(net.named_buffers()) {
        assert_eq!(tensor.device(), there, "{name}");
    }
    assert_eq!(net.constant.device(), there);
    assert_eq!((held.device(), held.grad().unwrap().device()), (there.clone(), there));
}

#[test]
fn a_move_that_fails_moves_nothing() {
    let here = device();
    let (there, backend) = reference_backend();
    let mut net = net(&here);
    // The fourth upload fails.
    backend.fail_in.store(4, Ordering::Relaxed);
    let error = net.to(&there).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "{error}");
    assert!(net.named_parameters().iter().all(|(_, t)| t.device() == here));
    assert_eq!(net.constant.device(), here);
    net.to(&there).unwrap();
    assert!(net.parameters().iter().all(|t| t.device() == there));
}

#[test]
fn training_reaches_every_layer() {
    let device = device();
    let rng = Generator::seed(3, &device);
    let model = (
        Sequential::new().add(Relu).add(Dropout::new(0.5, &rng).unwrap()),
        Dropout::new(0.5, &rng).unwrap(),
        net(&device),
    );
    let x = Tensor::ones([100], &device).unwrap();
    let sum = |layer: &dyn Layer| layer.forward(&x).unwrap().sum().item::<f32>().unwrap();
    assert_ne!(sum(&model.0), 100.0);
    model.eval();
    assert_eq!((sum(&model.0), sum(&model.1), model.2.training.get()), (100.0, 100.0, false));
    model.train();
    assert_ne!(sum(&model.0), 100.0);
    assert!(model.2.training.get());
}

#[test]
fn names_are_mapped_and_misfits_are_told_at_once() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let layer = Linear::new(2, 2, &rng).unwrap();
    let before = layer.weight.to_vec::<f32>().unwrap();
    let dict = StateDict::from([
        ("module.kernel".to_string(), Tensor::ones([2, 3], &device).unwrap()),
        ("module.other".to_string(), Tensor::ones([1], &device).unwrap()),
    ]);
    let names = NameMap::new().strip("module.").rename("kernel", "weight");
    let message = layer.load_mapped(&dict, &names).unwrap_err().to_string();
    for part in [
        "missing [\"bias\"]",
        "unexpected [\"other (module.other in the dict)\"]",
        "weight: f32 [2, 3] in the dict",
        "(module.kernel)",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(layer.weight.to_vec::<f32>().unwrap(), before);
    let both = NameMap::new().rename("module.*", "weight");
    let message = layer.load_mapped(&dict, &both).unwrap_err().to_string();
    assert!(message.contains("different numbers of stars"), "{message}");
    let both = NameMap::new().rename("module.other", "module.kernel");
    let message = layer.load_mapped(&dict, &both).unwrap_err().to_string();
    assert!(
        message.contains("\"module.kernel\" and \"module.other\" both become \"module.kernel\""),
        "{message}"
    );
}

#[test]
fn tied_parameters_are_found_under_any_of_their_names() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let tied = {
        let layer = Linear::new(2, 2, &rng).unwrap();
        vec![layer.clone(), layer]
    };
    let ones = || Tensor::ones([2, 2], &device).unwrap();
    let bias = Tensor::zeros([2], &device).unwrap();
    let mut dict = StateDict::from([("1.weight".to_string(), ones()), ("0.bias".to_string(), bias.clone())]);
    tied.load_state_dict(&dict).unwrap();
    assert_eq!(tied[0].weight.to_vec::<f32>().unwrap(), [1.0; 4]);
    // Where the module has two parameters, a rule fills in the second.
    let apart = vec![Linear::new(2, 2, &rng).unwrap(), Linear::new(2, 2, &rng).unwrap()];
    dict.insert("1.bias".into(), bias);
    assert!(apart.load_state_dict(&dict).unwrap_err().to_string().contains("missing [\"0.weight\"]"));
    apart.load_mapped(&dict, &NameMap::new().tie("0.weight", "1.weight").tie("0.bias", "none")).unwrap();
    assert_eq!(apart[0].weight.to_vec::<f32>().unwrap(), [1.0; 4]);
}
