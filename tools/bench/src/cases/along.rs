//! Cumulative operations and sorts along one axis.

use taper::Tensor;

use super::{one, pair};
use crate::{
    Result,
    case::Case,
    check::{host, line, lines},
};

pub(super) fn more() -> Vec<Case> {
    vec![
        cumulative("more_cumsum_10M", &[10_000_000], 0, |x, axis| x.cumsum(axis), |sum, x| sum + x),
        cumulative("more_cumsum_axis0_4096", &[4096, 4096], 0, |x, axis| x.cumsum(axis), |sum, x| sum + x),
        cumulative("more_cumsum_axis1_4096", &[4096, 4096], 1, |x, axis| x.cumsum(axis), |sum, x| sum + x),
        cumulative(
            "more_cummax_axis1_4096x1000",
            &[4096, 1000],
            1,
            |x, axis| Ok(x.cummax(axis)?.0),
            |most, x| most.max(x),
        ),
        sort("more_sort_1M", &[1_000_000], 0, None),
        sort("more_sort_axis0_1000x4096", &[1000, 4096], 0, None),
        sort("more_sort_axis1_4096x1000", &[4096, 1000], 1, None),
        sort("more_topk10_64x50000", &[64, 50_000], 1, Some(10)),
        sort("more_topk50_1M", &[1_000_000], 0, Some(50)),
    ]
}

type Build = fn(&Tensor, isize) -> taper::Result<Tensor>;

fn cumulative(
    name: &str,
    shape: &'static [usize],
    axis: usize,
    build: Build,
    add: fn(f64, f64) -> f64,
) -> Case {
    let (outer, n, inner) = parts(shape, axis);
    Case::new(name, move |inputs| {
        let x = inputs.rand(shape)?;
        let input = x.clone();
        one(
            move || build(&input, axis as isize),
            move |result| {
                let x = host(&x)?;
                lines(result, [outer, n, inner], 1e-5, |o, i| {
                    let mut so_far = line(&x, n, inner, o, i);
                    (1..n).for_each(|j| so_far[j] = add(so_far[j - 1], so_far[j]));
                    so_far
                })
            },
        )
    })
    .elements(2 * outer * n * inner)
}

/// Values and indices of an ascending sort, or of the greatest few.
fn sort(name: &str, shape: &'static [usize], axis: usize, few: Option<usize>) -> Case {
    let (outer, n, inner) = parts(shape, axis);
    Case::new(name, move |inputs| {
        let x = inputs.rand(shape)?;
        let input = x.clone();
        let call = move || {
            let (values, indices) = match few {
                Some(k) => input.topk(k, axis as isize, true)?,
                None => input.sort(axis as isize, false)?,
            };
            values.eval()?;
            indices.eval()?;
            Ok(vec![values, indices])
        };
        pair(call, move |results, _| {
            let (x, k) = (host(&x)?, few.unwrap_or(n));
            lines(&results[0], [outer, k, inner], 0.0, |o, i| {
                let mut sorted = line(&x, n, inner, o, i);
                sorted.sort_by(f64::total_cmp);
                if few.is_some() {
                    sorted.reverse();
                }
                sorted.truncate(k);
                sorted
            })?;
            let (values, indices) = (host(&results[0])?, results[1].to_vec::<i32>()?);
            chosen(&x, &values, &indices, [n, k, inner])
        })
    })
    .elements((n + 2 * few.unwrap_or(n)) * outer * inner)
}

/// An error unless every value is the element at its index.
fn chosen(x: &[f32], values: &[f32], indices: &[i32], [n, k, inner]: [usize; 3]) -> Result<()> {
    for (at, (value, &index)) in values.iter().zip(indices).enumerate() {
        let (o, i) = (at / (k * inner), at % inner);
        if x[(o * n + index as usize) * inner + i] != *value {
            return Err(format!("wrong result: index {at} is {index}, where {value} does not stand").into());
        }
    }
    Ok(())
}

/// Elements before, along and after an axis.
fn parts(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}
