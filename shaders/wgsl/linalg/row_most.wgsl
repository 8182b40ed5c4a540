// The greatest magnitude of each row, or −1 if an element is not finite. One invocation for each row.
// params: total, columns.
fn kernel(workgroup_index: u32, local_index: u32) {
    let row = workgroup_index * 64u + local_index;
    if (row >= params.total) {
        return;
    }
    var most = T(0);
    for (var i = 0u; i < params.columns; i++) {
        let x = w[row * params.columns + i];
        if (is_nan(x) || is_inf(x)) {
            most = T(-1);
            break;
        }
        most = max(most, abs(x));
    }
    mosts[row] = most;
}
