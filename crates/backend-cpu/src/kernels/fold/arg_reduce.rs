//! The index of the greatest or least element of each line.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{ArgReduceOp, Launch, Layout, Result, with_element};

use crate::{
    memory::{
        buffer::{Bound, Memory},
        lines::{Band, Lines},
        pool::Pool,
    },
    simd::{
        isa::{Isa, Job, Sets},
        order::{Ordered, opposite},
    },
};

pub(crate) fn run(
    isa: Isa,
    pool: &Arc<Pool>,
    op: ArgReduceOp,
    axis: usize,
    launch: &Launch<'_>,
) -> Result<()> {
    let bound = Bound::of_launch(pool, launch)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    let operand = &launch.kernel.operands[0];
    let (layout, shape) = (&operand.layout, &launch.kernel.outputs[0].shape);
    if layout.numel() == 0 {
        // The input is empty: the index along an empty axis is 0, or the output is empty too.
        // SAFETY: `of_launch` checked that the output holds `shape.numel()` elements.
        unsafe { out.at::<i32>(0).write_bytes(0, shape.numel()) };
        return Ok(());
    }
    macro_rules! go {
        ($t:ty) => {
            match op {
                ArgReduceOp::ArgMax => first_greatest(isa, layout, axis, input, out, <$t as Ordered>::key),
                ArgReduceOp::ArgMin => first_greatest(isa, layout, axis, input, out, opposite::<$t>),
            }
        };
    }
    with_element!(operand.dtype, T => go!(T));
    Ok(())
}

/// Lines that are looked through together where neighbours are contiguous.
const LINE_GROUP: usize = 64;
/// Keys that are kept side by side along a line, so that the loop over them vectorises.
const LANES: usize = 32;

/// Finds the first position of the greatest key of each line.
fn first_greatest<T: Copy, K: Copy + Default + Ord>(
    isa: Isa,
    layout: &Layout,
    axis: usize,
    input: Memory,
    out: Memory,
    key: impl Fn(T) -> K + Sync,
) {
    let output = Layout::contiguous(layout.shape().reduced(&[axis], true));
    let lines = Lines::new([layout, &output], axis);
    let width = if lines.side_by_side() { LINE_GROUP } else { 1 };
    lines.for_each(width, layout.numel(), &|Band { lines: count, starts: [from, to] }| {
        let from = input.at::<T>(layout.offset()).wrapping_offset(from).cast_const();
        let (length, along, across) = (lines.length, lines.along[0], lines.across[0]);
        let mut best = [0i32; LINE_GROUP];
        if along == 1 && count == 1 {
            best[0] = isa.narrow().run(ContiguousLine { from, length, key: &key }) as i32;
        } else if across == 1 {
            isa.narrow().run(NeighbouringLines { from, length, along, best: &mut best[..count], key: &key });
        } else {
            for (line, best) in best[..count].iter_mut().enumerate() {
                let from = from.wrapping_offset(line as isize * across);
                // SAFETY: `of_launch` checked the input's span; `fold` below keeps i < `length`, and `line`
                // is one of the band's.
                let at = |i: usize| key(unsafe { from.wrapping_offset(i as isize * along).read() });
                *best = (1..length).fold(0, |best, i| if at(i) > at(best) { i } else { best }) as i32;
            }
        }
        for (line, best) in best[..count].iter().enumerate() {
            let to = out.at::<i32>(0).wrapping_offset(to + line as isize * lines.across[1]);
            // SAFETY: the output holds one element for each line, and each line writes its own.
            unsafe { to.write(*best) };
        }
    });
}

/// The first position of the greatest key in a contiguous line.
struct ContiguousLine<'a, T, F> {
    from: *const T,
    length: usize,
    key: &'a F,
}

impl<T: Copy, K: Copy + Default + Ord, F: Fn(T) -> K> Job for ContiguousLine<'_, T, F> {
    type Output = usize;
    #[inline(always)]
    fn run(self) -> usize {
        // SAFETY: i < `length` in a contiguous line of the input, whose span `of_launch` checked for
        // `first_greatest`.
        let at = |i: usize| (self.key)(unsafe { self.from.add(i).read() });
        // Lane l sees the elements l, l + LANES, and so on: it keeps its greatest key, and the row where
        // that first occurred.
        let (mut keys, mut rows) = ([K::default(); LANES], [0i32; LANES]);
        let whole = self.length / LANES;
        for row in 0..whole {
            for (lane, (greatest, place)) in keys.iter_mut().zip(&mut rows).enumerate() {
                let key = at(row * LANES + lane);
                let greater = key > *greatest;
                *place = if greater { row as i32 } else { *place };
                *greatest = if greater { key } else { *greatest };
            }
        }
        // A lane without rows has the default key, the least one, at row 0. That is true of its first
        // element, or loses to all other lanes.
        let (mut best, mut first) = (K::default(), 0);
        for (lane, (&key, &row)) in keys.iter().zip(&rows).enumerate() {
            let place = row as usize * LANES + lane;
            if key > best || (key == best && place < first) {
                (best, first) = (key, place);
            }
        }
        for i in whole * LANES..self.length {
            if at(i) > best {
                (best, first) = (at(i), i);
            }
        }
        first
    }
}

/// The first positions of the greatest keys of neighbouring lines.
struct NeighbouringLines<'a, T, F> {
    from: *const T,
    length: usize,
    along: isize,
    best: &'a mut [i32],
    key: &'a F,
}

impl<T: Copy, K: Copy + Default + Ord, F: Fn(T) -> K> Job for NeighbouringLines<'_, T, F> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let mut keys = [K::default(); LINE_GROUP];
        self.best.fill(0);
        for i in 0..self.length {
            let from = self.from.wrapping_offset(i as isize * self.along);
            for (line, (best, greatest)) in self.best.iter_mut().zip(&mut keys).enumerate() {
                // SAFETY: i < `length`, and `line` is one of the band's; `of_launch` checked the input's
                // span for `first_greatest`.
                let key = (self.key)(unsafe { from.add(line).read() });
                // The default key is the least one, so the first position stays unless a greater key
                // occurs.
                let greater = key > *greatest;
                *best = if greater { i as i32 } else { *best };
                *greatest = if greater { key } else { *greatest };
            }
        }
    }
}
