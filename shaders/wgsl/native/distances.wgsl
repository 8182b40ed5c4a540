// The distance of each pair of points; one invocation for each. Sums have two levels, so that their error
// grows with the square root of the number of coordinates.
// Header: const EUCLIDEAN; `params` with `total` (distances), `each` (distances of a batch position),
// `rows`, `columns` (points), `coordinates`; bindings `points`, `output`; functions other(i), the other
// point's coordinate, pair(i), the numbers of both points, add(sum, difference) and join(a, b).

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total) {
        return;
    }
    let batch = i / params.each;
    let both = pair(i - batch * params.each);
    let a = (batch * params.rows + both.x) * params.coordinates;
    let b = (batch * params.columns + both.y) * params.coordinates;
    var total = 0.0;
    for (var first = 0u; first < params.coordinates; first += 64u) {
        let end = min(first + 64u, params.coordinates);
        var sum = 0.0;
        for (var k = first; k < end; k += 1u) {
            sum = add(sum, points[a + k] - other(b + k));
        }
        total = join(total, sum);
    }
    if (EUCLIDEAN) {
        total = length_of(total, a, b);
    }
    output[i] = total;
}

// The root of a sum of squares. If squares leave the range of f32, the differences are divided by the
// greatest one first.
fn length_of(sum: f32, a: u32, b: u32) -> f32 {
    if (is_nan_f32(sum) || (sum >= 8.0779357e-28 && !is_inf_f32(sum))) {
        return sqrt_f32(sum);
    }
    var greatest = 0.0;
    for (var k = 0u; k < params.coordinates; k += 1u) {
        greatest = max_f32(greatest, abs(points[a + k] - other(b + k)));
    }
    if (greatest == 0.0 || is_inf_f32(greatest) || is_nan_f32(greatest)) {
        return greatest;
    }
    var scaled = 0.0;
    for (var k = 0u; k < params.coordinates; k += 1u) {
        let share = div_f32(points[a + k] - other(b + k), greatest);
        scaled += share * share;
    }
    return greatest * sqrt_f32(scaled);
}
