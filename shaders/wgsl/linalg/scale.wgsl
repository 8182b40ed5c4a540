// A power of two that brings the greatest magnitude of each matrix between ½ and 4, and its reciprocal;
// both are normal numbers. If an element is not finite, both are 1 and the matrix's code is 1. One
// workgroup for each matrix. params: batch, rows.
var<workgroup> shares: array<T, 64>;

fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index;
    if (b >= params.batch) {
        return;
    }
    var most = T(0);
    for (var r = local_index; r < params.rows; r += 64u) {
        let x = mosts[b * params.rows + r];
        most = select(max(most, x), T(-1), x < T(0) || most < T(0));
    }
    shares[local_index] = most;
    workgroupBarrier();
    if (local_index > 0u) {
        return;
    }
    for (var i = 1u; i < 64u; i++) {
        most = select(max(most, shares[i]), T(-1), shares[i] < T(0) || most < T(0));
    }
    var scale = T(1);
    for (var i = 0u; i < DOUBLINGS && most * scale > T(4); i++) {
        scale *= T(0.5);
    }
    for (var i = 0u; i < DOUBLINGS && most > T(0) && most * scale < T(0.5); i++) {
        scale *= T(2);
    }
    scales[2u * b] = scale;
    scales[2u * b + 1u] = T(1) / scale;
    codes[b] = select(0u, 1u, most < T(0));
}
