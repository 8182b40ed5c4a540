//! The tensors that hold memory: while recording is on, each new node is noted, and the tensors that are
//! alive at the greatest use of memory are kept. While it is off, this costs one relaxed load per node.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicBool, Ordering},
};

use rustc_hash::FxHashMap;

use crate::{
    base::{location::Location, origin::gradient_rule, shape::Shape, sync::lock},
    devices::device::Device,
    elements::dtype::DType,
    graph::{
        build_log::{self, BuiltOperation},
        node::Node,
        op::Op,
    },
    kernels::storage::Storage,
};

static RECORDING: AtomicBool = AtomicBool::new(false);
static NOTED: Mutex<Noted> = Mutex::new(Noted { nodes: Vec::new(), prune_at: PRUNE_MIN_NODES });

/// The number of noted nodes below which dead ones are not pruned.
const PRUNE_MIN_NODES: usize = 4096;

/// The greatest use of memory so far, for each device.
static PEAKS: Mutex<Vec<PeakMemory>> = Mutex::new(Vec::new());

/// The factor by which the use of memory must exceed the last peak for the live tensors to be listed again.
/// Listing takes some 50 ns for each tensor, and growth from 1 MiB to 1 GiB lists them 700 times.
const PEAK_GROWTH: f64 = 1.01;

struct Noted {
    nodes: Vec<Weak<Node>>,
    /// The number of noted nodes at which dead ones are pruned.
    prune_at: usize,
}

/// A buffer that live tensors hold, with the properties of the oldest of them.
#[derive(Clone, Debug)]
pub struct LiveBuffer {
    /// The line that made the tensor; for a parameter or another cell, the line that made the cell.
    pub location: Location,
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

/// The tensors of a device that were alive when it used the most memory.
#[derive(Clone, Debug)]
pub struct PeakMemory {
    /// The device.
    pub device: Device,
    /// The bytes that were allocated: at most 1 % below the true peak, because a smaller rise is not noted.
    pub allocated: u64,
    /// The buffers of live tensors, and those that the running computation held.
    pub buffers: Vec<LiveBuffer>,
}

/// Starts to note new tensors for [`live_buffers`], or stops and forgets them.
pub fn record_memory(on: bool) {
    let mut noted = lock(&NOTED);
    RECORDING.store(on, Ordering::SeqCst);
    if !on {
        let gone = std::mem::take(&mut noted.nodes);
        noted.prune_at = PRUNE_MIN_NODES;
        drop(noted);
        drop(gone);
        let gone = std::mem::take(&mut *lock(&PEAKS));
        drop(gone);
    }
}

/// Notes a new node here and in the log of a profile, where they are on.
pub(crate) fn note(node: &Arc<Node>) {
    if RECORDING.load(Ordering::Relaxed) {
        note_down(node);
    }
    if build_log::is_on() {
        note_build(node);
    }
}

#[cold]
fn note_build(node: &Arc<Node>) {
    let number =
        |input: &Arc<Node>| input.leaf.get().and_then(Weak::upgrade).map_or(input.id, |cell| cell.id);
    let inputs = lock(&node.state).inputs.clone();
    let inputs = inputs.iter().map(number).collect();
    build_log::note(|time| BuiltOperation {
        id: node.id,
        op: node.op.name(),
        location: node.location,
        inputs,
        gradient_of: gradient_rule().map(|operation| operation.id),
        is_element: matches!(node.op, Op::TupleElement { .. }),
        time,
    });
}

#[cold]
fn note_down(node: &Arc<Node>) {
    let mut noted = lock(&NOTED);
    if noted.nodes.len() >= noted.prune_at {
        noted.nodes.retain(|node| node.strong_count() > 0);
        noted.prune_at = PRUNE_MIN_NODES.max(2 * noted.nodes.len());
    }
    noted.nodes.push(Arc::downgrade(node));
}

/// The buffers of all live tensors that were made since recording began, each once; `None` if recording
/// is off.
pub fn live_buffers() -> Option<Vec<LiveBuffer>> {
    RECORDING.load(Ordering::SeqCst).then(|| list(&[]))
}

/// The tensors that were alive at the greatest use of memory since recording began, for each device on which
/// a kernel has run; `None` if recording is off. Memory is looked at after each kernel has its outputs.
pub fn peak_memory() -> Option<Vec<PeakMemory>> {
    RECORDING.load(Ordering::SeqCst).then(|| lock(&PEAKS).clone())
}

/// Lists the live tensors if a device uses more memory than before, while recording is on. `held` gives the
/// buffers that no node has yet, each with the node that it was made for.
pub(crate) fn look_at_peak<'a>(device: &Device, held: impl FnOnce() -> Vec<(&'a Arc<Node>, Storage)>) {
    if RECORDING.load(Ordering::Relaxed) {
        note_peak(device, held);
    }
}

#[cold]
fn note_peak<'a>(device: &Device, held: impl FnOnce() -> Vec<(&'a Arc<Node>, Storage)>) {
    let allocated = device.memory().allocated;
    let last = lock(&PEAKS).iter().find(|peak| peak.device == *device).map_or(0, |peak| peak.allocated);
    if allocated as f64 <= last as f64 * PEAK_GROWTH {
        return;
    }
    let mut buffers = list(&held());
    buffers.retain(|buffer| buffer.device == *device);
    let peak = PeakMemory { device: device.clone(), allocated, buffers };
    let mut peaks = lock(&PEAKS);
    match peaks.iter_mut().find(|peak| peak.device == *device) {
        Some(known) => *known = peak,
        None => peaks.push(peak),
    }
}

/// The buffers of the noted nodes and these others, each once.
fn list(held: &[(&Arc<Node>, Storage)]) -> Vec<LiveBuffer> {
    let nodes: Vec<Arc<Node>> = lock(&NOTED).nodes.iter().filter_map(Weak::upgrade).collect();
    // Keyed by the address of the buffer, which stays valid because its value is held meanwhile.
    let mut found: FxHashMap<*const (), (&Arc<Node>, Storage)> = FxHashMap::default();
    for node in &nodes {
        let Some(storage) = lock(&node.state).value.as_ref().map(|value| value.storage.clone()) else {
            continue;
        };
        let place = found.entry(Arc::as_ptr(&storage).cast()).or_insert((node, storage));
        if node.id < place.0.id {
            place.0 = node;
        }
    }
    for (node, storage) in held {
        found.entry(Arc::as_ptr(storage).cast()).or_insert((node, storage.clone()));
    }
    let live = |(node, storage): (&Arc<Node>, Storage)| {
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
    found.into_values().map(live).collect()
}
