//! Kernels that walk strides: copies (`strided`), and extremes' indices, for which `ndarray` does the walking.
#![allow(unsafe_code)]

use std::sync::Arc;

use ndarray::{ArrayViewD, ArrayViewMutD, Axis, IxDyn, ShapeBuilder, Zip};
use tensor_core::{
    ArgReduceOp, DType, Launch, Layout, Result, bf16, f16,
    kernel::{ArgReduceKernel, CopyKernel},
    round_to_odd,
};

use crate::{
    buffer::{Bound, Memory},
    isa::Isa,
    pool::Pool,
    strided,
};

/// The address of a layout's lowest element, its non-negative strides, and the axes to turn round for the true order.
fn parts<T>(memory: Memory, layout: &Layout) -> (*mut T, ndarray::StrideShape<IxDyn>, Vec<usize>) {
    let (low, _) = layout.span();
    let strides: Vec<usize> = layout.strides().iter().map(|s| s.unsigned_abs()).collect();
    let turned = layout.strides().iter().enumerate().filter(|(_, s)| **s < 0).map(|(axis, _)| axis).collect();
    let shape = IxDyn(layout.shape().dims()).strides(IxDyn(&strides));
    (memory.ptr.cast::<T>().wrapping_add(low), shape, turned)
}

/// # Safety
/// The layout stays within `memory`, whose elements are `T`s, and nobody writes them meanwhile.
unsafe fn view<'a, T>(memory: Memory, layout: &Layout) -> ArrayViewD<'a, T> {
    let (ptr, shape, turned) = parts::<T>(memory, layout);
    // SAFETY: the caller's promise.
    let mut view = unsafe { ArrayViewD::from_shape_ptr(shape, ptr) };
    turned.into_iter().for_each(|axis| view.invert_axis(Axis(axis)));
    view
}

/// # Safety
/// As [`view`]; besides, no two positions share an element, and nobody else reads them.
unsafe fn view_mut<'a, T>(memory: Memory, layout: &Layout) -> ArrayViewMutD<'a, T> {
    let (ptr, shape, turned) = parts::<T>(memory, layout);
    // SAFETY: the caller's promise.
    let mut view = unsafe { ArrayViewMutD::from_shape_ptr(shape, ptr) };
    turned.into_iter().for_each(|axis| view.invert_axis(Axis(axis)));
    view
}

fn require(op: &'static str, memory: Memory, dtype: DType, layout: &Layout) -> Result<()> {
    memory.require(op, dtype, layout.span().1)
}

pub(crate) fn copy(isa: Isa, pool: &Arc<Pool>, kernel: &CopyKernel, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "copy";
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    bound.require(OP, kernel.regions.len(), 1)?;
    bound.require_apart(OP)?;
    let out = bound.outputs[0];
    let numel = kernel.shape.numel();
    out.require(OP, kernel.dtype, numel)?;
    for (region, &input) in kernel.regions.iter().zip(&bound.inputs) {
        require(OP, input, kernel.dtype, &region.src)?;
        require(OP, out, kernel.dtype, &region.dst)?;
    }
    if kernel.fill {
        let value = launch.scalars.first().copied().unwrap_or(tensor_core::Scalar::Int(0));
        macro_rules! fill {
            ($t:ty, $v:expr) => {
                // SAFETY: the output holds `numel` elements of this type.
                unsafe { std::slice::from_raw_parts_mut(out.at::<$t>(0), numel) }.fill($v)
            };
        }
        match kernel.dtype {
            DType::F64 => fill!(f64, value.as_f64()),
            DType::F32 => fill!(f32, value.as_f64() as f32),
            DType::F16 => fill!(f16, f16::from_f32(round_to_odd(value.as_f64()))),
            DType::BF16 => fill!(bf16, bf16::from_f32(round_to_odd(value.as_f64()))),
            DType::I64 => fill!(i64, value.as_i64()),
            DType::I32 => fill!(i32, value.as_i64() as i32),
            DType::U32 => fill!(u32, value.as_i64() as u32),
            DType::U8 => fill!(u8, value.as_i64() as u8),
            DType::Bool => fill!(bool, value.as_bool()),
        }
    }
    for (region, &input) in kernel.regions.iter().zip(&bound.inputs) {
        let (src, dst) = (&region.src, &region.dst);
        if src.numel() == 0 {
            // Where it lies means nothing.
            continue;
        }
        macro_rules! go {
            ($t:ty) => {
                // SAFETY: both layouts were checked; regions of the output are apart from each other and from every input.
                unsafe {
                    strided::copy::<$t>(
                        isa,
                        src.shape(),
                        input.at::<$t>(src.offset()).cast_const(),
                        src.strides(),
                        out.at::<$t>(dst.offset()),
                        dst.strides(),
                    )
                }
            };
        }
        match kernel.dtype.size() {
            1 => go!(u8),
            2 => go!(u16),
            4 => go!(u32),
            _ => go!(u64),
        }
    }
    Ok(())
}

pub(crate) fn arg_reduce(pool: &Arc<Pool>, kernel: &ArgReduceKernel, launch: &Launch<'_>) -> Result<()> {
    let op = kernel.op.name();
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    bound.require(op, 1, 1)?;
    bound.require_apart(op)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    require(op, input, kernel.dtype, &kernel.input)?;
    let shape = kernel.input.shape().reduced(&[kernel.axis], false);
    out.require(op, DType::I32, shape.numel())?;
    macro_rules! go {
        ($t:ty, $nan:expr) => {{
            // SAFETY: checked above.
            let (from, mut to) = unsafe {
                (view::<$t>(input, &kernel.input), view_mut::<i32>(out, &Layout::contiguous(shape)))
            };
            let better = |a: &$t, b: &$t| match kernel.op {
                _ if $nan(b) => false,
                _ if $nan(a) => true,
                ArgReduceOp::ArgMax => a > b,
                ArgReduceOp::ArgMin => a < b,
            };
            Zip::from(&mut to).and(from.lanes(Axis(kernel.axis))).for_each(|to, lane| {
                let mut best = 0;
                for i in 1..lane.len() {
                    if better(&lane[i], &lane[best]) {
                        best = i;
                    }
                }
                *to = best as i32;
            });
        }};
    }
    match kernel.dtype {
        DType::F64 => go!(f64, |v: &f64| v.is_nan()),
        DType::F32 => go!(f32, |v: &f32| v.is_nan()),
        DType::F16 => go!(f16, |v: &f16| v.is_nan()),
        DType::BF16 => go!(bf16, |v: &bf16| v.is_nan()),
        DType::I64 => go!(i64, |_: &i64| false),
        DType::I32 => go!(i32, |_: &i32| false),
        DType::U32 => go!(u32, |_: &u32| false),
        DType::U8 => go!(u8, |_: &u8| false),
        DType::Bool => go!(bool, |_: &bool| false),
    }
    Ok(())
}
