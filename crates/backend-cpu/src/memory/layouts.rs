//! Copies between two layouts of one dtype: with `strided`, or with `ndarray` for bytes.
#![allow(unsafe_code)]

use ndarray::{ArrayViewD, ArrayViewMutD, Axis, IxDyn, ShapeBuilder, StrideShape};
use tensor_core::{Layout, Width};

use super::{buffer::Memory, strided};
use crate::{simd::isa::Isa, threads, tuning::SERIAL_BYTES};

/// Copies the elements of one layout to the positions of another of the same shape.
///
/// # Safety
/// Both memories are of one dtype, and both layouts are within them; the memories do not overlap. No two
/// positions of `dst` are the same element, and nothing else accesses them.
pub(crate) unsafe fn copy(isa: Isa, (input, src): (Memory, &Layout), (out, dst): (Memory, &Layout)) {
    macro_rules! go {
        ($t:ty) => {
            // SAFETY: `$t` has the size of the dtype; both layouts are within memories that do not overlap,
            // and positions of `dst` are distinct: all by `# Safety`.
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
    match out.dtype.width() {
        // SAFETY: `copy_bytes` asks for what `# Safety` gives, and the elements are bytes.
        Width::W8 => unsafe { copy_bytes((input, src), (out, dst)) },
        Width::W16 => go!(u16),
        Width::W32 => go!(u32),
        Width::W64 => go!(u64),
    }
}

/// Copies bytes and bools, such as masks and images. `ndarray` chooses the order of the axes; a loop of our
/// own for this size would have to be compiled for each instruction set.
///
/// # Safety
/// Both layouts have one shape and are within their memories, which do not overlap. No two positions of
/// `dst` are the same element.
unsafe fn copy_bytes(src: (Memory, &Layout), dst: (Memory, &Layout)) {
    let shape = src.1.shape();
    let copy = |src_layout: &Layout, dst_layout: &Layout| {
        // SAFETY: both layouts are within memories that do not overlap, and positions of `dst` are distinct,
        // by `# Safety`. Slices have some of these positions, and each call its own.
        unsafe { view_mut(dst.0, dst_layout).assign(&view(src.0, src_layout)) };
    };
    match (0..shape.rank()).max_by_key(|&axis| shape[axis]) {
        Some(axis) if shape.numel() >= SERIAL_BYTES => threads::share_ranges(shape[axis], 1, |range| {
            let part = |layout: &Layout| layout.slice(axis, range.start, range.len(), 1);
            copy(&part(src.1), &part(dst.1));
        }),
        _ => copy(src.1, dst.1),
    }
}

/// The address of a layout's lowest byte, the magnitudes of its strides, and the axes to flip to restore
/// the order.
fn parts(memory: Memory, layout: &Layout) -> (*mut u8, StrideShape<IxDyn>, Vec<Axis>) {
    let (low, _) = layout.span();
    let strides: Vec<usize> = layout.strides().iter().map(|s| s.unsigned_abs()).collect();
    let negative = layout.strides().iter().enumerate().filter(|(_, s)| **s < 0);
    let flipped = negative.map(|(axis, _)| Axis(axis)).collect();
    (memory.at::<u8>(low), IxDyn(layout.shape().dims()).strides(IxDyn(&strides)), flipped)
}

/// # Safety
/// The layout is within `memory`, of single bytes, and nothing writes to its positions while the view lives.
unsafe fn view<'a>(memory: Memory, layout: &Layout) -> ArrayViewD<'a, u8> {
    let (ptr, shape, flipped) = parts(memory, layout);
    // SAFETY: the address, the shape and the magnitudes of the strides reach the layout's positions, which
    // `# Safety` puts into `memory` and keeps unwritten.
    let mut view = unsafe { ArrayViewD::from_shape_ptr(shape, ptr.cast_const()) };
    flipped.into_iter().for_each(|axis| view.invert_axis(axis));
    view
}

/// # Safety
/// As [`view`]; in addition, no two positions share a byte, and nothing else accesses them.
unsafe fn view_mut<'a>(memory: Memory, layout: &Layout) -> ArrayViewMutD<'a, u8> {
    let (ptr, shape, flipped) = parts(memory, layout);
    // SAFETY: the view reaches the layout's positions, which are in `memory`, distinct, and accessed by
    // nothing else, by `# Safety`.
    let mut view = unsafe { ArrayViewMutD::from_shape_ptr(shape, ptr) };
    flipped.into_iter().for_each(|axis| view.invert_axis(axis));
    view
}
