//! The error of writing to a pipe that was closed.

use std::{error::Error as StdError, io};

use tensor_core::{Error, ErrorKind};

/// Whether an error is that of writing to a pipe that was closed, as in `program | head`, for programs that
/// print with `writeln!`: they may end with success. [`crate::end_quietly_on_closed_pipe`] is for `println!`.
///
/// ```
/// let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
/// assert!(taper::is_closed_pipe(&closed));
/// assert!(taper::is_closed_pipe(&taper::Error::io(closed)));
/// ```
#[must_use]
pub fn is_closed_pipe(error: &(dyn StdError + 'static)) -> bool {
    let own = error.downcast_ref::<Error>().is_some_and(
        |error| matches!(error.kind(), ErrorKind::Io { kind, .. } if *kind == io::ErrorKind::BrokenPipe),
    );
    own || error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
