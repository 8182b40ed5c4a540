//! Strided copies into regions of the output: by `strided`, and those of bytes by `ndarray`.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use ndarray::{ArrayViewD, ArrayViewMutD, Axis, IxDyn, ShapeBuilder, StrideShape};
use tensor_core::{DType, Launch, Layout, Result, Scalar, Shape, Strides, bf16, collapse, f16, round_to_odd};

use crate::{
    memory::{
        buffer::{Bound, Memory},
        pool::Pool,
        strided,
    },
    simd::isa::Isa,
    threads,
};

pub(crate) fn run(
    isa: Isa,
    pool: &Arc<Pool>,
    fill: bool,
    regions: &[Layout],
    launch: &Launch<'_>,
) -> Result<()> {
    let bound = Bound::of_launch(pool, launch)?;
    let (out, spec) = (bound.outputs[0], &launch.kernel.outputs[0]);
    let numel = spec.shape.numel();
    for (region, operand) in regions.iter().zip(&launch.kernel.operands) {
        out.require("copy", operand.dtype, region.span().1)?;
    }
    if fill {
        let value = launch.scalars.first().copied().unwrap_or(Scalar::Int(0));
        if let ([region], [operand]) = (regions, &launch.kernel.operands[..])
            && numel >= SHARED_FILL
            && let Some(images) = Images::of(&operand.layout, region, &spec.shape)
        {
            threads::share(images.count.div_ceil(images.piece), |i| {
                let range = i * images.piece..images.count.min((i + 1) * images.piece);
                // SAFETY: both layouts were checked; images lie apart, in the output and so in its fill.
                unsafe {
                    fill_range(out, range.start * images.numel..range.end * images.numel, value);
                    let (src, dst) = images.part(range);
                    write(isa, (bound.inputs[0], &src), (out, &dst));
                }
            });
            return Ok(());
        }
        // SAFETY: the output holds `numel` elements.
        unsafe { fill_range(out, 0..numel, value) };
    }
    for ((dst, operand), &input) in regions.iter().zip(&launch.kernel.operands).zip(&bound.inputs) {
        let src = &operand.layout;
        if src.numel() == 0 {
            // Where it lies means nothing.
            continue;
        }
        // SAFETY: both layouts were checked; regions of the output are apart from each other and from every input.
        unsafe { write(isa, (input, src), (out, dst)) };
    }
    Ok(())
}

/// Elements from which threads share a padded output, and of a piece that is filled and then written over, in cache.
const SHARED_FILL: usize = 1 << 15;
const PIECE: usize = 1 << 13;

/// A padded output as images that are padded alike: the positions of its leading axes, which have no padding.
struct Images {
    src: Layout,
    dst: Layout,
    count: usize,
    /// Elements of the output in each, and how many make a piece.
    numel: usize,
    piece: usize,
}

impl Images {
    fn of(src: &Layout, dst: &Layout, shape: &[usize]) -> Option<Images> {
        let whole = (0..shape.len()).take_while(|&axis| src.shape()[axis] == shape[axis]).count();
        let lead = collapse(&shape[..whole], &[&src.strides()[..whole], &dst.strides()[..whole]]);
        let &count = lead.shape.first()?;
        if src.numel() == 0 {
            return None;
        }
        let sizes: Shape = lead.shape.iter().chain(&src.shape()[whole..]).copied().collect();
        let merged = |layout: &Layout, lead: &[isize]| {
            let strides: Strides = lead.iter().chain(&layout.strides()[whole..]).copied().collect();
            Layout::new(sizes.clone(), &strides, layout.offset())
        };
        let numel = shape.iter().product::<usize>() / count;
        let (src, dst) = (merged(src, &lead.strides[0]), merged(dst, &lead.strides[1]));
        Some(Images { src, dst, count, numel, piece: (PIECE / numel).max(1) })
    }

    fn part(&self, range: Range<usize>) -> (Layout, Layout) {
        let part = |layout: &Layout| layout.slice(0, range.start, range.len(), 1);
        (part(&self.src), part(&self.dst))
    }
}

/// Fills a range of the elements of a buffer.
///
/// # Safety
/// The buffer holds them, and nobody else reads or writes them.
unsafe fn fill_range(out: Memory, range: Range<usize>, value: Scalar) {
    macro_rules! fill {
        ($t:ty, $v:expr) => {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts_mut(out.at::<$t>(range.start), range.len()) }.fill($v)
        };
    }
    match out.dtype {
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

/// Copies the elements of one layout to the places of another of its shape.
///
/// # Safety
/// Both layouts stay within their memory; the memories lie apart, and no two positions of `dst` are one, nor anybody else's.
pub(crate) unsafe fn write(isa: Isa, (input, src): (Memory, &Layout), (out, dst): (Memory, &Layout)) {
    macro_rules! go {
        ($t:ty) => {
            // SAFETY: the caller's promise.
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
    match out.dtype {
        // SAFETY: as above.
        DType::Bool | DType::U8 => unsafe { copy_bytes((input, src), (out, dst)) },
        DType::F16 | DType::BF16 => go!(u16),
        DType::I32 | DType::U32 | DType::F32 => go!(u32),
        DType::I64 | DType::F64 => go!(u64),
    }
}

/// Copies of fewer bytes stay on the calling thread.
const SHARED_BYTES: usize = 1 << 16;

/// Copies bytes and bools, which masks and images are made of: `ndarray` chooses the order of the axes, and a loop of our own for
/// this size would have to be compiled for each instruction set.
///
/// # Safety
/// Both layouts have one shape and stay within their memory; the memories lie apart, and no two positions of `dst` are one.
unsafe fn copy_bytes(src: (Memory, &Layout), dst: (Memory, &Layout)) {
    let shape = src.1.shape();
    let copy = |src_layout: &Layout, dst_layout: &Layout| {
        // SAFETY: the caller's promise, which holds for parts of the layouts too.
        unsafe { view_mut(dst.0, dst_layout).assign(&view(src.0, src_layout)) };
    };
    match (0..shape.rank()).max_by_key(|&axis| shape[axis]) {
        Some(axis) if shape.numel() >= SHARED_BYTES => threads::share_ranges(shape[axis], 1, |range| {
            let part = |layout: &Layout| layout.slice(axis, range.start, range.len(), 1);
            copy(&part(src.1), &part(dst.1));
        }),
        _ => copy(src.1, dst.1),
    }
}

/// The address of a layout's lowest byte, its strides without their signs, and the axes to flip for the true order.
fn parts(memory: Memory, layout: &Layout) -> (*mut u8, StrideShape<IxDyn>, Vec<Axis>) {
    let (low, _) = layout.span();
    let strides: Vec<usize> = layout.strides().iter().map(|s| s.unsigned_abs()).collect();
    let negative = layout.strides().iter().enumerate().filter(|(_, s)| **s < 0);
    let flipped = negative.map(|(axis, _)| Axis(axis)).collect();
    (memory.at::<u8>(low), IxDyn(layout.shape().dims()).strides(IxDyn(&strides)), flipped)
}

/// # Safety
/// The layout stays within `memory`, and nobody writes there meanwhile.
unsafe fn view<'a>(memory: Memory, layout: &Layout) -> ArrayViewD<'a, u8> {
    let (ptr, shape, flipped) = parts(memory, layout);
    // SAFETY: the caller's promise.
    let mut view = unsafe { ArrayViewD::from_shape_ptr(shape, ptr.cast_const()) };
    flipped.into_iter().for_each(|axis| view.invert_axis(axis));
    view
}

/// # Safety
/// As [`view`]; besides, no two positions share a byte, and nobody else reads them.
unsafe fn view_mut<'a>(memory: Memory, layout: &Layout) -> ArrayViewMutD<'a, u8> {
    let (ptr, shape, flipped) = parts(memory, layout);
    // SAFETY: the caller's promise.
    let mut view = unsafe { ArrayViewMutD::from_shape_ptr(shape, ptr) };
    flipped.into_iter().for_each(|axis| view.invert_axis(axis));
    view
}
