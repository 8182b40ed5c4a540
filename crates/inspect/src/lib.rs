//! Inspection: computation graphs as data and as pictures, and the kernels, time and memory of a program's
//! lines.
//!
//! | items | purpose |
//! |---|---|
//! | [`Graph`] | a computation graph as data: operations, shapes, names, source lines |
//! | [`dot`], [`dot_named`], [`Graph::dot`] | Graphviz's language |
//! | [`Graph::svg`] | a picture, without Graphviz |
//! | [`Graph::json`] | JSON for other programs |
//! | [`Graph::write_event_file`] | for TensorBoard |
//! | [`EventWriter`] | TensorBoard's files, event by event |
//! | [`explain`] | the kernels that compute a tensor: their operations, cost and memory |
//! | [`profile`] | the kernels that ran and their times, by source line; a trace for Perfetto, an HTML page |
//! | [`memory_snapshot`], [`memory_summary`] | the lines whose tensors hold memory; a device's free buffers |
//! | [`detect_anomaly`] | the operation and line that made the first NaN or infinity |

mod crc32c;
mod dot;
mod events;
mod explain;
mod graph;
mod json;
mod layers;
mod memory;
mod page;
mod profile;
mod protobuf;
mod svg;
mod tensorboard;

pub use dot::{dot, dot_named};
pub use events::EventWriter;
pub use explain::{Explanation, explain};
pub use graph::{Graph, GraphNode, NodeKind};
pub use memory::{
    DeviceMemory, MemoryKind, MemoryLine, MemorySnapshot, MemorySummary, memory_snapshot, memory_summary,
};
pub use profile::{Profile, ProfileLine, profile};
pub use protobuf::Message;
pub use tensor_core::{KernelRun, detect_anomaly, record_memory};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
