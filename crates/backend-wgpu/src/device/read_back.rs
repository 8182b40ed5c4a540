//! Reading device memory: a copy to a staging buffer, which is mapped once the device has finished it. The
//! caller waits for that, or one thread of the device waits on behalf of all asynchronous reads.

use std::{
    collections::VecDeque,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tensor_core::{Buffer, DType, Error, Result, Storage};

use crate::{
    device::{fault_table::Snapshot, faults::lock, gpu::Gpu, pool::WgpuBuffer, stream::Stream},
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
        Ok(())
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
                Waiting::push(&self, Job { index: reading.index.clone(), mapping: reading.mapping.clone() });
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
        let table = stream.faults.raw.clone();
        let encoder = stream.encoder(&self.device);
        if let Some(piece) = piece {
            encoder.copy_buffer_to_buffer(piece.raw, piece.first_word(), &staging, 0, after as u64);
        }
        if let Some(snapshot) = faults {
            encoder.copy_buffer_to_buffer(&table, 0, &staging, after as u64, snapshot.bytes);
        }
        let index = self.flush(stream)?;
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
        self.wait(reading.index.clone())?;
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
}

/// Whether a buffer is mapped: reported once by wgpu, and waited for or awaited by one reader.
#[derive(Clone, Default)]
pub(crate) struct Mapping(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    reported: Option<bool>,
    waker: Option<Waker>,
}

impl Mapping {
    /// Only the first report counts.
    fn report(&self, mapped: bool) {
        let (state, changed) = &*self.0;
        let waker = {
            let mut state = lock(state);
            state.reported.get_or_insert(mapped);
            state.waker.take()
        };
        changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for wgpu's report; a report that is missing one minute after the device finished is a failure.
    fn wait(&self) {
        const REPORT_TIMEOUT: Duration = Duration::from_secs(60);
        let (state, changed) = &*self.0;
        let waited =
            changed.wait_timeout_while(lock(state), REPORT_TIMEOUT, |state| state.reported.is_none());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.report(false);
    }

    fn is_mapped(&self) -> bool {
        lock(&self.0.0).reported == Some(true)
    }
}

impl Future for Mapping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0.0);
        if state.reported.is_some() {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A wait of the device's thread on behalf of one reader.
struct Job {
    index: wgpu::SubmissionIndex,
    mapping: Mapping,
}

/// Asynchronous reads. While there are any, one thread polls the device on behalf of all, because wgpu runs
/// callbacks only when it is polled. In a browser, callbacks run without polling.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Jobs>);

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    running: bool,
}

impl Waiting {
    fn push(gpu: &Arc<Gpu>, job: Job) {
        {
            let mut jobs = lock(&gpu.waiting.0);
            jobs.queue.push_back(job);
            if std::mem::replace(&mut jobs.running, true) {
                return;
            }
        }
        let other = Arc::clone(gpu);
        let started =
            std::thread::Builder::new().name("taper-read".into()).spawn(move || Self::serve(&other));
        if started.is_err() {
            // If the system cannot start a thread, the current one serves.
            Self::serve(gpu);
        }
    }

    /// Processes the queue in order until it is empty.
    fn serve(gpu: &Gpu) {
        loop {
            let next = {
                let mut jobs = lock(&gpu.waiting.0);
                let next = jobs.queue.pop_front();
                jobs.running = next.is_some();
                next
            };
            let Some(Job { index, mapping }) = next else { return };
            match gpu.wait(index) {
                Ok(()) => mapping.wait(),
                // The reader gets the error from the device.
                Err(_) => mapping.report(false),
            }
        }
    }
}
