//! Element types of less than a byte, and powers of two in a byte: how files pack them, and how numbers are
//! rounded to them. They are on the host only.

use crate::value::{DataType, HostData};

/// The numbers of [`DataType::Float4E2M1`] without their sign, by pattern (OCP Microscaling Formats, 2023).
const FLOAT4: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The greatest exponent of [`DataType::Float8E8M0`]; the least is its negative.
const E8M0_EXPONENT: i32 = 127;

/// How a number between two powers of two becomes one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PowerRounding {
    Up,
    Down,
    Nearest,
}

impl DataType {
    /// The bits of an element of a type that tensors do not have.
    pub(crate) fn narrow_bits(self) -> Option<usize> {
        match self {
            DataType::Int2 | DataType::Uint2 => Some(2),
            DataType::Int4 | DataType::Uint4 | DataType::Float4E2M1 => Some(4),
            DataType::Float8E8M0 => Some(8),
            DataType::Tensor(_) | DataType::Text => None,
        }
    }

    /// The least and the greatest number of a narrow type of integers.
    pub(crate) fn narrow_range(self) -> Option<(i64, i64)> {
        match self {
            DataType::Int2 => Some((-2, 1)),
            DataType::Uint2 => Some((0, 3)),
            DataType::Int4 => Some((-8, 7)),
            DataType::Uint4 => Some((0, 15)),
            DataType::Float4E2M1 | DataType::Float8E8M0 | DataType::Tensor(_) | DataType::Text => None,
        }
    }
}

/// The elements in packed bytes, the first in the lowest bits of each byte; `None` for a type that is not
/// narrow.
pub(crate) fn unpack(data_type: DataType, bytes: &[u8], count: usize) -> Option<HostData> {
    let bits = data_type.narrow_bits()?;
    let mask = u8::MAX >> (8 - bits);
    let patterns =
        bytes.iter().flat_map(|byte| (0..8 / bits).map(move |at| byte >> (at * bits) & mask)).take(count);
    Some(match data_type {
        DataType::Float4E2M1 => HostData::Float(patterns.map(float4).collect()),
        DataType::Float8E8M0 => HostData::Float(patterns.map(power).collect()),
        _ => HostData::Int(patterns.map(|pattern| wrap(data_type, pattern.into())).collect()),
    })
}

fn float4(pattern: u8) -> f64 {
    let size = FLOAT4[usize::from(pattern & 7)];
    if pattern & 8 == 0 { size } else { -size }
}

fn power(pattern: u8) -> f64 {
    if pattern == u8::MAX { f64::NAN } else { 2f64.powi(i32::from(pattern) - E8M0_EXPONENT) }
}

/// An integer without the bits that a narrow type lacks.
pub(crate) fn wrap(data_type: DataType, number: i64) -> i64 {
    match data_type.narrow_range() {
        Some((least, greatest)) => (number - least).rem_euclid(greatest - least + 1) + least,
        None => number,
    }
}

/// The nearest number of four bits, of two the one with the even pattern; beyond 6 it is 6, and NaN is 0.
pub(crate) fn to_float4(x: f64) -> f64 {
    let size = x.abs();
    let above = FLOAT4.iter().position(|&number| number >= size).unwrap_or(FLOAT4.len() - 1);
    let (low, high) = (FLOAT4[above.saturating_sub(1)], FLOAT4[above]);
    let middle = f64::midpoint(low, high);
    let nearest = match size.partial_cmp(&middle) {
        None => 0.0,
        Some(std::cmp::Ordering::Less) => low,
        Some(std::cmp::Ordering::Greater) => high,
        Some(std::cmp::Ordering::Equal) if above.is_multiple_of(2) => high,
        Some(std::cmp::Ordering::Equal) => low,
    };
    nearest.copysign(x)
}

/// A power of two near a number. Beyond their range it is the last one if `saturate`, else NaN.
pub(crate) fn to_power(x: f64, rounding: PowerRounding, saturate: bool) -> f64 {
    if x.is_nan() {
        return f64::NAN;
    }
    // The exponent of a float is that of the power below it; f64 has all f32 numbers without subnormals.
    let below = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let fraction = x / 2f64.powi(below) - 1.0;
    let exponent = match rounding {
        _ if x <= 0.0 => i32::MIN,
        _ if x.is_infinite() => i32::MAX,
        PowerRounding::Down => below,
        PowerRounding::Up => below + i32::from(fraction > 0.0),
        PowerRounding::Nearest => below + i32::from(fraction >= 0.5),
    };
    let held = exponent.clamp(-E8M0_EXPONENT, E8M0_EXPONENT);
    if held == exponent || saturate { 2f64.powi(held) } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_unpacked_from_the_lowest_bits_on() {
        let ints = |data_type, byte, count| unpack(data_type, &[byte], count);
        assert_eq!(ints(DataType::Int2, 0b11_10_01_00, 4), Some(HostData::Int(vec![0, 1, -2, -1])));
        assert_eq!(ints(DataType::Uint2, 0b11_10_01_00, 3), Some(HostData::Int(vec![0, 1, 2])));
        assert_eq!(ints(DataType::Int4, 0x8f, 2), Some(HostData::Int(vec![-1, -8])));
        assert_eq!(ints(DataType::Float4E2M1, 0xf1, 2), Some(HostData::Float(vec![0.5, -6.0])));
        assert_eq!(ints(DataType::Float8E8M0, 128, 1), Some(HostData::Float(vec![2.0])));
        assert_eq!(ints(DataType::Text, 0, 1), None);
    }

    #[test]
    fn numbers_are_rounded_to_four_bits_and_to_powers() {
        for (x, wanted) in [(0.25, 0.0), (0.26, 0.5), (2.5, 2.0), (-3.5, -4.0), (5.0, 4.0), (9.0, 6.0)] {
            assert_eq!(to_float4(x), wanted, "{x}");
        }
        assert_eq!(to_power(1.1, PowerRounding::Up, true), 2.0);
        assert_eq!(to_power(1.1, PowerRounding::Down, true), 1.0);
        assert_eq!(to_power(1.5, PowerRounding::Nearest, true), 2.0);
        assert_eq!(to_power(0.0, PowerRounding::Up, true), 2f64.powi(-127));
        assert!(to_power(f64::INFINITY, PowerRounding::Nearest, false).is_nan());
        assert_eq!(wrap(DataType::Int4, 8), -8);
    }
}
