//! Element-wise reduction across ranks, in rank order, so results are bitwise reproducible.

use half::{bf16, f16};
use tensor_core::{DType, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ};

use crate::wire::ReduceOp;

/// Combines `parts`, one of each rank in order, into `out`. All are the bytes of the same number of
/// elements, aligned for their dtype.
pub(crate) fn reduce(op: ReduceOp, dtype: DType, parts: &[&[u8]], out: &mut [u8]) {
    match dtype {
        DType::F32 => combine::<f32, f32>(op, parts, out),
        DType::F64 => combine::<f64, f64>(op, parts, out),
        DType::F16 => combine::<f16, f32>(op, parts, out),
        DType::BF16 => combine::<bf16, f32>(op, parts, out),
        DType::I64 => combine::<i64, i64>(op, parts, out),
        DType::I32 => combine::<i32, i32>(op, parts, out),
        DType::U32 => combine::<u32, u32>(op, parts, out),
        DType::U64 => combine::<u64, u64>(op, parts, out),
        DType::U16 => combine::<u16, u16>(op, parts, out),
        DType::I16 => combine::<i16, i16>(op, parts, out),
        DType::U8 => combine::<u8, u8>(op, parts, out),
        DType::I8 => combine::<i8, i8>(op, parts, out),
        DType::F8E4M3FN => combine::<F8E4M3FN, f32>(op, parts, out),
        DType::F8E5M2 => combine::<F8E5M2, f32>(op, parts, out),
        DType::F8E4M3FNUZ => combine::<F8E4M3FNUZ, f32>(op, parts, out),
        DType::F8E5M2FNUZ => combine::<F8E5M2FNUZ, f32>(op, parts, out),
        // 0 and 1: the minimum is their conjunction, the maximum their disjunction.
        DType::Bool => combine::<u8, u8>(op, parts, out),
    }
}

/// The reason why a reduction is not defined for a dtype, if it is not.
pub(crate) fn misfit(op: ReduceOp, dtype: DType) -> Option<String> {
    match op {
        ReduceOp::Mean if !dtype.is_float() => Some(format!(
            "the mean of {dtype} is no {dtype}: take the sum, or cast to a floating-point dtype"
        )),
        ReduceOp::Sum if dtype == DType::Bool => Some(
            "the sum of bool is no bool: cast to an integer, or take the maximum (any) or minimum (all)"
                .into(),
        ),
        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Min | ReduceOp::Max => None,
    }
}

/// An element in the type that it is computed in.
trait Number: Copy {
    fn plus(self, other: Self) -> Self;
    fn over(self, ranks: usize) -> Self;
    fn least(self, other: Self) -> Self;
    fn greatest(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn plus(self, other: $t) -> $t { self + other }
            fn over(self, ranks: usize) -> $t { self / ranks as $t }
            // A NaN in `self` is kept: comparisons with it are false.
            fn least(self, other: $t) -> $t { if other < self || other.is_nan() { other } else { self } }
            fn greatest(self, other: $t) -> $t { if other > self || other.is_nan() { other } else { self } }
        }
    )*};
}
floats!(f32, f64);

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn plus(self, other: $t) -> $t { self.wrapping_add(other) }
            /// Unreachable: see `misfit`.
            fn over(self, _: usize) -> $t { self }
            fn least(self, other: $t) -> $t { self.min(other) }
            fn greatest(self, other: $t) -> $t { self.max(other) }
        }
    )*};
}
integers!(i64, u64, i32, u32, i16, u16, i8, u8);

/// An element as it is stored, and its conversion to the type that it is computed in.
trait Stored<N>: bytemuck::Pod {
    fn load(self) -> N;
    fn store(number: N) -> Self;
}

macro_rules! as_it_is {
    ($($t:ty),*) => {$(
        impl Stored<$t> for $t {
            fn load(self) -> $t { self }
            fn store(number: $t) -> $t { number }
        }
    )*};
}
as_it_is!(f32, f64, i64, u64, i32, u32, i16, u16, i8, u8);

macro_rules! halves {
    ($($t:ty),*) => {$(
        impl Stored<f32> for $t {
            fn load(self) -> f32 { self.to_f32() }
            fn store(number: f32) -> $t { <$t>::from_f32(number) }
        }
    )*};
}
halves!(f16, bf16, F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ);

/// The number of elements that are reduced before they are stored: sums stay in cache, and half types are
/// rounded once.
const BLOCK: usize = 2048;

fn combine<T: Stored<N>, N: Number>(op: ReduceOp, parts: &[&[u8]], out: &mut [u8]) {
    let out: &mut [T] = bytemuck::cast_slice_mut(out);
    let parts: Vec<&[T]> = parts.iter().map(|part| bytemuck::cast_slice(part)).collect();
    let Some((first, rest)) = parts.split_first() else { return };
    let mut sums: Vec<N> = Vec::with_capacity(BLOCK);
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        let here = block * BLOCK..block * BLOCK + out.len();
        sums.clear();
        sums.extend(first[here.clone()].iter().map(|x| x.load()));
        for part in rest {
            let pairs = sums.iter_mut().zip(&part[here.clone()]);
            match op {
                ReduceOp::Sum | ReduceOp::Mean => pairs.for_each(|(sum, x)| *sum = sum.plus(x.load())),
                ReduceOp::Min => pairs.for_each(|(sum, x)| *sum = sum.least(x.load())),
                ReduceOp::Max => pairs.for_each(|(sum, x)| *sum = sum.greatest(x.load())),
            }
        }
        if op == ReduceOp::Mean {
            sums.iter_mut().for_each(|sum| *sum = sum.over(parts.len()));
        }
        for (out, &sum) in out.iter_mut().zip(&sums) {
            *out = T::store(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced<T: bytemuck::Pod>(op: ReduceOp, dtype: DType, parts: &[&[T]]) -> Vec<T> {
        let bytes: Vec<&[u8]> = parts.iter().map(|part| bytemuck::cast_slice(part)).collect();
        let mut out = vec![T::zeroed(); parts[0].len()];
        reduce(op, dtype, &bytes, bytemuck::cast_slice_mut(&mut out));
        out
    }

    #[test]
    fn sums_are_taken_in_the_order_of_the_ranks() {
        // (1e8 + 1) + -1e8 = 0 in f32, in another order 1.
        let parts = [&[1e8f32][..], &[1.0], &[-1e8]];
        assert_eq!(reduced(ReduceOp::Sum, DType::F32, &parts), [0.0]);
        assert_eq!(reduced(ReduceOp::Sum, DType::F32, &[parts[0], parts[2], parts[1]]), [1.0]);
        let long: Vec<f64> = (0..5000).map(f64::from).collect();
        let twice: Vec<f64> = long.iter().map(|x| 2.0 * x).collect();
        assert_eq!(reduced(ReduceOp::Sum, DType::F64, &[&long, &long]), twice);
        assert_eq!(reduced(ReduceOp::Mean, DType::F64, &[&long, &long]), long);
    }

    #[test]
    fn half_types_are_added_in_f32_and_rounded_once() {
        // 256 + 1 is 256 in bf16: added one after the other, the sum would stay 256.
        let (big, one) = ([bf16::from_f32(256.0)], [bf16::from_f32(1.0)]);
        let sum = reduced(ReduceOp::Sum, DType::BF16, &[&big[..], &one, &one]);
        assert_eq!(sum, [bf16::from_f32(258.0)]);
        let (big, one) = ([f16::from_f32(60000.0)], [f16::from_f32(60000.0)]);
        let mean = reduced(ReduceOp::Mean, DType::F16, &[&big[..], &one]);
        assert_eq!(mean, [f16::from_f32(60000.0)], "the sum is beyond f16, the mean is not");
    }

    #[test]
    fn the_least_and_the_greatest_pass_nan_on() {
        let parts = [&[1.0f32, f32::NAN, 3.0][..], &[2.0, 0.0, f32::NAN], &[0.5, 1.0, 1.0]];
        let least = reduced(ReduceOp::Min, DType::F32, &parts);
        let greatest = reduced(ReduceOp::Max, DType::F32, &parts);
        assert_eq!((least[0], greatest[0]), (0.5, 2.0));
        assert!(least[1..].iter().chain(&greatest[1..]).all(|x| x.is_nan()));
    }

    #[test]
    fn integers_wrap_and_have_no_mean() {
        let top = [u8::MAX];
        assert_eq!(reduced(ReduceOp::Sum, DType::U8, &[&top[..], &[2]]), [1]);
        assert_eq!(reduced(ReduceOp::Sum, DType::I64, &[&[i64::MAX][..], &[1]]), [i64::MIN]);
        assert_eq!(reduced(ReduceOp::Max, DType::I32, &[&[-5, 2][..], &[-7, 3]]), [-5, 3]);
        assert!(misfit(ReduceOp::Mean, DType::I32).is_some_and(|m| m.contains("the mean of i32")));
        assert!(misfit(ReduceOp::Sum, DType::Bool).is_some_and(|m| m.contains("the sum of bool")));
        assert_eq!(misfit(ReduceOp::Max, DType::Bool), None);
    }
}
