// The two rows that meet as pair k of a round of a round-robin tournament with an even number of players:
// after players − 1 rounds every two rows have met once.
fn pair(k: u32, round: u32, players: u32) -> vec2<u32> {
    let last = players - 1u;
    let turn = round % last;
    let one = select((turn + k) % last, last, k == 0u);
    let other = (turn + last - k) % last;
    return vec2<u32>(min(one, other), max(one, other));
}

// The cosine and sine of the rotation that makes the symmetric matrix (a g; g b) diagonal; g is not 0.
fn rotation(a: T, b: T, g: T) -> vec2<T> {
    let zeta = (b - a) / (T(2) * g);
    var tangent = T(0);
    if (abs(zeta) > T(1) / EPSILON) {
        tangent = T(0.5) / zeta;
    } else {
        tangent = T(1) / (abs(zeta) + sqrt(T(1) + zeta * zeta));
        tangent = select(tangent, -tangent, zeta < T(0));
    }
    let cosine = T(1) / sqrt(T(1) + tangent * tangent);
    let sine = cosine * tangent;
    // A device's quotients and roots may be off by some units, always in the same direction.
    let lack = T(0.5) * (T(1) - cosine * cosine - sine * sine);
    return vec2<T>(cosine + cosine * lack, sine + sine * lack);
}
