// The first pass of a segmented scatter: the key of each position of an index, which is the coordinate that
// it names in the output, or NO_KEY if that is out of range or outside the slice. The output may be a slice
// of the indexed tensor: `count` elements from `start` on.
// Header: `params` with `total`, `start`, `count`, `size`; bindings `index`, `keys`, `faults`; functions
// index_at(i) (offset of position i), index_value(word) and report(word); const NO_KEY.

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total) {
        return;
    }
    let word = load_index(index_at(i));
    let at = index_value(word);
    if (at.y != 0u || at.x >= params.size) {
        report(word);
        keys[i] = NO_KEY;
        return;
    }
    // Modulo 2^32, an index before the slice is far beyond its end.
    let along = at.x - params.start;
    keys[i] = select(NO_KEY, along, along < params.count);
}
