//! [`Stream`]: reads a range of a file sequentially, for headers and pickles.

use std::io::{self, Read};

use tensor_core::{Result, file::Content};

/// The size of a read from the file, in bytes.
const BUFFER_BYTES: usize = 1 << 14;

/// Reads a range of a file in order. No read allocates more than the range's size.
pub(crate) struct Stream<'a> {
    content: &'a Content,
    /// The offset of the first byte after the buffer.
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The offset in the buffer of the first unread byte.
    used: usize,
}

impl<'a> Stream<'a> {
    /// A stream of the bytes from `start` to `end`, which must be within the file.
    pub(crate) fn new(content: &'a Content, start: u64, end: u64) -> Stream<'a> {
        let end = end.min(content.length());
        Stream { content, next: start.min(end), end, buffer: Vec::new(), used: 0 }
    }

    /// The file's path, for errors.
    pub(crate) fn path(&self) -> &'a std::path::Path {
        self.content.path()
    }

    /// The offset of the next byte in the file.
    pub(crate) fn position(&self) -> u64 {
        self.next - (self.buffer.len() - self.used) as u64
    }

    /// The number of bytes left.
    pub(crate) fn remaining(&self) -> u64 {
        self.end - self.position()
    }

    fn refill(&mut self) -> Result<()> {
        let count = (self.end - self.next).min(BUFFER_BYTES as u64) as usize;
        self.buffer.resize(count, 0);
        self.used = 0;
        self.content.read_at(&mut self.buffer, self.next)?;
        self.next += count as u64;
        Ok(())
    }

    /// The next byte, `None` at the end.
    pub(crate) fn byte(&mut self) -> Result<Option<u8>> {
        if self.used == self.buffer.len() {
            if self.next == self.end {
                return Ok(None);
            }
            self.refill()?;
        }
        self.used += 1;
        Ok(self.buffer.get(self.used - 1).copied())
    }

    /// Fills `out`; false if fewer bytes are left.
    pub(crate) fn fill(&mut self, out: &mut [u8]) -> Result<bool> {
        if (out.len() as u64) > self.remaining() {
            return Ok(false);
        }
        let ready = out.len().min(self.buffer.len() - self.used);
        let (begin, rest) = out.split_at_mut(ready);
        begin.copy_from_slice(&self.buffer[self.used..self.used + ready]);
        self.used += ready;
        if rest.len() >= BUFFER_BYTES {
            self.content.read_at(rest, self.next)?;
            self.next += rest.len() as u64;
        } else if !rest.is_empty() {
            self.refill()?;
            rest.copy_from_slice(&self.buffer[..rest.len()]);
            self.used = rest.len();
        }
        Ok(true)
    }

    /// The next `count` bytes; `None` if fewer are left.
    pub(crate) fn take(&mut self, count: u64) -> Result<Option<Vec<u8>>> {
        if count > self.remaining() {
            return Ok(None);
        }
        let mut bytes = vec![0; count as usize];
        Ok(self.fill(&mut bytes)?.then_some(bytes))
    }

    /// The next bytes as an array; `None` if fewer are left.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        Ok(self.fill(&mut bytes)?.then_some(bytes))
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = (out.len() as u64).min(self.remaining()) as usize;
        self.fill(&mut out[..count]).map_err(io::Error::other)?;
        Ok(count)
    }
}
