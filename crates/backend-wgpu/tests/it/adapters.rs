//! Several adapters and several devices in one process. A machine with one software adapter can list it
//! twice, so this test starts its own process.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use backend_wgpu::Options;
use taper_testing::settings::{opened, skip};
use tensor_core::{Device, ErrorKind, Result, Tensor};

/// The driver files of lavapipe for the Vulkan loader, on Linux.
fn software_driver() -> Option<PathBuf> {
    let entries =
        ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"].iter().filter_map(|d| std::fs::read_dir(d).ok());
    let paths = entries.flatten().filter_map(|e| Some(e.ok()?.path()));
    let mut paths: Vec<PathBuf> =
        paths.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("lvp"))).collect();
    paths.sort();
    paths.into_iter().next()
}

#[test]
fn several_adapters_and_devices_in_one_process() -> Result<()> {
    const MARK: &str = "TAPER_TEST_ADAPTERS";
    if std::env::var_os(MARK).is_some() {
        return on_two_adapters();
    }
    let found = backend_wgpu::adapters().len();
    if found == 0 {
        opened(backend_wgpu::wgpu(0));
        return Ok(());
    }
    let mut child = taper_testing::test_process(several_adapters_and_devices_in_one_process);
    child.env(MARK, "1").env_remove("TAPER_ADAPTER");
    if found == 1 {
        let Some(driver) = software_driver() else {
            skip("one adapter, and no software driver to be shown twice");
            return Ok(());
        };
        let dir = tempfile::tempdir().unwrap();
        let second = dir.path().join("second.json");
        std::fs::copy(&driver, &second).unwrap();
        let both = std::env::join_paths([driver, second]).unwrap();
        child.env("VK_DRIVER_FILES", &both).env("VK_ICD_FILENAMES", &both);
        return check(child);
    }
    check(child)
}

fn check(mut child: std::process::Command) -> Result<()> {
    let output = child.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    Ok(())
}

fn on_two_adapters() -> Result<()> {
    let adapters = backend_wgpu::adapters();
    assert!(adapters.len() >= 2, "{adapters:?}");
    let names: Vec<&str> = adapters.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, (0..names.len()).map(|i| format!("wgpu:{i}")).collect::<Vec<_>>());
    let devices = [backend_wgpu::wgpu(0)?, backend_wgpu::wgpu(1)?];
    let [one, two] = &devices;
    assert!(one != two && *one == backend_wgpu::wgpu(0)? && *two == backend_wgpu::wgpu(1)?);
    // Two more devices on the first adapter.
    let more = [backend_wgpu::open(0, &Options::default())?, backend_wgpu::open(0, &Options::default())?];
    assert!(more[0] != more[1] && more[0] != *one);
    let all: Vec<Device> = devices.iter().chain(&more).cloned().collect();

    // All devices compute at the same time.
    let work = |device: &Device, seed: usize| -> Result<f32> {
        let mut x = Tensor::full([64, 64], 1.0 + seed as f64, device)?;
        for _ in 0..50 {
            x = (&x + 1.0) - 1.0;
            x = x.matmul(&Tensor::full([64, 64], 1.0 / 64.0, device)?)?;
        }
        x.mean().item::<f32>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .iter()
            .chain(&all)
            .enumerate()
            .map(|(i, device)| (i, scope.spawn(move || work(device, i))))
            .collect();
        for (i, thread) in threads {
            let found = thread.join().unwrap().unwrap();
            assert!((found - (1 + i) as f32).abs() < 1e-3, "{i}: {found}");
        }
    });

    // Tensors can be moved between devices, and mixing devices is an error.
    let x = Tensor::arange(0.0, 100.0, 1.0, one)?;
    let moved = x.to(two)?;
    assert_eq!((moved.device(), moved.to_vec::<f32>()?), (two.clone(), x.to_vec::<f32>()?));
    let error = x.add(&moved).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DeviceMismatch { .. }), "{error}");
    assert!(error.to_string().contains("wgpu:0") && error.to_string().contains("wgpu:1"), "{error}");
    assert!(x.add(&Tensor::ones([100], &more[0])?).is_err(), "two devices of one adapter");

    // Tensors outlive the handle of their device, and the loss of one device does not affect the others.
    let [kept, lost] = more;
    let held = Tensor::ones([1000], &kept)? * 3.0;
    drop((kept, all));
    assert_eq!(held.to_vec::<f32>()?, [3.0; 1000]);
    let gone = Tensor::ones([10], &lost)? * 2.0;
    backend_wgpu::destroy(&lost)?;
    let error = gone.to_vec::<f32>().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DeviceLost { .. }), "{error}");
    drop(lost);
    assert!(gone.eval().is_err());
    drop(gone);
    assert_eq!((&moved * 2.0).to_vec::<f32>()?[99], 198.0);
    assert_eq!(work(one, 4)?.round(), 5.0);

    // The error for an unknown index lists the existing devices.
    let error = backend_wgpu::wgpu(99).unwrap_err().to_string();
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
    Ok(())
}

/// As in a container: Mesa's layer would open Wayland, whose library writes a warning to stderr.
#[test]
fn nothing_is_written_where_there_is_no_runtime_directory() {
    const MARK: &str = "TAPER_TEST_QUIET";
    if std::env::var_os(MARK).is_some() {
        println!("adapters: {}", backend_wgpu::adapters().len());
        return;
    }
    for directory in [None, Some("relative")] {
        let mut child = taper_testing::test_process(nothing_is_written_where_there_is_no_runtime_directory);
        child.arg("--nocapture");
        child.env(MARK, "1").env_remove("XDG_RUNTIME_DIR");
        if let Some(directory) = directory {
            child.env("XDG_RUNTIME_DIR", directory);
        }
        let output = child.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        assert!(!err.contains("XDG_RUNTIME_DIR"), "{err}");
        // The number of adapters is the same.
        assert!(out.contains(&format!("adapters: {}", backend_wgpu::adapters().len())), "{out}");
    }
}
