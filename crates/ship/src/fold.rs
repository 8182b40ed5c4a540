//! Constants that are computed before the program is written: steps that read constants alone are run, unless
//! their results are larger than what they read. Factors of products are computed in any case: a program has
//! less RAM than flash, and `integers` makes many of them small. Tensors in blocks are decoded for these
//! passes. Those that steps still read afterwards are stored as blocks again.

use tensor_core::{
    Layout, Result,
    kernel::{Body, Instr},
};

use crate::{
    blocks::Blocks,
    description::{BufferId, Description, Role, Step, Window},
    interpret::{self, Memory, to_bytes},
};

/// The bytes of results that are computed even if they are larger than what they are made of.
const SMALL_BYTES: usize = 1024;

/// Replaces what can be computed now by constants.
///
/// # Errors
/// A step that fails on its constants.
pub(crate) fn constants(plan: &mut Description) -> Result<()> {
    let mut kept: Vec<Step> = Vec::with_capacity(plan.steps.len());
    for k in 0..plan.steps.len() {
        let step = plan.steps[k].clone();
        if !is_foldable(plan, k) {
            kept.push(step);
            continue;
        }
        let mut memory = Memory::of(plan);
        interpret::run(&step, &mut memory)?;
        for output in &step.outputs {
            plan.buffers[output.buffer].role = Role::Constant(memory.take(output.buffer));
        }
    }
    plan.steps = kept;
    Ok(())
}

/// Whether a buffer of the arena is made by one step.
fn is_whole(plan: &Description, buffer: BufferId) -> bool {
    let writers = plan.steps.iter().flat_map(|step| &step.outputs).filter(|w| w.buffer == buffer);
    plan.buffers[buffer].role == Role::Arena && writers.count() == 1
}

fn is_foldable(plan: &Description, k: usize) -> bool {
    let step = &plan.steps[k];
    let is_constant = |buffer: usize| matches!(plan.buffers[buffer].role, Role::Constant(_));
    let read: usize = step.inputs.iter().map(|window| plan.buffers[window.buffer].bytes()).sum();
    let made: usize = step.outputs.iter().map(|window| plan.buffers[window.buffer].bytes()).sum();
    let is_factor = |buffer: usize| {
        let is_product = |step: &&Step| matches!(step.kernel.body, Body::Contract(_));
        plan.steps.iter().filter(is_product).any(|step| step.inputs[..2].iter().any(|w| w.buffer == buffer))
    };
    step.inputs.iter().all(|window| is_constant(window.buffer))
        && step.outputs.iter().all(|window| is_whole(plan, window.buffer))
        && (made <= read.max(SMALL_BYTES) || step.outputs.iter().all(|window| is_factor(window.buffer)))
}

/// A tensor in blocks that has been decoded: the buffer with the numbers, the blocks, and their bytes.
pub(crate) type Decoded = (BufferId, Option<Blocks>, Vec<u8>);

/// Replaces operands in blocks by their numbers.
pub(crate) fn decode(plan: &mut Description) -> Vec<Decoded> {
    let mut known: Vec<(BufferId, Decoded)> = Vec::new();
    for k in 0..plan.steps.len() {
        for n in 0..plan.steps[k].kernel.operands.len() {
            let operand = &plan.steps[k].kernel.operands[n];
            let (dtype, from) = (operand.dtype, plan.steps[k].inputs[n].buffer);
            let (Some(format), Role::Constant(bytes)) = (operand.format.clone(), &plan.buffers[from].role)
            else {
                continue;
            };
            let found =
                known.iter().find(|(of, decoded)| *of == from && plan.buffers[decoded.0].dtype == dtype);
            let buffer = match found {
                Some((_, decoded)) => decoded.0,
                None => {
                    let bytes = bytes.clone();
                    let mut numbers = vec![0.0f32; format.elements(bytes.len())];
                    format.decode(&bytes, 0, &mut numbers);
                    let role = Role::Constant(to_bytes(dtype, &numbers));
                    let buffer = plan.buffer(dtype, numbers.len(), role);
                    known.push((from, (buffer, Blocks::of(&format, &bytes), bytes)));
                    buffer
                }
            };
            let step = &mut plan.steps[k];
            step.inputs[n].buffer = buffer;
            step.kernel.operands[n].format = None;
        }
    }
    known.into_iter().map(|(_, decoded)| decoded).collect()
}

/// Stores decoded tensors as blocks again.
pub(crate) fn restore(plan: &mut Description, all: Vec<Decoded>) {
    for (buffer, blocks, bytes) in all {
        let buffer = &mut plan.buffers[buffer];
        if blocks.is_some() {
            (buffer.role, buffer.blocks) = (Role::Constant(bytes), blocks);
        }
    }
}

/// Lets the readers of a copy of a constant read the constant itself.
pub(crate) fn forward(plan: &mut Description) {
    for k in 0..plan.steps.len() {
        let Some((to, from)) = copied(plan, k) else { continue };
        for step in &mut plan.steps {
            for window in step.inputs.iter_mut().filter(|window| window.buffer == to) {
                *window = Window { buffer: from.buffer, start: from.start + window.start, len: window.len };
            }
        }
    }
    let is_read = |buffer: BufferId| plan.steps.iter().any(|step| step.reads(buffer));
    let dropped: Vec<bool> =
        (0..plan.steps.len()).map(|k| copied(plan, k).is_some_and(|(to, _)| !is_read(to))).collect();
    let mut dropped = dropped.into_iter();
    plan.steps.retain(|_| !dropped.next().unwrap_or(false));
}

/// The buffer that a step makes as a copy of a constant in the same order, and the constant's window.
fn copied(plan: &Description, k: usize) -> Option<(BufferId, Window)> {
    let step = &plan.steps[k];
    let (&[from], &[to]) = (&step.inputs[..], &step.outputs[..]) else { return None };
    let (operand, output) = (&step.kernel.operands[0], &step.kernel.outputs[0]);
    let is_plain = match &step.kernel.body {
        Body::Map(program) => program.instrs == [Instr::Load(0)] && output.frame.is_none(),
        Body::Copy { regions, .. } => regions[..] == [Layout::contiguous(output.shape.clone())],
        _ => false,
    };
    let is_constant = matches!(plan.buffers[from.buffer].role, Role::Constant(_));
    let is_same = operand.layout.is_contiguous() && operand.dtype == output.dtype;
    if !is_plain || !is_constant || !is_same || !is_whole(plan, to.buffer) {
        return None;
    }
    Some((to.buffer, Window { start: from.start + operand.layout.offset(), len: to.len, ..from }))
}
