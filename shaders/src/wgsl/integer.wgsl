// Integer arithmetic with the answers of the other backends: division by zero gives 0, the least integer by −1 wraps.

fn floor_div_i32(a: i32, b: i32) -> i32 {
    if (b == 0) { return 0; }
    if (b == -1) { return bitcast<i32>(0u - bitcast<u32>(a)); }
    let q = a / b;
    return select(q, q - 1, q * b != a && (a < 0) != (b < 0));
}
fn remainder_i32(a: i32, b: i32) -> i32 {
    if (b == 0 || b == -1) { return 0; }
    return a - floor_div_i32(a, b) * b;
}
fn pow_i32(a: i32, b: i32) -> i32 {
    if (b < 0) {
        if (a == 1) { return 1; }
        if (a == -1) { return 1 - 2 * (b & 1); }
        return 0;
    }
    var base = a;
    var power = 1;
    var left = b;
    while (left > 0) {
        if ((left & 1) == 1) { power = power * base; }
        base = base * base;
        left = left >> 1u;
    }
    return power;
}
fn floor_div_u32(a: u32, b: u32) -> u32 {
    if (b == 0u) { return 0u; }
    return a / b;
}
fn remainder_u32(a: u32, b: u32) -> u32 {
    if (b == 0u) { return 0u; }
    return a % b;
}
fn pow_u32(a: u32, b: u32) -> u32 {
    var base = a;
    var power = 1u;
    var left = b;
    while (left > 0u) {
        if ((left & 1u) == 1u) { power = power * base; }
        base = base * base;
        left = left >> 1u;
    }
    return power;
}
