// The places of each matrix's numbers in their order, descending or not, and which number is at each place:
// an invocation has a number. Equal ones are in the order that they come in. params: total, count,
// descending.
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
