//! 8-bit floats: the formats of the Open Compute Project's OFP8 (`FN`: finite and NaN) and of Graphcore,
//! AMD and Qualcomm (`FNUZ`: finite, NaN, unsigned zero). Encoding and rounding are bit-identical to
//! PyTorch's.

use std::fmt;

/// The codes of a format that are not finite numbers.
#[derive(Clone, Copy, PartialEq)]
enum Specials {
    /// IEEE style: with all exponent bits set, mantissa 0 is infinity and any other is NaN.
    Infinity,
    /// NaN has all bits but the sign set. Numbers beyond the range become the greatest finite number.
    Nan,
    /// NaN is the code of negative zero, which does not exist. Numbers beyond the range become NaN.
    NegativeZeroIsNan,
}

#[derive(Clone, Copy)]
struct Format {
    mantissa_bits: i32,
    bias: i32,
    specials: Specials,
}

const SIGN: u8 = 0x80;

impl Format {
    /// The code of the greatest finite number.
    const fn greatest(self) -> u8 {
        match self.specials {
            Specials::Infinity => 0x7f - (1 << self.mantissa_bits),
            Specials::Nan => 0x7e,
            Specials::NegativeZeroIsNan => 0x7f,
        }
    }

    /// The number of a code, exactly: every number of the format is an `f32`.
    const fn decode(self, bits: u8) -> f32 {
        let magnitude = bits & !SIGN;
        let sign = if bits & SIGN == 0 { 1.0 } else { -1.0 };
        match self.specials {
            Specials::NegativeZeroIsNan if bits == SIGN => return f32::NAN,
            Specials::NegativeZeroIsNan => {}
            Specials::Infinity if magnitude == self.greatest() + 1 => return sign * f32::INFINITY,
            Specials::Infinity | Specials::Nan if magnitude > self.greatest() => return f32::NAN,
            Specials::Infinity | Specials::Nan => {}
        }
        let field = (magnitude >> self.mantissa_bits) as i32;
        let fraction = (magnitude as i32) & ((1 << self.mantissa_bits) - 1);
        let (exponent, significand) = match field {
            0 => (1 - self.bias, fraction),
            _ => (field - self.bias, fraction + (1 << self.mantissa_bits)),
        };
        // A power of two that is a normal f32.
        let unit = f32::from_bits(((exponent - self.mantissa_bits + 127) as u32) << 23);
        sign * significand as f32 * unit
    }

    /// The nearest number, ties to even.
    fn encode(self, value: f32) -> u8 {
        let sign = if value.is_sign_negative() { SIGN } else { 0 };
        if value.is_nan() {
            return if self.specials == Specials::NegativeZeroIsNan { SIGN } else { sign | 0x7f };
        }
        let magnitude = f64::from(value.abs());
        let least = 1 - self.bias;
        // A subnormal f32 is smaller than every number of the format.
        let exponent = ((value.to_bits() >> 23 & 0xff) as i32 - 127).max(least);
        let unit = 2f64.powi(exponent - self.mantissa_bits);
        // A carry out of the significand increments the exponent field.
        let field = f64::from((exponent - least) << self.mantissa_bits);
        let code = field + (magnitude / unit).round_ties_even();
        let greatest = self.greatest();
        if code <= f64::from(greatest) {
            let unsigned = code == 0.0 && self.specials == Specials::NegativeZeroIsNan;
            return if unsigned { 0 } else { sign | code as u8 };
        }
        match self.specials {
            Specials::Infinity => sign | (greatest + 1),
            Specials::Nan => sign | greatest,
            Specials::NegativeZeroIsNan => SIGN,
        }
    }

    /// The decoded numbers of all codes.
    const fn decoded(self) -> [f32; 256] {
        let mut numbers = [0.0; 256];
        let mut code = 0;
        while code < 256 {
            numbers[code] = self.decode(code as u8);
            code += 1;
        }
        numbers
    }
}

macro_rules! float8 {
    ($($(#[$doc:meta])* $name:ident => $mantissa_bits:literal, $bias:literal, $specials:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            const FORMAT: Format =
                Format { mantissa_bits: $mantissa_bits, bias: $bias, specials: Specials::$specials };

            /// The number with this bit pattern.
            pub const fn from_bits(bits: u8) -> $name {
                $name(bits)
            }

            /// The bit pattern.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest number of this type, ties to even; [`DType`](crate::DType) defines the result
            /// beyond the range.
            pub fn from_f32(value: f32) -> $name {
                $name(Self::FORMAT.encode(value))
            }

            /// The number as `f32`, exactly.
            pub fn to_f32(self) -> f32 {
                const NUMBERS: [f32; 256] = $name::FORMAT.decoded();
                NUMBERS[usize::from(self.0)]
            }

            /// The number as `f64`, exactly.
            pub fn to_f64(self) -> f64 {
                f64::from(self.to_f32())
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<std::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(f)
            }
        }
    )*};
}

float8! {
    /// An 8-bit float with 4 exponent bits, 3 mantissa bits and no infinity; the greatest number is 448.
    F8E4M3FN => 3, 7, Nan;
    /// An 8-bit float with 5 exponent bits and 2 mantissa bits; the greatest finite number is 57344.
    F8E5M2 => 2, 15, Infinity;
    /// An 8-bit float with 4 exponent bits, 3 mantissa bits, one zero and one NaN; the greatest number is
    /// 240.
    F8E4M3FNUZ => 3, 8, NegativeZeroIsNan;
    /// An 8-bit float with 5 exponent bits, 2 mantissa bits, one zero and one NaN; the greatest number is
    /// 57344.
    F8E5M2FNUZ => 2, 16, NegativeZeroIsNan;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes that PyTorch 2.15 gives for these numbers.
    #[test]
    fn codes_are_pytorch_s() {
        let numbers = [
            447.0,
            464.0,
            465.0,
            1000.0,
            f32::INFINITY,
            -0.0,
            61440.0,
            61439.0,
            1e-3,
            2f32.powi(-10),
            2f32.powi(-11),
            240.0,
            248.0,
        ];
        let codes = |encode: fn(f32) -> u8| numbers.map(encode);
        assert_eq!(
            codes(|v| F8E4M3FN::from_f32(v).to_bits()),
            [0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x80, 0x7e, 0x7e, 1, 0, 0, 0x77, 0x78]
        );
        assert_eq!(
            codes(|v| F8E5M2::from_f32(v).to_bits()),
            [0x5f, 0x5f, 0x5f, 0x64, 0x7c, 0x80, 0x7c, 0x7b, 0x14, 0x14, 0x10, 0x5c, 0x5c]
        );
        assert_eq!(
            codes(|v| F8E4M3FNUZ::from_f32(v).to_bits()),
            [0x80, 0x80, 0x80, 0x80, 0x80, 0, 0x80, 0x80, 1, 1, 0, 0x7f, 0x80]
        );
        assert_eq!(
            codes(|v| F8E5M2FNUZ::from_f32(v).to_bits()),
            [0x63, 0x63, 0x63, 0x68, 0x80, 0, 0x80, 0x7f, 0x18, 0x18, 0x14, 0x60, 0x60]
        );
    }

    #[test]
    fn every_code_is_the_nearest_to_its_number_and_between_neighbours_the_even_one_is() {
        fn check(decode: fn(u8) -> f32, encode: fn(f32) -> u8, greatest: u8) {
            for code in 0..=greatest {
                let value = decode(code);
                assert_eq!(encode(value), code, "{value}");
                if code == greatest {
                    continue;
                }
                let middle = 0.5 * (value + decode(code + 1));
                assert_eq!(encode(middle), code + (code & 1), "{middle}");
                assert_eq!(encode(middle.next_down()), code, "{middle}");
                assert_eq!(encode(middle.next_up()), code + 1, "{middle}");
                assert_eq!(encode(-middle.next_up()), SIGN | (code + 1), "{middle}");
            }
        }
        macro_rules! check {
            ($($t:ty),*) => {$(
                check(|b| <$t>::from_bits(b).to_f32(), |v| <$t>::from_f32(v).to_bits(), <$t>::FORMAT.greatest());
                assert!(<$t>::from_f32(f32::NAN).to_f32().is_nan() && <$t>::from_f32(-f32::NAN).to_f32().is_nan());
            )*};
        }
        check!(F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ);
        assert_eq!(F8E5M2::from_bits(0xfc).to_f32(), f32::NEG_INFINITY);
        assert_eq!(F8E4M3FN::from_bits(0x7e).to_f32(), 448.0);
        assert_eq!(F8E4M3FNUZ::from_bits(1).to_f32(), 2f32.powi(-10));
    }
}
