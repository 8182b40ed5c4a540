//! The core of Taper: tensors as nodes of a lazy graph, the scheduler that fuses them into kernels, and
//! the contract that a backend fulfils.
//!
//! | module | contents |
//! |---|---|
//! | [`Tensor`] | the user's handle, and every operation on it |
//! | [`Op`] | operations as data |
//! | [`kernel`] | the kernels that the scheduler gives to a backend |
//! | [`custom`] | operations with native kernels, from other crates |
//! | [`backend`] | the contract of a backend; [`Device`] is its handle, [`DeviceProvider`] finds it by name |
//! | [`Error`] | the error type of all operations |

#![deny(clippy::wildcard_enum_match_arm)] // a new variant must be handled everywhere

mod attention;
#[doc(hidden)]
pub mod autocast;
pub mod backend;
mod bag;
mod blocks;
pub mod contraction;
pub mod custom;
mod defaults;
mod device;
mod distances;
mod dtype;
mod error;
mod facts;
pub mod fft;
#[doc(hidden)] // for `data`, `nn` and `weights`
pub mod file;
mod formula;
mod fourier;
mod grad_mode;
mod grid_sample;
pub mod kernel;
mod kernel_cost;
mod launch;
mod layout;
mod max_pool;
mod memory_log;
mod node;
mod nonzero;
#[doc(hidden)] // for `data` and `weights`
pub mod npy;
mod op;
mod origin;
mod philox;
mod places;
mod program_text;
mod provider;
mod recording;
mod recurrence;
mod rounding;
pub mod rows;
mod running_extreme;
mod scalar;
mod schedule;
mod shape;
mod state;
mod tensor;
mod ticket;
mod watch;
mod write_file;

pub use self::autocast::{autocast, autocast_dtype, no_autocast};
pub use attention::{Attention, AttentionPass};
pub use backend::{Backend, Buffer, DeviceInfo, DeviceKind, FreeBuffers, Limits, MemoryStats, Storage};
pub use bag::{BagKind, EmbeddingBag};
pub use blocks::{Affine, AffineBits, BlockFormat, GgmlType, block_format, register_block_format};
pub use custom::CustomKernel;
pub use defaults::{default_dtype, set_default_dtype};
pub use device::Device;
pub use distances::{Distances, Measure};
pub use dtype::{Arithmetic, DType, Element, ElementType, FloatFormat, Kind, Width, element_types, float8};
pub use error::{Error, ErrorKind, Result};
#[doc(inline)]
pub use float8::*;
pub use formula::Formula;
pub use fourier::{Fourier, FourierKind};
pub use grad_mode::{is_grad_enabled, set_grad_enabled};
pub use grid_sample::{GridMode, GridPadding, GridSample};
pub use kernel::{Kernel, Launch};
pub use layout::{Collapsed, Layout, Strides, collapse};
pub use max_pool::MaxPool;
pub use memory_log::{LiveBuffer, live_buffers, record_memory};
pub use nonzero::Nonzero;
pub use op::{
    ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, CustomOp, Op, OpAxes, Padding, Progression, RandomKind,
    ReduceOp, Refusal, Saved, ScatterOp, Subscripts, UnaryOp,
};
pub use origin::{at_caller, hide_lines_of, with_location};
pub use philox::{philox, philox_words};
pub use places::SearchSorted;
pub use provider::{Awaited, DeviceProvider};
#[doc(hidden)] // for `autograd`
pub use recording::{Recorder, Recording};
pub use recurrence::{Recurrence, RecurrencePass, RecurrentCell};
pub use rounding::round_to_odd;
pub use running_extreme::RunningExtreme;
pub use scalar::Scalar;
pub use schedule::explain::{PlanReport, PlannedCopy, PlannedKernel, PlannedOperation, plan_of};
pub use shape::{Axes, Axis, Dims, Int, MAX_ELEMENTS, Shape};
pub use state::{State, StateReader, StateValue, Stateful};
pub use tensor::{
    Bins, Ellipsis, Generator, HistogramOptions, Index, Indices, Interpolation, MeshIndexing, Nested,
    NewAxis, Number, Operand, ScatterReduce, Span, Step, Tensor, TensorOptions, eval_all, eval_each,
    eval_pending,
};
#[doc(hidden)] // for `optim`
pub use tensor::{WeakTensor, build_only, eval_in_place};
pub use ticket::Ticket;
#[doc(hidden)] // for `distributed`
pub use watch::note_call;
pub use watch::{KernelRun, detect_anomaly, profile};

#[doc(no_inline)]
pub use half::{bf16, f16};
