// The sorted position of each of a matrix's numbers, ascending or descending, and the number at each
// position. One invocation for each number. The order is stable. params: total, count, descending.
fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 64u + local_index;
    if (i >= params.total) {
        return;
    }
    let base = i / params.count * params.count;
    let mine = numbers[i];
    var place = 0u;
    for (var other = base; other < base + params.count; other++) {
        let x = numbers[other];
        let is_before = select((x < mine), (x > mine), params.descending != 0u);
        if (is_before || (x == mine && other < i)) {
            place++;
        }
    }
    at_place[base + place] = i - base;
}
