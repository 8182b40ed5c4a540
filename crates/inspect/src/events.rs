//! TensorBoard's event files. A record has a length, its masked CRC-32C, the bytes, and their masked
//! CRC-32C; the bytes are an `Event` of `tensorflow/core/util/event.proto`.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use tensor_core::{Error, ErrorKind, Result};
use web_time::SystemTime;

use crate::{crc32c::masked_crc32c, protobuf::Message};

/// Writes a new event file for TensorBoard. TensorFlow's `event.proto` and `summary.proto` define the
/// contents of an event.
///
/// ```
/// use inspect::{EventWriter, Message};
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let mut events = EventWriter::create(folder)?;
/// let value = Message::default().string(1, "loss").float(2, 0.25);
/// let summary = Message::default().message(1, value);
/// events.write(Message::default().int(2, 100).message(5, summary))?; // step 100
/// events.flush()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl EventWriter {
    /// A new file in `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// `File` for a folder or file that cannot be written.
    #[track_caller]
    pub fn create(folder: impl AsRef<Path>) -> Result<EventWriter> {
        let folder = folder.as_ref();
        fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut nanoseconds = now.subsec_nanos();
        loop {
            // TensorBoard reads files with "tfevents" in their names, in the order of the names.
            let name = format!("events.out.tfevents.{}.{nanoseconds:09}.taper", now.as_secs());
            let path = folder.join(name);
            match File::create_new(&path) {
                Ok(file) => {
                    let mut events = EventWriter { path, file: BufWriter::new(file) };
                    events.write(version())?;
                    return Ok(events);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => nanoseconds += 1,
                Err(error) => return Err(failed(&path, error)),
            }
        }
    }

    /// Writes an event with the current time and the fields `fields`.
    ///
    /// # Errors
    /// `File` for a file that cannot be written, such as on a full disk.
    #[track_caller]
    pub fn write(&mut self, fields: Message) -> Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.file
            .write_all(&record(&event(now.as_secs_f64(), fields)))
            .map_err(|error| failed(&self.path, error))
    }

    /// Passes all events to the system, so that TensorBoard can see them. Dropping the writer does so too.
    ///
    /// # Errors
    /// `File` for a file that cannot be written.
    #[track_caller]
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| failed(&self.path, error))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[track_caller]
fn failed(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::File { path: path.into(), message: format!("cannot be written: {error}") })
}

/// The first event of every file.
pub(crate) fn version() -> Message {
    Message::default().string(3, "brain.Event:2")
}

/// An event at `time`, in seconds since 1970.
pub(crate) fn event(time: f64, fields: Message) -> Vec<u8> {
    Message::default().double(1, time).then(fields).finish()
}

/// A record: bytes with their length and the checksums of both.
pub(crate) fn record(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(bytes.len() + 16);
    record.extend(length);
    record.extend(masked_crc32c(&length).to_le_bytes());
    record.extend(bytes);
    record.extend(masked_crc32c(bytes).to_le_bytes());
    record
}
