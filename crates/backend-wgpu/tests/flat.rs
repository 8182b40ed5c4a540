//! Memory over time, in a process of its own: other tests' tensors would blur the count.
#![allow(clippy::unwrap_used)]

use tensor_core::{Result, Tensor};

#[test]
fn ten_thousand_tensors_of_varied_sizes_hold_memory_flat() -> Result<()> {
    let device = match backend_wgpu::wgpu(0) {
        Ok(device) => device,
        Err(error) => {
            assert!(std::env::var("TAPER_REQUIRE_WGPU").is_err(), "{error}");
            eprintln!("skipped: {error}");
            return Ok(());
        }
    };
    let size = |i: usize| 1 + i * 7919 % 5000;
    let round = |from: usize| -> Result<()> {
        for i in from..from + 2500 {
            let t = Tensor::from_vec(vec![1f32; size(i % 500)], [size(i % 500)], &device)? + 1.0;
            t.eval()?;
        }
        device.synchronize()
    };
    round(0)?;
    let reserved = device.memory().reserved;
    for i in 1..4 {
        round(i * 2500)?;
    }
    assert!(
        device.memory().reserved <= reserved + reserved / 4,
        "{} then {reserved}",
        device.memory().reserved
    );
    Ok(())
}
