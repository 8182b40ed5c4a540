// Ends a sweep of rotations: a matrix that needed no rotation is done. After the last sweep, a matrix that
// is not done gets the code 2. params: batch, last.
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
