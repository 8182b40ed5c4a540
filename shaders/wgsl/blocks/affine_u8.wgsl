fn integer_x(i: u32) -> i32 {
    return i32(byte_x(32u + i));
}

fn integers_x(i: u32) -> vec4<f32> {
    return floats_of_u8(word_x(32u + i));
}
