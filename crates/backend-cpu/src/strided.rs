//! Copies between strided layouts. Where the source runs along another axis than the target (a transpose), elements go through a
//! small tile, so that each cache line is read once and written once.
#![allow(unsafe_code)]

use rayon::prelude::*;
use tensor_core::{Collapsed, collapse};

use crate::threads;

/// Rows and columns of a tile: a cache line of 4-byte elements each way.
const TILE: usize = 16;
/// Elements below which a copy stays on the calling thread.
const PARALLEL: usize = 1 << 18;

/// An address that threads may share: each writes elements of its own.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);
// SAFETY: the copies below divide the target among threads, and nobody writes the source.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn at(self, offset: isize) -> *mut T {
        self.0.wrapping_offset(offset)
    }
}

/// Copies `shape` elements from `src` to `dst`, both given by the address of their first element and their strides.
///
/// # Safety
/// Every position of both lies in memory that the caller holds: `src` for reading, `dst` for writing; they lie apart, and no two
/// positions of `dst` are one.
pub(crate) unsafe fn copy<T: Copy + Default + Send + Sync>(
    shape: &[usize],
    src: *const T,
    src_strides: &[isize],
    dst: *mut T,
    dst_strides: &[isize],
) {
    let Collapsed { shape: dims, strides } = collapse(shape, &[src_strides, dst_strides]);
    let (from, to) = (Shared(src.cast_mut()), Shared(dst));
    let numel: usize = dims.iter().product();
    if numel == 0 {
        return;
    }
    let (src_strides, dst_strides) = (strides[0].as_slice(), strides[1].as_slice());
    let inner = match dims.len() {
        0 => 0,
        1 => 1,
        n if src_strides[n - 1] == 1 && dst_strides[n - 1] == 1 => 1,
        _ => 2,
    };
    let outer = dims.len() - inner;
    let (head, tail) = dims.split_at(outer);
    let blocks: usize = head.iter().product();
    // One block of the innermost axis or two, at the place that the outer axes give; a part of its rows.
    let block = |b: usize, rows: std::ops::Range<usize>| {
        let (mut s, mut d, mut rest) = (0isize, 0isize, b);
        for axis in (0..outer).rev() {
            let i = (rest % head[axis]) as isize;
            rest /= head[axis];
            s += i * src_strides[axis];
            d += i * dst_strides[axis];
        }
        // SAFETY: the caller's promise; the ranges of different calls do not overlap.
        unsafe {
            match tail {
                [] => to.at(d).write(from.at(s).read()),
                [_] => {
                    let (ss, ds) = (src_strides[outer], dst_strides[outer]);
                    let (s, d) = (s + rows.start as isize * ss, d + rows.start as isize * ds);
                    if ss == 1 && ds == 1 {
                        std::ptr::copy_nonoverlapping(from.at(s).cast_const(), to.at(d), rows.len());
                    } else {
                        (0..rows.len() as isize)
                            .for_each(|i| to.at(d + i * ds).write(from.at(s + i * ss).read()));
                    }
                }
                _ => {
                    let columns = tail[1];
                    let (sr, sc) = (src_strides[outer], src_strides[outer + 1]);
                    let (dr, dc) = (dst_strides[outer], dst_strides[outer + 1]);
                    for r in rows.clone().step_by(TILE) {
                        let height = TILE.min(rows.end - r);
                        for c in (0..columns).step_by(TILE) {
                            let width = TILE.min(columns - c);
                            let mut tile = [T::default(); TILE * TILE];
                            let s = s + r as isize * sr + c as isize * sc;
                            for j in 0..width {
                                for i in 0..height {
                                    tile[i * TILE + j] =
                                        from.at(s + i as isize * sr + j as isize * sc).read();
                                }
                            }
                            let d = d + r as isize * dr + c as isize * dc;
                            for i in 0..height {
                                for j in 0..width {
                                    to.at(d + i as isize * dr + j as isize * dc).write(tile[i * TILE + j]);
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    let rows = tail.first().copied().unwrap_or(1);
    if numel < PARALLEL || threads::available() == 1 {
        (0..blocks).for_each(|b| block(b, 0..rows));
    } else if blocks > 1 {
        (0..blocks)
            .into_par_iter()
            .with_min_len((PARALLEL * blocks / numel / 4).max(1))
            .for_each(|b| block(b, 0..rows));
    } else {
        let piece = rows.div_ceil(threads::available() * 4).next_multiple_of(TILE);
        (0..rows.div_ceil(piece))
            .into_par_iter()
            .for_each(|i| block(0, i * piece..rows.min((i + 1) * piece)));
    }
}
