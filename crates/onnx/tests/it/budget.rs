//! Small files that ask for much memory or work: what is written once is compiled once, and what is beyond
//! the budget is refused with its name.

use std::time::{Duration, Instant};

use onnx::{
    Budget, HostData, HostTensor, LoadOptions, Model, Value,
    proto::{AttributeProto, FunctionProto, NodeProto, OperatorSetIdProto, SparseTensorProto, TensorProto},
};
use prost::Message;
use tensor_core::{Result, Tensor};

use crate::build::{bytes, floats, graph, integers, model_of, node, node_of, with_graph, with_int};

fn load(bytes: Vec<u8>) -> Result<Model> {
    Model::from_bytes(bytes, &backend_cpu::cpu())
}

#[track_caller]
fn beyond_budget<T>(result: Result<T>, parts: &[&str]) {
    let error = result.err().expect("a refusal").to_string();
    for part in parts.iter().chain(&["onnx::Budget"]) {
        assert!(error.contains(part), "\"{part}\" is not in: {error}");
    }
}

/// A function of the model's own domain with these nodes, from `a` to `b`.
fn function(name: &str, node: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: Some(name.into()),
        domain: Some("own".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node,
        opset_import: vec![
            OperatorSetIdProto { domain: None, version: Some(20) },
            OperatorSetIdProto { domain: Some("own".into()), version: Some(1) },
        ],
        ..Default::default()
    }
}

/// A function that calls the one of the next level twice; the last one adds `constant`.
fn doubling(level: usize, last: usize, constant: &TensorProto) -> FunctionProto {
    let name = format!("F{level}");
    if level == last {
        let value = AttributeProto {
            name: Some("value".into()),
            r#type: Some(4),
            t: Some(Box::new(constant.clone())),
            ..Default::default()
        };
        let made = NodeProto { attribute: vec![value], ..node("Constant", &[], &["k"]) };
        return function(&name, vec![made, node("Add", &["a", "k"], &["b"])]);
    }
    let next = format!("F{}", level + 1);
    function(&name, vec![node_of("own", &next, &["a"], &["t"]), node_of("own", &next, &["t"], &["b"])])
}

fn doubled(last: usize, constant: &TensorProto) -> Vec<u8> {
    let main = graph(vec![node_of("own", "F0", &["x"], &["y"])], &["x"], &["y"], vec![]);
    model_of(main, (0..=last).map(|level| doubling(level, last, constant)).collect()).encode_to_vec()
}

/// Written out, 17 levels of functions are 131,072 copies of a node and of its constant.
#[test]
fn functions_are_compiled_once() {
    let constant = floats("k", &[1000], &[1.0; 1000]);
    let file = doubled(12, &constant);
    // A budget for one copy of everything, and for many fewer copies than calls.
    let budget = Budget { base_bytes: 1 << 20, ..Budget::default() };
    let net = Model::from_bytes_with(file, &backend_cpu::cpu(), budget).unwrap();
    assert_eq!(nn::Module::num_parameters(&net), 1000);
    let x = Tensor::zeros([1000], &backend_cpu::cpu()).unwrap();
    let y = net.run([("x", &x)]).unwrap().tensor("y").unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), vec![4096.0; 1000]);
    load(doubled(17, &constant)).unwrap();
    beyond_budget(load(doubled(23, &constant)), &["nodes"]);
}

/// Calls with different attributes have bodies of their own, also where the attribute is handed on.
#[test]
fn bodies_are_shared_by_calls_with_equal_attributes_alone() {
    let refers = |inner: &str, outer: &str| AttributeProto {
        name: Some(inner.into()),
        ref_attr_name: Some(outer.into()),
        r#type: Some(1),
        ..Default::default()
    };
    let slope = |value: f32| AttributeProto {
        name: Some("slope".into()),
        r#type: Some(1),
        f: Some(value),
        ..Default::default()
    };
    let leaky = NodeProto { attribute: vec![refers("alpha", "slope")], ..node("LeakyRelu", &["a"], &["b"]) };
    let outer =
        NodeProto { attribute: vec![refers("slope", "slope")], ..node_of("own", "Leaky", &["a"], &["b"]) };
    let call = |value: f32, y: &str| NodeProto {
        attribute: vec![slope(value)],
        ..node_of("own", "Outer", &["x"], &[y])
    };
    let main = graph(vec![call(0.5, "p"), call(0.25, "q"), call(0.5, "r")], &["x"], &["p", "q", "r"], vec![]);
    let functions = vec![function("Leaky", vec![leaky]), function("Outer", vec![outer])];
    let net = load(model_of(main, functions).encode_to_vec()).unwrap();
    let x = Tensor::new([-4.0f32], &backend_cpu::cpu()).unwrap();
    let outputs = net.run([("x", &x)]).unwrap().tensors().unwrap();
    let found: Vec<f32> = outputs.iter().map(|y| y.to_vec::<f32>().unwrap()[0]).collect();
    assert_eq!(found, [-2.0, -1.0, -2.0]);
}

/// Calls with different attributes have copies of the function's constants.
#[test]
fn copies_of_constants_are_counted() {
    let slope = |name: &str, value: f32| AttributeProto {
        name: Some(name.into()),
        r#type: Some(1),
        f: Some(value),
        ..Default::default()
    };
    let mut leaky = node("LeakyRelu", &["t"], &["b"]);
    leaky.attribute.push(AttributeProto {
        ref_attr_name: Some("slope".into()),
        f: None,
        ..slope("alpha", 0.0)
    });
    let value = AttributeProto {
        name: Some("value".into()),
        r#type: Some(4),
        t: Some(Box::new(floats("k", &[100_000], &[1.0; 100_000]))),
        ..Default::default()
    };
    let constant = NodeProto { attribute: vec![value], ..node("Constant", &[], &["k"]) };
    let body = function("F", vec![constant, node("Add", &["a", "k"], &["t"]), leaky]);
    let calls = (0..2000).map(|at| {
        let mut call = node_of("own", "F", &["x"], &[&format!("y{at}")]);
        call.attribute.push(slope("slope", at as f32));
        call
    });
    let main = graph(calls.collect(), &["x"], &["y0"], vec![]);
    let file = model_of(main, vec![body]).encode_to_vec();
    assert!(file.len() < 600_000);
    beyond_budget(load(file), &["\"k\""]);
}

#[test]
fn sparse_tensors_are_bounded_by_the_size_of_the_file() {
    let sparse = |size: i64| SparseTensorProto {
        values: Some(floats("w", &[1], &[3.0])),
        indices: Some(integers("i", &[1], &[1])),
        dims: vec![size],
    };
    let file = |size: i64| {
        let mut main = graph(vec![node("Add", &["x", "w"], &["y"])], &["x"], &["y"], vec![]);
        main.sparse_initializer = vec![sparse(size)];
        bytes(main)
    };
    assert!(file(1 << 28).len() < 120);
    beyond_budget(load(file(1 << 28)), &["sparse tensor \"w\""]);
    let net = load(file(3)).unwrap();
    let x = Tensor::zeros([3], &backend_cpu::cpu()).unwrap();
    assert_eq!(net.run([("x", &x)]).unwrap().tensor("y").unwrap().to_vec::<f32>().unwrap(), [0.0, 3.0, 0.0]);
    // A file that is trusted may have more.
    let options =
        LoadOptions { budget: Budget { base_bytes: 1 << 26, ..Budget::default() }, ..Default::default() };
    Model::from_bytes_with(file(1 << 20), &backend_cpu::cpu(), options).unwrap();
}

#[test]
fn many_empty_messages_are_refused_before_they_are_decoded() {
    let mut empty = node("Neg", &["x"], &["y"]);
    empty.attribute = vec![AttributeProto::default(); 2_000_000];
    let file = bytes(graph(vec![empty], &["x"], &["y"], vec![]));
    assert!(file.len() < 5_000_000);
    beyond_budget(load(file), &["no ONNX model", "messages"]);
    let mut empty = graph(vec![node("Neg", &["x"], &["y"])], &["x"], &["y"], vec![]);
    empty.initializer = vec![TensorProto::default(); 2_000_000];
    beyond_budget(load(bytes(empty)), &["messages"]);
}

/// A box that covers much more than the image has as many terms as the image has pixels.
#[test]
fn regions_from_data_are_bounded_by_the_image() {
    let device = backend_cpu::cpu();
    let main = graph(vec![node("RoiAlign", &["x", "r", "i"], &["y"])], &["x", "r", "i"], &["y"], vec![]);
    let net = load(bytes(main)).unwrap();
    let x = Tensor::ones([1, 1, 8, 8], &device).unwrap();
    let run = |boxes: usize, size: f32| {
        let regions = Tensor::new([0.0f32, 0.0, size, size], &device).unwrap().expand([boxes, 4]).unwrap();
        let images = Tensor::zeros([boxes], &device).unwrap().to_dtype(tensor_core::DType::I64).unwrap();
        net.run([("x", &x), ("r", &regions), ("i", &images)])?.tensor("y")?.to_vec::<f32>()
    };
    let begin = Instant::now();
    for size in [1e4, 1e9, 1e30, f32::INFINITY, f32::NAN] {
        let found = run(1000, size).unwrap();
        assert!(found.iter().all(|y| (0.0..=1.0).contains(y)), "{size}: {:?}", &found[..4]);
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let error = run(1_000_000, 8.0).unwrap_err().to_string();
    assert!(error.contains("RoiAlign") && error.contains("elements"), "{error}");
}

/// A loop that appends an element in each iteration.
#[test]
fn a_sequence_grows_in_place() {
    let body = graph(
        vec![node("SequenceInsert", &["s", "i"], &["t"]), node("Identity", &["go"], &["on"])],
        &["i", "go", "s"],
        &["on", "t"],
        vec![],
    );
    let main = graph(
        vec![
            node("SequenceEmpty", &[], &["empty"]),
            with_graph(node("Loop", &["count", "", "empty"], &["list"]), "body", body),
            node("SequenceLength", &["list"], &["length"]),
            node("SequenceAt", &["list", "place"], &["y"]),
        ],
        &["count"],
        &["length", "y", "empty"],
        vec![integers("place", &[], &[7])],
    );
    let net = load(bytes(main)).unwrap();
    let run = |count: i64| {
        let begin = Instant::now();
        let out = net.run([("count", Value::from(HostTensor::integer(count)))]).unwrap();
        let integer = |name: &str| out.get(name).unwrap().to_host().unwrap().to_i64s().unwrap()[0];
        assert_eq!((integer("length"), integer("y")), (count, 7));
        // The sequence before the loop stays as it was.
        assert!(matches!(out.get("empty"), Some(Value::Sequence(list)) if list.is_empty()));
        begin.elapsed()
    };
    run(1000);
    let (short, long) = (run(10_000), run(80_000));
    // Copied in each iteration, the long one takes 64 times as long.
    assert!(long < 24 * short, "{short:?} and {long:?}");
}

#[test]
fn texts_that_double_are_refused() {
    let name = |at: usize| if at == 0 { "x".to_string() } else { format!("t{at}") };
    let nodes = (0..40).map(|at| node("StringConcat", &[&name(at), &name(at)], &[&name(at + 1)])).collect();
    let net = load(bytes(graph(nodes, &["x"], &["t40"], vec![]))).unwrap();
    let text = |text: &str| {
        HostTensor::new(onnx::DataType::Text, [1], HostData::Text(vec![text.to_string()])).unwrap()
    };
    beyond_budget(net.run([("x", Value::from(text("abcd")))]), &["StringConcat"]);
    // Ten thousand copies of a text of a megabyte.
    let expand = graph(
        vec![node("Expand", &["x", "n"], &["y"])],
        &["x"],
        &["y"],
        vec![integers("n", &[1], &[10_000])],
    );
    let net = load(bytes(expand)).unwrap();
    beyond_budget(net.run([("x", Value::from(text(&"a".repeat(1 << 20))))]), &["Expand"]);
    // A loop that makes a text anew in each iteration has only the last one.
    let body = graph(
        vec![node("StringConcat", &["x", "x"], &["t"]), node("Identity", &["go"], &["on"])],
        &["i", "go", "s"],
        &["on", "t"],
        vec![],
    );
    let repeat = with_graph(node("Loop", &["count", "", "x"], &["y"]), "body", body);
    let net =
        load(bytes(graph(vec![repeat], &["x"], &["y"], vec![integers("count", &[], &[3000])]))).unwrap();
    net.run([("x", Value::from(text(&"a".repeat(100_000))))]).unwrap();
}

/// Values that are known on the host are large for the nodes that make them.
#[test]
fn values_on_the_host_are_counted() {
    let count = 2000;
    let outputs: Vec<String> = (0..count).map(|at| format!("y{at}")).collect();
    let nodes = outputs.iter().map(|y| node("Expand", &["one", "n"], &[y])).collect();
    let names: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let weights = vec![integers("n", &[1], &[1 << 14]), integers("one", &[1], &[1])];
    let net = load(bytes(graph(nodes, &[], &names, weights))).unwrap();
    beyond_budget(net.run::<&str, Value>([]), &["Expand"]);
}

/// A loop over a scan output has a budget too, and small ones are far within it.
#[test]
fn usual_loops_are_within_the_budget() {
    let body = graph(
        vec![node("Identity", &["go"], &["on"]), with_int(node("Cast", &["i"], &["each"]), "to", 7)],
        &["i", "go"],
        &["on", "each"],
        vec![],
    );
    let repeat = with_graph(node("Loop", &["count", ""], &["y"]), "body", body);
    let net = load(bytes(graph(vec![repeat], &[], &["y"], vec![integers("count", &[], &[5000])]))).unwrap();
    assert_eq!(net.run::<&str, Value>([]).unwrap().tensor("y").unwrap().dims(), [5000]);
}
