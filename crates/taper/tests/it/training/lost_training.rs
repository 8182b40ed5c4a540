//! A device lost in the middle of a training, in a process of its own: other tests would lose theirs. The
//! training begins again on another device, or goes on from a checkpoint.
#![cfg(feature = "gpu")]
#![allow(clippy::unwrap_used)]

use crate::resume::{STEPS, Training};
use taper::{ErrorKind, prelude::*};

#[derive(Module)]
struct Net {
    hidden: Linear,
    out: Linear,
}

/// Steps of a training, with `lose` called before the last.
fn train(device: &Device, steps: usize, lose: impl FnOnce()) -> Result<f32> {
    let rng = Generator::seed(1, device);
    let net = Net { hidden: Linear::new(16, 32, &rng)?, out: Linear::new(32, 4, &rng)? };
    let mut sgd = Sgd::new(net.parameters(), SgdConfig { lr: 0.1, ..Default::default() });
    let x = Tensor::randn([24, 16], &rng)?;
    let labels = Tensor::from_vec((0..24).map(|i| i % 4).collect::<Vec<i32>>(), [24], device)?;
    let mut step = || -> Result<f32> {
        let loss = cross_entropy(&net.out.forward(&net.hidden.forward(&x)?.relu())?, &labels)?;
        sgd.zero_grad();
        loss.backward()?;
        sgd.step()?;
        loss.item::<f32>()
    };
    for _ in 1..steps {
        step()?;
    }
    lose();
    step()
}

#[test]
fn a_training_on_a_lost_device_fails_and_another_can_begin() -> Result<()> {
    if taper_testing::run_alone(a_training_on_a_lost_device_fails_and_another_can_begin) {
        return Ok(());
    }
    let Some(device) = taper_testing::settings::opened(taper::wgpu(0)) else { return Ok(()) };
    let expected = train(&device, 4, || ())?;
    let error = train(&device, 4, || backend_wgpu::destroy(&device).unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DeviceLost { .. }), "{error}");
    let fresh = taper::wgpu(0)?;
    assert!(fresh != device);
    assert_eq!(train(&fresh, 4, || ())?, expected);
    Ok(())
}

#[test]
fn a_training_goes_on_from_its_checkpoint_after_its_device_was_lost() -> Result<()> {
    if taper_testing::run_alone(a_training_goes_on_from_its_checkpoint_after_its_device_was_lost) {
        return Ok(());
    }
    let Some(device) = taper_testing::settings::opened(taper::wgpu(0)) else { return Ok(()) };
    let losses = Training::new(1, &device)?.run(&device, 0, STEPS, |_, _| Ok(()))?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("6.safetensors");
    let interrupted = Training::new(1, &device)?.run(&device, 0, STEPS, |step, training| match step {
        6 => training.save(step, &path),
        9 => backend_wgpu::destroy(&device),
        _ => Ok(()),
    });
    let error = interrupted.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DeviceLost { .. }), "{error}");
    let fresh = taper::wgpu(0)?;
    let mut resumed = Training::new(7, &fresh)?;
    resumed.restore(&Checkpoint::load(&path, &fresh)?)?;
    assert_eq!(resumed.run(&fresh, 6, STEPS, |_, _| Ok(()))?, losses[6..]);
    Ok(())
}
