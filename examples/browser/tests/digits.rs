//! The page's training, outside a browser.
#![allow(clippy::unwrap_used)]

#[test]
fn digits_are_learned_the_same_on_every_device() {
    let learned = |device: &taper::Device| {
        let mut epochs = Vec::new();
        pollster::block_on(browser::learn(device, 8, async |epoch| epochs.push(epoch))).unwrap();
        epochs
    };
    let on_cpu = learned(&taper::cpu());
    assert!(on_cpu[7].accuracy > 0.95 && on_cpu[7].loss < on_cpu[0].loss / 4.0, "{on_cpu:?}");
    let device = pollster::block_on(taper::device_async("wgpu"));
    let Ok(device) = device else {
        let required = std::env::var("TAPER_TEST").is_ok_and(|settings| settings.contains("require=wgpu"));
        assert!(!required, "TAPER_TEST has require=wgpu, but {device:?}");
        eprintln!("skipped: {device:?}");
        return;
    };
    assert_eq!(device, taper::device("wgpu:0").unwrap());
    let on_gpu = learned(&device);
    assert!((on_gpu[0].loss - on_cpu[0].loss).abs() < 1e-4, "{on_gpu:?}, {on_cpu:?}");
    assert!(on_gpu[7].accuracy > 0.95, "{on_gpu:?}");
}
