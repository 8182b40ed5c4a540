//! What waits to be computed on this thread, so that a loop that never looks still runs in bounded memory,
//! and so that an optimizer's step can compute whatever is still held.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use crate::{
    base::error::Result,
    graph::node::{Node, is_built_in},
    schedule::watch_flags,
};

/// Nodes that may wait before those still held are computed.
const MAX_NODES: usize = 4096;
/// Bytes of new buffers that waiting nodes may hold on to before those still held are computed.
const MAX_BYTES: usize = 256 << 20;

#[derive(Default)]
struct Pending {
    nodes: Vec<Weak<Node>>,
    bytes: usize,
    /// How many calls of [`without_bound`] are under way.
    unbounded: u32,
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// Takes note of a node that waits; computes what is held when too much waits.
pub(crate) fn register(node: &Arc<Node>) {
    if watch_flags::is_looking_for_anomalies() {
        // By itself, so that what it makes is known to be its own. Whoever looks meets a failure there.
        let _ = super::evaluate_one(node);
        return;
    }
    let full = PENDING.with_borrow_mut(|pending| {
        pending.nodes.push(Arc::downgrade(node));
        pending.unbounded == 0 && (pending.nodes.len() >= MAX_NODES || pending.bytes >= MAX_BYTES)
    });
    // What a checkpointed function records is to be forgotten, not stored.
    if full && !is_built_in() {
        // A failure leaves the nodes as they are: who looks at one of them meets the error there.
        let _ = flush();
    }
}

/// Runs `f`, in which any number of nodes may wait.
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

/// Forgets a node that was computed as soon as it was built, so that its memory can be used again.
pub(super) fn forget_last(node: &Arc<Node>) {
    PENDING.with_borrow_mut(|pending| {
        if pending.nodes.last().is_some_and(|last| std::ptr::eq(last.as_ptr(), Arc::as_ptr(node))) {
            pending.nodes.pop();
        }
    });
}

/// Takes note of a new buffer that waiting nodes may come to hold.
pub(crate) fn note_bytes(bytes: usize) {
    PENDING.with_borrow_mut(|pending| {
        if !pending.nodes.is_empty() {
            pending.bytes += bytes;
        }
    });
}

/// Computes every node built on this thread that still waits and that a user still holds.
pub(crate) fn flush() -> Result<()> {
    let nodes = PENDING.with_borrow_mut(|pending| {
        pending.bytes = 0;
        std::mem::take(&mut pending.nodes)
    });
    let held: Vec<Arc<Node>> =
        nodes.iter().filter_map(Weak::upgrade).filter(|node| node.held() && !node.has_value()).collect();
    let result = super::evaluate(held);
    // Keep the list's memory for the next round.
    PENDING.with_borrow_mut(|pending| {
        if pending.nodes.is_empty() {
            pending.nodes = nodes;
            pending.nodes.clear();
        }
    });
    result
}
