//! Accumulators of the reductions in [`reduce`](super::reduce) and [`rows`](super::rows): f64 for floats,
//! i64 for the rest.
#![allow(unsafe_code)]

use tensor_core::{Arithmetic, DType, Element, ReduceOp, Scalar, with_element};

use crate::{
    elementwise::table,
    memory::buffer::Memory,
    simd::{
        isa::Isa,
        loops::{accumulate, fold, fold_any_order, fold_extreme, map2},
    },
};

/// Rows of elements, `stride` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct RowBlock {
    pub(crate) data: *const u8,
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

/// A partial result: f64 for floats, i64 for the rest (its low bits wrap like those of any integer).
pub(crate) trait Accumulator: Copy + Send + Sync {
    fn identity(op: ReduceOp) -> Self;
    fn join(op: ReduceOp, a: Self, b: Self) -> Self;
    /// Folds a block of the compute dtype.
    ///
    /// # Safety
    /// `data` is aligned and holds `n` initialised elements of the dtype's compute dtype. For an f64,
    /// `dtype` is a float.
    unsafe fn fold(isa: Isa, op: ReduceOp, dtype: DType, data: *const u8, n: usize) -> Self;
    /// Joins rows of the compute dtype to `sums`, element by element; or to `narrow` if that has the
    /// precision of the dtype. [`Accumulator::open`] empties `narrow`, and [`Accumulator::close`] joins it
    /// to `sums`.
    ///
    /// # Safety
    /// Each row is aligned and holds as many initialised elements of the dtype's compute dtype as there are
    /// sums. For f64 sums, `dtype` is a float.
    unsafe fn accumulate(
        isa: Isa,
        op: ReduceOp,
        dtype: DType,
        sums: &mut [Self],
        narrow: &mut [f32],
        rows: RowBlock,
    );
    fn open(op: ReduceOp, dtype: DType, narrow: &mut [f32]);
    fn close(isa: Isa, op: ReduceOp, dtype: DType, sums: &mut [Self], narrow: &[f32]);
    /// # Safety
    /// `out` is of `dtype` and has room for `all.len()` elements.
    unsafe fn finish(op: ReduceOp, dtype: DType, count: usize, all: &[Self], out: Memory);
}

/// The greater of two floats, or NaN if either is NaN: three vector instructions.
macro_rules! greater {
    ($a:expr, $v:expr) => {{
        let greater = if $v > $a { $v } else { $a };
        if $v.is_nan() { $v } else { greater }
    }};
}

/// The lesser of two floats, or NaN if either is NaN.
macro_rules! lesser {
    ($a:expr, $v:expr) => {{
        let lesser = if $v < $a { $v } else { $a };
        if $v.is_nan() { $v } else { lesser }
    }};
}

pub(crate) use {greater, lesser};

/// Whether floats are accumulated in f32 within a group. Means are not: the mean of equal numbers has to be
/// that number, and numbers whose sum overflows f32 have a mean.
fn is_narrow(op: ReduceOp, dtype: DType) -> bool {
    dtype != DType::F64 && !matches!(op, ReduceOp::Prod | ReduceOp::Mean)
}

impl Accumulator for f64 {
    fn identity(op: ReduceOp) -> f64 {
        match op {
            ReduceOp::Prod => 1.0,
            ReduceOp::Max => f64::NEG_INFINITY,
            ReduceOp::Min => f64::INFINITY,
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Any | ReduceOp::All => 0.0,
        }
    }

    #[inline(always)]
    fn join(op: ReduceOp, a: f64, b: f64) -> f64 {
        match op {
            ReduceOp::Prod => a * b,
            ReduceOp::Max => greater!(a, b),
            ReduceOp::Min => lesser!(a, b),
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Any | ReduceOp::All => a + b,
        }
    }

    unsafe fn fold(isa: Isa, op: ReduceOp, dtype: DType, data: *const u8, n: usize) -> f64 {
        // `$sets`: the wide instruction sets, for hot operations.
        macro_rules! go {
            ($t:ty, $sets:expr) => {{
                let data = data.cast::<$t>();
                // SAFETY: `data` holds `n` elements by `# Safety`; `go!` gets the compute dtype of a float,
                // f64 for F64 and f32 for the others.
                unsafe {
                    match op {
                        ReduceOp::Prod => {
                            f64::from(fold(isa, $sets, data, n, 1.0 as $t, |a, v| a * v, |a, b| a * b))
                        }
                        ReduceOp::Max => {
                            let pick = |a: $t, v: $t| greater!(a, v);
                            f64::from(fold(isa, $sets, data, n, <$t>::NEG_INFINITY, pick, pick))
                        }
                        ReduceOp::Min => {
                            let pick = |a: $t, v: $t| lesser!(a, v);
                            f64::from(fold(isa, $sets, data, n, <$t>::INFINITY, pick, pick))
                        }
                        ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Any | ReduceOp::All => {
                            f64::from(fold(isa, $sets, data, n, 0.0 as $t, |a, v| a + v, |a, b| a + b))
                        }
                    }
                }
            }};
        }
        /// A separate search for NaN pays only from this many numbers on.
        const NAN_SEARCH_MIN_ELEMENTS: usize = 32;
        if dtype != DType::F64 && n >= NAN_SEARCH_MIN_ELEMENTS && matches!(op, ReduceOp::Max | ReduceOp::Min)
        {
            let data = data.cast();
            // SAFETY: `data` holds `n` elements by `# Safety`, and all floats but F64 are computed in f32.
            return f64::from(unsafe {
                if op == ReduceOp::Max {
                    fold_extreme(isa, data, n, f32::NEG_INFINITY, |a, v| if v > a { v } else { a })
                } else {
                    fold_extreme(isa, data, n, f32::INFINITY, |a, v| if v < a { v } else { a })
                }
            });
        }
        if op == ReduceOp::Mean && dtype != DType::F64 {
            // SAFETY: `data` holds `n` elements by `# Safety`, and all floats but F64 are computed in f32.
            return unsafe {
                fold(isa, isa, data.cast::<f32>(), n, 0.0f64, |a, v| a + f64::from(v), |a, b| a + b)
            };
        }
        if dtype == DType::F64 { go!(f64, isa.narrow()) } else { go!(f32, isa) }
    }

    unsafe fn accumulate(
        isa: Isa,
        op: ReduceOp,
        dtype: DType,
        sums: &mut [f64],
        narrow: &mut [f32],
        rows: RowBlock,
    ) {
        macro_rules! go {
            ($sets:expr, $t:ty, $to:expr, $f:expr) => {{
                let data = rows.data.cast::<$t>();
                // SAFETY: by `# Safety` each row holds `sums.len()` elements, the length of `narrow` too;
                // `$t` is the compute dtype, f64 for F64, else f32.
                unsafe { accumulate($sets, $to, data, rows.stride, rows.count, $f) }
            }};
        }
        let few = isa.narrow();
        let narrow = &mut narrow[..sums.len()];
        match (dtype == DType::F64, op) {
            (true, ReduceOp::Prod) => go!(few, f64, sums, |a, v| a * v),
            (true, ReduceOp::Max) => go!(few, f64, sums, |a, v| greater!(a, v)),
            (true, ReduceOp::Min) => go!(few, f64, sums, |a, v| lesser!(a, v)),
            (true, ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Any | ReduceOp::All) => {
                go!(few, f64, sums, |a, v| a + v)
            }
            // Products overflow or underflow f32 too easily.
            (false, ReduceOp::Prod) => go!(few, f32, sums, |a, v| a * f64::from(v)),
            (false, ReduceOp::Mean) => go!(isa, f32, sums, |a, v| a + f64::from(v)),
            (false, ReduceOp::Max) => go!(isa, f32, narrow, |a, v| greater!(a, v)),
            (false, ReduceOp::Min) => go!(isa, f32, narrow, |a, v| lesser!(a, v)),
            (false, ReduceOp::Sum | ReduceOp::Any | ReduceOp::All) => {
                go!(isa, f32, narrow, |a, v| a + v)
            }
        }
    }

    fn open(op: ReduceOp, dtype: DType, narrow: &mut [f32]) {
        if is_narrow(op, dtype) {
            narrow.fill(f64::identity(op) as f32);
        }
    }

    fn close(isa: Isa, op: ReduceOp, dtype: DType, sums: &mut [f64], narrow: &[f32]) {
        if !is_narrow(op, dtype) {
            return;
        }
        let few = isa.narrow();
        let (n, sums, narrow) = (sums.len().min(narrow.len()), sums.as_mut_ptr(), narrow.as_ptr());
        // SAFETY: both slices have at least n elements.
        unsafe {
            match op {
                ReduceOp::Max => {
                    map2(few, sums, narrow, sums, n, |a, v| f64::join(ReduceOp::Max, a, f64::from(v)))
                }
                ReduceOp::Min => {
                    map2(few, sums, narrow, sums, n, |a, v| f64::join(ReduceOp::Min, a, f64::from(v)))
                }
                ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod | ReduceOp::Any | ReduceOp::All => {
                    map2(few, sums, narrow, sums, n, |a, v| a + f64::from(v))
                }
            }
        }
    }

    unsafe fn finish(op: ReduceOp, dtype: DType, count: usize, all: &[f64], out: Memory) {
        let last = |v: f64| if op == ReduceOp::Mean { v / count as f64 } else { v };
        debug_assert!(dtype.is_float(), "{dtype} is accumulated as i64");
        // Narrow types are rounded by way of f32, as a cast of a result held in f32 would be.
        let held = |v: f64| if dtype.is_narrow() { f64::from(v as f32) } else { v };
        with_element!(dtype, T => for (i, &v) in all.iter().enumerate() {
            // SAFETY: i < `all.len()`, and `out` has room for that many elements of `dtype` by `# Safety`.
            unsafe { out.at::<T>(i).write(T::from_scalar(Scalar::Float(held(last(v))))) };
        });
    }
}

/// Whether extremes of a dtype are accumulated as i64, mapped by [`in_order`] to keep the order.
fn is_ordered(op: ReduceOp, dtype: DType) -> bool {
    dtype == DType::U64 && matches!(op, ReduceOp::Max | ReduceOp::Min)
}

/// Maps a u64 to an i64 with the same order.
#[inline(always)]
fn in_order(v: u64) -> i64 {
    v as i64 ^ i64::MIN
}

impl Accumulator for i64 {
    fn identity(op: ReduceOp) -> i64 {
        match op {
            ReduceOp::Prod | ReduceOp::All => 1,
            ReduceOp::Max => i64::MIN,
            ReduceOp::Min => i64::MAX,
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Any => 0,
        }
    }

    #[inline(always)]
    fn join(op: ReduceOp, a: i64, b: i64) -> i64 {
        match op {
            ReduceOp::Prod => a.wrapping_mul(b),
            ReduceOp::Max => a.max(b),
            ReduceOp::Min => a.min(b),
            ReduceOp::Any => a | b,
            ReduceOp::All => a & b,
            ReduceOp::Sum | ReduceOp::Mean => a.wrapping_add(b),
        }
    }

    unsafe fn fold(isa: Isa, op: ReduceOp, dtype: DType, data: *const u8, n: usize) -> i64 {
        macro_rules! go {
            ($t:ty, $start:expr, $f:expr) => {{
                // SAFETY: `data` holds `n` elements by `# Safety`; each arm passes the compute dtype as
                // `$t`, or for U64 and bools an integer of its size.
                unsafe { fold_any_order(isa, data.cast::<$t>(), n, $start, |a, v| $f(a, i64::from(v)), $f) }
            }};
        }
        let (or, and) = (|a: i64, b: i64| a | b, |a: i64, b: i64| a & b);
        match (dtype.arithmetic(), op) {
            (Arithmetic::U64, ReduceOp::Max | ReduceOp::Min) => {
                let data = data.cast::<u64>();
                // SAFETY: `data` holds `n` elements by `# Safety`, and this arm's compute dtype is u64.
                unsafe {
                    fold_any_order(
                        isa,
                        data,
                        n,
                        i64::identity(op),
                        |a, v| i64::join(op, a, in_order(v)),
                        |a, b| i64::join(op, a, b),
                    )
                }
            }
            (Arithmetic::I64 | Arithmetic::U64, ReduceOp::Prod) => go!(i64, 1, i64::wrapping_mul),
            (Arithmetic::I64, ReduceOp::Max) => go!(i64, i64::MIN, i64::max),
            (Arithmetic::I64, ReduceOp::Min) => go!(i64, i64::MAX, i64::min),
            (Arithmetic::I64 | Arithmetic::U64, ReduceOp::Any) => go!(i64, 0, or),
            (Arithmetic::I64 | Arithmetic::U64, ReduceOp::All) => go!(i64, 1, and),
            (Arithmetic::I64 | Arithmetic::U64, ReduceOp::Sum | ReduceOp::Mean) => {
                go!(i64, 0, i64::wrapping_add)
            }
            // Reductions of masks.
            (Arithmetic::Bool, ReduceOp::Sum) => go!(u8, 0, i64::wrapping_add),
            (Arithmetic::Bool, ReduceOp::Any) => go!(u8, 0, or),
            (Arithmetic::Bool, ReduceOp::All) => go!(u8, 1, and),
            (Arithmetic::Bool, ReduceOp::Mean | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min)
            | (
                Arithmetic::I32 | Arithmetic::U32 | Arithmetic::F32 | Arithmetic::F64,
                ReduceOp::Sum
                | ReduceOp::Mean
                | ReduceOp::Prod
                | ReduceOp::Max
                | ReduceOp::Min
                | ReduceOp::Any
                | ReduceOp::All,
            ) => {
                let mut all = i64::identity(op);
                // SAFETY: `data` holds `n` elements of the compute dtype by `# Safety`; `as_i64` passes
                // blocks of as many i64 as its `n` says.
                let folded = unsafe {
                    table::as_i64(isa, dtype.register(), [data], n, &mut |_, [wide], n| {
                        all = i64::join(op, all, i64::fold(isa, op, DType::I64, wide, n));
                        Ok(())
                    })
                };
                debug_assert!(folded.is_ok());
                all
            }
        }
    }

    unsafe fn accumulate(
        isa: Isa,
        op: ReduceOp,
        dtype: DType,
        sums: &mut [i64],
        _: &mut [f32],
        rows: RowBlock,
    ) {
        macro_rules! go {
            ($t:ty) => {
                go!($t, |v| v as i64)
            };
            ($t:ty, $f:expr) => {{
                let data = rows.data.cast::<$t>();
                // SAFETY: by `# Safety` each row holds `sums.len()` elements; each arm passes an integer of
                // the compute dtype's size as `$t`.
                unsafe {
                    accumulate(isa.narrow(), sums, data, rows.stride, rows.count, |a, v| {
                        i64::join(op, a, $f(v))
                    })
                }
            }};
        }
        match dtype.arithmetic() {
            Arithmetic::U64 if is_ordered(op, dtype) => go!(u64, in_order),
            Arithmetic::I64 | Arithmetic::U64 => go!(i64),
            Arithmetic::I32 => go!(i32),
            Arithmetic::U32 => go!(u32),
            Arithmetic::Bool => go!(u8),
            Arithmetic::F32 | Arithmetic::F64 => debug_assert!(false, "{dtype} is accumulated as f64"),
        }
    }

    fn open(_: ReduceOp, _: DType, _: &mut [f32]) {}

    fn close(_: Isa, _: ReduceOp, _: DType, _: &mut [i64], _: &[f32]) {}

    unsafe fn finish(op: ReduceOp, dtype: DType, _: usize, all: &[i64], out: Memory) {
        debug_assert!(!dtype.is_float(), "{dtype} is accumulated as f64");
        let flip = if is_ordered(op, dtype) { i64::MIN } else { 0 };
        with_element!(dtype, T => for (i, &v) in all.iter().enumerate() {
            // SAFETY: i < `all.len()`, and `out` has room for that many elements of `dtype` by `# Safety`.
            unsafe { out.at::<T>(i).write(T::from_scalar(Scalar::Int(v ^ flip))) };
        });
    }
}
