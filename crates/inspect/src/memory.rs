//! [`memory_snapshot`]: the lines of a program that hold a device's memory. [`memory_summary`]: a device's
//! memory and its free buffers.

use std::{collections::HashMap, fmt};

use tensor_core::{
    DType, Device, Error, FreeBuffers, LiveBuffer, Location, MemoryStats, PeakMemory, Result, Shape,
    backend::readable_bytes, live_buffers, peak_memory,
};

/// The memory of live tensors. It prints as a table with a row for each line of the program, the largest
/// first. See [`memory_snapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemorySnapshot {
    /// The lines that hold memory, the largest first.
    pub lines: Vec<MemoryLine>,
    /// The devices of that memory.
    pub devices: Vec<DeviceMemory>,
}

/// The memory of tensors that one line of a program made on one device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryLine {
    /// The line; for parameters and other cells, the line that made them.
    pub location: Location,
    /// The device's name.
    pub device: String,
    /// The bytes of all buffers.
    pub bytes: u64,
    /// The number of buffers. A buffer that several tensors share counts once, for the oldest.
    pub buffers: usize,
    /// The same by kind, the largest first.
    pub kinds: Vec<MemoryKind>,
}

/// Buffers of one line with the same operation, dtype and shape.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryKind {
    /// The operation that made them: `leaf` for values from the host, `parameter` for values of cells.
    pub op: &'static str,
    /// Their dtype.
    pub dtype: DType,
    /// Their shape.
    pub shape: Shape,
    /// The bytes of all of them.
    pub bytes: u64,
    /// The number of buffers.
    pub buffers: usize,
}

/// A device's state in a [`MemorySnapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// Its name.
    pub device: String,
    /// The statistics of its memory.
    pub stats: MemoryStats,
    /// Allocated bytes that belong to no line: tensors from before recording began, and running
    /// computations.
    pub elsewhere: u64,
}

/// The lines of the program that hold memory now: for each line the number of buffers and bytes, by dtype
/// and shape, and the device, the largest first. It computes nothing. `torch.cuda.memory._snapshot`.
///
/// Tensors are recorded while [`record_memory`](tensor_core::record_memory) is on, which takes a lock for
/// each; while it is off, an operation costs one additional relaxed load. A gradient belongs to the line of
/// the operation that it is the gradient of.
///
/// ```
/// use inspect::{memory_snapshot, record_memory};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// record_memory(true);
/// let x = Tensor::ones([256, 256], &backend_cpu::cpu())?.exp();
/// x.eval()?;
/// let snapshot = memory_snapshot()?;
/// println!("{snapshot}");
/// assert_eq!((snapshot.lines[0].location.file(), snapshot.lines[0].bytes), (file!(), 1 << 18));
/// record_memory(false);
/// # Ok(()) }
/// ```
///
/// # Errors
/// `Invalid` if recording is off.
#[track_caller]
#[doc(alias("_snapshot", "_record_memory_history", "memory_history"))]
pub fn memory_snapshot() -> Result<MemorySnapshot> {
    // A closure would lose the caller's line.
    let Some(live) = live_buffers() else { return Err(not_recorded("memory_snapshot")) };
    let mut devices: Vec<(Device, u64)> = Vec::new();
    for buffer in &live {
        match devices.iter_mut().find(|(device, _)| *device == buffer.device) {
            Some((_, told)) => *told += buffer.bytes,
            None => devices.push((buffer.device.clone(), buffer.bytes)),
        }
    }
    let of_device = |(device, told): (Device, u64)| {
        let stats = device.memory();
        DeviceMemory { device: device.name().into(), stats, elsewhere: stats.allocated.saturating_sub(told) }
    };
    Ok(MemorySnapshot { lines: by_line(live), devices: devices.into_iter().map(of_device).collect() })
}

/// The memory of a device when it used the most. It prints as a table. See [`memory_peaks`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemoryPeak {
    /// The device's name.
    pub device: String,
    /// The bytes that were allocated: at most 1 % below the true peak, because a smaller rise is not noted.
    pub allocated: u64,
    /// The lines that held them, the largest first.
    pub lines: Vec<MemoryLine>,
    /// Allocated bytes that belong to no line: tensors from before recording began.
    pub elsewhere: u64,
}

/// The lines of the program that held memory when a device used the most since recording began, for each
/// device on which a kernel has run. Memory is looked at when a kernel has its outputs; live tensors are
/// listed when it exceeds the last peak by 1 %, and buffers inside a running computation belong to the line
/// of their operation.
///
/// ```
/// use inspect::{memory_peaks, record_memory};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// record_memory(true);
/// let x = Tensor::ones([256, 256], &backend_cpu::cpu())?.exp();
/// x.matmul(&x)?.matmul(&x)?.sum().item::<f32>()?;
/// let peaks = memory_peaks()?;
/// println!("{}", peaks[0]);
/// // Two products and x were alive together.
/// assert_eq!(peaks[0].lines.iter().map(|line| line.bytes).sum::<u64>(), 3 << 18);
/// record_memory(false);
/// # Ok(()) }
/// ```
///
/// # Errors
/// `Invalid` if recording is off.
#[track_caller]
pub fn memory_peaks() -> Result<Vec<MemoryPeak>> {
    let Some(peaks) = peak_memory() else { return Err(not_recorded("memory_peaks")) };
    let peak = |peak: PeakMemory| {
        let told: u64 = peak.buffers.iter().map(|buffer| buffer.bytes).sum();
        MemoryPeak {
            device: peak.device.name().into(),
            allocated: peak.allocated,
            lines: by_line(peak.buffers),
            elsewhere: peak.allocated.saturating_sub(told),
        }
    };
    Ok(peaks.into_iter().map(peak).collect())
}

#[track_caller]
fn not_recorded(op: &'static str) -> Error {
    Error::invalid(op, "nothing is recorded; call record_memory(true) before the tensors are made")
}

/// The lines that hold these buffers, the largest first.
fn by_line(buffers: Vec<LiveBuffer>) -> Vec<MemoryLine> {
    let mut places: HashMap<(Location, String), usize> = HashMap::new();
    let mut lines: Vec<MemoryLine> = Vec::new();
    for buffer in buffers {
        let device = buffer.device.name().to_string();
        let place = *places.entry((buffer.location, device.clone())).or_insert(lines.len());
        if place == lines.len() {
            lines.push(MemoryLine {
                location: buffer.location,
                device,
                bytes: 0,
                buffers: 0,
                kinds: Vec::new(),
            });
        }
        let line = &mut lines[place];
        line.bytes += buffer.bytes;
        line.buffers += 1;
        let alike = |kind: &&mut MemoryKind| {
            kind.op == buffer.op && kind.dtype == buffer.dtype && kind.shape == buffer.shape
        };
        match line.kinds.iter_mut().find(alike) {
            Some(kind) => {
                kind.bytes += buffer.bytes;
                kind.buffers += 1;
            }
            None => line.kinds.push(MemoryKind {
                op: buffer.op,
                dtype: buffer.dtype,
                shape: buffer.shape,
                bytes: buffer.bytes,
                buffers: 1,
            }),
        }
    }
    for line in &mut lines {
        line.kinds.sort_by_key(|kind| (std::cmp::Reverse(kind.bytes), kind.op, kind.shape.to_string()));
    }
    let place = |line: &MemoryLine| (line.location.file(), line.location.line(), line.location.column());
    lines.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| place(a).cmp(&place(b))));
    lines
}

fn write_lines(f: &mut fmt::Formatter<'_>, lines: &[MemoryLine]) -> fmt::Result {
    writeln!(f, "{:>10} {:>8}  {:<8}  line", "memory", "buffers", "device")?;
    for line in lines {
        let bytes = readable_bytes(line.bytes);
        writeln!(f, "{bytes:>10} {:>8}  {:<8}  {}", line.buffers, line.device, line.location)?;
        for MemoryKind { op, dtype, shape, bytes, buffers } in &line.kinds {
            let bytes = readable_bytes(*bytes);
            writeln!(f, "{:30}  {bytes} in {buffers}: {op} {dtype} {shape}", "")?;
        }
    }
    Ok(())
}

impl fmt::Display for MemorySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(f, &self.lines)?;
        for DeviceMemory { device, stats, elsewhere } in &self.devices {
            writeln!(f, "{device}: {stats}; {} of it in no line above", readable_bytes(*elsewhere))?;
        }
        Ok(())
    }
}

impl fmt::Display for MemoryPeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(f, &self.lines)?;
        let (peak, elsewhere) = (readable_bytes(self.allocated), readable_bytes(self.elsewhere));
        writeln!(f, "{}: {peak} at the peak; {elsewhere} of it in no line above", self.device)
    }
}

/// A device's memory, and the free buffers that it caches. It prints as a table. See [`memory_summary`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MemorySummary {
    /// The device's name.
    pub device: String,
    /// Allocated, reserved, peak and limit.
    pub stats: MemoryStats,
    /// Cached free buffers by size, the smallest first.
    pub free: Vec<FreeBuffers>,
}

/// A device's memory, and its cache of free buffers by size. `torch.cuda.memory_summary`.
///
/// ```
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// drop(Tensor::from_vec(vec![0f32; 1 << 20], 1 << 20, &device)?);
/// let summary = inspect::memory_summary(&device);
/// println!("{summary}");
/// assert!(summary.free.iter().any(|size| size.bytes >= 4 << 20 && size.count >= 1));
/// # Ok(()) }
/// ```
pub fn memory_summary(device: &Device) -> MemorySummary {
    MemorySummary {
        device: device.name().into(),
        stats: device.memory(),
        free: device.backend().free_buffers(),
    }
}

impl fmt::Display for MemorySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.device, self.stats)?;
        writeln!(f, "{:>10} {:>8} {:>10}", "size", "free", "memory")?;
        for FreeBuffers { bytes, count } in &self.free {
            let all = readable_bytes(bytes * *count as u64);
            writeln!(f, "{:>10} {count:>8} {all:>10}", readable_bytes(*bytes))?;
        }
        Ok(())
    }
}
