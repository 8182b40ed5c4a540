// The Cholesky factor of a diagonal block of each matrix of w, in place, from (start, start) on. A
// workgroup factors one matrix, an invocation one element. If a pivot is not positive, its order becomes
// the matrix's code. params: batch, size (of a matrix), start, width.
var<workgroup> tile: array<T, BLOCK * BLOCK>;

fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index;
    if (b >= params.batch) {
        return;
    }
    let i = local_index / BLOCK;
    let j = local_index % BLOCK;
    let at = (b * params.size + params.start + i) * params.size + params.start + j;
    let is_mine = i < params.width && j <= i;
    if (is_mine) {
        tile[local_index] = w[at];
    }
    workgroupBarrier();
    for (var k = 0u; k < params.width; k++) {
        let pivot = tile[k * BLOCK + k];
        let is_good = !is_nan(pivot) && pivot > T(0);
        if (!is_good && local_index == 0u && codes[b] == 0u) {
            codes[b] = params.start + k + 1u;
        }
        let root = sqrt(select(T(1), pivot, is_good));
        workgroupBarrier();
        if (is_mine && j == k) {
            tile[local_index] = select(tile[local_index] / root, root, i == k);
        }
        workgroupBarrier();
        if (is_mine && j > k) {
            tile[local_index] -= tile[i * BLOCK + k] * tile[j * BLOCK + k];
        }
        workgroupBarrier();
    }
    if (is_mine) {
        w[at] = tile[local_index];
    }
}
