//! The second pass: the items that get buffers, the gathers that are fused into their readers, and the
//! concatenations whose parts the kernel of another one copies.
//!
//! Reads the classes, from the last item to the first, so that all readers of an item are known before the
//! item. Leaves the choice as far as readers and costs decide it, in the classes and in the fields
//! `materialised`, `single` and `gather_of`. Later `fit` adds buffers for the device's limits, and `place`
//! adds copies for views.

use smallvec::SmallVec;

use super::{
    analysis::{Analysis, Class, NONE},
    gather::{GATHER_COST, may_be_read},
    reasons::StoreReason,
};
use crate::{
    devices::backend::Limits,
    graph::op::Op,
    schedule::{
        collect::Item,
        recompute::{own_cost, recompute_limit},
    },
};

/// The reader of an item that several kernels read.
const SEVERAL: u32 = u32::MAX - 1;

/// The maximum nesting of concatenations that are copied as one: one built up step by step may be of any
/// depth.
const NESTED: u8 = 4;

/// The readers of an item that may be fused into them.
#[derive(Clone, Copy)]
struct Uses {
    /// The kernel that reads it, directly or through views.
    reader: u32,
    /// Whether a reader needs it in memory.
    in_memory: bool,
    /// Whether it is read through a view, or broadcast.
    viewed: bool,
    /// Whether a kernel that reads it iterates over other elements than the item's own.
    beyond: bool,
}

/// Decides for each item whether it gets a buffer, or which kernels compute it instead.
pub(super) fn choose_materialised(analysis: &mut Analysis<'_>, limits: &Limits) {
    let items = analysis.items;
    let n = items.len();
    let costs = costs(analysis, limits);
    let has_gathers = items.iter().any(|item| matches!(item.node.op, Op::Gather { .. }));
    // For each item, the kernel that reads it, identified by its root item; and whether such a kernel
    // iterates over other elements than the item's own, so that it will never be merged with the other
    // readers.
    let mut reader = vec![NONE; n];
    let mut beyond = vec![false; n];
    // For each part, the nesting depth of its concatenations.
    let mut nested = vec![0u8; n];
    let unused = Uses { reader: NONE, in_memory: false, viewed: false, beyond: false };
    let mut uses = vec![unused; if has_gathers { n } else { 0 }];
    for i in (0..n).rev() {
        let item = &analysis.items[i];
        let op = &item.node.op;
        match analysis.class[i] {
            Class::Ready => continue,
            Class::Opaque | Class::View if nested[i] <= NESTED && is_part(analysis, i, reader[i]) => {
                analysis.class[i] = Class::Part;
            }
            Class::Opaque if has_gathers && is_gathered(analysis, i, &uses[i], costs[i], limits) => {
                analysis.class[i] = Class::Gathered;
            }
            Class::Opaque | Class::Element => {
                analysis.materialise(i, if item.store { StoreReason::Kept } else { StoreReason::OwnKernel });
            }
            Class::Part | Class::Gathered | Class::View => {}
            Class::Constant => {
                if item.store {
                    analysis.materialise(i, StoreReason::Kept);
                }
                analysis.single[i] &= !item.store;
            }
            Class::Elementwise => {
                if item.store {
                    analysis.materialise(i, StoreReason::Kept);
                } else if reader[i] == SEVERAL && costs[i] > recompute_limit(beyond[i]) {
                    analysis.materialise(i, StoreReason::ReadBySeveral(costs[i]));
                }
            }
        }
        let inlined = analysis.class[i] == Class::Gathered
            || analysis.class[i] == Class::Elementwise && !analysis.materialised[i];
        let is_part = analysis.class[i] == Class::Part;
        let root = match () {
            () if analysis.class[i] == Class::Gathered => uses[i].reader,
            () if inlined || is_part => reader[i],
            () => i as u32,
        };
        let uses_of_reader = if has_gathers { uses[i] } else { unused };
        for (k, &j) in item.inputs.iter().enumerate() {
            let j = j as usize;
            let same_shape = analysis.items[j].node.shape == item.node.shape;
            let class = analysis.class[i];
            let takes_expressions = if class == Class::Elementwise {
                same_shape
            } else if class == Class::Gathered {
                // An index is inlined if it is read in the gather's own order.
                k == 1 && same_shape && !uses[i].viewed && !analysis.positional[j]
            } else {
                matches!(op, Op::Reduce { .. }) && !analysis.positional[j]
            };
            if has_gathers {
                let through = analysis.class[i] == Class::View;
                let used = &mut uses[j];
                let (reader, beyond) = match through || analysis.class[i] == Class::Gathered {
                    true => (uses_of_reader.reader, uses_of_reader.beyond),
                    false => (root, analysis.class[i] != Class::Elementwise || inlined && beyond[i]),
                };
                used.reader = if used.reader == NONE || used.reader == reader { reader } else { SEVERAL };
                used.beyond |= beyond;
                used.viewed |= through || analysis.class[i] == Class::Elementwise && !same_shape;
                used.in_memory |= if class == Class::Elementwise {
                    false
                } else if class == Class::View {
                    item.store || uses_of_reader.in_memory
                } else {
                    !takes_expressions || class == Class::Gathered && analysis.class[j] == Class::View
                };
            }
            let constant = analysis.class[j] == Class::Constant
                && (is_part || matches!(class, Class::Opaque | Class::Gathered));
            if constant && !takes_expressions {
                // Operations that copy or select elements can read one element repeatedly; other
                // kernels need all elements in memory.
                let copied = matches!(op, Op::Concat { .. } | Op::Scatter { .. } | Op::Gather { .. });
                analysis.single[j] = copied && (analysis.single[j] || !analysis.materialised[j]);
            }
            if (constant || analysis.class[j] == Class::Elementwise) && !takes_expressions {
                analysis.materialise(j, StoreReason::ReadInMemory(op.name()));
            }
            nested[j] = nested[j].max(if is_part { nested[i] + 1 } else { 1 });
            reader[j] = if reader[j] == NONE || reader[j] == root { root } else { SEVERAL };
            beyond[j] |= if class == Class::Elementwise {
                inlined && beyond[i]
            } else {
                class != Class::Gathered || uses[i].beyond
            };
        }
    }
    if has_gathers {
        analysis.gather_of = bases(items, |i| analysis.class[i] == Class::Gathered);
    }
    // All broadcasts of one number share its buffer.
    for i in (0..n).filter(|&i| analysis.single[i]).collect::<SmallVec<[usize; 8]>>() {
        if let Some(full) = analysis.constant[i].map(|full| full as usize).filter(|&full| full != i) {
            analysis.materialised[i] = false;
            analysis.single[full] |= !analysis.materialised[full];
            let reason = analysis.stored_because[i].take().unwrap_or(StoreReason::OwnKernel);
            analysis.materialise(full, reason);
        }
    }
}

/// Whether item `i`, with these readers and this cost of computing it again, is a [`Class::Gathered`].
fn is_gathered(analysis: &Analysis<'_>, i: usize, uses: &Uses, cost: u32, limits: &Limits) -> bool {
    // An index that is read through a view is in memory.
    let cost = if uses.viewed { GATHER_COST } else { cost };
    let again = uses.reader == SEVERAL && cost > recompute_limit(uses.beyond);
    let pays = limits.gathers_in_maps || uses.beyond || cost > GATHER_COST;
    may_be_read(analysis.items, i, limits.max_indexed_bytes)
        && !analysis.items[i].store
        && uses.reader != NONE
        && !uses.in_memory
        && !again
        && pays
        // With a constant index, a copy of the selected elements is cheaper.
        && analysis.class[analysis.items[i].inputs[1] as usize] != Class::Constant
}

/// Whether item `i`, all of whose readers are in the kernel of `reader`, is a [`Class::Part`].
fn is_part(analysis: &Analysis<'_>, i: usize, reader: u32) -> bool {
    let is_concat = |i: usize| {
        matches!(analysis.items[i].node.op, Op::Concat { .. }) && analysis.class[i] == Class::Opaque
    };
    !analysis.items[i].store
        && reader != NONE
        && reader != SEVERAL
        && is_concat(reader as usize)
        && (is_concat(i) || reorders_for(analysis, i, reader))
}

/// Whether item `i` merges the last two axes of permuted ones, such as the heads of attention, for
/// concatenation `reader` along its last axis, which copies the permuted elements itself.
fn reorders_for(analysis: &Analysis<'_>, i: usize, reader: u32) -> bool {
    let (item, reader) = (&analysis.items[i], &analysis.items[reader as usize]);
    let (Op::Reshape, Op::Concat { axis }) = (&item.node.op, &reader.node.op) else { return false };
    let permuted = &analysis.items[item.inputs[0] as usize];
    let lead = item.node.shape.rank().saturating_sub(1);
    matches!(permuted.node.op, Op::Permute(_))
        && permuted.value.is_none()
        && !permuted.inputs.iter().any(|&base| analysis.format(base).is_some())
        && reader.inputs.contains(&(i as u32))
        && *axis == lead
        && permuted.node.shape.rank() == lead + 2
        && permuted.node.shape[..lead] == item.node.shape[..lead]
}

/// The cost of computing each elementwise item or gather again, including its inlined inputs. An item that
/// several kernels read is stored, so that one which is made of it alone, and of broadcast values, is
/// computed again from there: it costs its readers no more loads.
fn costs(analysis: &Analysis<'_>, limits: &Limits) -> Vec<u32> {
    let items = analysis.items;
    let readers = readers(analysis);
    let mut costs = vec![0u32; items.len()];
    // The cost from what is no expression.
    let mut whole = vec![0u32; items.len()];
    // The cost from values that are stored, and the number of those that have all elements.
    let mut from_stored = vec![Again { cost: 0, loads: 1 }; items.len()];
    for (i, item) in items.iter().enumerate() {
        let class = analysis.class[i];
        let own = if class == Class::Elementwise {
            own_cost(&item.node.op)
        } else if class == Class::Opaque && !item.store && may_be_read(items, i, limits.max_indexed_bytes) {
            GATHER_COST
        } else {
            let is_broadcast = class == Class::View && matches!(item.node.op, Op::Expand);
            from_stored[i].loads = u32::from(!is_broadcast && class != Class::Constant);
            continue;
        };
        // An input of another shape is read from memory or is one value per row; one that is not an
        // expression costs nothing.
        let inlined = item.inputs.iter().filter(|&&j| items[j as usize].node.shape == item.node.shape);
        let mut again = Again { cost: own, loads: 0 };
        whole[i] = own;
        for &j in inlined {
            whole[i] = whole[i].saturating_add(whole[j as usize]);
            again.cost = again.cost.saturating_add(from_stored[j as usize].cost);
            again.loads = again.loads.saturating_add(from_stored[j as usize].loads);
        }
        costs[i] = if again.loads > 1 { whole[i] } else { again.cost };
        let is_stored = class == Class::Elementwise && (item.store || readers[i].store_above(costs[i]));
        from_stored[i] = if is_stored { Again { cost: 0, loads: 1 } } else { again };
    }
    costs
}

/// The work of computing an item again.
#[derive(Clone, Copy)]
struct Again {
    cost: u32,
    loads: u32,
}

/// The readers of an item, as far as they are known before any item is given a buffer.
#[derive(Clone, Copy, Default)]
struct Readers {
    several: bool,
    /// Whether one of them iterates over other elements than the item's own.
    beyond: bool,
    any: bool,
}

impl Readers {
    /// Whether an item of this cost is stored for them, if they end up in several kernels.
    fn store_above(self, cost: u32) -> bool {
        self.several && cost > recompute_limit(self.beyond)
    }
}

fn readers(analysis: &Analysis<'_>) -> Vec<Readers> {
    let mut readers = vec![Readers::default(); analysis.items.len()];
    for (i, item) in analysis.items.iter().enumerate().filter(|(_, item)| item.value.is_none()) {
        for &j in &item.inputs {
            let known = &mut readers[j as usize];
            known.several |= known.any;
            known.any = true;
            known.beyond |= analysis.class[i] != Class::Elementwise;
        }
    }
    readers
}

/// For each item, the fused gather that it is or is a view of.
fn bases(items: &[Item], is_read: impl Fn(usize) -> bool) -> Vec<u32> {
    let mut bases = vec![NONE; items.len()];
    for (i, item) in items.iter().enumerate() {
        if item.value.is_some() {
            continue;
        }
        if is_read(i) {
            bases[i] = i as u32;
        } else if item.node.op.is_view()
            && let Some(&input) = item.inputs.first()
        {
            bases[i] = bases[input as usize];
        }
    }
    bases
}
