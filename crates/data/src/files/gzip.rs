//! Files that may be gzipped, which their first two bytes tell, not their names.

#[cfg(feature = "csv")]
use std::io::Read;
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

#[cfg(feature = "gzip")]
use flate2::bufread::MultiGzDecoder;
pub(crate) use tensor_core::file::file_error;
use tensor_core::{
    Result, caller_line,
    file::{ReadBudget, open_regular},
};

/// The first two bytes of a gzipped file.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Deflate cannot compress data to less than about 1/1032 of its size: one byte encodes at most four matches
/// of 258 bytes.
#[cfg(feature = "gzip")]
const GREATEST_RATIO: u64 = 1032;

/// The content of a file, decompressed while it is read if it is gzipped.
pub(crate) struct Content {
    pub(crate) reader: Box<dyn BufRead>,
    /// An upper bound of the content's size in bytes: the file's size if it is plain.
    pub(crate) at_most: u64,
    pub(crate) gzipped: bool,
}

/// Opens a file whose content may be gzipped, and then decompresses to as much as the budget allows.
#[track_caller]
pub(crate) fn open(path: &Path, budget: ReadBudget) -> Result<Content> {
    let _line = caller_line();
    let failed = |error: std::io::Error| file_error(path, format!("cannot be read: {error}"));
    let file = open_regular(path)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut reader = BufReader::new(file);
    let gzipped = reader.fill_buf().map_err(failed)?.starts_with(&MAGIC);
    if gzipped {
        return decompressed(reader, size, budget, path);
    }
    Ok(Content { reader: Box::new(reader), at_most: size, gzipped })
}

/// The decompressed content of a gzipped file.
#[cfg(feature = "gzip")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it is an error")]
fn decompressed(reader: BufReader<File>, size: u64, budget: ReadBudget, _: &Path) -> Result<Content> {
    let at_most = size.saturating_mul(GREATEST_RATIO).min(budget.bytes(size));
    Ok(Content { reader: Box::new(BufReader::new(MultiGzDecoder::new(reader))), at_most, gzipped: true })
}

/// An error: gzipped files are read with the feature `gzip` alone.
#[cfg(not(feature = "gzip"))]
#[track_caller]
fn decompressed(_: BufReader<File>, _: u64, _: ReadBudget, path: &Path) -> Result<Content> {
    Err(file_error(path, "is gzipped; build with the feature `gzip` to read it, or decompress it first"))
}

/// A reader that fails after a given number of bytes.
#[cfg(feature = "csv")]
pub(crate) struct Bounded<R> {
    reader: R,
    limit: u64,
    left: u64,
}

#[cfg(feature = "csv")]
impl<R: Read> Bounded<R> {
    pub(crate) fn new(reader: R, limit: u64) -> Bounded<R> {
        Bounded { reader, limit, left: limit }
    }
}

#[cfg(feature = "csv")]
impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // At the limit one more byte is read, to distinguish the end from more data.
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).clamp(1, buffer.len().max(1));
        let most = most.min(buffer.len());
        let found = self.reader.read(&mut buffer[..most])?;
        match self.left.checked_sub(found as u64) {
            Some(left) => self.left = left,
            None => {
                return Err(std::io::Error::other(format!(
                    "it decompresses to more than {} bytes; if that is right, raise CsvOptions::max_decompressed",
                    self.limit
                )));
            }
        }
        Ok(found)
    }
}
