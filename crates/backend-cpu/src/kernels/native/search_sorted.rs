//! Binary search in sorted rows (`searchsorted`). The search takes the same number of branch-free steps for
//! every value, and several values are searched at once.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use tensor_core::{Error, Kernel, Launch, Result, SearchSorted, with_element};

use super::custom::Native;
use crate::{
    CpuBackend,
    memory::{buffer::Bound, pool::Pool},
    simd::order::Ordered,
    threads,
    tuning::SEARCH_GRAIN,
};

/// Values whose places are found side by side: each step of one waits for what it reads.
const SEARCH_GROUP: usize = 16;

impl Native for SearchSorted {
    fn supports(_: &Kernel) -> bool {
        true
    }

    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        let Some(operand) = launch.kernel.operands.first() else {
            return Err(Error::invalid(launch.kernel.name(), "the kernel has no operands"));
        };
        // Compares by sort keys, so NaN is the greatest.
        with_element!(operand.dtype, T => {
            typed::<T>(&backend.pool, *self, launch, |a: T, b: T| a.key() < b.key())
        })
    }
}

fn typed<T: Copy + Sync>(
    pool: &Arc<Pool>,
    of: SearchSorted,
    launch: &Launch<'_>,
    less: impl Fn(T, T) -> bool + Sync,
) -> Result<()> {
    let shape = |k: usize| launch.kernel.operands[k].layout.shape();
    let count = shape(1).numel();
    let (Some(&n), Some(&m)) = (shape(0).last(), shape(1).last()) else { return Ok(()) };
    if count == 0 {
        return Ok(());
    }
    let bound = Bound::of_launch(pool, launch)?;
    let (sorted, values, out) = (bound.inputs[0], bound.inputs[1], bound.outputs[0]);
    let some = |range: Range<usize>| {
        let mut i = range.start;
        while i < range.end {
            let end = range.end.min((i / m + 1) * m);
            // SAFETY: `check_custom` and `of_launch` checked that all are row-major and large enough; each
            // range writes its own positions.
            let (row, values, places) = unsafe {
                let row: &[T] = match n {
                    0 => &[],
                    n => std::slice::from_raw_parts(sorted.at::<T>(i / m * n).cast_const(), n),
                };
                let values = std::slice::from_raw_parts(values.at::<T>(i).cast_const(), end - i);
                (row, values, std::slice::from_raw_parts_mut(out.at::<i32>(i), end - i))
            };
            match of.right {
                true => all(row, values, places, |number, value| !less(value, number)),
                false => all(row, values, places, &less),
            }
            i = end;
        }
    };
    if count < 2 * SEARCH_GRAIN {
        some(0..count);
    } else {
        threads::share_ranges(count, SEARCH_GRAIN, some);
    }
    Ok(())
}

/// Searches all values in a row.
fn all<T: Copy>(row: &[T], values: &[T], places: &mut [i32], before: impl Fn(T, T) -> bool) {
    let (values, rest) = values.as_chunks::<SEARCH_GROUP>();
    let (places, rest_of_places) = places.as_chunks_mut::<SEARCH_GROUP>();
    for (places, values) in places.iter_mut().zip(values) {
        *places = halved(row, values, &before);
    }
    for (place, &value) in rest_of_places.iter_mut().zip(rest) {
        [*place] = halved(row, &[value], &before);
    }
}

/// For each value, the number of leading elements of the row for which `before` holds. The steps of
/// different values are independent of each other.
#[inline(always)]
fn halved<const N: usize, T: Copy>(row: &[T], values: &[T; N], before: &impl Fn(T, T) -> bool) -> [i32; N] {
    let (mut first, mut left) = ([0usize; N], row.len());
    let mut step = |left: usize, half: usize| {
        debug_assert!(0 < half && half <= left && left <= row.len());
        for (first, &value) in first.iter_mut().zip(values) {
            // SAFETY: `first` starts at 0, and each step that adds `half` to it takes `half` from `left`,
            // so it stays within the row.
            let number = unsafe { *row.get_unchecked(*first + half - 1) };
            *first += half & usize::from(before(number, value)).wrapping_neg();
        }
    };
    while left > 1 {
        let half = left / 2;
        step(left, half);
        left -= half;
    }
    if left == 1 {
        step(1, 1);
    }
    first.map(|place| place as i32)
}
