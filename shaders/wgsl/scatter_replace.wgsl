// One pass over the positions of an index or of a source. It visits the output element that each position
// names, with the position's number along the axis, counted from 1 (its turn). The header decides the
// action of a visit: a first pass clears the turns of the elements, a second finds the last turn of each,
// and a third copies the source of that turn to the output. The output may be a slice of the indexed
// tensor: `count` elements from `start` on.
// Header: `params` with `total`, `start`, `count`, `size`, `length`, `axis_step` (positions from one turn
// to the next), `turn_stride` (of the turns along the axis); bindings `index`, `turns`, `faults`; functions
// places(i) (offsets in the index, and in the turns with the axis at 0), index_value(word), report(word)
// and visit(i, along, offset in turns, turn).

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
    // Modulo 2^32, an index before the slice is far beyond its end.
    let along = at.x - params.start;
    if (along < params.count) {
        visit(i, along, place.y + along * params.turn_stride, (i / params.axis_step) % params.length + 1u);
    }
}
