// The number type of the linear-algebra kernels.
alias T = f64;
const EPSILON = 2.220446049250313e-16lf;
const MOST = 1.0e308lf;
// Squared lengths below this are negligible beside 1.
const TINY = 1.0e-100lf;
// The most doublings or halvings of a matrix's scale, which keep the scale a normal number.
const DOUBLINGS = 1000u;

fn is_nan(x: T) -> bool {
    return is_nan_f64(x);
}

fn is_inf(x: T) -> bool {
    return is_inf_f64(x);
}

// x / y, for numbers of the whole range.
fn quotient(x: T, y: T) -> T {
    return x / y;
}

fn infinity() -> T {
    return inf_f64();
}

fn logarithm(x: T) -> T {
    return log_f64(x);
}

struct Parts {
    mantissa: T,
    exponent: i32,
}

// x = mantissa · 2^exponent with a magnitude from ½ to 1, for a finite x that is not 0.
fn parts(x: T) -> Parts {
    let is_small = abs(x) < 2.2250738585072014e-308lf;
    let bits = bitcast<u64>(select(x, x * 18014398509481984.0lf, is_small));
    let exponent = i32((bits >> 52u) & 2047lu) - select(1022, 1076, is_small);
    return Parts(bitcast<f64>((bits & 0x800ffffffffffffflu) | 0x3fe0000000000000lu), exponent);
}

// Exponents beyond the range of the type give 0 or infinity.
fn raised(mantissa: T, exponent: i32) -> T {
    let half = clamp(exponent, -2200, 2200) / 2;
    return scale2_f64(scale2_f64(mantissa, half), clamp(exponent, -2200, 2200) - half);
}
