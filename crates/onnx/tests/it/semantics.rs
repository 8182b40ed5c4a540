//! The semantics of graphs: host arithmetic, subgraphs, functions, external data, user-defined operators.

use std::fs;

use nn::Module;
use onnx::{
    Model, Registry,
    proto::{AttributeProto, FunctionProto, OperatorSetIdProto, StringStringEntryProto, TensorProto},
};
use prost::Message;
use tensor_core::{DType, Tensor};

use crate::build::{bytes, floats, graph, integers, model_of, node, node_of, with_graph, with_int};

fn vector(data: &[f32]) -> Tensor {
    Tensor::new(data, &backend_cpu::cpu()).unwrap()
}

#[test]
fn initializers_are_parameters_under_their_names() {
    let nodes = vec![node("Mul", &["x", "weight"], &["h"]), node("Add", &["h", "bias"], &["y"])];
    let initializers = vec![floats("weight", &[2], &[2.0, 3.0]), floats("bias", &[2], &[1.0, 1.0])];
    let net =
        Model::from_bytes(bytes(graph(nodes, &["x"], &["y"], initializers)), &backend_cpu::cpu()).unwrap();
    let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["weight", "bias"]);
    let run = |x: &[f32]| net.run([("x", vector(x))]).unwrap().tensor("y").unwrap().to_vec::<f32>().unwrap();
    assert_eq!(run(&[1.0, 10.0]), [3.0, 31.0]);
    net.named_parameters()[1].1.assign(&vector(&[0.0, 0.0])).unwrap();
    assert_eq!(run(&[1.0, 10.0]), [2.0, 30.0]);
}

#[test]
fn shapes_are_computed_on_the_host() {
    // Reshape(x, Concat(Shape(x)[0:1] * 2, [-1])).
    let nodes = vec![
        node("Shape", &["x"], &["shape"]),
        node("Gather", &["shape", "zero"], &["first"]),
        node("Mul", &["first", "two"], &["double"]),
        node("Unsqueeze", &["double", "axis"], &["line"]),
        with_int(node("Concat", &["line", "rest"], &["wanted"]), "axis", 0),
        node("Reshape", &["x", "wanted"], &["y"]),
    ];
    let initializers = vec![
        integers("zero", &[], &[0]),
        integers("two", &[], &[2]),
        integers("axis", &[1], &[0]),
        integers("rest", &[1], &[-1]),
    ];
    let net =
        Model::from_bytes(bytes(graph(nodes, &["x"], &["y", "wanted"], initializers)), &backend_cpu::cpu());
    let net = net.unwrap();
    assert!(net.state_dict().is_empty());
    let out = net.run([("x", Tensor::zeros((3, 4), &backend_cpu::cpu()).unwrap())]).unwrap();
    assert_eq!(out.tensor("y").unwrap().dims(), [6, 2]);
    assert!(matches!(out.get("wanted"), Some(onnx::Value::Host(_))), "{:?}", out.get("wanted"));
    assert_eq!(out.tensor("wanted").unwrap().to_vec::<i64>().unwrap(), [6, -1]);
}

#[test]
fn branches_and_loops_read_values_around_them() {
    let twice = graph(vec![node("Add", &["x", "x"], &["t"])], &[], &["t"], vec![]);
    let square = graph(vec![node("Mul", &["x", "x"], &["s"])], &[], &["s"], vec![]);
    let branch = with_graph(node("If", &["c"], &["y"]), "then_branch", twice);
    let branch = with_graph(branch, "else_branch", square);
    let body = graph(
        vec![
            node("Add", &["state", "y"], &["next"]),
            node("Identity", &["go"], &["go_on"]),
            node("Identity", &["next"], &["each"]),
        ],
        &["i", "go", "state"],
        &["go_on", "next", "each"],
        vec![],
    );
    let repeat = with_graph(node("Loop", &["count", "", "x"], &["last", "all"]), "body", body);
    let main =
        graph(vec![branch, repeat], &["x", "c"], &["y", "last", "all"], vec![integers("count", &[], &[3])]);
    let net = Model::from_bytes(bytes(main), &backend_cpu::cpu()).unwrap();
    for (condition, y, last) in [(true, 10.0, 35.0), (false, 25.0, 80.0)] {
        let condition = Tensor::full((), condition, &backend_cpu::cpu()).unwrap();
        let out = net.run([("x", vector(&[5.0])), ("c", condition)]).unwrap();
        assert_eq!(out.tensor("y").unwrap().to_vec::<f32>().unwrap(), [y]);
        assert_eq!(out.tensor("last").unwrap().to_vec::<f32>().unwrap(), [last]);
        assert_eq!(out.tensor("all").unwrap().dims(), [3, 1]);
    }
}

#[test]
fn functions_of_the_model_take_attributes() {
    // Own(x) = LeakyRelu(x, alpha = slope) + x, slope 0.5 by default.
    let mut leaky = node("LeakyRelu", &["a"], &["h"]);
    leaky.attribute.push(AttributeProto {
        name: Some("alpha".into()),
        ref_attr_name: Some("slope".into()),
        r#type: Some(1),
        ..Default::default()
    });
    let slope =
        AttributeProto { name: Some("slope".into()), r#type: Some(1), f: Some(0.5), ..Default::default() };
    let function = FunctionProto {
        name: Some("Own".into()),
        domain: Some("own".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        attribute_proto: vec![slope.clone()],
        node: vec![leaky, node("Add", &["h", "a"], &["b"])],
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(20) }],
        ..Default::default()
    };
    let mut steep = node_of("own", "Own", &["x"], &["z"]);
    steep.attribute.push(AttributeProto { f: Some(2.0), ..slope });
    let main = graph(vec![node_of("own", "Own", &["x"], &["y"]), steep], &["x"], &["y", "z"], vec![]);
    let net = Model::from_bytes(model_of(main, vec![function]).encode_to_vec(), &backend_cpu::cpu()).unwrap();
    let out = net.run([("x", vector(&[-2.0, 2.0]))]).unwrap();
    assert_eq!(out.tensor("y").unwrap().to_vec::<f32>().unwrap(), [-3.0, 4.0]);
    assert_eq!(out.tensor("z").unwrap().to_vec::<f32>().unwrap(), [-6.0, 4.0]);
}

#[test]
fn operators_of_a_users_own_are_registered() {
    let main = graph(vec![node_of("own", "Double", &["x"], &["y"])], &["x"], &["y"], vec![]);
    let mut registry = Registry::default();
    registry.register("own", "Double", 1, |context| Ok(vec![context.tensor(0)?.mul_scalar(2.0).into()]));
    let net = Model::from_bytes_with(bytes(main), &backend_cpu::cpu(), &registry).unwrap();
    let out = net.run([("x", vector(&[4.0]))]).unwrap();
    assert_eq!(out.tensor("y").unwrap().to_vec::<f32>().unwrap(), [8.0]);
}

/// A model whose weight `[2]` is in another file.
fn external(location: &str, entries: &[(&str, &str)]) -> Vec<u8> {
    let entry = |&(key, value): &(&str, &str)| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    };
    let weight = TensorProto {
        name: Some("w".into()),
        dims: vec![2],
        data_type: Some(1),
        data_location: Some(1),
        external_data: [("location", location)].iter().chain(entries).map(entry).collect(),
        ..Default::default()
    };
    bytes(graph(vec![node("Add", &["x", "w"], &["y"])], &["x"], &["y"], vec![weight]))
}

#[test]
fn weights_in_other_files_are_found_in_the_folder_alone() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("model");
    fs::create_dir(&inner).unwrap();
    let numbers: Vec<u8> = [0.0f32, 1.0, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(inner.join("weights.bin"), &numbers).unwrap();
    fs::write(folder.path().join("secret.bin"), &numbers).unwrap();
    let load = |bytes: Vec<u8>| {
        fs::write(inner.join("m.onnx"), bytes).unwrap();
        Model::load(inner.join("m.onnx"), &backend_cpu::cpu())
    };
    let net = load(external("weights.bin", &[("offset", "4"), ("length", "8")])).unwrap();
    let out = net.run([("x", vector(&[10.0, 10.0]))]).unwrap();
    assert_eq!(out.tensor("y").unwrap().to_vec::<f32>().unwrap(), [11.0, 12.0]);
    for location in ["../secret.bin", "/etc/hostname", "", "weights.bin/../../secret.bin"] {
        let error = load(external(location, &[])).unwrap_err().to_string();
        assert!(error.contains("\"w\""), "{location}: {error}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path().join("secret.bin"), inner.join("link.bin")).unwrap();
        let error = load(external("link.bin", &[])).unwrap_err().to_string();
        assert!(error.contains("outside"), "{error}");
    }
    for (offset, length) in [("8", "8"), ("0", "9"), ("18446744073709551615", "8"), ("-1", "8"), ("x", "8")] {
        let error = load(external("weights.bin", &[("offset", offset), ("length", length)])).unwrap_err();
        assert!(error.to_string().contains("\"w\""), "{error}");
    }
    let error = Model::from_bytes(external("weights.bin", &[]), &backend_cpu::cpu()).unwrap_err().to_string();
    assert!(error.contains("no folder"), "{error}");
}

#[test]
fn nodes_out_of_order_are_put_in_order() {
    let nodes = vec![node("Neg", &["h"], &["y"]), node("Exp", &["x"], &["h"])];
    let net = Model::from_bytes(bytes(graph(nodes, &["x"], &["y"], vec![])), &backend_cpu::cpu()).unwrap();
    let out = net.run([("x", vector(&[0.0]))]).unwrap();
    assert_eq!(out.tensor("y").unwrap().to_vec::<f32>().unwrap(), [-1.0]);
}

#[test]
fn an_error_names_the_node_and_its_operator() {
    let mut product = node("MatMul", &["x", "w"], &["y"]);
    product.name = Some("head/product".into());
    let main = graph(vec![product], &["x"], &["y"], vec![floats("w", &[3, 1], &[1.0; 3])]);
    let net = Model::from_bytes(bytes(main), &backend_cpu::cpu()).unwrap();
    let x = Tensor::zeros((1, 2), (DType::F32, &backend_cpu::cpu())).unwrap();
    let error = net.run([("x", x)]).unwrap_err().to_string();
    assert!(
        error.contains("head/product") && error.contains("MatMul") && error.contains("[1, 2]"),
        "{error}"
    );
}

/// Small constants are computed on the host and inputs on the device, so that a size decides which: both are
/// equal.
#[test]
fn results_on_the_host_are_those_of_the_device() {
    let whole = [-7, -6, -1, 0, 1, 5, 6, 7, i64::from(i32::MAX), i64::from(i32::MIN)];
    let parts = [3, -4, 5, 6, -7, -3, 4, 2, 7, 3];
    let numbers = [-2.5f32, -0.0, 0.0, 0.5, 1.5, 7.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e30];
    let others = [2.0f32, 0.0, 3.0, -0.5, -1.5, 0.0, 2.0, -3.0, 1.0, f32::NAN];
    let tensors = [
        integers("i", &[10], &whole),
        integers("j", &[10], &parts),
        floats("f", &[10], &numbers),
        floats("g", &[10], &others),
    ];
    let cut = || [("low", -20), ("high", -30), ("axis", 0), ("back", -2)];
    let settings: Vec<TensorProto> = cut().map(|(name, value)| integers(name, &[1], &[value])).into();
    let mut nodes = Vec::new();
    let mut outputs = Vec::new();
    let mut add = |op: &str, inputs: &[&str], attributes: &[(&str, i64)]| {
        let name = format!("{op}{}", outputs.len());
        let made = node(op, inputs, &[&name]);
        nodes.push(attributes.iter().fold(made, |node, (name, value)| with_int(node, name, *value)));
        outputs.push(name);
    };
    for op in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "LessOrEqual"] {
        add(op, &["i", "j"], &[]);
        add(op, &["f", "g"], &[]);
    }
    add("Mod", &["i", "j"], &[]);
    add("Mod", &["i", "j"], &[("fmod", 1)]);
    add("Mod", &["f", "g"], &[("fmod", 1)]);
    for op in ["Abs", "Neg"] {
        add(op, &["i"], &[]);
        add(op, &["f"], &[]);
    }
    for op in ["Ceil", "Floor", "Sqrt"] {
        add(op, &["f"], &[]);
    }
    for (from, to) in [("i", 1), ("i", 9), ("i", 6), ("i", 2), ("f", 9), ("f", 10)] {
        add("Cast", &[from], &[("to", to)]);
    }
    for op in ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"] {
        add(op, &["j"], &[]);
    }
    for x in ["i", "f"] {
        add("Slice", &[x, "low", "high", "axis", "back"], &[]);
        add("Gather", &[x, "back"], &[]);
        add("Expand", &[x, "wide"], &[]);
    }
    let names: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let shape = integers("wide", &[2], &[2, 10]);
    let constants: Vec<TensorProto> = settings.iter().cloned().chain([shape]).collect();
    let of = |inputs: &[&str], more: &[TensorProto]| {
        let initializers = constants.iter().chain(more).cloned().collect();
        Model::from_bytes(bytes(graph(nodes.clone(), inputs, &names, initializers)), &backend_cpu::cpu())
            .unwrap()
    };
    let device = backend_cpu::cpu();
    let on_host = of(&[], &tensors).run::<&str, onnx::Value>([]).unwrap();
    let given = [
        ("i", Tensor::new(whole, &device).unwrap()),
        ("j", Tensor::new(parts, &device).unwrap()),
        ("f", vector(&numbers)),
        ("g", vector(&others)),
    ];
    let on_device = of(&["i", "j", "f", "g"], &[]).run(given).unwrap();
    for name in &names {
        let [a, b] = [&on_host, &on_device].map(|outputs| outputs.tensor(name).unwrap());
        assert_eq!((a.dtype(), a.dims()), (b.dtype(), b.dims()), "{name}");
        let bits = |tensor: &Tensor| -> Vec<u64> {
            let numbers = tensor.to_f64_vec().unwrap();
            numbers.iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect()
        };
        assert_eq!(bits(&a), bits(&b), "{name}: {a} and {b}");
    }
}
