// C −= V·T·Vᵀ·C, or C −= V·Tᵀ·Vᵀ·C if transposed, for a panel of reflections. One workgroup for BLOCK
// columns of a matrix, from column first on. Element (r, j) of C is c[(b * rows + r) * ld + j]. The header
// has reflector(b, r, i), the elements of V below its diagonal. params: batch, strips, rows, ld, start,
// width, first, right, panel, panels, transposed.
var<workgroup> factor: array<T, BLOCK * BLOCK>;
var<workgroup> product: array<T, BLOCK * BLOCK>;

fn vector(b: u32, r: u32, i: u32) -> T {
    let diagonal = params.start + i;
    if (r <= diagonal) {
        return select(T(0), T(1), r == diagonal);
    }
    return reflector(b, r, diagonal);
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index / params.strips;
    if (b >= params.batch) {
        return;
    }
    let over = local_index % BLOCK;
    let down = local_index / BLOCK;
    let j = workgroup_index % params.strips * BLOCK + over;
    let is_there = j < params.right;
    let column = params.first + j;
    factor[local_index] = factors[(b * params.panels + params.panel) * BLOCK * BLOCK + local_index];
    var sum = T(0);
    if (is_there && down < params.width) {
        for (var r = params.start + down; r < params.rows; r++) {
            sum += vector(b, r, down) * c[(b * params.rows + r) * params.ld + column];
        }
    }
    product[local_index] = sum;
    workgroupBarrier();
    sum = T(0);
    for (var q = 0u; q < params.width; q++) {
        let at = select(down * BLOCK + q, q * BLOCK + down, params.transposed != 0u);
        sum += factor[at] * product[q * BLOCK + over];
    }
    workgroupBarrier();
    product[local_index] = sum;
    workgroupBarrier();
    if (!is_there) {
        return;
    }
    for (var r = params.start + down; r < params.rows; r += BLOCK) {
        sum = T(0);
        for (var i = 0u; i < params.width; i++) {
            sum += vector(b, r, i) * product[i * BLOCK + over];
        }
        c[(b * params.rows + r) * params.ld + column] -= sum;
    }
}
