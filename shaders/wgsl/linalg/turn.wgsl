// Applies the rotations of a round: W becomes Jᵀ·W·J, and the rows of v, which are the columns of V, are
// rotated. An invocation computes the four elements of w where two pairs meet and their mirror images, or
// two elements of v. params: batch, pairs, size, blocks and of_v (invocations of a matrix's w and v),
// round.
fn rotated(b: u32, k: u32) -> vec2<T> {
    let at = 2u * (b * params.pairs + k);
    return vec2<T>(turns[at], turns[at + 1u]);
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 64u + local_index;
    let n = params.size;
    let each = params.blocks + params.of_v;
    let b = i / each;
    if (b >= params.batch || done[b] != 0u) {
        return;
    }
    let base = b * n * n;
    let e = i % each;
    let players = 2u * params.pairs;
    if (e >= params.blocks) {
        let k = (e - params.blocks) / n;
        let column = (e - params.blocks) % n;
        let both = pair(k, params.round, players);
        if (both.y < n) {
            let turn = rotated(b, k);
            let x = base + both.x * n + column;
            let y = base + both.y * n + column;
            let p = v[x];
            let q = v[y];
            v[x] = turn.x * p - turn.y * q;
            v[y] = turn.y * p + turn.x * q;
        }
        return;
    }
    let k = e / params.pairs;
    let l = e % params.pairs;
    if (k > l) {
        return;
    }
    let rows = pair(k, params.round, players);
    let columns = pair(l, params.round, players);
    let has_row = rows.y < n;
    let has_column = columns.y < n;
    let of_rows = rotated(b, k);
    let of_columns = rotated(b, l);
    // With an odd size, a row paired with the padding row is left unchanged.
    var xx = w[base + rows.x * n + columns.x];
    var xy = T(0);
    var yx = T(0);
    var yy = T(0);
    if (has_column) {
        xy = w[base + rows.x * n + columns.y];
    }
    if (has_row) {
        yx = w[base + rows.y * n + columns.x];
        if (has_column) {
            yy = w[base + rows.y * n + columns.y];
        }
    }
    let upper = of_rows.x * vec2<T>(xx, xy) - of_rows.y * vec2<T>(yx, yy);
    let lower = of_rows.y * vec2<T>(xx, xy) + of_rows.x * vec2<T>(yx, yy);
    xx = of_columns.x * upper.x - of_columns.y * upper.y;
    xy = of_columns.y * upper.x + of_columns.x * upper.y;
    yx = of_columns.x * lower.x - of_columns.y * lower.y;
    yy = of_columns.y * lower.x + of_columns.x * lower.y;
    if (k == l && of_rows.y != T(0)) {
        xy = T(0);
        yx = T(0);
    }
    w[base + rows.x * n + columns.x] = xx;
    w[base + columns.x * n + rows.x] = xx;
    if (has_column) {
        w[base + rows.x * n + columns.y] = xy;
        w[base + columns.y * n + rows.x] = xy;
    }
    if (has_row) {
        w[base + rows.y * n + columns.x] = yx;
        w[base + columns.x * n + rows.y] = yx;
        if (has_column) {
            w[base + rows.y * n + columns.y] = yy;
            w[base + columns.y * n + rows.y] = yy;
        }
    }
}
