// output[p with axis := index[p]] += src[p], where output holds base already: one thread owns each line along the axis
// and walks it in ascending order.
// Header: as scatter_element, but for `output_at(line)` (with the axis at 0) and `output_stride`, and no base.

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) group_count: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = params.first_group + group_id.y * group_count.x + group_id.x;
    let i = group * 64u + lane;
    if (i >= params.total) {
        return;
    }
    let index_base = index_at(i);
    let src_base = src_at(i);
    let output_base = output_at(i);
    for (var j = 0u; j < params.length; j += 1u) {
        let word = index[index_base + j * params.index_stride];
        let at = index_value(word);
        if (at.y != 0u || at.x >= params.size) {
            report(word);
        } else {
            let o = output_base + at.x * params.output_stride;
            output[o] = add(output[o], src[src_base + j * params.src_stride]);
        }
    }
}
