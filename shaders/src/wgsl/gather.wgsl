// p: 0 elements, 1 launch, 2 size of the axis, 3 stride of the axis, 4 input offset, 5 index offset, 6 axes, then for each axis
// its size and the strides of the input (0 along the axis) and the index.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = id.x + id.y * (groups.x * 256u);
    if (i >= p[0]) { return; }
    var rest = i;
    var source = i32(p[4]);
    var at_index = i32(p[5]);
    for (var axis = i32(p[6]) - 1; axis >= 0; axis--) {
        let at = 7u + u32(axis) * 3u;
        let j = i32(rest % p[at]);
        rest = rest / p[at];
        source += j * i32(p[at + 1u]);
        at_index += j * i32(p[at + 2u]);
    }
    let chosen = index[at_index];
    if (is_bad(chosen, p[2])) {
        note(chosen);
        output[i] = T(0);
        return;
    }
    output[i] = input[source + i32(chosen) * i32(p[3])];
}
