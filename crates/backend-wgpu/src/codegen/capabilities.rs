//! The limits of an open device, and the choices that decide how kernels are generated for it.

use tensor_core::{DType, DeviceInfo, Error, ErrorKind};

/// The family of kernels to use where there are two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Direct kernels on software adapters, tiled kernels on all others.
    #[default]
    Auto,
    /// One invocation for each result or block of results; no workgroup memory, no barriers.
    Direct,
    /// Kernels with workgroup memory and barriers.
    Tiled,
}

/// How the kernel for matrix units multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixUnits {
    /// With cooperative matrices of f16, and sums in f32, for the subgroups of the adapter.
    Cooperative {
        /// Rows and columns of a matrix: 8 or 16.
        size: usize,
        /// The least and the greatest number of invocations of a subgroup.
        subgroup_sizes: [usize; 2],
    },
    /// In plain WGSL, for tests.
    Plain,
}

/// A variant of the kernel for products of several rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProductVariant {
    /// Each invocation computes a square block of results with this many on a side.
    Blocks(usize),
    /// Each workgroup computes a tile with this many results on a side.
    Tile(usize),
    /// Each workgroup computes a tile on matrix units.
    MatrixUnits,
    /// Each workgroup computes a few columns of up to eight rows.
    FewRows,
}

/// The limits of an open device, and the choices that decide how kernels are generated for it.
#[derive(Clone, Debug)]
pub(crate) struct Capabilities {
    pub(crate) info: DeviceInfo,
    /// Whether to use kernels without workgroup memory and barriers.
    pub(crate) direct: bool,
    /// Whether kernels may use operations of subgroups.
    pub(crate) subgroups: bool,
    /// Whether tiles may multiply integers of 8 bits four at a time.
    pub(crate) dots: bool,
    /// The number of invocations that keeps the device busy.
    pub(crate) invocations: usize,
    /// Bytes of workgroup memory.
    pub(crate) workgroup_bytes: usize,
    /// The most bytes of one binding, a multiple of 256.
    pub(crate) binding_bytes: u64,
    /// The most loop iterations of one invocation, over all its loops.
    pub(crate) rounds: usize,
    /// Bytes of immediates; 0 if there are none or they are turned off.
    pub(crate) immediate_bytes: u32,
    pub(crate) uniform_alignment: u32,
    /// The most workgroups in each dimension of a dispatch.
    pub(crate) max_workgroups: u32,
    /// The most work in one dispatch, in the unit of `Dispatch::work`.
    pub(crate) dispatch_work: u64,
    /// The matrix units to use for products of f16, if any.
    pub(crate) matrix_units: Option<MatrixUnits>,
    /// The variant to use for products, if it was measured or is forced.
    pub(crate) variant: Option<ProductVariant>,
}

impl Capabilities {
    /// A copy that forces a product variant.
    pub(crate) fn with(&self, variant: ProductVariant) -> Capabilities {
        Capabilities { variant: Some(variant), ..self.clone() }
    }

    /// An `Unsupported` error.
    pub(crate) fn unsupported(&self, op: &'static str, dtype: DType, hint: &str) -> Error {
        Error::new(ErrorKind::Unsupported { op, device: self.info.name.clone(), dtype, hint: hint.into() })
    }
}
