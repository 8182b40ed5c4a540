//! Instrumentation of kernels: [`profile`] times each one, [`detect_anomaly`] finds the first that makes a
//! NaN or an infinity, and [`without_fusion`] computes each operation by itself. While all are off, this
//! costs one relaxed load per kernel.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustc_hash::FxHashMap;
use web_time::Instant;

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        location::Location,
        origin::gradient_rule,
        shape::Shape,
        sync::lock,
    },
    devices::{backend::Backend, device::Device},
    elements::{dtype::DType, scalar::Scalar},
    graph::{
        build_log::{self, BuiltOperation},
        node::Node,
        op::{Op, camel_case},
    },
    kernels::{kernel::Kernel, launch::Launch, storage::Storage},
    schedule::watch_flags::{ANOMALY, PROFILE, UNFUSED, Watch, watched},
};

static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);
static SEARCH: Mutex<Search> = Mutex::new(Search { found: None, before: VecDeque::new() });

struct Recording {
    begin: Instant,
    runs: Vec<KernelRun>,
    plans: Vec<PlanRun>,
    /// The source texts of the kernels so far, by device.
    sources: FxHashMap<(String, Kernel), Arc<[String]>>,
}

/// A search for the first anomaly.
struct Search {
    found: Option<Anomaly>,
    /// The latest operations, the oldest first.
    before: VecDeque<AnomalyStep>,
}

/// The number of operations before an anomaly that are kept.
const STEPS_BEFORE_ANOMALY: usize = 12;

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
    /// The id of that operation's tensor; 0 for a collective operation.
    pub tensor: u64,
    /// The line that built that operation.
    pub location: Location,
    /// The time from the start of the profile to its start.
    pub start: Duration,
    /// Its duration, as the device measured it ([`Backend::timed`]); if it has no clock, from submission
    /// until the device is idle.
    pub time: Duration,
    /// Whether the device was waited for. A GPU in a browser cannot be: the duration is then that of the
    /// submission.
    pub waited: bool,
    /// The time that the host took to submit it, after which it could go on. The CPU runs small kernels at
    /// once.
    pub submission: Duration,
    /// The index space of the kernel.
    pub space: Shape,
    /// Bytes of the elements that it reads.
    pub bytes_read: u64,
    /// Bytes that it writes.
    pub bytes_written: u64,
    /// Its arithmetic cost, from [`Kernel::flops`].
    pub flops: Option<u64>,
    /// The program at each position of the space with the values of its scalars, an instruction a line;
    /// `None` for kernels without one.
    pub program: Option<String>,
    /// The source texts that the device compiles for the kernel: WGSL, on a GPU.
    pub sources: Arc<[String]>,
}

/// The planning of pending operations during a profile. A single operation whose kernel is known needs no
/// plan.
#[derive(Clone, Debug)]
pub struct PlanRun {
    /// The device's name.
    pub device: String,
    /// The time from the start of the profile to its start.
    pub start: Duration,
    /// Its duration.
    pub time: Duration,
    /// The number of nodes, including computed inputs.
    pub nodes: usize,
    /// Whether no plan for a graph of this form was known.
    pub is_new: bool,
}

/// The events of a profile, each kind in order.
#[derive(Clone, Debug, Default)]
pub struct ProfileEvents {
    /// The kernels that ran.
    pub runs: Vec<KernelRun>,
    /// The plans that were made or found.
    pub plans: Vec<PlanRun>,
    /// The operations that were built.
    pub built: Vec<BuiltOperation>,
}

/// Runs `f`, and returns its result together with every kernel that ran meanwhile, in order, on any
/// device and from any thread. Tensors that are pending when `f` begins are computed before it; those
/// that are pending and held when it ends are computed as a part of it.
///
/// The device is idle before and after each kernel, so that times do not overlap: the total takes longer
/// than without profiling. A GPU with timestamps, which all desktop drivers have, measures each kernel
/// itself; the times of other GPUs include the submission and the wait, some 30 microseconds. A device that
/// cannot be waited for, a GPU in a browser, has no times but those of submissions.
///
/// # Errors
/// `Invalid` while another profile is running; any error of `f`.
#[track_caller]
pub fn profile<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, ProfileEvents)> {
    let profiling = Profiling::begin()?;
    let value = f();
    let events = profiling.end();
    Ok((value?, events?))
}

/// A [`profile`] of what happens until [`Profiling::end`], for a caller whose work is not one function. If it
/// is dropped, the profile ends without events.
#[derive(Debug)]
#[must_use = "the profile ends when this is dropped"]
pub struct Profiling {
    _watch: Watch,
}

impl Profiling {
    /// Computes pending tensors, and begins to record.
    ///
    /// # Errors
    /// As [`profile`].
    #[track_caller]
    pub fn begin() -> Result<Profiling> {
        super::pending::flush()?;
        let Some(watch) = Watch::begin(PROFILE) else {
            return Err(Error::invalid("profile", "another profile is being taken; end that first"));
        };
        let begin = Instant::now();
        *lock(&RECORDING) =
            Some(Recording { begin, runs: Vec::new(), plans: Vec::new(), sources: FxHashMap::default() });
        build_log::begin(begin);
        Ok(Profiling { _watch: watch })
    }

    /// Computes what is pending, and gives the events since the beginning.
    ///
    /// # Errors
    /// The errors of the computations.
    #[track_caller]
    pub fn end(self) -> Result<ProfileEvents> {
        super::pending::flush()?;
        Ok(recorded())
    }
}

impl Drop for Profiling {
    fn drop(&mut self) {
        recorded();
    }
}

/// Ends the record, and takes its events.
fn recorded() -> ProfileEvents {
    let built = build_log::end();
    match lock(&RECORDING).take() {
        Some(Recording { runs, plans, .. }) => ProfileEvents { runs, plans, built },
        None => ProfileEvents::default(),
    }
}

/// An operation that made a NaN or an infinity from finite inputs: see [`find_anomaly`].
#[derive(Clone, Debug)]
pub struct Anomaly {
    name: &'static str,
    /// The operation's name, as after `grad_fn=`.
    pub op: String,
    /// For a part of a gradient, the name of the forward operation.
    pub gradient_of: Option<String>,
    /// The line that built it; for a gradient, the line of its forward operation.
    pub location: Location,
    /// The statistics of its result.
    pub output: TensorStatistics,
    /// The statistics of its inputs, in order.
    pub inputs: Vec<TensorStatistics>,
    /// The operations before it, the oldest first.
    pub before: Vec<AnomalyStep>,
}

impl Anomaly {
    /// The operation, and for a part of a gradient the forward operation, as the subject of a sentence:
    /// `Exp`, or `Div, in the gradient of Sqrt,`.
    #[must_use]
    pub fn subject(&self) -> String {
        match &self.gradient_of {
            Some(forward) => format!("{}, in the gradient of {forward},", self.op),
            None => self.op.clone(),
        }
    }
}

/// An operation before an [`Anomaly`].
#[derive(Clone, Debug)]
pub struct AnomalyStep {
    /// The operation's name.
    pub op: String,
    /// The line that built it.
    pub location: Location,
    /// The statistics of its result.
    pub output: TensorStatistics,
}

/// Statistics of the elements of a tensor.
#[derive(Clone, Debug)]
pub struct TensorStatistics {
    /// The shape.
    pub shape: Shape,
    /// The dtype.
    pub dtype: DType,
    /// The least finite element; none if there is no finite one.
    pub min: Option<f64>,
    /// The greatest finite element.
    pub max: Option<f64>,
    /// The number of NaN.
    pub nans: usize,
    /// The number of infinities.
    pub infinities: usize,
}

impl TensorStatistics {
    /// Whether there is neither a NaN nor an infinity.
    fn is_finite(&self) -> bool {
        self.nans + self.infinities == 0
    }
}

/// Runs `f`, and fails if an operation in it made a NaN or an infinity from finite inputs: the error
/// names the operation, its inputs, and the line that built it; for a gradient, its forward operation and
/// the line of that. `torch.autograd.set_detect_anomaly`.
///
/// Every operation of this process is computed by itself as soon as it is built, and its result is read
/// back: many times slower than usual, and without fusion.
///
/// # Errors
/// `Invalid` for the first anomaly, or while another detection is running; any other error of `f`.
#[track_caller]
pub fn detect_anomaly<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let (done, anomaly) = find_anomaly(f)?;
    match anomaly {
        Some(anomaly) => {
            let subject = anomaly.subject();
            let Anomaly { name, location, output, inputs, .. } = anomaly;
            let (nans, infinities, numel) = (output.nans, output.infinities, output.shape.numel());
            let found = match (nans, infinities) {
                (0, n) => format!("{n} infinities"),
                (n, 0) => format!("{n} NaN"),
                (n, m) => format!("{n} NaN and {m} infinities"),
            };
            let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
            let inputs = if inputs.is_empty() { String::new() } else { format!(": {}", inputs.join("; ")) };
            let message = format!("{subject} made {found} among {numel} elements, of finite inputs{inputs}");
            let error = Error::new(ErrorKind::Invalid { op: "detect_anomaly", message });
            Err(error.computing(name, location))
        }
        None => done,
    }
}

impl std::fmt::Display for TensorStatistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TensorStatistics { shape, dtype, min, max, .. } = self;
        write!(f, "{shape} {dtype}")?;
        match (min, max) {
            (Some(min), Some(max)) => write!(f, " from {min} to {max}"),
            _ => Ok(()),
        }
    }
}

/// Runs `f` as [`detect_anomaly`] does, and returns its result together with the first anomaly: the
/// operation with statistics of its inputs, and the operations before it.
///
/// # Errors
/// `Invalid` while another detection is running.
#[track_caller]
pub fn find_anomaly<T>(f: impl FnOnce() -> Result<T>) -> Result<(Result<T>, Option<Anomaly>)> {
    super::pending::flush()?;
    let Some(watch) = Watch::begin(ANOMALY) else {
        return Err(Error::invalid(
            "detect_anomaly",
            "anomalies are being looked for already; end that first",
        ));
    };
    *lock(&SEARCH) = Search { found: None, before: VecDeque::new() };
    let done = f().and_then(|value| super::pending::flush().map(|()| value));
    drop(watch);
    let found = lock(&SEARCH).found.take();
    Ok((done, found))
}

/// Runs `f` with each operation of this process computed by itself as soon as it is built, so that nothing
/// is fused: for comparing times and values.
///
/// # Errors
/// Any error of `f`.
pub fn without_fusion<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    super::pending::flush()?;
    // Inside another one there is nothing to switch.
    let _watch = Watch::begin(UNFUSED);
    f().and_then(|value| super::pending::flush().map(|()| value))
}

/// The beginning of a plan, if a profile is taken.
pub(super) fn begin_plan() -> Option<Instant> {
    (watched() & PROFILE != 0).then(Instant::now)
}

/// Records a plan that is made or found.
pub(super) fn note_plan(begun: Option<Instant>, device: &Device, nodes: usize, is_new: bool) {
    if let (Some(begun), Some(recording)) = (begun, &mut *lock(&RECORDING)) {
        let start = begun.saturating_duration_since(recording.begin);
        let (device, time) = (device.name().into(), begun.elapsed());
        recording.plans.push(PlanRun { device, start, time, nodes, is_new });
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
        let waits = backend.can_wait();
        if waits {
            backend.synchronize()?;
        }
        let start = Instant::now();
        let mut submission = Duration::ZERO;
        let mut run = || {
            backend.run(launch)?;
            submission = start.elapsed();
            Ok(())
        };
        let measured = if waits { backend.timed(&mut run)? } else { run().map(|()| None)? };
        let time = measured.unwrap_or_else(|| start.elapsed());
        note(launch, node, backend, start, (submission, time));
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
    location: Location,
    start: Instant,
    bytes: u64,
) {
    if watched() & PROFILE == 0 {
        return;
    }
    let time = start.elapsed();
    if let Some(recording) = &mut *lock(&RECORDING) {
        recording.runs.push(KernelRun {
            device: who(),
            kernel: name,
            op: name,
            tensor: 0,
            location,
            start: start.saturating_duration_since(recording.begin),
            time,
            waited: true,
            submission: time,
            space: Shape::scalar(),
            bytes_read: bytes,
            bytes_written: bytes,
            flops: None,
            program: None,
            sources: Arc::default(),
        });
    }
}

fn note(
    launch: &Launch<'_>,
    node: &Node,
    backend: &dyn Backend,
    start: Instant,
    (submission, time): (Duration, Duration),
) {
    let kernel = launch.kernel;
    if let Some(recording) = &mut *lock(&RECORDING) {
        let device = backend.info().name.clone();
        let sources = recording.sources.entry((device.clone(), kernel.clone()));
        let sources = sources.or_insert_with(|| backend.source(kernel).into()).clone();
        recording.runs.push(KernelRun {
            device,
            kernel: kernel.name(),
            op: node.op.name(),
            tensor: node.id,
            location: node.location,
            start: start.saturating_duration_since(recording.begin),
            time,
            waited: backend.can_wait(),
            submission,
            space: kernel.space.clone(),
            bytes_read: kernel.bytes_read(),
            bytes_written: kernel.bytes_written(),
            flops: kernel.flops(),
            program: kernel.body.program().map(|program| program.text(launch.scalars)),
            sources,
        });
    }
}

/// Keeps the first launch that makes a non-finite number from finite inputs, and those before it.
fn look(launch: &Launch<'_>, node: &Node, backend: &dyn Backend) -> Result<()> {
    if lock(&SEARCH).found.is_some() {
        return Ok(());
    }
    for (output, of) in launch.outputs.iter().zip(&launch.kernel.outputs) {
        let Some(made) = statistics(output, &of.shape, backend)? else { continue };
        if !made.is_finite() {
            let overwritten =
                |input: &Storage| launch.outputs.iter().any(|output| std::sync::Arc::ptr_eq(input, output));
            for input in launch.inputs.iter().filter(|input| !overwritten(input)) {
                if statistics(input, &node.shape, backend)?.is_some_and(|read| !read.is_finite()) {
                    // It came from the data.
                    return Ok(());
                }
            }
            let (name, op, location) = (node.op.name(), node.op.grad_name(), node.location);
            let inputs = inputs_of(node, backend)?;
            // Operations are computed as they are built, so that the rule that built this one still runs.
            let gradient_of = gradient_rule().map(|operation| camel_case(operation.name));
            let mut search = lock(&SEARCH);
            let before = search.before.drain(..).collect();
            search.found.get_or_insert(Anomaly {
                name,
                op,
                gradient_of,
                location,
                output: made,
                inputs,
                before,
            });
            return Ok(());
        }
        let mut search = lock(&SEARCH);
        if search.before.len() >= STEPS_BEFORE_ANOMALY {
            search.before.pop_front();
        }
        search.before.push_back(AnomalyStep {
            op: node.op.grad_name(),
            location: node.location,
            output: made,
        });
    }
    Ok(())
}

/// The statistics of the inputs of a node that is being computed.
fn inputs_of(node: &Node, backend: &dyn Backend) -> Result<Vec<TensorStatistics>> {
    let inputs = lock(&node.state).inputs.clone();
    let mut found = Vec::with_capacity(inputs.len());
    for input in &inputs {
        let storage = lock(&input.state).value.as_ref().map(|value| value.storage.clone());
        let known = match (&storage, &input.op) {
            (Some(storage), _) => statistics(storage, &input.shape, backend)?,
            (None, Op::Full(value)) => Some(counted([value.as_f64()], &input.shape, input.dtype)),
            (None, _) => None,
        };
        let (shape, dtype) = (input.shape.clone(), input.dtype);
        found.push(known.unwrap_or(TensorStatistics {
            shape,
            dtype,
            min: None,
            max: None,
            nans: 0,
            infinities: 0,
        }));
    }
    Ok(found)
}

/// The statistics of all elements of a buffer of floats; none for other dtypes.
fn statistics(storage: &Storage, shape: &Shape, backend: &dyn Backend) -> Result<Option<TensorStatistics>> {
    let (dtype, numel): (DType, usize) = (storage.dtype(), storage.numel());
    if !dtype.is_float() || numel == 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; numel * dtype.size()];
    backend.download(storage, 0, &mut bytes)?;
    let values = Scalar::from_bytes(dtype, &bytes).into_iter().map(|value| value.as_f64());
    Ok(Some(counted(values, shape, dtype)))
}

fn counted(values: impl IntoIterator<Item = f64>, shape: &Shape, dtype: DType) -> TensorStatistics {
    let mut found =
        TensorStatistics { shape: shape.clone(), dtype, min: None, max: None, nans: 0, infinities: 0 };
    for value in values {
        found.nans += usize::from(value.is_nan());
        found.infinities += usize::from(value.is_infinite());
        if value.is_finite() {
            found.min = Some(found.min.map_or(value, |min| min.min(value)));
            found.max = Some(found.max.map_or(value, |max| max.max(value)));
        }
    }
    found
}
