//! The index of the greatest or least element of each line.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{ArgReduceOp, DType, Launch, Layout, Result, bf16, f16};

use crate::{
    memory::{
        buffer::{Bound, Memory},
        lines::{Band, Lines},
        pool::Pool,
    },
    simd::order::{Ordered, opposite},
};

pub(crate) fn run(pool: &Arc<Pool>, op: ArgReduceOp, axis: usize, launch: &Launch<'_>) -> Result<()> {
    let bound = Bound::of_launch(pool, launch)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    let operand = &launch.kernel.operands[0];
    let (layout, shape) = (&operand.layout, &launch.kernel.outputs[0].shape);
    if layout.numel() == 0 {
        // The first of nothing, or nothing at all.
        // SAFETY: the output was checked to hold so many elements.
        unsafe { out.at::<i32>(0).write_bytes(0, shape.numel()) };
        return Ok(());
    }
    macro_rules! go {
        ($t:ty) => {
            match op {
                ArgReduceOp::ArgMax => first_greatest(layout, axis, input, out, <$t as Ordered>::key),
                ArgReduceOp::ArgMin => first_greatest(layout, axis, input, out, opposite::<$t>),
            }
        };
    }
    match operand.dtype {
        DType::F64 => go!(f64),
        DType::F32 => go!(f32),
        DType::F16 => go!(f16),
        DType::BF16 => go!(bf16),
        DType::I64 => go!(i64),
        DType::I32 => go!(i32),
        DType::U32 => go!(u32),
        DType::U8 => go!(u8),
        DType::Bool => go!(bool),
    }
    Ok(())
}

/// Lines that are looked through together where neighbours lie side by side.
const TOGETHER: usize = 64;

/// Where each line's greatest key is met first.
fn first_greatest<T: Copy, K: Copy + Default + Ord>(
    layout: &Layout,
    axis: usize,
    input: Memory,
    out: Memory,
    key: impl Fn(T) -> K + Sync,
) {
    let output = Layout::contiguous(layout.shape().reduced(&[axis], true));
    let lines = Lines::new([layout, &output], axis);
    let width = if lines.side_by_side() { TOGETHER } else { 1 };
    lines.for_each(width, layout.numel(), &|Band { lines: count, starts: [from, to] }| {
        let from = input.at::<T>(layout.offset()).wrapping_offset(from).cast_const();
        let mut best = [(K::default(), 0i32); TOGETHER];
        for i in 0..lines.length {
            for (line, best) in best[..count].iter_mut().enumerate() {
                let at = i as isize * lines.along[0] + line as isize * lines.across[0];
                // SAFETY: the input's span was checked.
                let key = key(unsafe { from.wrapping_offset(at).read() });
                if i == 0 || key > best.0 {
                    *best = (key, i as i32);
                }
            }
        }
        for (line, best) in best[..count].iter().enumerate() {
            let to = out.at::<i32>(0).wrapping_offset(to + line as isize * lines.across[1]);
            // SAFETY: the output holds one element a line, and each line has its own.
            unsafe { to.write(best.1) };
        }
    });
}
