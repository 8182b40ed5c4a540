//! Instrumentation of kernels: [`profile`] times each one, and [`detect_anomaly`] finds the first that
//! makes a NaN or an infinity. While both are off, this costs one relaxed load per kernel.

use std::{panic::Location, sync::Mutex, time::Duration};

use web_time::Instant;

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        sync::lock,
    },
    devices::backend::Backend,
    elements::{dtype::DType, scalar::Scalar},
    graph::node::Node,
    kernels::{
        kernel::{Kernel, Launch},
        storage::Storage,
    },
    schedule::watch_flags::{ANOMALY, PROFILE, Watch, watched},
};

static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);
static ANOMALY_FOUND: Mutex<Option<Error>> = Mutex::new(None);

struct Recording {
    begin: Instant,
    runs: Vec<KernelRun>,
}

/// A kernel that ran during a profile; or a collective operation (`all_reduce` …), on a device named
/// `rank 0`. The time of a collective begins when this rank calls it, and includes waiting for the
/// others.
#[derive(Clone, Debug)]
pub struct KernelRun {
    /// The device's name.
    pub device: String,
    /// The kernel's name: `map`, `sum`, `matmul` …
    pub kernel: &'static str,
    /// The operation that it ran for; others may be fused into it.
    pub op: &'static str,
    /// The line that built that operation.
    pub location: &'static Location<'static>,
    /// The time from the start of the profile to its start.
    pub start: Duration,
    /// Its duration, from submission until the device is idle.
    pub time: Duration,
    /// Bytes of the elements that it reads.
    pub bytes_read: u64,
    /// Bytes that it writes.
    pub bytes_written: u64,
    /// Its arithmetic cost, from [`Kernel::flops`].
    pub flops: Option<u64>,
}

/// Runs `f`, and returns its result together with every kernel that ran meanwhile, in order, on any
/// device and from any thread. Tensors that are pending when `f` begins are computed before it; those
/// that are pending and held when it ends are computed as a part of it.
///
/// The device is idle before and after each kernel, so that times do not overlap: the total takes longer
/// than without profiling. On a GPU each time includes the submission, some ten microseconds.
///
/// # Errors
/// `Invalid` while another profile is running; any error of `f`.
#[track_caller]
pub fn profile<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, Vec<KernelRun>)> {
    super::pending::flush()?;
    let Some(watch) = Watch::begin(PROFILE) else {
        return Err(Error::invalid("profile", "another profile is being taken; end that first"));
    };
    *lock(&RECORDING) = Some(Recording { begin: Instant::now(), runs: Vec::new() });
    let done = f().and_then(|value| super::pending::flush().map(|()| value));
    drop(watch);
    let runs = lock(&RECORDING).take().map_or_else(Vec::new, |recording| recording.runs);
    Ok((done?, runs))
}

/// Runs `f`, and fails if an operation in it made a NaN or an infinity from finite inputs: the error
/// names the operation and the line that built it; for a gradient, the line of its forward operation.
/// `torch.autograd.set_detect_anomaly`.
///
/// Every operation of this process is computed by itself as soon as it is built, and its result is read
/// back: many times slower than usual, and without fusion.
///
/// # Errors
/// `Invalid` for the first anomaly, or while another detection is running; any other error of `f`.
#[track_caller]
pub fn detect_anomaly<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    super::pending::flush()?;
    let Some(watch) = Watch::begin(ANOMALY) else {
        return Err(Error::invalid(
            "detect_anomaly",
            "anomalies are being looked for already; end that first",
        ));
    };
    lock(&ANOMALY_FOUND).take();
    let done = f().and_then(|value| super::pending::flush().map(|()| value));
    drop(watch);
    match lock(&ANOMALY_FOUND).take() {
        Some(anomaly) => Err(anomaly),
        None => done,
    }
}

/// Runs a launch on behalf of `node`, with the active instrumentation.
pub(crate) fn run(launch: &Launch<'_>, node: &Node, backend: &dyn Backend) -> Result<()> {
    match watched() {
        0 => backend.run(launch),
        watched => run_watched(launch, node, backend, watched),
    }
}

#[cold]
fn run_watched(launch: &Launch<'_>, node: &Node, backend: &dyn Backend, watched: u8) -> Result<()> {
    if watched & PROFILE != 0 {
        backend.synchronize()?;
        let start = Instant::now();
        backend.run(launch)?;
        backend.synchronize()?;
        note(launch.kernel, node, backend, start, start.elapsed());
    } else {
        backend.run(launch)?;
    }
    if watched & ANOMALY != 0 {
        look(launch, node, backend)?;
    }
    Ok(())
}

/// Records a collective operation of this process during a profile: the device name, its start, and its
/// bytes.
#[doc(hidden)] // for `distributed`
pub fn note_call(
    who: impl FnOnce() -> String,
    name: &'static str,
    location: &'static Location<'static>,
    start: Instant,
    bytes: u64,
) {
    if watched() & PROFILE == 0 {
        return;
    }
    if let Some(recording) = &mut *lock(&RECORDING) {
        recording.runs.push(KernelRun {
            device: who(),
            kernel: name,
            op: name,
            location,
            start: start.saturating_duration_since(recording.begin),
            time: start.elapsed(),
            bytes_read: bytes,
            bytes_written: bytes,
            flops: None,
        });
    }
}

fn note(kernel: &Kernel, node: &Node, backend: &dyn Backend, start: Instant, time: Duration) {
    if let Some(recording) = &mut *lock(&RECORDING) {
        recording.runs.push(KernelRun {
            device: backend.info().name.clone(),
            kernel: kernel.name(),
            op: node.op.name(),
            location: node.location,
            start: start.saturating_duration_since(recording.begin),
            time,
            bytes_read: kernel.bytes_read(),
            bytes_written: kernel.bytes_written(),
            flops: kernel.flops(),
        });
    }
}

/// Keeps the error of the first launch that makes a non-finite number from finite inputs.
fn look(launch: &Launch<'_>, node: &Node, backend: &dyn Backend) -> Result<()> {
    if lock(&ANOMALY_FOUND).is_some() {
        return Ok(());
    }
    for output in launch.outputs {
        let Some(found) = not_finite(output, backend)? else { continue };
        let overwritten =
            |input: &Storage| launch.outputs.iter().any(|output| std::sync::Arc::ptr_eq(input, output));
        for input in launch.inputs.iter().filter(|input| !overwritten(input)) {
            if not_finite(input, backend)?.is_some() {
                // An input was not finite already, so the number came from the data.
                return Ok(());
            }
        }
        let message = format!("{} made {found}, of finite inputs", node.op.grad_name());
        let error = Error::new(ErrorKind::Invalid { op: "detect_anomaly", message });
        lock(&ANOMALY_FOUND).get_or_insert(error.computing(node.op.name(), node.location));
        return Ok(());
    }
    Ok(())
}

/// A description of the non-finite numbers in a buffer, if there are any.
fn not_finite(storage: &Storage, backend: &dyn Backend) -> Result<Option<String>> {
    let (dtype, numel): (DType, usize) = (storage.dtype(), storage.numel());
    if !dtype.is_float() || numel == 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; numel * dtype.size()];
    backend.download(storage, 0, &mut bytes)?;
    let values = Scalar::from_bytes(dtype, &bytes);
    let (mut nans, mut infinities) = (0, 0);
    for value in values {
        let value = value.as_f64();
        nans += usize::from(value.is_nan());
        infinities += usize::from(value.is_infinite());
    }
    Ok(match (nans, infinities) {
        (0, 0) => None,
        (0, n) => Some(format!("{n} infinities among {numel} elements")),
        (n, 0) => Some(format!("{n} NaN among {numel} elements")),
        (n, m) => Some(format!("{n} NaN and {m} infinities among {numel} elements")),
    })
}
