//! Bad indices: only the ticket of the launch reports them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use crate::common::{INDEX_DTYPES, devices, numbers, run, scatter, tickets};
use tensor_core::{
    DType, Device, ErrorKind, Kernel, Launch, Layout, ScatterOp, Storage, Ticket,
    kernel::{Compiled, Operand},
};

#[test]
fn a_bad_index_is_told_by_its_ticket() {
    for (name, device) in devices() {
        for index_dtype in INDEX_DTYPES {
            if !device.supports(index_dtype) {
                continue;
            }
            let bad = if matches!(index_dtype, DType::I32 | DType::I64) { -1.0 } else { 4.0 };
            let gather = Kernel::gather(
                0,
                Operand::new(DType::F32, Layout::contiguous([4, 2])),
                Operand::new(index_dtype, Layout::new([3, 2], &[1, 0], 0)),
            );
            let add = scatter(
                ScatterOp::Add,
                1,
                DType::F32,
                index_dtype,
                Layout::contiguous([2, 4]),
                Layout::new([2, 3], &[0, 1], 0),
                Layout::contiguous([2, 3]),
            );
            // Long enough for sorted segments.
            let long = scatter(
                ScatterOp::Add,
                0,
                DType::F32,
                index_dtype,
                Layout::contiguous([4, 2]),
                Layout::new([90, 2], &[1, 0], 0),
                Layout::contiguous([90, 2]),
            );
            let most: Vec<f64> = (0..90).map(|i| if i == 70 { bad } else { (i % 4) as f64 }).collect();
            let index = (index_dtype, vec![0.0, bad, 1.0]);
            let cases = [
                ("gather", 0, &gather, vec![(DType::F32, numbers(8, 1)), index.clone()]),
                (
                    "scatter_add",
                    1,
                    &add,
                    vec![(DType::F32, numbers(8, 1)), index, (DType::F32, numbers(6, 1))],
                ),
                (
                    "scatter_add",
                    0,
                    &long,
                    vec![(DType::F32, numbers(8, 1)), (index_dtype, most), (DType::F32, numbers(180, 1))],
                ),
            ];
            for (wanted, at, kernel, inputs) in cases {
                let error = run(device, kernel, &[], &inputs).unwrap_err();
                let ErrorKind::IndexOutOfRange { op, index, axis, size } = *error.kind() else {
                    panic!("{name}: {error}")
                };
                assert_eq!((op, index as f64, axis, size), (wanted, bad, at, 4), "{name}");
                // No other call reports it, and the device stays usable.
                device.synchronize().unwrap();
                let mut inputs = inputs;
                inputs[1].1.iter_mut().for_each(|index| *index = index.clamp(0.0, 3.0));
                run(device, kernel, &[], &inputs).unwrap();
            }
        }
    }
}

#[test]
fn an_index_of_64_bits_is_not_cut_to_32() {
    for (name, device) in devices().iter().filter(|(_, d)| d.supports(DType::I64)) {
        let gather = Kernel::gather(
            0,
            Operand::new(DType::F32, Layout::contiguous([4])),
            Operand::new(DType::I64, Layout::contiguous([1])),
        );
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

#[test]
fn an_index_into_nothing_is_told_too() {
    for (name, device) in devices() {
        for dtype in [DType::F32, DType::BF16] {
            let index = Layout::contiguous([3, 2]);
            let kernel = scatter(
                ScatterOp::Add,
                0,
                dtype,
                DType::I32,
                Layout::contiguous([0, 2]),
                index.clone(),
                index,
            );
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

/// A gather of `index` from four numbers, its output, and its ticket.
fn gathered(device: &Device, index: &[i32], read: bool) -> (Storage, Arc<Ticket>) {
    let backend = device.backend();
    let kernel = Kernel::gather(
        0,
        Operand::new(DType::F32, Layout::contiguous([4])),
        Operand::new(DType::I32, Layout::contiguous([index.len()])),
    );
    let bytes: Vec<u8> = index.iter().flat_map(|i| i.to_ne_bytes()).collect();
    let inputs = [
        backend.upload(DType::F32, &[1.0f32, 2.0, 3.0, 4.0].map(f32::to_ne_bytes).concat()).unwrap(),
        backend.upload(DType::I32, &bytes).unwrap(),
    ];
    let output = backend.allocate(DType::F32, index.len()).unwrap();
    let tickets = tickets(&kernel);
    let launch = Launch {
        kernel: &kernel,
        compiled: &Compiled::default(),
        scalars: &[],
        inputs: &inputs,
        outputs: std::slice::from_ref(&output),
        tickets: &tickets,
    };
    backend.run(&launch).unwrap();
    if read {
        backend.download(&output, 0, &mut vec![0; 4 * index.len()]).unwrap();
    }
    let (_, ticket) = tickets.into_iter().next().unwrap();
    (output, ticket)
}

#[test]
fn a_dropped_read_leaves_the_ticket_to_the_next() {
    for (name, device) in devices() {
        let backend = device.backend();
        let (output, ticket) = gathered(device, &[9, 9], false);
        let mut read = backend.download_async(&output, 0, 2);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = read.as_mut().poll(&mut context);
        drop(read);
        backend.settle().unwrap();
        for _ in 0..2 {
            let error = ticket.result().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { index: 9, .. }), "{name}: {error}");
        }
        backend.synchronize().unwrap();
    }
}

#[test]
fn every_ticket_is_decided_for_itself() {
    for (name, device) in devices() {
        // More launches than slots, some with bad indices, and none of them read.
        let bad = |i: i32| if i % 7 == 3 { 4 + i } else { i % 4 };
        let all: Vec<_> = (0..2500).map(|i| gathered(device, &[0, bad(i)], false)).collect();
        device.backend().settle().unwrap();
        for (i, (_, ticket)) in (0..).zip(&all) {
            match ticket.result() {
                Ok(()) => assert_ne!(i % 7, 3, "{name}: {i}"),
                Err(error) => {
                    let found = matches!(error.kind(), ErrorKind::IndexOutOfRange { index, .. } if *index == 4 + i64::from(i));
                    assert!(found && i % 7 == 3, "{name}: {i}: {error}");
                }
            }
        }
        // The slots of bad launches can be used again.
        for _ in 0..3 {
            gathered(device, &[1, 2], true).1.result().unwrap();
            assert!(gathered(device, &[1, 4], true).1.result().is_err(), "{name}");
        }
        // These tickets are dropped unread: their slots are cleared before they are used again.
        for _ in 0..3000 {
            gathered(device, &[7, 8], false);
        }
        for _ in 0..1500 {
            let (_output, ticket) = gathered(device, &[1, 2], false);
            drop(_output);
            drop(ticket);
        }
        gathered(device, &[1, 2], true).1.result().unwrap();
    }
}

#[test]
fn threads_settle_what_others_launched() {
    for (name, device) in devices() {
        std::thread::scope(|scope| {
            for t in 0..4 {
                scope.spawn(move || {
                    for i in 0..50 {
                        let bad = (i + t) % 3 == 0;
                        let (_output, ticket) = gathered(device, &[0, if bad { 100 + i } else { 3 }], true);
                        assert_eq!(ticket.result().is_err(), bad, "{name}");
                    }
                });
            }
        });
    }
}
