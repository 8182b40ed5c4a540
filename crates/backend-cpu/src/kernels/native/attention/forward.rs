//! The forward pass: one pass over the keys for each block of queries, with a running maximum of the scores
//! and a running sum of exponentials.
#![allow(unsafe_code)]

use super::{
    Problem,
    tile::{LANES, Multiply, Rescale, Score, Softmax, product},
    with_room,
};
use crate::{
    kernels::product::{micro_kernel::MicroTile, operands::Update},
    memory::{buffer::Memory, strided},
    tuning::{ATTENTION_KEYS, ATTENTION_QUERIES},
};

pub(super) fn run<T: Score>(problem: &Problem<'_, T>, out: Memory, logarithms: Memory) {
    let blocks = problem.rows.div_ceil(ATTENTION_QUERIES);
    problem.share(problem.batches * blocks, |i| block(problem, i / blocks, i % blocks, out, logarithms));
}

fn block<T: Score>(p: &Problem<'_, T>, batch: usize, block: usize, out: Memory, logarithms: Memory) {
    let queries = block * ATTENTION_QUERIES..p.rows.min((block + 1) * ATTENTION_QUERIES);
    let groups = queries.len().div_ceil(LANES);
    let columns = groups * LANES;
    let tile = ATTENTION_KEYS.min(p.keys) * groups;
    let value = p.value.matrix::<T>(batch);
    with_room::<T, _>((p.width + p.features + 3) * groups + 2 * tile, |mut room| {
        let transposed = room.take(p.width * groups);
        let results = room.take(p.features * groups);
        let (greatest, sums, factors) = (room.take(groups), room.take(groups), room.take(groups));
        let (scores, spare) = (room.take(tile), room.take(tile));
        greatest.fill([T::NEG_INFINITY; LANES]);
        sums.fill([T::ZERO; LANES]);
        // SAFETY: `queries` is part of the `rows` of the matrix, whose span `of_launch` checked;
        // `transposed` has `width` rows of `groups`.
        unsafe { p.transposed(p.query.matrix(batch), &queries, p.width, p.scale, transposed) };
        let seen = p.seen(queries.end);
        if seen == 0 {
            results.fill([T::ZERO; LANES]);
        }
        for start in (0..seen).step_by(ATTENTION_KEYS) {
            let keys = start..seen.min(start + ATTENTION_KEYS);
            let scores = &mut scores[..keys.len() * groups];
            p.scores(batch, &queries, &keys, transposed, scores, spare);
            let softmax = Softmax { scores: &mut *scores, greatest, sums, factors };
            let changed = T::with_exp(p.isa, softmax);
            if changed && start > 0 {
                p.isa.run(Rescale { tile: results, factors });
            }
            if let Some(draw) = p.draw(batch, &queries, &keys, &mut spare[..scores.len()]) {
                p.isa.run(draw);
                p.isa.run(Multiply { tile: scores, by: spare });
            }
            let tile = MicroTile {
                terms: keys.len(),
                a: value.element(keys.start, 0),
                a_row: 1,
                a_term: value.row,
                b: scores.as_ptr().cast(),
                b_term: columns as isize,
                to: results.as_mut_ptr().cast(),
                to_row: columns,
                last: 0,
                update: Update::adds(start > 0),
            };
            // SAFETY: the keys are within the value matrix, whose features are contiguous; tiles are whole
            // groups.
            unsafe { product(&p.kernels, p.features, columns, &tile) };
        }
        for (factors, sums) in factors.iter_mut().zip(&*sums) {
            for (factor, &sum) in factors.iter_mut().zip(sums) {
                // A query that sees no keys gets zeros; NaN stays.
                *factor = if sum == T::ZERO { T::ZERO } else { sum.reciprocal() };
            }
        }
        p.isa.run(Rescale { tile: results, factors });
        let first = batch * p.rows + queries.start;
        let (greatest, sums) = (greatest.as_flattened(), sums.as_flattened());
        for i in 0..queries.len() {
            let logarithm = match sums[i] == T::ZERO {
                true => T::INFINITY,
                false => greatest[i] + sums[i].ln(),
            };
            // SAFETY: the output has a number for each of the `rows` queries of each batch position, by
            // `check_custom`, and each query belongs to one block.
            unsafe { logarithms.at::<T>(first + i).write(logarithm) };
        }
        let (sizes, strides) = ([queries.len(), p.features], [1, columns as isize]);
        let to = out.at::<T>(first * p.features);
        // SAFETY: the output has `rows` rows of `features` for each batch position, by `check_custom`, and
        // each query belongs to one block.
        unsafe {
            strided::block(p.isa, sizes, results.as_ptr().cast(), strides, to, [p.features as isize, 1])
        };
    });
}
