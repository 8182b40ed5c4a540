//! The axis along which a contraction computes neighbouring results at once, and constants that are stored
//! contiguous along it. Each result still adds its terms in their own order, so compilers vectorise the loop
//! without changing a bit.

use tensor_core::{Layout, kernel::Body};

use crate::{
    blocks::RUN,
    description::{Description, Role, Step, Window},
};

/// The results that are computed at once: enough for the registers of most processors.
pub(crate) const MAX_TILE: usize = 16;
/// The size of an axis from which it is worth it.
const MIN_TILE: usize = 4;

/// The axis, if there is one along which each factor is contiguous or the same. A factor in blocks may be
/// contiguous along the terms of the sum instead.
pub(crate) fn tile_axis(step: &Step, is_in_blocks: impl Fn(usize) -> bool) -> Option<usize> {
    let Body::Contract(_) = step.kernel.body else { return None };
    let fits = |k: usize, axis: usize| {
        matches!(stride(step, k, axis), 0 | 1) || is_in_blocks(k) && is_along_terms(step, k)
    };
    candidates(step).find(|&axis| fits(0, axis) && fits(1, axis))
}

/// Whether the neighbours of a factor are the terms of a sum.
fn is_along_terms(step: &Step, operand: usize) -> bool {
    let terms = step.kernel.reduced_axes();
    let last = terms.iter().rev().find(|&&axis| step.kernel.space[axis] > 1);
    last.is_some_and(|&axis| stride(step, operand, axis) == 1)
}

fn stride(step: &Step, operand: usize, axis: usize) -> isize {
    step.kernel.operands[operand].layout.strides()[axis]
}

/// The axes of the results that are long enough, the last first.
fn candidates(step: &Step) -> impl Iterator<Item = usize> + '_ {
    let axes = step.kernel.outputs[0].axes.iter().rev().copied();
    axes.filter(|&axis| step.kernel.space[axis] >= MIN_TILE)
}

/// The elements of a row in blocks that are decoded at once: a divisor of the row's `size`. With 16 rows, 16
/// elements take 1 KiB of the stack.
pub(crate) fn run_size(size: usize) -> usize {
    (1..=RUN).rev().find(|run| size.is_multiple_of(*run)).unwrap_or(1)
}

/// The number of results at once along an axis of `size`: a divisor of it if there is a good one.
pub(crate) fn tile_size(size: usize) -> usize {
    let good = [16, 12, 8, 14, 10, 15, 13, 11, 9, 7, 6, 5, 4];
    match size {
        0..=MAX_TILE => size,
        _ => good.into_iter().find(|tile| size.is_multiple_of(*tile)).unwrap_or(8),
    }
}

/// Stores constants again so that contractions have such an axis.
pub(crate) fn constants(plan: &mut Description) {
    for k in 0..plan.steps.len() {
        let step = &plan.steps[k];
        let in_blocks = |n: usize| plan.blocks(step, n).is_some();
        if !matches!(step.kernel.body, Body::Contract(_)) || tile_axis(step, in_blocks).is_some() {
            continue;
        }
        let is_movable = |n: usize| {
            let window = step.inputs[n];
            let layout = &step.kernel.operands[n].layout;
            let elements: usize = own_axes(layout).map(|axis| layout.shape()[axis]).product();
            let is_constant = matches!(plan.buffers[window.buffer].role, Role::Constant(_));
            is_constant && !in_blocks(n) && elements == window.len
        };
        let movable = [0, 1].map(is_movable);
        let fits = |n: usize, axis: usize| matches!(stride(step, n, axis), 0 | 1) || movable[n];
        let found = candidates(step).find(|&axis| fits(0, axis) && fits(1, axis));
        let Some(axis) = found else { continue };
        for n in 0..2 {
            if !matches!(stride(&plan.steps[k], n, axis), 0 | 1) {
                along(plan, k, n, axis);
            }
        }
    }
}

/// The axes of a layout along which the elements differ.
fn own_axes(layout: &Layout) -> impl Iterator<Item = usize> + '_ {
    let strides = layout.strides();
    (0..strides.len()).filter(move |&axis| strides[axis] != 0 && layout.shape()[axis] > 1)
}

/// Stores an operand with an axis innermost.
fn along(plan: &mut Description, k: usize, n: usize, axis: usize) {
    let step = &plan.steps[k];
    let (window, layout) = (step.inputs[n], step.kernel.operands[n].layout.clone());
    let Role::Constant(bytes) = &plan.buffers[window.buffer].role else { return };
    let dtype = plan.buffers[window.buffer].dtype;
    let size = dtype.size();
    let axes: Vec<usize> = own_axes(&layout).filter(|&a| a != axis).chain([axis]).collect();
    let sizes: Vec<usize> = axes.iter().map(|&a| layout.shape()[a]).collect();
    let mut moved = Vec::with_capacity(window.len * size);
    for flat in 0..window.len {
        let (mut rest, mut from) = (flat, layout.offset() as isize);
        for (&a, &size) in axes.iter().zip(&sizes).rev() {
            from += (rest % size) as isize * layout.strides()[a];
            rest /= size;
        }
        let from = (window.start + from as usize) * size;
        moved.extend_from_slice(&bytes[from..from + size]);
    }
    let mut strides = vec![0; layout.shape().rank()];
    let mut stride = 1;
    for (&a, &size) in axes.iter().zip(&sizes).rev() {
        strides[a] = stride;
        stride *= size as isize;
    }
    // An equal constant, such as the weight of a layer that is called twice, is stored once.
    let role = Role::Constant(moved);
    let known = plan.buffers.iter().position(|buffer| buffer.dtype == dtype && buffer.role == role);
    let buffer = known.unwrap_or_else(|| plan.buffer(dtype, window.len, role));
    let step = &mut plan.steps[k];
    step.inputs[n] = Window { buffer, start: 0, len: window.len };
    step.kernel.operands[n].layout = Layout::new(layout.shape().clone(), &strides, 0);
}
