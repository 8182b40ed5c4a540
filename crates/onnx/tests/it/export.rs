//! Models that are written and read again: the same results, on every device, at the sizes of the export and at
//! others.

use std::path::PathBuf;

use nn::{
    BatchNorm2d, Conv, Conv1d, Conv2d, Conv3d, ConvConfig, ConvTranspose2d, ConvTransposeConfig, Embedding, Gru,
    Layer, LayerNorm, Linear, Lstm, Module, MultiheadAttention, Relu, Rnn, RnnConfig, Sequential,
};
use onnx::{DynamicAxis, Export, Exported, Model, export_with};
use tensor_core::{DType, Device, Generator, Result, Tensor};

use crate::devices;

/// A folder that is removed at the end.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The results of a model that was exported at `inputs` with these dynamic axes, read again, and run at `others`
/// against those of `forward`.
fn round_trip<M: Module>(
    model: &M,
    forward: impl Fn(&M, &[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[Tensor],
    dynamic: &[(usize, usize, &str)],
    others: &[Vec<Tensor>],
    tolerance: f64,
) -> Result<Exported> {
    let folder = folder();
    let path: PathBuf = folder.path().join("model.onnx");
    let names: Vec<String> = (0..inputs.len()).map(|k| format!("in{k}")).collect();
    let dynamic_axes =
        dynamic.iter().map(|&(input, axis, name)| DynamicAxis::new(format!("in{input}"), axis, name));
    let options = Export { dynamic_axes: dynamic_axes.collect(), ..Default::default() };
    let named: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(inputs).collect();
    let exported = export_with(model, &forward, named, &path, &options)?;
    let read = Model::load(&path, &inputs[0].device())?;
    for inputs in [inputs.to_vec()].iter().chain(others) {
        let expected = forward(model, inputs)?;
        let found = read.run(names.iter().zip(inputs))?.tensors()?;
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.dims(), expected.dims());
            close(found, expected, tolerance);
        }
    }
    Ok(exported)
}

fn close(found: &Tensor, expected: &Tensor, tolerance: f64) {
    let (found, expected) = (found.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
    for (k, (a, b)) in found.iter().zip(&expected).enumerate() {
        let near = (a - b).abs() <= tolerance * (1.0 + b.abs()) || a == b || a.is_nan() && b.is_nan();
        assert!(near, "element {k} is {a}, expected {b}");
    }
}

/// A layer at a shape, and with a dynamic batch at twice as many and one more.
fn check(layer: &impl Layer, shape: &[usize], rng: &Generator) -> Exported {
    let x = Tensor::randn(shape, rng).unwrap();
    let mut other = shape.to_vec();
    other[0] = 2 * shape[0] + 1;
    let other = Tensor::randn(other.as_slice(), rng).unwrap();
    let forward = |layer: &_, x: &[Tensor]| Ok(vec![Layer::forward(layer, &x[0])?]);
    round_trip(layer, forward, &[x], &[(0, 0, "batch")], &[vec![other]], 1e-4)
        .unwrap_or_else(|error| panic!("{layer:?}: {error}"))
}

fn each_device(f: impl Fn(&Device, &Generator)) {
    for device in devices() {
        f(&device, &Generator::seed(7, &device));
    }
}

#[test]
fn a_perceptron_is_two_products() {
    each_device(|_, rng| {
        let model = Sequential::new()
            .add(Linear::new(4, 8, rng).unwrap())
            .add(Relu)
            .add(Linear::new(8, 3, rng).unwrap());
        let exported = check(&model, &[2, 4], rng);
        let operators: Vec<(&str, usize)> =
            exported.operators.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(operators, [("Gemm", 2), ("Relu", 1)]);
        assert_eq!(exported.initializers, 4);
    });
}
