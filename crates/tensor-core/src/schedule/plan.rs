//! Decides what fuses: from nodes in topological order to a list of kernels, with buffers reused as soon as they are free.
//!
//! Elementwise nodes of one shape are written into the kernel of whoever reads them; a node is materialised (given a
//! buffer) when it must be stored, when a reader cannot inline it, when it is dear and read by several kernels, or when a
//! kernel would grow past the device's limits. Materialised nodes of one shape share a kernel where their order allows.

use smallvec::SmallVec;

use super::{
    collect::Item,
    program::{Builder, Fused, Part, ScalarRef},
};
use crate::{
    DType, Layout, Limits, Op, Shape, UnaryOp,
    kernel::{
        ArgReduceKernel, Compiled, CopyKernel, GatherKernel, Kernel, MapKernel, MatMulKernel, ReduceKernel,
        Region, ScatterAddKernel,
    },
};

/// Kernels in order, with where their buffers come from and go to.
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) slots: usize,
    /// Computed nodes that are read, and the slots their buffers go in.
    pub(crate) leaves: Vec<(u32, u32)>,
    /// Stored views of computed nodes: nothing to run.
    pub(crate) views: Vec<(u32, u32, Layout)>,
}

pub(crate) struct Step {
    pub(crate) kernel: Kernel,
    pub(crate) compiled: Compiled,
    pub(crate) inputs: SmallVec<[u32; 4]>,
    pub(crate) outputs: SmallVec<[Output; 2]>,
    pub(crate) scalars: SmallVec<[ScalarRef; 4]>,
    /// Nodes that get their value once this kernel ran, views of its outputs among them.
    pub(crate) stores: Vec<(u32, u32, Layout)>,
    /// Every node that an output of this kernel is the value of.
    pub(crate) made: SmallVec<[(u32, u32, Layout); 2]>,
    /// Slots read here for the last time.
    pub(crate) last_uses: SmallVec<[u32; 4]>,
    /// Slots written here that no later kernel reads.
    pub(crate) unread: SmallVec<[u32; 2]>,
    /// The node that a failure is blamed on.
    pub(crate) origin: u32,
    /// Whether there is nothing to compute.
    pub(crate) empty: bool,
}

/// Where an output's buffer comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Output {
    Fresh {
        slot: u32,
        dtype: DType,
        numel: usize,
    },
    /// The buffer of the `input`-th input, which nobody reads afterwards.
    Reused {
        slot: u32,
        input: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Has its value.
    Ready,
    /// One value everywhere: written into kernels as a scalar.
    Constant,
    /// Elementwise: can be inlined.
    Elementwise,
    /// Another view of its input.
    View,
    /// A kernel of its own.
    Opaque,
}

const NONE: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

/// What the planner knows of each item.
pub(crate) struct Facts<'a> {
    pub(crate) items: &'a [Item],
    /// The `full` node that an item repeats, if it does.
    pub(crate) constant: Vec<Option<u32>>,
    class: Vec<Class>,
    /// Whether an elementwise value depends on its flat position (ranges, random numbers): a reduction, which may go through
    /// its elements in another order, reads it from memory.
    positional: Vec<bool>,
    /// Whether the item gets a buffer.
    materialised: Vec<bool>,
    /// The kernel that makes the item's buffer.
    kernel: Vec<u32>,
    /// Where the value of a ready, materialised or view item lies: an item with a buffer, and a layout over it.
    places: Vec<Option<(u32, Layout)>>,
}

impl Facts<'_> {
    /// Whether kernel `kernel` computes the item: as one of its results, or inlined.
    pub(crate) fn computed_in(&self, i: u32, kernel: u32) -> bool {
        let i = i as usize;
        match self.class[i] {
            Class::Elementwise | Class::Constant => !self.materialised[i] || self.kernel[i] == kernel,
            _ => self.materialised[i] && self.class[i] == Class::View && self.kernel[i] == kernel,
        }
    }

    /// Where the value of an item that is not inlined lies.
    pub(crate) fn place(&self, i: u32) -> (u32, Layout) {
        self.places[i as usize].clone().unwrap_or_else(|| {
            // Inlined items have no place and are never asked for one; an empty read is harmless.
            debug_assert!(false, "item {i} has no place");
            (i, Layout::contiguous(self.items[i as usize].node.shape.clone()))
        })
    }

    fn shape(&self, i: u32) -> &Shape {
        &self.items[i as usize].node.shape
    }
}

pub(crate) fn plan(items: &[Item], limits: &Limits) -> Plan {
    let mut facts = classify(items);
    choose_materialised(&mut facts);
    let parts = fit_limits(&mut facts, limits);
    find_places(&mut facts);
    let groups = group(&mut facts, &parts, limits);
    let drafts = write_kernels(&facts, &groups);
    assemble(&facts, drafts)
}

fn classify(items: &[Item]) -> Facts<'_> {
    let n = items.len();
    let mut constant = vec![None; n];
    let mut class = Vec::with_capacity(n);
    let mut positional = vec![false; n];
    for (i, item) in items.iter().enumerate() {
        let op = &item.node.op;
        class.push(if item.value.is_some() {
            Class::Ready
        } else if matches!(op, Op::Full(_)) {
            constant[i] = Some(i as u32);
            Class::Constant
        } else if op.is_view() {
            constant[i] = constant[item.inputs[0] as usize];
            if constant[i].is_some() { Class::Constant } else { Class::View }
        } else if op.is_elementwise() {
            positional[i] = matches!(op, Op::Arange { .. } | Op::Random { .. })
                || item.inputs.iter().any(|&j| positional[j as usize]);
            Class::Elementwise
        } else {
            Class::Opaque
        });
    }
    Facts {
        items,
        constant,
        class,
        positional,
        materialised: vec![false; n],
        kernel: vec![NONE; n],
        places: vec![None; n],
    }
}

/// How dear an operation is to compute twice, in units of an addition.
fn cost(op: &Op) -> u32 {
    match op {
        Op::Unary(
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Not | UnaryOp::Sqrt | UnaryOp::Reciprocal,
        ) => 1,
        Op::Unary(_) => 4,
        Op::Random { .. } => 16,
        Op::Binary(crate::BinaryOp::Pow | crate::BinaryOp::Atan2 | crate::BinaryOp::Remainder) => 6,
        Op::Powi(_) => 2,
        _ => 1,
    }
}

/// An expression this dear is stored rather than computed again in a second kernel that passes over the same elements.
const DEAR: u32 = 4;
/// The same for readers that are all elementwise over one shape, which mostly end up in one kernel.
const VERY_DEAR: u32 = 24;

fn choose_materialised(facts: &mut Facts<'_>) {
    let n = facts.items.len();
    let mut price = vec![0u32; n];
    for (i, item) in facts.items.iter().enumerate() {
        if facts.class[i] == Class::Elementwise {
            let inlined = item
                .inputs
                .iter()
                .filter(|&&j| facts.class[j as usize] == Class::Elementwise)
                .fold(0u32, |sum, &j| sum.saturating_add(price[j as usize]));
            price[i] = inlined.saturating_add(cost(&item.node.op));
        }
    }
    // For each item, the kernel that reads it, named by the item that roots it; and whether such a kernel passes over
    // something other than the item's own elements, so that it will never be merged with the rest.
    let mut reader = vec![NONE; n];
    let mut beyond = vec![false; n];
    for i in (0..n).rev() {
        let item = &facts.items[i];
        let op = &item.node.op;
        match facts.class[i] {
            Class::Ready => continue,
            Class::Opaque => facts.materialised[i] = true,
            Class::View => {}
            Class::Constant => facts.materialised[i] |= item.store,
            Class::Elementwise => {
                let dear = if beyond[i] { DEAR } else { VERY_DEAR };
                facts.materialised[i] |= item.store || (reader[i] == SEVERAL && price[i] > dear);
            }
        }
        let inlined = facts.class[i] == Class::Elementwise && !facts.materialised[i];
        let root = if inlined { reader[i] } else { i as u32 };
        for &j in &item.inputs {
            let j = j as usize;
            let takes_expressions = match facts.class[i] {
                Class::Elementwise => facts.items[j].node.shape == item.node.shape,
                _ => matches!(op, Op::Reduce { .. }) && !facts.positional[j],
            };
            match facts.class[j] {
                Class::Elementwise => facts.materialised[j] |= !takes_expressions,
                Class::Constant => {
                    facts.materialised[j] |= facts.class[i] == Class::Opaque && !takes_expressions;
                }
                _ => {}
            }
            reader[j] = if reader[j] == NONE || reader[j] == root { root } else { SEVERAL };
            beyond[j] |= facts.class[i] != Class::Elementwise || (inlined && beyond[i]);
        }
    }
}

/// What an inlined expression consists of: its operations, and the items it loads. Sorted, without repeats.
#[derive(Clone, Default)]
struct Parts {
    members: SmallVec<[u32; 8]>,
    loads: SmallVec<[u32; 8]>,
}

impl Parts {
    fn add(set: &mut SmallVec<[u32; 8]>, other: &[u32]) {
        for &x in other {
            if let Err(at) = set.binary_search(&x) {
                set.insert(at, x);
            }
        }
    }

    fn size(&self) -> usize {
        // Two for an arange or random draw's scalars would be exact; they are rare.
        self.members.len() + self.loads.len()
    }

    fn fits(&self, limits: &Limits) -> bool {
        self.size() <= limits.max_instrs && self.loads.len() <= limits.max_inputs
    }
}

/// Materialises inputs of expressions that would pass the device's limits.
fn fit_limits(facts: &mut Facts<'_>, limits: &Limits) -> Vec<Parts> {
    let mut parts: Vec<Parts> = vec![Parts::default(); facts.items.len()];
    for i in 0..facts.items.len() {
        if facts.class[i] != Class::Elementwise {
            continue;
        }
        loop {
            let mut mine = Parts::default();
            mine.members.push(i as u32);
            for &j in &facts.items[i].inputs {
                match (facts.class[j as usize], facts.materialised[j as usize]) {
                    (Class::Constant, _) => Parts::add(&mut mine.members, &[j]),
                    (Class::Elementwise, false) => {
                        let inlined = &parts[j as usize];
                        Parts::add(&mut mine.members, &inlined.members);
                        Parts::add(&mut mine.loads, &inlined.loads);
                    }
                    _ => Parts::add(&mut mine.loads, &[j]),
                }
            }
            if mine.fits(limits) {
                parts[i] = mine;
                break;
            }
            let largest = facts.items[i]
                .inputs
                .iter()
                .copied()
                .filter(|&j| facts.class[j as usize] == Class::Elementwise && !facts.materialised[j as usize])
                .max_by_key(|&j| parts[j as usize].size());
            match largest {
                Some(j) => facts.materialised[j as usize] = true,
                // Three loads and an operation: every backend takes that much.
                None => {
                    parts[i] = mine;
                    break;
                }
            }
        }
    }
    parts
}

/// Layouts of everything that lies in memory. A reshape that strides cannot express becomes a copy.
fn find_places(facts: &mut Facts<'_>) {
    for i in 0..facts.items.len() {
        let item = &facts.items[i];
        let own = |shape: &Shape| Some((i as u32, Layout::contiguous(shape.clone())));
        facts.places[i] = match facts.class[i] {
            Class::Ready => item.value.as_ref().map(|v| (i as u32, v.layout.clone())),
            Class::Opaque => own(&item.node.shape),
            Class::Constant | Class::Elementwise if facts.materialised[i] => own(&item.node.shape),
            Class::Constant | Class::Elementwise => None,
            Class::View => {
                let Some((source, base)) = facts.places[item.inputs[0] as usize].clone() else { continue };
                match view(&item.node.op, &base, &item.node.shape) {
                    Some(layout) => Some((source, layout)),
                    None => {
                        facts.materialised[i] = true;
                        own(&item.node.shape)
                    }
                }
            }
        };
    }
}

/// The layout of a view operation over `base`, where strides can express it.
fn view(op: &Op, base: &Layout, shape: &Shape) -> Option<Layout> {
    match op {
        Op::Permute(axes) => Some(base.permute(axes)),
        Op::Expand => Some(base.expand(shape)),
        Op::Slice { axis, start, step } => Some(base.slice(*axis, *start, shape[*axis], *step)),
        _ => base.reshape(shape),
    }
}

/// A kernel to be: a fused map with several results, or one other item.
struct Group {
    shape: Shape,
    roots: SmallVec<[u32; 4]>,
    /// Of fused maps; `None` for anything else.
    parts: Option<Parts>,
}

fn group(facts: &mut Facts<'_>, parts: &[Parts], limits: &Limits) -> Vec<Group> {
    // How far back to look for a kernel to join: enough for the updates of a model's parameters.
    const WINDOW: usize = 64;
    let mut groups: Vec<Group> = Vec::new();
    for i in 0..facts.items.len() as u32 {
        let at = i as usize;
        if !facts.materialised[at] {
            continue;
        }
        let fused = facts.class[at] != Class::Opaque;
        if !fused {
            facts.kernel[at] = groups.len() as u32;
            groups.push(Group {
                shape: facts.shape(i).clone(),
                roots: SmallVec::from_elem(i, 1),
                parts: None,
            });
            continue;
        }
        // A copy runs over the shape it reads; all else over its own.
        let copy = facts.class[at] == Class::View;
        let mut mine = if copy {
            Parts { members: SmallVec::new(), loads: SmallVec::from_elem(facts.items[at].inputs[0], 1) }
        } else {
            parts[at].clone()
        };
        if mine.members.is_empty() {
            mine.members.push(i);
        }
        let shape =
            if copy { facts.shape(facts.items[at].inputs[0]).clone() } else { facts.shape(i).clone() };
        let mut earliest = 0u32;
        for &j in &mine.loads {
            let Some((source, _)) = facts.places[j as usize] else { continue };
            let made_in = facts.kernel[source as usize];
            if made_in != NONE {
                // A fused result of the same shape can be read from its register, in the same kernel.
                let direct =
                    source == j && facts.class[j as usize] == Class::Elementwise && *facts.shape(j) == shape;
                earliest = earliest.max(if direct { made_in } else { made_in + 1 });
            }
        }
        let first = (earliest as usize).max(groups.len().saturating_sub(WINDOW));
        let joined = (first..groups.len()).find(|&g| {
            let Some(theirs) = &groups[g].parts else { return false };
            if groups[g].shape != shape || groups[g].roots.len() >= limits.max_outputs {
                return false;
            }
            let mut both = theirs.clone();
            Parts::add(&mut both.members, &mine.members);
            Parts::add(&mut both.loads, &mine.loads);
            both.loads.retain(|j| !groups[g].roots.contains(j) || facts.class[*j as usize] == Class::View);
            both.fits(limits)
        });
        let g = joined.unwrap_or_else(|| {
            groups.push(Group { shape, roots: SmallVec::new(), parts: Some(Parts::default()) });
            groups.len() - 1
        });
        let group = &mut groups[g];
        if let Some(theirs) = &mut group.parts {
            Parts::add(&mut theirs.members, &mine.members);
            Parts::add(&mut theirs.loads, &mine.loads);
            let roots = &group.roots;
            theirs.loads.retain(|j| !roots.contains(j) || facts.class[*j as usize] == Class::View);
        }
        group.roots.push(i);
        facts.kernel[at] = g as u32;
    }
    groups
}

/// A kernel with its inputs and outputs named by items.
struct Draft {
    kernel: Kernel,
    sources: SmallVec<[u32; 4]>,
    scalars: SmallVec<[ScalarRef; 4]>,
    /// The items whose values the outputs are.
    results: SmallVec<[u32; 2]>,
    origin: u32,
}

fn write_kernels(facts: &Facts<'_>, groups: &[Group]) -> Vec<Draft> {
    // What some kernel other than its own reads, or a node keeps, must be written to memory.
    let mut needed = vec![false; facts.items.len()];
    for (i, item) in facts.items.iter().enumerate() {
        if item.store
            && let Some((source, _)) = &facts.places[i]
        {
            needed[*source as usize] = true;
        }
    }
    let mut drafts: Vec<Draft> = Vec::with_capacity(groups.len());
    let mut builders = Vec::new();
    for (g, group) in groups.iter().enumerate() {
        let builder = group.parts.as_ref().map(|_| {
            let mut builder = Builder::new(facts, g as u32, group.shape.clone());
            let regs: Vec<_> = group.roots.iter().map(|&i| builder.value(i)).collect();
            for &source in &builder.sources {
                needed[source as usize] = true;
            }
            (builder, regs)
        });
        let draft = if builder.is_none() { Some(opaque(facts, g as u32, group.roots[0])) } else { None };
        if let Some(draft) = &draft {
            for &source in &draft.sources {
                needed[source as usize] = true;
            }
        }
        builders.push((builder, draft));
    }
    for (group, (builder, draft)) in groups.iter().zip(builders) {
        if let Some(draft) = draft {
            drafts.push(draft);
        } else if let Some((builder, regs)) = builder {
            let kept = || group.roots.iter().zip(&regs).filter(|(i, _)| needed[**i as usize]);
            let results: SmallVec<[u32; 2]> = kept().map(|(&i, _)| i).collect();
            let outputs = kept().map(|(_, &reg)| reg).collect();
            let Fused { program, sources, layouts, scalars } = builder.finish(outputs);
            drafts.push(Draft {
                kernel: Kernel::Map(MapKernel { shape: group.shape.clone(), inputs: layouts, program }),
                sources,
                scalars,
                origin: results.first().copied().unwrap_or(group.roots[0]),
                results,
            });
        }
    }
    drafts
}

/// The kernel of an item that is no map.
fn opaque(facts: &Facts<'_>, g: u32, i: u32) -> Draft {
    let item = &facts.items[i as usize];
    let dtype = item.node.dtype;
    let input = |k: usize| facts.place(item.inputs[k]);
    let input_dtype = |k: usize| facts.items[item.inputs[k] as usize].node.dtype;
    let mut sources: SmallVec<[u32; 4]> = SmallVec::new();
    let mut scalars: SmallVec<[ScalarRef; 4]> = SmallVec::new();
    let mut read = |k: usize| {
        let (source, layout) = input(k);
        sources.push(source);
        layout
    };
    let kernel = match &item.node.op {
        Op::Reduce { op, axes, .. } => {
            let shape = facts.shape(item.inputs[0]).clone();
            let mut builder = Builder::new(facts, g, shape.clone());
            let reg = builder.value(item.inputs[0]);
            let fused = builder.finish(vec![reg]);
            sources = fused.sources;
            scalars = fused.scalars;
            let (inputs, program) = (fused.layouts, fused.program);
            Kernel::Reduce(ReduceKernel { op: *op, shape, axes: axes.clone(), inputs, program })
        }
        Op::ArgReduce { op, axis, .. } => {
            Kernel::ArgReduce(ArgReduceKernel { op: *op, axis: *axis, dtype: input_dtype(0), input: read(0) })
        }
        Op::MatMul => {
            let rank = item.node.shape.rank();
            let batch: Shape = item.node.shape[..rank - 2].iter().copied().collect();
            let (m, n) = (item.node.shape[rank - 2], item.node.shape[rank - 1]);
            let (lhs, rhs) = (read(0), read(1));
            let k = lhs.shape()[lhs.shape().rank() - 1];
            let wide = |layout: Layout, rows: usize, columns: usize| {
                layout.expand(&batch.iter().copied().chain([rows, columns]).collect())
            };
            Kernel::MatMul(MatMulKernel { lhs: wide(lhs, m, k), rhs: wide(rhs, k, n), batch, m, n, k, dtype })
        }
        Op::Gather { axis } => Kernel::Gather(GatherKernel {
            axis: *axis,
            dtype,
            index_dtype: input_dtype(1),
            input: read(0),
            index: read(1),
        }),
        Op::ScatterAdd { axis } => Kernel::ScatterAdd(ScatterAddKernel {
            axis: *axis,
            dtype,
            index_dtype: input_dtype(1),
            base: read(0),
            index: read(1),
            src: read(2),
        }),
        Op::Pad { before, interior, .. } => {
            scalars.push(ScalarRef { item: i, part: Part::Value, dtype });
            let src = read(0);
            let mut dst = Layout::contiguous(item.node.shape.clone());
            for (axis, &size) in src.shape().iter().enumerate() {
                dst = dst.slice(axis, before[axis], size, interior[axis] as isize + 1);
            }
            let fill = item.node.shape.numel() != src.numel();
            Kernel::Copy(CopyKernel {
                shape: item.node.shape.clone(),
                dtype,
                fill,
                regions: SmallVec::from_iter([Region { dst, src }]),
            })
        }
        // What is left is concatenation.
        op => {
            let axis = if let Op::Concat { axis } = op { *axis } else { 0 };
            let whole = Layout::contiguous(item.node.shape.clone());
            let mut start = 0;
            let mut regions = SmallVec::new();
            for k in 0..item.inputs.len() {
                let size = facts.shape(item.inputs[k]).get(axis).copied().unwrap_or(0);
                if facts.shape(item.inputs[k]).numel() > 0 {
                    regions.push(Region { dst: whole.slice(axis, start, size, 1), src: read(k) });
                }
                start += size;
            }
            Kernel::Copy(CopyKernel { shape: item.node.shape.clone(), dtype, fill: false, regions })
        }
    };
    Draft { kernel, sources, scalars, results: SmallVec::from_elem(i, 1), origin: i }
}

/// Slots, lifetimes, and reuse of buffers in place.
fn assemble(facts: &Facts<'_>, drafts: Vec<Draft>) -> Plan {
    let n = facts.items.len();
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
    for (i, item) in facts.items.iter().enumerate() {
        if item.value.is_none()
            && item.store
            && let Some((source, _)) = &facts.places[i]
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
            .map(move |&i| (i, slot, facts.place(i).1))
            .collect::<Vec<_>>()
    };
    let views = leaves.iter().flat_map(|&(item, slot)| stores_of(item, slot)).collect();
    let mut steps = Vec::with_capacity(drafts.len());
    for (g, draft) in drafts.into_iter().enumerate() {
        let g = g as u32;
        let ends = |source: u32| last_read[source as usize] == g;
        let inputs: SmallVec<[u32; 4]> = draft.sources.iter().map(|&s| slot_of[s as usize]).collect();
        let mut taken: SmallVec<[u32; 2]> = SmallVec::new();
        let mut outputs = SmallVec::new();
        let mut stores = Vec::new();
        let mut made = SmallVec::new();
        let mut unread = SmallVec::new();
        let specs = draft.kernel.outputs();
        for (&result, (shape, dtype)) in draft.results.iter().zip(&specs) {
            let slot = slots;
            slots += 1;
            slot_of[result as usize] = slot;
            let reusable = match &draft.kernel {
                Kernel::Map(map) => reusable_input(facts, map, &draft.sources, &kept, &taken, *dtype, &ends),
                _ => None,
            };
            outputs.push(match reusable {
                Some(input) => {
                    taken.push(draft.sources[input]);
                    Output::Reused { slot, input: input as u32 }
                }
                None => Output::Fresh { slot, dtype: *dtype, numel: shape.numel() },
            });
            made.push((result, slot, Layout::contiguous(facts.shape(result).clone())));
            stores.extend(stores_of(result, slot));
            if last_read[result as usize] == NONE {
                unread.push(slot);
            }
        }
        let mut last_uses: SmallVec<[u32; 4]> =
            draft.sources.iter().filter(|&&s| ends(s)).map(|&s| slot_of[s as usize]).collect();
        last_uses.sort_unstable();
        last_uses.dedup();
        steps.push(Step {
            empty: specs.iter().all(|(shape, _)| shape.numel() == 0),
            kernel: draft.kernel,
            compiled: Compiled::default(),
            inputs,
            outputs,
            scalars: draft.scalars,
            stores,
            made,
            last_uses,
            unread,
            origin: draft.origin,
        });
    }
    Plan { steps, slots: slots as usize, leaves, views }
}

/// An input of a map that nobody reads afterwards and whose buffer fits an output of `dtype`.
fn reusable_input(
    facts: &Facts<'_>,
    map: &MapKernel,
    sources: &[u32],
    kept: &[bool],
    taken: &[u32],
    dtype: DType,
    ends: &impl Fn(u32) -> bool,
) -> Option<usize> {
    let plain = Layout::contiguous(map.shape.clone());
    (0..sources.len()).find(|&k| {
        let source = sources[k];
        let item = &facts.items[source as usize];
        let free = !kept[source as usize] && (item.value.is_none() || item.dies);
        free && ends(source)
            && !taken.contains(&source)
            && item.node.dtype == dtype
            && item.node.shape.numel() == map.shape.numel()
            && sources.iter().zip(&map.inputs).all(|(s, layout)| *s != source || *layout == plain)
    })
}
