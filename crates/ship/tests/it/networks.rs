//! Networks as programs.

use std::path::Path;

use nn::{Conv2d, Gru, Linear, Lstm, Module, TransformerEncoderLayer, functional::max_pool2d};
use onnx::{DataType, HostData, HostTensor, Model, Value};
use tensor_core::{DType, Generator, Result, Tensor};

use crate::{
    bodies::floats,
    programs::{case, check},
};

/// The structures of examples/ship.
#[test]
fn networks_of_digits() {
    let rng = Generator::seed(1, &backend_cpu::cpu());
    let layers = [(64, 32), (32, 10), (64, 10)];
    let [first, second, last] = layers.map(|(from, to)| Linear::new(from, to, &rng).unwrap());
    let convs = [(1, 8), (8, 16)].map(|(from, to)| Conv2d::new(from, to, 3, &rng).unwrap());
    check(&[
        case("mlp", 1e-5, vec![floats(&[1, 64], 1)], move |x| {
            Ok(vec![second.forward(&first.forward(&x[0])?.relu())?])
        }),
        case("cnn", 1e-5, vec![floats(&[1, 1, 14, 14], 1)], move |x| {
            let x = max_pool2d(&convs[0].forward(&x[0])?.relu(), [2, 2])?;
            let x = max_pool2d(&convs[1].forward(&x)?.relu(), [2, 2])?;
            Ok(vec![last.forward(&x.flatten(1, -1)?)?])
        }),
    ]);
}

#[test]
fn recurrent_layers() {
    let rng = Generator::seed(1, &backend_cpu::cpu());
    let gru = Gru::new(6, 8, &rng).unwrap();
    let lstm = Lstm::new(6, 8, &rng).unwrap();
    let x = || vec![floats(&[5, 1, 6], 1)];
    check(&[
        case("gru", 1e-5, x(), move |x| {
            let (all, last) = gru.forward(&x[0], None)?;
            Ok(vec![all, last])
        }),
        case("lstm", 1e-5, x(), move |x| {
            let (all, (hidden, cell)) = lstm.forward(&x[0], None)?;
            Ok(vec![all, hidden, cell])
        }),
    ]);
}

#[test]
fn a_transformer() {
    let rng = Generator::seed(1, &backend_cpu::cpu());
    let layer = TransformerEncoderLayer::new(16, 4, &rng).unwrap();
    layer.eval();
    check(&[case("transformer", 1e-4, vec![floats(&[1, 7, 16], 1)], move |x| -> Result<Vec<Tensor>> {
        Ok(vec![layer.forward(&x[0])?])
    })]);
}

/// Silero's detector of speech hears the same in two chunks: its state goes through the program.
#[test]
fn speech() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../onnx/tests/models/silero_vad.onnx");
    let net = Model::load(path, &backend_cpu::cpu()).unwrap();
    let rate =
        HostTensor::new(DataType::Tensor(DType::I64), [0usize; 0], HostData::Int(vec![16_000])).unwrap();
    let rate: Value = rate.into();
    let chunk = |seed| floats(&[1, 576], seed).mul_scalar(0.3);
    let state = floats(&[2, 1, 128], 3).mul_scalar(0.1);
    check(&[case("silero", 1e-4, vec![chunk(1), chunk(2), state], move |x| {
        let hear = |chunk: &Tensor, state: &Tensor| {
            let inputs = [("input", chunk.into()), ("state", state.into()), ("sr", rate.clone())];
            let out = net.run(inputs)?;
            Ok((out.tensor("output")?, out.tensor("stateN")?))
        };
        let (first, state) = hear(&x[0], &x[2])?;
        let (second, state) = hear(&x[1], &state)?;
        Ok(vec![first, second, state])
    })]);
}
