//! [`Attribute`]: a setting of a node.

use std::sync::Arc;

use tensor_core::{Error, Result};

use crate::{
    data::{External, Stored, dense},
    graph::Graph,
    proto::AttributeProto,
    value::HostTensor,
};

/// The value of a node's attribute.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Float(f32),
    Int(i64),
    Text(String),
    Tensor(Arc<HostTensor>),
    Graph(Arc<Graph>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
    /// Sparse tensors and types, which no operator here uses.
    Other,
    Graphs(Vec<Arc<Graph>>),
}

impl Attribute {
    /// The attribute of a message; graphs are compiled elsewhere.
    pub(crate) fn new(proto: &AttributeProto, external: &External) -> Result<Attribute> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let tensor = |proto| Stored::new(proto, external)?.to_host_within(&external.meter).map(Arc::new);
        // Files of IR version 1 declare no type: the field that is set determines it.
        let r#type = proto.r#type.unwrap_or(0);
        Ok(match r#type {
            1 => Attribute::Float(proto.f.unwrap_or(0.0)),
            2 => Attribute::Int(proto.i.unwrap_or(0)),
            3 => Attribute::Text(text(proto.s.as_deref().unwrap_or(&[]))),
            6 => Attribute::Floats(proto.floats.clone()),
            7 => Attribute::Ints(proto.ints.clone()),
            8 => Attribute::Texts(proto.strings.iter().map(|bytes| text(bytes)).collect()),
            9 | 12 | 14 => Attribute::Other,
            10 => Attribute::Graphs(Vec::new()),
            0 | 4 | 11 | 13 => match proto {
                AttributeProto { t: Some(proto), .. } => Attribute::Tensor(tensor(proto)?),
                AttributeProto { sparse_tensor: Some(proto), .. } => {
                    Attribute::Tensor(Arc::new(dense(proto, external)?))
                }
                AttributeProto { tp: Some(_), .. } => Attribute::Other,
                AttributeProto { f: Some(number), .. } => Attribute::Float(*number),
                AttributeProto { i: Some(number), .. } => Attribute::Int(*number),
                AttributeProto { s: Some(bytes), .. } => Attribute::Text(text(bytes)),
                _ if !proto.floats.is_empty() => Attribute::Floats(proto.floats.clone()),
                _ if !proto.strings.is_empty() => {
                    Attribute::Texts(proto.strings.iter().map(|bytes| text(bytes)).collect())
                }
                _ => Attribute::Ints(proto.ints.clone()),
            },
            _ => {
                let message =
                    format!("its type has the number {type}, which is not known here", r#type = r#type);
                return Err(Error::invalid("onnx", message));
            }
        })
    }

    /// The graphs in the attribute.
    pub(crate) fn graphs(&self) -> &[Arc<Graph>] {
        match self {
            Attribute::Graph(graph) => std::slice::from_ref(graph),
            Attribute::Graphs(graphs) => graphs,
            Attribute::Float(_)
            | Attribute::Int(_)
            | Attribute::Text(_)
            | Attribute::Tensor(_)
            | Attribute::Floats(_)
            | Attribute::Ints(_)
            | Attribute::Texts(_)
            | Attribute::Other => &[],
        }
    }
}
