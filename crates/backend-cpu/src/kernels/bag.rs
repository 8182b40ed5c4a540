//! Bags of a table's rows: each row is added where it lies. A few rows are summed in the table's dtype, and these sums in f64, so that long
//! bags are as exact as other sums; a bag is one thread's, so that its bits do not depend on how many there are.
#![allow(unsafe_code)]

use std::ops::Range;

use tensor_core::{BagKind, DType, EmbeddingBag, Error, ErrorKind, Launch, Result};

use super::custom::{Native, for_float};
use crate::{
    CpuBackend,
    memory::buffer::{Bound, Memory},
    simd::{isa::Isa, loops::map2},
    threads,
};

/// Rows that are summed in the table's own dtype.
const GROUP: usize = 64;
/// Elements that are worth a thread.
const GRAIN: usize = 1 << 16;

impl Native for EmbeddingBag {
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        for_float!(self, launch, typed(backend, *self, launch))
    }
}

/// The elements of a table.
trait Number: Copy + Default + Send + Sync + PartialOrd + 'static {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    fn wide(self) -> f64;
    fn narrowed(wide: f64) -> Self;
}

macro_rules! number {
    ($t:ty) => {
        impl Number for $t {
            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                self + other
            }
            #[inline(always)]
            fn times(self, other: $t) -> $t {
                self * other
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn narrowed(wide: f64) -> $t {
                wide as $t
            }
        }
    };
}
number!(f32);
number!(f64);

/// Integers of a row-major input.
fn integers(memory: Memory, numel: usize) -> Result<Vec<i64>> {
    macro_rules! go {
        ($t:ty) => {
            // SAFETY: the launch checked that the input has so many elements of this dtype, which are initialised.
            Ok((0..numel).map(|i| unsafe { memory.at::<$t>(i).read() } as i64).collect())
        };
    }
    match memory.dtype {
        DType::I64 => go!(i64),
        DType::I32 => go!(i32),
        DType::U32 => go!(u32),
        DType::U8 => go!(u8),
        other => Err(Error::invalid("embedding_bag", format!("an index cannot be {other}; cast it to I32"))),
    }
}

fn typed<T: Number>(backend: &CpuBackend, of: EmbeddingBag, launch: &Launch<'_>) -> Result<()> {
    let (kernel, op) = (launch.kernel, launch.kernel.name());
    let shape = |k: usize| kernel.operands[k].layout.shape();
    let bound = Bound::of_launch(&backend.pool, launch)?;
    let (rows, features) = (shape(0)[0], shape(0)[1]);
    let indices = integers(bound.inputs[1], shape(1).numel())?;
    if let Some(&index) = indices.iter().find(|&&index| !(0..rows as i64).contains(&index)) {
        return Err(Error::new(ErrorKind::IndexOutOfRange { op, index, axis: 0, size: rows }));
    }
    let bounds: Vec<usize> = match *shape(1).dims() {
        [bags, count] => (0..=bags).map(|bag| bag * count).collect(),
        _ => {
            let bounds = integers(bound.inputs[2], shape(2).numel())?;
            let ordered = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
            let within = bounds.iter().all(|&at| (0..=indices.len() as i64).contains(&at));
            if !ordered || !within {
                return Err(Error::invalid(op, "bounds of bags ascend, and do not pass the indices"));
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
    // SAFETY: the sizes of all operands and every index were checked, and each range has bags of its own.
    let some = |range: Range<usize>| unsafe { bags.go(range) };
    match indices.len().saturating_mul(features) >= 2 * GRAIN {
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

// SAFETY: inputs are read alone, and threads write bags apart.
unsafe impl<T> Sync for Bags<'_, T> {}

impl<T: Number> Bags<'_, T> {
    /// # Safety
    /// Operands are of the sizes that the kernel says, all indices are rows of the table, and the bags of the range are this call's alone.
    unsafe fn go(&self, range: Range<usize>) {
        let mut wide = vec![0f64; self.features];
        for bag in range {
            // SAFETY: the caller's promise.
            unsafe {
                match self.of.kind {
                    BagKind::Sum | BagKind::Mean => self.sum(bag, &mut wide),
                    BagKind::ArgMax => self.greatest(bag),
                }
            }
        }
    }

    /// The positions of a bag that count.
    fn counted(&self, bag: usize) -> impl Iterator<Item = usize> + '_ {
        let padding = self.of.padding.map_or(-1, |row| row as i64);
        (self.bounds[bag]..self.bounds[bag + 1]).filter(move |&at| self.indices[at] != padding)
    }

    /// The row of an index.
    ///
    /// # Safety
    /// As [`Bags::go`].
    unsafe fn row(&self, at: usize) -> *const T {
        // SAFETY: the index is a row.
        unsafe { self.table.add(self.indices[at] as usize * self.features) }
    }

    /// # Safety
    /// As [`Bags::go`].
    unsafe fn sum(&self, bag: usize, wide: &mut [f64]) {
        let n = self.features;
        let (length, count) = (self.bounds[bag + 1] - self.bounds[bag], self.counted(bag).count());
        let out = self.out.at::<T>(bag * n);
        // SAFETY: the output has the bag's row, and elements of zero bytes are 0.
        let clear = || unsafe { out.write_bytes(0, n) };
        clear();
        wide.fill(0.0);
        for (k, at) in self.counted(bag).enumerate() {
            if k > 0 && k % GROUP == 0 {
                self.join(out, wide);
                clear();
            }
            // SAFETY: the caller's promise; the table is no output.
            unsafe {
                let row = self.row(at);
                match self.weights.map(|weights| weights.add(at).read()) {
                    None => map2(self.isa, out.cast_const(), row, out, n, |sum: T, x: T| sum.plus(x)),
                    Some(w) => {
                        map2(self.isa, out.cast_const(), row, out, n, |sum: T, x: T| sum.plus(x.times(w)))
                    }
                }
            }
        }
        let long = length > GROUP;
        if long {
            self.join(out, wide);
        }
        if long || self.of.kind == BagKind::Mean {
            let by = if self.of.kind == BagKind::Mean { count.max(1) as f64 } else { 1.0 };
            for (j, &sum) in wide.iter().enumerate() {
                // SAFETY: as above.
                unsafe {
                    let sum = if long { sum } else { out.add(j).read().wide() };
                    out.add(j).write(T::narrowed(sum / by));
                }
            }
        }
    }

    /// Adds the sums of a group of rows to those of the bag.
    fn join(&self, sums: *const T, wide: &mut [f64]) {
        // SAFETY: the output's row has as many elements, written before.
        wide.iter_mut().enumerate().for_each(|(j, wide)| *wide += unsafe { sums.add(j).read() }.wide());
    }

    /// # Safety
    /// As [`Bags::go`].
    unsafe fn greatest(&self, bag: usize) {
        let out = self.out.at::<i32>(bag * self.features);
        for j in 0..self.features {
            let mut best: Option<(T, i64)> = None;
            for at in self.counted(bag) {
                // SAFETY: the caller's promise.
                let x = unsafe { self.row(at).add(j).read() };
                if best.is_none_or(|(y, _)| x > y || x.is_nan() && !y.is_nan()) {
                    best = Some((x, self.indices[at]));
                }
            }
            // SAFETY: the output has the bag's row.
            unsafe { out.add(j).write(best.map_or(-1, |(_, row)| row as i32)) };
        }
    }
}
