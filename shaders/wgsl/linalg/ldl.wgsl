// The LDLᵀ factorization of each symmetric matrix of w, of which the lower triangle is read, in place, by the
// pivots of Bunch and Kaufman: a workgroup has a matrix. L is below D, whose blocks of one or two rows are on
// the diagonal; pivots[b][k] is the row, counted from 1, that row k changed places with, and its negative for
// both rows of a block of two, of which the second did. params: batch, size.
var<workgroup> plan: vec2<u32>;

fn element(b: u32, i: u32, j: u32) -> u32 {
    return (b * params.size + i) * params.size + j;
}

fn exchange(first: u32, second: u32) {
    let kept = w[first];
    w[first] = w[second];
    w[second] = kept;
}

// The row that row k, or the second of a block from k on, changes places with, and how many rows the block
// has.
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

// Rows and columns `a` and `c` of the part from `k` on change places.
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

// The two elements of L in row i of a block of two from k on.
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
