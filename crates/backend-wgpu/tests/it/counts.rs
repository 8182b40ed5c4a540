//! The counted work of a device: dispatches, barriers, bind groups, submissions; and small dispatches that
//! are merged.
#![allow(clippy::unwrap_used, clippy::panic)]

use backend_wgpu::{Counts, Forced, Form, Options, counted};
use tensor_core::{Device, Result, Tensor, eval_all};

use crate::common::device;

/// A device of its own with the kernels of hardware: small dispatches are merged there.
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
fn small_independent_maps_are_merged_and_give_the_same_numbers() {
    for no_immediates in [false, true] {
        let Some(device) = open(no_immediates) else { return };
        // Their lengths differ, so that parts end within a workgroup.
        let inputs: Vec<Tensor> =
            (0..21).map(|k| vector(&device, f64::from(k), 40 + 100 * k as usize)).collect();
        let work = || {
            let results: Vec<Tensor> = inputs.iter().map(|x| x.mul_scalar(3.0).add_scalar(0.5)).collect();
            for result in &results {
                result.eval()?;
            }
            Ok(results)
        };
        let (results, counts) = steady(&device, work);
        // Groups of 16, 4 and 1 are merged, or smaller ones where a kernel may bind few buffers.
        assert!(counts.dispatches <= 6, "{counts:?}");
        assert_eq!(counts.kernels.len(), 21);
        for (k, result) in results.iter().enumerate() {
            let want: Vec<f32> = (0..40 + 100 * k).map(|i| (i + k) as f32 * 3.0 + 0.5).collect();
            assert_eq!(result.to_vec::<f32>().unwrap(), want, "{k}");
        }
    }
}

#[test]
fn a_waiting_dispatch_comes_before_those_that_need_it() {
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
    // A waiting dispatch reads a buffer that is freed and then taken by an upload.
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
fn merged_sums_share_workgroup_memory() {
    let Some(device) = open(false) else { return };
    let inputs: Vec<Tensor> = (1..6)
        .map(|k| vector(&device, 0.0, 64 * 50).mul_scalar(f64::from(k)).reshape([64, 50]).unwrap())
        .collect();
    eval_all(&inputs.iter().collect::<Vec<_>>()).unwrap();
    for axis in [0, 1] {
        let sums: Vec<Tensor> = inputs.iter().map(|x| x.sum_axis(axis, false).unwrap()).collect();
        for sum in &sums {
            sum.eval().unwrap();
        }
        for (k, sum) in (1..6).zip(&sums) {
            let want: Vec<f32> = match axis {
                0 => (0..50).map(|c| (0..64).map(|r| (k * (r * 50 + c)) as f32).sum()).collect(),
                _ => (0..64).map(|r| (0..50).map(|c| (k * (r * 50 + c)) as f32).sum()).collect(),
            };
            assert_eq!(sum.to_vec::<f32>().unwrap(), want, "{k} {axis}");
        }
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
    // Each reads the one before, so that none are merged.
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
