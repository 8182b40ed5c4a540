//! The operations that a program builds during a profile: when, from which inputs, and by which gradient
//! rule.

use std::{
    panic::Location,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use web_time::Instant;

use crate::{
    base::{origin::gradient_rule, sync::lock},
    graph::{node::Node, op::Op},
};

/// An operation that was built during a profile.
#[derive(Clone, Debug)]
pub struct BuiltOperation {
    /// The id of its tensor.
    pub id: u64,
    /// The operation's name.
    pub op: &'static str,
    /// The line that built it; for a part of a gradient, the line of its forward operation.
    pub location: &'static Location<'static>,
    /// The ids of its inputs, in order. A parameter's own id stands in place of its value's.
    pub inputs: Vec<u64>,
    /// The operation whose gradient rule built it.
    pub gradient_of: Option<u64>,
    /// Whether it is one of several results of its only input.
    pub is_element: bool,
    /// The time from the start of the profile.
    pub time: Duration,
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static LOG: Mutex<Option<(Instant, Vec<BuiltOperation>)>> = Mutex::new(None);

/// Begins to note operations.
pub(crate) fn begin(now: Instant) {
    *lock(&LOG) = Some((now, Vec::new()));
    IS_ON.store(true, Ordering::SeqCst);
}

/// Ends it, and returns the operations in the order in which they were built.
pub(crate) fn end() -> Vec<BuiltOperation> {
    IS_ON.store(false, Ordering::SeqCst);
    lock(&LOG).take().map_or_else(Vec::new, |(_, built)| built)
}

/// Notes a node that was just built, if a profile is being taken.
pub(super) fn note(node: &Arc<Node>) {
    if IS_ON.load(Ordering::Relaxed) {
        note_down(node);
    }
}

#[cold]
fn note_down(node: &Arc<Node>) {
    let number =
        |input: &Arc<Node>| input.leaf.get().and_then(Weak::upgrade).map_or(input.id, |cell| cell.id);
    let inputs = lock(&node.state).inputs.clone();
    if let Some((begin, built)) = &mut *lock(&LOG) {
        built.push(BuiltOperation {
            id: node.id,
            op: node.op.name(),
            location: node.location,
            inputs: inputs.iter().map(number).collect(),
            gradient_of: gradient_rule().map(|operation| operation.id),
            is_element: matches!(node.op, Op::TupleElement { .. }),
            time: begin.elapsed(),
        });
    }
}
