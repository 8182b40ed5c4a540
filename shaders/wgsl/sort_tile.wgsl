// The first step of a sort, one workgroup for each block of 1024 elements along the axis: a bitonic network
// (Batcher 1968) in workgroup memory. Equal keys are compared by index, which makes the sort stable.
// Header: as sort_block.

var<workgroup> keys: array<Key, 1024>;
var<workgroup> indices: array<u32, 1024>;

fn kernel(workgroup_index: u32, local_index: u32) {
    // Every invocation stays to the end because of the barriers; surplus workgroups repeat the last block.
    let g = min(workgroup_index, params.total - 1u);
    let line = g / params.blocks;
    let block = g - line * params.blocks;
    let begin = block * 1024u;
    let count = min(1024u, params.length - begin);
    let base = input_at(line);
    for (var i = local_index; i < 1024u; i += 256u) {
        // Padding elements have the greatest key and an index beyond all others.
        keys[i] = last_key();
        indices[i] = begin + i;
        if (i < count) {
            keys[i] = element(base, begin + i);
        }
    }
    workgroupBarrier();
    for (var run = 2u; run <= 1024u; run <<= 1u) {
        for (var step = run >> 1u; step > 0u; step >>= 1u) {
            for (var pair = local_index; pair < 512u; pair += 256u) {
                let i = 2u * pair - (pair & (step - 1u));
                let j = i + step;
                let key_i = keys[i];
                let key_j = keys[j];
                let index_i = indices[i];
                let index_j = indices[j];
                let swapped = less(key_j, key_i) || (!less(key_i, key_j) && index_j < index_i);
                if (swapped == ((i & run) == 0u)) {
                    keys[i] = key_j;
                    keys[j] = key_i;
                    indices[i] = index_j;
                    indices[j] = index_i;
                }
            }
            workgroupBarrier();
        }
    }
    if (workgroup_index < params.total) {
        for (var i = local_index; i < min(count, params.width); i += 256u) {
            put(line, block * params.width + i, keys[i], indices[i]);
        }
    }
}
