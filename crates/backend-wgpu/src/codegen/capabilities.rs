//! What an open device allows, and how kernels are made for it.

use tensor_core::{DType, DeviceInfo, Error, ErrorKind};

/// Which family of kernels to use where there are two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Direct kernels on software adapters, tiled ones on the others.
    #[default]
    Auto,
    /// One invocation for each result or block of results: no workgroup memory, no barriers.
    Direct,
    /// Workgroup memory and barriers.
    Tiled,
}

/// One way to compute a product of several rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A square of so many results on a side for each invocation.
    Blocks(usize),
    /// Tiles with so many results on a side.
    Tile(usize),
}

/// What an open device allows, and how kernels are made for it.
#[derive(Clone, Debug)]
pub(crate) struct Capabilities {
    pub(crate) info: DeviceInfo,
    /// Kernels without workgroup memory and barriers.
    pub(crate) direct: bool,
    /// How many invocations it takes to keep the device busy.
    pub(crate) invocations: usize,
    /// Bytes of workgroup memory.
    pub(crate) workgroup_bytes: usize,
    /// Bytes of one binding, a multiple of 256.
    pub(crate) binding_bytes: u64,
    /// How many times an invocation may go round its loops, all together.
    pub(crate) rounds: usize,
    /// Bytes of immediates; 0 where there are none or they are turned off.
    pub(crate) immediate_bytes: u32,
    pub(crate) uniform_alignment: u32,
    /// Workgroups in each dimension of a dispatch.
    pub(crate) max_workgroups: u32,
    /// Work in one dispatch, in the measure of `Dispatch::work`.
    pub(crate) dispatch_work: u64,
    /// How a product is to be computed, where that was measured.
    pub(crate) way: Option<Way>,
}

impl Capabilities {
    /// The same, with a way for products.
    pub(crate) fn with(&self, way: Way) -> Capabilities {
        Capabilities { way: Some(way), ..self.clone() }
    }

    /// An `Unsupported` error.
    pub(crate) fn unsupported(&self, op: &'static str, dtype: DType, hint: &str) -> Error {
        Error::new(ErrorKind::Unsupported { op, device: self.info.name.clone(), dtype, hint: hint.into() })
    }
}
