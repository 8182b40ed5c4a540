//! Elements read by index along an axis.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{Launch, Layout, Result};

use super::index::{ByLines, Picks, is_run, malformed, varies};
use crate::memory::{
    buffer::{Bound, by_size},
    lines::{Lines, Walk, pieces},
    pool::Pool,
    strided::Shared,
};

pub(crate) fn run(pool: &Arc<Pool>, axis: usize, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "gather";
    let bound = Bound::of_launch(pool, launch)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    let [from_operand, index] = &launch.kernel.operands[..] else { return Err(malformed(OP)) };
    let (layout, dtype, size) = (&from_operand.layout, from_operand.dtype, from_operand.layout.shape()[axis]);
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
                // SAFETY: as below: `ByLines` refuses an index beyond the axis, and the spans were checked.
                let take = move |to: isize, from: isize| unsafe { out.at(to).write(all.at(from).read()) };
                match pass.parts() {
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
                    // SAFETY: an index beyond the axis was refused, and off the axis the index is no larger than the input,
                    // whose span was checked; each piece writes blocks of its own.
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
