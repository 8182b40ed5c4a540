// The LDLᵀ factorization of each symmetric matrix of w, in place, with Bunch-Kaufman pivots; only the lower
// triangle is read. One workgroup for each matrix. L is stored below D, whose blocks of one or two rows are
// on the diagonal. pivots[b][k] is the row, counted from 1, that row k was exchanged with; both rows of a
// block of two hold its negative, and the second row is the exchanged one. params: batch, size.
var<workgroup> plan: vec2<u32>;

fn element(b: u32, i: u32, j: u32) -> u32 {
    return (b * params.size + i) * params.size + j;
}

fn exchange(first: u32, second: u32) {
    let kept = w[first];
    w[first] = w[second];
    w[second] = kept;
}

// The row to exchange with row k (or with the second row of a block of two at k), and the number of rows of
// the block.
fn choose(b: u32, k: u32) -> vec2<u32> {
    let n = params.size;
    let own = abs(w[element(b, k, k)]);
    var most = T(0);
    var row = k;
    for (var i = k + 1u; i < n; i++) {
        let size = abs(w[element(b, i, k)]);
        if (size > most) {
            most = size;
            row = i;
        }
    }
    if (own >= BUNCH_KAUFMAN * most || is_nan(own)) {
        return vec2<u32>(k, 1u);
    }
    var beside = T(0);
    for (var j = k; j < n; j++) {
        if (j != row) {
            beside = max(beside, abs(w[select(element(b, j, row), element(b, row, j), j < row)]));
        }
    }
    if (own >= BUNCH_KAUFMAN * most * quotient(most, beside)) {
        return vec2<u32>(k, 1u);
    }
    if (abs(w[element(b, row, row)]) >= BUNCH_KAUFMAN * beside) {
        return vec2<u32>(row, 1u);
    }
    return vec2<u32>(row, 2u);
}

// Exchanges rows and columns `a` and `c` of the trailing part from `k` on.
fn turn(b: u32, k: u32, a: u32, c: u32) {
    for (var i = c + 1u; i < params.size; i++) {
        exchange(element(b, i, a), element(b, i, c));
    }
    for (var i = a + 1u; i < c; i++) {
        exchange(element(b, i, a), element(b, c, i));
    }
    exchange(element(b, a, a), element(b, c, c));
    if (a > k) {
        exchange(element(b, a, k), element(b, c, k));
    }
}

// The two elements of L in row i for the block of two at k.
fn both(b: u32, i: u32, k: u32) -> vec2<T> {
    let across = w[element(b, k + 1u, k)];
    let first = quotient(w[element(b, k, k)], across);
    let second = quotient(w[element(b, k + 1u, k + 1u)], across);
    let scale = quotient(T(1) / (first * second - T(1)), across);
    let x = w[element(b, i, k)];
    let y = w[element(b, i, k + 1u)];
    return vec2<T>(scale * (second * x - y), scale * (first * y - x));
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index;
    if (b >= params.batch) {
        return;
    }
    let n = params.size;
    var k = 0u;
    while (k < n) {
        if (local_index == 0u) {
            let chosen = choose(b, k);
            plan = chosen;
            let last = k + chosen.y - 1u;
            if (chosen.x != last) {
                turn(b, k, last, chosen.x);
            }
            let place = T(chosen.x + 1u);
            pivots[b * n + k] = select(-place, place, chosen.y == 1u);
            pivots[b * n + last] = select(-place, place, chosen.y == 1u);
        }
        storageBarrier();
        let width = workgroupUniformLoad(&plan).y;
        let pivot = w[element(b, k, k)];
        let is_zero = width == 1u && pivot == T(0);
        for (var i = k + width + local_index; i < n && !is_zero; i += 64u) {
            if (width == 1u) {
                let factor = quotient(w[element(b, i, k)], pivot);
                for (var j = k + 1u; j <= i; j++) {
                    w[element(b, i, j)] -= factor * w[element(b, j, k)];
                }
            } else {
                let x = w[element(b, i, k)];
                let y = w[element(b, i, k + 1u)];
                for (var j = k + 2u; j <= i; j++) {
                    let l = both(b, j, k);
                    w[element(b, i, j)] -= x * l.x + y * l.y;
                }
            }
        }
        storageBarrier();
        for (var i = k + width + local_index; i < n && !is_zero; i += 64u) {
            if (width == 1u) {
                w[element(b, i, k)] = quotient(w[element(b, i, k)], pivot);
            } else {
                let l = both(b, i, k);
                w[element(b, i, k)] = l.x;
                w[element(b, i, k + 1u)] = l.y;
            }
        }
        storageBarrier();
        k += width;
    }
}
