// Philox4x32-10 (Salmon et al. 2011): the same stream as on every other backend.

// The upper and lower halves of a 64-bit product, by 16-bit halves.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let mid = ah * bl + (low >> 16u);
    let mid2 = al * bh + (mid & 0xffffu);
    return vec2<u32>(ah * bh + (mid >> 16u) + (mid2 >> 16u), a * b);
}

// The block of the stream `seed` at `offset + i`, both 64 bits with the low word first.
fn philox(seed: vec2<u32>, offset: vec2<u32>, i: u32) -> vec4<u32> {
    let low = offset.x + i;
    let carry = select(0u, 1u, low < i);
    var c = vec4<u32>(low, offset.y + carry, 0u, 0u);
    var key = seed;
    for (var round = 0; round < 10; round++) {
        let p0 = multiply(0xD2511F53u, c.x);
        let p1 = multiply(0xCD9E8D57u, c.z);
        c = vec4<u32>(p1.x ^ c.y ^ key.x, p1.y, p0.x ^ c.w ^ key.y, p0.y);
        key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}

fn uniform_(w: vec4<u32>) -> f32 { return f32(w.x >> 8u) * 5.9604644775390625e-8; }

fn normal_(w: vec4<u32>) -> f32 {
    let u1 = f32((w.x >> 8u) + 1u) * 5.9604644775390625e-8;
    let u2 = f32(w.y >> 8u) * 5.9604644775390625e-8;
    return sqrt(-2.0 * log_(u1)) * cos(6.283185307 * u2);
}
