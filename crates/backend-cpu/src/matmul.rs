//! Matrix products: the `gemm` crate for floats, plain loops for integers. Operands are read in place by their strides.
#![allow(unsafe_code)]

use std::sync::Arc;

use gemm::Parallelism;
use rayon::prelude::*;
use tensor_core::{DType, Launch, Layout, Result, bf16, f16, kernel::MatMulKernel};

use crate::{
    buffer::{Bound, Memory},
    pool::Pool,
    threads,
};

/// Multiplications below which a product stays on the calling thread.
const SERIAL: usize = 1 << 18;

pub(crate) fn run(pool: &Arc<Pool>, kernel: &MatMulKernel, launch: &Launch<'_>) -> Result<()> {
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
        DType::F32 => float::<f32>(kernel, lhs, rhs, out, 0.0, 1.0),
        DType::F64 => float::<f64>(kernel, lhs, rhs, out, 0.0, 1.0),
        DType::F16 => half(kernel, lhs, rhs, out, f16::to_f32, f16::from_f32),
        DType::BF16 => half(kernel, lhs, rhs, out, bf16::to_f32, bf16::from_f32),
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

fn float<T: Copy + Send + Sync + 'static>(
    kernel: &MatMulKernel,
    lhs: Memory,
    rhs: Memory,
    out: Memory,
    zero: T,
    one: T,
) {
    let (m, n, k) = (kernel.m, kernel.n, kernel.k);
    let ((lr, lc), (rr, rc)) = (strides(&kernel.lhs), strides(&kernel.rhs));
    let product = |b: usize, parallelism: Parallelism| {
        // SAFETY: the launch checked that both layouts and the output stay within their buffers, which lie apart.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                out.at::<T>(b * m * n),
                1,
                n as isize,
                false,
                lhs.at::<T>(0).offset(start(&kernel.lhs, &kernel.batch, b)).cast_const(),
                lc,
                lr,
                rhs.at::<T>(0).offset(start(&kernel.rhs, &kernel.batch, b)).cast_const(),
                rc,
                rr,
                zero,
                one,
                false,
                false,
                false,
                parallelism,
            );
        }
    };
    let batches = kernel.batch.numel();
    let available = threads::available();
    match m * n * k {
        work if work * batches < SERIAL || available == 1 => {
            (0..batches).for_each(|b| product(b, Parallelism::None))
        }
        _ if batches >= available => (0..batches).into_par_iter().for_each(|b| product(b, Parallelism::None)),
        _ => (0..batches).for_each(|b| product(b, Parallelism::Rayon(0))),
    }
}

/// Half types: widened to f32, multiplied, rounded once.
fn half<H: Copy + Send + Sync>(
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
    float::<f32>(kernel, memory(&mut a), memory(&mut b), memory(&mut c), 0.0, 1.0);
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
