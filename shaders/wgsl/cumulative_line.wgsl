// A cumulative operation, one invocation for each chunk of a line along the axis; it walks the chunk in
// order. Neighbouring invocations have neighbouring lines.
// Header: alias State, `params` with `total`, `lines`, `length`, `splits`, `chunk`; functions
// input_at(line), output_at(line), element(line, base, r), combine(a, b) (a comes first), identity(),
// is_carried(part) (whether elements come before the first of a chunk), before(g, base) (the state of those
// before chunk g) and keep(g, base, r, last, state), which receives the state up to element r of chunk g;
// const ROUNDS if additions round. With ROUNDS, sums of 16 and of 256 elements are kept apart, which limits
// the growth of the error. No chunk is empty.

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 64u + local_index;
    if (i >= params.total) {
        return;
    }
    let part = i / params.lines;
    let line = i - part * params.lines;
    let g = line * params.splits + part;
    let begin = part * params.chunk;
    let end = min(begin + params.chunk, params.length);
    let base = input_at(line);
    let output_base = output_at(line);
    let last = end - 1u;
    var total = element(line, base, begin);
    if (is_carried(part)) {
        total = combine(before(g, base), total);
    }
    keep(g, output_base, begin, last, total);
    if (ROUNDS) {
        var middle = identity();
        var block = identity();
        var count = 0u;
        for (var r = begin + 1u; r < end; r += 1u) {
            block = combine(block, element(line, base, r));
            count += 1u;
            keep(g, output_base, r, last, combine(total, combine(middle, block)));
            if ((count & 15u) == 0u) {
                middle = combine(middle, block);
                block = identity();
                if ((count & 255u) == 0u) {
                    total = combine(total, middle);
                    middle = identity();
                }
            }
        }
    } else {
        for (var r = begin + 1u; r < end; r += 1u) {
            total = combine(total, element(line, base, r));
            keep(g, output_base, r, last, total);
        }
    }
}
