//! Files that may be gzipped, which their first two bytes tell, not their names.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;
use tensor_core::Result;
pub(crate) use tensor_core::file::file_error;

/// Deflate cannot compress data to less than about 1/1032 of its size: one byte encodes at most four matches
/// of 258 bytes.
const GREATEST_RATIO: u64 = 1032;

/// The content of a file, decompressed while it is read if it is gzipped.
pub(crate) struct Content {
    pub(crate) reader: Box<dyn BufRead>,
    /// An upper bound of the content's size in bytes: the file's size if it is plain.
    pub(crate) at_most: u64,
    pub(crate) gzipped: bool,
}

/// Opens a file whose content may be gzipped.
#[track_caller]
pub(crate) fn open(path: &Path) -> Result<Content> {
    let failed = |error: std::io::Error| file_error(path, format!("cannot be opened: {error}"));
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(file_error(path, "is a directory; expected a file"));
    }
    let mut reader = BufReader::new(file);
    let gzipped = reader.fill_buf().map_err(failed)?.starts_with(&[0x1f, 0x8b]);
    // A pipe has no size.
    let size = if metadata.is_file() { metadata.len() } else { u64::MAX };
    Ok(if gzipped {
        let at_most = size.saturating_mul(GREATEST_RATIO);
        Content { reader: Box::new(BufReader::new(MultiGzDecoder::new(reader))), at_most, gzipped }
    } else {
        Content { reader: Box::new(reader), at_most: size, gzipped }
    })
}

/// A reader that fails after a given number of bytes.
pub(crate) struct Bounded<R> {
    reader: R,
    limit: u64,
    left: u64,
}

impl<R: Read> Bounded<R> {
    pub(crate) fn new(reader: R, limit: u64) -> Bounded<R> {
        Bounded { reader, limit, left: limit }
    }
}

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

/// A reader of `bytes`, which decompresses them if they are gzipped.
pub(crate) fn reader_of<'a>(bytes: &'a [u8]) -> Box<dyn Read + 'a> {
    if bytes.starts_with(&[0x1f, 0x8b]) { Box::new(MultiGzDecoder::new(bytes)) } else { Box::new(bytes) }
}
