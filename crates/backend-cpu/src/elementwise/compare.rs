//! Comparisons, selections, and a comparison fused with the selection that uses it.
#![allow(unsafe_code)]

use tensor_core::{Arithmetic, CompareOp, DType};

use super::table::as_i64;
use crate::simd::{
    isa::{Isa, Short},
    loops::{map2, map3, map4},
};

/// `out = a op b` as bool, over `n` elements of `dtype`.
///
/// # Safety
/// `a` and `b` are aligned and valid for reads of `n` elements of `dtype`'s compute type, `out` for writes of
/// `n` bools; `out` does not overlap the others.
pub(crate) unsafe fn compare(
    isa: Isa,
    op: CompareOp,
    dtype: DType,
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
) {
    let (a, b, op) = match op {
        CompareOp::Gt => (b, a, CompareOp::Lt),
        CompareOp::Ge => (b, a, CompareOp::Le),
        CompareOp::Eq | CompareOp::Ne | CompareOp::Lt | CompareOp::Le => (a, b, op),
    };
    macro_rules! all {
        ($sets:expr, $t:ty) => {
            // SAFETY: `$t` is the compute type, of which `a` and `b` hold `n` elements; `out` has room for
            // `n` bools, apart from both: all by `# Safety`.
            unsafe {
                let (a, b, out) = (a.cast::<$t>(), b.cast::<$t>(), out.cast::<bool>());
                match op {
                    CompareOp::Eq => map2($sets, a, b, out, n, |x, y| x == y),
                    CompareOp::Ne => map2($sets, a, b, out, n, |x, y| x != y),
                    CompareOp::Lt | CompareOp::Gt => map2($sets, a, b, out, n, |x, y| x < y),
                    CompareOp::Le | CompareOp::Ge => map2($sets, a, b, out, n, |x, y| x <= y),
                }
            }
        };
    }
    match dtype.arithmetic() {
        Arithmetic::F64 => all!(isa.narrow(), f64),
        Arithmetic::I64 => all!(isa.narrow(), i64),
        Arithmetic::U64 => all!(isa.narrow(), u64),
        Arithmetic::I32 => all!(isa.narrow(), i32),
        // SAFETY: `a` and `b` hold the `n` elements that `as_i64` reads, by `# Safety`. The pieces x and y
        // hold n i64, and `out` has room for bools `start..start + n`.
        Arithmetic::U32 | Arithmetic::Bool => unsafe {
            let compared = as_i64(isa, dtype, [a, b], n, &mut |start, [x, y], n| {
                compare(isa, op, DType::I64, x, y, out.wrapping_add(start), n);
                Ok(())
            });
            debug_assert!(compared.is_ok());
        },
        Arithmetic::F32 => all!(Short(isa), f32),
    }
}

/// `out = condition ? a : b` over `n` elements of `dtype`.
///
/// # Safety
/// `condition` is valid for reads of `n` bools, the other operands of `n` elements of `dtype`'s compute type,
/// and `out` for writes of as many; all are aligned. `out` is an operand with elements of its size, or
/// overlaps none.
pub(crate) unsafe fn select(
    isa: Isa,
    dtype: DType,
    condition: *const u8,
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
) {
    macro_rules! all {
        ($sets:expr, $t:ty) => {
            // SAFETY: `$t` has the size of the compute type; `# Safety` gives `n` elements behind each
            // pointer, with an `out` that is an operand or apart.
            unsafe {
                map3::<bool, $t, $t, $t>(
                    $sets,
                    condition.cast(),
                    a.cast(),
                    b.cast(),
                    out.cast(),
                    n,
                    |c, x, y| {
                        if c { x } else { y }
                    },
                )
            }
        };
    }
    match dtype.arithmetic() {
        Arithmetic::Bool => all!(isa.narrow(), u8),
        Arithmetic::I32 | Arithmetic::U32 | Arithmetic::F32 => all!(isa, u32),
        Arithmetic::I64 | Arithmetic::U64 | Arithmetic::F64 => all!(isa.narrow(), u64),
    }
}

/// `out = x op y ? a : b` over `n` elements of f32, for operands x, y, a and b.
///
/// # Safety
/// The operands are aligned and valid for reads of `n` f32, `out` for writes of as many; `out` overlaps no
/// operand.
pub(crate) unsafe fn choose(isa: Isa, op: CompareOp, operands: [*const u8; 4], out: *mut u8, n: usize) {
    // `x > y` is `y < x` for all floats, NaN included.
    let [x, y, a, b] = operands.map(<*const u8>::cast::<f32>);
    let (x, y, op) = match op {
        CompareOp::Gt => (y, x, CompareOp::Lt),
        CompareOp::Ge => (y, x, CompareOp::Le),
        CompareOp::Eq | CompareOp::Ne | CompareOp::Lt | CompareOp::Le => (x, y, op),
    };
    let out = out.cast::<f32>();
    macro_rules! go {
        ($f:expr) => {
            // SAFETY: each pointer is valid for `n` aligned f32, and `out` overlaps none, by `# Safety`.
            unsafe {
                map4(isa, x, y, a, b, out, n, |x: f32, y: f32, a: f32, b: f32| if $f(x, y) { a } else { b })
            }
        };
    }
    match op {
        CompareOp::Eq => go!(|x, y| x == y),
        CompareOp::Ne => go!(|x, y| x != y),
        CompareOp::Lt | CompareOp::Gt => go!(|x, y| x < y),
        CompareOp::Le | CompareOp::Ge => go!(|x, y| x <= y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fused form gives the same results as a comparison followed by a selection, for all kinds of
    /// floats.
    #[test]
    fn a_choice_is_a_comparison_and_a_selection() {
        let numbers = [1.5f32, -0.0, 0.0, f32::NAN, f32::INFINITY, -2.0, f32::NEG_INFINITY, 1e-40];
        let some =
            |n: usize, step: usize| (0..n).map(|i| numbers[(i * step + i / 8) % 8]).collect::<Vec<f32>>();
        let bytes = |v: &[f32]| v.as_ptr().cast::<u8>();
        for n in [0, 1, 15, 16, 17, 64, 100, 1000] {
            let (x, y, a, b) = (some(n, 1), some(n, 3), some(n, 5), some(n, 7));
            for isa in Isa::available() {
                for op in
                    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge]
                {
                    let (mut is, mut expected, mut out) = (vec![false; n], vec![0f32; n], vec![0f32; n]);
                    let (a, b) = (bytes(&a), bytes(&b));
                    // SAFETY: all hold n elements and do not overlap.
                    unsafe {
                        compare(isa, op, DType::F32, bytes(&x), bytes(&y), is.as_mut_ptr().cast(), n);
                        select(isa, DType::F32, is.as_ptr().cast(), a, b, expected.as_mut_ptr().cast(), n);
                        choose(isa, op, [bytes(&x), bytes(&y), a, b], out.as_mut_ptr().cast(), n);
                    }
                    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
                    assert_eq!(bits(&out), bits(&expected), "{op:?} of {n}, {isa:?}");
                }
            }
        }
    }
}
