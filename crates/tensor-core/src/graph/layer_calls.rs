//! The calls of layers: which tensors each has built. The layers of `nn` note them while
//! [`record_layer_calls`] is on, so that a graph and a profile can be shown by layer.

use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{base::sync::lock, graph::node};

/// The number of calls that are kept; older ones are forgotten.
const MAX_CALLS: usize = 1 << 14;

static IS_ON: AtomicBool = AtomicBool::new(false);
static CALLS: Mutex<VecDeque<LayerCall>> = Mutex::new(VecDeque::new());

/// A call of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerCall {
    /// The name of the layer's type, such as `Linear`.
    pub kind: Cow<'static, str>,
    /// The ids of the tensors that the call built: `first` to `end`, without `end`. Threads number their
    /// tensors in blocks, so that a call that runs beside another thread's may contain ids of that thread.
    pub first: u64,
    /// See `first`.
    pub end: u64,
}

/// Begins to note the calls of layers, or stops and forgets them. While it is off, a call costs one relaxed
/// load more.
pub fn record_layer_calls(on: bool) {
    IS_ON.store(on, Ordering::SeqCst);
    if !on {
        lock(&CALLS).clear();
    }
}

/// The beginning of a call, for [`end_layer_call`]; none while calls are not noted.
#[must_use]
pub fn begin_layer_call() -> Option<u64> {
    IS_ON.load(Ordering::Relaxed).then(node::next_number)
}

/// Notes a call that has ended.
pub fn end_layer_call(begun: Option<u64>, kind: impl FnOnce() -> Cow<'static, str>) {
    if let Some(first) = begun {
        let end = node::next_number();
        let mut calls = lock(&CALLS);
        if calls.len() >= MAX_CALLS {
            calls.pop_front();
        }
        calls.push_back(LayerCall { kind: kind(), first, end });
    }
}

/// The noted calls: each before those that it contains. A call that only passes on its input to another one
/// stands for both.
#[must_use]
pub fn layer_calls() -> Vec<LayerCall> {
    // An inner call ends, and is noted, before the outer one.
    let mut calls: Vec<LayerCall> =
        lock(&CALLS).iter().rev().filter(|call| call.first < call.end).cloned().collect();
    calls.sort_by_key(|call| (call.first, std::cmp::Reverse(call.end)));
    calls.dedup_by_key(|call| (call.first, call.end));
    calls
}
