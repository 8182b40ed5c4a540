//! The operations that a program builds during a profile: when, from which inputs, and by which gradient
//! rule.

use std::{
    panic::Location,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use web_time::Instant;

use crate::base::sync::lock;

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

/// A node as it is noted: see [`BuiltOperation`].
pub(super) struct NewNode {
    pub(super) id: u64,
    pub(super) op: &'static str,
    pub(super) location: &'static Location<'static>,
    pub(super) inputs: Vec<u64>,
    pub(super) gradient_of: Option<u64>,
    pub(super) is_element: bool,
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

pub(super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

pub(super) fn note(node: NewNode) {
    if let Some((begin, built)) = &mut *lock(&LOG) {
        let NewNode { id, op, location, inputs, gradient_of, is_element } = node;
        let time = begin.elapsed();
        built.push(BuiltOperation { id, op, location, inputs, gradient_of, is_element, time });
    }
}
