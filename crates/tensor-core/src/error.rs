//! One error type for the whole house. Each variant says what was given, what was expected, and what to do.

use std::{panic::Location, path::PathBuf};

use crate::{DType, Shape};

/// The result of anything that meets shapes, dtypes, devices, indices, files or memory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the values that a reader needs to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two shapes that do not go together in `op`.
    #[error("{op}: {lhs} x {rhs}: {hint}")]
    ShapeMismatch {
        /// The operation.
        op: &'static str,
        /// The left or first shape.
        lhs: Shape,
        /// The right or second shape.
        rhs: Shape,
        /// What does not fit, and the mend.
        hint: String,
    },

    /// An axis that the shape does not have.
    #[error("{op}: axis {axis} is out of range for shape {shape} with {} axes; axes run from -{0} to {0} - 1", shape.rank())]
    AxisOutOfRange {
        /// The operation.
        op: &'static str,
        /// The axis as given.
        axis: isize,
        /// The shape it was given for.
        shape: Shape,
    },

    /// Two dtypes that do not go together in `op`.
    #[error("{op}: dtypes {lhs} and {rhs} differ: {hint}")]
    DTypeMismatch {
        /// The operation.
        op: &'static str,
        /// The dtype found first (or given).
        lhs: DType,
        /// The dtype found second (or expected).
        rhs: DType,
        /// The mend.
        hint: String,
    },

    /// Tensors of two devices in one operation.
    #[error(
        "{op}: tensors are on {lhs} and {rhs}; move one with .to(&device)? so that both are on one device"
    )]
    DeviceMismatch {
        /// The operation.
        op: &'static str,
        /// The device of the first tensor.
        lhs: String,
        /// The device of the second.
        rhs: String,
    },

    /// An argument that makes no sense for the operation.
    #[error("{op}: {message}")]
    Invalid {
        /// The operation.
        op: &'static str,
        /// What was given, what was expected, and the mend.
        message: String,
    },

    /// An index (or class label) outside the axis that it indexes.
    #[error(
        "{op}: index {index} is out of range for axis {axis} of size {size}; indices run from 0 to size - 1"
    )]
    IndexOutOfRange {
        /// The operation.
        op: &'static str,
        /// The offending index.
        index: i64,
        /// The axis it indexes.
        axis: usize,
        /// That axis's size.
        size: usize,
    },

    /// A kernel or dtype that a backend lacks.
    #[error("{op} of {dtype} is not supported on {device}: {hint}")]
    Unsupported {
        /// The operation or kernel.
        op: &'static str,
        /// The device.
        device: String,
        /// The dtype.
        dtype: DType,
        /// What to do instead.
        hint: String,
    },

    /// The device's memory, or the budget set for it, is used up. The device and all live tensors are intact.
    #[error(
        "out of memory on {device}: {asked} bytes asked, {in_use} in use, {reserved} reserved, limit {}; drop tensors, use a smaller batch, or call device.empty_cache()",
        limit.map_or("unknown".to_string(), |l| l.to_string())
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes in live tensors.
        in_use: u64,
        /// Bytes held from the driver or system, the cache included.
        reserved: u64,
        /// The budget, when known.
        limit: Option<u64>,
    },

    /// One tensor larger than the device can hold in one buffer.
    #[error(
        "a tensor of {asked} bytes is too large for one buffer on {device}, whose limit is {limit} bytes; split it"
    )]
    TooLarge {
        /// The device.
        device: String,
        /// Bytes asked for.
        asked: u64,
        /// The greatest size of one buffer.
        limit: u64,
    },

    /// The device is gone: driver reset, unplugged, or destroyed. Open it again for a new one.
    #[error(
        "device {device} is lost ({reason}); tensors on it are gone: open the device again and reload them"
    )]
    DeviceLost {
        /// The device.
        device: String,
        /// What the driver said.
        reason: String,
    },

    /// A device name that means nothing here, or an index past the last.
    #[error("no device \"{asked}\": {hint}")]
    UnknownDevice {
        /// The name as given.
        asked: String,
        /// The names there are, and what to do.
        hint: String,
    },

    /// A failure that the backend reported.
    #[error("{device}: {message}")]
    Backend {
        /// The device.
        device: String,
        /// What it said.
        message: String,
    },

    /// A gradient that cannot be computed.
    #[error("{op}: {message}")]
    Autograd {
        /// The function called.
        op: &'static str,
        /// What is wrong, and the mend.
        message: String,
    },

    /// A state dict that does not fit the module. The module is unchanged.
    #[error(
        "state dict does not fit: missing {missing:?}, unexpected {unexpected:?}, misshapen {mismatched:?}; the module is unchanged"
    )]
    StateDict {
        /// Names the module has and the dict lacks.
        missing: Vec<String>,
        /// Names the dict has and the module lacks.
        unexpected: Vec<String>,
        /// Names with the shapes or dtypes found and expected.
        mismatched: Vec<String>,
    },

    /// A file that cannot be read, or does not hold what its kind promises.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, where, and what was expected.
        message: String,
    },

    /// A failure at evaluation, with the operation and the source line that built it.
    #[error("{source} (in {op}, built at {location})")]
    At {
        /// The operation.
        op: &'static str,
        /// The user's line.
        location: &'static Location<'static>,
        /// The failure.
        source: Box<Error>,
    },
}

impl Error {
    /// An [`Error::Invalid`].
    pub fn invalid(op: &'static str, message: impl Into<String>) -> Error {
        Error::Invalid { op, message: message.into() }
    }

    /// The failure itself, without the operation and line it was met at.
    pub fn root(&self) -> &Error {
        match self {
            Error::At { source, .. } => source.root(),
            other => other,
        }
    }
}
