//! Times of kernels, in its own process: kernels of other tests would be counted.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use crate::common::device;
use backend_wgpu::KernelTime;
use tensor_core::{Error, ErrorKind, Result, Tensor};

#[test]
fn kernels_are_counted_and_timed() {
    if taper_testing::run_alone(kernels_are_counted_and_timed) {
        return;
    }
    let Some(device) = device() else { return };
    let work = || {
        let mut y = Tensor::ones([64, 300], device)?;
        for _ in 0..300 {
            y = y.add_scalar(1.0);
            y.eval()?;
        }
        let x = Tensor::ones([300, 300], device)?;
        x.eval()?;
        x.matmul(&x)?.sum_axis(1, false)?.to_vec::<f32>()
    };
    let (plain, before) = (work().unwrap(), std::time::Instant::now());
    let profiled = backend_wgpu::profile(device, work);
    if let Some(ErrorKind::Invalid { message, .. }) = profiled.as_ref().err().map(|e| e.kind()) {
        // lavapipe and every desktop driver have timestamps.
        assert!(message.contains("timestamps") && !device.info().driver.starts_with("Vulkan"), "{message}");
        eprintln!("skipped: {message}");
        return;
    }
    let (found, times) = profiled.unwrap();
    let elapsed = before.elapsed().as_nanos() as u64;
    assert_eq!(found, plain);
    let time = |name| times.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("{name}: {times:?}"));
    assert!(time("map").count + time("matmul").count + time("reduce").count >= 303, "{times:?}");
    // A large device cuts the product along its sum, and adds the parts.
    assert!((1..=2).contains(&time("matmul").count), "{times:?}");
    let total: u64 = times.iter().map(|t| t.nanoseconds).sum();
    assert!(total > 0 && total < elapsed, "{total} of {elapsed} ns: {times:?}");
    assert!(times.is_sorted_by_key(|t| std::cmp::Reverse(t.nanoseconds)));

    // An error is passed through, and the device continues without timestamps.
    let failed = backend_wgpu::profile(device, || Err::<(), _>(Error::invalid("test", "on purpose")));
    assert!(matches!(failed.as_ref().map_err(|e| e.kind()), Err(ErrorKind::Invalid { op: "test", .. })));
    assert_eq!(work().unwrap(), plain);
    let (_, none) = backend_wgpu::profile(device, || Ok(())).unwrap();
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn the_device_measures_the_time_of_some_work() {
    if taper_testing::run_alone(the_device_measures_the_time_of_some_work) {
        return;
    }
    let Some(device) = device() else { return };
    let x = Tensor::ones([300, 300], device).unwrap();
    x.eval().unwrap();
    let mut work = || x.matmul(&x)?.eval();
    let timed = |work: &mut dyn FnMut() -> Result<()>| {
        let start = std::time::Instant::now();
        (device.backend().timed(work).unwrap(), start.elapsed())
    };
    timed(&mut work);
    let (time, elapsed) = timed(&mut work);
    let Some(time) = time else { return eprintln!("skipped: no timestamps") };
    assert!(!time.is_zero() && time < elapsed, "{time:?} of {elapsed:?}");
    // Nothing was queued; and another profile has the timestamps.
    assert_eq!(timed(&mut || Ok(())).0, None);
    let (inner, times) = backend_wgpu::profile(device, || Ok(timed(&mut work).0)).unwrap();
    assert!(inner.is_none() && times.iter().any(|kernel| kernel.name == "matmul"), "{times:?}");
    // An error is passed on, and the next time is measured again.
    let failed = device.backend().timed(&mut || Err(Error::invalid("test", "on purpose")));
    assert!(failed.is_err() && timed(&mut work).0.is_some());
    let failed = device.backend().timed(&mut || work().and(Err(Error::invalid("test", "on purpose"))));
    assert!(failed.is_err());
    // Work that was queued before the error is not counted later.
    device.synchronize().unwrap();
    let ((), again) = backend_wgpu::profile(device, work).unwrap();
    let counts =
        |times: &[KernelTime]| -> BTreeMap<_, _> { times.iter().map(|t| (t.name, t.count)).collect() };
    assert_eq!(counts(&again), counts(&times));
}
