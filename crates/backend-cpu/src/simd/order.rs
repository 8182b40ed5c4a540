//! Sort keys: unsigned integers with the order of the elements. NaN is the greatest and equal to NaN, and
//! −0 equals 0, so code that compares keys needs no special cases for them.

use std::ops::Not;

use tensor_core::{F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, bf16, f16};

/// An element with an order over all its values.
pub(crate) trait Ordered: Copy {
    type Key: Copy + Ord + Into<u64> + Not<Output = Self::Key> + Send;
    /// The key of NaN, in types that have NaN: the greatest key, which no other element has.
    const NAN: Option<Self::Key>;
    fn key(self) -> Self::Key;
}

/// The key for descending order; NaN is still the greatest.
#[inline(always)]
pub(crate) fn opposite<T: Ordered>(x: T) -> T::Key {
    let key = x.key();
    if T::NAN == Some(key) { key } else { !key }
}

macro_rules! floats {
    ($($t:ty => $bits:ty;)*) => {$(
        impl Ordered for $t {
            type Key = $bits;
            const NAN: Option<$bits> = Some(<$bits>::MAX);
            #[inline(always)]
            fn key(self) -> $bits {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = if self.to_bits() == SIGN { 0 } else { self.to_bits() };
                // All ones for negative numbers, which are flipped. There is no branch, because the signs
                // of numbers are hard to predict.
                let negative = (bits >> (<$bits>::BITS - 1)).wrapping_neg();
                let flipped = bits ^ (negative | SIGN);
                if self.is_nan() { <$bits>::MAX } else { flipped }
            }
        }
    )*};
}
floats! {
    f64 => u64;
    f32 => u32;
    f16 => u16;
    bf16 => u16;
}

macro_rules! by_f32 {
    ($($t:ty),*) => {$(
        impl Ordered for $t {
            type Key = u32;
            const NAN: Option<u32> = <f32 as Ordered>::NAN;
            #[inline(always)]
            fn key(self) -> u32 {
                self.to_f32().key()
            }
        }
    )*};
}
by_f32!(F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ);

macro_rules! integers {
    ($($t:ty => $key:ty, $x:ident => $value:expr;)*) => {$(
        impl Ordered for $t {
            type Key = $key;
            const NAN: Option<$key> = None;
            #[inline(always)]
            fn key(self) -> $key {
                let $x = self;
                $value
            }
        }
    )*};
}
integers! {
    i64 => u64, x => x as u64 ^ 1 << 63;
    u64 => u64, x => x;
    i32 => u32, x => x as u32 ^ 1 << 31;
    u32 => u32, x => x;
    i16 => u16, x => x as u16 ^ 1 << 15;
    u16 => u16, x => x;
    i8 => u8, x => x as u8 ^ 1 << 7;
    u8 => u8, x => x;
    bool => u8, x => x.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_elements() {
        let ordered = [f32::NEG_INFINITY, -3.0, -1e-40, 0.0, 1e-45, 2.0, f32::MAX, f32::INFINITY, f32::NAN];
        assert!(ordered.is_sorted_by(|a, b| a.key() < b.key()));
        let (all, nan) = ordered.split_at(8);
        assert!(all.is_sorted_by(|a, b| opposite(*a) > opposite(*b)));
        assert!(opposite(nan[0]) > opposite(f32::NEG_INFINITY));
        assert_eq!((-0f64).key(), 0f64.key());
        assert_eq!((-f64::NAN).key(), f64::NAN.key());
        assert!([i64::MIN, -1, 0, i64::MAX].is_sorted_by(|a, b| a.key() < b.key()));
        assert!([i32::MIN, -1, 0, i32::MAX].is_sorted_by(|a, b| opposite(*a) > opposite(*b)));
        assert!(f16::NEG_ONE.key() < f16::NEG_ZERO.key() && bf16::INFINITY.key() < bf16::NAN.key());
    }
}
