// Philox4x32-10 (Salmon et al. 2011), word for word the stream of tensor_core::philox.

fn philox(seed: vec2<u32>, counter: vec2<u32>) -> vec4<u32> {
    var c = vec4<u32>(counter.x, counter.y, 0u, 0u);
    var key = seed;
    for (var round = 0; round < 10; round += 1) {
        let p0 = mul_wide(0xD2511F53u, c.x);
        let p1 = mul_wide(0xCD9E8D57u, c.z);
        c = vec4<u32>(p1.y ^ c.y ^ key.x, p1.x, p0.y ^ c.w ^ key.y, p0.x);
        key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}

// The Philox block of element i of a draw: the 64-bit counter is offset + i.
fn philox_at(seed: vec2<u32>, offset: vec2<u32>, i: u32) -> vec4<u32> {
    let low = offset.x + i;
    return philox(seed, vec2<u32>(low, offset.y + select(0u, 1u, low < i)));
}

fn uniform_f32(w: vec4<u32>) -> f32 {
    return f32(w.x >> 8u) * 5.9604644775390625e-8;
}

fn normal_f32(w: vec4<u32>) -> f32 {
    let u1 = f32((w.x >> 8u) + 1u) * 5.9604644775390625e-8;
    let u2 = f32(w.y >> 8u) * 5.9604644775390625e-8;
    return sqrt(-2.0 * log_f32(u1)) * cos_f32(6.28318531 * u2);
}
