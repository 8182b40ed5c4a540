// The rotations of one round of two-sided Jacobi for each symmetric matrix of w; one invocation computes
// one pair. moved[b] is set if an off-diagonal element was not small. params: batch, pairs, size, round.
fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 64u + local_index;
    let b = i / params.pairs;
    if (b >= params.batch) {
        return;
    }
    let both = pair(i % params.pairs, params.round, 2u * params.pairs);
    var turn = vec2<T>(T(1), T(0));
    if (done[b] == 0u && both.y < params.size) {
        let base = b * params.size * params.size;
        let g = w[base + both.x * params.size + both.y];
        // Matrices are scaled so that the greatest element is about 1.
        if (abs(g) > EPSILON * T(0.25)) {
            moved[b] = 1u;
        }
        if (g != T(0)) {
            turn = rotation(
                w[base + both.x * params.size + both.x],
                w[base + both.y * params.size + both.y],
                g,
            );
        }
    }
    turns[2u * i] = turn.x;
    turns[2u * i + 1u] = turn.y;
}
