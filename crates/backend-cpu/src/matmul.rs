//! Matrix products: the `gemm` crate for floats, plain loops for integers. Operands are read in place by their strides.
//!
//! Threads take rectangles of the result, each a product of its own, rather than share one: then each packs what it needs and
//! no more, and nobody waits. A rectangle is one whose sums `gemm` forms in the same order as those of the whole, so that
//! results are the same bits on any number of threads.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use gemm::Parallelism;
use rayon::prelude::*;
use tensor_core::{DType, Launch, Layout, Result, bf16, f16, kernel::MatMulKernel};

use crate::{
    buffer::{Bound, Memory},
    gemv::{self, Float, Matrix},
    isa::Isa,
    pool::Pool,
    threads,
};

/// Multiplications below which products, all together, stay on the calling thread.
const SERIAL: usize = 1 << 18;
/// Multiplications that are worth a thread: fewer for a matrix with a vector, which reads an element for each.
const GRAIN: usize = 1 << 19;
const VECTOR_GRAIN: usize = 1 << 17;
/// Rectangles begin at multiples of these, which are multiples of the sides of `gemm`'s own tiles or near them.
const ROWS: usize = 12;
const COLUMNS: usize = 64;

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
    match kernel.dtype {
        DType::F32 => float::<f32>(isa, kernel, lhs, rhs, out, 0.0, 1.0),
        DType::F64 => float::<f64>(isa, kernel, lhs, rhs, out, 0.0, 1.0),
        DType::F16 => half(isa, kernel, lhs, rhs, out, f16::to_f32, f16::from_f32),
        DType::BF16 => half(isa, kernel, lhs, rhs, out, bf16::to_f32, bf16::from_f32),
        DType::I64 => integer::<i64>(kernel, lhs, rhs, out, |s, a, b| s.wrapping_add(a.wrapping_mul(b))),
        DType::I32 => integer::<i32>(kernel, lhs, rhs, out, |s, a, b| s.wrapping_add(a.wrapping_mul(b))),
        DType::U32 => integer::<u32>(kernel, lhs, rhs, out, |s, a, b| s.wrapping_add(a.wrapping_mul(b))),
        DType::U8 => integer::<u8>(kernel, lhs, rhs, out, |s, a, b| s.wrapping_add(a.wrapping_mul(b))),
        DType::Bool => {
            return Err(tensor_core::Error::Unsupported {
                op: OP,
                device: "cpu".into(),
                dtype: kernel.dtype,
                hint: "cast with .to_dtype(DType::F32)".into(),
            });
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

fn float<T: Float + 'static>(
    isa: Isa,
    kernel: &MatMulKernel,
    lhs: Memory,
    rhs: Memory,
    out: Memory,
    zero: T,
    one: T,
) {
    let (m, n, k) = (kernel.m, kernel.n, kernel.k);
    let ((lr, lc), (rr, rc)) = (strides(&kernel.lhs), strides(&kernel.rhs));
    let product = |b: usize, rows: Range<usize>, columns: Range<usize>| {
        // SAFETY: the launch checked that both layouts and the output stay within their buffers, which lie apart.
        unsafe {
            gemm::gemm(
                rows.len(),
                columns.len(),
                k,
                out.at::<T>((b * m + rows.start) * n + columns.start),
                1,
                n as isize,
                false,
                lhs.at::<T>(0)
                    .offset(start(&kernel.lhs, &kernel.batch, b) + rows.start as isize * lr)
                    .cast_const(),
                lc,
                lr,
                rhs.at::<T>(0)
                    .offset(start(&kernel.rhs, &kernel.batch, b) + columns.start as isize * rc)
                    .cast_const(),
                rc,
                rr,
                zero,
                one,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    };
    let batches = kernel.batch.numel();
    // A product with one row or one column is a vector times a matrix.
    let vector = match (m, n) {
        (1, _) => Some((n, (rr, rc), (lc, rhs, &kernel.rhs), (lhs, &kernel.lhs))),
        (_, 1) => Some((m, (lc, lr), (rr, lhs, &kernel.lhs), (rhs, &kernel.rhs))),
        _ => None,
    };
    if let Some((count, (row, column), (x_stride, matrix, matrix_layout), (x, x_layout))) = vector
        && (row == 1 || column == 1)
    {
        let one = |b: usize| {
            // SAFETY: the launch checked that both layouts and the output stay within their buffers, which lie apart.
            unsafe {
                let at = matrix.at::<T>(0).offset(start(matrix_layout, &kernel.batch, b)).cast_const();
                let x = x.at::<T>(0).offset(start(x_layout, &kernel.batch, b)).cast_const();
                let y = std::slice::from_raw_parts_mut(out.at::<T>(b * count), count);
                gemv::run(isa, x, x_stride, k, Matrix { at, row, column }, y);
            }
        };
        let threads = threads::available().min(batches);
        return if threads == 1 || batches * m * n * k < SERIAL {
            (0..batches).for_each(one)
        } else {
            (0..batches).into_par_iter().with_min_len((batches / (threads * 4)).max(1)).for_each(one)
        };
    }
    let available = threads::available();
    if m * n * k * batches < SERIAL {
        return (0..batches).for_each(|b| product(b, 0..m, 0..n));
    }
    let fixed = fixed_columns(m, n, k);
    let rectangle = |b: usize, (down, across): (usize, usize), i: usize| {
        product(b, part(m, ROWS, down, i / across), part(n, COLUMNS, across, i % across));
    };
    let alone = |b: usize| (0..fixed).for_each(|i| rectangle(b, (1, fixed), i));
    if available == 1 {
        (0..batches).for_each(alone);
    } else if batches >= available {
        (0..batches).into_par_iter().with_min_len(batches / (available * 4)).for_each(alone);
    } else {
        let (cut, least) = match fixed {
            1 => (grid(m, n, k, lc != 1, available), 1),
            _ => ((1, fixed), GRAIN * fixed / (m * n * k)),
        };
        for b in 0..batches {
            match cut.0 * cut.1 {
                1 => product(b, 0..m, 0..n),
                parts => (0..parts).into_par_iter().with_min_len(least).for_each(|i| rectangle(b, cut, i)),
            }
        }
    }
}

/// Into how many columns of rectangles a product is cut whatever the number of threads: a few rows, whose sums `gemm` would form
/// in another order in parts of the best width, one tile.
fn fixed_columns(m: usize, n: usize, k: usize) -> usize {
    if k > 512 && (5..=64).contains(&m) && n >= 2 * COLUMNS { n / COLUMNS } else { 1 }
}

/// The `i`th of `parts` nearly equal parts of `size`, which begin at multiples of `unit`.
fn part(size: usize, unit: usize, parts: usize, i: usize) -> Range<usize> {
    let begin = |i: usize| if i == parts { size } else { size * i / parts / unit * unit };
    begin(i)..begin(i + 1)
}

/// How many rectangles, down and across, a product is cut into for so many threads.
///
/// Columns of the right operand are always packed, rows of the left one if they are not contiguous (`packs_lhs`). What is packed
/// is cut rather than packed twice.
fn grid(m: usize, n: usize, k: usize, packs_lhs: bool, threads: usize) -> (usize, usize) {
    let grain = if m == 1 || n == 1 { VECTOR_GRAIN } else { GRAIN };
    let threads = threads.min(m * n * k / grain).max(1);
    let most_down = (m / (2 * ROWS)).max(1);
    let most_across = (n / (2 * COLUMNS)).max(1);
    let (mut down, mut across);
    if packs_lhs && m >= n {
        down = threads.min(most_down);
        across = (threads / down).min(most_across);
    } else {
        across = threads.min(most_across);
        down = (threads / across).min(most_down);
    }
    let alike = |down: usize, across: usize| {
        (0..down).all(|i| {
            (0..across).all(|j| {
                let (rows, columns) = (part(m, ROWS, down, i).len(), part(n, COLUMNS, across, j).len());
                order_of_sums(rows, columns, k) == order_of_sums(m, n, k)
            })
        })
    };
    while down * across > 1 && !alike(down, across) {
        if across > 1 {
            across -= 1;
        } else {
            down -= 1;
        }
    }
    (down, across)
}

/// What in a product's shape decides in which order `gemm` adds up: kernels of their own for very small results and for vectors,
/// and long sums cut elsewhere for small results.
fn order_of_sums(m: usize, n: usize, k: usize) -> (bool, bool, bool, bool) {
    (m * n <= 16 * 16, k > 512 && m <= 64 && n <= 64, m == 1, n == 1)
}

/// Half types: widened to f32, multiplied, rounded once.
fn half<H: Copy + Send + Sync>(
    isa: Isa,
    kernel: &MatMulKernel,
    lhs: Memory,
    rhs: Memory,
    out: Memory,
    wide: impl Fn(H) -> f32,
    narrow: impl Fn(f32) -> H,
) {
    let spread = |memory: Memory, layout: &Layout| -> Vec<f32> {
        // SAFETY: the launch checked the layout's span.
        (0..layout.span().1).map(|i| wide(unsafe { memory.at::<H>(i).read() })).collect()
    };
    let (mut a, mut b) = (spread(lhs, &kernel.lhs), spread(rhs, &kernel.rhs));
    let mut c = vec![0f32; kernel.batch.numel() * kernel.m * kernel.n];
    let memory = |v: &mut Vec<f32>| Memory { ptr: v.as_mut_ptr().cast(), numel: v.len(), dtype: DType::F32 };
    float::<f32>(isa, kernel, memory(&mut a), memory(&mut b), memory(&mut c), 0.0, 1.0);
    for (i, &v) in c.iter().enumerate() {
        // SAFETY: the launch checked the output's size.
        unsafe { out.at::<H>(i).write(narrow(v)) };
    }
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
        (0..rows).into_par_iter().for_each(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_cover_the_result_once_and_sum_in_one_order() {
        for (m, n, k) in [(1, 1, 1 << 22), (13, 5000, 900), (5000, 13, 900), (64, 128, 784), (2048, 2048, 64)]
        {
            for threads in 1..40 {
                let (down, across) = grid(m, n, k, threads % 2 == 0, threads);
                assert!(down * across <= threads);
                for (size, unit, parts) in [(m, ROWS, down), (n, COLUMNS, across)] {
                    let mut next = 0;
                    for i in 0..parts {
                        let range = part(size, unit, parts, i);
                        assert!(range.start == next && !range.is_empty());
                        next = range.end;
                    }
                    assert_eq!(next, size);
                }
                if down * across > 1 {
                    let least = (part(m, ROWS, down, 0).len(), part(n, COLUMNS, across, 0).len());
                    assert_eq!(order_of_sums(least.0, least.1, k), order_of_sums(m, n, k));
                }
            }
        }
        assert_eq!(grid(512, 512, 512, false, 2), (1, 2));
        assert_eq!(grid(512, 512, 512, true, 2), (2, 1));
        assert_eq!(
            (fixed_columns(64, 130, 784), fixed_columns(64, 128, 128), fixed_columns(1, 999, 784)),
            (2, 1, 1)
        );
        assert_eq!(grid(64, 64, 64, false, 2), (1, 1));
    }
}
