// The number type of the linear-algebra kernels.
alias T = f32;
const EPSILON = 1.1920929e-7f;
const MOST = 3.0e38f;
// Squared lengths below this are negligible beside 1.
const TINY = 1.0e-28f;
// The most doublings or halvings of a matrix's scale, which keep the scale a normal number.
const DOUBLINGS = 120u;

fn is_nan(x: T) -> bool {
    return is_nan_f32(x);
}

fn is_inf(x: T) -> bool {
    return is_inf_f32(x);
}

// x / y, for numbers of the whole range.
fn quotient(x: T, y: T) -> T {
    return div_f32(x, y);
}

fn infinity() -> T {
    return inf_f32();
}

fn logarithm(x: T) -> T {
    return log_f32(x);
}

struct Parts {
    mantissa: T,
    exponent: i32,
}

// x = mantissa · 2^exponent with a magnitude from ½ to 1, for a finite x that is not 0.
fn parts(x: T) -> Parts {
    let is_small = abs(x) < 1.1754944e-38f;
    let bits = bitcast<u32>(select(x, x * 16777216.0f, is_small));
    let exponent = i32((bits >> 23u) & 255u) - select(126, 150, is_small);
    return Parts(bitcast<f32>((bits & 0x807fffffu) | 0x3f000000u), exponent);
}

// Exponents beyond the range of the type give 0 or infinity.
fn raised(mantissa: T, exponent: i32) -> T {
    let half = clamp(exponent, -280, 280) / 2;
    return scale2_f32(scale2_f32(mantissa, half), clamp(exponent, -280, 280) - half);
}
