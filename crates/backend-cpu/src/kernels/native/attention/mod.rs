//! Attention in tiles of queries and keys, after Dao (FlashAttention-2, 2023): only one tile of the scores
//! is in memory at a time.
//!
//! A tile has its queries along the registers: scores are keys by queries, and results are features by
//! queries. So keys and values are read in place, as the left operands of products, and only a block of
//! queries is transposed. [`tile`] has the operations on a tile, [`forward`] and [`backward`] the passes. A
//! result's bits do not depend on the number of threads.
#![allow(unsafe_code)]

mod backward;
mod forward;
mod tile;

use std::ops::Range;

use tensor_core::{Attention, AttentionPass, DType, Kernel, Launch, Layout, Result};

use self::tile::{Draw, LANES, Lanes, Masked, Score, Seen};
use super::custom::{Native, for_float};
use crate::{
    CpuBackend,
    kernels::product::{
        kernel_table::MicroKernels,
        micro_kernel::MicroTile,
        operands::{Matrix, Update},
    },
    memory::{
        buffer::{Bound, Memory},
        strided,
    },
    simd::isa::Isa,
    threads,
    tuning::SERIAL_STEPS,
};

/// The number of queries up to which the caller's whole products are faster: products with one row or few
/// rows have their own kernels.
const FEW_QUERIES: usize = 8;

impl Native for Attention {
    fn supports(kernel: &Kernel) -> bool {
        let [query, ..] = &kernel.operands[..] else { return false };
        let rows = query.layout.shape().iter().rev().nth(1);
        matches!(query.dtype, DType::F32 | DType::F64) && rows.is_some_and(|&rows| rows > FEW_QUERIES)
    }

    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        for_float!(self, launch, typed(backend, self, launch))
    }
}

fn typed<T: Score>(backend: &CpuBackend, attention: &Attention, launch: &Launch<'_>) -> Result<()> {
    let (isa, kernel) = (backend.isa, launch.kernel);
    let bound = Bound::of_launch(&backend.pool, launch)?;
    let source = |k: usize| Source { memory: bound.inputs[k], layout: &kernel.operands[k].layout };
    let (query, mut key, mut value) = (source(0), source(1), source(2));
    // The products read keys and values along contiguous features.
    let (key_copy, value_copy) = (key.side_by_side::<T>(isa), value.side_by_side::<T>(isa));
    for (source, copy) in [(&mut key, &key_copy), (&mut value, &value_copy)] {
        if let Some((elements, layout)) = copy {
            let ptr = elements.as_ptr().cast_mut().cast();
            *source = Source { memory: Memory { ptr, numel: elements.len(), ..source.memory }, layout };
        }
    }
    let (shape, features) = (query.layout.shape(), value.layout.shape()[value.layout.shape().rank() - 1]);
    let lead = shape.rank() - 2;
    let mut next = attention.pass.inputs();
    let mask = attention.mask.then(|| source(next));
    next += usize::from(attention.mask);
    let draws = attention.dropout.map(|p| {
        let place = source(next);
        let word = |i: isize| {
            let at =
                place.memory.at::<u32>(place.layout.offset()).wrapping_offset(i * place.layout.strides()[0]);
            // SAFETY: `check_custom` accepted only u32 [4], and `of_launch` checked its span; i < 4.
            u64::from(unsafe { at.read() })
        };
        let number = |i: isize| word(i) | word(i + 1) << 32;
        Draws { p, seed: number(0), first: number(2) }
    });
    let problem = Problem::<T> {
        isa,
        kernels: T::micro_kernels(isa),
        batches: shape[..lead].iter().product(),
        rows: shape[lead],
        keys: key.layout.shape()[lead],
        width: shape[lead + 1],
        features,
        scale: T::rounded(attention.scale),
        causal: attention.causal,
        query,
        key,
        value,
        mask,
        draws,
    };
    let output = |k: usize| bound.outputs[k];
    match attention.pass {
        AttentionPass::Forward => forward::run(&problem, output(0), output(1)),
        AttentionPass::Backward => {
            let given = backward::Given { out: source(3), logarithms: source(4), gradient: source(5) };
            backward::run(&problem, &given, [output(0), output(1), output(2)]);
        }
    }
    Ok(())
}

/// An input: a buffer and its layout.
#[derive(Clone, Copy)]
struct Source<'a> {
    memory: Memory,
    layout: &'a Layout,
}

impl Source<'_> {
    /// The matrix of a batch position, from the last two axes.
    fn matrix<T>(&self, mut batch: usize) -> Matrix<T> {
        let (shape, strides) = (self.layout.shape(), self.layout.strides());
        let lead = shape.rank() - 2;
        let mut at = self.layout.offset() as isize;
        for axis in (0..lead).rev() {
            at += (batch % shape[axis]) as isize * strides[axis];
            batch /= shape[axis];
        }
        let start = self.memory.at::<T>(0).cast_const();
        Matrix { at: start.wrapping_offset(at), row: strides[lead], column: strides[lead + 1] }
    }

    /// A row-major copy, if the stride of the last axis is not 1.
    fn side_by_side<T: Score>(&self, isa: Isa) -> Option<(Vec<T>, Layout)> {
        let (shape, strides) = (self.layout.shape(), self.layout.strides());
        if shape[shape.rank() - 1] < 2 || strides[shape.rank() - 1] == 1 {
            return None;
        }
        let layout = Layout::contiguous(shape.clone());
        let mut copy = vec![T::ZERO; self.layout.numel()];
        let from = self.memory.at::<T>(0).wrapping_add(self.layout.offset()).cast_const();
        // SAFETY: `of_launch` checked the layout against its buffer, and the vector has as many elements.
        unsafe { strided::copy(isa, shape, from, strides, copy.as_mut_ptr(), layout.strides()) };
        Some((copy, layout))
    }
}

/// The dropout probability, and the position of the draws in the random stream.
#[derive(Clone, Copy)]
struct Draws {
    p: f64,
    seed: u64,
    first: u64,
}

/// The inputs of both passes. The layouts were checked against their buffers.
struct Problem<'a, T: Score> {
    isa: Isa,
    kernels: MicroKernels<T>,
    batches: usize,
    /// L, S, E and V of `scaled_dot_product_attention`.
    rows: usize,
    keys: usize,
    width: usize,
    features: usize,
    scale: T,
    causal: Option<usize>,
    query: Source<'a>,
    key: Source<'a>,
    value: Source<'a>,
    mask: Option<Source<'a>>,
    draws: Option<Draws>,
}

impl<T: Score> Problem<'_, T> {
    /// The number of keys that some query before `end` sees; they are the first ones.
    fn seen(&self, end: usize) -> usize {
        self.causal.map_or(self.keys, |first| self.keys.min(first.saturating_add(end)))
    }

    /// Whether the work is large enough for several threads.
    fn is_large(&self) -> bool {
        let each = self.rows.saturating_mul(self.keys).saturating_mul(self.width + self.features);
        threads::available() > 1 && each.saturating_mul(self.batches) >= SERIAL_STEPS
    }

    /// Calls `f` with each number below `count`, on several threads if the work is large.
    fn share(&self, count: usize, f: impl Fn(usize) + Sync) {
        match self.is_large() {
            true => threads::share(count, f),
            false => (0..count).for_each(f),
        }
    }

    /// Transposes a block of rows of a matrix, multiplied by `scale`; groups of columns are padded with
    /// zeros.
    ///
    /// # Safety
    /// The rows are within the matrix, and `to` has room for `width` rows of whole groups.
    unsafe fn transposed(
        &self,
        matrix: Matrix<T>,
        rows: &Range<usize>,
        width: usize,
        scale: T,
        to: &mut [Lanes<T>],
    ) {
        let groups = rows.len().div_ceil(LANES);
        if !rows.len().is_multiple_of(LANES) {
            to[..width * groups].fill([T::ZERO; LANES]);
        }
        let (from, to_strides) = (matrix.element(rows.start, 0), [(groups * LANES) as isize, 1]);
        let strides = [matrix.column, matrix.row];
        // SAFETY: by `# Safety` the rows are within the matrix, and `to` has `width` rows of `groups`.
        unsafe {
            let to = to.as_mut_ptr().cast();
            strided::block(self.isa, [width, rows.len()], from, strides, to, to_strides);
        }
        self.isa.run(Scaled { numbers: to[..width * groups].as_flattened_mut(), by: scale });
    }

    /// Computes the scores of a tile, keys by queries; a key that a query does not see gets −∞.
    /// `transposed` holds the transposed, scaled queries; `room` has space for a tile of the mask.
    fn scores(
        &self,
        batch: usize,
        queries: &Range<usize>,
        keys: &Range<usize>,
        transposed: &[Lanes<T>],
        scores: &mut [Lanes<T>],
        room: &mut [Lanes<T>],
    ) {
        let groups = queries.len().div_ceil(LANES);
        let columns = groups * LANES;
        let key = self.key.matrix::<T>(batch);
        let tile = MicroTile {
            terms: self.width,
            a: key.element(keys.start, 0),
            a_row: key.row,
            a_term: 1,
            b: transposed.as_ptr().cast(),
            b_term: columns as isize,
            to: scores.as_mut_ptr().cast(),
            to_row: columns,
            last: 0,
            update: Update::Set,
        };
        // SAFETY: the keys are within their matrix, whose features are contiguous; the tiles are whole
        // groups.
        unsafe { tile::product(&self.kernels, keys.len(), columns, &tile) };
        if let Some(mask) = &self.mask {
            self.masked(mask, batch, queries, keys, scores, room);
        }
        if let Some(first) = self.causal {
            // Query i sees the keys up to first + i.
            for (key, row) in keys.clone().zip(scores.chunks_exact_mut(groups)) {
                let blind = key.saturating_sub(first.saturating_add(queries.start)).min(columns);
                row.as_flattened_mut()[..blind].fill(T::NEG_INFINITY);
            }
        }
    }

    /// The dropout draws of a tile, if the attention has dropout.
    fn draw<'t>(
        &self,
        batch: usize,
        queries: &Range<usize>,
        keys: &Range<usize>,
        to: &'t mut [Lanes<T>],
    ) -> Option<Draw<'t, T>> {
        let Draws { p, seed, first } = self.draws?;
        let position = (queries.start as u64)
            .wrapping_mul(self.batches as u64)
            .wrapping_add(batch as u64)
            .wrapping_mul(self.keys as u64)
            .wrapping_add(keys.start as u64);
        let groups = queries.len().div_ceil(LANES);
        let query = (self.batches as u64).wrapping_mul(self.keys as u64);
        Some(Draw { to, groups, seed, first: first.wrapping_add(position), query, p })
    }

    fn masked(
        &self,
        mask: &Source<'_>,
        batch: usize,
        queries: &Range<usize>,
        keys: &Range<usize>,
        scores: &mut [Lanes<T>],
        room: &mut [Lanes<T>],
    ) {
        let columns = queries.len().div_ceil(LANES) * LANES;
        let (sizes, to_strides) = ([keys.len(), queries.len()], [columns as isize, 1]);
        let count = scores.len();
        // SAFETY: the tile is within the mask's matrix, whose layout was checked against its buffer. The
        // room is as large as the scores; all its elements are initialised, and those beyond the queries
        // have arbitrary values.
        unsafe {
            if mask.memory.dtype == DType::Bool {
                let from = mask.matrix::<u8>(batch);
                let (at, strides) = (from.element(queries.start, keys.start), [from.column, from.row]);
                let to: *mut u8 = room.as_mut_ptr().cast();
                strided::block(self.isa, sizes, at, strides, to, to_strides);
                let mask = std::slice::from_raw_parts(to.cast::<Lanes<Seen>>(), count);
                self.isa.run(Masked { scores, mask });
            } else {
                let from = mask.matrix::<T>(batch);
                let (at, strides) = (from.element(queries.start, keys.start), [from.column, from.row]);
                strided::block(self.isa, sizes, at, strides, room.as_mut_ptr().cast(), to_strides);
                self.isa.run(Masked { scores, mask: &room[..count] });
            }
        }
    }
}

/// Multiplies numbers by one factor.
struct Scaled<'a, T> {
    numbers: &'a mut [T],
    by: T,
}

impl<T: Score> crate::simd::isa::Job for Scaled<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for x in self.numbers {
            *x = *x * self.by;
        }
    }
}

/// Scratch space for tiles, cut from a thread's memory.
struct Room<'a, T>(&'a mut [Lanes<T>]);

impl<'a, T> Room<'a, T> {
    /// Takes the next `groups` groups.
    fn take(&mut self, groups: usize) -> &'a mut [Lanes<T>] {
        let (taken, rest) = std::mem::take(&mut self.0).split_at_mut(groups);
        self.0 = rest;
        taken
    }
}

/// Calls `f` with room for `groups` groups, whose contents are arbitrary numbers.
fn with_room<T: Score, R>(groups: usize, f: impl FnOnce(Room<'_, T>) -> R) -> R {
    crate::kernels::product::gemm::with_packed::<T, R>(groups * LANES, |at| {
        // SAFETY: `with_packed` gives this call room for `groups * LANES` numbers, all initialised.
        f(Room(unsafe { std::slice::from_raw_parts_mut(at.cast(), groups) }))
    })
}
