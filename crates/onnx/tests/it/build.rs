//! Small models, written as messages.

use onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use prost::Message;

/// A node without attributes.
pub(crate) fn node(op_type: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: Some(op_type.into()),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: outputs.iter().map(ToString::to_string).collect(),
        ..Default::default()
    }
}

/// A node of a domain.
pub(crate) fn node_of(domain: &str, op_type: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto { domain: Some(domain.into()), ..node(op_type, inputs, outputs) }
}

/// The node with an integer attribute.
pub(crate) fn with_int(mut node: NodeProto, name: &str, value: i64) -> NodeProto {
    let attribute =
        AttributeProto { name: Some(name.into()), r#type: Some(2), i: Some(value), ..Default::default() };
    node.attribute.push(attribute);
    node
}

/// The node with a graph in it.
pub(crate) fn with_graph(mut node: NodeProto, name: &str, graph: GraphProto) -> NodeProto {
    let attribute = AttributeProto {
        name: Some(name.into()),
        r#type: Some(5),
        g: Some(Box::new(graph)),
        ..Default::default()
    };
    node.attribute.push(attribute);
    node
}

/// A tensor of floats.
pub(crate) fn floats(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(1),
        float_data: data.to_vec(),
        ..Default::default()
    }
}

/// A tensor of i64.
pub(crate) fn integers(name: &str, dims: &[i64], data: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(7),
        int64_data: data.to_vec(),
        ..Default::default()
    }
}

/// A graph.
pub(crate) fn graph(
    nodes: Vec<NodeProto>,
    inputs: &[&str],
    outputs: &[&str],
    initializer: Vec<TensorProto>,
) -> GraphProto {
    let info = |name: &&str| ValueInfoProto { name: Some(name.to_string()), ..Default::default() };
    GraphProto {
        node: nodes,
        input: inputs.iter().map(info).collect(),
        output: outputs.iter().map(info).collect(),
        initializer,
        ..Default::default()
    }
}

/// A model of version 20 of ONNX's operators, with a domain of the model's own.
pub(crate) fn model_of(graph: GraphProto, functions: Vec<FunctionProto>) -> ModelProto {
    let import =
        |domain: &str, version| OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) };
    ModelProto {
        ir_version: Some(9),
        opset_import: vec![import("", 20), import("own", 1)],
        graph: Some(graph),
        functions,
        ..Default::default()
    }
}

/// The bytes of a model without functions.
pub(crate) fn bytes(graph: GraphProto) -> Vec<u8> {
    model_of(graph, Vec::new()).encode_to_vec()
}

/// The bytes of a model that imports a further domain.
pub(crate) fn bytes_in(graph: GraphProto, domain: &str) -> Vec<u8> {
    let mut model = model_of(graph, Vec::new());
    let import = OperatorSetIdProto { domain: Some(domain.into()), version: Some(1) };
    model.opset_import.push(import);
    model.encode_to_vec()
}

/// A tensor of an integer type that ONNX stores as i32; elements of four bits are given as pairs.
pub(crate) fn integers_of(data_type: i32, name: &str, dims: &[i64], data: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(data_type),
        int32_data: data.iter().map(|&x| x as i32).collect(),
        ..Default::default()
    }
}

/// A tensor of i8.
pub(crate) fn bytes_of(name: &str, dims: &[i64], data: &[i8]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(3),
        int32_data: data.iter().map(|&x| x.into()).collect(),
        ..Default::default()
    }
}
