//! Zip archives: the directory of their entries, and decompression. Used by `.pt` and `.npz`.
//!
//! The crate `zip` reads and writes the container. Entries that are stored uncompressed, which are nearly
//! all, are then read by position, as in every other file of weights.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::Arc,
};

use flate2::read::DeflateDecoder;
use tensor_core::{
    Error, Result,
    file::{Content, ReadBudget, file_error, write_whole},
};
use zip::{
    CompressionMethod, ZipArchive, ZipWriter,
    read::{ArchiveOffset, Config},
    write::SimpleFileOptions,
};

use crate::stream::Stream;

/// The first bytes of an archive, unless it is empty.
pub(crate) const MAGIC: &[u8; 4] = b"PK\x03\x04";

/// Deflate compresses a byte to 1/1032 of a byte at best (RFC 1951): an entry that claims a higher ratio is
/// damaged.
const DEFLATE_LIMIT: u64 = 1032;

/// The size of the buffer for reading the directory: local headers are far from each other.
const HEADER_BUFFER_BYTES: usize = 512;

/// The number of bytes of an entry that are checksummed at once.
const PIECE_BYTES: usize = 1 << 16;

/// The entries of an archive by name.
#[derive(Debug)]
pub(crate) struct Archive {
    content: Arc<Content>,
    pub(crate) entries: BTreeMap<String, Entry>,
    /// The bytes that compressed entries may unpack to.
    most: u64,
}

/// The position of an archive's entry.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Uncompressed bytes.
    Stored { start: u64, size: u64, crc32: u32 },
    /// Compressed bytes.
    Packed(Arc<Packed>),
    /// An entry that cannot be read, and the reason.
    Unreadable(String),
}

impl Entry {
    /// The uncompressed size in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Entry::Stored { size, .. } => *size,
            Entry::Packed(packed) => packed.size,
            Entry::Unreadable(_) => 0,
        }
    }
}

/// An entry that is compressed by deflate.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) content: Arc<Content>,
    name: String,
    start: u64,
    compressed: u64,
    pub(crate) size: u64,
    crc32: u32,
    /// The bytes that it may unpack to.
    most: u64,
}

impl Packed {
    /// Decompresses the entry, without checks.
    pub(crate) fn decoder(&self) -> DeflateDecoder<Stream<'_>> {
        DeflateDecoder::new(Stream::new(&self.content, self.start, self.start + self.compressed))
    }

    /// All bytes of the entry, after their length and checksum were checked.
    #[track_caller]
    pub(crate) fn unpack(&self) -> Result<Vec<u8>> {
        let broken =
            |what: String| file_error(self.content.path(), format!("entry \"{}\" {what}", self.name));
        if self.size > self.most {
            let what = format!("has an entry \"{}\" that unpacks to {} bytes", self.name, self.size);
            return Err(beyond(self.content.path(), &what, self.most));
        }
        let size = usize::try_from(self.size).map_err(|_| broken("does not fit memory".into()))?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(size)
            .map_err(|_| broken(format!("takes {size} bytes of memory, which are not free")))?;
        // One byte more than expected is enough to detect that there are too many.
        let mut decoder = self.decoder().take(self.size + 1);
        decoder.read_to_end(&mut bytes).map_err(|error| broken(format!("cannot be unpacked: {error}")))?;
        if bytes.len() != size {
            return Err(broken(format!("does not unpack to the {size} bytes that the archive promises")));
        }
        if crc32fast::hash(&bytes) != self.crc32 {
            return Err(broken("is damaged: its checksum is not that of what it holds".into()));
        }
        self.content.check_unchanged()?;
        Ok(bytes)
    }
}

impl Archive {
    /// Reads the directory of an archive, and checks that its entries are in the file and do not overlap.
    /// Compressed ones unpack to no more than the budget.
    #[track_caller]
    pub(crate) fn open(content: &Arc<Content>, budget: ReadBudget) -> Result<Archive> {
        let path = content.path();
        let broken = |error: zip::result::ZipError| {
            file_error(path, format!("is a zip archive that cannot be read, cut off or damaged: {error}"))
        };
        let reader = BufReader::with_capacity(HEADER_BUFFER_BYTES, Cursor { content, at: 0 });
        // The archive begins with the file. The crate's search for its beginning reads bytes before the end
        // records, and takes the pads that PyTorch writes for some lengths of names for one of them.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let mut archive = ZipArchive::with_config(config, reader).map_err(broken)?;
        let mut entries = BTreeMap::new();
        let most = budget.bytes(content.length());
        let mut ranges = Vec::with_capacity(archive.len());
        for index in 0..archive.len() {
            let file = archive.by_index_raw(index).map_err(broken)?;
            if file.is_dir() {
                continue;
            }
            let name = file.name().map_err(broken)?.into_owned();
            let (compressed, size) = (file.compressed_size(), file.size());
            let Some(start) = file.data_start() else { continue };
            let inside = start.checked_add(compressed).is_some_and(|end| end <= content.length());
            let entry = if !inside {
                return Err(file_error(
                    path,
                    format!("entry \"{name}\" is beyond the end: the file is cut off"),
                ));
            } else if file.encrypted() {
                Entry::Unreadable("is encrypted".into())
            } else if file.compression() == CompressionMethod::Stored {
                if size != compressed {
                    let message = format!(
                        "entry \"{name}\" is stored as it is, in {compressed} bytes instead of {size}"
                    );
                    return Err(file_error(path, message));
                }
                Entry::Stored { start, size, crc32: file.crc32() }
            } else if file.compression() == CompressionMethod::Deflated {
                if size / DEFLATE_LIMIT > compressed {
                    let message = format!(
                        "entry \"{name}\" promises {size} bytes from {compressed}, which none unpack to"
                    );
                    return Err(file_error(path, message));
                }
                let content = content.clone();
                let crc32 = file.crc32();
                Entry::Packed(Arc::new(Packed {
                    content,
                    name: name.clone(),
                    start,
                    compressed,
                    size,
                    crc32,
                    most,
                }))
            } else {
                Entry::Unreadable(format!("is compressed by {}, which is not read", file.compression()))
            };
            ranges.push((file.header_start(), start + compressed));
            if entries.insert(name.clone(), entry).is_some() {
                return Err(file_error(path, format!("has two entries \"{name}\"")));
            }
        }
        // Entries that share bytes could decompress to more than a file of this size should.
        ranges.sort_unstable();
        if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(file_error(path, "is an archive with entries that overlap, which no program writes"));
        }
        content.check_unchanged()?;
        Ok(Archive { content: content.clone(), entries, most })
    }

    /// The entry with a name, or an error that says why it cannot be read.
    #[track_caller]
    pub(crate) fn entry(&self, name: &str) -> Result<&Entry> {
        match self.entries.get(name) {
            Some(Entry::Unreadable(why)) => {
                Err(file_error(self.content.path(), format!("entry \"{name}\" {why}")))
            }
            Some(entry) => Ok(entry),
            None => Err(file_error(self.content.path(), format!("has no entry \"{name}\""))),
        }
    }

    /// Passes an entry as a stream, after its checksum was verified: from the file, or from memory if it is
    /// compressed. It is for small entries; uncompressed tensor elements are not read twice.
    #[track_caller]
    pub(crate) fn with_stream<R>(
        &self,
        name: &str,
        read: impl FnOnce(&mut Stream<'_>) -> Result<R>,
    ) -> Result<R> {
        match self.entry(name)? {
            Entry::Stored { start, size, crc32 } => {
                let mut sum = crc32fast::Hasher::new();
                let mut stream = Stream::new(&self.content, *start, start + size);
                let mut piece = vec![0; PIECE_BYTES];
                while stream.remaining() > 0 {
                    let piece = &mut piece[..stream.remaining().min(PIECE_BYTES as u64) as usize];
                    stream.fill(piece)?;
                    sum.update(piece);
                }
                if sum.finalize() != *crc32 {
                    let message =
                        format!("entry \"{name}\" is damaged: its checksum is not that of what it holds");
                    return Err(file_error(self.content.path(), message));
                }
                read(&mut Stream::new(&self.content, *start, start + size))
            }
            Entry::Packed(packed) => {
                let path = self.content.path().to_path_buf();
                let content = Content::Memory { path, bytes: packed.unpack()? };
                read(&mut Stream::new(&content, 0, packed.size))
            }
            Entry::Unreadable(_) => Err(Error::invalid("entry", "is refused above")),
        }
    }

    /// The total size of all entries in bytes, of which those that are compressed count up to the budget.
    pub(crate) fn size(&self) -> u64 {
        let (mut stored, mut packed) = (0u64, 0u64);
        for entry in self.entries.values() {
            let sum = if matches!(entry, Entry::Packed(_)) { &mut packed } else { &mut stored };
            *sum = sum.saturating_add(entry.size());
        }
        stored.saturating_add(packed.min(self.most))
    }
}

/// The error of a file that would take more memory than its budget.
#[track_caller]
pub(crate) fn beyond(path: &Path, what: &str, most: u64) -> Error {
    let message = format!(
        "{what}; {most} are allowed for a file of its size: if it is trusted, open it with open_within and a greater ReadBudget"
    );
    file_error(path, message)
}

/// A file with a read position, for the crate `zip`.
struct Cursor<'a> {
    content: &'a Content,
    at: u64,
}

impl Read for Cursor<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.content.length().saturating_sub(self.at);
        let count = (out.len() as u64).min(left) as usize;
        self.content.read_at(&mut out[..count], self.at).map_err(io::Error::other)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.content.length().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// An archive that is being written: entries are uncompressed, and begin at multiples of 64 bytes.
pub(crate) struct ArchiveWriter<'a> {
    path: &'a Path,
    zip: ZipWriter<io::BufWriter<&'a mut File>>,
}

/// The alignment of the elements of every entry in bytes, that of PyTorch and NumPy.
const ALIGNMENT: u16 = 64;

/// An entry of this many bytes or more needs the wide fields of zip64.
const WIDE_BYTES: u64 = u32::MAX as u64;

impl ArchiveWriter<'_> {
    /// Begins an entry of `size` bytes, which are passed to [`ArchiveWriter::write`].
    #[track_caller]
    pub(crate) fn start(&mut self, name: &str, size: u64) -> Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .with_alignment(ALIGNMENT)
            .large_file(size >= WIDE_BYTES);
        self.zip.start_file(name, options).map_err(|error| unwritten(self.path, &error))
    }

    /// Writes bytes of the entry.
    #[track_caller]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.zip.write_all(bytes).map_err(|error| unwritten(self.path, &error))
    }
}

#[track_caller]
fn unwritten(path: &Path, error: &dyn std::fmt::Display) -> Error {
    file_error(path, format!("cannot be written: {error}"))
}

/// Writes an archive completely or not at all, with the entries that `content` writes.
#[track_caller]
pub(crate) fn write_archive(
    path: &Path,
    content: impl FnOnce(&mut ArchiveWriter<'_>) -> Result<()>,
) -> Result<()> {
    let written = write_whole(
        path,
        |error| unwritten(path, &error),
        |file| {
            let mut writer = ArchiveWriter { path, zip: ZipWriter::new(io::BufWriter::new(file)) };
            content(&mut writer)?;
            let mut file = writer.zip.finish().map_err(|error| unwritten(path, &error))?;
            file.flush().map_err(|error| unwritten(path, &error))
        },
    );
    Error::here_in(written)
}
