//! [`profile`]: the kernels that ran, as a table and as a trace for Perfetto.

use std::{
    collections::HashMap,
    fmt::{self, Write},
    time::Duration,
};

use tensor_core::{
    BuiltOperation, KernelRun, Location, PlanRun, ProfileEvents, Result, backend::readable_bytes,
};

use crate::json::quoted;

/// The kernels that ran during `f`. It prints as a table with a row for each kernel of each source line, the
/// longest first.
#[derive(Debug)]
pub struct Profile<T> {
    /// The result of `f`.
    pub value: T,
    /// Every kernel run, in order.
    pub runs: Vec<KernelRun>,
    /// The plans that were made or found for pending operations.
    pub plans: Vec<PlanRun>,
    /// The operations that were built, in order.
    pub built: Vec<BuiltOperation>,
}

/// Runs `f`, and records the kernels that run meanwhile: their number, time, bytes and operations per
/// second, and the line of the program that each belongs to. `torch.profiler.profile`.
///
/// Devices are idle before and after each kernel, so that times do not overlap, and the whole takes longer
/// than usual. The first run of a GPU's kernel includes its compilation: warm up before.
///
/// ```
/// use inspect::profile;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::ones([100, 100], &backend_cpu::cpu())?;
/// x.eval()?;
/// let profiled = profile(|| x.matmul(&x)?.exp().sum().item::<f32>())?;
/// println!("{profiled}");
/// assert_eq!(profiled.runs[0].kernel, "matmul");
/// let trace = profiled.trace(); // ui.perfetto.dev opens it from a file
/// assert!(trace.contains("traceEvents"));
/// # Ok(()) }
/// ```
///
/// # Errors
/// `Invalid` during another profile; the errors of `f`.
#[track_caller]
pub fn profile<T>(f: impl FnOnce() -> Result<T>) -> Result<Profile<T>> {
    let (value, events) = tensor_core::profile(f)?;
    Ok(Profile::new(value, events))
}

/// All runs of one kernel for one line: a row of the table that a [`Profile`] prints.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProfileLine<'a> {
    /// The first run, with the device, kernel, operation and source line of all.
    pub run: &'a KernelRun,
    /// The number of runs.
    pub count: u64,
    /// Their total time.
    pub time: Duration,
    /// The bytes that they read and write.
    pub bytes: u64,
    /// Their arithmetic, in additions, where it is known.
    pub flops: u64,
}

impl<T> Profile<T> {
    /// A profile of recorded events: [`tensor_core::Profiling`] has them.
    #[must_use]
    pub fn new(value: T, events: ProfileEvents) -> Profile<T> {
        let ProfileEvents { runs, plans, built } = events;
        Profile { value, runs, plans, built }
    }

    /// The total time of all kernels.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.runs.iter().map(|run| run.time).sum()
    }

    /// The rows of the table, the longest first.
    #[must_use]
    pub fn lines(&self) -> Vec<ProfileLine<'_>> {
        type Key<'a> = (&'a str, &'static str, &'static str, Location);
        let mut places: HashMap<Key<'_>, usize> = HashMap::new();
        let mut lines: Vec<ProfileLine<'_>> = Vec::new();
        for run in &self.runs {
            let key = (run.device.as_str(), run.kernel, run.op, run.location);
            let at = *places.entry(key).or_insert(lines.len());
            if at == lines.len() {
                lines.push(ProfileLine { run, count: 0, time: Duration::ZERO, bytes: 0, flops: 0 });
            }
            let line = &mut lines[at];
            line.count += 1;
            line.time += run.time;
            line.bytes += run.bytes_read + run.bytes_written;
            line.flops += run.flops.unwrap_or(0);
        }
        lines.sort_by_key(|line| std::cmp::Reverse(line.time));
        lines
    }

    /// The runs in the trace-event format, which <https://ui.perfetto.dev> and Chrome's `about:tracing` show.
    #[must_use]
    pub fn trace(&self) -> String {
        let mut devices: Vec<&str> = Vec::new();
        let mut text = String::from("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
        for (k, run) in self.runs.iter().enumerate() {
            let known = devices.iter().position(|device| *device == run.device);
            let thread = known.unwrap_or(devices.len());
            if known.is_none() {
                devices.push(&run.device);
                let device = quoted(&run.device);
                let comma = if k == 0 { "" } else { "," };
                let _ = write!(
                    text,
                    "{comma}\n  {{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": {thread}, \"args\": {{\"name\": {device}}}}}"
                );
            }
            let (name, line) =
                (quoted(&format!("{} for {}", run.kernel, run.op)), quoted(&run.location.to_string()));
            let (start, time) = (run.start.as_secs_f64() * 1e6, run.time.as_secs_f64() * 1e6);
            let (read, written) = (run.bytes_read, run.bytes_written);
            let flops = run.flops.map_or_else(|| "null".into(), |flops| flops.to_string());
            let _ = write!(
                text,
                ",\n  {{\"ph\": \"X\", \"name\": {name}, \"pid\": 0, \"tid\": {thread}, \"ts\": {start:.3}, \"dur\": {time:.3}, \"args\": \
                 {{\"line\": {line}, \"bytes_read\": {read}, \"bytes_written\": {written}, \"flops\": {flops}}}}}"
            );
        }
        text.push_str("\n]}\n");
        text
    }
}

impl<T> fmt::Display for Profile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.time().as_secs_f64().max(f64::MIN_POSITIVE);
        writeln!(
            f,
            "{:<8} {:<10} {:<12} {:>6} {:>10} {:>6} {:>10} {:>8} {:>9}  line",
            "device", "kernel", "for", "runs", "time", "share", "bytes", "GB/s", "GFLOP/s"
        )?;
        for line in self.lines() {
            let seconds = line.time.as_secs_f64().max(f64::MIN_POSITIVE);
            let (share, time) = (seconds / all * 100.0, format!("{:.1} µs", seconds * 1e6));
            let (rate, flops) = (line.bytes as f64 / seconds / 1e9, line.flops as f64 / seconds / 1e9);
            let (run, count, bytes) = (line.run, line.count, readable_bytes(line.bytes));
            let (device, kernel, op, at) = (&run.device, run.kernel, run.op, run.location);
            writeln!(
                f,
                "{device:<8} {kernel:<10} {op:<12} {count:>6} {time:>10} {share:>5.1}% {bytes:>10} {rate:>8.2} {flops:>9.2}  {at}"
            )?;
        }
        write!(f, "{} kernels, {:.1} µs", self.runs.len(), self.time().as_secs_f64() * 1e6)
    }
}
