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
/// The nodes that are listed between two searches for those that are no longer pending: while a graph is
/// built, and at the end of an evaluation.
const NODES_BETWEEN_SEARCHES: usize = MAX_NODES / 2;
const NODES_UNTIL_EVALUATED: usize = 512;
/// The bytes of new buffers of pending nodes at which those still held are computed.
const MAX_BYTES: usize = 256 << 20;

#[derive(Default)]
struct Pending {
    /// The nodes built since the last flush. Some have been computed or dropped since.
    nodes: Vec<Weak<Node>>,
    /// The number of nodes that were pending at the last search.
    found: usize,
    bytes: usize,
    /// The nesting depth of [`without_bound`].
    unbounded: u32,
}

impl Pending {
    fn may_be_full(&self) -> bool {
        let many = self.nodes.len() >= MAX_NODES.max(self.found + NODES_BETWEEN_SEARCHES);
        self.unbounded == 0 && (many || self.bytes >= MAX_BYTES)
    }
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// Registers a pending node; computes the held nodes if too many are pending.
pub(crate) fn register(node: &Arc<Node>) {
    if watch_flags::computes_each_operation() {
        // Evaluated by itself, so that its outputs are known to be its own. A failure is met by the
        // reader.
        let _ = super::evaluate_one(node);
        return;
    }
    let full = PENDING.with_borrow_mut(|pending| {
        pending.nodes.push(Arc::downgrade(node));
        pending.may_be_full()
    });
    // A checkpointed function's nodes are to be dropped, not stored.
    if full && !is_built_in() && is_full() {
        // A failure leaves the nodes pending; a reader of one meets the error again.
        let _ = flush();
    }
}

/// Whether the held nodes are to be computed.
fn is_full() -> bool {
    forget_computed();
    PENDING.with_borrow(|pending| pending.found >= MAX_NODES || pending.bytes >= MAX_BYTES)
}

/// Takes nodes off the list that have been computed or dropped. Only pending ones count towards the bounds:
/// otherwise a loop that reads its results would be cut at another place of its body each time, and each cut
/// makes a graph of another form, which needs a new plan.
fn forget_computed() {
    // A node that another thread drops meanwhile is dropped here, where nothing is borrowed.
    let mut nodes = PENDING.with_borrow_mut(|pending| std::mem::take(&mut pending.nodes));
    nodes.retain(|node| node.upgrade().is_some_and(|node| !node.has_value()));
    PENDING.with_borrow_mut(|pending| {
        nodes.append(&mut pending.nodes);
        pending.nodes = nodes;
        pending.found = pending.nodes.len();
        if pending.found <= 1 {
            // Only the newest node is left, so that no older one holds the bytes.
            pending.bytes = 0;
        }
    });
}

/// The end of an evaluation: what is pending from now on starts at the same place of a loop's body each time.
pub(super) fn after_evaluation() {
    if PENDING.with_borrow(|pending| pending.nodes.len() >= 2 * pending.found + NODES_UNTIL_EVALUATED) {
        forget_computed();
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

/// A pending node of this thread that a user holds, and for which `wanted` holds.
pub(super) fn find(wanted: impl Fn(&Node) -> bool) -> Option<Arc<Node>> {
    PENDING.with_borrow(|pending| {
        let alive = pending.nodes.iter().filter_map(Weak::upgrade);
        // A node that another thread drops meanwhile is dropped by the caller.
        alive.into_iter().find(|node| node.held() && !node.has_value() && wanted(node))
    })
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
    if super::capture::is_capturing() {
        return Ok(());
    }
    let nodes = PENDING.with_borrow_mut(|pending| {
        pending.bytes = 0;
        pending.found = 0;
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
