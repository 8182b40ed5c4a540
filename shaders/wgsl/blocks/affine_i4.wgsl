fn integer_x(i: u32) -> i32 {
    let four = byte_x(32u + i / 2u) >> (i % 2u * 4u);
    return bitcast<i32>(four << 28u) >> 28u;
}
