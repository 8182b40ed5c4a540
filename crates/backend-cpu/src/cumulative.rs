//! Cumulative operations: several lines at a time, one element of each after the other, so that neighbours along another axis make
//! vectors, and the chains of rows run side by side.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{
    CumulativeOp, DType, Error, ErrorKind, Launch, Layout, Result, bf16, f16, kernel::CumulativeKernel,
    round_to_odd,
};

use crate::{
    buffer::{Bound, Memory},
    isa::{Isa, Job},
    order::{Ordered, opposite},
    pool::Pool,
    walk::{Band, Lines},
};

/// Lines taken together where neighbours lie side by side: their states stay in the first-level cache.
const WIDE: usize = 256;
/// Rows taken together: enough chains to hide the latency of an addition.
const ROWS: usize = 8;

pub(crate) fn run(isa: Isa, pool: &Arc<Pool>, kernel: &CumulativeKernel, launch: &Launch<'_>) -> Result<()> {
    let op = kernel.op.name();
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    bound.require(op, 1, 1)?;
    bound.require_apart(op)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    input.require(op, kernel.dtype, kernel.input.span().1)?;
    let shape = kernel.input.shape();
    out.require(op, if kernel.op.is_arg() { DType::I32 } else { kernel.dtype }, shape.numel())?;
    if shape.numel() == 0 {
        return Ok(());
    }
    let pass = Pass { isa, reverse: kernel.reverse, layout: &kernel.input, axis: kernel.axis, input, out };
    // Sums and products keep a wider state than they store: f64 for f32, f32 for half types.
    macro_rules! arithmetic {
        ($t:ty, $open:expr, $add:expr, $mul:expr, $close:expr) => {
            match kernel.op {
                CumulativeOp::Sum => pass.go(|x: $t, _| $open(x), |s, x: $t, _| $add(s, $open(x)), $close),
                _ => pass.go(|x: $t, _| $open(x), |s, x: $t, _| $mul(s, $open(x)), $close),
            }
        };
    }
    macro_rules! float {
        ($t:ty, $open:expr, $close:expr, $wide:expr, $narrow:expr) => {
            match kernel.op {
                CumulativeOp::Sum | CumulativeOp::Prod => {
                    arithmetic!($t, $open, |a, b| a + b, |a, b| a * b, $close)
                }
                CumulativeOp::LogSumExp => {
                    pass.go(|x: $t, _| $wide(x), |s, x: $t, _| log_add_exp(s, $wide(x)), $narrow)
                }
                _ => index!($t),
            }
        };
    }
    macro_rules! integer {
        ($t:ty) => {
            match kernel.op {
                CumulativeOp::Sum | CumulativeOp::Prod => {
                    arithmetic!($t, |x: $t| x, <$t>::wrapping_add, <$t>::wrapping_mul, |s: $t| s)
                }
                CumulativeOp::LogSumExp => return Err(lacking(op, kernel.dtype)),
                _ => index!($t),
            }
        };
    }
    // The greatest key so far, and where it was last met.
    macro_rules! index {
        ($t:ty) => {{
            macro_rules! last_greatest {
                ($key:expr) => {
                    pass.go(
                        |x: $t, i| ($key(x), i),
                        |s, x: $t, i| {
                            let key = $key(x);
                            if key >= s.0 { (key, i) } else { s }
                        },
                        |s| s.1,
                    )
                };
            }
            match kernel.op {
                CumulativeOp::ArgMax => last_greatest!(Ordered::key),
                _ => last_greatest!(opposite),
            }
        }};
    }
    match kernel.dtype {
        DType::F64 => float!(f64, |x: f64| x, |s: f64| s, |x: f64| x, |s: f64| s),
        DType::F32 => float!(f32, f64::from, |s: f64| s as f32, f64::from, |s: f64| s as f32),
        DType::F16 => {
            float!(f16, f16::to_f32, f16::from_f32, f16::to_f64, |s: f64| f16::from_f32(round_to_odd(s)))
        }
        DType::BF16 => {
            float!(bf16, bf16::to_f32, bf16::from_f32, bf16::to_f64, |s: f64| bf16::from_f32(round_to_odd(s)))
        }
        DType::I64 => integer!(i64),
        DType::I32 => integer!(i32),
        DType::U32 => integer!(u32),
        DType::U8 => integer!(u8),
        DType::Bool if kernel.op.is_arg() => index!(bool),
        DType::Bool => return Err(lacking(op, kernel.dtype)),
    }
    Ok(())
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

struct Pass<'a> {
    isa: Isa,
    reverse: bool,
    layout: &'a Layout,
    axis: usize,
    input: Memory,
    out: Memory,
}

impl Pass<'_> {
    /// Runs over all lines: `open` makes a state of the first element, `add` brings the next one in, `close` stores.
    fn go<X: Copy, S: Copy, Y>(
        &self,
        open: impl Fn(X, i32) -> S + Copy + Sync,
        add: impl Fn(S, X, i32) -> S + Copy + Sync,
        close: impl Fn(S) -> Y + Copy + Sync,
    ) {
        let numel = self.layout.numel();
        let output = Layout::contiguous(self.layout.shape().clone());
        let lines = Lines::new([self.layout, &output], self.axis);
        let width = if lines.across[1] == 1 { WIDE } else { ROWS };
        let last = lines.length as isize - 1;
        let (begin, step) = if self.reverse { (last, -1) } else { (0, 1) };
        lines.for_each(width, numel, &|Band { lines: count, starts: [from, to] }| {
            let from = from + begin * lines.along[0];
            let to = to + begin * lines.along[1];
            self.isa.run(Some {
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
}

/// Some lines: all positions lie in the caller's memory, and nobody else writes the output's.
struct Some<X, Y, F, G, H> {
    from: *const X,
    to: *mut Y,
    along: [isize; 2],
    across: [isize; 2],
    count: usize,
    length: usize,
    /// The index of the first element, and the distance to the next.
    index: (i32, i32),
    open: F,
    add: G,
    close: H,
}

impl<X, S, Y, F, G, H> Job for Some<X, Y, F, G, H>
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
        let mut states: [std::mem::MaybeUninit<S>; WIDE] = [const { std::mem::MaybeUninit::uninit() }; WIDE];
        let states = &mut states[..self.count];
        let read = |i: usize, j: usize, across: isize| {
            let at = i as isize * self.along[0] + j as isize * across;
            // SAFETY: the caller's promise: element i of line j.
            unsafe { self.from.wrapping_offset(at).read() }
        };
        let write = |i: usize, j: usize, across: isize, state: S| {
            let at = i as isize * self.along[1] + j as isize * across;
            // SAFETY: as above.
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
        match self.across {
            [1, 1] => rest!(states, 1, 1),
            [from, to] => match <&mut [_; ROWS]>::try_from(&mut *states) {
                Ok(rows) => rest!(rows, from, to),
                Err(_) => rest!(states, from, to),
            },
        }
    }
}
