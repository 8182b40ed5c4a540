//! The last pass, from kernels to a plan: the slot of each buffer, its lifetime, and the reuse of buffers
//! in place.
//!
//! Reads the written kernels, and the places in the analysis. Leaves the [`Plan`], whose kernels are shared
//! with the other plans of the device.

use std::{ops::Range, sync::atomic::AtomicBool};

use smallvec::SmallVec;

use super::{
    analysis::{Analysis, NONE},
    step::{Output, Plan, Step, Store, Target},
    write::Draft,
};
use crate::{
    kernels::{
        kernel::{self, Body, Kernel},
        layout::Layout,
    },
    schedule::kernels::Kernels,
};

/// Assigns slots and lifetimes, and reuses buffers in place.
pub(super) fn assemble(analysis: &Analysis<'_>, drafts: Vec<Draft>, kernels: &mut Kernels) -> Plan {
    let n = analysis.items.len();
    let mut slot_of = vec![NONE; n];
    let mut slots = 0u32;
    let mut leaves = Vec::new();
    let mut last_read = vec![NONE; n];
    for (g, draft) in drafts.iter().enumerate() {
        for &source in &draft.sources {
            last_read[source as usize] = g as u32;
        }
    }
    let mut kept = vec![false; n];
    let mut stores_by_source: Vec<SmallVec<[u32; 1]>> = vec![SmallVec::new(); n];
    for (i, item) in analysis.items.iter().enumerate() {
        if item.value.is_none()
            && (item.store || item.elsewhere)
            && let Some((source, _)) = &analysis.places[i]
        {
            kept[*source as usize] = true;
            stores_by_source[*source as usize].push(i as u32);
        }
        if item.value.is_some() {
            slot_of[i] = slots;
            leaves.push((i as u32, slots));
            slots += 1;
        }
    }
    let stores_of = |source: u32, slot: u32| {
        stores_by_source[source as usize]
            .iter()
            .map(move |&i| Store { item: i, slot, view: analysis.view(i) })
            .collect::<Vec<_>>()
    };
    let views = leaves.iter().flat_map(|&(item, slot)| stores_of(item, slot)).collect();
    let mut steps = Vec::with_capacity(drafts.len());
    for (g, draft) in drafts.into_iter().enumerate() {
        let g = g as u32;
        let ends = |source: u32| last_read[source as usize] == g;
        let inputs: SmallVec<[u32; 4]> = draft.sources.iter().map(|&s| slot_of[s as usize]).collect();
        let mut taken: SmallVec<[u32; 2]> = SmallVec::new();
        let (mut outputs, mut targets) = (SmallVec::new(), SmallVec::new());
        let mut stores = Vec::new();
        let mut made = SmallVec::new();
        let mut unread = SmallVec::new();
        for (o, (&result, output)) in draft.results.iter().zip(&draft.kernel.outputs).enumerate() {
            let (kernel, sources) = (&draft.kernel, &draft.sources);
            // Only maps work in place, and custom kernels where they say so.
            let inputs = if let Body::Custom(custom) = &kernel.body {
                custom.replaces(o).map_or(0..0, |input| input..input + 1)
            } else {
                0..if matches!(kernel.body, Body::Map(_)) { sources.len() } else { 0 }
            };
            let reusable = match output.frame.is_none() {
                true => reusable_input(analysis, kernel, (sources, inputs), &kept, &taken, output, &ends),
                false => None,
            };
            outputs.push(match reusable {
                Some(input) => {
                    taken.push(draft.sources[input]);
                    Output::Reused { input: input as u32 }
                }
                None => Output::Fresh { dtype: output.dtype, numel: output.stored() },
            });
            let is_read = last_read[result as usize] != NONE;
            if let ([item], false) = (stores_by_source[result as usize].as_slice(), is_read) {
                targets.push(Target::Node { item: *item, view: analysis.view(*item) });
                continue;
            }
            let slot = slots;
            slots += 1;
            slot_of[result as usize] = slot;
            targets.push(Target::Slot(slot));
            made.push(Store { item: result, slot, view: analysis.view(result) });
            stores.extend(stores_of(result, slot));
            if !is_read {
                unread.push(slot);
            }
        }
        let mut last_uses: SmallVec<[u32; 4]> =
            draft.sources.iter().filter(|&&s| ends(s)).map(|&s| slot_of[s as usize]).collect();
        last_uses.sort_unstable();
        last_uses.dedup();
        steps.push(Step {
            empty: draft.kernel.outputs.iter().all(|output| output.shape.numel() == 0),
            shared: kernels.share(*draft.kernel),
            inputs,
            outputs,
            targets,
            scalars: draft.scalars,
            stores,
            made,
            last_uses,
            unread,
            gathers: draft.gathers,
            origin: draft.origin,
        });
    }
    Plan { steps, slots: slots as usize, leaves, views, prepared: AtomicBool::new(false) }
}

/// One of some inputs of a kernel whose buffer is not read afterwards and fits an output.
fn reusable_input(
    analysis: &Analysis<'_>,
    kernel: &Kernel,
    (sources, mut inputs): (&[u32], Range<usize>),
    kept: &[bool],
    taken: &[u32],
    output: &kernel::Output,
    ends: &impl Fn(u32) -> bool,
) -> Option<usize> {
    // A bad index may be found while the kernel runs; the buffer must then not have been overwritten.
    if kernel.operands.iter().any(|operand| operand.indexed.is_some()) {
        return None;
    }
    let plain = |layout: &Layout| layout.is_plain() && *layout.shape() == output.shape;
    inputs.find(|&k| {
        let source = sources[k];
        let item = &analysis.items[source as usize];
        let free = !kept[source as usize] && (item.value.is_none() || item.dies);
        free && ends(source)
            && !taken.contains(&source)
            && item.node.dtype == output.dtype
            && item.node.shape.numel() == output.shape.numel()
            && sources.iter().zip(&kernel.operands).all(|(s, operand)| *s != source || plain(&operand.layout))
    })
}
