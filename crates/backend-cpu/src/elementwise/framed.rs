//! Outputs with zeros around their elements.
#![allow(unsafe_code)]

use tensor_core::{
    DType,
    kernel::{Frame, Output},
};

use crate::{elementwise::engine::store, simd::isa::Isa};

/// An output in a frame. Each run along the last axis is stored with the zeros before it, and the last one
/// also with those after it, so that threads with parts of the output write each element once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framed {
    /// The sizes of the elements' last two axes: the runs of a plane, and the elements of a run.
    rows: usize,
    columns: usize,
    /// The zeros before the first run of a plane, between its runs, and after its last run.
    before: usize,
    between: usize,
    after: usize,
    numel: usize,
}

impl Framed {
    /// The frame of an output, if it has one.
    pub(crate) fn of(output: &Output) -> Option<Framed> {
        let (Frame { before, after }, &[.., rows, columns]) = (output.frame?, &output.shape[..]) else {
            return None;
        };
        let width = before[1] + columns + after[1];
        Some(Framed {
            rows,
            columns,
            before: before[0] * width + before[1],
            between: before[1] + after[1],
            after: after[0] * width + after[1],
            numel: output.shape.numel(),
        })
    }

    /// Stores `n` elements of the compute dtype at `from` as the elements from `pos` on.
    ///
    /// # Safety
    /// `from` is valid for reads of `n` elements, and `to` for writes of the whole buffer, as far as no other
    /// thread writes it.
    pub(crate) unsafe fn store(
        &self,
        isa: Isa,
        dtype: DType,
        from: *const u8,
        to: *mut u8,
        pos: usize,
        n: usize,
    ) {
        let Framed { rows, columns, before, between, after, numel } = *self;
        let (size, register) = (dtype.size(), dtype.register().size());
        let (run, column) = (pos / columns, pos % columns);
        let (plane, mut row) = (run / rows, run % rows);
        let of_plane = before + rows * columns + (rows - 1) * between + after;
        let mut at = plane * of_plane + before + row * (columns + between) + column;
        // SAFETY: the range is within the buffer, before, between or after its runs; zero bytes are the number
        // 0 of every dtype.
        let zeros = |end: usize, count: usize| unsafe {
            to.add((end - count) * size).write_bytes(0, count * size);
        };
        let (mut done, mut room) = (0, columns - column);
        while done < n {
            if room == columns {
                let count = match (row, done + pos) {
                    (0, 0) => before,
                    (0, _) => after + before,
                    _ => between,
                };
                zeros(at, count);
            }
            let count = room.min(n - done);
            // SAFETY: the run is within the buffer, and its elements are within the caller's.
            unsafe { store(isa, dtype, from.add(done * register), to.add(at * size), count) };
            done += count;
            if count == room {
                row += 1;
                at += count + between;
                if row == rows {
                    (row, at) = (0, at - between + after + before);
                }
                room = columns;
            }
        }
        if pos + n == numel {
            zeros(numel / (rows * columns) * of_plane, after);
        }
    }
}
