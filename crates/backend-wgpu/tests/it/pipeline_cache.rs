//! Pipelines kept on disk: written, used again, and never a cause of failure.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use crate::common::{device, numbers, reduce, run};
use backend_wgpu::{Options, WgpuBackend};
use tensor_core::{
    CumulativeOp, DType, Device, Kernel, Layout, ReduceOp, Scalar,
    backend::Upcoming,
    kernel::{Compiled, Operand},
};

fn open(dir: &Path) -> Device {
    let options = Options { cache_dir: Some(dir.into()), ..Options::default() };
    backend_wgpu::open(0, &options).unwrap()
}

/// The file of a device's pipelines, which every Vulkan driver has.
fn file(device: &Device) -> Option<PathBuf> {
    let any: &dyn std::any::Any = device.backend().as_ref();
    let file = any.downcast_ref::<WgpuBackend>().unwrap().cache_file().map(PathBuf::from);
    if file.is_none() {
        assert!(!device.info().driver.starts_with("Vulkan"), "{:?}", device.info());
        eprintln!("skipped: {} keeps its pipelines to itself", device.info().driver);
    }
    file
}

fn works(device: &Device) {
    let fill = Kernel::copy(DType::F32, 10.into(), true, []);
    assert_eq!(run(device, &fill, &[Scalar::Float(2.0)], &[]).unwrap()[0], [2.0; 10]);
}

#[test]
fn pipelines_are_written_and_a_damaged_file_is_replaced() {
    if device().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let Some(file) = file(&first) else { return };
    assert!(file.starts_with(dir.path()) && !file.exists());
    works(&first);
    first.synchronize().unwrap();
    let whole = std::fs::read(&file).unwrap();
    assert!(whole.starts_with(b"taper pipelines 1\n"));
    drop(first);

    let damaged = [
        vec![],
        b"taper pipelines 1\n".to_vec(),
        vec![0xff; 100_000],
        whole[..whole.len() - 1].to_vec(),
        whole.iter().map(|b| b ^ 1).collect(),
    ];
    for bytes in damaged {
        std::fs::write(&file, &bytes).unwrap();
        let device = open(dir.path());
        works(&device);
        drop(device);
        let now = std::fs::read(&file).unwrap();
        assert!(now != bytes && now.starts_with(b"taper pipelines 1\n"), "{} bytes", bytes.len());
    }
    // A complete file is loaded unchanged.
    let again = open(dir.path());
    works(&again);
    drop(again);
    assert!(file.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "temporary files are left");
}

#[test]
fn a_directory_that_cannot_be_used_is_no_failure() {
    if device().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("a file");
    std::fs::write(&blocked, b"in the way").unwrap();
    let device = open(&blocked.join("below"));
    works(&device);
    device.synchronize().unwrap();
    drop(device);
    assert_eq!(std::fs::read(&blocked).unwrap(), b"in the way");

    // A directory in place of the file.
    let device = open(dir.path());
    let Some(file) = file(&device) else { return };
    std::fs::create_dir(&file).unwrap();
    works(&device);
    device.synchronize().unwrap();
    drop(device);
    let device = open(dir.path());
    works(&device);
}

#[test]
fn none_is_kept_where_none_is_wanted() {
    if device().is_none() {
        return;
    }
    let device = backend_wgpu::open(0, &Options { cache_dir: None, ..Options::default() }).unwrap();
    let any: &dyn std::any::Any = device.backend().as_ref();
    assert_eq!(any.downcast_ref::<WgpuBackend>().unwrap().cache_file(), None);
    works(&device);
}

/// Kernels that are prepared together get the pipelines of their launches, each once.
#[test]
fn prepared_kernels_have_the_pipelines_of_their_launches() {
    if device().is_none() {
        return;
    }
    let open = || {
        let options = Options { cache_dir: None, ..Options::default() };
        backend_wgpu::open(0, &options).unwrap()
    };
    let pipelines = |device: &Device| {
        let any: &dyn std::any::Any = device.backend().as_ref();
        any.downcast_ref::<WgpuBackend>().unwrap().pipelines()
    };
    let layout = Layout::contiguous([30, 500]);
    let sum = reduce(ReduceOp::Sum, &[0], &layout, DType::F32);
    let kernels = [
        sum.clone(),
        reduce(ReduceOp::Max, &[1], &layout, DType::F32),
        Kernel::arg_sort(1, true, 500, Operand::new(DType::F32, layout.clone())),
        Kernel::cumulative(CumulativeOp::Sum, 1, false, Operand::new(DType::F32, layout.clone())),
        sum,
    ];
    let inputs = [(DType::F32, numbers(layout.numel(), 3))];
    let results = |device: &Device| {
        kernels.iter().map(|kernel| run(device, kernel, &[], &inputs).unwrap()).collect::<Vec<_>>()
    };
    let alone = open();
    let expected = results(&alone);

    let together = open();
    let slots: Vec<Compiled> = kernels.iter().map(|_| Compiled::default()).collect();
    let upcoming = |kernel, compiled| Upcoming { kernel, compiled, shared: vec![None] };
    let upcoming: Vec<Upcoming<'_>> =
        kernels.iter().zip(&slots).map(|(kernel, slot)| upcoming(kernel, slot)).collect();
    together.backend().prepare(&upcoming);
    let prepared = pipelines(&together);
    assert!(prepared >= 4, "{prepared}");
    assert_eq!(prepared, pipelines(&alone));
    assert_eq!(results(&together), expected);
    assert_eq!(pipelines(&together), prepared);
}
