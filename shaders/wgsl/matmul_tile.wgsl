// output[b, i, j] = Σₖ lhs[b, i, k] · rhs[b, k, j]: a tile of 64 × 64 a workgroup, 16 deep, 4 × 4 results a thread.
// Header: alias T, `params` with `m`, `n`, `k`, `tiles_m`, `tiles_n`, `groups`, `lhs_row`, `lhs_col`, `rhs_row`, `rhs_col`;
// bindings `lhs`, `rhs`, `output`; functions lhs_at(b), rhs_at(b), store(x).

// Two columns of padding keep the rows of the left tile out of each other's memory banks.
var<workgroup> lhs_tile: array<T, 1056>;
var<workgroup> rhs_tile: array<T, 1024>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) group_count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = group_id.y * group_count.x + group_id.x;
    let tile_n = group % params.tiles_n;
    let tile_m = (group / params.tiles_n) % params.tiles_m;
    let batch = min(group, params.groups - 1u) / (params.tiles_n * params.tiles_m);
    let lhs_base = lhs_at(batch);
    let rhs_base = rhs_at(batch);
    let row0 = tile_m * 64u;
    let col0 = tile_n * 64u;
    let ty = (lane / 16u) * 4u;
    let tx = (lane % 16u) * 4u;
    var acc: array<array<T, 4>, 4>;
    for (var k0 = 0u; k0 < params.k; k0 += 16u) {
        for (var e = lane; e < 1024u; e += 256u) {
            // Neighbouring lanes read along whichever axis of the operand is dense.
            var r = e / 16u;
            var c = e % 16u;
            if (params.lhs_row == 1u) {
                r = e % 64u;
                c = e / 64u;
            }
            var x = T();
            if (row0 + r < params.m && k0 + c < params.k) {
                x = lhs[lhs_base + (row0 + r) * params.lhs_row + (k0 + c) * params.lhs_col];
            }
            lhs_tile[c * 66u + r] = x;
            r = e / 64u;
            c = e % 64u;
            if (params.rhs_row == 1u) {
                r = e % 16u;
                c = e / 16u;
            }
            x = T();
            if (k0 + r < params.k && col0 + c < params.n) {
                x = rhs[rhs_base + (k0 + r) * params.rhs_row + (col0 + c) * params.rhs_col];
            }
            rhs_tile[r * 64u + c] = x;
        }
        workgroupBarrier();
        for (var kk = 0u; kk < 16u; kk += 1u) {
            var a: array<T, 4>;
            var b: array<T, 4>;
            for (var r = 0u; r < 4u; r += 1u) {
                a[r] = lhs_tile[kk * 66u + ty + r];
                b[r] = rhs_tile[kk * 64u + tx + r];
            }
            for (var r = 0u; r < 4u; r += 1u) {
                for (var c = 0u; c < 4u; c += 1u) {
                    acc[r][c] += a[r] * b[c];
                }
            }
        }
        workgroupBarrier();
    }
    if (group >= params.groups) {
        return;
    }
    for (var r = 0u; r < 4u; r += 1u) {
        for (var c = 0u; c < 4u; c += 1u) {
            let row = row0 + ty + r;
            let col = col0 + tx + c;
            if (row < params.m && col < params.n) {
                output[(batch * params.m + row) * params.n + col] = store(acc[r][c]);
            }
        }
    }
}
