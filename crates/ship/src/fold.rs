//! Constants that are computed before the program is written: tensors in blocks are decoded, and steps that
//! read constants alone are run, unless their results are larger than what they read. Factors of products are
//! computed in any case: a program has less RAM than flash, and `integers` makes many of them small.

use tensor_core::{DType, Result, Scalar, kernel::Body};

use crate::{
    description::{Description, Role, Step},
    interpret::{self, Memory},
};

/// The bytes of results that are computed even if they are larger than what they are made of.
const SMALL_BYTES: usize = 1024;

/// Replaces what can be computed now by constants.
///
/// # Errors
/// A step that fails on its constants.
pub(crate) fn constants(plan: &mut Description) -> Result<()> {
    decode(plan);
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

fn is_foldable(plan: &Description, k: usize) -> bool {
    let step = &plan.steps[k];
    let is_constant = |buffer: usize| matches!(plan.buffers[buffer].role, Role::Constant(_));
    // No other step writes a part of it.
    let is_whole = |buffer: usize| {
        let writers = plan.steps.iter().flat_map(|step| &step.outputs).filter(|w| w.buffer == buffer);
        plan.buffers[buffer].role == Role::Arena && writers.count() == 1
    };
    let read: usize = step.inputs.iter().map(|window| plan.buffers[window.buffer].bytes()).sum();
    let made: usize = step.outputs.iter().map(|window| plan.buffers[window.buffer].bytes()).sum();
    let is_factor = |buffer: usize| {
        let is_product = |step: &&Step| matches!(step.kernel.body, Body::Contract(_));
        plan.steps.iter().filter(is_product).any(|step| step.inputs[..2].iter().any(|w| w.buffer == buffer))
    };
    step.inputs.iter().all(|window| is_constant(window.buffer))
        && step.outputs.iter().all(|window| is_whole(window.buffer))
        && (made <= read.max(SMALL_BYTES) || step.outputs.iter().all(|window| is_factor(window.buffer)))
}

/// Replaces operands in blocks by their numbers.
fn decode(plan: &mut Description) {
    for k in 0..plan.steps.len() {
        for n in 0..plan.steps[k].kernel.operands.len() {
            let operand = &plan.steps[k].kernel.operands[n];
            let (dtype, window) = (operand.dtype, plan.steps[k].inputs[n]);
            let (Some(format), Role::Constant(bytes)) =
                (operand.format.clone(), &plan.buffers[window.buffer].role)
            else {
                continue;
            };
            let mut numbers = vec![0.0f32; format.elements(bytes.len())];
            format.decode(bytes, 0, &mut numbers);
            let scalars: Vec<Scalar> =
                numbers.iter().map(|&x| Scalar::Float(f64::from(x)).cast(dtype)).collect();
            let bytes = to_bytes(dtype, &scalars);
            let buffer = plan.buffer(dtype, scalars.len(), Role::Constant(bytes));
            let step = &mut plan.steps[k];
            step.inputs[n].buffer = buffer;
            step.kernel.operands[n].format = None;
        }
    }
}

/// The bytes of floating-point numbers, in the host's order.
fn to_bytes(dtype: DType, numbers: &[Scalar]) -> Vec<u8> {
    let double = dtype == DType::F64;
    let bytes = numbers.iter().flat_map(|number| {
        let wide = number.as_f64();
        if double { wide.to_ne_bytes().to_vec() } else { (wide as f32).to_ne_bytes().to_vec() }
    });
    bytes.collect()
}
