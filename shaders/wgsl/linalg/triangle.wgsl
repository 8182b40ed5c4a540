// Solves T·X = B, where T is a diagonal block of a triangular matrix, width long and wide. One invocation
// for each column. X replaces B in x: element i of column c of matrix b is x[b * batch_stride + offset + i
// * along + c * across]. The header has triangle(b, i, j), the block's elements, and the constants UPPER
// and UNIT. params: batch, strips, right, width, batch_stride, offset, along, across.
var<workgroup> tile: array<T, BLOCK * BLOCK>;

fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index / params.strips;
    let c = workgroup_index % params.strips * 64u + local_index;
    if (b >= params.batch) {
        return;
    }
    for (var e = local_index; e < BLOCK * BLOCK; e += 64u) {
        let i = e / BLOCK;
        let j = e % BLOCK;
        if (i < params.width && j < params.width && (i == j || (i < j) == UPPER)) {
            tile[e] = triangle(b, i, j);
        }
    }
    workgroupBarrier();
    if (c >= params.right) {
        return;
    }
    let base = b * params.batch_stride + params.offset + c * params.across;
    let last = params.width - 1u;
    for (var k = 0u; k < params.width; k++) {
        let i = select(k, last - k, UPPER);
        var rest = x[base + i * params.along];
        for (var q = 0u; q < k; q++) {
            let j = select(q, last - q, UPPER);
            rest -= tile[i * BLOCK + j] * x[base + j * params.along];
        }
        if (!UNIT) {
            rest = quotient(rest, tile[i * BLOCK + i]);
        }
        x[base + i * params.along] = rest;
    }
}
