// output = base; output[p with axis := index[p]] += src[p], gathered: each element of the output walks the positions
// along the axis in ascending order and takes what is meant for it.
// Header: alias T and IndexWord, `params` with `first_group`, `total`, `size`, `length`, `index_stride`, `src_stride`; bindings `base`,
// `index`, `src`, `output`, `status`; functions base_at(i), inside(i), along(i), index_at(i), src_at(i) (with the axis at 0),
// index_value(word), load(x), store(x), add(a, b) and const OP.

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
    var sum = base[base_at(i)];
    if (inside(i)) {
        let mine = along(i);
        let index_base = index_at(i);
        let src_base = src_at(i);
        for (var j = 0u; j < params.length; j += 1u) {
            let word = index[index_base + j * params.index_stride];
            let at = index_value(word);
            if (at.y != 0u || at.x >= params.size) {
                if (mine == 0u) {
                    report(word);
                }
            } else if (at.x == mine) {
                sum = add(sum, src[src_base + j * params.src_stride]);
            }
        }
    }
    output[i] = store(sum);
}
