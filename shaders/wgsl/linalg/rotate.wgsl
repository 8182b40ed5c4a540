// One round of one-sided Jacobi rotations: makes the columns of W, stored as the rows of w, orthogonal in
// pairs, and rotates the rows of v with them. One workgroup for each pair. moved[b] is set if a pair was
// not orthogonal. params: batch, pairs, columns (how many), length (of each), with_v, round.
var<workgroup> shares: array<vec3<T>, 64>;

fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index / params.pairs;
    if (b >= params.batch || done[b] != 0u) {
        return;
    }
    let both = pair(workgroup_index % params.pairs, params.round, 2u * params.pairs);
    if (both.y >= params.columns) {
        return;
    }
    let x = (b * params.columns + both.x) * params.length;
    let y = (b * params.columns + both.y) * params.length;
    var sums = vec3<T>();
    for (var i = local_index; i < params.length; i += 64u) {
        let p = w[x + i];
        let q = w[y + i];
        sums += vec3<T>(p * p, q * q, p * q);
    }
    shares[local_index] = sums;
    workgroupBarrier();
    if (local_index < 8u) {
        sums = vec3<T>();
        for (var s = local_index; s < 64u; s += 8u) {
            sums += shares[s];
        }
        shares[local_index] = sums;
    }
    workgroupBarrier();
    sums = vec3<T>();
    for (var s = 0u; s < 8u; s++) {
        sums += shares[s];
    }
    // The squares of columns that are negligible beside the others vanish, and the angle between two such
    // columns is arbitrary.
    if (sums.x == T(0) || sums.y == T(0) || max(sums.x, sums.y) < TINY) {
        return;
    }
    let cosine = abs(sums.z) / (sqrt(sums.x) * sqrt(sums.y));
    if (cosine <= EPSILON) {
        return;
    }
    let counts = min(sums.x, sums.y) >= TINY && cosine > EPSILON * sqrt(T(params.length) + T(8));
    if (local_index == 0u && counts) {
        moved[b] = 1u;
    }
    let turn = rotation(sums.x, sums.y, sums.z);
    for (var i = local_index; i < params.length; i += 64u) {
        let p = w[x + i];
        let q = w[y + i];
        w[x + i] = turn.x * p - turn.y * q;
        w[y + i] = turn.y * p + turn.x * q;
    }
    if (params.with_v == 0u) {
        return;
    }
    let vx = (b * params.columns + both.x) * params.columns;
    let vy = (b * params.columns + both.y) * params.columns;
    for (var i = local_index; i < params.columns; i += 64u) {
        let p = v[vx + i];
        let q = v[vy + i];
        v[vx + i] = turn.x * p - turn.y * q;
        v[vy + i] = turn.y * p + turn.x * q;
    }
}
