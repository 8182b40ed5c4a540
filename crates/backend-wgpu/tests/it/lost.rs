//! A lost device, in its own process: the other tests would lose it too.
#![allow(clippy::unwrap_used)]

use tensor_core::{ErrorKind, Result, Tensor};

#[test]
fn a_lost_device_is_an_error_and_can_be_opened_again() -> Result<()> {
    if taper_testing::run_alone(a_lost_device_is_an_error_and_can_be_opened_again) {
        return Ok(());
    }
    let Some(device) = taper_testing::settings::opened(backend_wgpu::wgpu(0)) else { return Ok(()) };
    let x = Tensor::from_vec(vec![1f32, 2.0], [2], &device)?;
    let y = &x + 1.0;
    backend_wgpu::destroy(&device)?;
    let error = y.to_vec::<f32>().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DeviceLost { .. }), "{error}");
    let error = x.to_vec::<f32>().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DeviceLost { .. }), "{error}");
    let fresh = backend_wgpu::wgpu(0)?;
    assert!(fresh != device);
    let z = Tensor::from_vec(vec![1f32, 2.0], [2], &fresh)? + 1.0;
    assert_eq!(z.to_vec::<f32>()?, [2.0, 3.0]);
    drop((x, y, device));
    Ok(())
}
