//! The contents of an ONNX file.

use std::{collections::BTreeMap, fs, path::Path};

use prost::Message;
use serde_json::json;
use taper::onnx::{
    DataType, ValueInfo,
    proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
        ValueInfoProto,
    },
};

use super::{Contents, Row};
use crate::error::{Outcome, at};

/// The contents of a file. It may have operators that Taper lacks.
pub(super) fn contents(path: &Path) -> Outcome<Contents> {
    let bytes = fs::read(path).map_err(at(path))?;
    let model = ModelProto::decode(bytes.as_slice())
        .map_err(|error| format!("{}: this is no ONNX file: {error}", path.display()))?;
    let Some(graph) = &model.graph else {
        return Err(format!("{}: this is no ONNX file: it has no graph", path.display()).into());
    };
    let is_weight = |name: &Option<String>| graph.initializer.iter().any(|weight| weight.name == *name);
    let inputs = graph.input.iter().filter(|input| !is_weight(&input.name));
    Ok(Contents {
        format: "ONNX".to_string(),
        metadata: metadata(&model),
        inputs: described(inputs),
        outputs: described(&graph.output),
        operators: operators(graph).into_iter().collect(),
        tensors: graph.initializer.iter().map(row).chain(graph.node.iter().filter_map(constant)).collect(),
    })
}

fn described<'a>(values: impl IntoIterator<Item = &'a ValueInfoProto>) -> Vec<String> {
    values.into_iter().map(|value| ValueInfo::from(value).to_string()).collect()
}

/// The versions of the file and its operators, and its texts.
fn metadata(model: &ModelProto) -> Vec<(String, String, serde_json::Value)> {
    let mut found = Vec::new();
    let mut add = |name: &str, value: serde_json::Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        found.push((name.to_string(), text, value));
    };
    add("ir_version", json!(model.ir_version.unwrap_or(0)));
    for opset in &model.opset_import {
        let domain = opset.domain.as_deref().filter(|domain| !domain.is_empty()).unwrap_or("ai.onnx");
        add(&format!("opset.{domain}"), json!(opset.version.unwrap_or(0)));
    }
    for (name, text) in [
        ("producer_name", &model.producer_name),
        ("producer_version", &model.producer_version),
        ("doc_string", &model.doc_string),
    ] {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            add(name, json!(text));
        }
    }
    for StringStringEntryProto { key, value } in &model.metadata_props {
        add(key.as_deref().unwrap_or_default(), json!(value.as_deref().unwrap_or_default()));
    }
    found
}

/// How many nodes have each operator, in all graphs of the file.
fn operators(graph: &GraphProto) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut graphs = vec![graph];
    while let Some(graph) = graphs.pop() {
        for node in &graph.node {
            *counts.entry(operator(node)).or_insert(0) += 1;
            graphs.extend(node.attribute.iter().flat_map(AttributeProto::all_graphs));
        }
    }
    counts
}

/// The operator of a node, with its domain if that is not ONNX's own.
fn operator(node: &NodeProto) -> String {
    let name = node.op_type.as_deref().unwrap_or_default();
    match node.domain.as_deref() {
        None | Some("" | "ai.onnx") => name.to_string(),
        Some(domain) => format!("{domain}.{name}"),
    }
}

/// The array of a constant node, as some programs write weights; numbers without axes are left out.
fn constant(node: &NodeProto) -> Option<Row> {
    let tensor = node.attribute.iter().find_map(|attribute| attribute.t.as_ref());
    let tensor = tensor.filter(|tensor| operator(node) == "Constant" && !tensor.dims.is_empty())?;
    Some(Row { name: node.output.first()?.clone(), ..row(tensor) })
}

/// A weight. Integers below 8 bits take a byte each once they are loaded.
fn row(weight: &TensorProto) -> Row {
    let data_type = DataType::from_onnx(weight.data_type.unwrap_or(0));
    let shape: Vec<usize> = weight.dims.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
    let size = data_type.and_then(DataType::dtype).map(|dtype| dtype.size() as u64);
    Row {
        name: weight.name.clone().unwrap_or_default(),
        type_name: data_type.map_or_else(|| "unknown".to_string(), |data_type| data_type.to_string()),
        bytes: size.map(|size| size * shape.iter().product::<usize>() as u64),
        shape,
    }
}
