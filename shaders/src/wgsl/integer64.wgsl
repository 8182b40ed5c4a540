// The same for 64-bit integers, on adapters that have them.

fn floor_div_i64(a: i64, b: i64) -> i64 {
    if (b == 0li) { return 0li; }
    if (b == -1li) { return 0li - a; }
    let q = a / b;
    return select(q, q - 1li, q * b != a && (a < 0li) != (b < 0li));
}
fn remainder_i64(a: i64, b: i64) -> i64 {
    if (b == 0li || b == -1li) { return 0li; }
    return a - floor_div_i64(a, b) * b;
}
fn pow_i64(a: i64, b: i64) -> i64 {
    if (b < 0li) {
        if (a == 1li) { return 1li; }
        if (a == -1li) { return select(-1li, 1li, (b & 1li) == 0li); }
        return 0li;
    }
    var base = a;
    var power = 1li;
    var left = b;
    while (left > 0li) {
        if ((left & 1li) == 1li) { power = power * base; }
        base = base * base;
        left = left / 2li;
    }
    return power;
}
fn to_i64(x: f32) -> i64 {
    if (is_nan(x)) { return 0li; }
    if (x >= 9223372036854775808.0) { return 9223372036854775807li; }
    if (x <= -9223372036854775808.0) { return -9223372036854775807li - 1li; }
    return i64(x);
}
