// output[p] = input[p with axis := index[p]], in runs of elements that share one index. The input may be a
// slice of the indexed tensor that begins at `start`; an index outside the slice is left to the kernels of
// the other slices.
// Header: alias Word, `params` with `total` (invocations), `run` (words of a run), `parts` (invocations of
// a run), `step` (words that one invocation moves), `run_stride`, `start`, `count`, `size`, `axis_stride`;
// bindings `input`, `index`, `output`, `faults` with their functions; functions places(run) (offsets in the
// index, and in the input with the axis at its start), index_value(word) and report(word).

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total) {
        return;
    }
    let run = i / params.parts;
    let begin = (i - run * params.parts) * params.step;
    let end = min(begin + params.step, params.run);
    let goal = run * params.run;
    let place = places(run);
    let word = load_index(place.x);
    let at = index_value(word);
    if (at.y != 0u || at.x >= params.size) {
        report(word);
        for (var k = begin; k < end; k += 1u) {
            store_output(goal + k, Word());
        }
        return;
    }
    // Modulo 2^32, an index before the slice is far beyond its end.
    let along = at.x - params.start;
    if (along >= params.count) {
        return;
    }
    let source = place.y + along * params.axis_stride;
    for (var k = begin; k < end; k += 1u) {
        store_output(goal + k, load_input(source + k * params.run_stride));
    }
}
