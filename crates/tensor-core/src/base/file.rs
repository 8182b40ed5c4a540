//! [`OpenFile`]: a file whose parts are read on demand; [`ReadBudget`]: the memory for what it holds. For the
//! crates of file formats.
//!
//! It is read by position. On request, large tensors are its pages in memory (decision 69): opening them
//! takes no copy, but a file that another program cuts off meanwhile ends the process.

use std::{
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

pub use crate::base::write_file::{sweep, write_whole};
use crate::base::{
    error::{Error, ErrorKind, Result},
    host_bytes::{HostBytes, Mapping},
};

/// An open file that must not change while it is in use.
#[derive(Debug)]
pub struct OpenFile {
    path: PathBuf,
    file: File,
    length: u64,
    modified: Option<SystemTime>,
    mapping: Mapping,
}

impl OpenFile {
    /// A file that was opened at `path`; records its present length and modification time.
    ///
    /// # Errors
    /// `File` for whatever the file system reports.
    #[track_caller]
    pub fn new(path: &Path, file: File) -> Result<OpenFile> {
        let (length, modified) = length_and_time(&file).map_err(|error| unreadable(path, &error))?;
        Ok(OpenFile { path: path.to_path_buf(), file, length, modified, mapping: Mapping::default() })
    }

    /// The path that it was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Fills `bytes` from byte `at` of the file on. Safe to call from several threads.
    ///
    /// # Errors
    /// `File` for a file that ends too early, and for whatever the file system reports.
    #[track_caller]
    pub fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        read_at(&self.file, bytes, at).map_err(|error| unreadable(&self.path, &error))
    }

    /// The bytes from byte `at` on as pages of the file, for a buffer of their own. `None` for a few bytes,
    /// for bytes that another buffer has, and where files are not mapped: read them.
    pub fn lend(&self, at: u64, bytes: usize) -> Option<HostBytes> {
        self.mapping.lend(&self.file, self.length, at, bytes)
    }

    /// Checks that the file has not changed since it was opened; call it after the last read, so that no
    /// change is missed.
    ///
    /// # Errors
    /// `File` if the length or the modification time differs.
    #[track_caller]
    pub fn check_unchanged(&self) -> Result<()> {
        let now = length_and_time(&self.file).map_err(|error| unreadable(&self.path, &error))?;
        if now == (self.length, self.modified) {
            return Ok(());
        }
        Err(file_error(&self.path, "has changed since it was opened; open it again"))
    }
}

/// The bytes of a file: on disk and read on demand, or in memory.
#[derive(Debug)]
pub enum Content {
    /// A file that can be read by position.
    File(OpenFile),
    /// Bytes in memory, for example of a download.
    Memory {
        /// The name in errors.
        path: PathBuf,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

impl Content {
    /// Opens a regular file.
    ///
    /// # Errors
    /// As [`open_regular`].
    #[track_caller]
    pub fn open(path: &Path) -> Result<Content> {
        Ok(Content::File(OpenFile::new(path, open_regular(path)?)?))
    }

    /// The name in errors.
    pub fn path(&self) -> &Path {
        match self {
            Content::File(file) => file.path(),
            Content::Memory { path, .. } => path,
        }
    }

    /// The number of bytes.
    pub fn length(&self) -> u64 {
        match self {
            Content::File(file) => file.length(),
            Content::Memory { bytes, .. } => bytes.len() as u64,
        }
    }

    /// Fills `out` from byte `at` on. Callers call [`Content::check_unchanged`] afterwards.
    ///
    /// # Errors
    /// `File` for a range beyond the end, and for whatever the file system reports.
    #[track_caller]
    pub fn read_at(&self, out: &mut [u8], at: u64) -> Result<()> {
        match self {
            Content::File(file) => file.read_at(out, at),
            Content::Memory { path, bytes } => {
                let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..out.len()));
                let from = from.ok_or_else(|| file_error(path, "cannot be read: it ended early"))?;
                out.copy_from_slice(from);
                Ok(())
            }
        }
    }

    /// Pages of the file; see [`OpenFile::lend`].
    pub fn lend(&self, at: u64, bytes: usize) -> Option<HostBytes> {
        match self {
            Content::File(file) => file.lend(at, bytes),
            Content::Memory { .. } => None,
        }
    }

    /// Checks that the file has not changed since it was opened; see [`OpenFile::check_unchanged`].
    ///
    /// # Errors
    /// `File` if the length or the modification time differs.
    #[track_caller]
    pub fn check_unchanged(&self) -> Result<()> {
        match self {
            Content::File(file) => file.check_unchanged(),
            Content::Memory { .. } => Ok(()),
        }
    }
}

/// The memory that a reader may take for what a file holds: at least `least` bytes, and `per_byte` bytes for
/// each byte of the file. A file that is compressed, or whose description is short, may hold far more than
/// its size shows; beyond the budget it is refused.
///
/// ```
/// use tensor_core::file::ReadBudget;
/// assert_eq!(ReadBudget::default().bytes(1000), 256 << 20);
/// assert_eq!(ReadBudget::default().bytes(1 << 30), 64 << 30);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBudget {
    /// The bytes that any file may take, however small it is. 256 MiB by default.
    pub least: u64,
    /// The bytes for each byte of the file. 64 by default.
    pub per_byte: u64,
}

impl ReadBudget {
    /// No bound, for files whose origin is trusted.
    pub const UNLIMITED: ReadBudget = ReadBudget { least: u64::MAX, per_byte: 0 };

    /// The bytes for a file of this length.
    pub fn bytes(&self, length: u64) -> u64 {
        self.least.max(length.saturating_mul(self.per_byte))
    }
}

impl Default for ReadBudget {
    fn default() -> ReadBudget {
        ReadBudget { least: 256 << 20, per_byte: 64 }
    }
}

/// Opens a regular file for reading. Pipes and devices are refused before they are opened, because opening a
/// pipe waits for its writer, and a device may have no end.
///
/// # Errors
/// `File` for a directory, a pipe, a socket or a device, and for whatever the file system reports.
#[track_caller]
pub fn open_regular(path: &Path) -> Result<File> {
    require_regular(path, fs::metadata(path))?;
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    // The name may lead to another file by now.
    require_regular(path, file.metadata())?;
    Ok(file)
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open_regular`].
#[track_caller]
pub fn read_regular(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = io::Read::read_to_end(&mut open_regular(path)?, &mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    Ok(bytes)
}

/// The text of a regular file in UTF-8.
///
/// # Errors
/// As [`open_regular`], and `File` for bytes that are not UTF-8.
#[track_caller]
pub fn read_regular_text(path: &Path) -> Result<String> {
    let text = String::from_utf8(read_regular(path)?);
    text.map_err(|error| file_error(path, format!("cannot be read: {error}")))
}

#[track_caller]
fn require_regular(path: &Path, metadata: io::Result<Metadata>) -> Result<()> {
    let metadata = metadata.map_err(|error| unreadable(path, &error))?;
    if metadata.is_file() {
        return Ok(());
    }
    if metadata.is_dir() {
        return Err(file_error(path, "is a directory; expected a file"));
    }
    let message = "is a pipe, a socket or a device; expected a file: write what it gives to a file first";
    Err(file_error(path, message))
}

/// An error of kind `File`.
#[track_caller]
pub fn file_error(path: &Path, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::File { path: path.to_path_buf(), message: message.into() })
}

#[track_caller]
fn unreadable(path: &Path, error: &io::Error) -> Error {
    file_error(path, format!("cannot be read: {error}"))
}

fn length_and_time(file: &File) -> io::Result<(u64, Option<SystemTime>)> {
    let metadata = file.metadata()?;
    Ok((metadata.len(), metadata.modified().ok()))
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => (bytes, at) = (&mut bytes[count..], at + count as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The stub for targets without files, such as browsers.
#[cfg(not(any(unix, windows)))]
fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
