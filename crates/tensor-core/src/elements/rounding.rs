//! Rounding from f64 to the half types with a single rounding. `half`'s own conversions from f64 lose
//! bits: the software path truncates the low 32 bits, the hardware path rounds to f32 first.

/// An f32 that rounds to f16 and bf16 as `v` itself does: `v` rounded to odd, that is truncated to an
/// f32 whose last bit is set if the truncation was inexact.
///
/// Both types have at least two bits fewer than f32 over their whole range, subnormal numbers included,
/// so the last bit never decides by itself, but it tells a number next to a midpoint from the midpoint
/// (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
/// rounding to odd", 2008).
///
/// ```
/// use tensor_core::{bf16, round_to_odd};
///
/// let above_the_midpoint = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
/// assert_eq!(bf16::from_f32(round_to_odd(above_the_midpoint)).to_f32(), 1.0078125);
/// assert_eq!(bf16::from_f32(above_the_midpoint as f32).to_f32(), 1.0);
/// ```
#[inline]
pub fn round_to_odd(v: f64) -> f32 {
    let nearest = v as f32;
    let back = f64::from(nearest);
    if back == v || v.is_nan() {
        return nearest;
    }
    // Undo rounding away from zero by one step towards zero; infinity becomes the greatest finite number.
    let cut = nearest.to_bits() - u32::from(back.abs() > v.abs());
    f32::from_bits(cut | 1)
}
