//! [`Error`]: the one error type of the workspace. Each kind says what was given, what was expected, and
//! what to do.

use std::{collections::HashSet, fmt, path::PathBuf};

use crate::{
    base::{
        location::Location,
        origin::{here, outside},
        shape::Shape,
    },
    elements::dtype::DType,
};

/// The result of fallible operations: on shapes, dtypes, devices, indices, files or memory.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: its kind ([`Error::kind`]) and its place. It is one pointer in size, so a `Result<Tensor>`
/// is two.
///
/// Both `Display` and `Debug` print the message, with the operation and the line of the user's program
/// if they are known: a `main` that returns a [`Result`] ends with the message, not with a struct dump.
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
    /// The layer in which it occurred: its path in nested sequences, and its name.
    layer: Option<(String, String)>,
    /// The operation whose computation failed.
    op: Option<&'static str>,
    location: Option<Location>,
    /// Whether `location` is the line that read the failing result: the operation was built inside a
    /// library.
    read_there: bool,
}

impl Error {
    /// An error of this kind, at the line that called into the library.
    #[track_caller]
    pub fn new(kind: ErrorKind) -> Error {
        Error(Box::new(Inner { kind, layer: None, op: None, location: outside(here()), read_there: false }))
    }

    /// An [`ErrorKind::Invalid`].
    #[track_caller]
    pub fn invalid(op: &'static str, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid { op, message: message.into() })
    }

    /// An error of the operating system, for `?` in functions that return Taper's [`Result`].
    ///
    /// There is no `From<std::io::Error>`: with two conversions into this type, the compiler could no longer
    /// infer the error of a closure such as `|x: &Tensor| Ok(x.matmul(&w)?.relu())`.
    ///
    /// ```
    /// use tensor_core::{Error, ErrorKind, Result};
    ///
    /// fn lines_of(path: &str) -> Result<usize> {
    ///     Ok(std::fs::read_to_string(path).map_err(Error::io)?.lines().count())
    /// }
    /// let error = lines_of("no such file").unwrap_err();
    /// let kind = std::io::ErrorKind::NotFound;
    /// assert!(matches!(error.kind(), ErrorKind::Io { kind: found, .. } if *found == kind));
    /// ```
    #[track_caller]
    #[allow(clippy::needless_pass_by_value)] // for `map_err`
    pub fn io(error: std::io::Error) -> Error {
        Error::new(ErrorKind::Io { kind: error.kind(), message: error.to_string() })
    }

    /// The kind of error, with its details.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The line of the user's program: where the failing method was called or, for a failure during
    /// evaluation, where the failing tensor was built. If a library built it, as a model of `taper::models`
    /// does, it is the line that read the result.
    pub fn location(&self) -> Option<Location> {
        self.0.location
    }

    /// The operation whose computation failed; `None` if the call itself failed.
    pub fn op(&self) -> Option<&'static str> {
        self.0.op
    }

    /// The same error with the line that called into the library, unless it already has a line: for an
    /// error that was made in a closure, which hides its caller's line.
    #[must_use]
    #[track_caller]
    pub fn here(self) -> Error {
        self.met_at(here())
    }

    /// [`Error::here`] applied to a result. `map_err(Error::here)` or a closure would not do: the caller
    /// would be the standard library for the first, and the closure's own line for the second.
    ///
    /// # Errors
    /// The result's error.
    #[doc(hidden)]
    #[track_caller]
    pub fn here_in<T>(result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(error.here()),
        }
    }

    /// The same error, which occurred in the layer called `name` at position `index` of a sequence.
    #[doc(hidden)] // for `nn`
    #[must_use]
    pub fn in_layer(mut self, index: usize, name: impl FnOnce() -> String) -> Error {
        self.0.layer = Some(match self.0.layer.take() {
            Some((path, inner)) => (format!("{index}.{path}"), inner),
            None => (index.to_string(), name()),
        });
        self
    }

    /// [`Error::here`] with a saved line: a future's errors are made while it is polled.
    pub(crate) fn met_at(mut self, location: Location) -> Error {
        if self.0.location.is_none() {
            self.0.location = outside(location);
            self.0.read_there = self.0.op.is_some();
        }
        self
    }

    /// The same error, raised while computing a tensor that `op` made at `location`. An operation or
    /// line that it already has stays. A line of a library is left out: the line that reads the result is
    /// named in its place, by [`Error::met_at`].
    pub(crate) fn computing(mut self, op: &'static str, location: Location) -> Error {
        if self.0.op.is_none() {
            (self.0.op, self.0.location) = (Some(op), outside(location));
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, layer, op, location, read_there } = &*self.0;
        let kind = match layer {
            Some((path, name)) => format!("{kind} (layer {path}: {name})"),
            None => kind.to_string(),
        };
        match (op, location) {
            (Some(op), Some(location)) if *read_there => {
                write!(f, "{kind} (in {op}, read at {location})")
            }
            (Some(op), Some(location)) => write!(f, "{kind} (in {op}, built at {location})"),
            (Some(op), None) => write!(f, "{kind} (in {op})"),
            (_, Some(location)) => write!(f, "{kind} (at {location})"),
            _ => write!(f, "{kind}"),
        }
    }
}

/// The message, as `Display` prints it, since a `main` that returns an error prints it by `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// The kind of an error, with the values that a reader needs to fix it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Two incompatible shapes in `op`.
    #[error("{op}: {lhs} x {rhs}: {hint}")]
    ShapeMismatch {
        /// The operation.
        op: &'static str,
        /// The left or first shape.
        lhs: Shape,
        /// The right or second shape.
        rhs: Shape,
        /// The mismatch, and how to fix it.
        hint: String,
    },

    /// An axis that the shape does not have.
    #[error("{op}: axis {axis} is out of range for shape {shape}: {}", axis_range(shape))]
    AxisOutOfRange {
        /// The operation.
        op: &'static str,
        /// The axis as given.
        axis: isize,
        /// The shape.
        shape: Shape,
    },

    /// Two incompatible dtypes in `op`.
    #[error("{op}: dtypes {lhs} and {rhs} differ: {hint}")]
    DTypeMismatch {
        /// The operation.
        op: &'static str,
        /// The first dtype, or the one given.
        lhs: DType,
        /// The second dtype, or the one expected.
        rhs: DType,
        /// The fix.
        hint: String,
    },

    /// Tensors on two devices in one operation.
    #[error("{op}: tensors are on {lhs} and {rhs}; {hint}")]
    DeviceMismatch {
        /// The operation.
        op: &'static str,
        /// The device of the first tensor.
        lhs: String,
        /// The device of the second.
        rhs: String,
        /// Which tensors they are, and the fix.
        hint: String,
    },

    /// An argument that is not valid for the operation.
    #[error("{op}: {message}")]
    Invalid {
        /// The operation.
        op: &'static str,
        /// The value given, the value expected, and how to fix it.
        message: String,
    },

    /// A matrix for which an operation of linear algebra has no result, found during evaluation:
    /// singular, not positive-definite, or not finite. `torch.linalg.LinAlgError`.
    #[error("{op}: {}{message}", batch.map_or(String::new(), |b| format!("(batch element {b}) ")))]
    LinAlg {
        /// The operation.
        op: &'static str,
        /// The matrix's index in the batch, in row-major order; `None` if there is only one.
        batch: Option<usize>,
        /// The problem, and how to fix it.
        message: String,
    },

    /// An index (or class label) outside the axis that it indexes.
    #[error("{op}: {}", index_message(op, *index, *axis, *size))]
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
        /// An alternative.
        hint: String,
    },

    /// The device's memory, or its budget, is used up. The device and all live tensors are intact.
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

    /// A tensor larger than the device can hold in one buffer.
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

    /// The device is lost: driver reset, unplugged, or destroyed. Open it again for a new one.
    #[error(
        "device {device} is lost ({reason}); tensors on it are gone: open the device again and reload them"
    )]
    DeviceLost {
        /// The device.
        device: String,
        /// The driver's reason.
        reason: String,
    },

    /// An unknown device name, or a device index out of range.
    #[error("no device \"{asked}\": {hint}")]
    UnknownDevice {
        /// The name as given.
        asked: String,
        /// The known names, and how to fix it.
        hint: String,
    },

    /// A failure that the backend reported.
    #[error("{device}: {message}")]
    Backend {
        /// The device.
        device: String,
        /// The backend's message.
        message: String,
    },

    /// A collective operation in which a process hangs, exited, or called another operation.
    #[error("{op}: {message}")]
    Distributed {
        /// The collective operation.
        op: &'static str,
        /// The ranks at fault, if known.
        ranks: Vec<usize>,
        /// The fault, and how to fix it.
        message: String,
    },

    /// A gradient that cannot be computed.
    #[error("{op}: {message}")]
    Autograd {
        /// The function called.
        op: &'static str,
        /// The problem, and how to fix it.
        message: String,
    },

    /// Something that a function to be compiled does, and that a compiled function cannot repeat.
    #[error("{op}: {message}")]
    Capture {
        /// The function called.
        op: &'static str,
        /// The problem, and what to do instead.
        message: String,
    },

    /// A state dict that does not fit its target, such as a module or an optimizer. The target is
    /// unchanged.
    #[error("{}", dict_message(missing, unexpected, mismatched))]
    StateDict {
        /// Names the module has and the dict lacks.
        missing: Vec<String>,
        /// Names the dict has and the module lacks.
        unexpected: Vec<String>,
        /// Names with the shapes or dtypes found and expected.
        mismatched: Vec<String>,
    },

    /// An error of the operating system, such as a file that does not exist, from [`Error::io`]. Taper's own
    /// readers return [`ErrorKind::File`], which has the path.
    #[error("{message}")]
    Io {
        /// The kind of error, to match on.
        kind: std::io::ErrorKind,
        /// The system's message.
        message: String,
    },

    /// A file that cannot be read, or whose contents are not valid for its type.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem, its place in the file, and what was expected.
        message: String,
    },
}

/// The number of names that an error lists.
const NAMES_SHOWN: usize = 8;

/// A list of names for an error: the first few, and the number of the others.
#[doc(hidden)] // for `nn`
pub fn few(names: &[String]) -> String {
    if names.len() <= NAMES_SHOWN + 1 {
        return format!("{names:?}");
    }
    let shown: Vec<String> = names[..NAMES_SHOWN].iter().map(|name| format!("{name:?}")).collect();
    format!("[{}, and {} more]", shown.join(", "), names.len() - NAMES_SHOWN)
}

/// A description of what in a state dict does not fit: only the lists that have names, and a guess at the
/// reason if all missing names are there under a common prefix.
fn dict_message(missing: &[String], unexpected: &[String], mismatched: &[String]) -> String {
    let lists = [("missing", missing), ("unexpected", unexpected), ("misshapen", mismatched)];
    let said = lists.iter().filter(|(_, names)| !names.is_empty());
    let lists: Vec<String> = said.map(|(what, names)| format!("{what} {}", few(names))).collect();
    let hint = if let Some(prefix) = prefix_of(unexpected, missing) {
        format!(
            ". All names of the dict have the prefix {prefix:?}: load it with load_mapped(&dict, \
             &NameMap::new().strip({prefix:?}))"
        )
    } else if let Some(prefix) = prefix_of(missing, unexpected) {
        format!(
            ". The module's names have the prefix {prefix:?}, which the dict lacks: load it with \
             load_mapped(&dict, &NameMap::new().prefix({prefix:?}))"
        )
    } else {
        String::new()
    };
    format!("state dict does not fit: {}; nothing was changed{hint}", lists.join(", "))
}

/// The prefix, which ends with a period, that each of `plain` has to be given to be among `longer`.
fn prefix_of<'a>(longer: &'a [String], plain: &[String]) -> Option<&'a str> {
    let first = plain.first()?;
    let among: HashSet<&str> = longer.iter().map(String::as_str).collect();
    longer.iter().filter_map(|name| name.strip_suffix(first.as_str())).find(|prefix| {
        prefix.ends_with('.') && plain.iter().all(|name| among.contains(format!("{prefix}{name}").as_str()))
    })
}

/// A description of the axes of a shape.
fn axis_range(shape: &Shape) -> String {
    match shape.rank() {
        0 => "a scalar has no axes".into(),
        1 => "its only axis is 0, or -1 from the end".into(),
        rank => format!("its axes are 0 to {}, or -{rank} to -1 from the end", rank - 1),
    }
}

/// A description of the valid indices of an axis.
fn index_message(op: &str, index: i64, axis: usize, size: usize) -> String {
    // In the words of the operation's user, and those of an axis for any other.
    let (name, names, counted) = match op {
        "cross_entropy" | "nll_loss" | "multi_margin_loss" => ("label", "labels", Some("classes")),
        "embedding" | "embedding_bag" => ("index", "indices", Some("rows")),
        _ => ("index", "indices", None),
    };
    let found = match counted {
        Some(counted) => format!("{name} {index} of {size} {counted}"),
        None => format!("{name} {index} is out of range for axis {axis} of size {size}"),
    };
    match size {
        0 => format!("{found}, which has no elements"),
        1 => format!("{found}; its only {name} is 0"),
        _ => format!("{found}; {names} run from 0 to {}", size - 1),
    }
}

/// The error for two incompatible shapes.
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
    fn a_dict_that_does_not_fit_says_only_what_there_is() {
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let plain = dict_message(&names(&["fc.bias"]), &[], &[]);
        assert_eq!(plain, "state dict does not fit: missing [\"fc.bias\"]; nothing was changed");
        let (own, wrapped) = (names(&["fc.weight", "fc.bias"]), names(&["model.fc.bias", "model.fc.weight"]));
        assert!(dict_message(&own, &wrapped, &[]).contains("NameMap::new().strip(\"model.\")"));
        assert!(dict_message(&wrapped, &own, &[]).contains("NameMap::new().prefix(\"model.\")"));
        let other = names(&["model.fc.bias", "model.head.weight"]);
        assert!(!dict_message(&own, &other, &[]).contains("prefix"));
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
        let index = |op| ErrorKind::IndexOutOfRange { op, index: 9, axis: 0, size: 5 }.to_string();
        let of_axis = "gather: index 9 is out of range for axis 0 of size 5; indices run from 0 to 4";
        assert_eq!(index("gather"), of_axis);
        assert_eq!(index("embedding"), "embedding: index 9 of 5 rows; indices run from 0 to 4");
        assert_eq!(index("cross_entropy"), "cross_entropy: label 9 of 5 classes; labels run from 0 to 4");
    }
}
