//! The errors of planning and of execution, ascribed to the node that they are about.

use crate::{
    base::error::{Error, ErrorKind},
    graph::{node::Node, op::Op},
    kernels::operators::Refusal,
};

/// The error, with the node's operation and source line.
pub(super) fn blame(node: &Node, error: Error) -> Error {
    let error = match refusal(node) {
        Some(refusal) if matches!(error.kind(), ErrorKind::IndexOutOfRange { .. }) => {
            Error::invalid(refusal.op, refusal.message)
        }
        _ => error,
    };
    error.computing(refusal(node).map_or(node.op.name(), |refusal| refusal.op), node.location)
}

/// The error of an out-of-range index that is not the user's own.
pub(super) fn refusal(node: &Node) -> Option<Refusal> {
    if let Op::Gather { refusal, .. } = &node.op { refusal.copied() } else { None }
}
