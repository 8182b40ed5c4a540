//! Gather: elements read by index along an axis.
#![allow(unsafe_code)]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tensor_core::{DType, Launch, Layout, Result};

use super::index::{ByLines, Picks, is_run, malformed, varies};
use crate::{
    memory::{
        blocks::Blocks,
        buffer::{Bound, Memory, by_size},
        lines::{Band, Lines, Walk, pieces},
        pool::Pool,
        strided::Shared,
    },
    simd::{
        cache::{LINE, prefetch},
        isa::Isa,
    },
    tuning::{GATHER_MIN_LINE, PREFETCH_ROW_BYTES},
};

pub(crate) fn run(isa: Isa, pool: &Arc<Pool>, axis: usize, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "gather";
    let bound = Bound::of_launch(pool, launch)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    let [from_operand, index] = &launch.kernel.operands[..] else { return Err(malformed(OP)) };
    let (layout, dtype, size) = (&from_operand.layout, from_operand.dtype, from_operand.layout.shape()[axis]);
    if let Some(blocks) = Blocks::of(isa, from_operand, input) {
        let picks = Picks::read(OP, bound.inputs[1], index.dtype, &index.layout, axis, size)?;
        decode(blocks, layout, axis, &picks, out);
        return Ok(());
    }
    if varies(&index.layout) {
        let output = Layout::contiguous(index.layout.shape().clone());
        let pass = ByLines {
            op: OP,
            index: bound.inputs[1],
            index_layout: &index.layout,
            axis,
            size,
            lines: Lines::new([&index.layout, &output, layout], axis),
        };
        macro_rules! lines {
            ($t:ty) => {{
                let (all, out) = (Shared(input.at::<$t>(layout.offset())), Shared(out.at::<$t>(0)));
                // SAFETY: `ByLines` passes only indices within the axis; the kernel's contract keeps other
                // axes of the index within the input, whose span `of_launch` checked.
                let take = move |to: isize, from: isize| unsafe { out.at(to).write(all.at(from).read()) };
                match pass.parts() {
                    // An index out of range is reported by the general path.
                    1 if in_order(&pass, all, out)? => Ok(()),
                    1 => pass.go(take),
                    parts => pass
                        .go_by_parts(parts, |_, part, first| part.go(move |to, from| take(first + to, from))),
                }
            }};
        }
        return by_size!(dtype, lines);
    }
    let picks = Picks::read(OP, bound.inputs[1], index.dtype, &index.layout, axis, size)?;
    let strides = layout.strides();
    let (off_axis, along) = (picks.off_axis(strides, axis), strides[axis]);
    let within = &strides[picks.lead.len()..];
    let length: usize = picks.block.iter().product();
    let run = is_run(&picks.block, within);
    macro_rules! go {
        ($t:ty) => {
            pieces(picks.numbers.len(), picks.numbers.len() * length, &|start, end| {
                let mut walk = Walk::new(&picks.lead, &off_axis, start);
                for (i, &number) in picks.numbers[start..end].iter().enumerate() {
                    let from = walk.offset + number as isize * along;
                    // SAFETY: `Picks::read` checked the indices, the kernel's contract keeps other axes
                    // within the input, and `of_launch` checked its span. Pieces have different blocks.
                    unsafe {
                        let from = input.at::<$t>(layout.offset()).offset(from).cast_const();
                        let to = out.at::<$t>((start + i) * length);
                        match length {
                            1 => to.write(from.read()),
                            _ if run => std::ptr::copy_nonoverlapping(from, to, length),
                            _ => {
                                let mut inner = Walk::new(&picks.block, within, 0);
                                for j in 0..length {
                                    to.add(j).write(from.offset(inner.offset).read());
                                    inner.next();
                                }
                            }
                        }
                    }
                    walk.next();
                }
            })
        };
    }
    by_size!(dtype, go);
    Ok(())
}

/// Gathers from a block format: each run that one index selects is decoded directly into the output.
fn decode(blocks: Blocks<'_>, layout: &Layout, axis: usize, picks: &Picks, out: Memory) {
    let strides = layout.strides();
    let (off_axis, along) = (picks.off_axis(strides, axis), strides[axis]);
    let within = &strides[picks.lead.len()..];
    let length: usize = picks.block.iter().product();
    let run = is_run(&picks.block, within);
    pieces(picks.numbers.len(), picks.numbers.len() * length, &|start, end| {
        let mut walk = Walk::new(&picks.lead, &off_axis, start);
        for (i, &number) in (start..).zip(&picks.numbers[start..end]) {
            let from = layout.offset() as isize + walk.offset + number as isize * along;
            let mut inner = Walk::new(&picks.block, within, 0);
            let (steps, each) = if run { (1, length) } else { (length, 1) };
            for step in 0..steps {
                // SAFETY: `Picks::read` checked the indices, the kernel's contract keeps other axes within
                // the input, and `of_launch` checked its span. Pieces have different blocks.
                unsafe { blocks.decode_into((from + inner.offset) as usize, out, i * length + step, each) };
                inner.next();
            }
            walk.next();
        }
    });
}

/// Gathers if the lines of input, output and index are all contiguous. Returns false if they are not, or if
/// some index is out of range.
fn in_order<T: Copy>(pass: &ByLines<'_>, from: Shared<T>, to: Shared<T>) -> Result<bool> {
    if pass.lines.along != [1, 1, 1] || pass.lines.length < GATHER_MIN_LINE {
        return Ok(false);
    }
    pass.index.require(pass.op, pass.index.dtype, pass.index_layout.span().1)?;
    Ok(if pass.index.dtype == DType::I64 {
        in_order_by::<T, i64>(pass, from, to)
    } else if pass.index.dtype == DType::I32 {
        in_order_by::<T, i32>(pass, from, to)
    } else {
        false
    })
}

fn in_order_by<T: Copy, I: Copy + Into<i64>>(pass: &ByLines<'_>, from: Shared<T>, to: Shared<T>) -> bool {
    let (lines, last) = (&pass.lines, pass.size as i64 - 1);
    let index = Shared(pass.index.at::<I>(pass.index_layout.offset()));
    let bytes = pass.size * size_of::<T>();
    // If few of a line's elements are read, prefetching all of it would be wasted.
    let dense = bytes <= PREFETCH_ROW_BYTES && lines.length * LINE >= bytes;
    let inside = AtomicBool::new(true);
    lines.for_each(1, pass.index_layout.numel(), &|Band { starts: [picks, near, far], .. }| {
        // SAFETY: `in_order` checked the index's span, and the line is contiguous.
        let picks = unsafe { std::slice::from_raw_parts(index.at(picks).cast_const(), lines.length) };
        // The sign bit is set for an index below 0 or above `last`.
        let outside = |bits: i64, &pick: &I| bits | pick.into() | last.wrapping_sub(pick.into());
        if picks.iter().fold(0, outside) < 0 {
            inside.store(false, Ordering::Relaxed);
            return;
        }
        if dense {
            let next = from.at(far + lines.across[2]).cast::<u8>();
            (0..bytes).step_by(LINE).for_each(|at| prefetch::<true, _>(next.wrapping_add(at)));
        }
        let (from, to) = (from.at(far), to.at(near));
        for (i, &pick) in picks.iter().enumerate() {
            // SAFETY: the fold with `outside` found all indices of the line within the axis, `of_launch`
            // checked the spans, and each line belongs to one thread.
            unsafe { to.add(i).write(from.offset(pick.into() as isize).read()) };
        }
    });
    inside.into_inner()
}
