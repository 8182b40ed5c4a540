// Householder reflections I − τ·v·vᵀ that make columns start .. start + width of each matrix of w upper
// triangular, from row start on. One workgroup for each matrix. v is 1 at the diagonal, which is not
// stored; the rest of v is stored below it. The product of the reflections is I − V·T·Vᵀ; the upper
// triangular T is stored in factors[b][panel]. params: batch, rows, columns, start, width, panel, panels.
var<workgroup> shares: array<T, 256>;
var<workgroup> dots: array<T, BLOCK>;
var<workgroup> triangle: array<T, BLOCK * BLOCK>;

fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index;
    if (b >= params.batch) {
        return;
    }
    let ld = params.columns;
    let base = b * params.rows * ld;
    let over = local_index % BLOCK;
    let down = local_index / BLOCK;
    let column = params.start + over;
    triangle[local_index] = T(0);
    for (var k = 0u; k < params.width; k++) {
        let j = params.start + k;
        // The greatest magnitude of the column: with this scale no square leaves the range of numbers, even
        // if the column is very small beside the others. The reflection comes from the scaled column alone:
        // a subnormal length has few digits, or is flushed to 0.
        var most = T(0);
        for (var r = j + local_index; r < params.rows; r += 256u) {
            most = max(most, abs(w[base + r * ld + j]));
        }
        shares[local_index] = most;
        workgroupBarrier();
        if (local_index < 16u) {
            for (var s = local_index; s < 256u; s += 16u) {
                most = max(most, shares[s]);
            }
            shares[local_index] = most;
        }
        workgroupBarrier();
        for (var s = 0u; s < 16u; s++) {
            most = max(most, shares[s]);
        }
        most = select(T(1), most, most > T(0));
        workgroupBarrier();
        var sum = T(0);
        for (var r = j + 1u + local_index; r < params.rows; r += 256u) {
            let x = quotient(w[base + r * ld + j], most);
            sum += x * x;
        }
        shares[local_index] = sum;
        workgroupBarrier();
        if (local_index < 16u) {
            sum = T(0);
            for (var s = local_index; s < 256u; s += 16u) {
                sum += shares[s];
            }
            shares[local_index] = sum;
        }
        workgroupBarrier();
        sum = T(0);
        for (var s = 0u; s < 16u; s++) {
            sum += shares[s];
        }
        let alpha = w[base + j * ld + j];
        var beta = alpha;
        var tau = T(0);
        var divisor = T(0);
        if (is_nan(sum) || sum > T(0)) {
            let size = quotient(alpha, most);
            let length = sqrt(size * size + sum);
            let scaled = select(length, -length, alpha >= T(0));
            tau = quotient(scaled - size, scaled);
            divisor = size - scaled;
            beta = scaled * most;
        }
        storageBarrier();
        workgroupBarrier();
        for (var r = j + 1u + local_index; r < params.rows; r += 256u) {
            let x = quotient(w[base + r * ld + j], most);
            w[base + r * ld + j] = select(quotient(x, divisor), T(0), divisor == T(0));
        }
        if (local_index == 0u) {
            w[base + j * ld + j] = beta;
        }
        storageBarrier();
        // Products of v with the later columns, which it reflects, and with the earlier reflections, for T.
        sum = T(0);
        if (over < params.width && over != k) {
            if (down == 0u) {
                sum = w[base + j * ld + column];
            }
            for (var r = j + 1u + down; r < params.rows; r += BLOCK) {
                sum += w[base + r * ld + j] * w[base + r * ld + column];
            }
        }
        shares[local_index] = sum;
        workgroupBarrier();
        if (local_index < BLOCK) {
            sum = T(0);
            for (var s = local_index; s < BLOCK * BLOCK; s += BLOCK) {
                sum += shares[s];
            }
            dots[local_index] = sum;
        }
        workgroupBarrier();
        if (over > k && over < params.width) {
            let share = tau * dots[over];
            if (down == 0u) {
                w[base + j * ld + column] -= share;
            }
            for (var r = j + 1u + down; r < params.rows; r += BLOCK) {
                w[base + r * ld + column] -= w[base + r * ld + j] * share;
            }
        }
        if (local_index < k) {
            sum = T(0);
            for (var q = local_index; q < k; q++) {
                sum += triangle[local_index * BLOCK + q] * dots[q];
            }
            triangle[local_index * BLOCK + k] = -tau * sum;
        } else if (local_index == k) {
            triangle[k * BLOCK + k] = tau;
        }
        storageBarrier();
        workgroupBarrier();
    }
    factors[(b * params.panels + params.panel) * BLOCK * BLOCK + local_index] = triangle[local_index];
}
