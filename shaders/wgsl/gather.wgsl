// output[p] = input[p with axis := index[p]], in runs of elements that one index is for. What an index finds outside the input,
// which may be a part of what is indexed, from `start` on, is left to the other parts.
// Header: alias Word, `params` with `first_workgroup`, `total` (threads), `run` (words of a run), `parts` (threads of a run), `step` (the
// words that one thread moves), `run_stride`, `start`, `count`, `size`, `axis_stride`; bindings `input`, `index`, `output`,
// `faults`; functions places(run) (in the index, and in the input with the axis at its start), index_value(word) and report(word).

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) workgroup_count: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let workgroup_index = params.first_workgroup + workgroup_id.y * workgroup_count.x + workgroup_id.x;
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total) {
        return;
    }
    let run = i / params.parts;
    let begin = (i - run * params.parts) * params.step;
    let end = min(begin + params.step, params.run);
    let goal = run * params.run;
    let place = places(run);
    let word = index[place.x];
    let at = index_value(word);
    if (at.y != 0u || at.x >= params.size) {
        report(word);
        for (var k = begin; k < end; k += 1u) {
            output[goal + k] = Word();
        }
        return;
    }
    // Modulo 2^32, what comes before the part is far behind it.
    let along = at.x - params.start;
    if (along >= params.count) {
        return;
    }
    let source = place.y + along * params.axis_stride;
    for (var k = begin; k < end; k += 1u) {
        output[goal + k] = input[source + k * params.run_stride];
    }
}
