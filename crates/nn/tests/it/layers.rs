//! Layers: their results, initial values and errors.
#![allow(clippy::unwrap_used)]

use crate::common::{assert_close, device};
use autograd::TensorGrad;
use nn::{
    Dropout, Embedding, Flatten, FrozenBatchNorm2d, Gelu, Identity, Layer, Linear, LinearConfig, LogSoftmax,
    Module, Relu, Sequential, Sigmoid, Silu, Softmax, StochasticDepth, Tanh,
    functional::{dropout, embedding, linear},
    init::{self, Fan, Nonlinearity},
};
use tensor_core::{DType, Generator, Tensor};

#[test]
fn linear_is_x_times_w_transposed_plus_b() {
    let device = device();
    let layer = Linear::new(3, 2, &Generator::seed(0, &device)).unwrap();
    layer.weight.assign(&Tensor::new([[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &device).unwrap()).unwrap();
    layer.bias.as_ref().unwrap().assign(&Tensor::new([10f32, 20.0], &device).unwrap()).unwrap();
    let x = Tensor::new([1f32, 0.0, -1.0], &device).unwrap();
    assert_close(&layer.forward(&x).unwrap(), &[8.0, 18.0]);
    for lead in [&[1][..], &[4], &[2, 3], &[2, 1, 3], &[0], &[2, 0]] {
        let shape: Vec<usize> = lead.iter().copied().chain([3]).collect();
        let out = layer.forward(&x.expand(shape).unwrap()).unwrap();
        assert_eq!(out.dims(), lead.iter().copied().chain([2]).collect::<Vec<_>>());
        assert_close(&out, &[8.0, 18.0].repeat(lead.iter().product()));
    }
    let wide = x.expand([2, 5, 3]).unwrap();
    layer.forward(&wide).unwrap().sum().backward().unwrap();
    assert_close(&layer.weight.grad().unwrap(), &[10.0, 0.0, -10.0, 10.0, 0.0, -10.0]);
    assert_close(&layer.bias.as_ref().unwrap().grad().unwrap(), &[10.0, 10.0]);
}

#[test]
fn linear_says_what_does_not_fit() {
    let device = device();
    let rng = Generator::seed(0, &device);
    for (inputs, outputs) in [(0, 2), (2, 0)] {
        assert!(Linear::new(inputs, outputs, &rng).unwrap_err().to_string().contains("at least one"));
    }
    let layer = Linear::new(784, 128, &rng).unwrap();
    let message = layer.forward(&Tensor::ones([64, 28, 28], &device).unwrap()).unwrap_err().to_string();
    for part in ["linear", "[64, 28, 28]", "[128, 784]", "Linear(784, 128)", "the input has 28"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(layer.forward(&Tensor::ones((), &device).unwrap()).is_err());
    let wrong = Tensor::ones([1, 784], (DType::F64, &device)).unwrap();
    // The error asks to cast the input, not the trained weights.
    let message = layer.forward(&wrong).unwrap_err().to_string();
    assert!(message.contains("cast the input with .to_dtype(DType::F32)"), "{message}");
    let config = LinearConfig { dtype: DType::I32, ..Default::default() };
    assert!(Linear::with_config(2, 2, config, &rng).is_err());
}

#[test]
fn linear_begins_as_in_pytorch() {
    let device = device();
    let rng = Generator::seed(5, &device);
    let layer = Linear::new(100, 40, &rng).unwrap();
    for tensor in layer.parameters() {
        let values = tensor.to_f64_vec().unwrap();
        assert!(values.iter().all(|v| v.abs() <= 0.1) && values.iter().any(|v| v.abs() > 0.08));
    }
    let config = LinearConfig { bias: false, dtype: DType::F64 };
    let bare = Linear::with_config(4, 3, config, &rng).unwrap();
    assert_eq!((bare.parameters().len(), bare.weight.dtype()), (1, DType::F64));
    assert_eq!((bare.in_features(), bare.out_features()), (4, 3));
}

#[test]
fn weights_have_the_spread_that_was_asked_for() {
    let device = device();
    let rng = Generator::seed(7, &device);
    let spread = |tensor: Tensor| {
        let values = tensor.to_f64_vec().unwrap();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    };
    let shape = [60, 90];
    for (found, expected) in [
        (init::kaiming_uniform(shape, Fan::In, Nonlinearity::Relu, &rng), (2.0f64 / 90.0).sqrt()),
        (init::kaiming_normal(shape, Fan::Out, Nonlinearity::Tanh, &rng), 5.0 / 3.0 / 60f64.sqrt()),
        (init::xavier_uniform(shape, 1.0, &rng), (2.0f64 / 150.0).sqrt()),
        (init::xavier_normal(shape, 2.0, &rng), 2.0 * (2.0f64 / 150.0).sqrt()),
        (init::uniform(shape, -1.0, 1.0, &rng), 1.0 / 3f64.sqrt()),
        (init::normal(shape, 3.0, 0.5, &rng), 0.5),
    ] {
        let found = spread(found.unwrap());
        assert!((found / expected - 1.0).abs() < 0.05, "{found} is not {expected}");
    }
    assert_close(&init::constant([2], 0.5, &device).unwrap(), &[0.5, 0.5]);
    assert!(init::xavier_uniform([3], 1.0, &rng).is_err());
    assert!(init::kaiming_normal([3, 0], Fan::In, Nonlinearity::Relu, &rng).is_err());
    assert!(init::normal([3], 0.0, -1.0, &rng).is_err());
}

#[test]
fn stochastic_depth_drops_whole_examples() {
    let device = device();
    let rng = Generator::seed(1, &device);
    let x = Tensor::ones([400, 2, 3], &device).unwrap();
    let layer = StochasticDepth::new(0.25, &rng).unwrap();
    let rows = layer.forward(&x).unwrap().to_f64_vec().unwrap();
    let kept = rows.chunks(6).filter(|row| row.iter().all(|value| (value - 4.0 / 3.0).abs() < 1e-6)).count();
    let dropped = rows.chunks(6).filter(|row| row.iter().all(|value| *value == 0.0)).count();
    assert_eq!(kept + dropped, 400);
    assert!((60..140).contains(&dropped), "{dropped} of 400 examples dropped");
    let batch = StochasticDepth::of_batch(0.5, &rng).unwrap();
    for _ in 0..8 {
        let values = batch.forward(&x).unwrap().to_f64_vec().unwrap();
        assert!(values.iter().all(|value| *value == values[0]) && [0.0, 2.0].contains(&values[0]));
    }
    layer.eval();
    assert_close(&layer.forward(&x).unwrap(), &[1.0; 2400]);
    assert!(StochasticDepth::new(1.5, &rng).is_err());
    assert!(layer.forward(&x.sum()).is_err());
}

#[test]
fn a_frozen_batch_norm_uses_its_buffers_and_trains_nothing() {
    let device = device();
    let norm = FrozenBatchNorm2d::with_eps(2, 0.0, &device).unwrap();
    let buffers = [
        ("weight", [2f32, 1.0]),
        ("bias", [0.5, 0.0]),
        ("running_mean", [1.0, 0.0]),
        ("running_var", [4.0, 1.0]),
    ];
    let dict = buffers.map(|(name, values)| (name.to_string(), Tensor::new(values, &device).unwrap()));
    norm.load_state_dict(&dict.into_iter().collect::<nn::StateDict>()).unwrap();
    let x = Tensor::new([[[[3f32]], [[7.0]]]], &device).unwrap();
    assert_close(&norm.forward(&x).unwrap(), &[2.5, 7.0]);
    norm.train();
    assert_close(&norm.forward(&x).unwrap(), &[2.5, 7.0]);
    assert!(norm.parameters().is_empty());
    assert!(norm.forward(&x.squeeze(0).unwrap()).unwrap_err().to_string().contains("[N, 2, H, W]"));
    assert!(FrozenBatchNorm2d::new(0, &device).is_err());
}

#[test]
fn dropout_scales_what_it_keeps() {
    let device = device();
    let layer = Dropout::new(0.25, &Generator::seed(1, &device)).unwrap();
    let x = Tensor::ones([4000], &device).unwrap().requires_grad();
    let y = layer.forward(&x).unwrap();
    let values = y.to_vec::<f32>().unwrap();
    assert!(values.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-6));
    let kept = values.iter().filter(|&&v| v != 0.0).count();
    assert!((2900..3100).contains(&kept), "{kept} of 4000 kept");
    y.sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), values);
    assert_ne!(layer.forward(&x).unwrap().to_vec::<f32>().unwrap(), values);
    layer.eval();
    assert_eq!(layer.forward(&x).unwrap().sum().item::<f32>().unwrap(), 4000.0);
    for p in [-0.1, 1.1, f64::NAN] {
        assert!(Dropout::new(p, &Generator::seed(1, &device)).is_err());
    }
}

#[test]
fn activations_and_shapes() {
    let device = device();
    let x = Tensor::new([[-1.0f32, 0.5]], &device).unwrap();
    for (layer, expected) in [
        (Box::new(Relu) as Box<dyn Layer>, [0.0, 0.5]),
        (Box::new(Sigmoid), [0.26894142, 0.62245933]),
        (Box::new(Tanh), [-0.76159416, 0.46211716]),
        (Box::new(Gelu), [-0.15865525, 0.34573123]),
        (Box::new(Silu), [-0.26894142, 0.31122967]),
        (Box::new(Softmax::new(-1)), [0.18242552, 0.81757448]),
        (Box::new(LogSoftmax::new(1)), [-1.70141328, -0.20141328]),
        (Box::new(Identity), [-1.0, 0.5]),
    ] {
        assert_close(&layer.forward(&x).unwrap(), &expected);
    }
    let deep = Tensor::ones([2, 3, 4], &device).unwrap();
    assert_eq!(Flatten::default().forward(&deep).unwrap().dims(), [2, 12]);
    assert!(Softmax::new(2).forward(&x).is_err());
}

#[test]
fn sequential_names_by_position() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let mut model = Sequential::new().add(Linear::new(3, 4, &rng).unwrap()).add(Relu);
    model.push(Sequential::new().add(Linear::new(4, 2, &rng).unwrap()));
    let names: Vec<_> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.weight", "0.bias", "2.0.weight", "2.0.bias"]);
    assert_eq!((model.len(), model.is_empty()), (3, false));
    assert_eq!(model.forward(&Tensor::ones([5, 3], &device).unwrap()).unwrap().dims(), [5, 2]);
}

#[test]
fn embedding_looks_rows_up() {
    let device = device();
    let table = Embedding::new(4, 3, &Generator::seed(0, &device)).unwrap();
    let indices = Tensor::new([[2i32, 0], [2, 3]], &device).unwrap();
    let out = table.forward(&indices).unwrap();
    assert_eq!(out.dims(), [2, 2, 3]);
    let row = table.weight.select(0, 2).unwrap().to_f64_vec().unwrap();
    assert_eq!(out.to_f64_vec().unwrap()[..3], row);
    out.sum().backward().unwrap();
    let grad = [1.0, 0.0, 2.0, 1.0].map(|v| [v; 3]).concat();
    assert_close(&table.weight.grad().unwrap(), &grad);
    assert!(table.forward(&Tensor::new([4i32], &device).unwrap()).unwrap().eval().is_err());
    assert!(Embedding::new(0, 3, &Generator::seed(0, &device)).is_err());
}

#[test]
fn layers_print_as_in_pytorch() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let config = LinearConfig { bias: false, ..Default::default() };
    let layers: Vec<(Box<dyn Layer>, &str)> = vec![
        (Box::new(Linear::new(3, 2, &rng).unwrap()), "Linear(in_features=3, out_features=2, bias=true)"),
        (
            Box::new(Linear::with_config(3, 2, config, &rng).unwrap()),
            "Linear(in_features=3, out_features=2, bias=false)",
        ),
        (Box::new(Embedding::new(5, 4, &rng).unwrap()), "Embedding(5, 4)"),
        (Box::new(Dropout::new(0.5, &rng).unwrap()), "Dropout(p=0.5)"),
        (Box::new(Relu), "Relu()"),
        (Box::new(Softmax::new(-1)), "Softmax(axis=-1)"),
        (Box::new(Flatten::default()), "Flatten(start=1, end=-1)"),
        (Box::new(Identity), "Identity()"),
    ];
    for (layer, expected) in layers {
        assert_eq!(format!("{layer:?}"), expected);
    }
    let inner = Sequential::new().add(Relu).add(Identity);
    let printed =
        "Sequential(\n  (0): Sequential(\n    (0): Relu()\n    (1): Identity()\n  )\n  (1): Tanh()\n)";
    assert_eq!(format!("{:?}", Sequential::new().add(inner).add(Tanh)), printed);
}

#[test]
fn functions_of_parameters_check_them() {
    let device = device();
    let x = Tensor::ones([2, 3], &device).unwrap();
    let weight = Tensor::ones([4, 3], &device).unwrap();
    let says = |result: tensor_core::Result<Tensor>, part: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    says(linear(&x, &weight, Some(&Tensor::ones([3], &device).unwrap())), "takes a bias [4]");
    says(linear(&x, &Tensor::ones([2, 2, 3], &device).unwrap(), None), "shape [out, in]");
    says(embedding(&x, &weight), "whole numbers");
    let indices = Tensor::new([0i32, 3], &device).unwrap();
    assert_eq!(embedding(&indices, &weight).unwrap().dims(), [2, 3]);
    says(embedding(&indices, &Tensor::ones([3], &device).unwrap()), "[rows, features]");
    says(dropout(&x, 1.5, true, &Generator::seed(0, &device)), "from 0 to 1");
}

/// The line that built a tensor is what errors name. Through `dyn Layer` the compiler knows no more than this
/// crate's.
#[test]
fn tensors_of_layers_known_at_run_time_name_the_users_line() {
    let device = device();
    let rng = Generator::seed(0, &device);
    let x = Tensor::ones([2, 3], &device).unwrap();
    let here = |tensor: Tensor, line: u32| {
        assert_eq!((tensor.location().file(), tensor.location().line()), (file!(), line), "{tensor:?}");
    };
    let linear = || Linear::new(3, 3, &rng).unwrap();
    let model = Sequential::new()
        .add(linear())
        .add(Relu)
        .add(Sequential::new().add(Dropout::new(0.5, &rng).unwrap()));
    here(model.forward(&x).unwrap(), line!());
    here(Layer::forward(&model, &x).unwrap(), line!());
    let boxed: Box<dyn Layer> = Box::new(linear());
    here(boxed.forward(&x).unwrap(), line!());
    let shared: std::sync::Arc<dyn Layer> = std::sync::Arc::new(Sequential::new().add(Box::new(linear())));
    here(shared.forward(&x).unwrap(), line!());
    fn generic(layer: &impl Layer, x: &Tensor) -> (Tensor, u32) {
        (layer.forward(x).unwrap(), line!())
    }
    let (out, line) = generic(&linear(), &x);
    here(out, line);

    #[derive(Module, Debug)]
    struct Own(Linear);
    impl Layer for Own {
        fn forward(&self, x: &Tensor) -> tensor_core::Result<Tensor> {
            self.0.forward(x)
        }
    }
    let own_line = line!() - 3;
    let narrow = Tensor::ones([2, 2], &device).unwrap();
    let says = |error: tensor_core::Error, line: u32| {
        let location = error.location().unwrap();
        assert_eq!((location.file(), location.line()), (file!(), line), "{error}");
    };
    says(model.forward(&narrow).unwrap_err(), line!());
    says(boxed.forward(&narrow).unwrap_err(), line!());
    says(shared.forward(&narrow).unwrap_err(), line!());
    says(Sequential::new().add(Own(linear())).forward(&narrow).unwrap_err(), own_line);
    let nested = Sequential::new().add(Relu).add(Sequential::new().add(Own(linear())));
    here(nested.forward(&x).unwrap(), own_line);
}
