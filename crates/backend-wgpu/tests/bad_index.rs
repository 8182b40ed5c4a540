//! Bad indices, in a process of their own: they are reported at the next read of anything, which could be another test's.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{INDEX_DTYPES, devices, numbers, run, scatter};
use tensor_core::{
    DType, ErrorKind, Kernel, Launch, Layout,
    kernel::{Compiled, GatherKernel},
};

/// One test, for the same reason: in turn.
#[test]
fn bad_indices_are_errors_at_the_next_read() {
    a_bad_index_is_told_once();
    an_index_of_64_bits_is_not_cut_to_32();
    an_index_into_nothing_is_told_too();
    a_dropped_read_leaves_what_it_found_to_the_next();
}

fn a_bad_index_is_told_once() {
    for (name, device) in devices() {
        for index_dtype in INDEX_DTYPES {
            if !device.supports(index_dtype) {
                continue;
            }
            let bad = if matches!(index_dtype, DType::I32 | DType::I64) { -1.0 } else { 4.0 };
            let gather = Kernel::Gather(GatherKernel {
                axis: 0,
                dtype: DType::F32,
                index_dtype,
                input: Layout::contiguous([4, 2]),
                index: Layout::new([3, 2], &[1, 0], 0),
            });
            let add = scatter(
                1,
                DType::F32,
                index_dtype,
                Layout::contiguous([2, 4]),
                Layout::new([2, 3], &[0, 1], 0),
                Layout::contiguous([2, 3]),
            );
            let index = (index_dtype, vec![0.0, bad, 1.0]);
            let cases = [
                ("gather", 0, &gather, vec![(DType::F32, numbers(8, 1)), index.clone()]),
                (
                    "scatter_add",
                    1,
                    &add,
                    vec![(DType::F32, numbers(8, 1)), index, (DType::F32, numbers(6, 1))],
                ),
            ];
            for (wanted, at, kernel, inputs) in cases {
                let error = run(device, kernel, &[], &inputs).unwrap_err();
                let ErrorKind::IndexOutOfRange { op, index, axis, size } = *error.kind() else {
                    panic!("{name}: {error}")
                };
                assert_eq!((op, index as f64, axis, size), (wanted, bad, at, 4), "{name}");
                // Told once; the device goes on.
                device.synchronize().unwrap();
                let mut inputs = inputs;
                inputs[1].1 = vec![0.0, 3.0, 1.0];
                run(device, kernel, &[], &inputs).unwrap();
            }
        }
    }
}

fn an_index_of_64_bits_is_not_cut_to_32() {
    for (name, device) in devices().iter().filter(|(_, d)| d.supports(DType::I64)) {
        let gather = Kernel::Gather(GatherKernel {
            axis: 0,
            dtype: DType::F32,
            index_dtype: DType::I64,
            input: Layout::contiguous([4]),
            index: Layout::contiguous([1]),
        });
        let found =
            run(device, &gather, &[], &[(DType::F32, numbers(4, 1)), (DType::I64, vec![4294967297.0])]);
        assert!(
            matches!(
                found.as_ref().map_err(|e| e.kind()),
                Err(ErrorKind::IndexOutOfRange { index: 4294967297, .. })
            ),
            "{name}: {found:?}"
        );
    }
}

fn an_index_into_nothing_is_told_too() {
    for (name, device) in devices() {
        for dtype in [DType::F32, DType::BF16] {
            let index = Layout::contiguous([3, 2]);
            let kernel = scatter(0, dtype, DType::I32, Layout::contiguous([0, 2]), index.clone(), index);
            let inputs = [(dtype, vec![]), (DType::I32, vec![1.0; 6]), (dtype, vec![1.0; 6])];
            let found = run(device, &kernel, &[], &inputs);
            assert!(
                matches!(
                    found.as_ref().map_err(|e| e.kind()),
                    Err(ErrorKind::IndexOutOfRange { index: 1, axis: 0, size: 0, .. })
                ),
                "{name}: {found:?}"
            );
            device.synchronize().unwrap();
        }
    }
}

/// An awaited read takes the record of bad indices with it; nobody awaits this one any more.
fn a_dropped_read_leaves_what_it_found_to_the_next() {
    for (name, device) in devices() {
        let backend = device.backend();
        let (table, index) = (Layout::contiguous([4]), Layout::contiguous([2]));
        let kernel = Kernel::Gather(GatherKernel {
            axis: 0,
            dtype: DType::F32,
            index_dtype: DType::I32,
            input: table,
            index,
        });
        let inputs =
            [backend.upload(DType::F32, &[0; 16]).unwrap(), backend.upload(DType::I32, &[9; 8]).unwrap()];
        let output = backend.allocate(DType::F32, 2).unwrap();
        let launch = Launch {
            kernel: &kernel,
            compiled: &Compiled::default(),
            scalars: &[],
            inputs: &inputs,
            outputs: std::slice::from_ref(&output),
        };
        backend.run(&launch).unwrap();
        let mut read = backend.download_async(&output, 0, 2);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(found) = read.as_mut().poll(&mut context) {
            assert!(
                matches!(found.as_ref().map_err(|e| e.kind()), Err(ErrorKind::IndexOutOfRange { .. })),
                "{name}: {found:?}"
            );
            continue;
        }
        drop(read);
        // It is told once the device has answered.
        let told = (0..10_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            backend.synchronize().err()
        });
        assert!(
            matches!(told.as_ref().map(|e| e.kind()), Some(ErrorKind::IndexOutOfRange { .. })),
            "{name}: {told:?}"
        );
        backend.synchronize().unwrap();
    }
}
