//! The first pass: the class of each item, by its operation and inputs alone.
//!
//! Reads the items. Leaves a new analysis in which the classes, the constants and the positional items are
//! known, and in which nothing is materialised or placed yet.

use super::analysis::{Analysis, Class, NONE, instrs};
use crate::{graph::op::Op, schedule::collect::Item};

/// The analysis of these items, with their classes.
pub(super) fn classify(items: &[Item]) -> Analysis<'_> {
    let n = items.len();
    let mut constant = vec![None; n];
    let mut class = Vec::with_capacity(n);
    let mut positional = vec![false; n];
    let mut has_several = false;
    for (i, item) in items.iter().enumerate() {
        let op = &item.node.op;
        class.push(if item.value.is_some() {
            Class::Ready
        } else if matches!(op, Op::Full(_)) {
            constant[i] = Some(i as u32);
            Class::Constant
        } else if item.inputs.first().is_some_and(|&j| items[j as usize].node.op.is_tuple()) {
            Class::Element
        } else if op.is_view() {
            constant[i] = constant[item.inputs[0] as usize];
            if constant[i].is_some() { Class::Constant } else { Class::View }
        } else if op.is_elementwise() {
            has_several |= instrs(item) > 1;
            positional[i] = op.is_positional() || item.inputs.iter().any(|&j| positional[j as usize]);
            Class::Elementwise
        } else {
            Class::Opaque
        });
    }
    Analysis {
        items,
        constant,
        class,
        positional,
        has_several,
        materialised: vec![false; n],
        stored_because: vec![None; n],
        single: vec![false; n],
        kernel: vec![NONE; n],
        places: vec![None; n],
        frames: vec![None; n],
        gather_of: vec![NONE; n],
        gathered: vec![None; n],
    }
}
