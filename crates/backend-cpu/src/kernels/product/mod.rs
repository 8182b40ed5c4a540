//! Contractions: matrix products, and everything that is one over lists of axes. Floats are multiplied in
//! [micro-kernels](micro_kernel), which threads share by rectangles of the result; integers in plain loops.
//! Operands are read in place by their strides. bf16 is multiplied in [pairs](bf16_pairs::kernel) where the
//! processor has instructions for them, and otherwise widened, as f16 is.
//!
//! Files, each of which uses those above it alone:
//!
//! | file | holds |
//! |---|---|
//! | `operands`, `windows` | positions of elements and columns |
//! | `epilogue` | what follows a sum |
//! | `micro_kernel`, `*_kernel` | inner loops over registers |
//! | `kernel_table` | the inner loops for each instruction set |
//! | `tables`, `gemm`, `gemv`, `thin`, `dots`, and others | drivers, which cut products into blocks |
//! | `form`, `matrices`, `batch` | the form of a contraction's products, and how threads share them |
//! | `in_blocks`, `bf16_pairs` | matrices in blocks, and pairs of bf16 |
//! | `dense`, and this file | matrices of other crates, kernels |
#![allow(unsafe_code)]

mod batch;
#[cfg(target_arch = "x86_64")]
mod bf16_pairs;
pub(crate) mod dense;
mod dots;
mod dots_kernel;
mod epilogue;
mod form;
pub(crate) mod gemm;
mod gemv;
mod gemv_kernel;
mod in_blocks;
pub(crate) mod kernel_table;
mod matrices;
pub(crate) mod micro_kernel;
pub(crate) mod operands;
mod piece_kernel;
mod tables;
mod thin;
mod windows;

use std::sync::Arc;

use tensor_core::{Arithmetic, DType, Error, ErrorKind, Launch, Result, contraction::Contraction};

#[cfg(target_arch = "x86_64")]
use self::bf16_pairs::gemm::{Bf16Product, Target};
use self::{
    batch::{Batch, MR},
    epilogue::{Epilogue, Finish, LoweredEpilogue},
    gemm::Product,
    kernel_table::HasMicroKernels,
    matrices::{Matrices, Parts, Source, product},
    operands::WIDEST,
};
use crate::{
    memory::{
        blocks::Blocks,
        buffer::{Bound, CpuBuffer, compiled},
        narrow::{narrow_into, widened},
        pool::Pool,
    },
    simd::{
        bf16::{Bf16, Pairs},
        isa::Isa,
    },
    threads,
    tuning::{BF16_KC_TERMS, MICRO_KERNEL_GRAIN, SERIAL_STEPS},
};

/// A kernel ready to run.
struct Contract {
    matrices: Matrices,
    epilogue: Option<LoweredEpilogue>,
}

pub(crate) fn run(isa: Isa, bf16: Bf16, pool: &Arc<Pool>, launch: &Launch<'_>) -> Result<()> {
    let kernel = launch.kernel;
    let malformed = || Error::invalid("matmul", "the kernel is no contraction of two operands");
    let bound = Bound::of_launch(pool, launch)?;
    let (dtype, numel) = (kernel.operands[0].dtype, kernel.outputs[0].shape.numel());
    if numel == 0 {
        return Ok(());
    }
    let Contract { matrices, epilogue } = compiled(launch, || {
        let contraction = Contraction::of(kernel).ok_or_else(malformed)?;
        let matrices = Matrices::of(contraction, width(isa, dtype.register()));
        Ok(Contract { matrices, epilogue: LoweredEpilogue::of(kernel)? })
    })?;
    let is_narrow = dtype.is_narrow();
    let in_blocks = kernel.operands.iter().any(|operand| operand.format.is_some());
    let pairs = Some(bf16)
        .filter(|_| dtype == DType::BF16 && matrices.are_large() && !in_blocks)
        .and_then(Bf16::pairs);
    // Pairs are rounded as they are stored, unless something is still to be done with their sums.
    let is_rounded = pairs.is_some() && epilogue.is_none() && matrices.k <= BF16_KC_TERMS;
    let own = epilogue.as_ref().map_or(Some(0), |epilogue| epilogue.own).filter(|_| !is_narrow);
    let apart;
    let sums = match own {
        Some(o) => bound.outputs[o],
        None if is_rounded => bound.outputs[0],
        None => {
            apart = CpuBuffer::new(pool, dtype.register(), numel)?;
            apart.memory()
        }
    };
    let epilogue = match epilogue {
        Some(lowered) => Some(Epilogue::new(isa, lowered, launch, &bound, sums)?),
        None => None,
    };
    let epilogue = epilogue.as_ref();
    if kernel.space.contains(&0) {
        // Empty sums, whose bits are 0 in every dtype. An operand without elements has no address.
        // SAFETY: the output was checked to hold this many elements, as does memory of their own.
        unsafe { sums.at::<u8>(0).write_bytes(0, numel * sums.dtype.size()) };
        if let Some(epilogue) = epilogue {
            return epilogue.run(0..numel);
        }
    } else {
        let operand = |k: usize| {
            let (memory, operand) = (bound.inputs[k], &kernel.operands[k]);
            Source { memory, layout: &operand.layout, blocks: Blocks::of(isa, operand, memory) }
        };
        let (lhs, rhs) = match matrices.swapped {
            false => (operand(0), operand(1)),
            true => (operand(1), operand(0)),
        };
        let of = Parts { isa, of: matrices, lhs, rhs, sums, epilogue };
        if let Some(pairs) = pairs {
            in_pairs(&of, pairs)?;
        } else {
            product_of(dtype, pool, &of)?;
        }
    }
    if is_narrow && epilogue.is_none() && !is_rounded {
        // SAFETY: there are `numel` sums, initialised; the launch checked the output's size, and that it
        // does not overlap.
        unsafe { narrow_into(isa, sums, bound.outputs[0], numel) };
    }
    Ok(())
}

/// A product of operands of a dtype, in the type that computes it.
fn product_of(dtype: DType, pool: &Arc<Pool>, parts: &Parts<'_>) -> Result<()> {
    if dtype.is_narrow() {
        let wide = |from: &Source<'_>| match from.blocks {
            // Decoded numbers are wide.
            Some(_) => Ok(None),
            // SAFETY: the launch checked the spans of both layouts.
            None => unsafe { widened(parts.isa, pool, from.memory, from.layout.span().1) },
        };
        let [lhs, rhs] = [wide(&parts.lhs)?, wide(&parts.rhs)?];
        let source = |wide: &Option<CpuBuffer>, from| match wide {
            Some(wide) => Source { memory: wide.memory(), ..from },
            None => from,
        };
        let (lhs, rhs) = (source(&lhs, parts.lhs), source(&rhs, parts.rhs));
        return product_of(dtype.register(), pool, &Parts { lhs, rhs, ..*parts });
    }
    let in_blocks = parts.lhs.blocks.is_some() || parts.rhs.blocks.is_some();
    match dtype.arithmetic() {
        Arithmetic::F32 if in_blocks => in_blocks::decoded::float::<f32>(parts),
        Arithmetic::F64 if in_blocks => in_blocks::decoded::float::<f64>(parts),
        Arithmetic::F32 => float::<f32>(parts),
        Arithmetic::F64 => float::<f64>(parts),
        // The low bits are the same for signed and unsigned ones.
        Arithmetic::I64 | Arithmetic::U64 => {
            integer::<i64>(parts, |s, a, b| s.wrapping_add(a.wrapping_mul(b)))
        }
        Arithmetic::I32 | Arithmetic::U32 => {
            integer::<i32>(parts, |s, a, b| s.wrapping_add(a.wrapping_mul(b)))
        }
        Arithmetic::Bool => Err(Error::new(ErrorKind::Unsupported {
            op: "matmul",
            device: "cpu".into(),
            dtype,
            hint: "cast with .to_dtype(DType::F32)".into(),
        })),
    }
}

/// Numbers in a register, 0 of those that have no micro-kernels.
fn width(isa: Isa, dtype: DType) -> usize {
    match dtype.arithmetic() {
        Arithmetic::F32 => f32::micro_kernels(isa).width,
        Arithmetic::F64 => f64::micro_kernels(isa).width,
        Arithmetic::I64 | Arithmetic::U64 | Arithmetic::I32 | Arithmetic::U32 | Arithmetic::Bool => 0,
    }
}

fn float<T: HasMicroKernels>(parts: &Parts<'_>) -> Result<()> {
    let Parts { isa, of, lhs, rhs, sums, .. } = *parts;
    let (m, n, form) = (of.m, of.n, &of.form);
    // SAFETY: `run` checked both layouts and the output against their buffers.
    let placed = |b: usize| unsafe { product::<T>(of, lhs, rhs, sums, b) };
    // A thread that takes products takes whole ones, which have something in common.
    let prepared = match of.batches > 1 && of.are_large() && of.batches >= threads::available() {
        // SAFETY: `run` checked both layouts, and `packs_left` is true
        // only if all products read one left operand.
        true => Some(unsafe { placed(0).prepare(isa, m, of.packs_left()) }),
        false => None,
    };
    let first = placed(0);
    Batch {
        is_cut: form.is_cut(),
        // SAFETY: `run` checked both layouts, and that the output is no
        // input; products write disjoint parts of it.
        alone: &|b, finish| unsafe {
            form.run(isa, Product { prepared: prepared.as_ref(), ..placed(b) }, 0..m, 0..n, finish)
        },
        // SAFETY: `run` checked both layouts, and that the output is no
        // input; rectangles of a product are disjoint.
        rectangle: &|b, rows, columns, finish| unsafe { form.run(isa, placed(b), rows, columns, finish) },
        cost: &|rows, columns| form.cost(&first, rows, columns),
        units: [MR, WIDEST],
        grain: MICRO_KERNEL_GRAIN,
    }
    .run(parts)
}

/// As [`float`], of bf16 in pairs: into sums, or rounded if those are bf16.
#[cfg(target_arch = "x86_64")]
fn in_pairs(parts: &Parts<'_>, pairs: Pairs) -> Result<()> {
    use std::ops::Range;

    use tensor_core::bf16;

    let Parts { isa, of, lhs, rhs, sums, .. } = *parts;
    let rectangle = |b: usize, rows: Range<usize>, columns: Range<usize>, finish: Option<Finish<'_>>| {
        // SAFETY: `run` checked both layouts and the output against their buffers, and that those do not
        // overlap; rectangles are apart.
        unsafe {
            let Product { n, k, a, b: right, to, .. } = product::<bf16>(of, lhs, rhs, sums, b);
            let to = if sums.dtype == DType::BF16 {
                Target::Rounded(to)
            } else {
                Target::Sums(
                    sums.at::<f32>(0).wrapping_offset(operands::offset(&of.batch, b, |axis| axis.out)),
                )
            };
            Bf16Product { n, k, a, b: right, to }.run(isa, pairs, rows, columns, finish)
        }
    };
    Batch {
        is_cut: true,
        alone: &|b, finish| rectangle(b, 0..of.m, 0..of.n, finish),
        rectangle: &rectangle,
        cost: &bf16_pairs::gemm::cost,
        units: [bf16_pairs::gemm::UNIT; 2],
        grain: crate::tuning::BF16_GRAIN,
    }
    .run(parts)
}

#[cfg(not(target_arch = "x86_64"))]
fn in_pairs(_: &Parts<'_>, pairs: Pairs) -> Result<()> {
    // `Bf16::pairs` gives none here.
    Err(Error::invalid("matmul", format!("{pairs:?} is another architecture's")))
}

fn integer<T: Copy + Default + Send + Sync>(
    parts: &Parts<'_>,
    step: impl Fn(T, T, T) -> T + Send + Sync,
) -> Result<()> {
    let Parts { of, lhs, rhs, sums, epilogue, .. } = *parts;
    let row = |at: usize| {
        // SAFETY: `run` checked both layouts and the output against their buffers; each row is written by one
        // thread.
        unsafe {
            let (b, i) = (at / of.m, at % of.m);
            let p = product::<T>(of, lhs, rhs, sums, b);
            let mut row = vec![T::default(); of.n];
            for x in 0..of.k {
                let left = p.a.element(i, x).read();
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = step(*sum, left, p.b.element(x, j).read());
                }
            }
            std::ptr::copy_nonoverlapping(row.as_ptr(), p.to.add(i * of.n), of.n);
        }
    };
    let rows = of.batches * of.m;
    if rows * of.n * of.k < SERIAL_STEPS || threads::available() == 1 {
        (0..rows).for_each(row);
    } else {
        threads::share(rows, row);
    }
    epilogue.map_or(Ok(()), |epilogue| epilogue.run(0..rows * of.n))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tensor_core::{
        Layout,
        contraction::{Loop, Loops},
    };

    use super::{
        operands::{Distances, offset},
        *,
    };
    use crate::memory::buffer::Memory;

    /// Axes of 2 × 3 positions, whose neighbours are 10 and −1 apart on the left, 0 and 4 on the right.
    fn axes() -> Vec<Loop> {
        vec![Loop { size: 2, lhs: 10, rhs: 0, out: 3 }, Loop { size: 3, lhs: -1, rhs: 4, out: 1 }]
    }

    #[test]
    fn distances_are_those_of_nested_loops() {
        let axes = axes();
        let table = |distances: &Distances| (0..6).map(|i| distances.steps().at(i)).collect::<Vec<_>>();
        let (lhs, rhs) = (Distances::of(&axes, |a| a.lhs), Distances::of(&axes, |a| a.rhs));
        assert_eq!(table(&lhs), [0, -1, -2, 10, 9, 8]);
        assert_eq!(table(&rhs), [0, 4, 8, 0, 4, 8]);
        assert_eq!(Distances::of(&axes, |a| a.out).steps().even(), None);
        assert_eq!(Distances::of(&axes[1..], |a| a.lhs).steps().even(), Some(-1));
        assert_eq!(Distances::of(&[], |a| a.lhs).steps().at(0), 0);
        assert_eq!((0..6).map(|i| offset(&axes, i, |a| a.out)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }

    /// Both operands' rows, columns and terms are given by tables: each element against its sum by hand, in
    /// integers and in floats.
    #[test]
    fn products_over_tables_are_sums_by_hand() {
        let a: Vec<i32> = (0..64).map(|i| i * 7 % 11 - 5).collect();
        let b: Vec<i32> = (0..64).map(|i| i * 5 % 13 - 6).collect();
        let (m, n, k) = (axes(), axes(), axes());
        let lay = |axes: Vec<Loop>, lhs: [isize; 2], rhs: [isize; 2]| -> Loops {
            let with = |(i, axis): (usize, Loop)| Loop { lhs: lhs[i], rhs: rhs[i], ..axis };
            axes.into_iter().enumerate().map(with).collect()
        };
        let contraction = Contraction {
            swapped: false,
            batch: Loops::new(),
            m: lay(m, [1, 12], [0, 0]),
            n: lay(n, [0, 0], [20, 3]),
            k: lay(k, [4, 9], [1, 2]),
        };
        let expected: Vec<i32> = (0..36)
            .map(|at| {
                let (i, j) = (at / 6, at % 6);
                let term = |x: usize| {
                    let left = i / 3 + 12 * (i % 3) + 4 * (x / 3) + 9 * (x % 3);
                    let right = 20 * (j / 3) + 3 * (j % 3) + x / 3 + 2 * (x % 3);
                    a[left] * b[right]
                };
                (0..6).map(term).sum()
            })
            .collect();
        let matrices = Matrices::of(contraction, 0);
        let layout = Layout::contiguous([64]);
        fn memory<T>(values: &mut [T], dtype: DType) -> Memory {
            Memory { ptr: values.as_mut_ptr().cast(), numel: values.len(), dtype }
        }
        let (mut left, mut right, mut out) = (a.clone(), b.clone(), vec![0i32; 36]);
        let source = |memory| Source { memory, layout: &layout, blocks: None };
        let (lhs, rhs) = (memory(&mut left, DType::I32), memory(&mut right, DType::I32));
        let to = memory(&mut out, DType::I32);
        let of = |isa, lhs, rhs, sums| Parts {
            isa,
            of: &matrices,
            lhs: source(lhs),
            rhs: source(rhs),
            sums,
            epilogue: None,
        };
        integer::<i32>(&of(Isa::available()[0], lhs, rhs, to), |s, a, b| s + a * b).unwrap();
        assert_eq!(out, expected);
        for isa in Isa::available() {
            let mut left: Vec<f32> = a.iter().map(|&v| v as f32).collect();
            let mut right: Vec<f32> = b.iter().map(|&v| v as f32).collect();
            let mut out = vec![0f32; 36];
            let (lhs, rhs) = (memory(&mut left, DType::F32), memory(&mut right, DType::F32));
            let to = memory(&mut out, DType::F32);
            float::<f32>(&of(isa, lhs, rhs, to)).unwrap();
            assert!(out.iter().zip(&expected).all(|(&o, &e)| o == e as f32), "{isa:?}");
        }
    }
}
