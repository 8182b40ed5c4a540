fn integer_x(i: u32) -> i32 {
    return unpack_i8(byte_x(32u + i));
}
