//! Loaded models that are written again: recurrent layers stay one node each, and operators whose results
//! only the host knows are refused, because a file would have the results of one call as constants.

use nn::load_safetensors;
use onnx::{
    Export, Model, Value, export_proto,
    proto::{AttributeProto, NodeProto},
};
use tensor_core::{Generator, Tensor};

use crate::{
    build::{bytes, floats, graph, integers, node, with_int},
    devices, model,
    round_trip::RoundTrip,
};

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(3),
        s: Some(value.as_bytes().to_vec().into()),
        ..Default::default()
    }
}

/// A recurrent layer of two directions with states of size 5 over inputs of size 3.
fn recurrent(op: &str, gates: usize, attributes: &[AttributeProto]) -> Vec<u8> {
    let (size, width) = (5, 3);
    let weight = |name: &str, rows: usize, columns: usize| {
        let numbers: Vec<f32> =
            (0..2 * rows * columns).map(|k| ((k * 37 % 23) as f32 - 11.0) / 20.0).collect();
        floats(name, &[2, rows as i64, columns as i64], &numbers)
    };
    let bias: Vec<f32> = (0..4 * gates * size).map(|k| ((k * 31 % 17) as f32 - 8.0) / 10.0).collect();
    let weights = vec![
        weight("w", gates * size, width),
        weight("r", gates * size, size),
        floats("b", &[2, (2 * gates * size) as i64], &bias),
    ];
    let outputs: &[&str] = if op == "LSTM" { &["y", "h", "c"] } else { &["y", "h"] };
    let mut layer = with_int(node(op, &["x", "w", "r", "b"], outputs), "hidden_size", size as i64);
    layer.attribute.push(text("direction", "bidirectional"));
    layer.attribute.extend_from_slice(attributes);
    bytes(graph(vec![layer], &["x"], outputs, weights))
}

#[test]
fn recurrent_layers_of_a_loaded_model_are_one_node_for_each_direction() {
    let before_reset = AttributeProto {
        name: Some("linear_before_reset".into()),
        r#type: Some(2),
        i: Some(1),
        ..Default::default()
    };
    for device in devices() {
        let rng = Generator::seed(3, &device);
        let x = |steps: usize, batch: usize| vec![Tensor::randn([steps, batch, 3], &rng).unwrap()];
        for (op, gates, attributes) in
            [("LSTM", 4, vec![]), ("GRU", 3, vec![before_reset.clone()]), ("RNN", 1, vec![])]
        {
            let net = Model::from_bytes(recurrent(op, gates, &attributes), &device).unwrap();
            let exported = RoundTrip {
                name: &format!("loaded_{op}"),
                inputs: x(6, 2),
                dynamic: vec![(0, 0, "steps"), (0, 1, "batch")],
                others: vec![x(31, 1), x(2, 4)],
                ..Default::default()
            }
            .run(&net, |net, x| net.run([("x", &x[0])])?.tensors())
            .unwrap_or_else(|error| panic!("{op}: {error}"));
            assert_eq!(exported.operators[op], 2, "{:?}", exported.operators);
        }
        // Without a kernel's form the steps are written one by one.
        let net = Model::from_bytes(recurrent("GRU", 3, &[]), &device).unwrap();
        RoundTrip { name: "loaded_steps", inputs: x(4, 2), ..Default::default() }
            .run(&net, |net, x| net.run([("x", &x[0])])?.tensors())
            .unwrap();
    }
}

#[track_caller]
fn refused(file: Vec<u8>, inputs: &[(&str, &Tensor)], operator: &str) {
    let net = Model::from_bytes(file, &backend_cpu::cpu()).unwrap();
    net.run(inputs.iter().map(|&(name, x)| (name, Value::from(x)))).unwrap();
    let names: Vec<&str> = inputs.iter().map(|(name, _)| *name).collect();
    let forward =
        |net: &Model, x: &[Tensor]| net.run(names.iter().copied().zip(x.iter().map(Value::from)))?.tensors();
    let error =
        export_proto(&net, forward, inputs.iter().copied(), &Export::default()).unwrap_err().to_string();
    assert!(error.contains(operator) && error.contains("constants"), "{error}");
}

#[test]
fn operators_on_the_host_are_no_constants_in_silence() {
    let cpu = backend_cpu::cpu();
    let x = Tensor::new([[1.0f32, 0.0, 2.0, 1.0], [0.5, 0.25, 1.5, 2.0]], &cpu).unwrap();
    let simple = |node: NodeProto| bytes(graph(vec![node], &["x"], &["y"], vec![]));
    refused(simple(node("NonZero", &["x"], &["y"])), &[("x", &x)], "NonZero");
    refused(simple(node("Unique", &["x"], &["y"])), &[("x", &x)], "Unique");
    let compress = graph(
        vec![node("Compress", &["v", "b"], &["y"]), with_int(node("Cast", &["x"], &["b"]), "to", 9)],
        &["x"],
        &["y"],
        vec![floats("v", &[8], &[1.0; 8])],
    );
    refused(bytes(compress), &[("x", &x)], "Compress");
    let image = Tensor::ones([1, 1, 4, 4], &cpu).unwrap();
    let roi = graph(
        vec![node("RoiAlign", &["image", "x", "i"], &["y"])],
        &["image", "x"],
        &["y"],
        vec![integers("i", &[2], &[0, 0])],
    );
    refused(bytes(roi), &[("image", &image), ("x", &x)], "RoiAlign");
    let trees = load_safetensors(model("runtime_cases.safetensors"), &cpu).unwrap();
    let file = trees["trees_float32_1/model"].to_vec::<u8>().unwrap();
    refused(file, &[("x", &trees["trees_float32_1/in/x"])], "TreeEnsemble");
}
