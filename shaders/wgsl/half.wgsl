// Half types are computed in f32; these functions round an f32 to the nearest half value, ties to even.

fn round_bf16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return x;
    }
    return bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);
}

fn round_f16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let sign = bits & 0x80000000u;
    let size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u) {
        return x;
    }
    if (size >= 0x477ff000u) {
        return bitcast<f32>(sign | 0x7f800000u);
    }
    if (size < 0x38800000u) {
        // Below the least normal half the spacing is 2^-24.
        let steps = round(bitcast<f32>(size) * 16777216.0);
        return bitcast<f32>(sign | bitcast<u32>(steps * 5.9604644775390625e-8));
    }
    return bitcast<f32>(sign | ((size + 0xfffu + ((size >> 13u) & 1u)) & 0xffffe000u));
}
