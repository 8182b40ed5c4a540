//! The choice of frames, between the third pass and the fourth: a map or a row kernel stores its result with
//! the zeros around it that a padding adds, so that the padding is a view of the same buffer and not a copy.
//! The paddings of a convolution and of its gradients are such ones.
//!
//! Reads the classes, the materialised items and the contents of the expressions. Leaves the frames, and the
//! class of a view for each padding that needs no kernel.

use smallvec::SmallVec;

use super::{
    analysis::{Analysis, Class},
    parts::Parts,
};
use crate::{
    base::shape::Shape,
    devices::backend::Limits,
    graph::op::{Op, Padding},
    kernels::{kernel::Frame, layout::Layout},
};

/// A padding of an item's elements: the item, its axis at each axis of the padding, and the zeros.
struct Padded {
    item: u32,
    order: SmallVec<[usize; 5]>,
    frame: Frame,
}

/// Gives a frame to each item that can be stored with the zeros of a padding around it.
pub(super) fn choose_frames(analysis: &mut Analysis<'_>, parts: &[Parts], limits: &Limits) {
    let is_padding =
        |i: &usize| analysis.class[*i] == Class::Opaque && matches!(analysis.items[*i].node.op, Op::Pad(_));
    let paddings: SmallVec<[usize; 8]> = (0..analysis.items.len()).filter(is_padding).collect();
    if paddings.is_empty() || limits.min_framed_bytes == usize::MAX {
        return;
    }
    let readers = readers(analysis, parts);
    for i in paddings {
        let Some(Padded { item, frame, .. }) = padding(analysis, i as u32) else { continue };
        let known = analysis.frames[item as usize];
        if known != Some(frame) && (known.is_some() || !takes(analysis, parts, &readers, item, frame, limits))
        {
            continue;
        }
        analysis.frames[item as usize] = Some(frame);
        analysis.class[i] = Class::View;
        analysis.materialised[i] = false;
        analysis.stored_because[i] = None;
    }
}

/// For each item, the number of its views and of the kernels that read it, each of which may compute an
/// expression in between.
fn readers(analysis: &Analysis<'_>, parts: &[Parts]) -> Vec<u32> {
    let mut readers = vec![0; analysis.items.len()];
    let mut read = |items: &[u32]| items.iter().for_each(|&i| readers[i as usize] += 1);
    for (i, item) in analysis.items.iter().enumerate() {
        match analysis.class[i] {
            Class::Elementwise if analysis.materialised[i] => read(&parts[i].loads),
            Class::View | Class::Opaque | Class::Part => {
                for &input in &item.inputs {
                    match analysis.inlines(input) {
                        true => read(&parts[input as usize].loads),
                        false => read(&[input]),
                    }
                }
            }
            Class::Elementwise | Class::Gathered | Class::Constant | Class::Element | Class::Ready => {}
        }
    }
    readers
}

/// The place of a padding whose item has its frame.
pub(super) fn padded(analysis: &Analysis<'_>, i: u32) -> Option<(u32, Layout)> {
    let Padded { item, order, frame } = padding(analysis, i)?;
    Some((item, Layout::contiguous(frame.outer(analysis.shape(item))).permute(&order)))
}

/// A pending padding with zeros along the last two axes of an expression's buffer, if item `i` is one. The
/// expression may be read with its axes permuted.
fn padding(analysis: &Analysis<'_>, i: u32) -> Option<Padded> {
    let padded = &analysis.items[i as usize];
    let Op::Pad(of) = &padded.node.op else { return None };
    let Padding { before, interior, value } = of.as_ref();
    if padded.value.is_some() || value.as_f64() != 0.0 || interior.iter().any(|&between| between > 0) {
        return None;
    }
    let mut order: SmallVec<[usize; 5]> = (0..before.len()).collect();
    let mut item = padded.inputs[0];
    while let (Op::Permute(axes), None) =
        (&analysis.items[item as usize].node.op, &analysis.items[item as usize].value)
    {
        order.iter_mut().for_each(|axis| *axis = axes[*axis]);
        item = analysis.items[item as usize].inputs[0];
    }
    let (shape, outer): (&Shape, &Shape) = (analysis.shape(item), &padded.node.shape);
    let lead = shape.rank().checked_sub(2)?;
    let mut frame = Frame { before: [0; 2], after: [0; 2] };
    for (at, &axis) in order.iter().enumerate() {
        let after = outer[at] - before[at] - shape[axis];
        match axis.checked_sub(lead) {
            Some(k) => (frame.before[k], frame.after[k]) = (before[at], after),
            None if before[at] + after > 0 => return None,
            None => {}
        }
    }
    Some(Padded { item, order, frame })
}

/// Whether an item can be stored with these zeros around it, and no other kernel is better with its result.
fn takes(
    analysis: &Analysis<'_>,
    parts: &[Parts],
    readers: &[u32],
    item: u32,
    frame: Frame,
    limits: &Limits,
) -> bool {
    let at = item as usize;
    let node = &analysis.items[at].node;
    let bytes = |elements: usize| (elements as u64).saturating_mul(node.dtype.size() as u64);
    // Bounds of integers do not know of the zeros.
    analysis.class[at] == Class::Elementwise
        && analysis.materialised[at]
        && !analysis.single[at]
        && node.dtype.is_float()
        && node.dtype.size() >= limits.min_framed_bytes
        && node.shape.numel() > 0
        && bytes(frame.outer(&node.shape).numel()) <= limits.max_indexed_bytes
        && are_in_one_binding(analysis, &parts[at].loads, limits)
        && !parts[at].loads.iter().any(|&j| ends_a_product(analysis, readers, j))
}

/// Whether a device can bind each of these items at once. A kernel with a frame is not cut into pieces.
pub(super) fn are_in_one_binding(analysis: &Analysis<'_>, loads: &[u32], limits: &Limits) -> bool {
    loads.iter().all(|&j| {
        let mut item = &analysis.items[j as usize];
        while item.value.is_none() && item.node.op.is_view() {
            item = &analysis.items[item.inputs[0] as usize];
        }
        let numel = item.value.as_ref().map_or(item.node.shape.numel(), |value| value.storage.numel());
        (numel as u64).saturating_mul(item.node.dtype.size() as u64) <= limits.max_indexed_bytes
    })
}

/// Whether an expression that reads item `j` will be the epilogue of a contraction.
fn ends_a_product(analysis: &Analysis<'_>, readers: &[u32], mut j: u32) -> bool {
    loop {
        let item = &analysis.items[j as usize];
        if item.value.is_some() || item.store || readers[j as usize] > 1 {
            return false;
        }
        if !item.node.op.is_view() {
            return matches!(item.node.op, Op::Contract(_));
        }
        j = item.inputs[0];
    }
}
