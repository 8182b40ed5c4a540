//! Functions that read at computed positions, composed of other operations, take fewer kernels and fewer
//! bytes than with stored gathers.
#![allow(clippy::unwrap_used, clippy::panic)]

use nn::cross_entropy;
use nn::functional::{
    BagMode, BagOptions, GridMode, GridSampleOptions, embedding, embedding_bag, grid_sample,
};
use taper_testing::{assert_close, floats, of, reference_limited};
use tensor_core::{DType, Device, Result, Tensor, plan_of};

/// A device with the limits of a GPU, whose programs read buffers of at most this size at indices.
fn gpu_like(max_indexed_bytes: u64) -> Device {
    reference_limited(|limits| {
        limits.max_indexed_bytes = max_indexed_bytes;
        (limits.max_inputs, limits.max_outputs, limits.max_instrs) = (10, 4, 64);
    })
    .0
}

/// The result, how many kernels it takes, and how many bytes they read and write.
fn cost(device: &Device, f: &dyn Fn(&Device) -> Result<Tensor>) -> (Vec<f64>, usize, u64) {
    let result = f(device).unwrap();
    let plan = plan_of(&result).unwrap();
    let bytes = plan.kernels.iter().map(|of| of.kernel.bytes_read() + of.kernel.bytes_written()).sum();
    (result.to_f64_vec().unwrap(), plan.kernels.len(), bytes)
}

fn whole(shape: &[usize], below: usize, d: &Device) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let all: Vec<f64> = (0..n).map(|i| (i * 7919 % 1009 % below) as f64).collect();
    let index = of(&all, shape, DType::I32, d)?;
    index.eval()?;
    Ok(index)
}

fn float(shape: &[usize], d: &Device) -> Result<Tensor> {
    let x = floats(shape, 3, d)?;
    x.eval()?;
    Ok(x)
}

#[test]
fn compositions_read_where_they_compute() {
    let bag = |mode: BagMode| {
        move |d: &Device| {
            let options = BagOptions { mode, ..Default::default() };
            embedding_bag(&whole(&[6, 5], 40, d)?, &float(&[40, 8], d)?, options)
        }
    };
    let grid = |mode: GridMode| {
        move |d: &Device| {
            let grid = float(&[1, 5, 4, 2], d)?.mul_scalar(0.5);
            grid.eval()?;
            grid_sample(&float(&[1, 3, 6, 7], d)?, &grid, GridSampleOptions { mode, ..Default::default() })
        }
    };
    type Case<'a> = (&'a str, Box<dyn Fn(&Device) -> Result<Tensor>>);
    let cases: [Case<'_>; 8] = [
        ("a bag's sum", Box::new(bag(BagMode::Sum))),
        ("a bag's mean", Box::new(bag(BagMode::Mean))),
        ("the nearest pixel", Box::new(grid(GridMode::Nearest))),
        ("four pixels", Box::new(grid(GridMode::Bilinear))),
        ("sixteen pixels", Box::new(grid(GridMode::Bicubic))),
        ("cross entropy", Box::new(|d| cross_entropy(&float(&[6, 10], d)?, &whole(&[6], 10, d)?))),
        (
            "an embedding and a position",
            Box::new(|d| embedding(&whole(&[2, 5], 40, d)?, &float(&[40, 8], d)?)?.add(&float(&[5, 8], d)?)),
        ),
        (
            "a turned line",
            Box::new(|d| {
                Ok(float(&[6, 10], d)?.take_along_dim(&whole(&[6, 10], 10, d)?.sub_scalar(3), 1)?.relu())
            }),
        ),
    ];
    for (what, f) in cases {
        let (found, kernels, bytes) = cost(&gpu_like(1 << 30), &f);
        let (expected, kernels_apart, bytes_apart) = cost(&gpu_like(0), &f);
        println!(
            "{what}: {kernels} kernels and {bytes} bytes; with gathers {kernels_apart} and {bytes_apart}"
        );
        assert!(kernels < kernels_apart && bytes < bytes_apart, "{what}");
        assert_close(&found, &expected, (1e-5, 1e-6), what);
    }
}
