//! Embedding bags: sums of a table's rows, read in place. Up to 64 rows are summed in the table's dtype,
//! and these partial sums in f64, so long bags are as exact as other sums. One thread computes a whole bag,
//! so its bits do not depend on the number of threads.
//!
//! Means of 8192 bags of 20 rows of 64 take 1.6 ms; a reduction that reads the rows at indices takes 7.0 ms
//! (decision 47).
#![allow(unsafe_code)]

use std::{
    borrow::Cow,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

use tensor_core::{BagKind, DType, EmbeddingBag, Error, ErrorKind, Launch, Result};

use super::custom::{Native, for_float};
use crate::{
    CpuBackend,
    kernels::movement::index::by_index,
    memory::buffer::{Bound, Memory},
    simd::{
        cache::{LINE, prefetch},
        isa::{Isa, Job},
        vector::Float,
    },
    threads,
    tuning::{BAG_ROWS_AHEAD, CHECKED_INDICES, ELEMENT_GRAIN, OWN_DTYPE_SUM_TERMS},
};

/// Features that are summed together, in registers.
const STRIP: usize = 64;

impl Native for EmbeddingBag {
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        for_float!(self, launch, typed(backend, *self, launch))
    }
}

/// The integers of a row-major input, borrowed if they are i64.
fn integers<'a>(memory: Memory, numel: usize) -> Result<Cow<'a, [i64]>> {
    macro_rules! go {
        ($t:ty) => {
            // SAFETY: `of_launch` checked that the input has `numel` initialised elements of this dtype,
            // and i < `numel`.
            Ok((0..numel).map(|i| unsafe { memory.at::<$t>(i).read() } as i64).collect())
        };
    }
    if memory.dtype == DType::I64 {
        // SAFETY: `of_launch` checked that the input has `numel` initialised elements of i64; `typed` holds
        // the buffers for longer than the slice.
        return Ok(Cow::Borrowed(unsafe { std::slice::from_raw_parts(memory.at::<i64>(0), numel) }));
    }
    let no_index = format!("an index cannot be {}; cast it to I32", memory.dtype);
    by_index!(memory.dtype, go, Err(Error::invalid("embedding_bag", no_index)))
}

/// Whether all indices are rows of a table. The sign bit is set for an index below 0 or beyond the last
/// row; without an early exit the loop vectorises.
fn are_rows(indices: &[i64], rows: usize) -> bool {
    let outside = |bits: i64, &index: &i64| bits | index | (rows as i64 - 1).wrapping_sub(index);
    indices.iter().fold(0, outside) >= 0
}

fn typed<T: Float>(backend: &CpuBackend, of: EmbeddingBag, launch: &Launch<'_>) -> Result<()> {
    let (kernel, op) = (launch.kernel, launch.kernel.name());
    let shape = |k: usize| kernel.operands[k].layout.shape();
    let bound = Bound::of_launch(&backend.pool, launch)?;
    let (rows, features) = (shape(0)[0], shape(0)[1]);
    let indices = integers(bound.inputs[1], shape(1).numel())?;
    let shared = indices.len().saturating_mul(features) >= 2 * ELEMENT_GRAIN;
    // All indices are checked before any is used, because rows are prefetched ahead.
    let outside = AtomicBool::new(false);
    let check = |range: Range<usize>| {
        if !are_rows(&indices[range], rows) {
            outside.store(true, Ordering::Relaxed);
        }
    };
    match shared {
        true => threads::share_ranges(indices.len(), CHECKED_INDICES, check),
        false => check(0..indices.len()),
    }
    if outside.into_inner()
        && let Some(&index) = indices.iter().find(|&&index| !(0..rows as i64).contains(&index))
    {
        return Err(Error::new(ErrorKind::IndexOutOfRange { op, index, axis: 0, size: rows }));
    }
    let bounds: Vec<usize> = match *shape(1).dims() {
        [bags, count] => (0..=bags).map(|bag| bag * count).collect(),
        _ => {
            let bounds = integers(bound.inputs[2], shape(2).numel())?;
            let ordered = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
            let within = bounds.iter().all(|&at| (0..=indices.len() as i64).contains(&at));
            if !ordered || !within {
                return Err(Error::invalid(op, "the bounds of bags must ascend and stay within the indices"));
            }
            bounds.iter().map(|&at| at as usize).collect()
        }
    };
    let bags = Bags::<T> {
        isa: backend.isa,
        of,
        features,
        table: bound.inputs[0].at::<T>(0),
        weights: of.weighted.then(|| bound.inputs[bound.inputs.len() - 1].at::<T>(0).cast_const()),
        indices: &indices,
        bounds: &bounds,
        out: bound.outputs[0],
    };
    // SAFETY: `check_custom` and `of_launch` checked the sizes of all operands, `are_rows` every index, and
    // the ranges of bags are disjoint.
    let some = |range: Range<usize>| unsafe { bags.go(range) };
    match shared {
        true => threads::share_ranges(bounds.len() - 1, 1, some),
        false => some(0..bounds.len() - 1),
    }
    Ok(())
}

struct Bags<'a, T> {
    isa: Isa,
    of: EmbeddingBag,
    features: usize,
    table: *const T,
    weights: Option<*const T>,
    indices: &'a [i64],
    bounds: &'a [usize],
    out: Memory,
}

// SAFETY: inputs are only read, and threads write different bags.
unsafe impl<T> Sync for Bags<'_, T> {}

/// The sums of a range of bags that belongs to this job alone.
struct Sums<'a, T> {
    bags: &'a Bags<'a, T>,
    range: Range<usize>,
}

impl<T: Float> Job for Sums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let features = self.bags.features;
        for bag in self.range {
            let count = self.bags.counted(bag).count();
            for first in (0..features).step_by(STRIP) {
                // SAFETY: only `Bags::go` makes this job, whose `# Safety` has the same conditions; the
                // strip ends at `features`.
                unsafe { self.bags.strip(bag, first, STRIP.min(features - first), count) };
            }
        }
    }
}

impl<T: Float> Bags<'_, T> {
    /// # Safety
    /// Operands have the sizes that the kernel states, and all indices are rows of the table. The bags of
    /// the range are among the output's and belong to this call alone.
    unsafe fn go(&self, range: Range<usize>) {
        match self.of.kind {
            BagKind::Sum | BagKind::Mean => self.isa.run(Sums { bags: self, range }),
            // SAFETY: `greatest` has the conditions of `go`, and `bag` is in the range that belongs to this
            // call alone.
            BagKind::ArgMax => range.for_each(|bag| unsafe { self.greatest(bag) }),
        }
    }

    /// The positions of a bag, without padding.
    #[inline(always)]
    fn counted(&self, bag: usize) -> impl Iterator<Item = usize> + '_ {
        let padding = self.of.padding.map_or(-1, |row| row as i64);
        (self.bounds[bag]..self.bounds[bag + 1]).filter(move |&at| self.indices[at] != padding)
    }

    /// The address of the row that position `at` selects.
    ///
    /// # Safety
    /// As [`Bags::go`].
    unsafe fn row(&self, at: usize) -> *const T {
        // SAFETY: the index is a row of the table, which has `features` numbers a row, by `# Safety`.
        unsafe { self.table.add(self.indices[at] as usize * self.features) }
    }

    /// Computes the sums of a strip of features of a bag.
    ///
    /// # Safety
    /// As [`Bags::go`]; the strip is within the features.
    #[inline(always)]
    unsafe fn strip(&self, bag: usize, first: usize, width: usize, count: usize) {
        let mut sums = [T::ZERO; STRIP];
        let mut wide = [0f64; STRIP];
        let positions = self.bounds[bag]..self.bounds[bag + 1];
        let long = positions.len() > OWN_DTYPE_SUM_TERMS;
        for start in positions.clone().step_by(OWN_DTYPE_SUM_TERMS) {
            let group = start..positions.end.min(start + OWN_DTYPE_SUM_TERMS);
            // SAFETY: by `# Safety` the strip is within the features; `group` is part of the bag's
            // positions.
            unsafe {
                match (self.weights, width) {
                    (None, STRIP) => self.add_whole(group, first, &mut sums),
                    _ => self.add_some(group, first, &mut sums[..width]),
                }
            }
            if long {
                wide.iter_mut().zip(&mut sums).for_each(|(wide, sum)| *wide += std::mem::take(sum).into());
            }
        }
        // SAFETY: by `# Safety` the output has the bag's row, the strip is within it, and the row belongs
        // to this call alone.
        let out =
            unsafe { std::slice::from_raw_parts_mut(self.out.at::<T>(bag * self.features + first), width) };
        if !long && self.of.kind == BagKind::Sum {
            out.copy_from_slice(&sums[..width]);
            return;
        }
        let by = if self.of.kind == BagKind::Mean { count.max(1) as f64 } else { 1.0 };
        for ((out, sum), wide) in out.iter_mut().zip(sums).zip(wide) {
            let sum = if long { wide } else { sum.into() };
            *out = T::rounded(sum / by);
        }
    }

    /// Prefetches the strip from feature `first` on, `width` wide, of the row that is `BAG_ROWS_AHEAD`
    /// positions after `at`.
    #[inline(always)]
    fn ask(&self, at: usize, first: usize, width: usize) {
        if let Some(&index) = self.indices.get(at + BAG_ROWS_AHEAD) {
            let row = self.table.wrapping_add(index as usize * self.features + first);
            for line in (0..width).step_by(LINE / size_of::<T>()) {
                prefetch::<true, _>(row.wrapping_add(line));
            }
        }
    }

    /// Adds a whole strip of the rows at some positions, without weights.
    ///
    /// # Safety
    /// As [`Bags::strip`], for a strip that is `STRIP` wide.
    #[inline(always)]
    unsafe fn add_whole(&self, positions: Range<usize>, first: usize, sums: &mut [T; STRIP]) {
        let (padding, features, table) =
            (self.of.padding.map_or(-1, |row| row as i64), self.features, self.table);
        // A local copy, which stays in registers.
        let mut totals = *sums;
        for (at, &index) in positions.clone().zip(&self.indices[positions]) {
            self.ask(at, first, STRIP);
            if index == padding {
                continue;
            }
            // SAFETY: by `# Safety` the index is a row of the table and the strip is within it; the table
            // is no output.
            let row = unsafe { &*table.add(index as usize * features + first).cast::<[T; STRIP]>() };
            for (total, &x) in totals.iter_mut().zip(row) {
                *total = *total + x;
            }
        }
        *sums = totals;
    }

    /// Like [`Bags::add_whole`], for a strip as wide as `sums`, with weights if there are any.
    ///
    /// # Safety
    /// As [`Bags::strip`], for a strip as wide as `sums`.
    #[inline(always)]
    unsafe fn add_some(&self, positions: Range<usize>, first: usize, sums: &mut [T]) {
        let padding = self.of.padding.map_or(-1, |row| row as i64);
        for (at, &index) in positions.clone().zip(&self.indices[positions]) {
            self.ask(at, first, sums.len());
            if index == padding {
                continue;
            }
            // SAFETY: by `# Safety` the index is a row of the table, the strip is within it, and weights
            // have a number for each index; the inputs are no outputs.
            let (row, weight) = unsafe {
                let row = self.table.add(index as usize * self.features + first);
                let weight = self.weights.map(|weights| weights.add(at).read());
                (std::slice::from_raw_parts(row, sums.len()), weight)
            };
            match weight {
                None => sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum = *sum + x),
                Some(w) => sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum = *sum + x * w),
            }
        }
    }

    /// # Safety
    /// As [`Bags::go`].
    unsafe fn greatest(&self, bag: usize) {
        let out = self.out.at::<i32>(bag * self.features);
        for j in 0..self.features {
            let mut best: Option<(T, i64)> = None;
            for at in self.counted(bag) {
                // SAFETY: `row` gives the address of a row of `features` numbers; j is below that.
                let x = unsafe { self.row(at).add(j).read() };
                if best.is_none_or(|(y, _)| x > y || x.is_nan() && !y.is_nan()) {
                    best = Some((x, self.indices[at]));
                }
            }
            // SAFETY: by `# Safety` the output has the bag's row of `features` numbers, which belongs to
            // this call alone.
            unsafe { out.add(j).write(best.map_or(-1, |(_, row)| row as i32)) };
        }
    }
}
