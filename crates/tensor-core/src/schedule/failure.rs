//! The errors of planning and of execution, ascribed to the node that they are about.

use crate::{
    base::error::{Error, ErrorKind},
    graph::{node::Node, op::Op},
    kernels::operators::Refusal,
};

/// The error, with the node's operation and source line.
pub(super) fn blame(node: &Node, error: Error) -> Error {
    let error = match (refusal(node), error.kind()) {
        (Some(Refusal { op, message: Some(message) }), ErrorKind::IndexOutOfRange { .. }) => {
            Error::invalid(op, message)
        }
        (Some(Refusal { op, message: None }), &ErrorKind::IndexOutOfRange { index, axis, size, .. }) => {
            Error::new(ErrorKind::IndexOutOfRange { op, index, axis, size })
        }
        _ => error,
    };
    error.computing(refusal(node).map_or(node.op.name(), |refusal| refusal.op), node.location)
}

/// The error of an out-of-range index, if the node is a part of another operation.
pub(super) fn refusal(node: &Node) -> Option<Refusal> {
    if let Op::Gather { refusal, .. } = &node.op { refusal.copied() } else { None }
}
