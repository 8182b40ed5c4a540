//! Reductions along one axis or all, transposes and broadcasts: the memory is the limit.

use taper::Tensor;

use super::one;
use crate::{
    case::Case,
    check::{elements, host, line, lines},
};

/// Makes one element of a line along the reduced axis.
type Reduce = fn(&[f64]) -> f64;
type Build = fn(&Tensor, isize) -> taper::Result<Tensor>;

fn sum(line: &[f64]) -> f64 {
    line.iter().sum()
}

fn variance(line: &[f64]) -> f64 {
    let n = line.len() as f64;
    let mean = sum(line) / n;
    line.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)
}

pub(super) fn listed() -> Vec<Case> {
    let sum_axis: Build = |x, axis| x.sum_axis(axis, false);
    vec![
        sum_all(),
        along("sum_axis0_4096", &[4096, 4096], 0, sum_axis, sum),
        along("sum_axis1_4096", &[4096, 4096], 1, sum_axis, sum),
        broadcast_add(),
        transpose(),
    ]
}

pub(super) fn more() -> Vec<Case> {
    vec![
        along("more_sum_axis1_64x128x512", &[64, 128, 512], 1, |x, axis| x.sum_axis(axis, false), sum),
        along("more_var_axis1_4096", &[4096, 4096], 1, |x, axis| x.var_axis(axis, 1.0, false), variance),
    ]
}

fn along(name: &str, shape: &'static [usize], axis: usize, build: Build, reference: Reduce) -> Case {
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product();
    let n = shape[axis];
    Case::new(name, move |inputs| {
        let x = inputs.rand(shape)?;
        let input = x.clone();
        one(
            move || build(&input, axis as isize),
            move |result| {
                let x = host(&x)?;
                lines(result, [outer, 1, inner], 1e-5, |o, i| vec![reference(&line(&x, n, inner, o, i))])
            },
        )
    })
    .elements(outer * inner * (n + 1))
}

fn sum_all() -> Case {
    const N: usize = 10_000_000;
    Case::new("sum_all_10M", |inputs| {
        let x = inputs.rand([N])?;
        let input = x.clone();
        one(
            move || Ok(input.sum()),
            move |result| {
                let total: f64 = host(&x)?.into_iter().map(f64::from).sum();
                elements(result, &[], 1e-5, |_| total)
            },
        )
    })
    .elements(N)
}

fn broadcast_add() -> Case {
    const SHAPE: [usize; 2] = [4096, 1000];
    Case::new("broadcast_add_4096x1000", |inputs| {
        let (a, b) = (inputs.rand(SHAPE)?, inputs.rand([1000])?);
        let (x, y) = (a.clone(), b.clone());
        one(
            move || x.add(&y),
            move |result| {
                let (a, b) = (host(&a)?, host(&b)?);
                elements(result, &SHAPE, 1e-6, |i| f64::from(a[i]) + f64::from(b[i % 1000]))
            },
        )
    })
    .elements(2 * 4096 * 1000)
}

fn transpose() -> Case {
    const N: usize = 4096;
    Case::new("transpose_copy_4096", |inputs| {
        let x = inputs.rand([N, N])?;
        let input = x.clone();
        one(
            move || input.t()?.contiguous(),
            move |result| {
                let x = host(&x)?;
                elements(result, &[N, N], 0.0, |i| f64::from(x[i % N * N + i / N]))
            },
        )
    })
    .elements(2 * N * N)
}
