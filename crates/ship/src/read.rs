//! From a plan to its [`Description`]: native operations are lowered to plain kernels, kernels of constants
//! alone are computed, products of whole numbers become those of integers, and results go to the caller's
//! arrays. Tensors in blocks are numbers for these passes, and blocks again after them.

use tensor_core::{BufferSource, DType, Kernel, Layout, ListedStep, Location, PlanListing, Result};

use crate::{
    description::{Buffer, BufferId, Description, Role, load},
    fold, integers, lower, operations, relayout,
};

/// The description of a plan.
///
/// # Errors
/// An operation that cannot be shipped, with the line that made it.
pub(crate) fn read(listing: PlanListing) -> Result<Description> {
    let mut plan = Description::default();
    for buffer in listing.buffers {
        let role = match buffer.source {
            BufferSource::Argument(k) => Role::Argument(k),
            BufferSource::Constant(bytes) => Role::Constant(bytes),
            BufferSource::Made => Role::Arena,
        };
        plan.buffer(buffer.dtype, buffer.numel, role);
    }
    plan.arguments = listing.arguments;
    let results = listing.results.iter().map(|value| value.buffer);
    let alive = alive(&listing.steps, results.collect());
    for (step, _) in listing.steps.iter().zip(&alive).filter(|(_, alive)| **alive) {
        lower::step(&mut plan, step, &listing.steps, &listing.results)?;
    }
    for value in &listing.results {
        result(&mut plan, value.buffer, value.dtype, &value.layout);
    }
    for step in &plan.steps {
        operations::check(step, &plan)?;
    }
    let blocks = fold::decode(&mut plan);
    fold::forward(&mut plan);
    fold::constants(&mut plan)?;
    integers::products(&mut plan);
    fold::restore(&mut plan, blocks);
    relayout::constants(&mut plan);
    drop_unused(&mut plan);
    Ok(plan)
}

/// Makes a value the next result: its buffer becomes the caller's array, or a step copies it there.
fn result(plan: &mut Description, buffer: BufferId, dtype: DType, layout: &Layout) {
    let number = plan.results.len();
    let shape = layout.shape().clone();
    let is_whole = layout.is_contiguous() && layout.offset() == 0;
    let Buffer { numel, ref role, .. } = plan.buffers[buffer];
    if is_whole && numel == shape.numel() && *role == Role::Arena {
        plan.buffers[buffer].role = Role::Result(number);
        plan.results.push((shape, buffer));
        return;
    }
    let to = plan.buffer(dtype, shape.numel(), Role::Result(number));
    plan.results.push((shape.clone(), to));
    if shape.numel() == 0 {
        return;
    }
    let program = load(dtype);
    let kernel = Kernel::map(shape, [layout.clone()], program);
    let maker = plan.steps.iter().rev().find(|step| step.outputs.iter().any(|w| w.buffer == buffer));
    let (op, location) = maker.map_or(("result", Location::caller()), |step| (step.op, step.location));
    let of = ListedStep {
        kernel: kernel.clone(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        scalars: Vec::new(),
        op,
        location,
    };
    plan.step(kernel, vec![(buffer, 0)], vec![(to, 0)], Vec::new(), &of);
}

/// Drops the contents of constants that nothing reads.
fn drop_unused(plan: &mut Description) {
    for id in 0..plan.buffers.len() {
        let is_read = plan.steps.iter().any(|step| step.reads(id));
        let buffer = &mut plan.buffers[id];
        if !is_read && matches!(buffer.role, Role::Constant(_)) {
            *buffer = Buffer { dtype: buffer.dtype, numel: 0, role: Role::Arena, blocks: None };
        }
    }
    for (_, _, buffer) in &mut plan.arguments {
        if buffer.is_some_and(|id| !plan.steps.iter().any(|step| step.reads(id))) {
            *buffer = None;
        }
    }
}

/// For each step, whether a result depends on it.
fn alive(steps: &[ListedStep], results: Vec<usize>) -> Vec<bool> {
    let mut wanted = results;
    let mut alive = vec![false; steps.len()];
    for (k, step) in steps.iter().enumerate().rev() {
        if step.outputs.iter().any(|output| wanted.contains(output)) {
            alive[k] = true;
            wanted.extend(&step.inputs);
        }
    }
    alive
}
