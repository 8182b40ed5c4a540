//! Running extremes with their positions, in one pass along rows;
//! [`cumulative`](crate::kernels::scan::cumulative) finds only the positions.
#![allow(unsafe_code)]

use tensor_core::{DType, Kernel, Launch, Result, RunningExtreme};

use super::custom::Native;
use crate::{
    CpuBackend,
    kernels::scan::running::{Extreme, Line, Running, close},
    memory::{buffer::Bound, strided::Shared},
    simd::isa::Isa,
    threads,
    tuning::{ELEMENT_GRAIN, SERIAL_LINE_ELEMENTS},
};

/// The greatest or least element so far, and its position, as [`Extreme`] finds it.
pub(super) struct ExtremeAndPlace<const LEAST: bool>;

impl<const LEAST: bool> Running for ExtremeAndPlace<LEAST> {
    type Item = f32;
    type State = i64;
    type To = (Shared<f32>, Shared<i64>);
    const NEUTRAL: i64 = Extreme::<LEAST>::NEUTRAL;

    #[inline(always)]
    fn open(x: f32, position: usize) -> i64 {
        Extreme::<LEAST>::open(x, position)
    }

    #[inline(always)]
    fn join(earlier: i64, later: i64) -> i64 {
        Extreme::<LEAST>::join(earlier, later)
    }

    /// The element is decoded from its key, except 0, whose sign the key lacks, and NaN: those are read
    /// from the line.
    #[inline(always)]
    unsafe fn store<const N: usize>(
        line: Shared<f32>,
        (extremes, places): Self::To,
        at: isize,
        states: [i64; N],
        last: Option<usize>,
    ) {
        const SIGN: u32 = 1 << 31;
        let (mut found, mut lost) = ([0f32; N], false);
        for (found, state) in found.iter_mut().zip(states) {
            let key = (state >> 32) as u32 ^ SIGN;
            let own = if LEAST { !key } else { key };
            lost |= (own == SIGN) | (key == u32::MAX);
            *found = f32::from_bits(if own & SIGN == 0 { !own } else { own ^ SIGN });
        }
        if lost {
            for (found, state) in found.iter_mut().zip(states) {
                let position = state as i32 as isize;
                // SAFETY: by `# Safety` the position is that of an element of the line, counted from
                // `line`: upwards, or downwards if `last` is given.
                *found = unsafe { line.at(if last.is_some() { -position } else { position }).read() };
            }
        }
        let place = |state: i64| {
            let position = i64::from(state as i32);
            last.map_or(position, |last| last as i64 - position)
        };
        // SAFETY: both destinations have room for `N` results from offset `at` on, by `# Safety`.
        unsafe {
            extremes.at(at).cast::<[f32; N]>().write_unaligned(found);
            close(places, at, states, place);
        }
    }

    fn to_bits(state: i64) -> u64 {
        state as u64
    }

    fn from_bits(bits: u64) -> i64 {
        bits as i64
    }
}

impl Native for RunningExtreme {
    fn supports(kernel: &Kernel) -> bool {
        kernel.operands.first().is_some_and(|operand| operand.dtype == DType::F32)
    }

    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        let shape = launch.kernel.operands[0].layout.shape();
        let Some(&length) = shape.last().filter(|_| shape.numel() > 0) else { return Ok(()) };
        let bound = Bound::of_launch(&backend.pool, launch)?;
        let rows = Rows {
            length,
            count: shape.numel() / length,
            from: Shared(bound.inputs[0].at::<f32>(0)),
            to: (Shared(bound.outputs[0].at::<f32>(0)), Shared(bound.outputs[1].at::<i64>(0))),
        };
        match self.least {
            true => rows.go::<ExtremeAndPlace<true>>(backend.isa),
            false => rows.go::<ExtremeAndPlace<false>>(backend.isa),
        }
        Ok(())
    }
}

/// The addresses of the elements, the extremes and their positions.
struct Rows {
    length: usize,
    count: usize,
    from: Shared<f32>,
    to: (Shared<f32>, Shared<i64>),
}

impl Rows {
    fn go<R: Running<Item = f32, To = (Shared<f32>, Shared<i64>)>>(&self, isa: Isa) {
        let line = |row: usize| {
            let at = (row * self.length) as isize;
            let to = (Shared(self.to.0.at(at)), Shared(self.to.1.at(at)));
            // SAFETY: `check_custom` and `of_launch` checked that all have that many rows and that the
            // outputs are not the input; a row belongs to one task.
            unsafe { Line::<R, false>::new(self.from.at(at), to, self.length) }
        };
        if self.length >= SERIAL_LINE_ELEMENTS && self.count < threads::available() {
            (0..self.count).for_each(|row| line(row).shared(isa));
        } else if self.length * self.count < 2 * ELEMENT_GRAIN {
            (0..self.count).for_each(|row| line(row).alone(isa));
        } else {
            threads::share_ranges(self.count, 1, |rows| rows.for_each(|row| line(row).alone(isa)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions alone, in processing order.
    fn places<R: Running<Item = f32, To = Shared<i32>>, const REVERSE: bool>(
        isa: Isa,
        x: &[f32],
    ) -> Vec<i32> {
        let mut found = vec![0i32; x.len()];
        let first = if REVERSE { x.len() - 1 } else { 0 };
        // SAFETY: both have `x.len()` elements from the first on.
        unsafe {
            let to = Shared(found.as_mut_ptr().add(first));
            Line::<R, REVERSE>::new(x.as_ptr().add(first), to, x.len()).alone(isa);
        }
        if REVERSE {
            found.reverse();
        }
        found
    }

    /// The bits of a line's extremes, with their positions, in processing order; checks that sharing
    /// between threads gives the same bits.
    fn elements<const LEAST: bool, const REVERSE: bool>(isa: Isa, x: &[f32]) -> Vec<(u32, i64)> {
        let n = x.len();
        let first = if REVERSE { n - 1 } else { 0 };
        let mut all = [false, true].map(|is_shared| {
            let (mut extremes, mut places) = (vec![0f32; n], vec![0i64; n]);
            // SAFETY: all have `n` elements from the first on.
            unsafe {
                let to = (Shared(extremes.as_mut_ptr().add(first)), Shared(places.as_mut_ptr().add(first)));
                let line = Line::<ExtremeAndPlace<LEAST>, REVERSE>::new(x.as_ptr().add(first), to, n);
                if is_shared { line.shared(isa) } else { line.alone(isa) }
            }
            extremes.iter().map(|x| x.to_bits()).zip(places).collect::<Vec<_>>()
        });
        assert_eq!(all[0], all[1], "{n} elements, {isa:?}");
        if REVERSE {
            all[0].reverse();
        }
        all[0].clone()
    }

    /// An extreme has the bits of the element at its position, and [`Extreme`] finds the same position.
    fn check_elements<const REVERSE: bool>(isa: Isa, x: &[f32]) {
        let both = [
            (elements::<false, REVERSE>(isa, x), places::<Extreme<false>, REVERSE>(isa, x)),
            (elements::<true, REVERSE>(isa, x), places::<Extreme<true>, REVERSE>(isa, x)),
        ];
        for (found, places) in both {
            let wanted = places.iter().map(|&place| (x[place as usize].to_bits(), i64::from(place)));
            assert!(wanted.eq(found), "{} elements, {isa:?}", x.len());
        }
    }

    #[test]
    fn extremes_are_the_elements_at_their_places() {
        for isa in Isa::available() {
            for n in [1, 5, 8, 9, 100, (1 << 15) + 3, 3 * (1 << 15) + 13] {
                // Negative and positive numbers, with zeros of both signs.
                let number = |i: usize| (i * 7919 % 1009) as f32 / 8.0 - 60.0;
                let mut x: Vec<f32> =
                    (0..n).map(|i| if i % 7 == 0 { 0.0f32.copysign(number(i)) } else { number(i) }).collect();
                check_elements::<false>(isa, &x);
                check_elements::<true>(isa, &x);
                let low: Vec<f32> = x.iter().map(|x| -x.abs()).collect();
                check_elements::<false>(isa, &low);
                (x[n / 3], x[n / 4]) = (f32::INFINITY, f32::NEG_INFINITY);
                check_elements::<false>(isa, &x);
                // An unusual NaN keeps its bits.
                x[n / 2] = f32::from_bits(0xffc1_2345);
                check_elements::<false>(isa, &x);
                check_elements::<true>(isa, &x);
            }
        }
    }
}
