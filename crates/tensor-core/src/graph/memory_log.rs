//! Which tensors hold memory: nodes noted as they are made, while somebody records. While nobody does it
//! costs one relaxed load for each.

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

/// Nodes among which it is not worth looking for those that are gone.
const FEW: usize = 4096;

struct Noted {
    nodes: Vec<Weak<Node>>,
    /// How many there may be before those that are gone are left out.
    prune_at: usize,
}

/// A buffer that a live tensor holds, as the oldest tensor that does has it.
#[derive(Clone, Debug)]
pub struct LiveBuffer {
    /// The line that made the tensor; of a parameter or another cell, the line that made the cell.
    pub location: &'static Location<'static>,
    /// The operation that made the tensor: `leaf` for one that came from the host, `parameter` for the value
    /// of a cell.
    pub op: &'static str,
    /// The dtype of the tensor.
    pub dtype: DType,
    /// The shape of the tensor.
    pub shape: Shape,
    /// The device of the buffer.
    pub device: Device,
    /// Bytes of the buffer's elements: more than the shape's where the tensor is a view.
    pub bytes: u64,
}

/// Begins to note which tensors are made, for [`live_buffers`], or ends it and forgets what was noted.
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

/// Notes a node, if somebody records.
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

/// The buffers of all live tensors that were made since recording began, each once; none if nobody records.
pub fn live_buffers() -> Option<Vec<LiveBuffer>> {
    if !RECORDING.load(Ordering::SeqCst) {
        return None;
    }
    let nodes: Vec<Arc<Node>> = lock(&NOTED).nodes.iter().filter_map(Weak::upgrade).collect();
    // By the address of the buffer, which its value keeps alive meanwhile.
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
