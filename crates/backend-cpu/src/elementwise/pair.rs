//! Two operations in one step: sums, differences and products of f32, where the result of the first is used
//! only by the second. The intermediate result stays in a processor register.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use tensor_core::{BinaryOp, DType, Result};

#[cfg(target_arch = "x86_64")]
use crate::simd::vector::{F32x8, F32x16};
use crate::{
    elementwise::values::Values,
    simd::{
        F32x4,
        isa::{Isa, Job},
        vector::Vector,
    },
};

/// The second operation of a pair, on the first's result t and an operand c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// t + c.
    Add,
    /// t − c.
    Sub,
    /// c − t.
    SubFrom,
    /// t · c.
    Mul,
}

impl Second {
    /// The second operation for `op` if t is its left operand (`left`) or its right one.
    pub(crate) fn of(op: BinaryOp, dtype: DType, left: bool) -> Option<Second> {
        if !is_first(op, dtype) {
            return None;
        }
        match op {
            BinaryOp::Add => Some(Second::Add),
            BinaryOp::Mul => Some(Second::Mul),
            BinaryOp::Sub if left => Some(Second::Sub),
            BinaryOp::Sub => Some(Second::SubFrom),
            BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Remainder | BinaryOp::Pow => None,
            BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::Atan2 | BinaryOp::And => None,
            BinaryOp::Or | BinaryOp::Xor | BinaryOp::LeftShift | BinaryOp::RightShift => None,
            BinaryOp::Gcd => None,
        }
    }
}

/// Whether an operation can be the first of a pair.
pub(crate) fn is_first(op: BinaryOp, dtype: DType) -> bool {
    dtype == DType::F32 && matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul)
}

/// `out = (a first b) second c` over `n` elements of f32. Operands that are uniform are read as numbers.
///
/// # Safety
/// The operands are aligned f32. `out` is aligned and valid for writes of `n` f32; it is an operand that is
/// not uniform, or overlaps none.
pub(crate) unsafe fn pair(
    isa: Isa,
    (first, second): (BinaryOp, Second),
    operands: [Values; 3],
    out: *mut u8,
    n: usize,
) -> Result<()> {
    if n == 0 {
        return Ok(());
    }
    let mut numbers = operands.map(Values::is_uniform);
    let [a, b, c] = operands.map(|values| values.first(if values.is_uniform() { 1 } else { n }));
    let mut operands = [a?, b?, c?].map(<*const u8>::cast::<f32>);
    // The number becomes the right operand if the operation is commutative.
    if numbers[0] && !numbers[1] && first != BinaryOp::Sub {
        operands.swap(0, 1);
        numbers.swap(0, 1);
    }
    let out = out.cast::<f32>();
    macro_rules! on {
        ($V:ident, $first:expr, $second:expr, $numbers:expr) => {
            // SAFETY: `first` checked that each operand has n elements, or one if it is a number, and `out`
            // is as `# Safety` says. `go!` selects a register of `isa`, which the processor has.
            unsafe {
                $V::run(Pair::<$V, $first, $second, $numbers> { operands, out, n, register: PhantomData })
            }
        };
    }
    macro_rules! go {
        ($first:expr, $second:expr, $numbers:expr) => {{
            #[cfg(target_arch = "x86_64")]
            if isa.is_avx512() {
                on!(F32x16, $first, $second, $numbers);
                return Ok(());
            }
            #[cfg(target_arch = "x86_64")]
            if isa.is_avx2() {
                on!(F32x8, $first, $second, $numbers);
                return Ok(());
            }
            on!(F32x4, $first, $second, $numbers)
        }};
    }
    macro_rules! second {
        ($first:expr, $numbers:expr) => {
            match second {
                Second::Add => go!($first, ADD, $numbers),
                Second::Sub => go!($first, SUB, $numbers),
                Second::SubFrom => go!($first, SUB_FROM, $numbers),
                Second::Mul => go!($first, MUL, $numbers),
            }
        };
    }
    macro_rules! first {
        ($numbers:expr) => {
            match first {
                BinaryOp::Add => second!(ADD, $numbers),
                BinaryOp::Sub => second!(SUB, $numbers),
                // `is_first` allows no other operation.
                _ => second!(MUL, $numbers),
            }
        };
    }
    match (numbers, first) {
        ([false, false, false], _) => first!(0),
        ([false, true, false], _) => first!(B),
        ([false, false, true], _) => first!(C),
        ([false, true, true], _) => first!({ B | C }),
        ([true, true, false], _) => first!({ A | B }),
        ([true, true, true], _) => first!({ A | B | C }),
        // Only a difference keeps the number on the left.
        ([true, false, false], _) => second!(SUB, A),
        ([true, false, true], _) => second!(SUB, { A | C }),
    }
    Ok(())
}

/// Operations, as const parameters of a loop.
const ADD: u8 = 0;
const SUB: u8 = 1;
const SUB_FROM: u8 = 2;
const MUL: u8 = 3;

#[inline(always)]
fn apply<const OP: u8, V: Vector>(x: V, y: V) -> V {
    match OP {
        ADD => x + y,
        SUB => x - y,
        SUB_FROM => y - x,
        _ => x * y,
    }
}

/// Bits for the operands that are numbers, as a const parameter of a loop.
const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 4;

/// Registers of a turn.
const UNROLLED_REGISTERS: usize = 4;

struct Pair<V, const FIRST: u8, const SECOND: u8, const NUMBERS: u8> {
    operands: [*const f32; 3],
    out: *mut f32,
    n: usize,
    register: PhantomData<V>,
}

impl<V: Vector<Number = f32>, const FIRST: u8, const SECOND: u8, const NUMBERS: u8> Job
    for Pair<V, FIRST, SECOND, NUMBERS>
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Pair { operands: [a, b, c], out, n, .. } = self;
        // SAFETY: `first` checked that each operand has an element: n is not 0.
        let [x, y, z] = unsafe { [V::splat(a.read()), V::splat(b.read()), V::splat(c.read())] };
        // A macro, because closures would be compiled without the instruction set.
        macro_rules! some {
            ($load:ident, $at:expr, $n:expr $(, $count:expr)?) => {{
                let a = if NUMBERS & A != 0 { x } else { V::$load(a.add($at) $(, $count)?) };
                let b = if NUMBERS & B != 0 { y } else { V::$load(b.add($at) $(, $count)?) };
                let c = if NUMBERS & C != 0 { z } else { V::$load(c.add($at) $(, $count)?) };
                apply::<SECOND, V>(apply::<FIRST, V>(a, b), c).store_first(out.add($at), $n);
            }};
        }
        let mut i = 0;
        while i + UNROLLED_REGISTERS * V::WIDTH <= n {
            for k in 0..UNROLLED_REGISTERS {
                // SAFETY: operands that are no numbers have n elements, as `pair` checked, and `out` has room
                // for n; the register ends by n, and elements are read before they are written.
                unsafe { some!(load, i + k * V::WIDTH, V::WIDTH) };
            }
            i += UNROLLED_REGISTERS * V::WIDTH;
        }
        while i + V::WIDTH <= n {
            // SAFETY: operands that are no numbers have n elements, as `pair` checked, and `out` has room for
            // n; i + `WIDTH` is at most n.
            unsafe { some!(load, i, V::WIDTH) };
            i += V::WIDTH;
        }
        if i < n {
            // SAFETY: operands that are no numbers have n elements, as `pair` checked, and `out` has room for
            // n; n − i is from 1 to `WIDTH` − 1.
            unsafe { some!(load_first, i, n - i, n - i) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair gives the same bits as its two operations one after the other, with any operand a number, and
    /// also when written in place.
    #[test]
    fn a_pair_is_one_operation_after_the_other() {
        let apply = |op: BinaryOp, x: f32, y: f32| {
            if op == BinaryOp::Add {
                x + y
            } else if op == BinaryOp::Sub {
                x - y
            } else {
                x * y
            }
        };
        for n in [0, 1, 31, 32, 33, 64, 100, 1000] {
            let some = |step: usize| (0..n).map(|i| (i * step % 17) as f32 / 3.0 - 2.0).collect::<Vec<f32>>();
            let all = [some(3), some(5), some(7)];
            for isa in Isa::available() {
                for (numbers, place) in (0..8).flat_map(|numbers| (0..4).map(move |place| (numbers, place))) {
                    let numbers = [0, 1, 2].map(|k| numbers >> k & 1 == 1);
                    if numbers.get(place) == Some(&true) {
                        continue;
                    }
                    for (first, second, left) in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul]
                        .into_iter()
                        .flat_map(|first| {
                            [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul].map(|second| (first, second))
                        })
                        .flat_map(|(first, second)| [true, false].map(|left| (first, second, left)))
                    {
                        let expected: Vec<f32> = (0..n)
                            .map(|i| {
                                let at = |k: usize| all[k][if numbers[k] { 0 } else { i }];
                                let t = apply(first, at(0), at(1));
                                if left { apply(second, t, at(2)) } else { apply(second, at(2), t) }
                            })
                            .collect();
                        let mut out = all.get(place).cloned().unwrap_or_else(|| vec![0.0; n]);
                        let to = out.as_mut_ptr();
                        let operands: [Values; 3] = std::array::from_fn(|k| {
                            let at = if k == place { to.cast_const().cast() } else { all[k].as_ptr().cast() };
                            if numbers[k] { Values::filled(at, n.min(1)) } else { Values::block(at, n) }
                        });
                        let Some(both) = Second::of(second, DType::F32, left).map(|second| (first, second))
                        else {
                            panic!("{second:?} is no second operation");
                        };
                        // SAFETY: the operands hold n elements, or one if n is not 0; `out` has n, and is an
                        // operand or apart.
                        unsafe { pair(isa, both, operands, to.cast(), n).unwrap() };
                        assert_eq!(out, expected, "{both:?} of {n}, {numbers:?}, {isa:?}, in {place}");
                    }
                }
            }
        }
    }
}
