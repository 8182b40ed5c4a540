// LU factorization with partial pivoting of columns start .. start + width of each matrix of w, from row
// start on. One workgroup for each matrix. Rows are exchanged over all columns; rows_of[b][i] is the
// original row that is now row i. A column without a pivot is skipped. params: batch, rows, columns, start,
// width, pivots (of a matrix).
var<workgroup> best: array<T, 256>;
var<workgroup> place: array<u32, 256>;

// Keeps the greater of two candidates in the first; of two equal ones, that of the lower row.
fn choose(mine: u32, other: u32) {
    if (best[other] > best[mine] || (best[other] == best[mine] && place[other] < place[mine])) {
        best[mine] = best[other];
        place[mine] = place[other];
    }
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index;
    if (b >= params.batch) {
        return;
    }
    let ld = params.columns;
    let base = b * params.rows * ld;
    let end = params.start + params.width;
    for (var j = params.start; j < end; j++) {
        var most = T(-1);
        var at = j;
        for (var r = j + local_index; r < params.rows; r += 256u) {
            let x = w[base + r * ld + j];
            // A NaN is taken as the pivot, so that it reaches the result.
            let size = select(abs(x), MOST, is_nan(x));
            if (size > most) {
                most = size;
                at = r;
            }
        }
        best[local_index] = most;
        place[local_index] = at;
        workgroupBarrier();
        if (local_index < 16u) {
            for (var s = 16u; s < 256u; s += 16u) {
                choose(local_index, local_index + s);
            }
        }
        workgroupBarrier();
        if (local_index == 0u) {
            for (var s = 1u; s < 16u; s++) {
                choose(0u, s);
            }
        }
        let p = workgroupUniformLoad(&place[0]);
        if (p != j) {
            for (var c = local_index; c < ld; c += 256u) {
                let upper = w[base + j * ld + c];
                w[base + j * ld + c] = w[base + p * ld + c];
                w[base + p * ld + c] = upper;
            }
            if (local_index == 0u) {
                let upper = rows_of[b * params.rows + j];
                rows_of[b * params.rows + j] = rows_of[b * params.rows + p];
                rows_of[b * params.rows + p] = upper;
                // Each exchange changes the sign of the permutation.
                swaps[b] += 1u;
            }
        }
        storageBarrier();
        let pivot = w[base + j * ld + j];
        let is_zero = pivot == T(0) && !is_nan(pivot);
        if (is_zero && local_index == 0u && codes[b] == 0u) {
            codes[b] = j + 1u;
        }
        for (var r = j + 1u + local_index; r < params.rows; r += 256u) {
            let row = base + r * ld;
            if (is_zero) {
                w[row + j] = T(0);
                continue;
            }
            let factor = quotient(w[row + j], pivot);
            w[row + j] = factor;
            for (var c = j + 1u; c < end; c++) {
                w[row + c] -= factor * w[base + j * ld + c];
            }
        }
        storageBarrier();
    }
}
