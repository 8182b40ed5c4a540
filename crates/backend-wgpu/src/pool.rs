//! Device memory: one buffer a tensor, from a pool of size classes, within a budget. A buffer given back can be used again at
//! once: the queue keeps the order.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tensor_core::{Buffer, DType, Error, MemoryStats, Result, Storage};

use crate::{lanes::lane_size, state::Health};

/// Locks, whatever became of an earlier holder: every critical section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Pool {
    device: wgpu::Device,
    name: String,
    max_buffer: u64,
    limit: Option<u64>,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    buffers: BTreeMap<u64, Vec<wgpu::Buffer>>,
    stats: MemoryStats,
}

/// A tensor's memory on the device.
pub(crate) struct WgpuBuffer {
    pub(crate) dtype: DType,
    pub(crate) numel: usize,
    /// Whether the memory was used for something else before.
    pub(crate) reused: bool,
    buffer: wgpu::Buffer,
    class: u64,
    asked: u64,
    pool: Arc<Pool>,
}

impl WgpuBuffer {
    pub(crate) fn raw(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// The buffer behind a storage handle.
    pub(crate) fn of(storage: &Storage) -> Result<&WgpuBuffer> {
        let any: &dyn Any = &**storage;
        any.downcast_ref().ok_or_else(|| {
            Error::invalid(
                "wgpu",
                "a buffer of another device was handed to a GPU; move it with .to(&device)?",
            )
        })
    }
}

impl Buffer for WgpuBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn numel(&self) -> usize {
        self.numel
    }
}

impl fmt::Debug for WgpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuBuffer({} x {})", self.numel, self.dtype)
    }
}

impl Drop for WgpuBuffer {
    fn drop(&mut self) {
        let mut free = lock(&self.pool.free);
        free.stats.allocated -= self.asked;
        free.buffers.entry(self.class).or_default().push(self.buffer.clone());
    }
}

/// Bytes of the class that holds `bytes`: powers of two and three steps between them, from 256 on.
fn class_of(bytes: u64) -> u64 {
    let bytes = bytes.max(256);
    let step = (bytes.next_power_of_two() / 8).max(64);
    bytes.div_ceil(step) * step
}

impl Pool {
    pub(crate) fn new(device: wgpu::Device, name: String, max_buffer: u64, limit: Option<u64>) -> Pool {
        let free =
            Mutex::new(Free { stats: MemoryStats { limit, ..Default::default() }, ..Default::default() });
        Pool { device, name, max_buffer, limit, free }
    }

    pub(crate) fn take(self: &Arc<Pool>, health: &Health, dtype: DType, numel: usize) -> Result<WgpuBuffer> {
        let asked = (numel as u64).checked_mul(lane_size(dtype) as u64).unwrap_or(u64::MAX);
        if asked > self.max_buffer {
            return Err(Error::TooLarge { device: self.name.clone(), asked, limit: self.max_buffer });
        }
        let class = class_of(asked).min(self.max_buffer.max(256));
        let mut free = lock(&self.free);
        let cached = free.buffers.get_mut(&class).and_then(Vec::pop);
        let reused = cached.is_some();
        let buffer = match cached {
            Some(buffer) => buffer,
            None => {
                if self.limit.is_some_and(|limit| free.stats.reserved + class > limit) {
                    free.trim();
                }
                let over = self.limit.is_some_and(|limit| free.stats.reserved + class > limit);
                let made = if over { None } else { self.create(health, class)? };
                // The driver may have had less than the budget says: once more without the cache.
                let made = match made {
                    None if !over => {
                        free.trim();
                        self.create(health, class)?
                    }
                    other => other,
                };
                let Some(buffer) = made else {
                    return Err(Error::OutOfMemory {
                        device: self.name.clone(),
                        asked,
                        in_use: free.stats.allocated,
                        reserved: free.stats.reserved,
                        limit: self.limit,
                    });
                };
                free.stats.reserved += class;
                buffer
            }
        };
        free.stats.allocated += asked;
        free.stats.allocations += 1;
        free.stats.peak = free.stats.peak.max(free.stats.allocated);
        Ok(WgpuBuffer { dtype, numel, reused, buffer, class, asked, pool: self.clone() })
    }

    /// A new buffer, or `None` where the driver has no memory for it.
    fn create(&self, health: &Health, size: u64) -> Result<Option<wgpu::Buffer>> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let failed = pollster::block_on(validation.pop()).is_some();
        let failed = pollster::block_on(memory.pop()).is_some() || failed;
        health.check()?;
        Ok((!failed).then_some(buffer))
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        lock(&self.free).stats
    }

    pub(crate) fn reset_peak(&self) {
        let mut free = lock(&self.free);
        free.stats.peak = free.stats.allocated;
    }

    pub(crate) fn trim(&self) {
        lock(&self.free).trim();
    }
}

impl Free {
    fn trim(&mut self) {
        for (class, buffers) in std::mem::take(&mut self.buffers) {
            self.stats.reserved -= class * buffers.len() as u64;
            // Dropped, not destroyed: commands under way may still use them.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::class_of;

    #[test]
    fn classes_waste_little() {
        for bytes in (1..10_000).chain([1 << 20, (1 << 20) + 1, 100_000_000]) {
            let class = class_of(bytes);
            assert!(class >= bytes && class.is_multiple_of(4));
            assert!(bytes < 512 || class - bytes <= bytes / 4, "{bytes} in {class}");
        }
    }
}
