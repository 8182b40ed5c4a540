//! Scatter: elements of a source go to positions along an axis given by an index, in source order. They are
//! added there, or the greatest, the least or the last is kept.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{Arithmetic, Launch, Layout, Result, ScatterOp, kernel::Operand};

use super::index::{ByLines, Picks, is_run, malformed, varies};
use crate::{
    kernels::fold::accumulator::{greater, lesser},
    memory::{
        buffer::{Bound, CpuBuffer, Memory, by_size},
        lines::{Lines, Walk, pieces},
        narrow::{narrow_into, widened},
        pool::Pool,
        strided::{self, Shared},
    },
    simd::isa::Isa,
    tuning::{SCATTER_MAX_PARTS, SCATTER_PART_ELEMENTS},
};

/// Calls a macro with the element type that computes a dtype, and with the function that adds two elements.
macro_rules! by_sum {
    ($dtype:expr, $go:ident) => {
        match $dtype.arithmetic() {
            Arithmetic::F64 => $go!(f64, |a: f64, b: f64| a + b),
            Arithmetic::F32 => $go!(f32, |a: f32, b: f32| a + b),
            Arithmetic::I64 | Arithmetic::U64 => $go!(i64, i64::wrapping_add),
            Arithmetic::I32 | Arithmetic::U32 => $go!(i32, i32::wrapping_add),
            Arithmetic::Bool => $go!(bool, |a: bool, b: bool| a | b),
        }
    };
}

/// Calls a macro like `by_sum`, with the function that keeps one of two elements: `$float` for floats,
/// `$int` for the rest.
macro_rules! by_extreme {
    ($dtype:expr, $go:ident, $float:ident, $int:ident) => {
        match $dtype.arithmetic() {
            Arithmetic::F64 => $go!(f64, |a: f64, b: f64| $float!(a, b)),
            Arithmetic::F32 => $go!(f32, |a: f32, b: f32| $float!(a, b)),
            Arithmetic::I64 => $go!(i64, i64::$int),
            Arithmetic::U64 => $go!(u64, u64::$int),
            Arithmetic::I32 => $go!(i32, i32::$int),
            Arithmetic::U32 => $go!(u32, u32::$int),
            Arithmetic::Bool => $go!(bool, bool::$int),
        }
    };
}

/// Calls a macro like `by_sum`, with words of the dtype's size; the new word is kept.
macro_rules! by_word {
    ($dtype:expr, $go:ident) => {{
        macro_rules! replace {
            ($t:ty) => {
                $go!($t, |_: $t, b: $t| b)
            };
        }
        by_size!($dtype, replace)
    }};
}

/// Calls a macro like `by_sum`, for any operation.
macro_rules! by_op {
    ($op:expr, $dtype:expr, $go:ident) => {
        match $op {
            ScatterOp::Replace => by_word!($dtype, $go),
            ScatterOp::Add => by_sum!($dtype, $go),
            ScatterOp::Max => by_extreme!($dtype, $go, greater, max),
            ScatterOp::Min => by_extreme!($dtype, $go, lesser, min),
        }
    };
}

pub(crate) fn run(isa: Isa, pool: &Arc<Pool>, op: ScatterOp, axis: usize, launch: &Launch<'_>) -> Result<()> {
    let name = op.name();
    let bound = Bound::of_launch(pool, launch)?;
    let (base, src, out) = (bound.inputs[0], bound.inputs[2], bound.outputs[0]);
    let [base_operand, index, source] = &launch.kernel.operands[..] else { return Err(malformed(name)) };
    let (shape, dtype) = (&launch.kernel.space, base_operand.dtype);
    if index.layout.numel() == 0 {
        // SAFETY: `of_launch` checked the base's span, and that the output holds as many elements and is
        // not an input.
        unsafe { copy_base(isa, base_operand, base, out) };
        return Ok(());
    }
    // Narrow types are computed in wider copies of the source and of the output, and rounded once.
    let is_wide = op != ScatterOp::Replace && dtype.is_narrow();
    // SAFETY: `of_launch` checked the spans of base and source, and that the output is no input and holds
    // the elements that `copy_base` writes.
    let (wide_source, wide_sums) = unsafe {
        if is_wide {
            copy_base(isa, base_operand, base, out);
        }
        let copied = |memory: Memory, numel: usize| match is_wide {
            true => widened(isa, pool, memory, numel),
            false => Ok(None),
        };
        (copied(src, source.layout.span().1)?, copied(out, shape.numel())?)
    };
    let src = wide_source.as_ref().map_or(src, CpuBuffer::memory);
    let sums = wide_sums.as_ref().map_or(out, CpuBuffer::memory);
    let begin = || {
        if !is_wide {
            // SAFETY: `of_launch` checked the base's span, and that the output holds as many elements and
            // is not an input.
            unsafe { copy_base(isa, base_operand, base, out) };
        }
    };
    let end = || {
        if is_wide {
            // SAFETY: `widened` made `sums` with `shape.numel()` elements, apart from the output, which
            // `of_launch` checked to hold as many.
            unsafe { narrow_into(isa, sums, out, shape.numel()) };
        }
    };
    let dtype = sums.dtype;
    let plain = shape.contiguous_strides();
    if varies(&index.layout) {
        let output = Layout::contiguous(shape.clone());
        let pass = ByLines {
            op: name,
            index: bound.inputs[1],
            index_layout: &index.layout,
            axis,
            size: shape[axis],
            lines: Lines::new([&index.layout, &source.layout, &output], axis),
        };
        // Separate sums for parts of a line pay if they are fewer than the elements. The number of parts
        // depends on the shape alone, because the order of additions affects the bits.
        let most = index.layout.numel() / (4 * LANES * pass.size).max(1);
        let fits = op == ScatterOp::Add && pass.lines.is_one();
        let parts = (index.layout.numel() / SCATTER_PART_ELEMENTS).min(SCATTER_MAX_PARTS).min(most);
        if fits && parts > 0 {
            macro_rules! sums {
                ($t:ty, $nothing:expr, $add:expr) => {{
                    begin();
                    let src = Shared(src.at::<$t>(source.layout.offset()));
                    let done = add_by_parts(&pass, parts, src, (sums, plain[axis]), $nothing, $add);
                    end();
                    return done;
                }};
            }
            match dtype.arithmetic() {
                Arithmetic::F64 => sums!(f64, -0.0, |a: f64, b: f64| a + b),
                Arithmetic::F32 => sums!(f32, -0.0, |a: f32, b: f32| a + b),
                Arithmetic::I64 | Arithmetic::U64 => sums!(i64, 0, i64::wrapping_add),
                Arithmetic::I32 | Arithmetic::U32 => sums!(i32, 0, i32::wrapping_add),
                Arithmetic::Bool => {}
            }
        }
        // If the base is a single number, it is written to each line just before the line's elements are
        // added.
        let off_axis = |a: usize| a == axis || index.layout.shape()[a] == shape[a];
        let begins_so = plain[axis] == 1 && (0..shape.rank()).all(off_axis) && is_one(&base_operand.layout);
        let line_by_line = begins_so && !pass.is_shared() && !is_wide;
        macro_rules! lines {
            ($t:ty, $add:expr) => {{
                if !line_by_line {
                    begin();
                }
                let (src, all) = (Shared(src.at::<$t>(source.layout.offset())), Shared(sums.at::<$t>(0)));
                // SAFETY: `ByLines` passes only indices within the axis, and the kernel's contract keeps
                // other axes within the output. Each of its lines belongs to one thread.
                let add = move |from: isize, to: isize| unsafe {
                    let to = all.at(to);
                    to.write($add(to.read(), src.at(from).read()));
                };
                let begin_line = |line: isize| {
                    let number = base.at::<$t>(base_operand.layout.offset()).cast_const();
                    // SAFETY: the base holds its number; the line is one of the output's and belongs to one
                    // thread, which alone writes it.
                    unsafe { std::slice::from_raw_parts_mut(all.at(line), pass.size).fill(number.read()) };
                };
                let before: Option<&(dyn Fn(isize) + Sync)> =
                    if line_by_line { Some(&begin_line) } else { None };
                let done = pass.go_after(before, add);
                end();
                done
            }};
        }
        return by_op!(op, dtype, lines);
    }
    let picks = Picks::read(name, bound.inputs[1], index.dtype, &index.layout, axis, shape[axis])?;
    let lead = picks.lead.len();
    let (off_axis, along) = (picks.off_axis(&plain, axis), plain[axis]);
    let (src_lead, src_within) = source.layout.strides().split_at(lead);
    let length: usize = picks.block.iter().product();
    let runs = is_run(&picks.block, src_within) && is_run(&picks.block, &plain[lead..]);
    macro_rules! go {
        ($t:ty, $add:expr) => {{
            begin();
            // All indices in order, so that repeated indices add up in the same order every time; each
            // thread handles some elements of each block.
            let some = |start: usize, end: usize| {
                let mut to = Walk::new(&picks.lead, &off_axis, 0);
                let mut from = Walk::new(&picks.lead, src_lead, 0);
                for &number in &picks.numbers {
                    // SAFETY: `Picks::read` checked the indices, and the kernel's contract keeps other axes
                    // within output and source. Threads have different places of a block.
                    unsafe {
                        let to = sums.at::<$t>(0).offset(to.offset + number as isize * along);
                        let from = src.at::<$t>(source.layout.offset()).offset(from.offset).cast_const();
                        if runs {
                            for j in start..end {
                                to.add(j).write($add(to.add(j).read(), from.add(j).read()));
                            }
                        } else {
                            let mut a = Walk::new(&picks.block, &plain[lead..], start);
                            let mut b = Walk::new(&picks.block, src_within, start);
                            for _ in start..end {
                                let to = to.offset(a.offset);
                                to.write($add(to.read(), from.offset(b.offset).read()));
                                a.next();
                                b.next();
                            }
                        }
                    }
                    to.next();
                    from.next();
                }
            };
            // Narrow blocks are not worth sharing.
            let work = if length >= 64 { picks.numbers.len() * length } else { 0 };
            pieces(length, work, &some);
            end();
        }};
    }
    by_op!(op, dtype, go);
    Ok(())
}

/// Sums that each part of a line has of every place: neighbours go to several, so that an addition need not
/// wait for the one before it.
const LANES: usize = 4;

/// Adds the elements of one line to the output, which holds the base: `parts` parts of the line run in
/// parallel, each into its own sums, which are joined in order.
fn add_by_parts<T: Copy + Send + Sync>(
    pass: &ByLines<'_>,
    parts: usize,
    src: Shared<T>,
    (out, along): (Memory, isize),
    nothing: T,
    add: impl Fn(T, T) -> T + Copy + Sync,
) -> Result<()> {
    let size = pass.size;
    let mut sums = vec![nothing; parts * LANES * size];
    let all = Shared(sums.as_mut_ptr());
    pass.go_by_parts(parts, |number, part, first| {
        let sums = Shared(all.at((number * LANES * size) as isize));
        // Captured by value: the compiler must assume that writes change captured references.
        part.along_one_line::<LANES>(move |lane, from, picked| {
            // SAFETY: `along_one_line` passes lanes below `LANES` and indices within the axis, for which
            // this part has its own sums; `of_launch` checked the source's span.
            unsafe {
                let to = sums.at((lane * size + picked) as isize);
                to.write(add(to.read(), src.at(first + from).read()));
            }
        })
    })?;
    for sums in sums.chunks(size) {
        for (i, &sum) in (0..).zip(sums) {
            // SAFETY: i < `size`, and the output has `size` elements along the axis.
            unsafe {
                let to = out.at::<T>(0).offset(i * along);
                to.write(add(to.read(), sum));
            }
        }
    }
    Ok(())
}

/// Whether a layout repeats a single element.
fn is_one(layout: &Layout) -> bool {
    layout.shape().iter().zip(layout.strides()).all(|(&n, &stride)| n == 1 || stride == 0)
}

/// Copies the base of a scatter into its output.
///
/// # Safety
/// The operand's layout is within `base`, and `out` has room for as many elements in row-major order. Both
/// are of the operand's dtype and do not overlap.
unsafe fn copy_base(isa: Isa, operand: &Operand, base: Memory, out: Memory) {
    let Operand { dtype, layout, .. } = operand;
    let (shape, strides) = (layout.shape(), layout.strides());
    let plain = shape.contiguous_strides();
    macro_rules! go {
        ($t:ty) => {{
            let from = base.at::<$t>(layout.offset()).cast_const();
            // SAFETY: by `# Safety` the layout is within `base`, and `out` has room for its elements;
            // row-major positions are all different.
            unsafe { strided::copy::<$t>(isa, shape, from, strides, out.at::<$t>(0), &plain) }
        }};
    }
    by_size!(dtype, go)
}
