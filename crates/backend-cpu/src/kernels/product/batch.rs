//! How threads share the products of a batch: whole ones, or rectangles of each.

use std::ops::Range;

use tensor_core::Result;

use super::{epilogue::Finish, matrices::Parts};
use crate::{
    threads::{self, part},
    tuning::{CACHED_RESULTS, MIN_RUN_POSITIONS},
};

/// Rectangles begin at multiples of these rows, a micro-tile's, and of [`WIDEST`](super::operands::WIDEST)
/// columns.
pub(super) const MR: usize = 8;

/// Runs tasks on the calling thread, or, if the work is worth several threads, on those that are free.
pub(super) fn share_among(
    threads: usize,
    tasks: usize,
    one: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    match threads {
        1 => (0..tasks).try_for_each(one),
        _ => threads::try_share(tasks, one),
    }
}

/// Called with a product's number in the batch and what finishes it.
pub(super) type Alone<'a> = &'a (dyn Fn(usize, Option<Finish<'_>>) -> Result<()> + Sync);
/// Called with a product's number in the batch, rows and columns of a rectangle, and what finishes it.
pub(super) type Rectangle<'a> =
    &'a (dyn Fn(usize, Range<usize>, Range<usize>, Option<Finish<'_>>) -> Result<()> + Sync);

/// How products are formed that threads share.
pub(super) struct Batch<'a> {
    /// Whether products can be cut into rectangles, and are finished tile by tile.
    pub(super) is_cut: bool,
    pub(super) alone: Alone<'a>,
    pub(super) rectangle: Rectangle<'a>,
    /// Roughly what rows and columns take.
    pub(super) cost: &'a (dyn Fn(usize, usize) -> usize + Sync),
    /// Rectangles begin at multiples of these rows and columns.
    pub(super) units: [usize; 2],
    /// Multiplications that are worth a thread.
    pub(super) grain: usize,
}

impl Batch<'_> {
    pub(super) fn run(&self, parts: &Parts<'_>) -> Result<()> {
        let Parts { of, epilogue, .. } = *parts;
        let (m, n, k, batches) = (of.m, of.n, of.k, of.batches);
        let size = m * n;
        // A large product is finished tile by tile, and any other with its neighbours in the batch.
        let by_tiles = epilogue.filter(|_| self.is_cut && size > CACHED_RESULTS);
        let finish = |b: usize| by_tiles.map(|epilogue| Finish { epilogue, first: b * size });
        let alone = |b: usize| (self.alone)(b, finish(b));
        let some = |range: Range<usize>| -> Result<()> {
            let Some(epilogue) = epilogue.filter(|_| by_tiles.is_none()) else {
                return range.into_iter().try_for_each(alone);
            };
            let together = (CACHED_RESULTS / size).max(1);
            for start in range.clone().step_by(together) {
                let end = range.end.min(start + together);
                (start..end).try_for_each(alone)?;
                epilogue.run(start * size..end * size)?;
            }
            Ok(())
        };
        let (available, work) = (threads::available(), batches * m * n * k);
        // Few batch positions of a thin product go one by one; and a vector times a matrix shares its work
        // itself.
        if available == 1 || (!self.is_cut && batches < available) {
            return some(0..batches);
        }
        if threads::worth(work, self.grain) == 1 {
            some(0..batches)
        } else if batches >= available {
            let piece = (batches / (available * 16)).max(1);
            threads::try_share(batches.div_ceil(piece), |i| some(i * piece..batches.min((i + 1) * piece)))
        } else {
            for b in 0..batches {
                let (down, across) =
                    grid([m, n], available.min(work / batches / self.grain), self.units, self.cost);
                // Short parts of rows are finished when all are there.
                let finish = finish(b).filter(|_| across == 1 || n / across >= MIN_RUN_POSITIONS);
                let rectangle = |i: usize| {
                    let [down_by, across_by] = self.units;
                    let (rows, columns) =
                        (part(m, down_by, down, i / across), part(n, across_by, across, i % across));
                    (self.rectangle)(b, rows, columns, finish)
                };
                threads::try_share(down * across, rectangle)?;
                if let (Some(epilogue), None) = (epilogue, finish) {
                    epilogue.run(b * size..(b + 1) * size)?;
                }
            }
            Ok(())
        }
    }
}

/// The rectangles, down and across, that `threads` threads share. They begin at multiples of these rows and
/// columns, and take the least time by `cost`, which is given rows and columns. Among cuts that take the same
/// time, the one with the most rows of rectangles is best: those are whole pieces of memory, as in
/// elementwise kernels.
pub(super) fn grid(
    [m, n]: [usize; 2],
    threads: usize,
    [down_by, across_by]: [usize; 2],
    cost: impl Fn(usize, usize) -> usize,
) -> (usize, usize) {
    let threads = threads.max(1);
    let most = |size: usize, unit: usize| (size / unit).max(1);
    let time = |(down, across): (usize, usize)| {
        let longest = |size: usize, unit: usize, parts: usize| {
            (0..parts).map(|i| part(size, unit, parts, i).len()).max().unwrap_or(size)
        };
        cost(longest(m, down_by, down), longest(n, across_by, across))
    };
    (1..=threads.min(most(m, 2 * down_by)))
        .rev()
        .map(|down| (down, (threads / down).min(most(n, 2 * across_by))))
        .min_by_key(|&cut| time(cut))
        .unwrap_or((1, 1))
}

#[cfg(test)]
mod tests {
    use super::{super::operands::WIDEST, *};
    use crate::tuning::MICRO_KERNEL_GRAIN;

    #[test]
    fn rectangles_cover_the_result_once() {
        const UNITS: [usize; 2] = [MR, WIDEST];
        let cost = |rows: usize, columns: usize| columns.div_ceil(WIDEST) * (rows + 8);
        for (m, n, k) in [(1, 1, 1 << 22), (13, 5000, 900), (5000, 13, 900), (64, 128, 784), (2048, 2048, 64)]
        {
            for threads in 1..40 {
                let (down, across) = grid([m, n], threads.min(m * n * k / MICRO_KERNEL_GRAIN), UNITS, cost);
                assert!(down * across <= threads);
                for (size, unit, parts) in [(m, UNITS[0], down), (n, UNITS[1], across)] {
                    let mut next = 0;
                    for i in 0..parts {
                        let range = part(size, unit, parts, i);
                        assert!(range.start == next && !range.is_empty());
                        next = range.end;
                    }
                    assert_eq!(next, size);
                }
            }
        }
        // Threads that share columns would each copy them; a register partly filled costs as much as a full
        // one.
        assert_eq!(grid([512, 512], 2, UNITS, cost), (1, 2));
        assert_eq!(grid([333, 129], 2, UNITS, cost), (2, 1));
        assert_eq!(grid([64, 32], 0, UNITS, cost), (1, 1));
        assert_eq!(grid([128, 784], 2, UNITS, |rows, columns| rows * columns), (2, 1));
    }
}
