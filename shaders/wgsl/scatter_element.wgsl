// output[q] = one_of(output[q], src[p]) with q = p with axis := index[p], gathered, where output holds base already: each element of the output walks the
// positions along the axis in ascending order and takes what is meant for it. The output may be a part of what is indexed, from
// `start` on.
// Header: alias T, `params` with `total`, `start`, `size`, `length`, `index_stride`, `src_stride`; bindings `index`,
// `src`, `output`, `faults`; functions inside(i), along(i), places(i) (in the index and in src, with the axis at 0),
// index_value(word), report(word) and one_of(a, b).

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total || !inside(i)) {
        return;
    }
    let mine = params.start + along(i);
    let place = places(i);
    var kept = output[i];
    for (var j = 0u; j < params.length; j += 1u) {
        let word = index[place.x + j * params.index_stride];
        let at = index_value(word);
        if (at.y != 0u || at.x >= params.size) {
            if (mine == params.start) {
                report(word);
            }
        } else if (at.x == mine) {
            kept = one_of(kept, src[place.y + j * params.src_stride]);
        }
    }
    output[i] = kept;
}
