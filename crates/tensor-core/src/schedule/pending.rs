//! The pending nodes of this thread: they are bounded, so that a loop that never reads a value runs in
//! bounded memory, and an optimizer's step can compute all nodes that are still held.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use crate::{
    base::error::Result,
    graph::node::{Node, is_built_in},
    schedule::watch_flags,
};

/// The number of pending nodes at which those still held are computed.
const MAX_NODES: usize = 4096;
/// The bytes of new buffers of pending nodes at which those still held are computed.
const MAX_BYTES: usize = 256 << 20;

#[derive(Default)]
struct Pending {
    nodes: Vec<Weak<Node>>,
    bytes: usize,
    /// The nesting depth of [`without_bound`].
    unbounded: u32,
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// Registers a pending node; computes the held nodes if too many are pending.
pub(crate) fn register(node: &Arc<Node>) {
    if watch_flags::is_looking_for_anomalies() {
        // Evaluated by itself, so that its outputs are known to be its own. A failure is met by the
        // reader.
        let _ = super::evaluate_one(node);
        return;
    }
    let full = PENDING.with_borrow_mut(|pending| {
        pending.nodes.push(Arc::downgrade(node));
        pending.unbounded == 0 && (pending.nodes.len() >= MAX_NODES || pending.bytes >= MAX_BYTES)
    });
    // A checkpointed function's nodes are to be dropped, not stored.
    if full && !is_built_in() {
        // A failure leaves the nodes pending; a reader of one meets the error again.
        let _ = flush();
    }
}

/// Runs `f` without a bound on pending nodes.
pub(crate) fn without_bound<R>(f: impl FnOnce() -> R) -> R {
    struct Running;
    impl Drop for Running {
        fn drop(&mut self) {
            PENDING.with_borrow_mut(|pending| pending.unbounded -= 1);
        }
    }
    PENDING.with_borrow_mut(|pending| pending.unbounded += 1);
    let _running = Running;
    f()
}

/// Removes a node that was computed as soon as it was built, so that its memory can be reused.
pub(super) fn forget_last(node: &Arc<Node>) {
    PENDING.with_borrow_mut(|pending| {
        if pending.nodes.last().is_some_and(|last| std::ptr::eq(last.as_ptr(), Arc::as_ptr(node))) {
            pending.nodes.pop();
        }
    });
}

/// Counts the bytes of a new buffer that pending nodes may come to hold.
pub(crate) fn note_bytes(bytes: usize) {
    PENDING.with_borrow_mut(|pending| {
        if !pending.nodes.is_empty() {
            pending.bytes += bytes;
        }
    });
}

/// Computes every pending node that this thread built and that a user still holds.
pub(crate) fn flush() -> Result<()> {
    let nodes = PENDING.with_borrow_mut(|pending| {
        pending.bytes = 0;
        std::mem::take(&mut pending.nodes)
    });
    let held: Vec<Arc<Node>> =
        nodes.iter().filter_map(Weak::upgrade).filter(|node| node.held() && !node.has_value()).collect();
    let result = super::evaluate(held);
    // The list's memory is kept for reuse.
    PENDING.with_borrow_mut(|pending| {
        if pending.nodes.is_empty() {
            pending.nodes = nodes;
            pending.nodes.clear();
        }
    });
    result
}
