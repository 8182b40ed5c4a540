//! Places among sorted numbers, by halves: as many steps for every value, none of which is a branch.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use tensor_core::{DType, Error, Launch, Places, Result, bf16, f16};

use super::custom::Native;
use crate::{
    CpuBackend,
    memory::{buffer::Bound, pool::Pool},
    threads,
};

/// Values that a thread takes at once.
const GRAIN: usize = 1 << 13;

impl Native for Places {
    fn supports(_: DType) -> bool {
        true
    }

    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        // What is below comes first; NaN is the greatest.
        macro_rules! float {
            ($t:ty) => {
                typed::<$t>(&backend.pool, *self, launch, |a, b| a < b || (b.is_nan() && !a.is_nan()))
            };
        }
        macro_rules! other {
            ($t:ty) => {
                typed::<$t>(&backend.pool, *self, launch, |a, b| a < b)
            };
        }
        match launch.kernel.operands.first().map(|operand| operand.dtype) {
            Some(DType::F64) => float!(f64),
            Some(DType::F32) => float!(f32),
            Some(DType::F16) => float!(f16),
            Some(DType::BF16) => float!(bf16),
            Some(DType::I64) => other!(i64),
            Some(DType::I32) => other!(i32),
            Some(DType::U32) => other!(u32),
            Some(DType::U8) => other!(u8),
            Some(DType::Bool) => other!(bool),
            None => Err(Error::invalid(launch.kernel.name(), "the kernel has no operands")),
        }
    }
}

fn typed<T: Copy + Sync>(
    pool: &Arc<Pool>,
    of: Places,
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
        for i in range {
            // SAFETY: all are row-major and of the sizes that were checked, and each range has places of its own.
            unsafe {
                let row = match n {
                    0 => &[],
                    n => std::slice::from_raw_parts(sorted.at::<T>(i / m * n).cast_const(), n),
                };
                let value = values.at::<T>(i).read();
                let place = match of.right {
                    true => halved(row, |number| !less(value, number)),
                    false => halved(row, |number| less(number, value)),
                };
                out.at::<i32>(i).write(place as i32);
            }
        }
    };
    if count < 2 * GRAIN {
        some(0..count);
    } else {
        threads::share_ranges(count, GRAIN, some);
    }
    Ok(())
}

/// How many numbers of a row come first, of which `before` holds and of the rest not.
#[inline(always)]
fn halved<T: Copy>(row: &[T], before: impl Fn(T) -> bool) -> usize {
    let (mut first, mut left) = (0, row.len());
    while left > 1 {
        let half = left / 2;
        first = if before(row[first + half - 1]) { first + half } else { first };
        left -= half;
    }
    first + usize::from(left == 1 && before(row[first]))
}
