//! Every failure becomes an `Error`, and the device stays usable (or, if lost, can be opened again).
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, numbers, read, run, to_bytes};
use tensor_core::{
    DType, Device, ErrorKind, Kernel, Layout, Result, Scalar,
    kernel::{Instr, Program},
};

fn open(memory_limit: Option<u64>) -> Option<Device> {
    device()?;
    let options = backend_wgpu::Options { memory_limit, ..Default::default() };
    Some(backend_wgpu::open(0, &options).unwrap())
}

fn fill(n: usize) -> Kernel {
    Kernel::copy(DType::F32, n.into(), true, [])
}

#[test]
fn a_terabyte_is_too_large() {
    let Some(device) = device() else { return };
    for numel in [1usize << 38, usize::MAX, device.info().limits.max_buffer_bytes as usize / 4 + 1] {
        let found = device.backend().allocate(DType::F32, numel);
        assert!(matches!(found.as_ref().map_err(|e| e.kind()), Err(ErrorKind::TooLarge { .. })), "{found:?}");
    }
    // The largest buffer works, to its last element, unless it would take most of the memory.
    let Some(device) = open(None) else { return };
    let most = device.info().limits.max_buffer_bytes as usize / 4;
    if most <= 1 << 29 {
        let buffer = device.backend().allocate(DType::F32, most).unwrap();
        let mut last = [1; 4];
        device.backend().download(&buffer, most - 1, &mut last).unwrap();
    }
}

#[test]
fn the_budget_is_kept_and_freed_memory_serves_again() {
    let Some(device) = open(Some(8 << 20)) else { return };
    let backend = device.backend();
    for _ in 0..3 {
        let mut held = Vec::new();
        let error = loop {
            match backend.allocate(DType::F32, 1 << 18) {
                Ok(buffer) => held.push(buffer),
                Err(error) => break error,
            }
            assert!(held.len() <= 8);
        };
        assert!(
            matches!(error.kind(), ErrorKind::OutOfMemory { asked: 1_048_576, limit: Some(8_388_608), .. }),
            "{error}"
        );
        assert!(held.len() >= 7, "{}", held.len());
        assert!(backend.memory().reserved <= 8 << 20);
        // The tensors that are held stay valid. After they are freed, the device works at another size too.
        assert_eq!(run(&device, &fill(10), &[Scalar::Float(2.0)], &[]).is_ok(), held.len() < 8);
        drop(held);
        assert_eq!(run(&device, &fill(1 << 20), &[Scalar::Float(2.0)], &[]).unwrap()[0][77], 2.0);
    }
    assert_eq!(backend.memory().allocated, 0);
    device.empty_cache();
    assert_eq!(backend.memory().reserved, 0);
}

#[test]
fn a_lost_device_stays_lost_and_can_be_opened_again() {
    let Some(device) = open(None) else { return };
    let backend = device.backend();
    let kept = backend.upload(DType::F32, &to_bytes(DType::F32, &numbers(100, 1))).unwrap();
    backend_wgpu::destroy(&device).unwrap();
    let lost = |result: Result<()>| {
        assert!(
            matches!(result.as_ref().map_err(|e| e.kind()), Err(ErrorKind::DeviceLost { .. })),
            "{result:?}"
        )
    };
    for _ in 0..2 {
        lost(backend.allocate(DType::F32, 10).map(drop));
        lost(backend.upload(DType::F32, &[0; 40]).map(drop));
        lost(backend.download(&kept, 0, &mut [0; 400]));
        lost(backend.synchronize());
        lost(run(&device, &fill(10), &[Scalar::Float(2.0)], &[]).map(drop));
    }
    device.empty_cache();
    drop(kept);
    drop(device);
    let again = open(None).unwrap();
    assert_eq!(run(&again, &fill(3), &[Scalar::Float(2.0)], &[]).unwrap()[0], [2.0; 3]);
}

#[test]
fn a_device_lost_under_load_gives_right_results_or_an_error() {
    let Some(device) = open(None) else { return };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                // After the loss every read fails; until then every number is right.
                for i in 0.. {
                    let value = f64::from(i % 1000);
                    match run(&device, &fill(100), &[Scalar::Float(value)], &[]) {
                        Ok(found) => assert_eq!(found[0], [value; 100]),
                        Err(error) => {
                            assert!(matches!(error.kind(), ErrorKind::DeviceLost { .. }), "{error}");
                            break;
                        }
                    }
                }
                assert!(run(&device, &fill(100), &[Scalar::Float(1.0)], &[]).is_err());
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        backend_wgpu::destroy(&device).unwrap();
    });
}

#[test]
fn an_asynchronous_read_fails_as_the_others_do() {
    let Some(device) = open(None) else { return };
    let buffer = device.backend().upload(DType::F32, &[0; 400]).unwrap();
    let read = |start| pollster::block_on(device.backend().download_async(&buffer, start, 100));
    drop(device.backend().download_async(&buffer, 0, 100));
    assert_eq!(read(0).unwrap(), [0; 400]);
    assert!(matches!(read(1).as_ref().map_err(|e| e.kind()), Err(ErrorKind::Invalid { .. })), "past the end");
    backend_wgpu::destroy(&device).unwrap();
    assert!(matches!(read(0).as_ref().map_err(|e| e.kind()), Err(ErrorKind::DeviceLost { .. })));
}

/// The read either succeeds or reports the loss; it never hangs.
#[test]
fn a_read_under_way_when_the_device_is_lost_ends() {
    for round in 0..20 {
        let Some(device) = open(None) else { return };
        let buffer = device.backend().upload(DType::U32, &[7; 400_000]).unwrap();
        let mut reads: Vec<_> =
            (0..5).map(|_| device.backend().download_async(&buffer, 0, 100_000)).collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        reads.retain_mut(|read| match read.as_mut().poll(&mut context) {
            std::task::Poll::Pending => true,
            std::task::Poll::Ready(found) => {
                assert!(found.unwrap() == [7; 400_000]);
                false
            }
        });
        if round % 2 == 1 {
            std::thread::sleep(std::time::Duration::from_micros(50 * round));
        }
        backend_wgpu::destroy(&device).unwrap();
        for read in reads {
            match pollster::block_on(read) {
                Ok(found) => assert!(found == [7; 400_000]),
                Err(error) => assert!(matches!(error.kind(), ErrorKind::DeviceLost { .. }), "{error}"),
            }
        }
    }
}

/// The threads of this process that wait for devices on behalf of reads, if the system lists them.
fn reading_threads() -> Option<usize> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    Some(tasks.filter_map(name).filter(|name| name.trim() == "taper-read").count())
}

/// In its own process, because other tests read too.
#[test]
fn one_thread_waits_for_all_reads_of_a_device_and_ends() {
    const MARK: &str = "TAPER_TEST_READERS";
    if device().is_none() {
        return;
    }
    if std::env::var_os(MARK).is_none() {
        let child = taper_testing::test_process(one_thread_waits_for_all_reads_of_a_device_and_ends)
            .env(MARK, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        return;
    }
    let Some(device) = open(None) else { return };
    let buffer = device.backend().upload(DType::U32, &[7; 4000]).unwrap();
    let mut reads: Vec<_> = (0..100).map(|_| device.backend().download_async(&buffer, 0, 1000)).collect();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut most = 0;
    reads.retain_mut(|read| {
        let waiting = read.as_mut().poll(&mut context).is_pending();
        most = most.max(reading_threads().unwrap_or(0));
        waiting
    });
    // One thread may still be ending while the next begins.
    assert!(most < 10, "{most} threads for {} reads", reads.len());
    for read in reads {
        assert_eq!(pollster::block_on(read).unwrap(), [7; 4000]);
    }
    // The thread ends by itself; otherwise this loop does not end either.
    while reading_threads().is_some_and(|n| n > 0) {
        std::thread::yield_now();
    }
}

#[test]
fn the_device_of_an_index_is_one_until_it_is_lost() {
    if device().is_none() {
        return;
    }
    // The test goes through the registry, because it has to destroy a registered device.
    let last = backend_wgpu::adapters().len() - 1;
    let first = backend_wgpu::wgpu(last).unwrap();
    assert_eq!(first, backend_wgpu::wgpu(last).unwrap());
    assert_eq!(first.name(), format!("wgpu:{last}"));
    if last > 0 {
        backend_wgpu::destroy(&first).unwrap();
        let second = backend_wgpu::wgpu(last).unwrap();
        assert_ne!(first, second);
        assert!(run(&second, &fill(3), &[Scalar::Float(2.0)], &[]).is_ok());
    }
}

#[test]
fn an_index_past_the_last_lists_what_there_is() {
    let error = backend_wgpu::wgpu(99).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error.kind(), ErrorKind::UnknownDevice { .. }));
    assert!(text.contains("wgpu:99"), "{text}");
    assert!(text.contains("wgpu:0") || text.contains("apt-get install"), "{text}");
}

#[test]
fn what_is_lacking_is_unsupported() {
    let Some(device) = device() else { return };
    let program = Program {
        instrs: vec![Instr::Load(0), Instr::Unary(tensor_core::UnaryOp::Exp, 0)],
        dtypes: vec![DType::I32, DType::I32],
        inputs: vec![DType::I32],
        scalars: vec![],
        outputs: vec![1],
    };
    let kernel = Kernel::map(4.into(), [Layout::contiguous([4])], program);
    let found = run(device, &kernel, &[], &[(DType::I32, vec![1.0; 4])]);
    assert!(
        matches!(
            found.as_ref().map_err(|e| e.kind()),
            Err(ErrorKind::Unsupported { op: "exp", dtype: DType::I32, .. })
        ),
        "{found:?}"
    );
}

#[test]
fn buffers_of_other_devices_are_refused() {
    let (Some(one), Some(two)) = (open(None), open(None)) else { return };
    let buffer = one.backend().upload(DType::F32, &[0; 16]).unwrap();
    assert!(two.backend().download(&buffer, 0, &mut [0; 16]).is_err());
    assert!(one.backend().download(&buffer, 2, &mut [0; 16]).is_err(), "past the end");
    drop(one);
    // Freed after its device was dropped.
    drop(buffer);
}

#[test]
fn nothing_is_something_too() {
    let Some(device) = device() else { return };
    let backend = device.backend();
    for dtype in [DType::F32, DType::Bool] {
        let empty = backend.upload(dtype, &[]).unwrap();
        assert_eq!(empty.numel(), 0);
        backend.download(&empty, 0, &mut []).unwrap();
        assert!(read(device, &empty).unwrap().is_empty());
    }
}

/// The environment is read when a process first requests a device, so this test starts its own process.
#[test]
fn a_name_that_no_adapter_has_lists_those_there_are() {
    const NAME: &str = "no such card";
    if std::env::var("TAPER_ADAPTER").is_ok_and(|v| v == NAME) {
        let text = backend_wgpu::wgpu(0).unwrap_err().to_string();
        let listed = text.contains(NAME) && text.contains("TAPER_ADAPTER") && text.contains("wgpu:0");
        assert!(listed || text.contains("apt-get install"), "{text}");
        return;
    }
    let child = taper_testing::test_process(a_name_that_no_adapter_has_lists_those_there_are)
        .env("TAPER_ADAPTER", NAME)
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
fn a_memory_limit_that_cannot_be_read_is_told() {
    const NAME: &str = "TAPER_WGPU_MEMORY_LIMIT";
    if let Ok(value) = std::env::var(NAME) {
        let error = backend_wgpu::wgpu(0).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error.kind(), ErrorKind::Invalid { .. }) && text.contains(NAME), "{text}");
        assert!(text.contains(&format!("{value:?}")), "{text}");
        return;
    }
    for value in ["8 GB", "-1", "0", "1e9"] {
        let child = taper_testing::test_process(a_memory_limit_that_cannot_be_read_is_told)
            .env(NAME, value)
            .output()
            .unwrap();
        assert!(child.status.success(), "{value}: {}", String::from_utf8_lossy(&child.stdout));
    }
}

/// Upper and lower case are equal, and a part of the name is enough.
#[test]
fn an_adapter_is_chosen_by_a_part_of_its_name() {
    const MARK: &str = "TAPER_TEST_CHOSEN";
    if device().is_none() {
        return;
    }
    if std::env::var_os(MARK).is_some() {
        let wanted = std::env::var("TAPER_ADAPTER").unwrap().to_lowercase();
        let device = backend_wgpu::wgpu(0).unwrap();
        assert!(device.info().description.to_lowercase().contains(&wanted), "{:?}", device.info());
        return;
    }
    for adapter in backend_wgpu::adapters() {
        let part: String = adapter.description.chars().take(6).collect::<String>().to_uppercase();
        let child = taper_testing::test_process(an_adapter_is_chosen_by_a_part_of_its_name)
            .env("TAPER_ADAPTER", &part)
            .env(MARK, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{part}: {}", String::from_utf8_lossy(&child.stdout));
    }
}

#[test]
fn without_an_adapter_the_error_says_what_to_install() {
    const MARK: &str = "TAPER_TEST_NO_ADAPTER";
    if std::env::var_os(MARK).is_some() {
        // If the loader ignores the setting there is still an adapter; then this test shows nothing.
        match backend_wgpu::wgpu(0) {
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::UnknownDevice { .. }), "{error}");
                assert!(error.to_string().contains("apt-get install"), "{error}");
                assert!(backend_wgpu::adapters().is_empty());
            }
            Ok(_) if cfg!(target_os = "linux") => panic!("an adapter in spite of an empty list of drivers"),
            Ok(_) => {}
        }
        return;
    }
    let child = taper_testing::test_process(without_an_adapter_the_error_says_what_to_install)
        .env(MARK, "1")
        .env("VK_DRIVER_FILES", "/nowhere.json")
        .env("VK_ICD_FILENAMES", "/nowhere.json")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
fn a_dtype_that_the_adapter_lacks_is_told_with_the_cast() {
    if device().is_none() {
        return;
    }
    let without: &[DType] = &[DType::F64, DType::I64, DType::F16];
    let forced = backend_wgpu::Forced { without, ..Default::default() };
    let device = backend_wgpu::open(0, &backend_wgpu::Options { forced, ..Default::default() }).unwrap();
    for dtype in without.iter().copied() {
        assert!(!device.supports(dtype));
        let found = [
            device.backend().allocate(dtype, 10).map(drop),
            tensor_core::Tensor::zeros([3], (dtype, &device)).map(drop),
            tensor_core::Tensor::zeros([3], &device).and_then(|t| t.to_dtype(dtype)?.eval()),
        ];
        for found in found {
            let error = found.unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Unsupported { dtype: d, .. } if *d == dtype),
                "{dtype}: {error}"
            );
            assert!(error.to_string().contains("cast") || error.to_string().contains("to_dtype"), "{error}");
        }
    }
    assert!(run(&device, &fill(3), &[Scalar::Float(2.0)], &[]).is_ok());
}
