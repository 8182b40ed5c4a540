// One pass over the positions of an index, or of a source: visits the place that each means, with the number
// of its turn along the axis, from 1 on. What comes of it is the header's: the turns of places are cleared,
// the last turn of each is found, and then the source of that turn goes to the output. The output may be a
// part of what is indexed: `count` from `start` on. Header: `params` with `total`, `start`, `count`, `size`,
// `length`, `axis_step` (positions from one turn to the next), `turn_stride` (of a place's turns along the
// axis); bindings `index`, `turns`, `faults`; functions places(i) (in the index, and in the turns with the
// axis at 0), index_value(word), report(word) and visit(i, along, turns' place, turn).

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total) {
        return;
    }
    let place = places(i);
    let word = load_index(place.x);
    let at = index_value(word);
    if (at.y != 0u || at.x >= params.size) {
        report(word);
        return;
    }
    // Modulo 2^32, what comes before the part is far behind it.
    let along = at.x - params.start;
    if (along < params.count) {
        visit(i, along, place.y + along * params.turn_stride, (i / params.axis_step) % params.length + 1u);
    }
}
