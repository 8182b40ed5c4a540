//! Memory is counted exactly, reused at once, and does not leak; threads share a device.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use crate::common::{device, numbers, read, run, to_bytes, to_numbers};
use tensor_core::{
    BinaryOp, DType, Device, Kernel, Launch, Layout, Scalar,
    kernel::{Compiled, Instr, Program},
};

fn open() -> Option<Device> {
    device()?;
    Some(backend_wgpu::open(0, &backend_wgpu::Options::default()).unwrap())
}

/// out = input + scalar
fn add(n: usize) -> Kernel {
    Kernel::map(
        n.into(),
        [Layout::contiguous([n])],
        Program {
            instrs: vec![Instr::Load(0), Instr::Scalar(0), Instr::Binary(BinaryOp::Add, 0, 1)],
            dtypes: vec![DType::F32; 3],
            inputs: vec![DType::F32],
            scalars: vec![DType::F32],
            outputs: vec![2],
        },
    )
}

/// The resident memory of this process, if the system reports it.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4096)
}

#[test]
fn statistics_are_exact() {
    let Some(device) = open() else { return };
    let backend = device.backend();
    let before = backend.memory();
    assert_eq!((before.allocated, before.allocations), (0, 0));
    let a = backend.allocate(DType::F32, 1000).unwrap();
    let b = backend.allocate(DType::U8, 10).unwrap();
    let now = backend.memory();
    assert_eq!((now.allocated, now.peak, now.allocations), (4010, 4010, 2));
    assert!(now.reserved >= 4010);
    drop(a);
    assert_eq!((backend.memory().allocated, backend.memory().peak), (10, 4010));
    device.reset_peak();
    assert_eq!(backend.memory().peak, 10);
    drop(b);
    assert!(backend.memory().reserved >= 4010);
    device.empty_cache();
    assert_eq!(backend.memory().reserved, 0);
}

#[test]
fn ten_thousand_allocations_of_many_sizes_hold_memory_flat() {
    let Some(device) = open() else { return };
    let backend = device.backend();
    let mut held = std::collections::VecDeque::new();
    let mut at_half = 0;
    for i in 0..10_000u64 {
        let n = (tensor_core::philox(3, i)[0] % 50_000) as usize;
        held.push_back(backend.allocate(DType::F32, n).unwrap());
        if held.len() > 20 {
            held.pop_front();
        }
        if i == 5_000 {
            at_half = backend.memory().reserved;
        }
    }
    let end = backend.memory();
    assert!(end.reserved <= at_half + (4 << 20), "{at_half} -> {}", end.reserved);
    assert!(end.reserved < 100 << 20, "{}", end.reserved);
}

#[test]
fn ten_thousand_launches_hold_memory_flat() {
    let Some(device) = open() else { return };
    let backend = device.backend();
    let kernel = add(1000);
    let compiled = Compiled::default();
    let mut x = backend.upload(DType::F32, &[0; 4000]).unwrap();
    let mut at_start = 0;
    for i in 0..10_000 {
        let out = backend.allocate(DType::F32, 1000).unwrap();
        backend
            .run(&Launch {
                kernel: &kernel,
                compiled: &compiled,
                scalars: &[Scalar::Float(1.0)],
                inputs: &[x],
                outputs: std::slice::from_ref(&out),
                tickets: &[],
            })
            .unwrap();
        x = out;
        // By then the submissions have their greatest number of dispatches, and the pool as many buffers.
        if i == 1000 {
            at_start = backend.memory().reserved;
        }
    }
    assert_eq!(backend.memory().reserved, at_start);
    assert!(read(&device, &x).unwrap().iter().all(|&v| v == 10_000.0));
    assert_eq!(backend.memory().allocated, 4000);
}

#[test]
fn uploads_without_a_read_do_not_pile_up() {
    if taper_testing::run_alone(uploads_without_a_read_do_not_pile_up) {
        return;
    }
    let Some(device) = open() else { return };
    let backend = device.backend();
    let bytes = vec![0u8; 256 << 10];
    let before = resident();
    for _ in 0..3000 {
        drop(backend.upload(DType::F32, &bytes).unwrap());
    }
    if let (Some(before), Some(after)) = (before, resident()) {
        assert!(after < before + (400 << 20), "{} MiB more", (after - before) >> 20);
    }
}

/// A freed buffer is reused for an upload while recorded commands still read its former contents.
#[test]
fn an_upload_does_not_overtake_recorded_commands() {
    let Some(device) = open() else { return };
    let backend = device.backend();
    let n = 4096;
    let kernel = add(n);
    let compiled = Compiled::default();
    for round in 0..50 {
        let one = backend.upload(DType::F32, &to_bytes(DType::F32, &vec![f64::from(round); n])).unwrap();
        let out = backend.allocate(DType::F32, n).unwrap();
        backend
            .run(&Launch {
                kernel: &kernel,
                compiled: &compiled,
                scalars: &[Scalar::Float(0.5)],
                inputs: std::slice::from_ref(&one),
                outputs: std::slice::from_ref(&out),
                tickets: &[],
            })
            .unwrap();
        drop(one);
        let other = backend.upload(DType::F32, &to_bytes(DType::F32, &vec![-1.0; n])).unwrap();
        assert!(read(&device, &out).unwrap().iter().all(|&v| v == f64::from(round) + 0.5));
        assert!(read(&device, &other).unwrap().iter().all(|&v| v == -1.0));
    }
}

#[test]
fn two_threads_on_one_device() {
    let Some(device) = open() else { return };
    thread::scope(|scope| {
        for t in 0..2u64 {
            let device = device.clone();
            scope.spawn(move || {
                for i in 0..100 {
                    let n = 100 + ((i * 37 + t * 11) % 400) as usize;
                    let values = numbers(n, i + t * 1000);
                    let found = run(&device, &add(n), &[Scalar::Float(1.0)], &[(DType::F32, values.clone())])
                        .unwrap();
                    for (f, v) in found[0].iter().zip(values) {
                        assert_eq!(*f, f64::from(v as f32 + 1.0));
                    }
                }
            });
        }
    });
    // A buffer allocated on one thread and dropped on another.
    let buffer = device.backend().allocate(DType::F32, 10).unwrap();
    thread::spawn(move || drop(buffer)).join().unwrap();
    assert_eq!(device.memory().allocated, 0);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn an_asynchronous_read_gives_the_same() {
    let Some(device) = open() else { return };
    let values = numbers(5000, 1);
    let buffer = device.backend().upload(DType::F16, &to_bytes(DType::F16, &values)).unwrap();
    let mut read = device.backend().download_async(&buffer, 10, 100);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let bytes = loop {
        match read.as_mut().poll(&mut context) {
            Poll::Ready(done) => break done.unwrap(),
            Poll::Pending => thread::park(),
        }
    };
    for (f, v) in to_numbers(DType::F16, &bytes).iter().zip(&values[10..]) {
        assert!((f - v).abs() < 2e-3);
    }
}

#[test]
fn pieces_of_a_large_buffer_come_back_in_order() {
    let Some(device) = open() else { return };
    // More than one staging buffer holds.
    let n = 10_000_000usize;
    let bytes: Vec<u8> = (0..n as u32).flat_map(u32::to_ne_bytes).collect();
    let buffer = device.backend().upload(DType::U32, &bytes).unwrap();
    let mut out = vec![0; bytes.len()];
    device.backend().download(&buffer, 0, &mut out).unwrap();
    assert!(out == bytes);
    let mut some = [0; 8];
    device.backend().download(&buffer, 9_000_001, &mut some).unwrap();
    assert_eq!(u32::from_ne_bytes(some[..4].try_into().unwrap()), 9_000_001);
}
