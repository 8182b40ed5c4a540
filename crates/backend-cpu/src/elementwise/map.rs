//! Fused elementwise kernels.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use tensor_core::{Error, Launch, Layout, Result, kernel::Program};

use crate::{
    elementwise::{
        engine::with_evaluator,
        lower::{Code, Lowered, Src, lower},
        table,
        values::Values,
    },
    memory::{
        blocks::Blocks,
        buffer::{Bound, CpuBuffer, Memory, compiled},
        layouts,
        lines::pieces,
        pool::Pool,
    },
    simd::isa::Isa,
    threads,
    tuning::{BLOCK_POSITIONS, SERIAL_STEPS},
};

/// Fails unless every input layout stays within its buffer.
pub(crate) fn check_inputs(
    op: &'static str,
    program: &Lowered,
    inputs: &[Memory],
    scalars: usize,
) -> Result<()> {
    if inputs.len() != program.inputs.len() || scalars != program.scalars.len() {
        return Err(Error::invalid(op, "the launch's inputs or scalars do not match the kernel"));
    }
    if program.numel == 0 {
        return Ok(());
    }
    program
        .inputs
        .iter()
        .zip(inputs)
        .try_for_each(|(access, memory)| memory.require(op, access.dtype, access.end))
}

pub(crate) fn run(isa: Isa, pool: &Arc<Pool>, program: &Program, launch: &Launch<'_>) -> Result<()> {
    let kernel = launch.kernel;
    if kernel.operands.iter().any(|operand| operand.format.is_some()) {
        return decode(isa, pool, launch);
    }
    let program = compiled(launch, || lower(program, &kernel.space, &kernel.operands, |_| true))?;
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    check_inputs("map", program, &bound.inputs, launch.scalars.len())?;
    bound.require("map", program.inputs.len(), program.outputs.len())?;
    for (output, &(_, dtype)) in bound.outputs.iter().zip(&program.outputs) {
        output.require("map", dtype, program.numel)?;
    }
    if program.is_strided_copy() && bound.are_apart() {
        let (input, out) = (bound.inputs[0], bound.outputs[0]);
        let plain = Layout::contiguous(kernel.space.clone());
        // SAFETY: `check_inputs` and `require` checked both layouts, and `are_apart` that the memories do not
        // overlap. The output is row-major, so its positions are distinct.
        unsafe { layouts::copy(isa, (input, &kernel.operands[0].layout), (out, &plain)) };
        return Ok(());
    }
    if program.direct && program.numel <= BLOCK_POSITIONS && bound.are_apart() {
        return run_direct(isa, program, &bound);
    }
    let (inputs, outputs) = (bound.inputs.as_slice(), bound.outputs.as_slice());
    let far = program.is_far();
    let some = |range: Range<usize>| {
        with_evaluator(isa, program, inputs, launch, outputs, |evaluator| {
            let mut pos = range.start;
            while pos < range.end {
                let n = evaluator.block_len(pos, range.end);
                if far {
                    evaluator.look_ahead(outputs, pos + n);
                }
                evaluator.block(pos, n, outputs, pos)?;
                pos += n;
            }
            Ok(())
        })
    };
    let numel = program.numel;
    if numel * (program.steps.len() + 1) < SERIAL_STEPS || threads::available() == 1 {
        return some(0..numel);
    }
    threads::try_share_ranges(numel, BLOCK_POSITIONS, some)
}

/// Copies a tensor in a block format, decoding it.
fn decode(isa: Isa, pool: &Arc<Pool>, launch: &Launch<'_>) -> Result<()> {
    let bound = Bound::of_launch(pool, launch)?;
    let [operand] = &launch.kernel.operands[..] else {
        return Err(Error::invalid(
            "dequantize",
            "the kernel has operands besides the one in a block format",
        ));
    };
    let Some(blocks) = Blocks::of(isa, operand, bound.inputs[0]) else { return Ok(()) };
    let (layout, out) = (&operand.layout, bound.outputs[0]);
    let share = |first: usize, to: Memory, numel: usize| {
        pieces(numel, numel, &|start, end| {
            // SAFETY: `to` is the output that `of_launch` checked, or `whole`: it has room for `numel`
            // elements, and each piece writes its own.
            unsafe { blocks.decode_into(first + start, to, start, end - start) };
        });
    };
    if layout.is_contiguous() {
        share(layout.offset(), out, layout.numel());
        return Ok(());
    }
    // Not row-major: the span of the layout is decoded once and then copied.
    let (low, high) = layout.span();
    let whole = CpuBuffer::new(pool, operand.dtype, high - low)?;
    share(low, whole.memory(), high - low);
    let layout = Layout::new(layout.shape().clone(), layout.strides(), layout.offset() - low);
    let plain = Layout::contiguous(launch.kernel.space.clone());
    // SAFETY: `whole` holds the span of the shifted layout, and `of_launch` checked `out`, which is another
    // buffer. The output is row-major, so its positions are distinct.
    unsafe { layouts::copy(isa, (whole.memory(), &layout), (out, &plain)) };
    Ok(())
}

/// Runs operations on few elements that are read in place and written to another buffer: setting up the
/// engine's registers would take longer than the arithmetic.
fn run_direct(isa: Isa, program: &Lowered, bound: &Bound<'_>) -> Result<()> {
    let n = program.numel;
    let values = |src: Src| match src {
        Src::Input(k) => Values::of(bound.inputs[k as usize], program.inputs[k as usize].offset),
        Src::Reg(_) => Values::none(),
    };
    for step in &program.steps {
        let Some(o) = step.output else { continue };
        let out = bound.outputs[o as usize].at::<u8>(0);
        // SAFETY: the operands are inputs, and `first` checks that they hold n elements from their offset on.
        // `run` checked that the output has room for n elements and, by `are_apart`, is not an input.
        unsafe {
            match step.code {
                Code::Unary(op, a) => table::unary(isa, op, step.from, values(a).first(n)?, out, n)?,
                Code::Binary(op, a, b) => {
                    table::binary(isa, op, step.from, [values(a), values(b)], out, n)?;
                }
                // `Lowered::direct` is false for these.
                Code::Arange { .. } | Code::Random { .. } | Code::Powi(..) | Code::Compare(..) => {}
                Code::Select(..) | Code::Choose(..) | Code::LoadAt(_) => {}
                Code::Cast(_) => {}
            }
        }
    }
    Ok(())
}
