// One invocation turns one pair.
fn kernel(workgroup_index: u32, local_index: u32) {
    let pair = workgroup_index * 64u + local_index;
    if (pair >= params.pairs) {
        return;
    }
    let angle = select(1.0, -1.0, params.back == 1u) * angles[pair % params.angles];
    let a = x[2u * pair];
    let b = x[2u * pair + 1u];
    y[2u * pair] = a * cos(angle) - b * sin(angle);
    y[2u * pair + 1u] = a * sin(angle) + b * cos(angle);
}
