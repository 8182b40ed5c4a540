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
        // The first of nothing, or nothing at all.
        // SAFETY: the output was checked to hold so many elements.
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

/// Lines that are looked through together where neighbours lie side by side.
const TOGETHER: usize = 64;
/// Keys that are kept side by side along a line, so that the loop over them vectorises.
const LANES: usize = 32;

/// Where each line's greatest key is met first.
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
    let width = if lines.side_by_side() { TOGETHER } else { 1 };
    lines.for_each(width, layout.numel(), &|Band { lines: count, starts: [from, to] }| {
        let from = input.at::<T>(layout.offset()).wrapping_offset(from).cast_const();
        let (length, along, across) = (lines.length, lines.along[0], lines.across[0]);
        let mut best = [0i32; TOGETHER];
        if along == 1 && count == 1 {
            best[0] = isa.narrow().run(Line { from, length, key: &key }) as i32;
        } else if across == 1 {
            isa.narrow().run(Side { from, length, along, best: &mut best[..count], key: &key });
        } else {
            for (line, best) in best[..count].iter_mut().enumerate() {
                let from = from.wrapping_offset(line as isize * across);
                // SAFETY: the input's span was checked.
                let at = |i: usize| key(unsafe { from.wrapping_offset(i as isize * along).read() });
                *best = (1..length).fold(0, |best, i| if at(i) > at(best) { i } else { best }) as i32;
            }
        }
        for (line, best) in best[..count].iter().enumerate() {
            let to = out.at::<i32>(0).wrapping_offset(to + line as isize * lines.across[1]);
            // SAFETY: the output holds one element a line, and each line has its own.
            unsafe { to.write(*best) };
        }
    });
}

/// The place of the first greatest key among neighbours.
struct Line<'a, T, F> {
    from: *const T,
    length: usize,
    key: &'a F,
}

impl<T: Copy, K: Copy + Default + Ord, F: Fn(T) -> K> Job for Line<'_, T, F> {
    type Output = usize;
    #[inline(always)]
    fn run(self) -> usize {
        // SAFETY: the input's span was checked; i < length.
        let at = |i: usize| (self.key)(unsafe { self.from.add(i).read() });
        // Each lane has the elements of its number, LANES apart: its greatest key, and the row where that was
        // first met.
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
        // No key is less than the least: a lane without rows says what is true of its first element, or lies
        // behind all others.
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

/// The places of the first greatest keys of lines that lie side by side.
struct Side<'a, T, F> {
    from: *const T,
    length: usize,
    along: isize,
    best: &'a mut [i32],
    key: &'a F,
}

impl<T: Copy, K: Copy + Default + Ord, F: Fn(T) -> K> Job for Side<'_, T, F> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let mut keys = [K::default(); TOGETHER];
        self.best.fill(0);
        for i in 0..self.length {
            let from = self.from.wrapping_offset(i as isize * self.along);
            for (line, (best, greatest)) in self.best.iter_mut().zip(&mut keys).enumerate() {
                // SAFETY: the input's span was checked.
                let key = (self.key)(unsafe { from.add(line).read() });
                // No key is less than the least, so that the first place stays where there is nothing
                // greater.
                let greater = key > *greatest;
                *best = if greater { i as i32 } else { *best };
                *greatest = if greater { key } else { *greatest };
            }
        }
    }
}
