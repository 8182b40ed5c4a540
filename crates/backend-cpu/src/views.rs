//! Kernels that walk strides: copies (`strided`), extremes' indices, reading and adding by index. `ndarray` does the walking
//! where speed is not at stake.
#![allow(unsafe_code)]

use std::sync::Arc;

use ndarray::{ArrayViewD, ArrayViewMutD, Axis, Dimension, IxDyn, ShapeBuilder, Zip};
use tensor_core::{
    ArgReduceOp, DType, Error, Launch, Layout, Result, bf16, f16,
    kernel::{ArgReduceKernel, CopyKernel, GatherKernel, ScatterAddKernel},
};

use crate::{
    buffer::{Bound, Memory},
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

pub(crate) fn copy(pool: &Arc<Pool>, kernel: &CopyKernel, launch: &Launch<'_>) -> Result<()> {
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
            DType::F16 => fill!(f16, f16::from_f64(value.as_f64())),
            DType::BF16 => fill!(bf16, bf16::from_f64(value.as_f64())),
            DType::I64 => fill!(i64, value.as_i64()),
            DType::I32 => fill!(i32, value.as_i64() as i32),
            DType::U32 => fill!(u32, value.as_i64() as u32),
            DType::U8 => fill!(u8, value.as_i64() as u8),
            DType::Bool => fill!(bool, value.as_bool()),
        }
    }
    for (region, &input) in kernel.regions.iter().zip(&bound.inputs) {
        let (src, dst) = (&region.src, &region.dst);
        macro_rules! go {
            ($t:ty) => {
                // SAFETY: both layouts were checked; regions of the output are apart from each other and from every input.
                unsafe {
                    strided::copy::<$t>(
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

/// The index as numbers within the axis, in the order of its layout.
fn indices(
    op: &'static str,
    memory: Memory,
    dtype: DType,
    layout: &Layout,
    axis: usize,
    size: usize,
) -> Result<ndarray::ArrayD<usize>> {
    require(op, memory, dtype, layout)?;
    let check = |index: i64| {
        if (0..size as i64).contains(&index) {
            Ok(index as usize)
        } else {
            Err(Error::IndexOutOfRange { op, index, axis, size })
        }
    };
    macro_rules! go {
        ($t:ty) => {{
            // SAFETY: checked above.
            let view = unsafe { view::<$t>(memory, layout) };
            let numbers = view.iter().map(|&i| check(i as i64)).collect::<Result<Vec<usize>>>()?;
            ndarray::ArrayD::from_shape_vec(IxDyn(layout.shape().dims()), numbers)
                .map_err(|error| Error::invalid(op, error.to_string()))
        }};
    }
    match dtype {
        DType::I64 => go!(i64),
        DType::I32 => go!(i32),
        DType::U32 => go!(u32),
        DType::U8 => go!(u8),
        other => Err(Error::invalid(op, format!("an index cannot be {other}; cast it to I32"))),
    }
}

pub(crate) fn gather(pool: &Arc<Pool>, kernel: &GatherKernel, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "gather";
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    bound.require(OP, 2, 1)?;
    bound.require_apart(OP)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    require(OP, input, kernel.dtype, &kernel.input)?;
    let shape = kernel.index.shape();
    out.require(OP, kernel.dtype, shape.numel())?;
    let index = indices(
        OP,
        bound.inputs[1],
        kernel.index_dtype,
        &kernel.index,
        kernel.axis,
        kernel.input.shape()[kernel.axis],
    )?;
    macro_rules! go {
        ($t:ty) => {{
            // SAFETY: checked above; an index beyond the axis was refused, and off the axis the index is no larger.
            unsafe {
                let base = input.ptr.cast::<$t>().wrapping_add(kernel.input.offset());
                let strides = kernel.input.strides();
                for (to, (at, &i)) in index.indexed_iter().enumerate() {
                    out.at::<$t>(to).write(base.offset(place(at.slice(), strides, kernel.axis, i)).read());
                }
            }
        }};
    }
    match kernel.dtype.size() {
        1 => go!(u8),
        2 => go!(u16),
        4 => go!(u32),
        _ => go!(u64),
    }
    Ok(())
}

/// The distance from the first element to that at `at`, with `i` in place of the position along `axis`.
fn place(at: &[usize], strides: &[isize], axis: usize, i: usize) -> isize {
    at.iter().zip(strides).enumerate().map(|(a, (&p, &s))| if a == axis { i } else { p } as isize * s).sum()
}

pub(crate) fn scatter_add(pool: &Arc<Pool>, kernel: &ScatterAddKernel, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "scatter_add";
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    bound.require(OP, 3, 1)?;
    bound.require_apart(OP)?;
    let (base, src, out) = (bound.inputs[0], bound.inputs[2], bound.outputs[0]);
    require(OP, base, kernel.dtype, &kernel.base)?;
    require(OP, src, kernel.dtype, &kernel.src)?;
    let shape = kernel.base.shape();
    out.require(OP, kernel.dtype, shape.numel())?;
    let index =
        indices(OP, bound.inputs[1], kernel.index_dtype, &kernel.index, kernel.axis, shape[kernel.axis])?;
    let plain = Layout::contiguous(shape.clone());
    macro_rules! go {
        ($t:ty, $add:expr) => {{
            // SAFETY: checked above; an index beyond the axis was refused, and off the axis the index is no larger.
            unsafe {
                view_mut::<$t>(out, &plain).assign(&view::<$t>(base, &kernel.base));
                let from = view::<$t>(src, &kernel.src);
                // In order of position, so that repeated indices add up the same way each time.
                for ((at, &i), &v) in index.indexed_iter().zip(from.iter()) {
                    let to = out.at::<$t>(0).offset(place(at.slice(), plain.strides(), kernel.axis, i));
                    to.write($add(to.read(), v));
                }
            }
        }};
    }
    match kernel.dtype {
        DType::F64 => go!(f64, |a: f64, b: f64| a + b),
        DType::F32 => go!(f32, |a: f32, b: f32| a + b),
        DType::F16 => go!(f16, |a: f16, b: f16| f16::from_f32(a.to_f32() + b.to_f32())),
        DType::BF16 => go!(bf16, |a: bf16, b: bf16| bf16::from_f32(a.to_f32() + b.to_f32())),
        DType::I64 => go!(i64, i64::wrapping_add),
        DType::I32 => go!(i32, i32::wrapping_add),
        DType::U32 => go!(u32, u32::wrapping_add),
        DType::U8 => go!(u8, u8::wrapping_add),
        DType::Bool => go!(bool, |a: bool, b: bool| a | b),
    }
    Ok(())
}
