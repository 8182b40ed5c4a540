// A cumulative operation, one workgroup for each chunk of a line along the axis. The workgroup processes
// tiles of 1024 elements one after the other, four to an invocation; the totals become prefixes in
// workgroup memory, in two arrays by turns, so that a step needs one barrier. Header: as cumulative_line,
// but without ROUNDS and identity().

var<workgroup> prefixes: array<State, 512>;

fn kernel(workgroup_index: u32, local_index: u32) {
    // Every invocation stays to the end because of the barriers; surplus workgroups repeat the last chunk.
    let g = min(workgroup_index, params.total - 1u);
    let line = g / params.splits;
    let part = g - line * params.splits;
    let begin = part * params.chunk;
    let end = min(begin + params.chunk, params.length);
    let last = end - 1u;
    let base = input_at(line);
    let output_base = output_at(line);
    var carried = is_carried(part);
    var carry = element(line, base, begin);
    if (carried) {
        carry = before(g, base);
    }
    for (var first = begin; first < end; first += 1024u) {
        let mine = first + local_index * 4u;
        // Positions past the end repeat the last element; they come after everything that is kept.
        var s0 = element(line, base, min(mine, last));
        var s1 = combine(s0, element(line, base, min(mine + 1u, last)));
        var s2 = combine(s1, element(line, base, min(mine + 2u, last)));
        var s3 = combine(s2, element(line, base, min(mine + 3u, last)));
        prefixes[local_index] = s3;
        workgroupBarrier();
        // After an even number of steps the prefixes are in the first array again.
        var start = 0u;
        for (var step = 1u; step < 256u; step <<= 1u) {
            var sum = prefixes[start + local_index];
            if (local_index >= step) {
                sum = combine(prefixes[start + local_index - step], sum);
            }
            start = 256u - start;
            prefixes[start + local_index] = sum;
            workgroupBarrier();
        }
        if (local_index > 0u) {
            let earlier = prefixes[local_index - 1u];
            s0 = combine(earlier, s0);
            s1 = combine(earlier, s1);
            s2 = combine(earlier, s2);
            s3 = combine(earlier, s3);
        }
        var tile = prefixes[255];
        if (carried) {
            s0 = combine(carry, s0);
            s1 = combine(carry, s1);
            s2 = combine(carry, s2);
            s3 = combine(carry, s3);
            tile = combine(carry, tile);
        }
        carry = tile;
        carried = true;
        if (workgroup_index < params.total) {
            if (mine < end) {
                keep(g, output_base, mine, last, s0);
            }
            if (mine + 1u < end) {
                keep(g, output_base, mine + 1u, last, s1);
            }
            if (mine + 2u < end) {
                keep(g, output_base, mine + 2u, last, s2);
            }
            if (mine + 3u < end) {
                keep(g, output_base, mine + 3u, last, s3);
            }
        }
        workgroupBarrier();
    }
}
