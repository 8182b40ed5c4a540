// The second step of a pass of a radix sort, one workgroup for each digit of a line: the counts of the
// digit become its occurrences in the tiles before, and their sum is stored after all counts.
// Header: `params` with `total` (digits of all lines), `tiles` (of a line), `sums` (the place of the first
// sum); binding `counts`.

var<workgroup> prefixes: array<u32, 512>;

fn kernel(workgroup_index: u32, local_index: u32) {
    // Every invocation stays to the end because of the barriers; surplus workgroups repeat the last digit,
    // and store nothing.
    let g = min(workgroup_index, params.total - 1u);
    let base = g * params.tiles;
    var before = 0u;
    for (var first = 0u; first < params.tiles; first += 256u) {
        let tile = first + local_index;
        let is_tile = tile < params.tiles;
        let own = select(0u, counts[base + min(tile, params.tiles - 1u)], is_tile);
        prefixes[local_index] = own;
        workgroupBarrier();
        // After an even number of steps the prefixes are in the first half again.
        var start = 0u;
        for (var step = 1u; step < 256u; step <<= 1u) {
            var sum = prefixes[start + local_index];
            if (local_index >= step) {
                sum += prefixes[start + local_index - step];
            }
            start = 256u - start;
            prefixes[start + local_index] = sum;
            workgroupBarrier();
        }
        if (is_tile && workgroup_index < params.total) {
            counts[base + tile] = before + prefixes[local_index] - own;
        }
        before += prefixes[255];
        workgroupBarrier();
    }
    if (local_index == 0u && workgroup_index < params.total) {
        counts[params.sums + g] = before;
    }
}
