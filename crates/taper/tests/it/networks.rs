//! Layers and functions of layers against PyTorch's numbers (`scripts/torch_fixtures.py networks`): values, gradients, state dicts, running
//! statistics. Then what the numbers cannot show: differences in f64, refusals, kernels.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{collections::BTreeMap, rc::Rc};

use serde::Deserialize;
use serde_json::Value;
use taper::autograd::{TensorGrad, gradcheck, gradgradcheck};
use taper::nn::{self, BatchNormConfig, Module, StateDict, functional as f};
use taper::{DType, Generator, Result, Tensor};

use crate::common::{assert_close, device, needs, of, reference_device};
use crate::pytorch::fixture;

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

#[derive(Deserialize)]
struct Case {
    group: String,
    kind: String,
    args: BTreeMap<String, Value>,
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
    fn float(&self, name: &str) -> f64 {
        self.args[name].as_f64().unwrap()
    }

    fn size(&self, name: &str) -> usize {
        self.args[name].as_u64().unwrap() as usize
    }

    fn sizes(&self, name: &str) -> Vec<usize> {
        self.args[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.args.get(name).map_or(default, |value| value.as_bool().unwrap())
    }
}

type Run = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// A module, if there is one, and what the case does with it.
type Network = (Option<Rc<dyn Module>>, Run);

fn of_module<M: Module + 'static>(module: M, run: impl Fn(&M, &[Tensor]) -> Result<Tensor> + 'static) -> Network {
    let module = Rc::new(module);
    (Some(module.clone()), Box::new(move |x| run(&module, x)))
}

fn of_layer<M: nn::Layer + 'static>(module: M) -> Network {
    of_module(module, |module, x| nn::Layer::forward(module, &x[0]))
}

fn of_function(run: impl Fn(&[Tensor]) -> Result<Tensor> + 'static) -> Network {
    (None, Box::new(run))
}

/// Holds every case of a group to its numbers.
fn check(group: &str, build: impl Fn(&Case, &Generator) -> Network) {
    let all: Cases = fixture("networks");
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

fn made(shape: &[usize], seed: u64) -> Tensor {
    Tensor::randn(shape, &Generator::seed(seed, &device())).unwrap().to_dtype(DType::F64).unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, parts: &[&str]) {
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
    let all: Vec<(&str, fn(&Tensor) -> Tensor)> = vec![
        ("gelu_tanh", Tensor::gelu_tanh),
        ("softplus", |x| x.softplus(2.0, f64::INFINITY)),
        ("softplus(20)", |x| x.softplus(1.0, 20.0)),
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
    x.softplus(1.0, 20.0).sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [0.5]);
    if needs(&device, DType::F64) {
        for (name, function) in &all {
            gradcheck(|t| Ok(function(&t[0])), &[made(&[7], 3)]).unwrap_or_else(|e| panic!("{name}: {e}"));
            gradgradcheck(|t| Ok(function(&t[0])), &[made(&[5], 4)]).unwrap_or_else(|e| panic!("{name}: {e}"));
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
        let batch = |t: &[Tensor]| f::batch_norm(&t[0], None, None, Some(&t[1]), Some(&t[2]), true, 0.1, 1e-5);
        gradgradcheck(batch, &all).unwrap();
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
    norm.forward(&x).unwrap();
    let mean = norm.running_mean().unwrap();
    assert!(!mean.is_tracked());
    assert_close(&mean.to_f64_vec().unwrap(), &[0.2, 0.4], (1e-6, 0.0), "running mean");
    assert_close(&norm.running_var().unwrap().to_f64_vec().unwrap(), &[1.1, 1.7], (1e-6, 0.0), "variance");
    assert_eq!(norm.named_buffers().len(), 3);
    let reference = reference_device();
    norm.to(&reference).unwrap();
    assert_eq!(norm.running_mean().unwrap().device(), reference);
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
    let layer = kernels(&|| f::layer_norm(&x, [8], Some(&weight), Some(&bias), 1e-5));
    assert_eq!(layer, [("rows", 1)]);
    let rms = kernels(&|| f::rms_norm(&x, [8], Some(&weight), None));
    assert_eq!(rms, [("rows", 1)]);
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
    refused(f::interpolate_nearest(&x, &[2]), &["interpolate", "one for each axis"]);
    refused(f::adaptive_avg_pool2d(&x, 0), &["adaptive_avg_pool2d"]);
    refused(f::adaptive_max_pool3d(&x.select(0, 0).unwrap(), 1), &["adaptive_max_pool3d", "5 axes"]);
    refused(nn::Unflatten::new(1, [2, 2]).forward(&x), &["unflatten", "[2, 2]"]);
    assert_eq!(nn::Upsample::new(2).forward(&x).unwrap().dims(), [1, 3, 8, 10]);
    assert_eq!(nn::Unflatten::new(-1, [5, 1]).forward(&x).unwrap().dims(), [1, 3, 4, 5, 1]);
    if needs(&device, DType::F64) {
        let x = made(&[1, 2, 3, 4], 1);
        for mode in [f::PadMode::Reflect, f::PadMode::Replicate, f::PadMode::Circular, f::PadMode::Constant(2.0)] {
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
