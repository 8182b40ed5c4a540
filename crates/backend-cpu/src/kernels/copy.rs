//! Strided copies into regions of the output.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use tensor_core::{DType, Launch, Layout, Result, Scalar, Shape, Strides, bf16, collapse, f16, round_to_odd};

use crate::{
    memory::{
        buffer::{Bound, Memory},
        layouts,
        pool::Pool,
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
                    layouts::copy(isa, (bound.inputs[0], &src), (out, &dst));
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
        unsafe { layouts::copy(isa, (input, src), (out, dst)) };
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
