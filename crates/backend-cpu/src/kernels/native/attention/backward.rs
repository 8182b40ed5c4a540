//! The backward pass. It computes the weights of each tile again from the log-sum-exp that the forward pass
//! stored.
//!
//! With P the weights and dP = gradient · valueᵀ, the gradient of the scores is dS = P ∘ (dP − Σ P ∘ dP);
//! the sum equals that of gradient ∘ out. If there are at least as many batch positions as threads, each
//! batch position is one task, which computes a tile once for all three results. Otherwise tasks are blocks
//! of queries, for the gradient of the queries, and then blocks of keys, for those of keys and values.
#![allow(unsafe_code)]

use std::ops::Range;

use super::{
    Problem, Source,
    tile::{LANES, Lanes, Score, SoftmaxBackward, product},
    with_room,
};
use crate::{
    kernels::product::{
        micro_kernel::MicroTile,
        operands::{Matrix, Update},
    },
    memory::{buffer::Memory, strided},
    threads,
    tuning::{ATTENTION_KEYS, ATTENTION_QUERIES},
};

/// Keys of a task of its own.
const TASK_KEYS: usize = 4 * ATTENTION_KEYS;

/// The results of the forward pass, and the gradient with respect to its output.
pub(super) struct Given<'a> {
    pub(super) out: Source<'a>,
    pub(super) logarithms: Source<'a>,
    pub(super) gradient: Source<'a>,
}

/// The results that a task computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    Query,
    KeyAndValue,
}

pub(super) fn run<T: Score>(problem: &Problem<'_, T>, given: &Given<'_>, results: [Memory; 3]) {
    let p = problem;
    let task = |batch, queries, keys, wanted| Task { p, given, results, batch, keys, wanted }.run(queries);
    if !p.is_large() || p.batches >= threads::available() {
        return p.share(p.batches, |batch| task(batch, 0..p.rows, 0..p.keys, Wanted::All));
    }
    let blocks = p.rows.div_ceil(ATTENTION_QUERIES);
    p.share(p.batches * blocks, |i| {
        let start = i % blocks * ATTENTION_QUERIES;
        task(i / blocks, start..p.rows.min(start + ATTENTION_QUERIES), 0..p.keys, Wanted::Query);
    });
    let blocks = p.keys.div_ceil(TASK_KEYS);
    p.share(p.batches * blocks, |i| {
        let start = i % blocks * TASK_KEYS;
        let keys = start..p.keys.min(start + TASK_KEYS);
        task(i / blocks, 0..p.rows, keys, Wanted::KeyAndValue);
    });
}

struct Task<'a, T: Score> {
    p: &'a Problem<'a, T>,
    given: &'a Given<'a>,
    /// The gradients of query, key and value.
    results: [Memory; 3],
    batch: usize,
    keys: Range<usize>,
    wanted: Wanted,
}

/// A block of queries.
struct Block<'a, T> {
    queries: Range<usize>,
    /// Queries and gradients, transposed (columns) and as rows: groups of features.
    query_columns: &'a mut [Lanes<T>],
    gradient_columns: &'a mut [Lanes<T>],
    query_rows: &'a mut [Lanes<T>],
    gradient_rows: &'a mut [Lanes<T>],
    logarithms: &'a mut [Lanes<T>],
    sums: &'a mut [Lanes<T>],
    /// The gradient with respect to the queries, transposed.
    result: &'a mut [Lanes<T>],
}

impl<T: Score> Task<'_, T> {
    fn run(&self, queries: Range<usize>) {
        let p = self.p;
        if self.wanted != Wanted::Query {
            for (result, width) in [(self.results[1], p.width), (self.results[2], p.features)] {
                let at = result.at::<T>((self.batch * p.keys + self.keys.start) * width);
                // SAFETY: `of_launch` checked that the result has `keys` rows of `width` for each batch
                // position; these keys belong to this task alone.
                unsafe { std::slice::from_raw_parts_mut(at, self.keys.len() * width) }.fill(T::ZERO);
            }
        }
        let most = queries.len().min(ATTENTION_QUERIES);
        let groups = most.div_ceil(LANES);
        let (width_groups, feature_groups) = (p.width.div_ceil(LANES), p.features.div_ceil(LANES));
        let tile = ATTENTION_KEYS.min(p.keys) * groups;
        let needed =
            (2 * p.width + p.features + 2) * groups + most * (width_groups + feature_groups) + 3 * tile;
        with_room::<T, _>(needed, |mut room| {
            let mut block = Block {
                queries: 0..0,
                query_columns: room.take(p.width * groups),
                gradient_columns: room.take(p.features * groups),
                query_rows: room.take(most * width_groups),
                gradient_rows: room.take(most * feature_groups),
                logarithms: room.take(groups),
                sums: room.take(groups),
                result: room.take(p.width * groups),
            };
            let tiles = [room.take(tile), room.take(tile), room.take(tile)];
            let [scores, gradients, spare] = tiles;
            for start in queries.clone().step_by(ATTENTION_QUERIES) {
                block.queries = start..queries.end.min(start + ATTENTION_QUERIES);
                let seen = self.keys.end.min(p.seen(block.queries.end));
                if seen <= self.keys.start && self.wanted == Wanted::KeyAndValue {
                    continue;
                }
                self.load(&mut block);
                for start in (self.keys.start..seen).step_by(ATTENTION_KEYS) {
                    let keys = start..seen.min(start + ATTENTION_KEYS);
                    self.tile(&mut block, &keys, scores, gradients, spare);
                }
                if self.wanted != Wanted::KeyAndValue {
                    self.store(&mut block, seen > self.keys.start);
                }
            }
        });
    }

    /// Copies a block's inputs to its buffers.
    fn load(&self, block: &mut Block<'_, T>) {
        let (p, given, batch, queries) = (self.p, self.given, self.batch, &block.queries);
        let (query, gradient) = (p.query.matrix::<T>(batch), given.gradient.matrix::<T>(batch));
        let groups = queries.len().div_ceil(LANES);
        // SAFETY: `queries` is part of the `rows` of both matrices, by `check_custom` and `of_launch`, and
        // `Task::run` gave the block's buffers room for them.
        unsafe {
            p.transposed(query, queries, p.width, p.scale, block.query_columns);
            p.transposed(gradient, queries, p.features, T::ONE, block.gradient_columns);
            if self.wanted != Wanted::Query {
                self.rows(query, queries, p.width, block.query_rows);
                self.rows(gradient, queries, p.features, block.gradient_rows);
            }
        }
        let scaled = &mut block.query_rows[..queries.len() * p.width.div_ceil(LANES)];
        p.isa.run(super::Scaled { numbers: scaled.as_flattened_mut(), by: p.scale });
        let out = given.out.matrix::<T>(batch);
        // The log-sum-exp has no last axis; it is read as a matrix with one column.
        let (logarithms, stride) = self.logarithms();
        let (block_logarithms, sums) =
            (block.logarithms[..groups].as_flattened_mut(), block.sums[..groups].as_flattened_mut());
        // A lane without a query gets weights of 0.
        block_logarithms.fill(T::INFINITY);
        sums.fill(T::ZERO);
        for (i, query) in queries.clone().enumerate() {
            let mut sum = T::ZERO;
            for feature in 0..p.features {
                // SAFETY: both matrices have `rows` rows of `features`, by `check_custom`; `query` and
                // `feature` are below these.
                let (x, y) =
                    unsafe { (out.element(query, feature).read(), gradient.element(query, feature).read()) };
                sum = sum + x * y;
            }
            sums[i] = sum;
            // SAFETY: the log-sum-exp has a number for each of the `rows` queries, by `check_custom`.
            block_logarithms[i] = unsafe { logarithms.wrapping_offset(query as isize * stride).read() };
        }
    }

    /// The address and the stride of the batch position's log-sum-exp.
    fn logarithms(&self) -> (*const T, isize) {
        let Source { memory, layout } = self.given.logarithms;
        let (shape, strides) = (layout.shape(), layout.strides());
        let lead = shape.rank() - 1;
        let (mut at, mut batch) = (layout.offset() as isize, self.batch);
        for axis in (0..lead).rev() {
            at += (batch % shape[axis]) as isize * strides[axis];
            batch /= shape[axis];
        }
        (memory.at::<T>(0).cast_const().wrapping_offset(at), strides[lead])
    }

    /// Copies rows, each padded to whole groups.
    ///
    /// # Safety
    /// The rows are within the matrix, and `to` has room for a row of whole groups for each.
    unsafe fn rows(&self, matrix: Matrix<T>, rows: &Range<usize>, width: usize, to: &mut [Lanes<T>]) {
        let (from, strides) = (matrix.element(rows.start, 0), [matrix.row, matrix.column]);
        let to_strides = [width.next_multiple_of(LANES) as isize, 1];
        // SAFETY: the rows are within the matrix by `# Safety`, and `to` has room for `rows.len()` rows,
        // `to_strides` apart.
        unsafe {
            strided::block(
                self.p.isa,
                [rows.len(), width],
                from,
                strides,
                to.as_mut_ptr().cast(),
                to_strides,
            );
        }
    }

    /// Adds a tile's contribution to the gradients.
    fn tile(
        &self,
        block: &mut Block<'_, T>,
        keys: &Range<usize>,
        scores: &mut [Lanes<T>],
        gradients: &mut [Lanes<T>],
        spare: &mut [Lanes<T>],
    ) {
        let (p, batch, queries) = (self.p, self.batch, &block.queries);
        let groups = queries.len().div_ceil(LANES);
        let columns = groups * LANES;
        let count = keys.len() * groups;
        let (scores, gradients, spare) = (&mut scores[..count], &mut gradients[..count], &mut spare[..count]);
        p.scores(batch, queries, keys, block.query_columns, scores, spare);
        let (key, value) = (p.key.matrix::<T>(batch), p.value.matrix::<T>(batch));
        let of_weights = MicroTile {
            terms: p.features,
            a: value.element(keys.start, 0),
            a_row: value.row,
            a_term: 1,
            b: block.gradient_columns.as_ptr().cast(),
            b_term: columns as isize,
            to: gradients.as_mut_ptr().cast(),
            to_row: columns,
            last: 0,
            update: Update::Set,
        };
        // SAFETY: the keys are within the matrix, whose features are contiguous; tiles are whole groups.
        unsafe { product(&p.kernels, keys.len(), columns, &of_weights) };
        let kept = p.draw(batch, queries, keys, spare).map(|draw| p.isa.run(draw));
        let softmax = SoftmaxBackward {
            scores: &mut *scores,
            gradients: &mut *gradients,
            kept: kept.map(|()| &*spare),
            logarithms: &block.logarithms[..groups],
            sums: &block.sums[..groups],
        };
        T::with_exp(p.isa, softmax);
        if self.wanted != Wanted::Query {
            let [_, of_key, of_value] = self.results;
            let first = batch * p.keys + keys.start;
            let rows = [
                (&*gradients, &*block.query_rows, of_key, p.width),
                (&*scores, &*block.gradient_rows, of_value, p.features),
            ];
            for (left, right, result, width) in rows {
                let tile = MicroTile {
                    terms: queries.len(),
                    a: left.as_ptr().cast(),
                    a_row: columns as isize,
                    a_term: 1,
                    b: right.as_ptr().cast(),
                    b_term: width.next_multiple_of(LANES) as isize,
                    to: result.at::<T>(first * width),
                    to_row: width,
                    last: 0,
                    update: Update::Add,
                };
                // SAFETY: these keys' results belong to this task and begin as zeros; rows are whole
                // groups.
                unsafe { product(&p.kernels, keys.len(), width, &tile) };
            }
        }
        if self.wanted != Wanted::KeyAndValue {
            let tile = MicroTile {
                terms: keys.len(),
                a: key.element(keys.start, 0),
                a_row: 1,
                a_term: key.row,
                b: gradients.as_ptr().cast(),
                b_term: columns as isize,
                to: block.result.as_mut_ptr().cast(),
                to_row: columns,
                last: 0,
                update: Update::adds(keys.start > self.keys.start),
            };
            // SAFETY: the keys are within the matrix, whose features are contiguous; tiles are whole
            // groups.
            unsafe { product(&p.kernels, p.width, columns, &tile) };
        }
    }

    /// Writes the gradient with respect to a block of queries.
    fn store(&self, block: &mut Block<'_, T>, any: bool) {
        let (p, queries) = (self.p, &block.queries);
        let groups = queries.len().div_ceil(LANES);
        let result = &mut block.result[..p.width * groups];
        if !any {
            result.fill([T::ZERO; LANES]);
        }
        // The queries were scaled before the product, so their gradient is scaled as well.
        p.isa.run(super::Scaled { numbers: result.as_flattened_mut(), by: p.scale });
        let to = self.results[0].at::<T>((self.batch * p.rows + queries.start) * p.width);
        let (sizes, strides) = ([queries.len(), p.width], [1, (groups * LANES) as isize]);
        // SAFETY: the first result has `rows` rows of `width` for each batch position, by `check_custom`;
        // these queries belong to this task alone.
        unsafe {
            strided::block(p.isa, sizes, result.as_ptr().cast(), strides, to, [p.width as isize, 1]);
        }
    }
}
