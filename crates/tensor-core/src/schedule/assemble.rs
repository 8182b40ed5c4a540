//! From kernels to a plan: the slot of each buffer, its lifetime, and the reuse of buffers in place.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    draft::Draft,
    kernels::{Kernels, Known},
    plan::{Analysis, NONE},
    program::ScalarRef,
};
use crate::{
    elements::dtype::DType,
    graph::node::View,
    kernels::{
        kernel::{Body, Instr, Kernel},
        layout::Layout,
    },
};

/// Kernels in order, with the sources and destinations of their buffers.
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) slots: usize,
    /// Computed nodes that are read, and the slots of their buffers.
    pub(crate) leaves: Vec<(u32, u32)>,
    /// Stored views of computed nodes, for which no kernel runs.
    pub(crate) views: Vec<Store>,
}

impl Plan {
    /// Whether it allocates nothing: every output overwrites a buffer that is not read afterwards.
    pub(super) fn is_in_place(&self) -> bool {
        let outputs = self.steps.iter().filter(|step| !step.empty).flat_map(|step| &step.outputs);
        outputs.into_iter().all(|output| matches!(output, Output::Reused { .. }))
    }

    /// An estimate of its memory in bytes, including the backend's compiled kernels.
    pub(super) fn bytes(&self) -> usize {
        const COMPILED: usize = 1 << 10;
        let heap = |step: &Step| {
            let instrs = step.shared.kernel.body.program().map_or(0, |program| program.instrs.len());
            let stores = step.stores.len() + step.made.len() + step.targets.len();
            COMPILED + size_of::<Kernel>() + instrs * (size_of::<Instr>() + 1) + stores * size_of::<Store>()
        };
        let steps = self.steps.iter().map(|step| size_of::<Step>() + heap(step)).sum::<usize>();
        steps + self.leaves.len() * 8 + self.views.len() * size_of::<Store>()
    }
}

/// A node's value: the slot of its buffer, and its layout in it.
pub(crate) struct Store {
    pub(crate) item: u32,
    pub(crate) slot: u32,
    pub(crate) view: View,
}

pub(crate) struct Step {
    pub(crate) shared: Arc<Known>,
    pub(crate) inputs: SmallVec<[u32; 4]>,
    pub(crate) outputs: SmallVec<[Output; 2]>,
    /// For each output, the destination of its buffer.
    pub(crate) targets: SmallVec<[Target; 2]>,
    pub(crate) scalars: SmallVec<[ScalarRef; 4]>,
    /// Nodes that get their values after this kernel has run, including views of its outputs.
    pub(crate) stores: Vec<Store>,
    /// The nodes whose values are the outputs in slots.
    pub(crate) made: SmallVec<[Store; 2]>,
    /// Slots that are read here for the last time.
    pub(crate) last_uses: SmallVec<[u32; 4]>,
    /// Slots that are written here and that no later kernel reads.
    pub(crate) unread: SmallVec<[u32; 2]>,
    /// For each operand that is read at computed indices, the gather node that it implements.
    pub(crate) gathers: SmallVec<[(u16, u32); 1]>,
    /// The node to which a failure is ascribed.
    pub(crate) origin: u32,
    /// Whether there is nothing to compute.
    pub(crate) empty: bool,
}

/// The source of an output's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Output {
    Fresh {
        dtype: DType,
        numel: usize,
    },
    /// The buffer of input number `input`, which is not read afterwards.
    Reused {
        input: u32,
    },
}

/// The destination of an output's buffer.
pub(crate) enum Target {
    /// A slot, for later kernels to read or for several nodes to keep.
    Slot(u32),
    /// The only node that keeps it.
    Node { item: u32, view: View },
}

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
            && item.store
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
        for (&result, output) in draft.results.iter().zip(&draft.kernel.outputs) {
            // Only maps work in place.
            let reusable = matches!(draft.kernel.body, Body::Map(_))
                .then(|| {
                    let (kernel, sources) = (&draft.kernel, &draft.sources);
                    reusable_input(analysis, kernel, sources, &kept, &taken, output.dtype, &ends)
                })
                .flatten();
            outputs.push(match reusable {
                Some(input) => {
                    taken.push(draft.sources[input]);
                    Output::Reused { input: input as u32 }
                }
                None => Output::Fresh { dtype: output.dtype, numel: output.shape.numel() },
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
    Plan { steps, slots: slots as usize, leaves, views }
}

/// An input of a map whose buffer is not read afterwards and fits an output of `dtype`.
fn reusable_input(
    analysis: &Analysis<'_>,
    map: &Kernel,
    sources: &[u32],
    kept: &[bool],
    taken: &[u32],
    dtype: DType,
    ends: &impl Fn(u32) -> bool,
) -> Option<usize> {
    // A bad index may be found while the kernel runs; the buffer must then not have been overwritten.
    if map.operands.iter().any(|operand| operand.indexed.is_some()) {
        return None;
    }
    let plain = |layout: &Layout| layout.is_plain() && *layout.shape() == map.space;
    (0..sources.len()).find(|&k| {
        let source = sources[k];
        let item = &analysis.items[source as usize];
        let free = !kept[source as usize] && (item.value.is_none() || item.dies);
        free && ends(source)
            && !taken.contains(&source)
            && item.node.dtype == dtype
            && item.node.shape.numel() == map.space.numel()
            && sources.iter().zip(&map.operands).all(|(s, operand)| *s != source || plain(&operand.layout))
    })
}
