//! Cumulative operations. Several lines run at a time, one element of each after the other: lines whose
//! neighbours are contiguous make vectors, and for other lines the dependency chains of several run in
//! parallel. Contiguous lines of f32, i32 and i64 are handled by `running`, except products and
//! positions of integer extremes.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{
    Arithmetic, CumulativeOp, DType, Error, ErrorKind, Launch, Layout, Result, kernel::Operand,
};

use super::running::{Extreme, Integers, Line, Running, Sum};
use crate::{
    elementwise::{engine::store, table},
    memory::{
        buffer::{Bound, Memory, by_size},
        lines::{Band, Lines, pieces},
        narrow,
        pool::Pool,
        strided::{self, Shared},
    },
    simd::{
        isa::{Isa, Job, Plain, Sets},
        order::{Ordered, opposite},
    },
    threads,
    tuning::{BLOCK_POSITIONS, SCAN_MIN_LINE, SERIAL_LINE_ELEMENTS},
};

/// Lines taken together where neighbours are contiguous: their states stay in the first-level cache.
const LINE_GROUP: usize = 256;
/// Rows taken together: enough chains to hide the latency of an addition.
const ROWS: usize = 8;

/// The dtypes that have loops; other dtypes are converted to one of them and back.
#[derive(Clone, Copy)]
enum Work {
    F64,
    F32,
    I64,
    /// Used only if the order of u64 matters; otherwise u64 is computed as i64.
    U64,
}

impl Work {
    fn dtype(self) -> DType {
        match self {
            Work::F64 => DType::F64,
            Work::F32 => DType::F32,
            Work::I64 => DType::I64,
            Work::U64 => DType::U64,
        }
    }
}

pub(crate) fn run(
    isa: Isa,
    pool: &Arc<Pool>,
    (op, axis, reverse): (CumulativeOp, usize, bool),
    launch: &Launch<'_>,
) -> Result<()> {
    let bound = Bound::of_launch(pool, launch)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    let (shape, operand) = (&launch.kernel.space, &launch.kernel.operands[0]);
    let dtype = operand.dtype;
    if shape.numel() == 0 {
        return Ok(());
    }
    let work = match dtype.arithmetic() {
        Arithmetic::F64 => Work::F64,
        Arithmetic::F32 if dtype.is_narrow() && op == CumulativeOp::LogSumExp => Work::F64,
        Arithmetic::F32 => Work::F32,
        Arithmetic::U64 if op.is_arg() => Work::U64,
        Arithmetic::I64 | Arithmetic::U64 | Arithmetic::I32 | Arithmetic::U32 | Arithmetic::Bool => Work::I64,
    };
    let lacks = match op {
        CumulativeOp::Sum | CumulativeOp::Prod => dtype.is_bool(),
        CumulativeOp::LogSumExp => !dtype.is_float(),
        CumulativeOp::ArgMax | CumulativeOp::ArgMin => false,
    };
    if lacks {
        return Err(lacking(op.name(), dtype));
    }
    let scan = Scan { isa, reverse, layout: &operand.layout, axis, input, out };
    if (op, dtype) == (CumulativeOp::Sum, DType::I32) && scan.in_vectors::<Integers<i32>, _>() {
        return Ok(());
    }
    if work.dtype() == dtype {
        compute(op, dtype, work, scan);
        return Ok(());
    }
    // Other dtypes have no loops of their own: they are converted and converted back.
    let numel = shape.numel();
    let (mut wide, layout) = (vec![0u64; numel], Layout::contiguous(shape.clone()));
    let wide = Memory { ptr: wide.as_mut_ptr().cast(), numel, dtype: work.dtype() };
    widen(isa, operand, input, wide);
    if op.is_arg() {
        compute(op, dtype, work, Scan { isa, reverse, layout: &layout, axis, input: wide, out });
        return Ok(());
    }
    let mut results = vec![0u64; numel];
    let results = Memory { ptr: results.as_mut_ptr().cast(), numel, dtype: work.dtype() };
    compute(op, dtype, work, Scan { isa, reverse, layout: &layout, axis, input: wide, out: results });
    // SAFETY: `results` and the output hold `numel` elements of these dtypes, a block has room for `n`, and
    // each piece writes its own blocks.
    let some = |at: usize, n: usize, block: *mut u8| unsafe {
        table::cast(isa, work.dtype(), dtype, results.at::<u8>(at), block, n);
        store(isa, dtype, block, out.at::<u8>(at), n);
    };
    by_blocks(numel, &some);
    Ok(())
}

/// Calls `f(at, n, block)` for positions `0..numel`, a block at a time, with memory for one block.
fn by_blocks(numel: usize, f: &(dyn Fn(usize, usize, *mut u8) + Sync)) {
    pieces(numel.div_ceil(BLOCK_POSITIONS), numel, &|start, end| {
        let mut block = [0u64; BLOCK_POSITIONS];
        for b in start..end {
            f(
                b * BLOCK_POSITIONS,
                BLOCK_POSITIONS.min(numel - b * BLOCK_POSITIONS),
                block.as_mut_ptr().cast(),
            );
        }
    });
}

/// Copies the input's elements to `wide`, in row-major order and converted to its dtype.
fn widen(isa: Isa, operand: &Operand, input: Memory, wide: Memory) {
    let Operand { dtype, layout, .. } = operand;
    let (shape, dtype, numel) = (layout.shape(), *dtype, wide.numel);
    let mut copy = vec![0u64; (numel * dtype.size()).div_ceil(size_of::<u64>())];
    let copy = Memory { ptr: copy.as_mut_ptr().cast(), numel, dtype };
    macro_rules! go {
        ($t:ty) => {{
            let from = input.at::<$t>(layout.offset()).cast_const();
            let (strides, plain) = (layout.strides(), shape.contiguous_strides());
            // SAFETY: `of_launch` checked the input's span; the copy has room for all elements.
            unsafe { strided::copy::<$t>(isa, shape, from, strides, copy.at::<$t>(0), &plain) }
        }};
    }
    by_size!(dtype, go);
    by_blocks(numel, &|at, n, block| {
        let held = copy.at::<u8>(at).cast_const();
        let from = match dtype.is_narrow() {
            true => {
                // SAFETY: the copy holds `n` elements from `at` on, and a block has room for `n` wide ones.
                unsafe { narrow::widen(isa, dtype, held, block.cast(), n) };
                block.cast_const().cast()
            }
            false => held,
        };
        // SAFETY: `from` and `wide` hold `n` elements there, and each piece writes its own blocks.
        unsafe { table::cast(isa, dtype.register(), wide.dtype, from, wide.at::<u8>(at), n) };
    });
}

/// Runs the operation over elements of type `work`.
fn compute(op: CumulativeOp, dtype: DType, work: Work, scan: Scan<'_>) {
    let (isa, narrow) = (scan.isa, scan.isa.narrow());
    // The greatest key so far, and its last position.
    macro_rules! last_greatest {
        ($t:ty, $key:expr) => {
            scan.go(
                narrow,
                |x: $t, i| ($key(x), i),
                |s, x: $t, i| {
                    let key = $key(x);
                    if key >= s.0 { (key, i) } else { s }
                },
                |s| s.1,
            )
        };
    }
    let narrow_float = dtype.is_reduced_float();
    // Sums and products keep a state wider than the output: f64 for f32, f32 for narrow floats.
    match (op, work) {
        (CumulativeOp::Sum, Work::F64) => scan.go(narrow, |x: f64, _| x, |s, x: f64, _| s + x, |s: f64| s),
        (CumulativeOp::Sum, Work::F32) if narrow_float => {
            scan.go(narrow, |x: f32, _| x, |s, x: f32, _| s + x, |s: f32| s)
        }
        (CumulativeOp::Sum, Work::F32) if scan.in_vectors::<Sum, _>() => {}
        (CumulativeOp::Sum, Work::F32) => {
            scan.go(isa, |x: f32, _| f64::from(x), |s, x: f32, _| s + f64::from(x), |s: f64| s as f32)
        }
        (CumulativeOp::Sum, Work::I64) if scan.in_vectors::<Integers<i64>, _>() => {}
        (CumulativeOp::Sum, Work::I64) => {
            scan.go(narrow, |x: i64, _| x, |s, x: i64, _| i64::wrapping_add(s, x), |s: i64| s)
        }
        (CumulativeOp::Prod, Work::F64) => scan.go(narrow, |x: f64, _| x, |s, x: f64, _| s * x, |s: f64| s),
        (CumulativeOp::Prod, Work::F32) if narrow_float => {
            scan.go(narrow, |x: f32, _| x, |s, x: f32, _| s * x, |s: f32| s)
        }
        (CumulativeOp::Prod, Work::F32) => {
            scan.go(narrow, |x: f32, _| f64::from(x), |s, x: f32, _| s * f64::from(x), |s: f64| s as f32)
        }
        (CumulativeOp::Prod, Work::I64) => {
            scan.go(narrow, |x: i64, _| x, |s, x: i64, _| i64::wrapping_mul(s, x), |s: i64| s)
        }
        (CumulativeOp::LogSumExp, Work::F64) => {
            scan.go(Plain, |x: f64, _| x, |s, x: f64, _| log_add_exp(s, x), |s: f64| s)
        }
        // LogSumExp of integers was refused above, and the u64 loops serve only positions of extremes.
        (CumulativeOp::LogSumExp, Work::I64 | Work::U64)
        | (CumulativeOp::Sum | CumulativeOp::Prod, Work::U64) => {}
        (CumulativeOp::LogSumExp, Work::F32) => scan.go(
            Plain,
            |x: f32, _| f64::from(x),
            |s, x: f32, _| log_add_exp(s, f64::from(x)),
            |s: f64| s as f32,
        ),
        (CumulativeOp::ArgMax, Work::F64) => last_greatest!(f64, Ordered::key),
        (CumulativeOp::ArgMax, Work::F32) if scan.in_vectors::<Extreme<false>, _>() => {}
        (CumulativeOp::ArgMax, Work::F32) => last_greatest!(f32, Ordered::key),
        (CumulativeOp::ArgMax, Work::I64) => last_greatest!(i64, Ordered::key),
        (CumulativeOp::ArgMax, Work::U64) => last_greatest!(u64, Ordered::key),
        (CumulativeOp::ArgMin, Work::F64) => last_greatest!(f64, opposite),
        (CumulativeOp::ArgMin, Work::F32) if scan.in_vectors::<Extreme<true>, _>() => {}
        (CumulativeOp::ArgMin, Work::F32) => last_greatest!(f32, opposite),
        (CumulativeOp::ArgMin, Work::I64) => last_greatest!(i64, opposite),
        (CumulativeOp::ArgMin, Work::U64) => last_greatest!(u64, opposite),
    }
}

fn lacking(op: &'static str, dtype: DType) -> Error {
    let hint = "cast first with .to_dtype(DType::F32)".into();
    Error::new(ErrorKind::Unsupported { op, device: "cpu".into(), dtype, hint })
}

/// ln(eᵃ + eᵇ).
fn log_add_exp(a: f64, b: f64) -> f64 {
    let greater = if a.is_nan() || a > b { a } else { b };
    if !greater.is_finite() {
        return greater;
    }
    greater + libm::log1p(libm::exp(-(a - b).abs()))
}

struct Scan<'a> {
    isa: Isa,
    reverse: bool,
    layout: &'a Layout,
    axis: usize,
    input: Memory,
    out: Memory,
}

impl Scan<'_> {
    /// Runs over all lines: `open` makes a state from the first element, `add` adds the next element,
    /// `close` converts a state to the stored value.
    fn go<X: Copy, S: Copy, Y>(
        &self,
        sets: impl Sets,
        open: impl Fn(X, i32) -> S + Copy + Sync,
        add: impl Fn(S, X, i32) -> S + Copy + Sync,
        close: impl Fn(S) -> Y + Copy + Sync,
    ) {
        let numel = self.layout.numel();
        let output = Layout::contiguous(self.layout.shape().clone());
        let lines = Lines::new([self.layout, &output], self.axis);
        let width = if lines.across[1] == 1 { LINE_GROUP } else { ROWS };
        let last = lines.length as isize - 1;
        let (begin, step) = if self.reverse { (last, -1) } else { (0, 1) };
        lines.for_each(width, numel, &|Band { lines: count, starts: [from, to] }| {
            let from = from + begin * lines.along[0];
            let to = to + begin * lines.along[1];
            sets.run(LineBand {
                from: self.input.at::<X>(self.layout.offset()).wrapping_offset(from).cast_const(),
                to: self.out.at::<Y>(0).wrapping_offset(to),
                along: lines.along.map(|stride| step * stride),
                across: lines.across,
                count,
                length: lines.length,
                index: (begin as i32, step as i32),
                open,
                add,
                close,
            });
        });
    }

    /// Runs the operation by [`Line`] over elements of `R`. Returns false if the elements of a line are not
    /// contiguous.
    fn in_vectors<R: Running<To = Shared<T>>, T>(&self) -> bool {
        let output = Layout::contiguous(self.layout.shape().clone());
        let lines = Lines::new([self.layout, &output], self.axis);
        let fits = lines.along == [1, 1] && lines.length >= SCAN_MIN_LINE;
        match self.reverse {
            _ if !fits => {}
            false => self.by_lines::<R, T, false>(&lines),
            true => self.by_lines::<R, T, true>(&lines),
        }
        fits
    }

    fn by_lines<R: Running<To = Shared<T>>, T, const REVERSE: bool>(&self, lines: &Lines<2>) {
        let (length, numel) = (lines.length, self.layout.numel());
        let shared = length >= SERIAL_LINE_ELEMENTS && numel / length < threads::available();
        let begin = if REVERSE { length as isize - 1 } else { 0 };
        // If threads share single lines, the lines run one after the other.
        lines.for_each(ROWS, if shared { 0 } else { numel }, &|Band { lines: count, starts }| {
            for j in 0..count as isize {
                let [at, out] = [0, 1].map(|side| starts[side] + begin + j * lines.across[side]);
                // SAFETY: `run` gives memories that hold all elements of both layouts and do not overlap;
                // the lines are theirs, and each is written once.
                let line = unsafe {
                    let from = self.input.at::<R::Item>(self.layout.offset()).wrapping_offset(at);
                    Line::<R, REVERSE>::new(from, Shared(self.out.at::<T>(0).wrapping_offset(out)), length)
                };
                if shared { line.shared(self.isa) } else { line.alone(self.isa) }
            }
        });
    }
}

/// A band of lines: all positions are within the caller's memory, and nothing else writes the output's.
struct LineBand<X, Y, F, G, H> {
    from: *const X,
    to: *mut Y,
    along: [isize; 2],
    across: [isize; 2],
    count: usize,
    length: usize,
    /// The index of the first element, and the step to the next index.
    index: (i32, i32),
    open: F,
    add: G,
    close: H,
}

impl<X, S, Y, F, G, H> Job for LineBand<X, Y, F, G, H>
where
    X: Copy,
    S: Copy,
    F: Fn(X, i32) -> S + Copy,
    G: Fn(S, X, i32) -> S + Copy,
    H: Fn(S) -> Y + Copy,
{
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut states: [std::mem::MaybeUninit<S>; LINE_GROUP] =
            [const { std::mem::MaybeUninit::uninit() }; LINE_GROUP];
        let states = &mut states[..self.count];
        let read = |i: usize, j: usize, across: isize| {
            let at = i as isize * self.along[0] + j as isize * across;
            // SAFETY: `Scan::go` makes bands from the layout of its input, where line j has an element i.
            unsafe { self.from.wrapping_offset(at).read() }
        };
        let write = |i: usize, j: usize, across: isize, state: S| {
            let at = i as isize * self.along[1] + j as isize * across;
            // SAFETY: `Scan::go` makes bands from the layout of its output, where line j has an element i
            // that no other band writes.
            unsafe { self.to.wrapping_offset(at).write((self.close)(state)) };
        };
        for (j, state) in states.iter_mut().enumerate() {
            let opened = (self.open)(read(0, j, self.across[0]), self.index.0);
            state.write(opened);
            write(0, j, self.across[1], opened);
        }
        macro_rules! rest {
            ($states:expr, $from:expr, $to:expr) => {
                for i in 1..self.length {
                    let index = self.index.0 + i as i32 * self.index.1;
                    for (j, state) in $states.iter_mut().enumerate() {
                        // SAFETY: the loop above wrote every state.
                        let next = (self.add)(unsafe { state.assume_init() }, read(i, j, $from), index);
                        state.write(next);
                        write(i, j, $to, next);
                    }
                }
            };
        }
        match (self.across, &mut *states) {
            // A single state stays in a register.
            (_, [state]) => {
                let mut one = [*state];
                rest!(one, 0, 0);
            }
            ([1, 1], states) => rest!(states, 1, 1),
            ([from, to], states) => match <&mut [_; ROWS]>::try_from(&mut *states) {
                Ok(rows) => rest!(rows, from, to),
                Err(_) => rest!(states, from, to),
            },
        }
    }
}
