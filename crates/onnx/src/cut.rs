//! Cutting a graph at chosen values, and dropping what they do not need.

use std::collections::{HashMap, HashSet};

use tensor_core::{Error, Result, near_names};

use crate::proto::{AttributeProto, GraphProto, ValueInfoProto};

/// The number of names that an error lists if none is near the one asked for.
const NAMES_LISTED: usize = 8;

/// The names of all values of a graph: its inputs, and then the outputs of its nodes in their order.
pub(crate) fn value_names(graph: &GraphProto) -> Vec<String> {
    let inputs = graph.input.iter().filter_map(|input| input.name.clone());
    let outputs = graph.node.iter().flat_map(|node| node.output.iter().cloned());
    inputs.chain(outputs).filter(|name| !name.is_empty()).collect()
}

/// The graph with these outputs, and only the nodes, initializers and inputs that they need.
pub(crate) fn cut(graph: &GraphProto, outputs: &[String]) -> Result<GraphProto> {
    let mut types: HashMap<&str, &ValueInfoProto> = HashMap::new();
    for value in graph.value_info.iter().chain(&graph.input).chain(&graph.output) {
        types.insert(value.name.as_deref().unwrap_or(""), value);
    }
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (at, node) in graph.node.iter().enumerate() {
        makers.extend(node.output.iter().filter(|name| !name.is_empty()).map(|name| (name.as_str(), at)));
    }
    let inputs: HashSet<&str> = graph.input.iter().filter_map(|input| input.name.as_deref()).collect();
    for name in outputs {
        if !makers.contains_key(name.as_str()) && !inputs.contains(name.as_str()) {
            return Err(unknown(name, graph));
        }
    }
    // Backward from the outputs. A node in a loop's or a branch's graph reads values of this one by name.
    let mut needed: HashSet<&str> = HashSet::new();
    let mut nodes = vec![false; graph.node.len()];
    let mut queue: Vec<&str> = outputs.iter().map(String::as_str).collect();
    while let Some(name) = queue.pop() {
        if !needed.insert(name) {
            continue;
        }
        let Some(&at) = makers.get(name) else { continue };
        if !std::mem::replace(&mut nodes[at], true) {
            let node = &graph.node[at];
            queue.extend(node.input.iter().map(String::as_str));
            let graphs = node.attribute.iter().flat_map(AttributeProto::all_graphs);
            graphs.for_each(|graph| read_by(graph, &mut queue));
        }
    }
    let is_needed = |name: &Option<String>| name.as_deref().is_some_and(|name| needed.contains(name));
    let typed = |name: &String| match types.get(name.as_str()) {
        Some(value) => (*value).clone(),
        None => ValueInfoProto { name: Some(name.clone()), ..Default::default() },
    };
    let keep = |at: &usize| nodes[*at];
    Ok(GraphProto {
        node: (0..nodes.len()).filter(keep).map(|at| graph.node[at].clone()).collect(),
        name: graph.name.clone(),
        initializer: graph.initializer.iter().filter(|tensor| is_needed(&tensor.name)).cloned().collect(),
        sparse_initializer: graph
            .sparse_initializer
            .iter()
            .filter(|tensor| tensor.values.as_ref().is_some_and(|values| is_needed(&values.name)))
            .cloned()
            .collect(),
        doc_string: graph.doc_string.clone(),
        input: graph.input.iter().filter(|input| is_needed(&input.name)).cloned().collect(),
        output: outputs.iter().map(typed).collect(),
        value_info: graph.value_info.iter().filter(|value| is_needed(&value.name)).cloned().collect(),
    })
}

/// The names that a graph within a node reads, its own values among them.
fn read_by<'a>(graph: &'a GraphProto, names: &mut Vec<&'a str>) {
    // A loop and no recursion: a file may nest graphs deeply.
    let mut graphs = vec![graph];
    while let Some(graph) = graphs.pop() {
        names.extend(graph.output.iter().filter_map(|output| output.name.as_deref()));
        for node in &graph.node {
            names.extend(node.input.iter().map(String::as_str));
            for attribute in &node.attribute {
                graphs.extend(attribute.all_graphs());
            }
        }
    }
}

fn unknown(name: &str, graph: &GraphProto) -> Error {
    let names = value_names(graph);
    let near = near_names(name, names.iter().map(String::as_str));
    let known = if near.is_empty() {
        let listed: Vec<&String> = names.iter().rev().take(NAMES_LISTED).collect();
        format!("the last of its values are {listed:?}, and Model::value_names lists all")
    } else {
        format!("near it are {near:?}")
    };
    Error::invalid("onnx", format!("the graph has no value \"{name}\" to be an output; {known}"))
}
