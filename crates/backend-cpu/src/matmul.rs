//! Matrix products: of floats in [tiles](crate::tile), which threads share by rectangles of the result; plain loops for integers.
//! Operands are read in place by their strides.
#![allow(unsafe_code)]

use std::sync::Arc;

use half::slice::HalfFloatSliceExt;
use tensor_core::{DType, Launch, Layout, Result, bf16, f16, kernel::MatMulKernel};

use crate::{
    buffer::{Bound, Memory},
    gemv::{self, Matrix},
    isa::Isa,
    pool::Pool,
    product::{Product, WIDEST},
    threads::{self, part},
    tile::Tiled,
};

/// Multiplications below which products, all together, stay on the calling thread.
const SERIAL: usize = 1 << 18;
/// Multiplications that are worth a thread.
const GRAIN: usize = 1 << 18;
/// Halves that a thread converts at once.
const CONVERTED: usize = 1 << 16;
/// Rectangles begin at multiples of these rows, a tile's, and of [`WIDEST`] columns.
const ROWS: usize = 8;

pub(crate) fn run(isa: Isa, pool: &Arc<Pool>, kernel: &MatMulKernel, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "matmul";
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    bound.require(OP, 2, 1)?;
    bound.require_apart(OP)?;
    let (lhs, rhs, out) = (bound.inputs[0], bound.inputs[1], bound.outputs[0]);
    lhs.require(OP, kernel.dtype, kernel.lhs.span().1)?;
    rhs.require(OP, kernel.dtype, kernel.rhs.span().1)?;
    let batches = kernel.batch.numel();
    out.require(OP, kernel.dtype, batches * kernel.m * kernel.n)?;
    if batches * kernel.m * kernel.n == 0 {
        return Ok(());
    }
    if kernel.k == 0 {
        // Sums of nothing, whose bits are 0 in every dtype. Where an operand without elements lies means nothing.
        // SAFETY: the output was checked to hold so many elements.
        unsafe { out.at::<u8>(0).write_bytes(0, batches * kernel.m * kernel.n * kernel.dtype.size()) };
        return Ok(());
    }
    match kernel.dtype {
        DType::F32 => float::<f32>(isa, kernel, lhs, rhs, out),
        DType::F64 => float::<f64>(isa, kernel, lhs, rhs, out),
        DType::F16 => half::<f16>(isa, kernel, lhs, rhs, out),
        DType::BF16 => half::<bf16>(isa, kernel, lhs, rhs, out),
        DType::I64 => integer::<i64>(kernel, lhs, rhs, out, |s, a, b| s.wrapping_add(a.wrapping_mul(b))),
        DType::I32 => integer::<i32>(kernel, lhs, rhs, out, |s, a, b| s.wrapping_add(a.wrapping_mul(b))),
        DType::U32 => integer::<u32>(kernel, lhs, rhs, out, |s, a, b| s.wrapping_add(a.wrapping_mul(b))),
        DType::U8 => integer::<u8>(kernel, lhs, rhs, out, |s, a, b| s.wrapping_add(a.wrapping_mul(b))),
        DType::Bool => {
            return Err(tensor_core::Error::new(tensor_core::ErrorKind::Unsupported {
                op: OP,
                device: "cpu".into(),
                dtype: kernel.dtype,
                hint: "cast with .to_dtype(DType::F32)".into(),
            }));
        }
    }
    Ok(())
}

/// The first element of matrix `b` of a batch, as a distance in elements.
fn start(layout: &Layout, batch: &[usize], mut b: usize) -> isize {
    let mut at = layout.offset() as isize;
    for (&d, &s) in batch.iter().zip(layout.strides()).rev() {
        at += (b % d) as isize * s;
        b /= d;
    }
    at
}

/// Row and column strides.
fn strides(layout: &Layout) -> (isize, isize) {
    let s = layout.strides();
    (s[s.len() - 2], s[s.len() - 1])
}

/// How a product of floats is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The left operand, a row, times the right one.
    Row,
    /// The left operand times the right one, a column.
    Column,
    /// Both are matrices, or the one that is has no axis of unit stride.
    Tiles,
}

fn float<T: Tiled>(isa: Isa, kernel: &MatMulKernel, lhs: Memory, rhs: Memory, out: Memory) {
    let (m, n, k) = (kernel.m, kernel.n, kernel.k);
    let ((lr, lc), (rr, rc)) = (strides(&kernel.lhs), strides(&kernel.rhs));
    let product = |b: usize| {
        // SAFETY: the launch checked that both layouts and the output stay within their buffers.
        unsafe {
            let a = lhs.at::<T>(0).offset(start(&kernel.lhs, &kernel.batch, b)).cast_const();
            let right = rhs.at::<T>(0).offset(start(&kernel.rhs, &kernel.batch, b)).cast_const();
            Product {
                n,
                k,
                a: Matrix { at: a, row: lr, column: lc },
                b: Matrix { at: right, row: rr, column: rc },
                to: out.at::<T>(b * m * n),
            }
        }
    };
    let batches = kernel.batch.numel();
    // A product with one row or one column is a vector times a matrix, whose own strides decide whether `gemv` can walk it.
    let form = if m == 1 && (rr == 1 || rc == 1) {
        Form::Row
    } else if n == 1 && (lr == 1 || lc == 1) {
        Form::Column
    } else {
        Form::Tiles
    };
    let alone = |b: usize| {
        let p = product(b);
        // SAFETY: the launch checked that the operands and the output lie apart; `form` was chosen by the matrix's strides.
        unsafe {
            let (x, stride, matrix) = match form {
                Form::Tiles => return p.run(isa, 0..m, 0..n),
                Form::Row => (p.a.at, lc, p.b),
                Form::Column => (p.b.at, rr, Matrix { at: p.a.at, row: lc, column: lr }),
            };
            gemv::run(isa, x, stride, k, matrix, std::slice::from_raw_parts_mut(p.to, m * n));
        }
    };
    let available = threads::available();
    if available == 1 || batches * m * n * k < SERIAL {
        (0..batches).for_each(alone);
    } else if batches >= available {
        let piece = (batches / (available * 16)).max(1);
        threads::share(batches.div_ceil(piece), |i| {
            (i * piece..batches.min((i + 1) * piece)).for_each(alone)
        });
    } else if form != Form::Tiles {
        // A vector times a matrix shares its work itself.
        (0..batches).for_each(alone);
    } else {
        for b in 0..batches {
            let p = product(b);
            let (down, across) = grid(m, n, k, available, |rows, columns| p.cost(rows, columns));
            let rectangle = |i: usize| {
                let (rows, columns) = (part(m, ROWS, down, i / across), part(n, WIDEST, across, i % across));
                // SAFETY: as above, and the rectangles are apart.
                unsafe { p.run(isa, rows, columns) }
            };
            threads::share(down * across, rectangle);
        }
    }
}

/// Into how many rectangles, down and across, a product is cut for so many threads: what takes the least time by `cost`, which is
/// given rows and columns. If several do, the one with the most rows of rectangles: those are whole pieces of memory, as
/// elementwise kernels cut it.
fn grid(
    m: usize,
    n: usize,
    k: usize,
    threads: usize,
    cost: impl Fn(usize, usize) -> usize,
) -> (usize, usize) {
    let threads = threads.min(m * n * k / GRAIN).max(1);
    let most = |size: usize, unit: usize| (size / unit).max(1);
    let time = |(down, across): (usize, usize)| {
        let longest = |size: usize, unit: usize, parts: usize| {
            (0..parts).map(|i| part(size, unit, parts, i).len()).max().unwrap_or(size)
        };
        cost(longest(m, ROWS, down), longest(n, WIDEST, across))
    };
    (1..=threads.min(most(m, 2 * ROWS)))
        .rev()
        .map(|down| (down, (threads / down).min(most(n, 2 * WIDEST))))
        .min_by_key(|&cut| time(cut))
        .unwrap_or((1, 1))
}

/// Half types: widened to f32, multiplied, rounded once.
fn half<H: Copy + Send + Sync>(isa: Isa, kernel: &MatMulKernel, lhs: Memory, rhs: Memory, out: Memory)
where
    [H]: HalfFloatSliceExt,
{
    let spread = |memory: Memory, layout: &Layout| -> Vec<f32> {
        // SAFETY: the launch checked the layout's span.
        let halves = unsafe { std::slice::from_raw_parts(memory.at::<H>(0), layout.span().1) };
        let mut wide = vec![0f32; halves.len()];
        threads::share_chunks(&mut wide, CONVERTED, |i, wide| {
            halves[i * CONVERTED..][..wide.len()].convert_to_f32_slice(wide);
        });
        wide
    };
    let (mut a, mut b) = (spread(lhs, &kernel.lhs), spread(rhs, &kernel.rhs));
    let mut c = vec![0f32; kernel.batch.numel() * kernel.m * kernel.n];
    let memory = |v: &mut Vec<f32>| Memory { ptr: v.as_mut_ptr().cast(), numel: v.len(), dtype: DType::F32 };
    float::<f32>(isa, kernel, memory(&mut a), memory(&mut b), memory(&mut c));
    // SAFETY: the launch checked the output's size, and that it lies apart.
    let halves = unsafe { std::slice::from_raw_parts_mut(out.at::<H>(0), c.len()) };
    threads::share_chunks(halves, CONVERTED, |i, halves| {
        halves.convert_from_f32_slice(&c[i * CONVERTED..][..halves.len()]);
    });
}

fn integer<T: Copy + Default + Send + Sync>(
    kernel: &MatMulKernel,
    lhs: Memory,
    rhs: Memory,
    out: Memory,
    step: impl Fn(T, T, T) -> T + Send + Sync,
) {
    let ((lr, lc), (rr, rc)) = (strides(&kernel.lhs), strides(&kernel.rhs));
    let row = |at: usize| {
        let (b, i) = (at / kernel.m, at % kernel.m);
        let a = start(&kernel.lhs, &kernel.batch, b) + i as isize * lr;
        let r = start(&kernel.rhs, &kernel.batch, b);
        let mut sums = vec![T::default(); kernel.n];
        // SAFETY: the launch checked that both layouts and the output stay within their buffers.
        unsafe {
            for x in 0..kernel.k as isize {
                let left = lhs.at::<T>(0).offset(a + x * lc).read();
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = step(*sum, left, rhs.at::<T>(0).offset(r + x * rr + j as isize * rc).read());
                }
            }
            std::ptr::copy_nonoverlapping(sums.as_ptr(), out.at::<T>(at * kernel.n), kernel.n);
        }
    };
    let rows = kernel.batch.numel() * kernel.m;
    if rows * kernel.n * kernel.k < SERIAL || threads::available() == 1 {
        (0..rows).for_each(row);
    } else {
        threads::share(rows, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_cover_the_result_once() {
        let cost = |rows: usize, columns: usize| columns.div_ceil(WIDEST) * (rows + 8);
        for (m, n, k) in [(1, 1, 1 << 22), (13, 5000, 900), (5000, 13, 900), (64, 128, 784), (2048, 2048, 64)]
        {
            for threads in 1..40 {
                let (down, across) = grid(m, n, k, threads, cost);
                assert!(down * across <= threads);
                for (size, unit, parts) in [(m, ROWS, down), (n, WIDEST, across)] {
                    let mut next = 0;
                    for i in 0..parts {
                        let range = part(size, unit, parts, i);
                        assert!(range.start == next && !range.is_empty());
                        next = range.end;
                    }
                    assert_eq!(next, size);
                }
            }
        }
        // Threads that share columns would each copy them; a register partly filled costs as much as a full one.
        assert_eq!(grid(512, 512, 512, 2, cost), (1, 2));
        assert_eq!(grid(333, 129, 517, 2, cost), (2, 1));
        assert_eq!(grid(64, 32, 64, 2, cost), (1, 1));
        assert_eq!(grid(128, 784, 64, 2, |rows, columns| rows * columns), (2, 1));
    }
}
