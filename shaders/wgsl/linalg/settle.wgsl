// Ends a sweep of rotations: a matrix in which none was needed is done. After the last, one that is not done
// has the code 2. params: batch, last.
fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index * 64u + local_index;
    if (b >= params.batch) {
        return;
    }
    if (moved[b] == 0u || codes[b] != 0u) {
        done[b] = 1u;
    } else if (params.last != 0u) {
        codes[b] = 2u;
    }
    moved[b] = 0u;
}
