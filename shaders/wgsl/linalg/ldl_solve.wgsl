// Solves A·X = B with the factors of ldl.wgsl; X replaces B in x. One invocation for each column of a
// matrix. params: batch, size, right, total.
fn kernel(workgroup_index: u32, local_index: u32) {
    let index = workgroup_index * 64u + local_index;
    if (index >= params.total) {
        return;
    }
    let n = params.size;
    let right = params.right;
    let b = index / right;
    let base = b * n * right + index % right;
    let matrix = b * n * n;
    var k = 0u;
    while (k < n) {
        let place = pivots[b * n + k];
        let other = min(u32(max(abs(place) - T(1), T(0))), n - 1u);
        let width = select(1u, 2u, place < T(0) && k + 1u < n);
        let last = k + width - 1u;
        let kept = x[base + last * right];
        x[base + last * right] = x[base + other * right];
        x[base + other * right] = kept;
        let first = x[base + k * right];
        let second = x[base + last * right];
        for (var i = k + width; i < n; i++) {
            var sum = ld[matrix + i * n + k] * first;
            if (width == 2u) {
                sum += ld[matrix + i * n + k + 1u] * second;
            }
            x[base + i * right] -= sum;
        }
        if (width == 1u) {
            x[base + k * right] = quotient(first, ld[matrix + k * n + k]);
        } else {
            let across = ld[matrix + last * n + k];
            let upper = quotient(ld[matrix + k * n + k], across);
            let lower = quotient(ld[matrix + last * n + last], across);
            let rest = upper * lower - T(1);
            x[base + k * right] = (lower * quotient(first, across) - quotient(second, across)) / rest;
            x[base + last * right] = (upper * quotient(second, across) - quotient(first, across)) / rest;
        }
        k += width;
    }
    while (k > 0u) {
        let place = pivots[b * n + k - 1u];
        let other = min(u32(max(abs(place) - T(1), T(0))), n - 1u);
        let width = select(1u, 2u, place < T(0) && k > 1u);
        for (var c = k - width; c < k; c++) {
            var sum = x[base + c * right];
            for (var i = k; i < n; i++) {
                sum -= ld[matrix + i * n + c] * x[base + i * right];
            }
            x[base + c * right] = sum;
        }
        let kept = x[base + (k - 1u) * right];
        x[base + (k - 1u) * right] = x[base + other * right];
        x[base + other * right] = kept;
        k -= width;
    }
}
