// One thread for each output element walks the index along the axis in ascending order: the same sum every time, no atomics.
// p: 0 elements, 1 launch, 2 size of the axis, 3 length of the index along it, 4 base offset, 5 index offset, 6 src offset, 7
// stride of the index and 8 of src along the axis, 9 the axis, 10 axes, then for each axis the output's size, the index's size,
// and the strides of base, index and src.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = id.x + id.y * (groups.x * 256u);
    if (i >= p[0]) { return; }
    var rest = i;
    var source = i32(p[4]);
    var at_index = i32(p[5]);
    var at_src = i32(p[6]);
    var place = 0u;
    var within = true;
    for (var axis = i32(p[10]) - 1; axis >= 0; axis--) {
        let at = 11u + u32(axis) * 5u;
        let j = rest % p[at];
        rest = rest / p[at];
        source += i32(j) * i32(p[at + 2u]);
        if (u32(axis) == p[9]) {
            place = j;
        } else {
            within = within && j < p[at + 1u];
            at_index += i32(j) * i32(p[at + 3u]);
            at_src += i32(j) * i32(p[at + 4u]);
        }
    }
    var sum = base[source];
    if (within) {
        for (var j = 0; j < i32(p[3]); j++) {
            let chosen = index[at_index + j * i32(p[7])];
            if (is_bad(chosen, p[2])) {
                note(chosen);
            } else if (u32(chosen) == place) {
                sum = narrow(sum + src[at_src + j * i32(p[8])]);
            }
        }
    }
    output[i] = sum;
}
