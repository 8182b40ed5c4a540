// For each value, the number of sorted numbers in its row that precede it; one invocation for each value.
// NaN is the greatest, and equal to itself.
// Header: alias T, is_nan(x), const RIGHT; `params` with `total` (values), `length` (numbers of a row),
// `values_length`; bindings `sorted`, `values`, `places` with their functions.

fn precedes(a: T, b: T) -> bool {
    if (is_nan(a) || is_nan(b)) {
        return is_nan(b) && (RIGHT || !is_nan(a));
    }
    return a < b || (RIGHT && a == b);
}

fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 256u + local_index;
    if (i >= params.total) {
        return;
    }
    let value = load_values(i);
    let row = i / params.values_length * params.length;
    var low = 0u;
    var high = params.length;
    // 32 rounds are enough for any length.
    for (var round = 0u; round < 32u && low < high; round++) {
        let middle = low + (high - low) / 2u;
        if (precedes(load_sorted(row + middle), value)) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    store_places(i, i32(low));
}
