// output[p] = input[p with axis := index[p]].
// Header: alias Word (u32 or vec2<u32>) and IndexWord, `params` with `first_group`, `total`, `size`, `axis`, `axis_stride`; bindings
// `input`, `index`, `output`, `status`; functions input_at(i) (with the axis at 0), index_at(i), index_value(word),
// and const OP.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) group_count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = params.first_group + group_id.y * group_count.x + group_id.x;
    let i = group * 256u + lane;
    if (i >= params.total) {
        return;
    }
    let word = index[index_at(i)];
    let at = index_value(word);
    if (at.y != 0u || at.x >= params.size) {
        report(word);
        output[i] = Word();
        return;
    }
    output[i] = input[input_at(i) + at.x * params.axis_stride];
}
