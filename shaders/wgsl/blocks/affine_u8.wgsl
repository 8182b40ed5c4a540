fn integer_x(i: u32) -> i32 {
    return i32(byte_x(32u + i));
}
