//! The wgpu backend against the reference backend, on the available adapter: every kernel, and the failures
//! of a GPU.
#![allow(clippy::unwrap_used, clippy::panic)]

use backend_wgpu::{Forced, Options};
use taper_testing::{
    floats,
    settings::{has_turn, opened},
};
use tensor_core::{DType, Device, ErrorKind, Generator, ReduceOp, Result, Tensor, eval_pending};

/// The first adapter's device, or `None` if there is none; that is reported, and fails the test if a device
/// is required.
fn device() -> Option<Device> {
    opened(backend_wgpu::wgpu(0))
}

/// Where tests take turns, each call is made on one of two days.
#[track_caller]
fn agree(what: &str, rtol: f64, f: impl Fn(&Device) -> Result<Tensor>) {
    let Some(device) = device().filter(|_| has_turn(2)) else { return };
    taper_testing::agree(&device, what, Some((rtol, rtol)), f);
}

#[test]
fn maps_over_every_kind_of_input() {
    for shape in [vec![], vec![0], vec![7], vec![1025], vec![3, 70, 4]] {
        agree("contiguous", 1e-5, |d| Ok((floats(&shape, 1, d)? * 2.0 + 1.0).tanh().exp()));
    }
    agree("broadcast", 1e-6, |d| {
        floats(&[50, 30], 1, d)?.add(&floats(&[30], 2, d)?)?.mul(&floats(&[50, 1], 3, d)?)
    });
    agree("transposed", 1e-6, |d| floats(&[50, 30], 1, d)?.mul(&floats(&[30, 50], 2, d)?.t()?));
    agree("sliced", 1e-5, |d| Ok(floats(&[50, 30], 1, d)?.slice_step(1, 3..29, 7)?.flip(0)?.sigmoid()));
    agree("halves", 2e-2, |d| {
        let x = floats(&[50, 30], 1, d)?.to_dtype(DType::F16)?;
        Ok((&x * 2.0 + x.t()?.t()?.relu()).to_dtype(DType::BF16)?.abs())
    });
    agree("integers", 0.0, |d| {
        let x = (floats(&[40, 30], 1, d)? * 50.0).to_dtype(DType::I32)?;
        x.remainder_scalar(7).pow(&x.floor_divide_scalar(20))
    });
    // More than 65,535 workgroups.
    agree("wide", 1e-6, |d| Ok(Tensor::arange(0.0, 17_000_000.0, 1.0, d)?.narrow(0, 16_999_990, 10)? * 0.5));
}

#[test]
fn functions_answer_as_ieee_does() {
    let special = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-6,
        -1e-6,
        80.0,
        -80.0,
        0.5,
        3e38,
    ];
    let n = special.len();
    for &op in tensor_core::UnaryOp::ALL {
        // Drivers are not accurate for sines of huge angles.
        let values: Vec<f32> =
            special.iter().copied().filter(|v| !(v.abs() > 1e3 && v.is_finite())).collect();
        agree(op.name(), 2e-5, |d| Ok(Tensor::from_slice(&values, [values.len()], d)?.unary(op)));
    }
    use tensor_core::BinaryOp as B;
    for op in [B::Add, B::Sub, B::Mul, B::Div, B::Maximum, B::Minimum, B::Pow, B::Atan2, B::FloorDiv] {
        agree(op.name(), 2e-5, |d| {
            let x = Tensor::from_slice(&special, [n, 1], d)?;
            x.binary(op, &x.reshape([1, n])?)
        });
    }
    for &op in tensor_core::CompareOp::ALL {
        agree(op.name(), 0.0, |d| {
            let x = Tensor::from_slice(&special, [n, 1], d)?;
            x.compare(op, &x.reshape([1, n])?)
        });
    }
}

#[test]
fn reductions_over_every_axis() {
    for shape in [vec![3, 4, 5], vec![2, 3000], vec![3000, 2], vec![100_000]] {
        for mask in 1u32..1 << shape.len() {
            let axes: Vec<usize> = (0..shape.len()).filter(|a| mask >> a & 1 == 1).collect();
            let what = format!("{shape:?} over {axes:?}");
            agree(&what, 1e-5, |d| (floats(&shape, 1, d)? + 0.5).exp().mean_axis(axes.clone(), false));
            agree(&what, 1e-5, |d| floats(&shape, 1, d)?.abs().sum_axis(axes.clone(), true));
            agree(&what, 0.0, |d| floats(&shape, 1, d)?.amax(axes.clone(), false));
            agree(&what, 0.0, |d| {
                floats(&shape, 1, d)?.gt_scalar(1.9).reduce(ReduceOp::Any, axes.clone(), false)
            });
        }
    }
    agree("integers", 0.0, |d| (floats(&[4, 3000], 1, d)? * 9.0).to_dtype(DType::I32)?.amax(1, false));
}

#[test]
fn products_of_every_shape_and_layout() {
    for (m, k, n) in [(1, 1, 1), (7, 13, 5), (64, 100, 33), (1, 50, 1), (4, 0, 3), (0, 3, 4), (65, 129, 33)] {
        agree("nn", 1e-5, |d| floats(&[m, k], 1, d)?.matmul(&floats(&[k, n], 2, d)?));
        agree("nt", 1e-5, |d| floats(&[m, k], 1, d)?.matmul(&floats(&[n, k], 2, d)?.t()?));
        agree("tn", 1e-5, |d| floats(&[k, m], 1, d)?.t()?.matmul(&floats(&[k, n], 2, d)?));
        agree("flipped", 1e-5, |d| floats(&[m, k], 1, d)?.flip([0, 1])?.matmul(&floats(&[k, n], 2, d)?));
        agree("batched", 1e-5, |d| floats(&[3, 1, m, k], 1, d)?.matmul(&floats(&[2, k, n], 2, d)?));
        agree("integers", 0.0, |d| {
            let ints = |t: Tensor| (t * 5.0).to_dtype(DType::I32);
            ints(floats(&[m, k], 1, d)?)?.matmul(&ints(floats(&[k, n], 2, d)?)?)
        });
    }
}

#[test]
fn indices_copies_extremes_and_random_numbers() {
    let index = |d: &Device| Tensor::from_vec(vec![2i32, 0, 2, 1, 1], [5], d);
    agree("index_select", 0.0, |d| floats(&[4, 3, 5], 1, d)?.index_select(1, &index(d)?));
    agree("index_add", 1e-6, |d| floats(&[4, 3], 1, d)?.index_add(1, &index(d)?, &floats(&[4, 5], 2, d)?));
    agree("concat", 0.0, |d| {
        Tensor::concat(&[&floats(&[4, 3], 1, d)?, &floats(&[2, 4], 2, d)?.t()?.slice(1, 0..1)?], 1)
    });
    agree("pad", 0.0, |d| floats(&[4, 3], 1, d)?.t()?.pad(&[(1, 2), (0, 3)], 7.5));
    agree("argmax", 0.0, |d| floats(&[40, 30], 1, d)?.argmax_axis(0, false));
    agree("randn", 1e-5, |d| Tensor::randn([1000], &Generator::seed(3, d)));
    agree("rand", 0.0, |d| Tensor::rand([1000], &Generator::seed(3, d)));
    agree("bits", 0.0, |d| Tensor::randint(-5, 100, [1000], &Generator::seed(1 << 40, d)));
}

#[test]
fn memory_faults_are_errors_and_lose_nothing() -> Result<()> {
    let Some(device) = device() else { return Ok(()) };
    let x = floats(&[10], 1, &device)?;
    let before = x.to_vec::<f32>()?;
    let error = Tensor::zeros([1 << 38], &device).and_then(|t| t.eval()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooLarge { .. }), "{error}");
    assert_eq!(x.to_vec::<f32>()?, before);
    Ok(())
}

/// A thread that waits for hardware asks it again and again for a while, beside others that submit.
#[test]
fn threads_wait_for_one_device_that_others_keep_busy() {
    if device().is_none() {
        return;
    }
    let forced = Forced { hardware: true, ..Forced::default() };
    let device = backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap();
    let work = |start: usize| -> Result<()> {
        let x = Tensor::full([16], start as f64, &device)?;
        for round in 0..300 {
            let sum = (&x + round as f64).sum();
            if round % 2 == 0 {
                sum.eval()?;
                device.synchronize()?;
            }
            assert_eq!(sum.item::<f32>()?, 16.0 * (start + round) as f32);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|start| scope.spawn(move || work(start))).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
}

#[test]
fn two_threads_use_one_device() {
    let Some(device) = device() else { return };
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let device = device.clone();
            std::thread::spawn(move || -> Result<f32> {
                let mut x = Tensor::full([100], f64::from(i), &device)?;
                for _ in 0..50 {
                    x = &x + 1.0;
                    x.eval()?;
                }
                eval_pending()?;
                x.sum().item::<f32>()
            })
        })
        .collect();
    for (i, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap().unwrap(), (i as f32 + 50.0) * 100.0);
    }
}
