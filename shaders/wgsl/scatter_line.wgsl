// output[q] = one_of(output[q], src[p]) with q = p with axis := index[p]; output already holds base. One
// invocation owns a line along the axis, or as many lines as a T has elements, and walks it in ascending
// order. The output may be a slice of the indexed tensor: `count` elements from `start` on.
// Header: alias T, `params` with `total`, `start`, `count`, `size`, `length`, `index_stride`, `src_stride`,
// `output_stride`; bindings `index`, `src`, `output`, `faults` with their functions; functions places(line)
// (offsets in the index, in src and in the output, with the axis at 0), index_value(word), report(word) and
// one_of(a, b).

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 32u + local_index;
    if (i >= params.total) {
        return;
    }
    let place = places(i);
    for (var j = 0u; j < params.length; j += 1u) {
        let word = load_index(place.x + j * params.index_stride);
        let at = index_value(word);
        if (at.y != 0u || at.x >= params.size) {
            report(word);
        } else {
            // Modulo 2^32, an index before the slice is far beyond its end.
            let along = at.x - params.start;
            if (along < params.count) {
                let o = place.z + along * params.output_stride;
                store_output(o, one_of(load_output(o), load_src(place.y + j * params.src_stride)));
            }
        }
    }
}
