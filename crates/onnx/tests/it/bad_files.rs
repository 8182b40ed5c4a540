//! Files that are broken or hostile give an error that names what is wrong, and never panic.

use onnx::{
    Model,
    proto::{FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto},
};
use prost::Message;
use tensor_core::Error;

use crate::{
    build::{bytes, floats, graph, integers, model_of, node, node_of, with_graph},
    model,
};

fn load(bytes: Vec<u8>) -> Result<Model, Error> {
    Model::from_bytes(bytes, &backend_cpu::cpu())
}

#[track_caller]
fn refused(bytes: Vec<u8>, parts: &[&str]) {
    let error = load(bytes).expect_err("a model that was to be refused").to_string();
    for part in parts {
        assert!(error.contains(part), "\"{part}\" is not in: {error}");
    }
}

fn simple(nodes: Vec<NodeProto>, initializers: Vec<TensorProto>) -> Vec<u8> {
    bytes(graph(nodes, &["x"], &["y"], initializers))
}

#[test]
fn bytes_that_are_no_model() {
    refused(Vec::new(), &["no graph"]);
    refused(vec![0xff; 40], &["no ONNX model"]);
    refused(b"\x89PNG\r\n\x1a\n".to_vec(), &["no ONNX model"]);
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let whole = std::fs::read(model("ch_ppocr_mobile_v2.0_cls_infer.onnx")).unwrap();
    for part in 1..64 {
        let cut = whole[..whole.len() * part / 64].to_vec();
        assert!(load(cut).is_err(), "{part} of 64 parts");
    }
}

#[test]
fn names_and_cycles() {
    refused(simple(vec![node("Neg", &["z"], &["y"])], vec![]), &["\"z\"", "no node"]);
    refused(simple(vec![], vec![]), &["\"y\""]);
    refused(
        simple(vec![node("Neg", &["x"], &["y"]), node("Abs", &["x"], &["y"])], vec![]),
        &["\"y\"", "twice"],
    );
    refused(
        simple(vec![node("Neg", &["x"], &["y"])], vec![floats("w", &[1], &[0.0]), floats("w", &[1], &[0.0])]),
        &["\"w\"", "twice"],
    );
    refused(
        simple(
            vec![node("Add", &["x", "b"], &["a"]), node("Neg", &["a"], &["b"]), node("Abs", &["b"], &["y"])],
            vec![],
        ),
        &["cycle", "Add"],
    );
}

#[test]
fn missing_operators_are_told_all_at_once() {
    let nodes = vec![
        node("Unheard", &["x"], &["a"]),
        node_of("own", "Other", &["a"], &["b"]),
        node("Unheard", &["b"], &["y"]),
    ];
    refused(
        simple(nodes, vec![]),
        &["ai.onnx::Unheard of version 20, 2 times", "own::Other of version 1, 1 times"],
    );
    refused(
        simple(vec![node_of("strange", "Op", &["x"], &["y"])], vec![]),
        &["strange", "imports no version"],
    );
}

#[test]
fn tensors_that_are_not_there() {
    let with = |tensor: TensorProto| simple(vec![node("Add", &["x", "w"], &["y"])], vec![tensor]);
    refused(with(floats("w", &[1 << 40], &[0.0])), &["\"w\"", "1099511627776"]);
    refused(with(floats("w", &[i64::MAX, i64::MAX], &[0.0])), &["\"w\""]);
    refused(with(floats("w", &[-1], &[0.0])), &["\"w\"", "-1"]);
    refused(with(floats("w", &[2], &[0.0])), &["\"w\"", "[2]"]);
    refused(with(TensorProto { data_type: Some(99), ..floats("w", &[1], &[0.0]) }), &["\"w\"", "99"]);
    let raw = TensorProto { raw_data: Some(vec![0; 3].into()), ..floats("w", &[1], &[]) };
    refused(with(raw), &["\"w\"", "3 bytes"]);
}

#[test]
fn newer_operators_and_functions_that_call_themselves() {
    let mut newer = model_of(graph(vec![node("Neg", &["x"], &["y"])], &["x"], &["y"], vec![]), vec![]);
    newer.opset_import = vec![OperatorSetIdProto { domain: None, version: Some(1000) }];
    refused(newer.encode_to_vec(), &["1000"]);
    let function = |name: &str, calls: &str| FunctionProto {
        name: Some(name.into()),
        domain: Some("own".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: vec![node_of("own", calls, &["a"], &["b"])],
        ..Default::default()
    };
    let main = || graph(vec![node_of("own", "F", &["x"], &["y"])], &["x"], &["y"], vec![]);
    refused(model_of(main(), vec![function("F", "F")]).encode_to_vec(), &["nested"]);
    refused(model_of(main(), vec![function("F", "G"), function("G", "F")]).encode_to_vec(), &["nested"]);
}

/// Each function calls the next one several times: written out they would be more nodes than memory holds.
#[test]
fn functions_that_multiply() {
    let function = |level: usize| {
        let calls = (0..40).map(|k| {
            let from = if k == 0 { "a".to_string() } else { format!("t{}", k - 1) };
            let to = if k == 39 { "b".to_string() } else { format!("t{k}") };
            match level {
                7 => node("Neg", &[&from], &[&to]),
                level => node_of("own", &format!("F{}", level + 1), &[&from], &[&to]),
            }
        });
        FunctionProto {
            name: Some(format!("F{level}")),
            domain: Some("own".into()),
            input: vec!["a".into()],
            output: vec!["b".into()],
            node: calls.collect(),
            opset_import: vec![
                OperatorSetIdProto { domain: None, version: Some(20) },
                OperatorSetIdProto { domain: Some("own".into()), version: Some(1) },
            ],
            ..Default::default()
        }
    };
    let main = graph(vec![node_of("own", "F0", &["x"], &["y"])], &["x"], &["y"], vec![]);
    refused(model_of(main, (0..8).map(function).collect()).encode_to_vec(), &["nodes"]);
}

#[test]
fn deep_nesting_is_refused() {
    let mut inner = graph(vec![node("Neg", &["x"], &["y0"])], &[], &["y0"], vec![]);
    for depth in 1..200 {
        let name = format!("y{depth}");
        let branch = with_graph(node("If", &["c"], &[&name]), "then_branch", inner.clone());
        inner = graph(vec![branch], &[], &[&name], vec![]);
    }
    let mut main: GraphProto = inner;
    main.input = graph(vec![], &["x", "c"], &[], vec![]).input;
    assert!(load(bytes(main)).is_err());
}

#[test]
fn a_million_nodes_load() {
    let count = 1_000_000;
    let name = |at: usize| if at == 0 { "x".to_string() } else { format!("v{at}") };
    let mut nodes: Vec<NodeProto> =
        (0..count).map(|at| node("Identity", &[&name(at)], &[&name(at + 1)])).collect();
    // The last first: the order is found without recursion.
    nodes.reverse();
    let last = name(count);
    let net = load(bytes(graph(nodes, &["x"], &[&last], vec![]))).unwrap();
    let x = tensor_core::Tensor::new([3.0f32], &backend_cpu::cpu()).unwrap();
    let out = net.run([("x", x)]).unwrap();
    assert_eq!(out.tensor(&last).unwrap().to_vec::<f32>().unwrap(), [3.0]);
}

/// Numbers without a pattern (xorshift).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Bytes of a small model with some replaced, and bytes of nothing at all: loading gives a model or an error.
#[test]
fn random_bytes_never_panic() {
    let body = graph(vec![node("Add", &["s", "x"], &["n"])], &["i", "c", "s"], &["c", "n"], vec![]);
    let whole = simple(
        vec![
            with_graph(node("Loop", &["count", "", "x"], &["h"]), "body", body),
            node("Reshape", &["h", "shape"], &["r"]),
            node("Mul", &["r", "w"], &["y"]),
        ],
        vec![floats("w", &[2], &[1.0, 2.0]), integers("shape", &[1], &[-1]), integers("count", &[], &[2])],
    );
    assert!(load(whole.clone()).is_ok());
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for round in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(&mut state) % 6 {
            let at = random(&mut state) as usize % bytes.len();
            bytes[at] = random(&mut state) as u8;
        }
        if round % 5 == 0 {
            bytes = (0..random(&mut state) % 300).map(|_| random(&mut state) as u8).collect();
        }
        // Loading may succeed or fail; it must not panic.
        let _ = load(bytes);
    }
}
