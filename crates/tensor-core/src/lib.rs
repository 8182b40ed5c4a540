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
//!
//! The source folders, each of which depends only on those after it: `fft`, `tensor` (operations),
//! `schedule` (from graph to launches), `graph`, `native` (operations with native kernels), `devices`,
//! `kernels`, `base`, `elements`.

#![deny(clippy::wildcard_enum_match_arm)] // a new variant must be handled everywhere

mod base;
mod devices;
mod elements;
pub mod fft;
mod graph;
mod kernels;
mod native;
mod schedule;
mod tensor;

#[doc(hidden)] // for `data`, `nn` and `weights`
pub use base::file;
pub use base::host_bytes::HostBytes;
#[doc(hidden)] // for `data` and `weights`
pub use base::npy;
pub use base::{
    axes::{Axes, Axis, Dims, Int},
    error::{Error, ErrorKind, Result, few},
    location::Location,
    near_names::near_names,
    origin::{CallerLine, at_caller, caller_line, hide_lines_of, with_location, with_own_lines},
    parameter_names::{note_parameter_names, parameter_name},
    philox::{philox, philox_words},
    shape::{MAX_ELEMENTS, Shape},
};
#[doc(hidden)] // for `distributed`, `nn` and `optim`
pub use base::{on_drop::OnDrop, sync::lock};
pub use devices::{
    backend::{self, Backend, Buffer, DeviceInfo, DeviceKind, FreeBuffers, Limits, MemoryStats, Storage},
    defaults::{default_dtype, set_default_dtype},
    device::Device,
    provider::{Awaited, DeviceProvider},
};
pub use elements::{
    dtype::{Arithmetic, DType, ElementType, FloatFormat, Kind, Width, element_types, float8},
    element::Element,
    rounding::round_to_odd,
    scalar::Scalar,
};
#[doc(inline)]
pub use float8::*;
#[doc(hidden)] // for `nn`, `inspect` and `studio`
pub use graph::layer_calls::{LayerCall, begin_layer_call, end_layer_call, layer_calls, record_layer_calls};
#[doc(hidden)] // for `onnx`
pub use graph::trace::{Argument, Trace, TracedCall, TracedNode, is_tracing, traced, traced_results};
pub use graph::{
    build_log::BuiltOperation,
    grad_mode::{is_grad_enabled, set_grad_enabled},
    handle::Tensor,
    memory_log::{LiveBuffer, PeakMemory, live_buffers, peak_memory, record_memory},
    op::{
        CustomOp, Expression, Op, OpAxes, OpClass, OtherOp, Padding, Progression, Saved, Subscripts, TupleOp,
        ViewOp,
    },
    state::{State, StateReader, StateValue, Stateful},
};
pub use kernels::{
    blocks::{
        Affine, AffineBits, AffineChannels, BlockFormat, BlockType, Codebook4, CodebookScales, GgmlType,
        IQ4_NUMBERS, IntegerGroups, MXFP4_NUMBERS, WeightFormat, block_format, mxfp4_scale,
        register_block_format,
    },
    contraction,
    custom::{self, CustomKernel},
    formula::Formula,
    kernel::{self, Kernel},
    launch::Launch,
    layout::{Collapsed, Layout, Strides, collapse},
    operators::{
        ArgReduceOp, BinaryDomain, BinaryOp, CompareOp, CumulativeOp, RandomKind, ReduceOp, Refusal,
        ScatterOp, UnaryDomain, UnaryOp,
    },
    rows,
    ticket::Ticket,
};
pub use native::{
    attention::{Attention, AttentionPass},
    bag::{BagKind, EmbeddingBag},
    cached_attention::CachedAttention,
    distances::{Distances, Measure},
    fourier::{Fourier, FourierKind},
    grid_sample::{GridMode, GridPadding, GridSample},
    max_pool::MaxPool,
    nonzero::Nonzero,
    packed_rows::PackedRows,
    places::SearchSorted,
    recurrence::{Recurrence, RecurrencePass, RecurrentCell},
    running_extreme::RunningExtreme,
};
#[doc(hidden)] // for `distributed`
pub use schedule::watch::note_call;
#[doc(hidden)] // for `autograd`, `models`, `nn`, `onnx` and `optim`
pub use schedule::{
    capture::{
        HostState, HostValues, NotedState, RandomStream, is_capturing, note_guard, note_host_state,
        refuse_in_capture, refuse_later,
    },
    replay::{
        BufferSource, Call, CallMode, GraphNumbers, ListedBuffer, ListedStep, ListedValue, PlanListing,
        Replay, ReplayCounts, as_leaf,
    },
};
pub use schedule::{
    explain::{PlanReport, PlannedCopy, PlannedKernel, PlannedOperation, plan_of},
    interrupt::ask_before_kernels,
    plan::{Separation, StoreReason},
    watch::{
        Anomaly, AnomalyStep, KernelRun, PlanRun, ProfileEvents, Profiling, TensorStatistics, detect_anomaly,
        find_anomaly, profile, without_fusion,
    },
};
#[doc(hidden)]
pub use tensor::autocast;
pub use tensor::{
    Bins, Ellipsis, Generator, HistogramOptions, Index, Indices, Interpolation, MeshIndexing, Nested,
    NewAxis, Number, NumberOrigin, Operand, ScatterReduce, Span, StepBy, TensorOptions, TensorTree,
    autocast::{autocast, autocast_dtype, no_autocast},
    eval_all, eval_each, eval_pending, fork_rng,
};
#[doc(hidden)] // for `autograd`
pub use tensor::{Recorder, Recording};
#[doc(hidden)] // for `optim`
pub use tensor::{WeakTensor, build_only, eval_in_place};

#[doc(no_inline)]
pub use half::{bf16, f16};
