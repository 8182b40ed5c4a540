// (q - z) s, with the scale s and zero point z of the element's group: see `Affine` in tensor-core. A
// header of eight words comes first. Expects `integer_x`, which returns q of an element.
fn decode_x(i: u32) -> f32 {
    let inner = word_x(0u);
    let axis = word_x(4u);
    let along = i / inner % axis / word_x(8u);
    let group = i / (inner * axis) * word_x(12u) + along * word_x(16u) + i % inner * word_x(20u);
    let zeros = word_x(28u);
    var zero = 0.0;
    if (zeros != 0u) {
        zero = bitcast<f32>(word_x(zeros + group * 4u));
    }
    return (f32(integer_x(i)) - zero) * bitcast<f32>(word_x(word_x(24u) + group * 4u));
}
