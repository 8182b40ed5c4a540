//! Inspection: computation graphs as data and as pictures, and the kernels, time and memory of a program's
//! lines.
//!
//! | items | purpose |
//! |---|---|
//! | [`Graph`] | a computation graph as data: operations, shapes, names, source lines |
//! | [`dot`], [`dot_named`], [`Graph::dot`] | Graphviz's language |
//! | [`Graph::folded`] | the graph with one node for each call of a layer |
//! | [`Graph::svg`] | a picture, without Graphviz |
//! | [`Graph::json`] | JSON for other programs |
//! | [`Graph::write_event_file`] | for TensorBoard |
//! | [`EventWriter`] | TensorBoard's files, event by event |
//! | [`explain`] | the kernels that compute a tensor: their operations, cost and memory |
//! | [`profile`] | the kernels that ran and their times, by source line; a trace for Perfetto, an HTML page |
//! | [`device_limits`] | the rates of a device's memory and arithmetic, to compare a profile with |
//! | [`Profile::layers`] | the time of each layer of a model, forward and backward |
//! | [`memory_snapshot`], [`memory_summary`] | the lines whose tensors hold memory; a device's free buffers |
//! | [`memory_peaks`] | the lines that held memory when a device used the most |
//! | [`detect_anomaly`], [`find_anomaly`] | the operation, inputs and line of the first NaN or infinity |
//! | [`without_fusion`] | computes each operation by itself |
//! | [`record_layer_calls`] | notes which layer builds each operation |

mod by_layer;
mod crc32c;
mod dot;
mod events;
mod explain;
mod folded;
mod graph;
mod json;
mod layer_times;
mod layers;
mod limits;
mod memory;
mod page;
mod profile;
mod protobuf;
mod svg;
mod tensorboard;

pub use by_layer::GraphCall;
pub use dot::{dot, dot_named};
pub use events::EventWriter;
pub use explain::{Explanation, explain};
pub use graph::{Graph, GraphNode, NodeKind};
pub use layer_times::{LayerCost, LayerTimes};
pub use limits::{DeviceLimits, device_limits};
pub use memory::{
    DeviceMemory, MemoryKind, MemoryLine, MemoryPeak, MemorySnapshot, MemorySummary, memory_peaks,
    memory_snapshot, memory_summary,
};
pub use profile::{Profile, ProfileLine, profile};
pub use protobuf::Message;
pub use tensor_core::{
    Anomaly, AnomalyStep, BuiltOperation, KernelRun, PlanRun, Separation, StoreReason, TensorStatistics,
    detect_anomaly, find_anomaly, record_layer_calls, record_memory, without_fusion,
};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
