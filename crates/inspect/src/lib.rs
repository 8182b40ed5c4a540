//! The box, open: what a graph is made of, as data and as pictures, and what a line of a program does on its
//! device.
//!
//! | look for | in |
//! |---|---|
//! | [`Graph`] | the graph that tensors were made by, as data: operations, shapes, names, source lines |
//! | [`dot`], [`dot_named`], [`Graph::dot`] | Graphviz's language |
//! | [`Graph::svg`] | a picture, without Graphviz |
//! | [`Graph::json`] | for programs |
//! | [`Graph::write_event_file`] | for TensorBoard |
//! | [`EventWriter`] | TensorBoard's files, event by event |
//! | [`explain`] | the kernels that computing a tensor takes: what they compute, their cost, their memory |
//! | [`profile`] | the kernels that ran, how often and how long, by source line; a trace for Perfetto, a page for browsers |
//! | [`memory_snapshot`], [`memory_summary`] | the lines whose tensors hold memory; a device's memory and its free buffers by size |
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
pub use profile::{Profile, profile};
pub use protobuf::Message;
pub use tensor_core::{KernelRun, detect_anomaly, record_memory};

/// The root of these sources, for `taper`: errors name no line in them.
#[doc(hidden)]
pub const ROOT: &str = file!();
