// Sets each element of a batch of matrices: to[b][r][c] = element(b, r, c), a function of the header.
// params: total, rows, columns.
fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total) {
        return;
    }
    let c = i % params.columns;
    let r = i / params.columns % params.rows;
    to[i] = element(i / params.columns / params.rows, r, c);
}
