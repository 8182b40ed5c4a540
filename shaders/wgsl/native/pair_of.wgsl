// The points of pair i in the order (0, 1), (0, 2), …, (1, 2), … of `params.rows` points. The row is the
// greatest whose first pair is at most i: a binary search in integers.
fn first_pair(row: u32) -> u32 {
    // One of two neighbouring numbers is even, so it is halved before the product.
    let a = select(row, row / 2u, row % 2u == 0u);
    let b = 2u * params.rows - row - 1u;
    return select(a * (b / 2u), a * b, row % 2u == 0u);
}

fn pair_of(i: u32) -> vec2<u32> {
    var low = 0u;
    var high = params.rows - 1u;
    // 32 rounds are enough for any number of points.
    for (var round = 0u; round < 32u && high - low > 1u; round++) {
        let middle = low + (high - low) / 2u;
        if (first_pair(middle) <= i) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return vec2<u32>(low, i - first_pair(low) + low + 1u);
}
