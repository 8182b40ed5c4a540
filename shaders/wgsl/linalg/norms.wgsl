// The length of each row; one workgroup for each row. params: total, length.
var<workgroup> shares: array<T, 64>;

fn kernel(workgroup_index: u32, local_index: u32) {
    if (workgroup_index >= params.total) {
        return;
    }
    var sum = T(0);
    for (var i = local_index; i < params.length; i += 64u) {
        let x = w[workgroup_index * params.length + i];
        sum += x * x;
    }
    shares[local_index] = sum;
    workgroupBarrier();
    if (local_index == 0u) {
        sum = T(0);
        for (var i = 0u; i < 64u; i++) {
            sum += shares[i];
        }
        lengths[workgroup_index] = sqrt(sum);
    }
}
