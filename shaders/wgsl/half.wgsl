// Half types are computed in f32; these functions round an f32 to the nearest half value, ties to even.
// Each has a single exit: a program rounds after every step, and SwiftShader's compiler takes unbounded time
// and memory for many early exits inside nested loops.

fn round_bf16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
    return bitcast<f32>(select(rounded, bits, (bits & 0x7fffffffu) > 0x7f800000u));
}

fn round_f16(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    // Below the least normal half the spacing is 2^-24.
    let steps = round(bitcast<f32>(min(size, 0x38800000u)) * 16777216.0);
    let normal = (size + 0xfffu + ((size >> 13u) & 1u)) & 0xffffe000u;
    let finite = select(normal, bitcast<u32>(steps * 5.9604644775390625e-8), size < 0x38800000u);
    let rounded = select(finite, 0x7f800000u, size >= 0x477ff000u);
    return bitcast<f32>(select((bits & 0x80000000u) | rounded, bits, size >= 0x7f800000u));
}
