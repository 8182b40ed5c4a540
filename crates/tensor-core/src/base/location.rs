//! [`Location`]: a line of the program that Taper runs in.

use std::{fmt, panic};

/// A line of a program: of Rust, or of another language from which Taper is called. Unlike
/// [`std::panic::Location`], which only the compiler makes, it can be made of a file and a line.
///
/// ```
/// use tensor_core::Location;
///
/// let here = Location::caller();
/// assert_eq!((here.file(), here.line()), (file!(), line!() - 1));
/// assert_eq!(Location::new("train.py", 12).to_string(), "train.py:12");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location {
    file: &'static str,
    line: u32,
    /// 0 where it is unknown.
    column: u32,
}

impl Location {
    /// A line of a file; lines are counted from 1. A language with files at run time keeps each name once,
    /// for as long as the process lives.
    #[must_use]
    pub const fn new(file: &'static str, line: u32) -> Location {
        Location { file, line, column: 0 }
    }

    /// The line of Rust that called the function which has the attribute `track_caller`.
    #[must_use]
    #[track_caller]
    #[inline]
    pub fn caller() -> Location {
        panic::Location::caller().into()
    }

    /// The path of the file, as its compiler knows it.
    #[must_use]
    pub const fn file(&self) -> &'static str {
        self.file
    }

    /// The number of the line, from 1.
    #[must_use]
    pub const fn line(&self) -> u32 {
        self.line
    }

    /// The number of the column, from 1; 0 where it is unknown.
    #[must_use]
    pub const fn column(&self) -> u32 {
        self.column
    }
}

impl From<&'static panic::Location<'static>> for Location {
    #[inline]
    fn from(location: &'static panic::Location<'static>) -> Location {
        Location { file: location.file(), line: location.line(), column: location.column() }
    }
}

/// `file:line:column`, as the compiler writes it; `file:line` where the column is unknown.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
