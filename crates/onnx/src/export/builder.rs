//! [`Builder`]: the nodes and initializers of the graph that is written, with their names.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tensor_core::{DType, Scalar};

use crate::proto::{AttributeProto, NodeProto, TensorProto};

/// Numbers of `AttributeProto.AttributeType`.
const FLOAT: i32 = 1;
const INT: i32 = 2;
const STRING: i32 = 3;
const INTS: i32 = 7;
const STRINGS: i32 = 8;

/// The graph so far.
pub(super) struct Builder {
    /// The version of ONNX's operators.
    pub(super) opset: i64,
    /// The path of the module whose operations are added, which begins the names of nodes.
    pub(super) scope: String,
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
    /// Initializers that are no weights, by type, shape and elements.
    constants: HashMap<(i32, Vec<i64>, Vec<u8>), String>,
    taken: HashSet<String>,
    /// For a name that was taken, the number of the last name that was derived from it.
    counts: HashMap<String, usize>,
}

impl Builder {
    pub(super) fn new(opset: i64) -> Builder {
        Builder {
            opset,
            scope: String::new(),
            nodes: Vec::new(),
            initializers: Vec::new(),
            constants: HashMap::new(),
            taken: HashSet::new(),
            counts: HashMap::new(),
        }
    }

    /// Takes a name; `false` if it is taken already.
    pub(super) fn take(&mut self, name: &str) -> bool {
        self.taken.insert(name.into())
    }

    /// A name that begins like this and is not taken.
    fn unique(&mut self, base: &str) -> String {
        if self.taken.insert(base.into()) {
            return base.into();
        }
        loop {
            let count = self.counts.entry(base.into()).or_insert(0);
            *count += 1;
            let name = format!("{base}_{count}");
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    /// Adds a node with one output, and returns the output's name.
    pub(super) fn node(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        attributes: impl IntoIterator<Item = AttributeProto>,
    ) -> String {
        self.node_of(op_type, inputs, 1, attributes).swap_remove(0)
    }

    /// Adds a node with several outputs, and returns their names.
    pub(super) fn node_of(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        outputs: usize,
        attributes: impl IntoIterator<Item = AttributeProto>,
    ) -> Vec<String> {
        let base = match self.scope.as_str() {
            "" => format!("/{op_type}"),
            scope => format!("/{}/{op_type}", scope.replace('.', "/")),
        };
        let name = self.unique(&base);
        let output: Vec<String> = (0..outputs).map(|k| self.unique(&format!("{name}_output_{k}"))).collect();
        self.nodes.push(NodeProto {
            input: inputs.iter().map(ToString::to_string).collect(),
            output: output.clone(),
            name: Some(name),
            op_type: Some(op_type.into()),
            attribute: attributes.into_iter().collect(),
            ..Default::default()
        });
        output
    }

    /// Adds an initializer under a name that was taken for it.
    pub(super) fn initializer(&mut self, name: &str, dtype: DType, dims: &[usize], bytes: Vec<u8>) {
        self.initializers.push(TensorProto {
            dims: dims.iter().map(|&size| size as i64).collect(),
            data_type: Some(dtype.info().onnx as i32),
            name: Some(name.into()),
            raw_data: Some(Bytes::from(bytes)),
            ..Default::default()
        });
    }

    /// The name of an initializer with these elements; equal ones are stored once.
    pub(super) fn constant(&mut self, dtype: DType, dims: &[usize], bytes: Vec<u8>) -> String {
        let sizes = dims.iter().map(|&size| size as i64).collect();
        let key = (dtype.info().onnx as i32, sizes, bytes);
        if let Some(name) = self.constants.get(&key) {
            return name.clone();
        }
        let name = self.unique("constant");
        self.initializer(&name, dtype, dims, key.2.clone());
        self.constants.insert(key, name.clone());
        name
    }

    /// A vector of i64.
    pub(super) fn ints(&mut self, values: &[i64]) -> String {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(DType::I64, &[values.len()], bytes)
    }

    /// A 0-d tensor.
    pub(super) fn scalar(&mut self, value: Scalar, dtype: DType) -> String {
        self.constant(dtype, &[], Scalar::to_bytes(dtype, &[value]))
    }

    /// A 0-d tensor of this number.
    pub(super) fn number(&mut self, value: f64, dtype: DType) -> String {
        self.scalar(Scalar::Float(value).cast(dtype), dtype)
    }

    /// Adds a conversion to a type, unless the value has it.
    pub(super) fn cast(&mut self, value: &str, from: DType, to: DType) -> String {
        if from == to {
            return value.into();
        }
        self.node("Cast", &[value], [int("to", i64::from(to.info().onnx))])
    }

    /// Gives values other names, everywhere.
    pub(super) fn rename(&mut self, names: &HashMap<String, String>) {
        let values = self.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output));
        for value in values {
            if let Some(name) = names.get(value) {
                value.clone_from(name);
            }
        }
    }

    /// Whether a node makes the value, as opposed to an input or an initializer.
    pub(super) fn is_made(&self, value: &str) -> bool {
        self.nodes.iter().any(|node| node.output.iter().any(|output| output == value))
    }

    pub(super) fn finish(self) -> (Vec<NodeProto>, Vec<TensorProto>) {
        (self.nodes, self.initializers)
    }
}

fn attribute(name: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(r#type), ..Default::default() }
}

/// An integer attribute.
pub(super) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, INT) }
}

/// An attribute of integers.
pub(super) fn ints(name: &str, values: impl IntoIterator<Item = i64>) -> AttributeProto {
    AttributeProto { ints: values.into_iter().collect(), ..attribute(name, INTS) }
}

/// A float attribute.
pub(super) fn float(name: &str, value: f64) -> AttributeProto {
    AttributeProto { f: Some(value as f32), ..attribute(name, FLOAT) }
}

/// A text attribute.
pub(super) fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: Some(Bytes::copy_from_slice(value.as_bytes())), ..attribute(name, STRING) }
}

/// An attribute of texts.
pub(super) fn texts(name: &str, values: &[&str]) -> AttributeProto {
    let strings = values.iter().map(|value| Bytes::copy_from_slice(value.as_bytes())).collect();
    AttributeProto { strings, ..attribute(name, STRINGS) }
}

/// The inputs without those at the end that are not given.
pub(super) fn given(names: &[String]) -> Vec<&str> {
    let count = names.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
    names[..count].iter().map(String::as_str).collect()
}
