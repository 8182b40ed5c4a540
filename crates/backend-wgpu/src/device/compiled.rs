//! Compiled kernels, and the pipelines of a device by their source.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use rustc_hash::FxHashMap;
use tensor_core::DType;

use crate::{
    codegen::dispatch::{Params, Resource},
    device::faults::lock,
};

/// A compiled kernel and the layout of its bindings.
pub(crate) struct Pipeline {
    pub(crate) raw: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// One dispatch, ready but for its buffers and scalars.
pub(crate) struct Compiled {
    pub(crate) label: &'static str,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) params: Params,
    /// The buffer of each binding, and the byte where it starts.
    pub(crate) resources: Vec<(Resource, u64)>,
    pub(crate) workgroups: usize,
    /// The number of the loop that it is in, and the loop's rounds.
    pub(crate) repeated: Option<(usize, usize)>,
    /// Workgroups in one dispatch at most.
    pub(crate) most: usize,
    /// Work of a workgroup.
    pub(crate) work: usize,
    /// Whether the parameters go as immediates, or else in a uniform buffer.
    pub(crate) immediates: bool,
}

/// The part of a kernel that is kept between launches.
pub(crate) struct CompiledKernel {
    pub(crate) dispatches: Vec<Compiled>,
    pub(crate) temporaries: Vec<(DType, usize)>,
}

/// The pipelines of one device.
#[derive(Default)]
pub(crate) struct Pipelines {
    pub(super) made: Mutex<FxHashMap<String, Arc<Pipeline>>>,
}

impl fmt::Debug for Pipelines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipelines({})", lock(&self.made).len())
    }
}

impl Pipelines {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        lock(&self.made).len()
    }
}
