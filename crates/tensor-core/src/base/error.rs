//! One error type for the whole house. Each kind says what was given, what was expected, and what to do.

use std::{fmt, panic::Location, path::PathBuf};

use crate::{
    base::{
        origin::{here, outside},
        shape::Shape,
    },
    elements::dtype::DType,
};

/// The result of anything that meets shapes, dtypes, devices, indices, files or memory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong ([`Error::kind`]) and where: one pointer in size, so that a `Result<Tensor>` is two.
///
/// Both `Display` and `Debug` print the message, with the operation and the line of the user's program where
/// they are known: a `main` that returns a [`Result`] ends with the message, not with a struct.
///
/// ```
/// use tensor_core::{Error, ErrorKind};
///
/// let error = Error::invalid("reshape", "12 elements are not 13");
/// assert!(matches!(error.kind(), ErrorKind::Invalid { op: "reshape", .. }));
/// assert!(format!("{error:?}").starts_with("reshape: 12 elements are not 13 (at "));
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    /// The operation that failed when it was computed.
    op: Option<&'static str>,
    location: Option<&'static Location<'static>>,
}

impl Error {
    /// An error of this kind, met at the line that called into the library.
    #[track_caller]
    pub fn new(kind: ErrorKind) -> Error {
        Error(Box::new(Inner { kind, op: None, location: outside(here()) }))
    }

    /// An [`ErrorKind::Invalid`].
    #[track_caller]
    pub fn invalid(op: &'static str, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid { op, message: message.into() })
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The line of the user's program: where the failing method was called or, for a failure that shows only
    /// when a tensor is computed, where that tensor was built.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.0.location
    }

    /// The operation that failed when it was computed; `None` for what failed where it was written.
    pub fn op(&self) -> Option<&'static str> {
        self.0.op
    }

    /// The same failure, met at the line that called into the library, unless a line is known already: for an
    /// error that was made in a closure, which hides its caller's line.
    #[must_use]
    #[track_caller]
    pub fn here(self) -> Error {
        self.met_at(here())
    }

    /// [`Error::here`] of a result's error. Not `map_err(Error::here)`, nor a closure: the standard library
    /// would be the caller of the first, and the closure's own line that of the second.
    ///
    /// # Errors
    /// The result's.
    #[doc(hidden)]
    #[track_caller]
    pub fn here_in<T>(result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(error.here()),
        }
    }

    /// As [`Error::here`], for a line that was kept: a future's errors are made while it is polled.
    pub(crate) fn met_at(mut self, location: &'static Location<'static>) -> Error {
        if self.0.location.is_none() {
            self.0.location = outside(location);
        }
        self
    }

    /// The same failure, met when a tensor was computed that `op` made at `location`. What is known already
    /// stays.
    pub(crate) fn computing(mut self, op: &'static str, location: &'static Location<'static>) -> Error {
        if self.0.op.is_none() {
            (self.0.op, self.0.location) = (Some(op), Some(location));
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, op, location } = &*self.0;
        match (op, location) {
            (Some(op), Some(location)) => write!(f, "{kind} (in {op}, built at {location})"),
            (_, Some(location)) => write!(f, "{kind} (at {location})"),
            _ => write!(f, "{kind}"),
        }
    }
}

/// The message, as `Display` prints it: what `main` prints of an error that it returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// What went wrong, with the values that a reader needs to mend it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
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
    #[error("{op}: axis {axis} is out of range for shape {shape}: {}", axis_range(shape))]
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

    /// A matrix that an operation of linear algebra has no answer for, found when it was computed: singular,
    /// not positive-definite, or of numbers that are not finite. `torch.linalg.LinAlgError`.
    #[error("{op}: {}{message}", batch.map_or(String::new(), |b| format!("(batch element {b}) ")))]
    LinAlg {
        /// The operation.
        op: &'static str,
        /// Which matrix of a batch, counted in row-major order; `None` for one alone.
        batch: Option<usize>,
        /// What is wrong with it, and the mend.
        message: String,
    },

    /// An index (or class label) outside the axis that it indexes.
    #[error(
        "{op}: index {index} is out of range for axis {axis} of size {size}{}", index_range(*size)
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

    /// Processes that work together, one of which hangs, has gone, or called something else.
    #[error("{op}: {message}")]
    Distributed {
        /// The collective operation.
        op: &'static str,
        /// The ranks at fault, where they are known.
        ranks: Vec<usize>,
        /// What they did or did not do, and the mend.
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

    /// A state that does not fit what is to take it over, a module or an optimizer say. That is unchanged.
    #[error(
        "state dict does not fit: missing {missing:?}, unexpected {unexpected:?}, misshapen {mismatched:?}; nothing was changed"
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
}

/// Which axes a shape has.
fn axis_range(shape: &Shape) -> String {
    match shape.rank() {
        0 => "a scalar has no axes".into(),
        1 => "its only axis is 0, or -1 from the end".into(),
        rank => format!("its axes are 0 to {}, or -{rank} to -1 from the end", rank - 1),
    }
}

/// Which indices an axis has.
fn index_range(size: usize) -> String {
    match size {
        0 => ", which has no elements".into(),
        1 => "; its only index is 0".into(),
        _ => format!("; indices run from 0 to {}", size - 1),
    }
}

/// Two shapes that do not go together.
#[track_caller]
pub(crate) fn shape_misfit(op: &'static str, lhs: &Shape, rhs: &Shape, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::ShapeMismatch { op, lhs: lhs.clone(), rhs: rhs.clone(), hint: hint.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<crate::Tensor>>(), 2 * size_of::<usize>());
    }

    #[test]
    fn ranges_are_printed_as_numbers() {
        let axis =
            |dims: &[usize]| ErrorKind::AxisOutOfRange { op: "sum", axis: 7, shape: dims.into() }.to_string();
        assert_eq!(
            axis(&[2, 3]),
            "sum: axis 7 is out of range for shape [2, 3]: its axes are 0 to 1, or -2 to -1 from the end"
        );
        assert!(axis(&[]).ends_with("a scalar has no axes"));
        let index = ErrorKind::IndexOutOfRange { op: "gather", index: 9, axis: 0, size: 5 }.to_string();
        assert_eq!(index, "gather: index 9 is out of range for axis 0 of size 5; indices run from 0 to 4");
    }
}
