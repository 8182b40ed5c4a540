// An element of a block, from the four that `four_x` decodes together.
fn decode_x(i: u32) -> f32 {
    return four_x(i & ~3u)[i & 3u];
}
