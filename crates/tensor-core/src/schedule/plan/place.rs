//! The fourth pass: the place of each value in memory.
//!
//! Reads the classes and the choice of materialised items. Leaves a buffer and a layout for each item with a
//! value in memory, and the access to each fused gather. Views that strides cannot express are materialised.
//! [`refuse_blocks`] then checks the readers of tensors in blocks.

use smallvec::SmallVec;

use super::{
    analysis::{Analysis, Class, NONE},
    frame,
    gather::Gathered,
    layouts::view,
    reasons::StoreReason,
};
use crate::{
    base::{error::Result, shape::Shape},
    graph::op::Op,
    kernels::{blocks, layout::Layout},
    schedule::{collect::Item, failure::blame},
};

/// Finds the layouts of everything in memory. A view that strides cannot express becomes a copy.
pub(super) fn find_places(analysis: &mut Analysis<'_>) {
    for (i, order) in stored_orders(analysis).into_iter().enumerate() {
        let item = &analysis.items[i];
        let own = |shape: &Shape| Some((i as u32, Layout::contiguous(shape.clone())));
        analysis.places[i] = match analysis.class[i] {
            Class::Ready => item.value.as_ref().map(|v| (i as u32, v.layout(&item.node.shape))),
            Class::Opaque => match order {
                Some(axes) => {
                    let stored: Shape = axes.iter().map(|&a| item.node.shape[a]).collect();
                    let mut inverse: SmallVec<[usize; 5]> = SmallVec::from_elem(0, axes.len());
                    axes.iter().enumerate().for_each(|(at, &axis)| inverse[axis] = at);
                    Some((i as u32, Layout::contiguous(stored).permute(&inverse)))
                }
                None => own(&item.node.shape),
            },
            Class::Element => own(&item.node.shape),
            Class::Constant if analysis.single[i] => analysis.constant[i]
                .map(|full| (full, Layout::contiguous(Shape::scalar()).expand(&item.node.shape))),
            Class::Elementwise if let Some(frame) = analysis.frames[i] => {
                Some((i as u32, frame.layout(&item.node.shape)))
            }
            Class::Constant | Class::Elementwise if analysis.materialised[i] => own(&item.node.shape),
            Class::Constant | Class::Elementwise | Class::Part => None,
            Class::Gathered => {
                let [table, index] = [0, 1].map(|k| item.inputs[k] as usize);
                let is_made = analysis.inlines(index as u32) || analysis.class[index] == Class::Gathered;
                let index = if is_made { None } else { analysis.places[index].clone() };
                let table = analysis.places[table].clone();
                analysis.gathered[i] =
                    table.and_then(|table| Gathered::of(analysis.items, i as u32, table, index));
                None
            }
            Class::View if let Some(base) = &analysis.gathered[item.inputs[0] as usize] => {
                match base.viewed(&item.node.op, &item.node.shape) {
                    Some(view) => {
                        analysis.gathered[i] = Some(view);
                        None
                    }
                    None => {
                        analysis.materialise(i, StoreReason::NoStrides);
                        own(&item.node.shape)
                    }
                }
            }
            Class::View if let Some((source, layout)) = frame::padded(analysis, i as u32) => {
                Some((source, layout))
            }
            Class::View => {
                let Some((source, base)) = analysis.places[item.inputs[0] as usize].clone() else { continue };
                // A copy of a tensor in blocks decodes it.
                let decodes = matches!(item.node.op, Op::Contiguous) && analysis.format(source).is_some();
                match view(&item.node.op, &base, &item.node.shape).filter(|_| !decodes) {
                    Some(layout) => Some((source, layout)),
                    None => {
                        analysis.materialise(i, StoreReason::NoStrides);
                        own(&item.node.shape)
                    }
                }
            }
        };
    }
    // A view of a gather that was copied reads the copy.
    for (of, gathered) in analysis.gather_of.iter_mut().zip(&analysis.gathered) {
        *of = gathered.as_ref().map_or(NONE, |gathered| gathered.gather);
    }
}

/// Fails if anything but a view, a contraction or a gather reads elements in blocks.
pub(super) fn refuse_blocks(analysis: &Analysis<'_>) -> Result<()> {
    for item in analysis.items.iter().filter(|item| item.value.is_none()) {
        for (k, &input) in item.inputs.iter().enumerate() {
            let Some(format) = analysis.format_read(input) else { continue };
            let op = &item.node.op;
            let reads =
                op.is_view() || matches!(op, Op::Contract(_)) || matches!(op, Op::Gather { .. }) && k == 0;
            if !reads {
                let error = blocks::refusal(op.name(), analysis.shape(input), format.as_ref());
                return Err(blame(&item.node, error));
            }
        }
    }
    Ok(())
}

/// The storage order of each contraction that is only read with its axes permuted, always in the same
/// way. It is stored in that order, so that its readers access memory sequentially. An example is the
/// gradient of the weight in `x.matmul(&w.t()?)`.
fn stored_orders(analysis: &Analysis<'_>) -> Vec<Option<SmallVec<[usize; 5]>>> {
    enum Readers<'a> {
        None,
        Permute(&'a [usize]),
        Others,
    }
    let stored_here =
        |item: &Item| matches!(item.node.op, Op::Contract(_)) && item.value.is_none() && !item.store;
    let mut readers: Vec<Readers<'_>> = analysis
        .items
        .iter()
        .map(|item| if stored_here(item) { Readers::None } else { Readers::Others })
        .collect();
    for item in analysis.items.iter().filter(|item| item.value.is_none()) {
        for &input in &item.inputs {
            let known = &mut readers[input as usize];
            *known = match (&*known, &item.node.op) {
                (Readers::None, Op::Permute(axes)) => Readers::Permute(axes),
                (Readers::Permute(same), Op::Permute(axes)) if *same == &axes[..] => Readers::Permute(axes),
                _ => Readers::Others,
            };
        }
    }
    let order = |readers| match readers {
        Readers::Permute(axes) => Some(SmallVec::from_slice(axes)),
        Readers::None | Readers::Others => None,
    };
    readers.into_iter().map(order).collect()
}
