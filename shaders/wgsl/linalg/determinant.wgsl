// The product of the pivots of an LU factorization; one invocation for each matrix. Mantissas are
// multiplied and exponents added, so nothing overflows before the end. The header has keep(b, mantissa,
// exponent); the mantissa is between ½ and 1, or it is 0, infinite or NaN. params: batch, size.
fn kernel(workgroup_index: u32, local_index: u32) {
    let b = workgroup_index * 64u + local_index;
    if (b >= params.batch) {
        return;
    }
    var mantissa = select(T(1), T(-1), (swaps[b] & 1u) == 1u);
    var exponent = 0;
    for (var i = 0u; i < params.size; i++) {
        let pivot = w[(b * params.size + i) * params.size + i];
        if (is_nan(pivot) || is_inf(pivot) || pivot == T(0)) {
            mantissa *= pivot;
            continue;
        }
        let part = parts(pivot);
        mantissa *= part.mantissa;
        exponent += part.exponent;
        // The product of two mantissas of at least ½ is at least ¼.
        if (abs(mantissa) < T(0.5) && mantissa != T(0)) {
            mantissa *= T(2);
            exponent -= 1;
        }
    }
    keep(b, mantissa, exponent);
}
