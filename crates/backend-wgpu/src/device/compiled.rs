//! Compiled kernels, and the pipelines of a device, cached by their source.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use rustc_hash::FxHashMap;
use tensor_core::DType;

use crate::{
    codegen::dispatch::{Params, Resource},
    device::{
        bind_groups::{Layout, Layouts},
        faults::lock,
    },
};

/// A compiled kernel and the layout of its bindings.
pub(crate) struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: Layout,
    /// Whether the parameters are immediates; otherwise they are in a uniform buffer.
    pub(crate) immediates: bool,
}

/// The source of a binding's buffer.
pub(crate) struct Bound {
    pub(crate) resource: Resource,
    /// The byte offset at which the binding starts.
    pub(crate) start: u64,
    pub(crate) writes: bool,
}

/// One compiled dispatch; only its buffers and scalars are missing.
pub(crate) struct Compiled {
    pub(crate) label: &'static str,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) params: Params,
    pub(crate) resources: Vec<Bound>,
    pub(crate) workgroups: usize,
    /// The number of the loop that it belongs to, and the rounds of that loop.
    pub(crate) repeated: Option<(usize, usize)>,
    /// The most workgroups in one dispatch.
    pub(crate) most: usize,
    /// Work of a workgroup.
    pub(crate) work: usize,
}

/// The compiled form of a kernel, kept between launches.
pub(crate) struct CompiledKernel {
    pub(crate) dispatches: Vec<Compiled>,
    pub(crate) temporaries: Vec<(DType, usize)>,
}

/// The pipelines of one device.
#[derive(Default)]
pub(crate) struct Pipelines {
    pub(super) made: Mutex<FxHashMap<String, Arc<Pipeline>>>,
    pub(super) layouts: Layouts,
}

impl fmt::Debug for Pipelines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipelines({})", lock(&self.made).len())
    }
}

impl Pipelines {
    /// The number of pipelines.
    pub(crate) fn len(&self) -> usize {
        lock(&self.made).len()
    }
}
