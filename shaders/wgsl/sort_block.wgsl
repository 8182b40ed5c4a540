// The first step of a sort, one invocation for each block of 16 elements along the axis: a stable insertion
// sort.
// Header: alias Word and Key, `params` with `total`, `length`, `blocks`, `width` (the most elements kept of
// a block); bindings `input` and outputs; functions input_at(line), element(base, r) (a key), last_key(),
// less(a, b) and put(line, place, key, index).

fn kernel(workgroup_index: u32, local_index: u32) {
    let g = workgroup_index * 64u + local_index;
    if (g >= params.total) {
        return;
    }
    let line = g / params.blocks;
    let block = g - line * params.blocks;
    let begin = block * 16u;
    let count = min(16u, params.length - begin);
    let base = input_at(line);
    var keys: array<Key, 16>;
    var indices: array<u32, 16>;
    for (var i = 0u; i < count; i += 1u) {
        let key = element(base, begin + i);
        var at = i;
        while (at > 0u && less(key, keys[at - 1u])) {
            keys[at] = keys[at - 1u];
            indices[at] = indices[at - 1u];
            at -= 1u;
        }
        keys[at] = key;
        indices[at] = begin + i;
    }
    for (var i = 0u; i < min(count, params.width); i += 1u) {
        put(line, block * params.width + i, keys[i], indices[i]);
    }
}
