//! Reading device memory: a copy to a staging buffer, which is mapped once the device has finished it. The
//! caller waits for that, or one thread of the device waits on behalf of all asynchronous reads.

use std::{ops::Range, sync::Arc};

use tensor_core::{Buffer, DType, Error, Result, Storage, lock};

use crate::{
    device::{
        fault_table::Snapshot,
        gpu::Gpu,
        pool::WgpuBuffer,
        stream::Stream,
        waiting::{Job, Mapping},
    },
    platform::CAN_WAIT,
};

/// The most bytes of one piece of a read-back.
const READ_BYTES: usize = 32 << 20;

/// Ranges that split `numel` elements into pieces.
fn pieces(numel: usize, dtype: DType) -> impl Iterator<Item = Range<usize>> + Send {
    let piece = READ_BYTES / dtype.size();
    (0..numel).step_by(piece).map(move |begin| begin..(begin + piece).min(numel))
}

/// The bytes of a buffer that are read together.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    raw: &'a wgpu::Buffer,
    start: u64,
    bytes: usize,
}

impl<'a> Piece<'a> {
    /// The piece with the range `elements`, counted from element `start` of the buffer.
    fn new(raw: &'a wgpu::Buffer, start: usize, elements: &Range<usize>, dtype: DType) -> Piece<'a> {
        let start = ((start + elements.start) * dtype.size()) as u64;
        Piece { raw, start, bytes: elements.len() * dtype.size() }
    }

    /// `count` words of a buffer from word `first` on.
    pub(crate) fn words(raw: &'a wgpu::Buffer, first: usize, count: usize) -> Piece<'a> {
        Piece { raw, start: 4 * first as u64, bytes: 4 * count }
    }

    /// The offset of its first word: copies are in whole words.
    fn first_word(&self) -> u64 {
        self.start / 4 * 4
    }

    /// The range of its bytes within these words.
    fn within(&self) -> Range<usize> {
        let begin = (self.start % 4) as usize;
        begin..begin + self.bytes
    }

    /// The bytes of all its words.
    fn word_bytes(&self) -> usize {
        self.within().end.next_multiple_of(4)
    }
}

/// A read in progress.
pub(crate) struct Reading {
    staging: wgpu::Buffer,
    mapping: Mapping,
    index: wgpu::SubmissionIndex,
    /// The range of the requested bytes within the copied ones.
    within: Range<usize>,
    /// The start of the fault table's copy, which follows these bytes.
    table: usize,
    /// The launches whose tickets this copy decides.
    faults: Option<Snapshot>,
}

impl Gpu {
    /// Reads elements of a buffer into host bytes.
    pub(crate) fn read(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        let numel = out.len() / storage.dtype().size();
        let buffer = self.readable(storage, start, numel)?;
        let Some(raw) = buffer.raw().filter(|_| numel > 0) else { return Ok(()) };
        let dtype = buffer.dtype();
        if !CAN_WAIT {
            return Err(self.must_be_awaited("a read"));
        }
        for piece in pieces(numel, dtype) {
            let reading =
                self.begin_read(&mut lock(&self.stream), Some(Piece::new(raw, start, &piece, dtype)))?;
            self.wait_for(&reading)?;
            let to = &mut out[piece.start * dtype.size()..piece.end * dtype.size()];
            self.end_read(reading, |bytes| to.copy_from_slice(bytes))?;
        }
        self.check_trace()
    }

    /// Reads elements of a buffer as host bytes, without blocking a thread of the caller.
    pub(crate) async fn read_async(
        self: Arc<Gpu>,
        storage: Storage,
        start: usize,
        numel: usize,
    ) -> Result<Vec<u8>> {
        let buffer = self.readable(&storage, start, numel)?;
        let dtype = buffer.dtype();
        let mut out = vec![0; numel * dtype.size()];
        let Some(raw) = buffer.raw().filter(|_| numel > 0) else {
            return Ok(out);
        };
        for piece in pieces(numel, dtype) {
            let reading =
                self.begin_read(&mut lock(&self.stream), Some(Piece::new(raw, start, &piece, dtype)))?;
            if CAN_WAIT {
                self.await_read(Job { index: reading.index.clone(), mapping: reading.mapping.clone() });
            }
            reading.mapping.clone().await;
            let to = &mut out[piece.start * dtype.size()..piece.end * dtype.size()];
            self.end_read(reading, |bytes| to.copy_from_slice(bytes))?;
        }
        Ok(out)
    }

    /// The buffer of a storage, if the device is alive and the buffer has `numel` elements from `start` on.
    fn readable<'a>(&self, storage: &'a Storage, start: usize, numel: usize) -> Result<&'a WgpuBuffer> {
        self.faults.alive(self.name())?;
        let buffer = self.buffer(storage)?;
        if start.checked_add(numel).is_none_or(|end| end > buffer.numel()) {
            return Err(Error::invalid(
                "download",
                format!("elements {start}..{start}+{numel} of a buffer of {}", buffer.numel()),
            ));
        }
        Ok(buffer)
    }

    /// Records the copy of a piece (if there is one) and of the fault table (if tickets are open) to a
    /// staging buffer, submits, and requests the mapping.
    pub(crate) fn begin_read(&self, stream: &mut Stream, piece: Option<Piece<'_>>) -> Result<Reading> {
        let after = piece.map_or(0, |piece| piece.word_bytes());
        let within = piece.map_or(0..0, |piece| piece.within());
        let faults = stream.faults.snapshot();
        let need = after as u64 + faults.map_or(0, |snapshot| snapshot.bytes);
        let staging = self.staging(stream, need)?;
        let table = stream.faults.made.raw.clone();
        let encoder = stream.encoder(&self.device);
        if let Some(piece) = piece {
            encoder.copy_buffer_to_buffer(piece.raw, piece.first_word(), &staging, 0, after as u64);
        }
        if let Some(snapshot) = faults {
            encoder.copy_buffer_to_buffer(&table, 0, &staging, after as u64, snapshot.bytes);
        }
        let index = self.flush(stream)?;
        self.made.read_backs.add_one();
        stream.will_be_idle();
        let mapping = Mapping::default();
        let reporter = mapping.clone();
        self.scoped("read", || {
            staging.map_async(wgpu::MapMode::Read, ..need.next_multiple_of(8), move |result| {
                reporter.report(result.is_ok());
            });
        })?;
        Ok(Reading { staging, mapping, index, within, table: after, faults })
    }

    /// Waits for a reading.
    pub(crate) fn wait_for(&self, reading: &Reading) -> Result<()> {
        self.wait_soon(reading.index.clone(), || reading.mapping.is_reported())?;
        // The wait ran the callback, or another thread's poll is running it.
        reading.mapping.wait();
        Ok(())
    }

    /// Decides the tickets of a finished reading, and passes its bytes to `show`.
    pub(crate) fn end_read(&self, reading: Reading, show: impl FnOnce(&[u8])) -> Result<()> {
        let Reading { staging, mapping, within, table, faults, .. } = reading;
        self.faults.alive(self.name())?;
        if !mapping.is_mapped() {
            return Err(self.error("the memory read back could not be mapped"));
        }
        {
            let end = table as u64 + faults.map_or(0, |snapshot| snapshot.bytes);
            let view = staging
                .get_mapped_range(..end.next_multiple_of(8))
                .map_err(|e| self.error(format!("the memory read back could not be mapped: {e}")))?;
            if let Some(snapshot) = faults {
                let words: Vec<u32> = bytemuck::pod_collect_to_vec(&view[table..end as usize]);
                lock(&self.stream).faults.decide(snapshot, &words);
            }
            show(&view[within]);
        }
        staging.unmap();
        self.keep_staging(staging);
        self.keep_pipelines(false);
        Ok(())
    }

    /// A staging buffer of at least `need` bytes.
    fn staging(&self, stream: &mut Stream, need: u64) -> Result<wgpu::Buffer> {
        if let Some(i) = stream.staging.iter().position(|b| b.size() >= need) {
            return Ok(stream.staging.swap_remove(i));
        }
        let size = need.next_power_of_two().max(64 << 10);
        self.made.buffers.add_one();
        self.scoped("read", || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("staging"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    }

    /// Keeps a few staging buffers, the larger ones first.
    fn keep_staging(&self, staging: wgpu::Buffer) {
        let mut stream = lock(&self.stream);
        stream.staging.push(staging);
        stream.staging.sort_by_key(wgpu::Buffer::size);
        if stream.staging.len() > 4 {
            stream.staging.remove(0);
        }
    }

    /// Decides every ticket of the launches so far; waits for the device if any ticket is open.
    pub(crate) fn settle_tickets(&self) -> Result<()> {
        let reading = {
            let mut stream = lock(&self.stream);
            match stream.faults.snapshot() {
                Some(_) if !CAN_WAIT => return Err(self.must_be_awaited("the check of indices")),
                Some(_) => self.begin_read(&mut stream, None)?,
                None => return Ok(()),
            }
        };
        self.wait_for(&reading)?;
        self.end_read(reading, |_| {})
    }

    /// Gives a read to the device's thread, which waits for it.
    fn await_read(self: &Arc<Gpu>, job: Job) {
        {
            let mut jobs = lock(&self.waiting.0);
            jobs.queue.push_back(job);
            if std::mem::replace(&mut jobs.running, true) {
                return;
            }
        }
        let other = Arc::clone(self);
        let started =
            std::thread::Builder::new().name("taper-read".into()).spawn(move || other.serve_reads());
        if started.is_err() {
            // If the system cannot start a thread, the current one serves.
            self.serve_reads();
        }
    }

    /// Processes the queue in order until it is empty.
    fn serve_reads(&self) {
        loop {
            let next = {
                let mut jobs = lock(&self.waiting.0);
                let next = jobs.queue.pop_front();
                jobs.running = next.is_some();
                next
            };
            let Some(Job { index, mapping }) = next else { return };
            match self.wait(index) {
                Ok(()) => mapping.wait(),
                // The reader gets the error from the device.
                Err(_) => mapping.report(false),
            }
        }
    }
}
