//! The tensors that hold memory: while recording is on, each new node is noted. While it is off, this
//! costs one relaxed load per node.

use std::{
    panic::Location,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rustc_hash::FxHashMap;

use crate::{
    base::{shape::Shape, sync::lock},
    devices::device::Device,
    elements::dtype::DType,
    graph::node::Node,
};

static RECORDING: AtomicBool = AtomicBool::new(false);
static NOTED: Mutex<Noted> = Mutex::new(Noted { nodes: Vec::new(), prune_at: FEW });

/// The number of noted nodes below which dead ones are not pruned.
const FEW: usize = 4096;

struct Noted {
    nodes: Vec<Weak<Node>>,
    /// The number of noted nodes at which dead ones are pruned.
    prune_at: usize,
}

/// A buffer that live tensors hold, with the properties of the oldest of them.
#[derive(Clone, Debug)]
pub struct LiveBuffer {
    /// The line that made the tensor; for a parameter or another cell, the line that made the cell.
    pub location: &'static Location<'static>,
    /// The operation that made the tensor: `leaf` for one uploaded from the host, `parameter` for a
    /// cell's value.
    pub op: &'static str,
    /// The dtype of the tensor.
    pub dtype: DType,
    /// The shape of the tensor.
    pub shape: Shape,
    /// The device of the buffer.
    pub device: Device,
    /// Bytes of the buffer's elements: more than the shape's if the tensor is a view.
    pub bytes: u64,
}

/// Starts to note new tensors for [`live_buffers`], or stops and forgets them.
pub fn record_memory(on: bool) {
    let mut noted = lock(&NOTED);
    RECORDING.store(on, Ordering::SeqCst);
    if !on {
        let gone = std::mem::take(&mut noted.nodes);
        noted.prune_at = FEW;
        drop(noted);
        drop(gone);
    }
}

/// Notes a node, if recording is on.
pub(crate) fn note(node: &Arc<Node>) {
    if RECORDING.load(Ordering::Relaxed) {
        note_down(node);
    }
}

#[cold]
fn note_down(node: &Arc<Node>) {
    let mut noted = lock(&NOTED);
    if noted.nodes.len() >= noted.prune_at {
        noted.nodes.retain(|node| node.strong_count() > 0);
        noted.prune_at = FEW.max(2 * noted.nodes.len());
    }
    noted.nodes.push(Arc::downgrade(node));
}

/// The buffers of all live tensors that were made since recording began, each once; `None` if recording
/// is off.
pub fn live_buffers() -> Option<Vec<LiveBuffer>> {
    if !RECORDING.load(Ordering::SeqCst) {
        return None;
    }
    let nodes: Vec<Arc<Node>> = lock(&NOTED).nodes.iter().filter_map(Weak::upgrade).collect();
    // Keyed by the address of the buffer, which stays valid because its value is held meanwhile.
    let mut found: FxHashMap<*const (), (&Arc<Node>, crate::kernels::storage::Storage)> =
        FxHashMap::default();
    for node in &nodes {
        let Some(storage) = lock(&node.state).value.as_ref().map(|value| value.storage.clone()) else {
            continue;
        };
        let place = found.entry(Arc::as_ptr(&storage).cast()).or_insert((node, storage));
        if node.id < place.0.id {
            place.0 = node;
        }
    }
    let live = |(node, storage): (&Arc<Node>, crate::kernels::storage::Storage)| {
        let cell = node.leaf.get().and_then(Weak::upgrade);
        LiveBuffer {
            location: cell.as_ref().map_or(node.location, |cell| cell.location),
            op: if cell.is_some() { "parameter" } else { node.op.name() },
            dtype: node.dtype,
            shape: node.shape.clone(),
            device: node.device.clone(),
            bytes: storage.numel() as u64 * storage.dtype().size() as u64,
        }
    };
    Some(found.into_values().map(live).collect())
}
