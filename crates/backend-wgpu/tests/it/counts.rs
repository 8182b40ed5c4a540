//! The counted work of a device: dispatches, barriers, bind groups, submissions.
#![allow(clippy::unwrap_used, clippy::panic)]

use backend_wgpu::{Counts, Forced, Form, Options, counted};
use tensor_core::{Device, Result, Tensor};

use crate::common::device;

/// A device of its own with the kernels of hardware.
fn open(no_immediates: bool) -> Option<Device> {
    device()?;
    let forced = Forced { form: Form::Tiled, no_immediates, ..Forced::default() };
    Some(backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap())
}

/// The counts of the second call of `work`: the first one makes pipelines and buffers.
fn steady<T>(device: &Device, mut work: impl FnMut() -> Result<T>) -> (T, Counts) {
    for _ in 0..2 {
        work().unwrap();
        device.synchronize().unwrap();
    }
    counted(device, work).unwrap()
}

fn vector(device: &Device, from: f64, n: usize) -> Tensor {
    let x = Tensor::arange(from, from + n as f64, 1.0, device).unwrap();
    x.eval().unwrap();
    x
}

#[test]
fn the_steady_state_makes_no_bind_group_and_no_buffer() {
    for no_immediates in [false, true] {
        let Some(device) = open(no_immediates) else { return };
        let x = vector(&device, 1.0, 300 * 300).reshape([300, 300]).unwrap();
        let work = || {
            let y = x.mul(&x)?.sum_axis(0, false)?;
            let z = x.matmul(&x)?.add(&y)?;
            z.softmax(-1)?.sum_axis(1, false)?.to_vec::<f32>()
        };
        let (_, counts) = steady(&device, work);
        assert!(counts.dispatches >= 3, "{counts:?}");
        assert_eq!((counts.bind_groups, counts.buffers, counts.pipelines), (0, 0, 0), "{counts:?}");
        assert_eq!((counts.read_backs, counts.submissions), (1, 1), "{counts:?}");
        assert!(counts.hazards < counts.dispatches, "{counts:?}");
        assert_eq!(counts.kernels.iter().map(|k| k.dispatches).sum::<u64>(), counts.dispatches);
        let product = counts.kernels.iter().find(|k| k.name == "matmul").unwrap();
        assert!(product.flops >= 2 * 300 * 300 * 300 && product.bytes >= 3 * 4 * 300 * 300, "{product:?}");
    }
}

#[test]
fn freed_buffers_serve_again_after_their_last_reader() {
    let Some(device) = open(false) else { return };
    let x = vector(&device, 0.0, 64);
    // Each reads the result of the one before, and the freed buffers serve again.
    let mut y = x.clone();
    for _ in 0..40 {
        y = y.add(&x).unwrap();
        y.eval().unwrap();
    }
    let want: Vec<f32> = (0..64).map(|i| 41.0 * i as f32).collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
    // A dispatch reads a buffer that is freed and then taken by an upload.
    for round in 0..30 {
        let one = vector(&device, f64::from(round), 64);
        let out = one.mul_scalar(2.0);
        out.eval().unwrap();
        drop(one);
        let other = Tensor::from_vec(vec![-1.0f32; 64], [64], &device).unwrap();
        let want: Vec<f32> = (0..64).map(|i| 2.0 * (i + round) as f32).collect();
        assert_eq!(out.to_vec::<f32>().unwrap(), want);
        assert_eq!(other.to_vec::<f32>().unwrap(), [-1.0; 64]);
    }
}

#[test]
fn work_that_is_recorded_but_not_run_has_the_same_counts() {
    let Some(_) = device() else { return };
    let count = |dry| {
        let forced = Forced { form: Form::Tiled, dry, ..Forced::default() };
        let device = backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap();
        let x = vector(&device, 0.0, 5000);
        steady(&device, || x.softmax(0)?.sum().item::<f32>()).1
    };
    assert_eq!(count(true), count(false));
}

#[test]
fn long_work_is_submitted_in_growing_pieces() {
    let Some(device) = open(false) else { return };
    let x = vector(&device, 1.0, 1000);
    let work = || {
        let mut y = x.clone();
        for _ in 0..60 {
            y = y.add(&x)?;
            y.eval()?;
        }
        Ok(y)
    };
    let (_, counts) = steady(&device, work);
    // 16, 32, and the rest.
    assert_eq!((counts.dispatches, counts.submissions, counts.before_first), (60, 3, 16), "{counts:?}");
}
