//! Half types and f32: whole buffers are converted, in pieces that threads share.
#![allow(unsafe_code)]

use half::slice::HalfFloatSliceExt;

use crate::{memory::buffer::Memory, threads};

/// Halves that a thread converts at once.
const CONVERTED: usize = 1 << 16;

/// The first `numel` elements of a buffer as f32.
///
/// # Safety
/// The buffer holds so many of type `H`, initialised, and nobody writes them meanwhile.
pub(crate) unsafe fn widened<H: Copy + Send + Sync>(from: Memory, numel: usize) -> Vec<f32>
where
    [H]: HalfFloatSliceExt,
{
    // SAFETY: the caller's promise.
    let halves = unsafe { std::slice::from_raw_parts(from.at::<H>(0), numel) };
    let mut wide = vec![0f32; numel];
    threads::share_chunks(&mut wide, CONVERTED, |i, wide| {
        halves[i * CONVERTED..][..wide.len()].convert_to_f32_slice(wide);
    });
    wide
}

/// Rounds f32 into a buffer, each once.
///
/// # Safety
/// The buffer holds as many elements of type `H`, and is nobody else's.
pub(crate) unsafe fn narrow<H: Copy + Send + Sync>(wide: &[f32], to: Memory)
where
    [H]: HalfFloatSliceExt,
{
    // SAFETY: the caller's promise.
    let halves = unsafe { std::slice::from_raw_parts_mut(to.at::<H>(0), wide.len()) };
    threads::share_chunks(halves, CONVERTED, |i, halves| {
        halves.convert_from_f32_slice(&wide[i * CONVERTED..][..halves.len()]);
    });
}
