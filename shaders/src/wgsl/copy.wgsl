// Strided copy of up to six axes. The header gives `alias T`.
// p: 0 elements, 1 source offset, 2 target offset, 3 axes, then for each axis its size and the strides of both.

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = id.x + id.y * (groups.x * 256u);
    if (i >= p[0]) { return; }
    var rest = i;
    var source = i32(p[1]);
    var to = i32(p[2]);
    for (var axis = i32(p[3]) - 1; axis >= 0; axis--) {
        let at = 4u + u32(axis) * 3u;
        let j = i32(rest % p[at]);
        rest = rest / p[at];
        source += j * i32(p[at + 1u]);
        to += j * i32(p[at + 2u]);
    }
    output[to] = input[source];
}
