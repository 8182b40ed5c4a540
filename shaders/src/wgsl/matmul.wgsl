// C[b] = A[b]·B[b] without shared memory: a thread computes a tile of 4 by 4, strides are anything. Suits adapters on which
// barriers are dear. The header gives `alias T`, `ZERO` and `fn narrow(x: T) -> T`.
//
// p: 0 threads, 1 m, 2 n, 3 k, 4 tiles down, 5 tiles across, 6 batch axes, then lhs: offset, row and column strides; rhs: the
// same; then for each batch axis its size and the strides of both.

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let thread = id.x + id.y * (groups.x * 64u);
    if (thread >= p[0]) { return; }
    let m = p[1];
    let n = p[2];
    let k = p[3];
    let column = (thread % p[5]) * 4u;
    let row = (thread / p[5]) % p[4] * 4u;
    var batch = thread / (p[5] * p[4]);
    let out = batch * m * n;
    var a = i32(p[7]);
    var b = i32(p[10]);
    for (var axis = i32(p[6]) - 1; axis >= 0; axis--) {
        let at = 13u + u32(axis) * 3u;
        let i = i32(batch % p[at]);
        batch = batch / p[at];
        a += i * i32(p[at + 1u]);
        b += i * i32(p[at + 2u]);
    }
    let ar = i32(p[8]);
    let ac = i32(p[9]);
    let br = i32(p[11]);
    let bc = i32(p[12]);
    // Rows and columns past the edge read the last one again, and are not written.
    let r = vec4<i32>(min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(m - 1u))) * ar + a;
    let c = vec4<i32>(min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(n - 1u))) * bc + b;
    var s0 = vec4<T>(ZERO);
    var s1 = vec4<T>(ZERO);
    var s2 = vec4<T>(ZERO);
    var s3 = vec4<T>(ZERO);
    for (var x = 0; x < i32(k); x++) {
        let y = x * br;
        let right = vec4<T>(rhs[c.x + y], rhs[c.y + y], rhs[c.z + y], rhs[c.w + y]);
        let z = x * ac;
        s0 += lhs[r.x + z] * right;
        s1 += lhs[r.y + z] * right;
        s2 += lhs[r.z + z] * right;
        s3 += lhs[r.w + z] * right;
    }
    for (var j = 0u; j < 4u && column + j < n; j++) {
        let to = out + row * n + column + j;
        output[to] = narrow(s0[j]);
        if (row + 1u < m) { output[to + n] = narrow(s1[j]); }
        if (row + 2u < m) { output[to + 2u * n] = narrow(s2[j]); }
        if (row + 3u < m) { output[to + 3u * n] = narrow(s3[j]); }
    }
}
