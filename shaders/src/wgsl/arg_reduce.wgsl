// The index of an extreme along an axis; the first among equals. The header gives `alias T` and `fn better(a: T, b: T) -> bool`.
// p: 0 results, 1 length and 2 stride of the axis, 3 offset, 4 axes, then for each kept axis its size and stride.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = id.x + id.y * (groups.x * 256u);
    if (i >= p[0]) { return; }
    var rest = i;
    var source = i32(p[3]);
    for (var axis = i32(p[4]) - 1; axis >= 0; axis--) {
        let at = 5u + u32(axis) * 2u;
        source += i32(rest % p[at]) * i32(p[at + 1u]);
        rest = rest / p[at];
    }
    var best = 0;
    var value = input[source];
    for (var j = 1; j < i32(p[1]); j++) {
        let other = input[source + j * i32(p[2])];
        if (better(other, value)) {
            best = j;
            value = other;
        }
    }
    output[i] = best;
}
