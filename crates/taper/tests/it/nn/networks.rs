//! Layers and functions of layers against PyTorch's numbers (`scripts/torch_fixtures.py networks`): values,
//! gradients, state dicts, running statistics. Then what the numbers cannot show: differences in f64,
//! refusals, kernels.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeMap, rc::Rc};

use serde::Deserialize;
use serde_json::Value;
use taper::autograd::{TensorGrad, gradcheck, gradgradcheck};
use taper::nn::{self, BatchNormConfig, Module, StateDict, functional as f};
use taper::{DType, Generator, Result, Tensor, no_grad};

use crate::common::{assert_close, device, needs, of, reference_device};
use crate::pytorch::fixture;

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
pub(crate) struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

#[derive(Deserialize)]
pub(crate) struct Case {
    group: String,
    pub(crate) kind: String,
    pub(crate) args: BTreeMap<String, Value>,
    train: bool,
    inputs: Vec<Array>,
    state: BTreeMap<String, Array>,
    output: Array,
    cotangent: Array,
    grads: Vec<Array>,
    parameters: BTreeMap<String, Array>,
    #[serde(default)]
    after: BTreeMap<String, Array>,
}

impl Array {
    fn tensor(&self) -> Tensor {
        of(&self.data, &self.shape, DType::F32, &device()).unwrap()
    }

    /// Within 10⁻⁵ of the greatest number.
    #[track_caller]
    fn check(&self, found: &Tensor, what: &str) {
        assert_eq!(found.dims(), self.shape, "{what}: shape");
        let size = self.data.iter().fold(1.0f64, |size, x| size.max(x.abs()));
        assert_close(&found.to_f64_vec().unwrap(), &self.data, (0.0, 1e-5 * size), what);
    }
}

impl Case {
    pub(crate) fn float(&self, name: &str) -> f64 {
        self.args[name].as_f64().unwrap()
    }

    pub(crate) fn size(&self, name: &str) -> usize {
        self.args[name].as_u64().unwrap() as usize
    }

    pub(crate) fn sizes(&self, name: &str) -> Vec<usize> {
        self.args[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
    }

    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.args.get(name).map_or(default, |value| value.as_bool().unwrap())
    }
}

pub(crate) type Run = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// A module, if there is one, and the function of the case.
pub(crate) type Network = (Option<Rc<dyn Module>>, Run);

pub(crate) fn of_module<M: Module + 'static>(
    module: M,
    run: impl Fn(&M, &[Tensor]) -> Result<Tensor> + 'static,
) -> Network {
    let module = Rc::new(module);
    (Some(module.clone()), Box::new(move |x| run(&module, x)))
}

pub(crate) fn of_layer<M: nn::Layer + 'static>(module: M) -> Network {
    of_module(module, |module, x| nn::Layer::forward(module, &x[0]))
}

pub(crate) fn of_function(run: impl Fn(&[Tensor]) -> Result<Tensor> + 'static) -> Network {
    (None, Box::new(run))
}

fn check(group: &str, build: impl Fn(&Case, &Generator) -> Network) {
    check_in("networks", group, build);
}

/// Holds every case of a group in a file to its numbers.
pub(crate) fn check_in(file: &str, group: &str, build: impl Fn(&Case, &Generator) -> Network) {
    let all: Cases = fixture(file);
    let cases: Vec<&Case> = all.cases.iter().filter(|case| case.group == group).collect();
    assert!(cases.len() > 5);
    for case in cases {
        let what = format!("{} {:?}, training {}", case.kind, case.args, case.train);
        let (module, run) = build(case, &Generator::seed(0, &device()));
        if let Some(module) = &module {
            let state: StateDict =
                case.state.iter().map(|(name, value)| (name.clone(), value.tensor())).collect();
            let whole = |name: &str| name.ends_with("num_batches_tracked");
            let state: StateDict = state
                .into_iter()
                .map(|(name, value)| {
                    let dtype = if whole(&name) { DType::I32 } else { DType::F32 };
                    (name, value.to_dtype(dtype).unwrap())
                })
                .collect();
            module.load_state_dict(&state).unwrap_or_else(|error| panic!("{what}: {error}"));
            if case.train { module.train() } else { module.eval() }
        }
        let inputs: Vec<Tensor> = case.inputs.iter().map(|input| input.tensor().requires_grad()).collect();
        let out = run(&inputs).unwrap_or_else(|error| panic!("{what}: {error}"));
        case.output.check(&out, &what);
        out.mul(&case.cotangent.tensor()).unwrap().sum().backward().unwrap();
        for (k, (input, expected)) in inputs.iter().zip(&case.grads).enumerate() {
            let found = input.grad().unwrap_or_else(|| input.zeros_like());
            expected.check(&found, &format!("{what}: gradient of input {k}"));
        }
        let Some(module) = module else { continue };
        let parameters = module.named_parameters();
        assert_eq!(parameters.len(), case.parameters.len(), "{what}");
        for (name, parameter) in parameters {
            let found = parameter.grad().unwrap_or_else(|| parameter.zeros_like());
            case.parameters[&name].check(&found, &format!("{what}: gradient of {name}"));
        }
        let dict = module.state_dict();
        assert!(dict.keys().eq(case.state.keys()), "{what}: {:?}", dict.keys());
        for (name, expected) in &case.after {
            expected.check(&dict[name], &format!("{what}: {name} afterwards"));
        }
    }
}

pub(crate) fn made(shape: &[usize], seed: u64) -> Tensor {
    Tensor::randn(shape, &Generator::seed(seed, &device())).unwrap().to_dtype(DType::F64).unwrap()
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
    let error = result.unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{error}\nlacks {part}");
    }
}

#[test]
fn activations_are_pytorchs() {
    check("activations", |case, rng| {
        let number = |name: &str| case.args.get(name).map_or(0.0, |_| case.float(name));
        let (beta, threshold, alpha) = (number("beta"), number("threshold"), number("alpha"));
        let (slope, low, high) = (number("slope"), number("low"), number("high"));
        match case.kind.as_str() {
            "gelu" => of_layer(nn::Gelu),
            "gelu_tanh" => of_layer(nn::GeluTanh),
            "silu" => of_layer(nn::Silu),
            "softplus" => of_layer(nn::Softplus { beta, threshold }),
            "elu" => of_layer(nn::Elu { alpha }),
            "celu" => of_layer(nn::Celu { alpha }),
            "selu" => of_layer(nn::Selu),
            "leaky_relu" => of_layer(nn::LeakyRelu { negative_slope: slope }),
            "hardtanh" => of_layer(nn::Hardtanh { min_val: low, max_val: high }),
            "relu6" => of_function(|x| Ok(x[0].mul_scalar(4.0).relu6())),
            "hardsigmoid" => of_function(|x| Ok(x[0].mul_scalar(2.0).hardsigmoid())),
            "hardswish" => of_function(|x| Ok(x[0].mul_scalar(2.0).hardswish())),
            "mish" => of_layer(nn::Mish),
            "logsigmoid" => of_layer(nn::LogSigmoid),
            "glu" => of_layer(nn::Glu::new(1)),
            "softsign" => of_layer(nn::Softsign),
            "PReLU" => of_layer(nn::Prelu::new(case.size("n"), rng.device()).unwrap()),
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn activations_do_not_overflow_and_have_their_derivatives() {
    let device = device();
    let far = Tensor::new([-1e4f32, -200.0, 200.0, 1e4], &device).unwrap();
    type Activation = fn(&Tensor) -> Tensor;
    let all: Vec<(&str, Activation)> = vec![
        ("gelu_tanh", Tensor::gelu_tanh),
        ("softplus", |x| x.softplus_with(2.0, f64::INFINITY)),
        ("softplus(20)", |x| x.softplus()),
        ("logsigmoid", Tensor::logsigmoid),
        ("elu", |x| x.elu(1.5)),
        ("celu", |x| x.celu(0.5)),
        ("selu", Tensor::selu),
        ("leaky_relu", |x| x.leaky_relu(0.1)),
        ("hardswish", Tensor::hardswish),
        ("hardsigmoid", Tensor::hardsigmoid),
        ("mish", Tensor::mish),
        ("softsign", Tensor::softsign),
    ];
    for (name, function) in &all {
        let x = far.clone().requires_grad();
        let y = function(&x);
        y.sum().backward().unwrap();
        let finite = |t: &Tensor| t.to_f64_vec().unwrap().iter().all(|x| x.is_finite());
        assert!(finite(&y) && finite(&x.grad().unwrap()), "{name}: {y:?}, {:?}", x.grad());
        // Integers become floating-point numbers.
        assert!(function(&Tensor::new([1i32, 2], &device).unwrap()).dtype().is_float(), "{name}");
    }
    // softplus at its corner, where PyTorch's derivative is one half.
    let x = Tensor::new([0.0f32], &device).unwrap().requires_grad();
    x.softplus().sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [0.5]);
    if needs(&device, DType::F64) {
        for (name, function) in &all {
            gradcheck(|t| Ok(function(&t[0])), &[made(&[7], 3)]).unwrap_or_else(|e| panic!("{name}: {e}"));
            gradgradcheck(|t| Ok(function(&t[0])), &[made(&[5], 4)])
                .unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        gradgradcheck(|t| t[0].glu(0), &[made(&[4, 3], 5)]).unwrap();
        gradcheck(|t| t[0].prelu(&t[1]), &[made(&[2, 3], 6), made(&[3], 7)]).unwrap();
    }
    refused(far.reshape((1, 4)).unwrap().glu(0), &["glu", "odd"]);
    refused(far.prelu(&Tensor::ones([3], &device).unwrap()), &["prelu", "[3]", "[1]"]);
}

fn norm_config(case: &Case) -> BatchNormConfig {
    BatchNormConfig {
        eps: case.args.get("eps").map_or(1e-5, |eps| eps.as_f64().unwrap()),
        momentum: case.args.get("momentum").map_or(Some(0.1), Value::as_f64),
        affine: case.flag("affine", true),
        track_running_stats: case.flag("track", true),
        dtype: DType::F32,
    }
}

#[test]
fn norms_are_pytorchs() {
    check("norms", |case, rng| {
        let (config, d) = (norm_config(case), rng.device());
        let eps = case.args.get("eps").and_then(Value::as_f64);
        let affine = case.flag("affine", true);
        match case.kind.as_str() {
            "BatchNorm1d" => of_layer(nn::BatchNorm1d::with_config(case.size("c"), config, d).unwrap()),
            "BatchNorm2d" => of_layer(nn::BatchNorm2d::with_config(case.size("c"), config, d).unwrap()),
            "BatchNorm3d" => of_layer(nn::BatchNorm3d::with_config(case.size("c"), config, d).unwrap()),
            "InstanceNorm1d" => of_layer(nn::InstanceNorm1d::with_config(case.size("c"), config, d).unwrap()),
            "InstanceNorm2d" => of_layer(nn::InstanceNorm2d::with_config(case.size("c"), config, d).unwrap()),
            "LayerNorm" => {
                let config = nn::LayerNormConfig {
                    elementwise_affine: affine,
                    bias: case.flag("bias", true),
                    ..Default::default()
                };
                of_layer(nn::LayerNorm::with_config(case.sizes("shape"), config, d).unwrap())
            }
            "RMSNorm" => of_layer(nn::RmsNorm::with_config(case.sizes("shape"), eps, true, d).unwrap()),
            "GroupNorm" => of_layer(nn::GroupNorm::new(case.size("groups"), case.size("c"), d).unwrap()),
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn norms_have_their_derivatives_and_refuse_what_does_not_fit() {
    let device = device();
    if needs(&device, DType::F64) {
        let (x, w, b) = (made(&[3, 4], 1), made(&[4], 2), made(&[4], 3));
        let all = [x.clone(), w.clone(), b.clone()];
        gradgradcheck(|t| f::layer_norm(&t[0], [4], Some(&t[1]), Some(&t[2]), 1e-5), &all).unwrap();
        gradgradcheck(|t| f::rms_norm(&t[0], [4], Some(&t[1]), Some(1e-5)), &all[..2]).unwrap();
        gradgradcheck(|t| f::group_norm(&t[0], 2, Some(&t[1]), Some(&t[2]), 1e-5), &all).unwrap();
        let batch =
            |t: &[Tensor]| f::batch_norm(&t[0], None, None, Some(&t[1]), Some(&t[2]), true, 0.1, 1e-5);
        gradgradcheck(batch, &all).unwrap();
        // Long channels are summed for each sample first.
        gradgradcheck(batch, &[made(&[2, 3, 4, 5], 6), made(&[3], 7), made(&[3], 8)]).unwrap();
        let image = made(&[2, 4, 3], 4);
        gradcheck(|t| f::instance_norm(&t[0], None, None, None, None, true, 0.1, 1e-5), &[image]).unwrap();
    }
    let norm = nn::BatchNorm2d::new(3, &device).unwrap();
    let one = Tensor::ones([1, 3, 1, 1], &device).unwrap();
    refused(norm.forward(&one), &["BatchNorm2d", "1 value for each channel", "eval"]);
    assert_eq!(norm.running_mean().unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
    assert_eq!(norm.state_dict()["num_batches_tracked"].to_f64_vec().unwrap(), [0.0]);
    refused(norm.forward(&Tensor::ones([2, 4, 1, 1], &device).unwrap()), &["BatchNorm2d", "3 channels"]);
    refused(norm.forward(&Tensor::ones([2, 3], &device).unwrap()), &["BatchNorm2d", "4 axes"]);
    norm.eval();
    assert_eq!(norm.forward(&one).unwrap().dims(), [1, 3, 1, 1]);
    let x = Tensor::ones([2, 6], &device).unwrap();
    refused(f::layer_norm(&x, [5], None, None, 1e-5), &["layer_norm", "[5]", "[2, 6]"]);
    refused(f::group_norm(&x, 4, None, None, 1e-5), &["group_norm", "4 groups"]);
    refused(nn::GroupNorm::new(4, 6, &device), &["GroupNorm", "4 groups"]);
    refused(f::rms_norm(&x, [6], Some(&Tensor::ones([3], &device).unwrap()), None), &["rms_norm", "[3]"]);
    refused(nn::BatchNorm1d::new(0, &device), &["BatchNorm", "channels"]);
    let config = BatchNormConfig { momentum: Some(2.0), ..Default::default() };
    refused(nn::BatchNorm1d::with_config(2, config, &device), &["momentum"]);
}

#[test]
fn running_statistics_take_no_part_in_gradients_and_move_with_the_module() {
    let device = device();
    let mut norm = nn::BatchNorm1d::new(2, &device).unwrap();
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 6.0]], &device).unwrap().requires_grad();
    let _ = norm.forward(&x).unwrap();
    let mean = norm.running_mean().unwrap();
    assert!(!mean.is_tracked());
    assert_close(&mean.to_f64_vec().unwrap(), &[0.2, 0.4], (1e-6, 0.0), "running mean");
    assert_close(&norm.running_var().unwrap().to_f64_vec().unwrap(), &[1.1, 1.7], (1e-6, 0.0), "variance");
    assert_eq!(norm.named_buffers().len(), 3);
    let reference = reference_device();
    norm.to(&reference).unwrap();
    assert_eq!(norm.running_mean().unwrap().device(), reference);
}

/// As GPUs often are: without f64 and i64.
#[test]
fn layers_do_without_wide_dtypes() {
    let (device, _) = taper_testing::reference_with(&[DType::F32, DType::I32, DType::U32, DType::Bool]);
    let rng = Generator::seed(1, &device);
    let config = BatchNormConfig { momentum: None, ..Default::default() };
    let norm = nn::BatchNorm1d::with_config(3, config, &device).unwrap();
    let x = Tensor::randn([4, 3, 5], &rng).unwrap().requires_grad();
    let y = norm.forward(&x).unwrap();
    let y = f::adaptive_avg_pool1d(&f::interpolate_nearest(&y, &[7]).unwrap(), 3).unwrap();
    let y = f::rotary_embedding(&y.narrow(2, 0, 2).unwrap(), 0, 1e4).unwrap();
    let greatest = f::adaptive_max_pool1d(&x, 3).unwrap().mean();
    y.add(&greatest).unwrap().powi(2).sum().backward().unwrap();
    assert!(x.grad().unwrap().to_f64_vec().unwrap().iter().all(|g| g.is_finite()));
    assert_eq!(norm.state_dict()["num_batches_tracked"].dtype(), DType::I32);
    let table = nn::Embedding::with_padding(4, 6, 0, &rng).unwrap();
    let words = table.forward(&Tensor::new([[0i32, 1, 3]], &device).unwrap()).unwrap();
    let attention = nn::MultiheadAttention::new(6, 2, &rng).unwrap();
    let masks = nn::AttentionMasks { is_causal: true, ..Default::default() };
    let seen = attention.forward(&words, &words, &words, masks).unwrap();
    let (out, _) = nn::Gru::new(6, 2, &rng).unwrap().forward(&seen, None).unwrap();
    out.sum().backward().unwrap();
    assert!(table.weight.grad().unwrap().to_f64_vec().unwrap().iter().all(|g| g.is_finite()));
}

#[test]
fn a_summary_leaves_running_statistics_as_they_are() {
    let rng = Generator::seed(1, &device());
    let model = nn::Sequential::new()
        .add(nn::Conv2d::new(1, 2, 3, &rng).unwrap())
        .add(nn::BatchNorm2d::new(2, rng.device()).unwrap())
        .add(nn::Flatten::default())
        .add(nn::Unflatten::new(1, [2, 4]))
        .add(nn::TransformerEncoderLayer::new(4, 2, &rng).unwrap());
    let table = nn::summary(&model, [3, 1, 4, 4]).unwrap();
    assert_eq!(table.rows[1].parameters, 4);
    let of_layers: usize = table.rows.iter().map(|row| row.parameters).sum();
    assert_eq!((of_layers, table.elsewhere), (table.parameters, 0));
    assert_eq!(model.state_dict()["1.running_var"].to_f64_vec().unwrap(), [1.0; 2]);
    assert_eq!(model.state_dict()["1.num_batches_tracked"].to_f64_vec().unwrap(), [0.0]);
}

/// PyTorch's initial values: by their bounds, since the streams of random numbers differ.
#[test]
fn layers_begin_as_pytorchs_do() {
    let rng = Generator::seed(1, &device());
    let bounded = |tensor: &Tensor, bound: f64| {
        let values = tensor.to_f64_vec().unwrap();
        let greatest = values.iter().fold(0.0f64, |greatest, x| greatest.max(x.abs()));
        assert!(greatest <= bound && greatest > 0.8 * bound, "{greatest} of {bound}");
    };
    let attention = nn::MultiheadAttention::new(8, 2, &rng).unwrap();
    let nn::InProjection::Joint(weight) = &attention.in_proj else { panic!("one weight") };
    bounded(weight, (6.0f64 / 32.0).sqrt());
    bounded(&attention.out_proj.weight, (1.0f64 / 8.0).sqrt());
    assert_eq!(attention.out_proj.bias.as_ref().unwrap().to_f64_vec().unwrap(), [0.0; 8]);
    assert_eq!(attention.in_proj_bias.as_ref().unwrap().to_f64_vec().unwrap(), [0.0; 24]);
    for (name, parameter) in nn::Lstm::new(3, 16, &rng).unwrap().named_parameters() {
        assert!(name.ends_with("_l0"), "{name}");
        bounded(&parameter, 0.25);
    }
    let norm = nn::BatchNorm1d::new(2, rng.device()).unwrap();
    assert_eq!(norm.weight().unwrap().to_f64_vec().unwrap(), [1.0; 2]);
    assert_eq!(norm.bias().unwrap().to_f64_vec().unwrap(), [0.0; 2]);
    assert_eq!(nn::Prelu::new(1, rng.device()).unwrap().weight.to_f64_vec().unwrap(), [0.25]);
}

/// Whatever the way that a group's size and gradients take: within a row of the device and beyond it, few
/// elements of a channel and many.
#[test]
fn group_norms_of_every_size_are_by_definition() {
    for device in [device(), reference_device()] {
        for (shape, groups) in [
            (vec![3, 4], 2),
            (vec![2, 6, 3], 3),
            (vec![2, 6, 5], 1),
            (vec![2, 4, 4, 4], 4),
            (vec![2, 4, 5, 4], 2),
            (vec![1, 6, 17, 3], 1),
            (vec![2, 4, 0], 2),
        ] {
            let numel: usize = shape.iter().product();
            let (channels, along) = (shape[1], shape[1] / groups);
            let inner: usize = shape[2..].iter().product();
            let values: Vec<f64> = (0..numel).map(|i| ((i * 37 % 101) as f64 - 40.0) / 16.0).collect();
            let of_channel = |seed: usize| -> Vec<f64> {
                (0..channels).map(|c| ((c * 5 + seed) % 7) as f64 / 4.0 - 0.5).collect()
            };
            let (weights, biases) = (of_channel(1), of_channel(4));
            let mut expected = vec![0.0; numel];
            let size = (along * inner).max(1);
            for (found, row) in expected.chunks_mut(size).zip(values.chunks(size)) {
                let mean = row.iter().sum::<f64>() / size as f64;
                let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / size as f64;
                let scale = 1.0 / (variance + 1e-5).sqrt();
                found.iter_mut().zip(row).for_each(|(found, v)| *found = (v - mean) * scale);
            }
            for (i, value) in expected.iter_mut().enumerate() {
                let c = i / inner % channels;
                *value = *value * weights[c] + biases[c];
            }
            let made = |values: &[f64], shape: &[usize]| {
                let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                Tensor::from_vec(values, shape, &device).unwrap()
            };
            let (x, w, b) = (made(&values, &shape), made(&weights, &[channels]), made(&biases, &[channels]));
            for x in [x.clone(), x.requires_grad()] {
                let y = f::group_norm(&x, groups, Some(&w), Some(&b), 1e-5).unwrap();
                let tracked = x.is_tracked();
                assert_close(
                    &y.to_f64_vec().unwrap(),
                    &expected,
                    (2e-5, 2e-5),
                    &format!("{shape:?} {groups} {tracked}"),
                );
            }
        }
    }
}

/// A norm of rows is one kernel, forward.
#[test]
fn norms_of_rows_are_one_kernel() {
    let (device, backend) = taper_testing::reference_backend();
    let x = Tensor::from_vec((0..32).map(|i| i as f32).collect(), [4, 8], &device).unwrap();
    let weight = Tensor::ones([8], &device).unwrap().into_cell(true).unwrap();
    let bias = Tensor::zeros([8], &device).unwrap().into_cell(true).unwrap();
    taper::eval_all(&[&x, &weight, &bias]).unwrap();
    let kernels = |run: &dyn Fn() -> Result<Tensor>| -> Vec<(&'static str, usize)> {
        backend.kernels.lock().unwrap().clear();
        run().unwrap().eval().unwrap();
        backend.kernels.lock().unwrap().drain().collect()
    };
    let layer = kernels(&|| no_grad(|| f::layer_norm(&x, [8], Some(&weight), Some(&bias), 1e-5)));
    assert_eq!(layer, [("rows", 1)]);
    let rms = kernels(&|| no_grad(|| f::rms_norm(&x, [8], Some(&weight), None)));
    assert_eq!(rms, [("rows", 1)]);
    // Rows of several axes, also where weights are one for each channel.
    let deep = x.reshape([4, 2, 4]).unwrap();
    let (of_two, with) = (weight.reshape([2, 4]).unwrap(), bias.reshape([2, 4]).unwrap());
    let two = kernels(&|| no_grad(|| f::layer_norm(&deep, [2, 4], Some(&of_two), Some(&with), 1e-5)));
    assert_eq!(two, [("rows", 1)]);
    let channels = |of: &Tensor, count: usize| of.narrow(0, 0, count).unwrap();
    let (w, b) = (channels(&weight, 4), channels(&bias, 4));
    let images = x.reshape([2, 4, 4]).unwrap();
    let group = kernels(&|| no_grad(|| f::group_norm(&images, 2, Some(&w), Some(&b), 1e-5)));
    assert_eq!(group, [("rows", 1)]);
    let instance =
        kernels(&|| no_grad(|| f::instance_norm(&images, None, None, Some(&w), Some(&b), true, 0.1, 1e-5)));
    assert_eq!(instance, [("rows", 1)]);
    // With gradients wanted, what the weight's needs is kept: the rows, and one pass over them with the
    // weight and bias.
    let tracked = kernels(&|| f::layer_norm(&x, [8], Some(&weight), Some(&bias), 1e-5));
    assert!(tracked.iter().map(|kernel| kernel.1).sum::<usize>() <= 2, "{tracked:?}");
    // Two sums of the same rows read them once.
    backend.kernels.lock().unwrap().clear();
    let sums = [x.sum_axis(1, false).unwrap(), x.mul(&x).unwrap().amax(1, false).unwrap()];
    taper::eval_all(&[&sums[0], &sums[1]]).unwrap();
    let both: Vec<_> = backend.kernels.lock().unwrap().drain().collect();
    assert_eq!(both, [("rows", 1)]);
}

#[test]
fn shapes_are_pytorchs() {
    check("shapes", |case, _| {
        let size = || case.sizes("size");
        let both = || [case.sizes("size")[0], case.sizes("size")[1]];
        match case.kind.as_str() {
            "pixel_shuffle" => of_layer(nn::PixelShuffle(case.size("r"))),
            "pixel_unshuffle" => of_layer(nn::PixelUnshuffle(case.size("r"))),
            "pad" => {
                let sides: Vec<(usize, usize)> = serde_json::from_value(case.args["sides"].clone()).unwrap();
                let sides = [sides[0], sides[1]];
                match case.args["mode"].as_str().unwrap() {
                    "reflect" => of_layer(nn::ReflectionPad2d::new(sides)),
                    "replicate" => of_layer(nn::ReplicationPad2d::new(sides)),
                    "circular" => of_layer(nn::CircularPad2d::new(sides)),
                    _ => of_layer(nn::ZeroPad2d::new(sides)),
                }
            }
            "interpolate" => of_layer(nn::Upsample::to_size(size())),
            "adaptive_avg_pool1d" => of_layer(nn::AdaptiveAvgPool1d::new(size()[0])),
            "adaptive_avg_pool2d" => of_layer(nn::AdaptiveAvgPool2d::new(both())),
            "adaptive_max_pool2d" => of_layer(nn::AdaptiveMaxPool2d::new(both())),
            "adaptive_max_pool3d" => of_layer(nn::AdaptiveMaxPool3d::new([size()[0], size()[1], size()[2]])),
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let device = device();
    let x = Tensor::ones([1, 3, 4, 5], &device).unwrap();
    refused(f::pixel_shuffle(&x, 2), &["pixel_shuffle", "3 channels"]);
    refused(f::pixel_unshuffle(&x, 2), &["pixel_unshuffle", "height and width"]);
    refused(nn::ReflectionPad2d::new(4).forward(&x), &["ReflectionPad2d", "mirror"]);
    refused(nn::CircularPad1d::new(6).forward(&x), &["CircularPad1d", "axis 3"]);
    refused(f::pad(&x, &[(1, 1); 5], f::PadMode::Reflect), &["pad", "5 pairs"]);
    refused(f::interpolate_nearest(&x, &[2; 3]), &["interpolate", "one for each axis"]);
    refused(f::adaptive_avg_pool2d(&x, 0), &["adaptive_avg_pool2d"]);
    refused(f::adaptive_max_pool3d(&x.select(0, 0).unwrap(), 1), &["adaptive_max_pool3d", "5 axes"]);
    refused(nn::Unflatten::new(1, [2, 2]).forward(&x), &["unflatten", "[2, 2]"]);
    assert_eq!(nn::Upsample::new(2).forward(&x).unwrap().dims(), [1, 3, 8, 10]);
    assert_eq!(nn::Unflatten::new(-1, [5, 1]).forward(&x).unwrap().dims(), [1, 3, 4, 5, 1]);
    if needs(&device, DType::F64) {
        let x = made(&[1, 2, 3, 4], 1);
        for mode in
            [f::PadMode::Reflect, f::PadMode::Replicate, f::PadMode::Circular, f::PadMode::Constant(2.0)]
        {
            gradcheck(|t| f::pad(&t[0], &[(1, 2), (2, 1)], mode), std::slice::from_ref(&x)).unwrap();
        }
        gradcheck(|t| f::adaptive_avg_pool2d(&t[0], [2, 3]), std::slice::from_ref(&x)).unwrap();
        gradcheck(|t| f::adaptive_max_pool2d(&t[0], [2, 3]), std::slice::from_ref(&x)).unwrap();
        gradcheck(|t| f::interpolate_nearest(&t[0], &[6, 5]), &[x]).unwrap();
    }
}

#[test]
fn channels_are_dropped_whole_and_padding_is_not_trained() {
    let rng = Generator::seed(3, &device());
    let layer = nn::Dropout2d::new(0.5, &rng).unwrap();
    let x = Tensor::ones([8, 16, 2, 2], rng.device()).unwrap();
    let y = layer.forward(&x).unwrap().to_vec::<f32>().unwrap();
    let channels: Vec<&[f32]> = y.chunks(4).collect();
    assert!(channels.iter().all(|c| c == &[0.0; 4] || c == &[2.0; 4]));
    let dropped = channels.iter().filter(|c| c[0] == 0.0).count();
    assert!((32..96).contains(&dropped), "{dropped}");
    layer.eval();
    assert_eq!(layer.forward(&x).unwrap().to_vec::<f32>().unwrap(), [1.0; 512]);
    refused(layer.forward(&Tensor::ones([2, 2], rng.device()).unwrap()), &["dropout2d", "4 axes"]);

    let table = nn::Embedding::with_padding(4, 2, 1, &rng).unwrap();
    let indices = Tensor::new([1i32, 2, 1, 3], rng.device()).unwrap();
    let out = table.forward(&indices).unwrap();
    assert_eq!(out.select(0, 0).unwrap().to_vec::<f32>().unwrap(), [0.0; 2]);
    out.sum().backward().unwrap();
    let grad = table.weight.grad().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(grad, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    refused(nn::Embedding::with_padding(4, 2, 4, &rng), &["Embedding", "padding_idx 4"]);
}

#[test]
fn attention_is_pytorchs() {
    check("attention", |case, rng| {
        let transformer = nn::TransformerConfig {
            dim_feedforward: 6,
            dropout: 0.0,
            norm_first: case.flag("norm_first", false),
            ..Default::default()
        };
        let later = nn::AttentionMasks { is_causal: true, ..Default::default() };
        match case.kind.as_str() {
            "sdpa" => {
                let mask = case.args.get("mask").map(|mask| -> Tensor {
                    let bits: Vec<bool> =
                        mask.as_array().unwrap().iter().map(|bit| bit.as_u64() == Some(1)).collect();
                    Tensor::from_vec(bits, [3, 5], &device()).unwrap()
                });
                let scale = case.args.get("scale").and_then(Value::as_f64);
                let (is_causal, enable_gqa) = (case.flag("causal", false), case.flag("gqa", false));
                of_function(move |x| {
                    let mask = mask.as_ref().or(x.get(3));
                    let options = f::AttentionOptions { mask, is_causal, scale, enable_gqa, dropout: None };
                    f::scaled_dot_product_attention(&x[0], &x[1], &x[2], options)
                })
            }
            "MultiheadAttention" => {
                let module = nn::MultiheadAttention::new(case.size("e"), case.size("h"), rng).unwrap();
                of_module(module, |module, x| {
                    let (out, weights) =
                        module.forward_with_weights(&x[0], &x[1], &x[2], Default::default())?;
                    Tensor::concat(&[out.flatten_all(), weights.flatten_all()], 0)
                })
            }
            "MultiheadAttentionMasked" => {
                let config = nn::MultiheadAttentionConfig { batch_first: true, ..Default::default() };
                let module = nn::MultiheadAttention::with_config(4, 2, config, rng).unwrap();
                of_module(module, |module, x| {
                    let padding = Tensor::new([[false, false, true], [false; 3]], &device())?;
                    let masks = nn::AttentionMasks {
                        key_padding_mask: Some(&padding),
                        is_causal: true,
                        ..Default::default()
                    };
                    let (out, weights) = module.forward_with_weights(&x[0], &x[0], &x[0], masks)?;
                    Tensor::concat(&[out.flatten_all(), weights.flatten_all()], 0)
                })
            }
            "TransformerEncoderLayer" => {
                let config = nn::TransformerConfig {
                    activation: nn::TransformerActivation::Gelu,
                    batch_first: true,
                    ..transformer
                };
                of_layer(nn::TransformerEncoderLayer::with_config(4, 2, config, rng).unwrap())
            }
            "TransformerDecoderLayer" => {
                let module = nn::TransformerDecoderLayer::with_config(4, 2, transformer, rng).unwrap();
                of_module(module, move |module, x| module.forward(&x[0], &x[1], later, Default::default()))
            }
            "TransformerEncoder" => {
                let mut module = nn::TransformerEncoder::new(2, 4, 2, transformer, rng).unwrap();
                module.norm = Some(nn::LayerNorm::new([4], rng.device()).unwrap());
                of_layer(module)
            }
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn a_query_that_sees_nothing_gives_zeros_without_a_gradient() {
    let device = device();
    let rng = Generator::seed(5, &device);
    let seen = Tensor::new([[true, true, false], [false; 3], [true, false, true]], &device).unwrap();
    let added = seen.where_cond(
        &Tensor::new(0.0f32, &device).unwrap(),
        &Tensor::new(f32::NEG_INFINITY, &device).unwrap(),
    );
    for mask in [seen, added.unwrap()] {
        let make = || Tensor::randn([2, 3, 4], &rng).unwrap().requires_grad();
        let (q, k, v) = (make(), make(), make());
        let options = f::AttentionOptions { mask: Some(&mask), ..Default::default() };
        let y = f::scaled_dot_product_attention(&q, &k, &v, options).unwrap();
        assert_eq!(y.select(1, 1).unwrap().to_vec::<f32>().unwrap(), [0.0; 8]);
        y.powi(2).sum().backward().unwrap();
        for leaf in [&q, &k, &v] {
            assert!(leaf.grad().unwrap().to_vec::<f32>().unwrap().iter().all(|g| g.is_finite()));
        }
        assert_eq!(q.grad().unwrap().select(1, 1).unwrap().to_vec::<f32>().unwrap(), [0.0; 8]);
    }
    if needs(&device, DType::F64) {
        let all = [made(&[2, 3, 2], 1), made(&[2, 4, 2], 2), made(&[2, 4, 3], 3)];
        let run = |t: &[Tensor], is_causal: bool| {
            let options = f::AttentionOptions { is_causal, ..Default::default() };
            f::scaled_dot_product_attention(&t[0], &t[1], &t[2], options)
        };
        gradcheck(|t| run(t, true), &all).unwrap();
        gradgradcheck(|t| run(t, false), &all).unwrap();
        gradcheck(|t| f::rotary_embedding(&t[0], 3, 1e4), &[made(&[2, 3, 4], 4)]).unwrap();
    }
}

#[test]
fn what_does_not_fit_attention_is_refused() {
    let device = device();
    let rng = Generator::seed(5, &device);
    let x = |shape: &[usize]| Tensor::ones(shape, &device).unwrap();
    let run = |q: &Tensor, k: &Tensor, v: &Tensor, options| f::scaled_dot_product_attention(q, k, v, options);
    let options = f::AttentionOptions::default();
    refused(
        run(&x(&[2, 3, 4]), &x(&[2, 5, 3]), &x(&[2, 5, 3]), options),
        &["scaled_dot_product", "same features"],
    );
    let mask = Tensor::ones([4, 4], (DType::Bool, &device)).unwrap();
    let masked = f::AttentionOptions { mask: Some(&mask), ..options };
    refused(run(&x(&[3, 4]), &x(&[5, 4]), &x(&[5, 4]), masked), &["mask of shape [4, 4]", "[3, 5]"]);
    let both = f::AttentionOptions { is_causal: true, ..masked };
    refused(run(&x(&[4, 4]), &x(&[4, 4]), &x(&[4, 4]), both), &["is_causal"]);
    let gqa = f::AttentionOptions { enable_gqa: true, ..options };
    refused(run(&x(&[4, 3, 2]), &x(&[3, 3, 2]), &x(&[3, 3, 2]), gqa), &["heads", "divide"]);
    refused(nn::MultiheadAttention::new(6, 4, &rng), &["MultiheadAttention", "4 heads", "6 features"]);
    let config = nn::MultiheadAttentionConfig { kdim: Some(0), ..Default::default() };
    refused(nn::MultiheadAttention::with_config(4, 2, config, &rng), &["MultiheadAttention", "Some(0)"]);
    let module = nn::MultiheadAttention::new(4, 2, &rng).unwrap();
    refused(
        module.forward(&x(&[3, 2, 5]), &x(&[3, 2, 5]), &x(&[3, 2, 5]), Default::default()),
        &["4 features"],
    );
    let padding = Tensor::ones([3, 2], (DType::Bool, &device)).unwrap();
    let masks = nn::AttentionMasks { key_padding_mask: Some(&padding), ..Default::default() };
    let y = x(&[3, 2, 4]);
    refused(module.forward(&y, &y, &y, masks), &["key_padding_mask", "[2, 3]"]);
    refused(f::sinusoidal_positions(3, 5, &device), &["sinusoidal_positions", "even"]);
    refused(f::rotary_embedding(&x(&[3, 5]), 0, 1e4), &["rotary_embedding", "even"]);
    let config = nn::TransformerConfig { dropout: 1.5, ..Default::default() };
    refused(nn::TransformerEncoderLayer::with_config(4, 2, config, &rng), &["Dropout", "1.5"]);
}

/// A sequence generated piece by piece is the sequence as a whole under a causal mask; positions turned by
/// pieces are those of the whole.
#[test]
fn a_cache_of_keys_and_values_gives_what_the_whole_gives() {
    let device = device();
    let rng = Generator::seed(5, &device);
    let config = nn::TransformerConfig { dim_feedforward: 8, batch_first: true, ..Default::default() };
    let layer = nn::TransformerEncoderLayer::with_config(8, 2, config, &rng).unwrap();
    layer.eval();
    let x = Tensor::randn([2, 6, 8], &rng).unwrap();
    let masks = nn::AttentionMasks { is_causal: true, ..Default::default() };
    let whole = layer.forward_masked(&x, masks).unwrap().to_f64_vec().unwrap();
    let mut cache = nn::KeyValueCache::new();
    let mut parts = Vec::new();
    for (start, count) in [(0, 3), (3, 1), (4, 2)] {
        assert_eq!(cache.len(), start);
        parts.push(layer.forward_cached(&x.narrow(1, start, count).unwrap(), &mut cache).unwrap());
    }
    assert_eq!(cache.len(), 6);
    let found = Tensor::concat(&parts, 1).unwrap().to_f64_vec().unwrap();
    assert_close(&found, &whole, (1e-5, 1e-5), "by pieces");
    refused(layer.forward_cached(&Tensor::ones([3, 1, 8], &device).unwrap(), &mut cache), &["another batch"]);
    cache.clear();
    assert!(cache.is_empty());
    // A stack has a cache for each layer; what fails leaves them as they are.
    let stack = nn::TransformerEncoder::new(2, 8, 2, config, &rng).unwrap();
    stack.eval();
    let whole = stack.forward_masked(&x, masks).unwrap().to_f64_vec().unwrap();
    let mut caches = vec![nn::KeyValueCache::new(); 2];
    let first = stack.forward_cached(&x.narrow(1, 0, 4).unwrap(), &mut caches).unwrap();
    refused(
        stack.forward_cached(&Tensor::ones([3, 1, 8], &device).unwrap(), &mut caches),
        &["another batch"],
    );
    refused(stack.forward_cached(&x, &mut caches[..1]), &["1 caches for 2 layers"]);
    let second = stack.forward_cached(&x.narrow(1, 4, 2).unwrap(), &mut caches).unwrap();
    let found = Tensor::concat(&[first, second], 1).unwrap().to_f64_vec().unwrap();
    assert_close(&found, &whole, (1e-5, 1e-5), "a stack by pieces");

    let turned = f::rotary_embedding(&x, 0, 1e4).unwrap().narrow(1, 2, 4).unwrap();
    let later = f::rotary_embedding(&x.narrow(1, 2, 4).unwrap(), 2, 1e4).unwrap();
    assert_close(&later.to_f64_vec().unwrap(), &turned.to_f64_vec().unwrap(), (1e-5, 1e-6), "rotary");
    // Turning keeps lengths, and position 0 as it is.
    let squares = |t: &Tensor| t.powi(2).sum_axis(-1, false).unwrap().to_f64_vec().unwrap();
    assert_close(&squares(&turned), &squares(&x.narrow(1, 2, 4).unwrap()), (1e-5, 0.0), "lengths");
    let table = f::sinusoidal_positions(3, 4, &device).unwrap().to_f64_vec().unwrap();
    let expected: Vec<f64> = (0..3)
        .flat_map(|p| {
            [1.0, 0.01].into_iter().flat_map(move |rate| [(p as f64 * rate).sin(), (p as f64 * rate).cos()])
        })
        .collect();
    assert_close(&table, &expected, (1e-6, 1e-7), "sines");
}

#[test]
fn recurrent_layers_are_pytorchs() {
    check("recurrent", |case, rng| {
        let config = nn::RnnConfig {
            num_layers: case.args.get("layers").map_or(1, |n| n.as_u64().unwrap() as usize),
            bias: case.flag("bias", true),
            batch_first: case.flag("batch_first", false),
            bidirectional: case.flag("bidirectional", false),
            ..Default::default()
        };
        let joined = |parts: &[&Tensor]| {
            Tensor::concat(&parts.iter().map(|part| part.flatten_all()).collect::<Vec<_>>(), 0)
        };
        match case.kind.as_str() {
            "RNN" => {
                let module = match case.flag("relu", false) {
                    true => nn::Rnn::with_relu(3, 4, config, rng),
                    false => nn::Rnn::with_config(3, 4, config, rng),
                };
                of_module(module.unwrap(), move |module, x| {
                    let (out, hidden) = module.forward(&x[0], x.get(1))?;
                    joined(&[&out, &hidden])
                })
            }
            "GRU" => of_module(nn::Gru::with_config(3, 4, config, rng).unwrap(), move |module, x| {
                let (out, hidden) = module.forward(&x[0], x.get(1))?;
                joined(&[&out, &hidden])
            }),
            "LSTM" => of_module(nn::Lstm::with_config(3, 4, config, rng).unwrap(), move |module, x| {
                let (out, (hidden, cell)) = module.forward(&x[0], x.get(1).zip(x.get(2)))?;
                joined(&[&out, &hidden, &cell])
            }),
            "RNNCell" => {
                of_module(nn::RnnCell::new(3, 4, rng).unwrap(), |module, x| module.forward(&x[0], None))
            }
            "GRUCell" => {
                of_module(nn::GruCell::new(3, 4, rng).unwrap(), |module, x| module.forward(&x[0], None))
            }
            "LSTMCell" => of_module(nn::LstmCell::new(3, 4, rng).unwrap(), move |module, x| {
                let (hidden, cell) = module.forward(&x[0], None)?;
                joined(&[&hidden, &cell])
            }),
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn what_does_not_fit_a_recurrent_layer_is_refused() {
    let device = device();
    let rng = Generator::seed(5, &device);
    let lstm = nn::Lstm::new(3, 4, &rng).unwrap();
    let x = |shape: &[usize]| Tensor::ones(shape, &device).unwrap();
    refused(lstm.forward(&x(&[5, 2, 4]), None), &["LSTM", "3 features"]);
    refused(lstm.forward(&x(&[0, 2, 3]), None), &["LSTM", "no steps"]);
    let state = x(&[1, 3, 4]);
    refused(lstm.forward(&x(&[5, 2, 3]), Some((&state, &state))), &["LSTM", "[1, 2, 4]"]);
    refused(nn::Gru::new(0, 4, &rng), &["GRU", "0 inputs"]);
    refused(nn::GruCell::new(3, 4, &rng).unwrap().forward(&x(&[2, 2]), None), &["GRU", "[N, 3]"]);
    let config = nn::RnnConfig { num_layers: 0, ..Default::default() };
    refused(nn::Rnn::with_config(3, 4, config, &rng), &["RNN", "no layers"]);
    // Dropout is between layers, and not after the last one.
    let config = nn::RnnConfig { dropout: 0.5, ..Default::default() };
    let single = nn::Rnn::with_config(3, 4, config, &rng).unwrap();
    let (first, _) = single.forward(&x(&[2, 1, 3]), None).unwrap();
    let (second, _) = single.forward(&x(&[2, 1, 3]), None).unwrap();
    assert!(first.equal(&second).unwrap());
    let deep = nn::Rnn::with_config(3, 64, nn::RnnConfig { num_layers: 2, ..config }, &rng).unwrap();
    let run = || deep.forward(&x(&[2, 1, 3]), None).unwrap().0;
    assert!(!run().equal(&run()).unwrap());
    deep.eval();
    assert!(run().equal(&run()).unwrap());
}

#[test]
fn losses_and_distances_are_pytorchs() {
    check("losses", |case, rng| {
        let number = |name: &str| case.args.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        let (margin, beta, delta, p) = (number("margin"), number("beta"), number("delta"), number("p"));
        let axis = number("axis") as isize;
        let (swap, log_target) = (case.flag("swap", false), case.flag("log_target", false));
        let word = case.args.get("reduction").and_then(Value::as_str).unwrap_or("mean").to_string();
        let reduction = match word.as_str() {
            "sum" => nn::Reduction::Sum,
            "none" => nn::Reduction::None,
            _ => nn::Reduction::Mean,
        };
        let sign = Tensor::new([1.0f32, -1.0, 1.0, -1.0], rng.device()).unwrap();
        match case.kind.as_str() {
            "smooth_l1" => of_function(move |x| nn::SmoothL1Loss { beta, reduction }.forward(&x[0], &x[1])),
            "huber" => of_function(move |x| nn::HuberLoss { delta, reduction }.forward(&x[0], &x[1])),
            "bce" => of_function(move |x| nn::BceLoss { reduction, weight: None }.forward(&x[0], &x[1])),
            "bce_logits" => {
                let weight: Vec<f64> = serde_json::from_value(case.args["pos_weight"].clone()).unwrap();
                let weight = of(&weight, &[3], DType::F32, rng.device()).unwrap();
                of_function(move |x| {
                    nn::BceWithLogitsLoss {
                        reduction,
                        pos_weight: Some(weight.clone()),
                        ..Default::default()
                    }
                    .forward(&x[0], &x[1])
                })
            }
            "kl_div" => of_function(move |x| {
                nn::KlDivLoss { reduction, log_target, batch_mean: word == "batchmean" }.forward(&x[0], &x[1])
            }),
            "cosine_embedding" => of_function(move |x| {
                nn::CosineEmbeddingLoss { margin, reduction }.forward(&x[0], &x[1], &sign)
            }),
            "margin_ranking" => {
                of_function(move |x| nn::MarginRankingLoss { margin, reduction }.forward(&x[0], &x[1], &sign))
            }
            "triplet_margin" => of_function(move |x| {
                let loss = nn::TripletMarginLoss { margin, swap, reduction, ..Default::default() };
                loss.forward(&x[0], &x[1], &x[2])
            }),
            "cosine_similarity" => of_function(move |x| f::cosine_similarity(&x[0], &x[1], axis, 1e-8)),
            "normalize" => of_function(move |x| f::normalize(&x[0], p, axis, 1e-12)),
            "pairwise_distance" => of_function(move |x| f::pairwise_distance(&x[0], &x[1], p, 1e-6)),
            other => panic!("the fixture has {other}, which this test does not know"),
        }
    });
}

#[test]
fn losses_at_their_edges() {
    let device = device();
    // Probabilities of 0 and 1: logarithms are clamped to −100, derivatives are finite.
    let p = Tensor::new([0.0f32, 1.0, 0.0, 1.0], &device).unwrap().requires_grad();
    let y = Tensor::new([0.0f32, 1.0, 1.0, 0.0], &device).unwrap();
    let losses = nn::BceLoss { reduction: nn::Reduction::None, weight: None }.forward(&p, &y).unwrap();
    assert_eq!(losses.to_vec::<f32>().unwrap(), [0.0, 0.0, 100.0, 100.0]);
    losses.sum().backward().unwrap();
    let grad = p.grad().unwrap().to_f64_vec().unwrap();
    assert_close(&grad, &[0.0, 0.0, -1e12, 1e12], (1e-6, 0.0), "gradient of bce");
    // Vectors of zeros have no direction, and no infinite gradients.
    let zero = Tensor::zeros([2, 3], &device).unwrap().requires_grad();
    let one = Tensor::ones([2, 3], &device).unwrap();
    for p in [1.0, 1.5, 2.0, f64::INFINITY] {
        f::normalize(&zero, p, 1, 1e-12).unwrap().sum().backward().unwrap();
    }
    f::cosine_similarity(&zero, &one, 1, 1e-8).unwrap().sum().backward().unwrap();
    nn::CosineEmbeddingLoss::default()
        .forward(&zero, &one, &Tensor::ones([2], &device).unwrap())
        .unwrap()
        .backward()
        .unwrap();
    assert!(zero.grad().unwrap().to_f64_vec().unwrap().iter().all(|g| g.is_finite()));
    // Where a parabola meets its lines, at its bottom, and at infinity, with a bend that the dtype takes for
    // 0 or infinity too.
    for (knee, dtype) in [
        (1.0, DType::F32),
        (0.5, DType::F32),
        (1e-60, DType::F32),
        (1e60, DType::F32),
        (0.5, DType::F16),
        (1e-6, DType::F16),
        (1e6, DType::F16),
    ] {
        if !device.supports(dtype) {
            continue;
        }
        let far = f32::INFINITY;
        let d = [0.0, 0.25, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, far, -far];
        let x = Tensor::new(d, &device).unwrap().to_dtype(dtype).unwrap();
        let smooth = nn::SmoothL1Loss { beta: knee, reduction: nn::Reduction::None };
        let smooth = smooth.forward(&x, &x.zeros_like()).unwrap().to_f64_vec().unwrap();
        let huber = nn::HuberLoss { delta: knee, reduction: nn::Reduction::None };
        let huber = huber.forward(&x, &x.zeros_like()).unwrap().to_f64_vec().unwrap();
        for (i, d) in d.map(|d| f64::from(d.abs())).into_iter().enumerate().take(8) {
            let expected = if d < knee { 0.5 * d * d / knee } else { d - 0.5 * knee };
            let what = format!("{dtype} {d} bent at {knee}");
            assert_close(&smooth[i..=i], &[expected], (2e-3, 1e-6), &what);
            assert_close(&huber[i..=i], &[expected * knee], (2e-3, 1e-6), &what);
        }
        assert!(
            knee > 1e30 || smooth[8..].iter().all(|&loss| loss == f64::INFINITY),
            "{dtype} {knee}: {smooth:?}"
        );
        assert!(
            knee < 0.1 || huber[8..].iter().all(|&loss| loss == f64::INFINITY),
            "{dtype} {knee}: {huber:?}"
        );
    }
    let curved = f::huber_loss(&zero, &one.zeros_like()).unwrap();
    let slopes = taper::grad(&[&curved], &[&zero], true).unwrap();
    let curves = taper::grad(&[&slopes[0].as_ref().unwrap().sum()], &[&zero], false).unwrap();
    assert_close(
        &curves[0].as_ref().unwrap().to_f64_vec().unwrap(),
        &[1.0 / 6.0; 6],
        (1e-6, 0.0),
        "curvature",
    );
    if needs(&device, DType::F64) {
        let (a, b) = (made(&[3, 4], 1), made(&[3, 4], 2));
        gradgradcheck(|t| f::cosine_similarity(&t[0], &t[1], 1, 1e-8), &[a.clone(), b.clone()]).unwrap();
        gradgradcheck(|t| f::pairwise_distance(&t[0], &t[1], 3.0, 1e-6), &[a.clone(), b.clone()]).unwrap();
        gradcheck(|t| f::normalize(&t[0], 1.5, 0, 1e-12), std::slice::from_ref(&a)).unwrap();
        gradcheck(|t| nn::KlDivLoss::default().forward(&t[0], &t[1].exp()), &[a.clone(), b.clone()]).unwrap();
        gradgradcheck(|t| f::binary_cross_entropy(&t[0].sigmoid(), &t[1].sigmoid()), &[a.clone(), b.clone()])
            .unwrap();
        gradcheck(|t| f::huber_loss(&t[0], &t[1]), &[a.clone(), b.clone()]).unwrap();
        gradcheck(|t| f::smooth_l1_loss(&t[0], &t[1]), &[a.clone(), b.clone()]).unwrap();
        gradcheck(
            |t| nn::TripletMarginLoss::default().forward(&t[0], &t[1], &t[2]),
            &[a, b, made(&[3, 4], 3)],
        )
        .unwrap();
    }
    let other = Tensor::ones([3], &device).unwrap();
    refused(f::huber_loss(&one, &other), &["huber_loss", "one shape"]);
    refused(
        nn::HuberLoss { delta: 0.0, ..Default::default() }.forward(&one, &one),
        &["huber_loss", "delta 0"],
    );
    refused(
        nn::SmoothL1Loss { beta: -1.0, ..Default::default() }.forward(&one, &one),
        &["smooth_l1_loss", "beta -1"],
    );
    refused(f::normalize(&one, f64::NAN, 1, 1e-12), &["normalize", "power NaN"]);
    refused(nn::MarginRankingLoss::default().forward(&one, &one, &other), &["margin_ranking_loss", "[2, 3]"]);
    refused(
        nn::CosineEmbeddingLoss::default().forward(&one, &one, &other),
        &["cosine_embedding_loss", "[2]"],
    );
}
