//! The operations that a program builds during a profile: when, from which inputs, and by which gradient
//! rule.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use web_time::Instant;

use crate::base::{location::Location, sync::lock};

/// An operation that was built during a profile.
#[derive(Clone, Debug)]
pub struct BuiltOperation {
    /// The id of its tensor.
    pub id: u64,
    /// The operation's name.
    pub op: &'static str,
    /// The line that built it; for a part of a gradient, the line of its forward operation.
    pub location: Location,
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

/// Whether a profile is being taken.
pub(super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Notes an operation that was just built, from the time since the profile began.
pub(super) fn note(built_at: impl FnOnce(Duration) -> BuiltOperation) {
    if let Some((begin, built)) = &mut *lock(&LOG) {
        built.push(built_at(begin.elapsed()));
    }
}
