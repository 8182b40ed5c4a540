// table[q] s, with the scale s of 64 neighbours: see `Codebook4` in tensor-core. A header of eight words
// comes first: the byte offsets of the scales, of the scales of 256 scales (0 for scales that are f32), of
// the 256 numbers of their codes, and of the table; then the offset of the scales.
fn decode_x(i: u32) -> f32 {
    let q = (byte_x(32u + i / 2u) >> (4u - i % 2u * 4u)) & 15u;
    let block = i / 64u;
    let nested = word_x(4u);
    var scale: f32;
    if (nested == 0u) {
        scale = bitcast<f32>(word_x(word_x(0u) + block * 4u));
    } else {
        let code = bitcast<f32>(word_x(word_x(8u) + byte_x(word_x(0u) + block) * 4u));
        scale = code * bitcast<f32>(word_x(nested + block / 256u * 4u)) + bitcast<f32>(word_x(16u));
    }
    return bitcast<f32>(word_x(word_x(12u) + q * 4u)) * scale;
}
