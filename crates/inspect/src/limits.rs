//! [`device_limits`]: what a device can do at most, measured, so that the work of kernels can be compared
//! with it.

use std::time::Duration;

use tensor_core::{DType, Device, Error, Generator, Result, Tensor, caller_line};
use web_time::Instant;

/// The rates that a device reaches at most: see [`device_limits`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Bytes read and written a second, by an addition to each element of a large tensor.
    pub bytes_per_second: f64,
    /// Additions and multiplications in f32 a second, by products of square matrices.
    pub flops_per_second: f64,
}

/// The elements of the tensor whose additions measure the rate of memory: far more than a cache holds.
const ELEMENTS: u64 = if cfg!(target_family = "wasm") { 4 << 20 } else { 32 << 20 };
/// The sides of the measured products. The next one is only measured after a shorter time than
/// [`LONG_PRODUCT`].
const SIDES: [usize; 4] = [256, 512, 1024, 2048];
/// A product that takes as long is large enough.
const LONG_PRODUCT: Duration = Duration::from_millis(50);
/// The measurements of each kind, of which the fastest counts.
const MEASUREMENTS: usize = 5;

/// Measures the rate of a device's memory and its rate of arithmetic in f32: the limits to which a
/// [`Profile`](crate::Profile) can be compared. It takes some tenths of a second and a few hundred megabytes.
///
/// The limits are those of this library's own kernels, so a kernel may pass them a little; products in bf16
/// may pass that of arithmetic by far, and work in caches that of memory.
///
/// ```
/// let limits = inspect::device_limits(&backend_cpu::cpu())?;
/// assert!(limits.bytes_per_second > 0.0 && limits.flops_per_second > 0.0);
/// # Ok::<(), tensor_core::Error>(())
/// ```
///
/// # Errors
/// `Invalid` on a device that cannot be waited for (a GPU in a browser); too little memory.
#[track_caller]
pub fn device_limits(device: &Device) -> Result<DeviceLimits> {
    let _line = caller_line();
    if !device.backend().can_wait() {
        let message = format!("{device} cannot be waited for, so nothing on it can be measured");
        return Err(Error::invalid("device_limits", message));
    }
    let most = device.info().limits.max_buffer_bytes / DType::F32.size() as u64;
    let rng = Generator::seed(0, device);
    let evaluated = |x: Tensor| x.eval().map(|()| x);
    let x = evaluated(Tensor::rand_dtype([ELEMENTS.min(most) as usize], DType::F32, &rng)?)?;
    let bytes = (2 * x.numel() * DType::F32.size()) as f64;
    let shortest = fastest(device, || x.add_scalar(1.0).eval())?;
    let mut flops_per_second = 0.0f64;
    for side in SIDES {
        let x = evaluated(Tensor::rand_dtype([side, side], DType::F32, &rng)?)?;
        let time = fastest(device, || x.matmul(&x)?.eval())?;
        flops_per_second = flops_per_second.max(2.0 * (side as f64).powi(3) / time.as_secs_f64());
        if time >= LONG_PRODUCT {
            break;
        }
    }
    Ok(DeviceLimits { bytes_per_second: bytes / shortest.as_secs_f64(), flops_per_second })
}

/// The shortest time of some runs, after one that compiles kernels.
#[track_caller]
fn fastest(device: &Device, run: impl Fn() -> Result<()>) -> Result<Duration> {
    let _line = caller_line();
    let timed = || -> Result<Duration> {
        device.synchronize()?;
        let begin = Instant::now();
        run()?;
        device.synchronize()?;
        Ok(begin.elapsed().max(Duration::from_nanos(1)))
    };
    timed()?;
    let times: Result<Vec<Duration>> = (0..MEASUREMENTS).map(|_| timed()).collect();
    Ok(times?.into_iter().min().unwrap_or(Duration::MAX))
}
