//! Compiled kernels, and the pipelines of a device, cached by their source.

use std::{
    collections::hash_map::Entry,
    fmt,
    fs::OpenOptions,
    hash::BuildHasher,
    io::Write,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use rustc_hash::{FxBuildHasher, FxHashMap};
use tensor_core::{DType, lock};

use crate::{
    codegen::dispatch::{Params, Resource},
    device::bind_groups::{Layout, Layouts},
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
    /// A file that gets a line for each new pipeline.
    pub(super) log: Option<PathBuf>,
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

    /// Keeps a new pipeline, or returns the one of this source that another thread created before.
    pub(super) fn keep(&self, source: &str, label: &str, new: Pipeline) -> Arc<Pipeline> {
        match lock(&self.made).entry(source.to_string()) {
            Entry::Occupied(made) => Arc::clone(made.get()),
            Entry::Vacant(place) => {
                self.log(source, label);
                Arc::clone(place.insert(Arc::new(new)))
            }
        }
    }

    /// Appends a line to the log, in one write, as other processes write to it too. A log that cannot be
    /// written changes no result.
    fn log(&self, source: &str, label: &str) {
        let Some(path) = &self.log else { return };
        let line = format!("{:016x} {label}\n", FxBuildHasher.hash_one(source));
        let file = OpenOptions::new().append(true).create(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
