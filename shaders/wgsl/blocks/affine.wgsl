// (q - z) s, with the scale s and zero point z of the element's group: see `Affine` in tensor-core. A
// header of eight words comes first. Expects `integer_x` and `integers_x`, which return q of one element,
// and of four from a multiple of four on.
fn decode_x(i: u32) -> f32 {
    let group = group_x(i);
    return (f32(integer_x(i)) - zero_x(group)) * scale_x(group);
}

fn four_x(i: u32) -> vec4<f32> {
    let q = integers_x(i);
    let inner = aligned_x(0u);
    let axis = aligned_x(1u);
    let group = group_x(i);
    let zero = zero_x(group);
    let scale = scale_x(group);
    let one_group = (aligned_x(3u) | aligned_x(4u) | aligned_x(5u)) == 0u;
    let along_axis = inner == 1u && ((axis | aligned_x(2u)) & 3u) == 0u;
    if (one_group || along_axis || ((inner & 3u) == 0u && aligned_x(5u) == 0u)) {
        return (q - zero) * scale;
    }
    let b = group_x(i + 1u);
    let c = group_x(i + 2u);
    let d = group_x(i + 3u);
    let zeros = vec4<f32>(zero, zero_x(b), zero_x(c), zero_x(d));
    return (q - zeros) * vec4<f32>(scale, scale_x(b), scale_x(c), scale_x(d));
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(four_x(i), four_x(i + 4u));
}

// The number of an element's scale.
fn group_x(i: u32) -> u32 {
    let inner = aligned_x(0u);
    let axis = aligned_x(1u);
    return i / (inner * axis) * aligned_x(3u) + i / inner % axis / aligned_x(2u) * aligned_x(4u) + i % inner * aligned_x(5u);
}

fn scale_x(group: u32) -> f32 {
    return bitcast<f32>(aligned_x(aligned_x(6u) / 4u + group));
}

fn zero_x(group: u32) -> f32 {
    let zeros = aligned_x(7u) / 4u;
    if (zeros == 0u) {
        return 0.0;
    }
    return bitcast<f32>(aligned_x(zeros + group));
}
