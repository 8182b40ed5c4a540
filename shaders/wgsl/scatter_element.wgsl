// output[q] = one_of(output[q], src[p]) with q = p with axis := index[p], in gather form; output already
// holds base. Each element of the output walks the positions along the axis in ascending order and takes
// the values whose index names it. The output may be a slice of the indexed tensor that begins at `start`.
// Header: alias T, const EACH (neighbours that an invocation makes), `params` with `total`, `start`,
// `size`, `length`, `index_stride`, `src_stride`; bindings `index`, `src`, `output`, `faults` with their
// functions; functions inside(i), along(i), places(i) (offsets in the index and in src, with the axis at
// 0), index_value(word), report(word), one_of(a, b), and put(first), which stores element(i) of each
// neighbour.

fn element(i: u32) -> T {
    var kept = load_output(i);
    if (!inside(i)) {
        return kept;
    }
    let mine = params.start + along(i);
    let place = places(i);
    for (var j = 0u; j < params.length; j += 1u) {
        let word = load_index(place.x + j * params.index_stride);
        let at = index_value(word);
        if (at.y != 0u || at.x >= params.size) {
            if (mine == params.start) {
                report(word);
            }
        } else if (at.x == mine) {
            kept = one_of(kept, load_src(place.y + j * params.src_stride));
        }
    }
    return kept;
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let first = (workgroup_index * 256u + local_index) * EACH;
    if (first < params.total) {
        put(first);
    }
}
