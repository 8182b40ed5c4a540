// C −= A·B in tiles of 64 x 64: element (i, j) of C is c[b * batch_stride + offset + i * ld + j]. The
// header has left(b, i, k) and right(b, k, j). If lower is set, tiles above the diagonal are skipped.
// params: batch, down, across (tiles), rows, columns, depth, batch_stride, offset, ld, lower.
var<workgroup> lhs: array<T, 1024>;
var<workgroup> rhs: array<T, 1024>;

fn put(at: u32, j: u32, value: T) {
    if (j < params.columns) {
        c[at + j] -= value;
    }
}

fn put_row(b: u32, i: u32, j: u32, values: vec4<T>) {
    if (i < params.rows) {
        let at = b * params.batch_stride + params.offset + i * params.ld;
        put(at, j, values.x);
        put(at, j + 16u, values.y);
        put(at, j + 32u, values.z);
        put(at, j + 48u, values.w);
    }
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let tiles = params.down * params.across;
    let b = workgroup_index / tiles;
    let i0 = workgroup_index % tiles / params.across * 64u;
    let j0 = workgroup_index % params.across * 64u;
    if (b >= params.batch || (params.lower != 0u && j0 > i0)) {
        return;
    }
    let down = local_index / 16u * 4u;
    let over = local_index % 16u;
    var sum0 = vec4<T>();
    var sum1 = vec4<T>();
    var sum2 = vec4<T>();
    var sum3 = vec4<T>();
    for (var k0 = 0u; k0 < params.depth; k0 += 16u) {
        for (var e = local_index; e < 1024u; e += 256u) {
            let i = i0 + e / 16u;
            let k = k0 + e % 16u;
            var value = T(0);
            if (i < params.rows && k < params.depth) {
                value = left(b, i, k);
            }
            lhs[e % 16u * 64u + e / 16u] = value;
        }
        for (var e = local_index; e < 1024u; e += 256u) {
            let k = k0 + e / 64u;
            let j = j0 + e % 64u;
            var value = T(0);
            if (j < params.columns && k < params.depth) {
                value = right(b, k, j);
            }
            rhs[e] = value;
        }
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            let at = k * 64u;
            let r = vec4<T>(rhs[at + over], rhs[at + over + 16u], rhs[at + over + 32u], rhs[at + over + 48u]);
            sum0 += lhs[at + down] * r;
            sum1 += lhs[at + down + 1u] * r;
            sum2 += lhs[at + down + 2u] * r;
            sum3 += lhs[at + down + 3u] * r;
        }
        workgroupBarrier();
    }
    let i = i0 + down;
    let j = j0 + over;
    put_row(b, i, j, sum0);
    put_row(b, i + 1u, j, sum1);
    put_row(b, i + 2u, j, sum2);
    put_row(b, i + 3u, j, sum3);
}
