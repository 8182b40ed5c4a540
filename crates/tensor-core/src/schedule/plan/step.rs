//! [`Plan`]: the result of the planner, which `execute` runs. It refers to items and slots by number, so that
//! it serves every graph of its form.

use std::sync::{Arc, atomic::AtomicBool};

use smallvec::SmallVec;

use crate::{
    elements::dtype::DType,
    graph::node::View,
    kernels::kernel::{Instr, Kernel},
    schedule::kernels::Known,
};

/// Kernels in order, with the sources and destinations of their buffers.
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) slots: usize,
    /// Computed nodes that are read, and the slots of their buffers.
    pub(crate) leaves: Vec<(u32, u32)>,
    /// Stored views of computed nodes, for which no kernel runs.
    pub(crate) views: Vec<Store>,
    /// Whether the backend was given the kernels to prepare.
    pub(crate) prepared: AtomicBool,
}

impl Plan {
    /// Whether it allocates nothing: every output overwrites a buffer that is not read afterwards.
    pub(crate) fn is_in_place(&self) -> bool {
        let outputs = self.steps.iter().filter(|step| !step.empty).flat_map(|step| &step.outputs);
        outputs.into_iter().all(|output| matches!(output, Output::Reused { .. }))
    }

    /// An estimate of its memory in bytes, including the backend's compiled kernels.
    pub(crate) fn bytes(&self) -> usize {
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

/// A scalar of a launch. It is read from its node at each run, so that the plan serves any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScalarRef {
    /// The node's position in the order.
    pub(crate) item: u32,
    /// The selected scalar of the node.
    pub(crate) part: Part,
    /// The dtype to which it is cast.
    pub(crate) dtype: DType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// The value of `full`, or the fill value of `pad`.
    Value,
    /// The first value of `arange`.
    Start,
    /// The step of `arange`.
    Step,
    /// The seed of a random draw.
    Seed,
    /// The offset of a random draw.
    Offset,
    /// A constant of a formula, as the bits of an f64.
    Constant(u64),
}
