//! Decides what is fused: from nodes in topological order to a list of kernels, with buffers reused as
//! soon as they are free.
//!
//! Elementwise nodes are inlined into the kernels of their readers if these have the same shape. A node
//! is materialised (given a buffer) if it must be stored, if a reader cannot inline it, if it is
//! expensive and several kernels read it, or if a kernel would exceed the device's limits. Materialised
//! nodes of one shape share a kernel if their order allows it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    assemble::{Plan, assemble},
    collect::Item,
    draft::write_kernels,
    epilogue,
    execute::blame,
    gather::{self, GATHER_COST, Gathered},
    kernels::Kernels,
};
use crate::{
    base::{error::Result, shape::Shape},
    devices::backend::Limits,
    elements::dtype::DType,
    graph::{node::View, op::Op},
    kernels::{
        blocks::{self, BlockFormat},
        custom,
        kernel::{POWI_COST, RANDOM_COST},
        layout::Layout,
    },
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// A node that has its value.
    Ready,
    /// One value everywhere, which kernels take as a scalar.
    Constant,
    /// An elementwise node, which can be inlined.
    Elementwise,
    /// A view of its input.
    View,
    /// A gather that is fused into its readers, as loads at indices.
    Gathered,
    /// A node with one or more kernels of its own.
    Opaque,
    /// A result of a tuple, with a buffer that the tuple's kernel writes.
    Element,
    /// A concatenation that is read only by another one, whose kernel copies its parts directly.
    Part,
}

pub(super) const NONE: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

/// The planner's information about each item.
pub(crate) struct Analysis<'a> {
    pub(crate) items: &'a [Item],
    /// Whether any item takes several instructions: a formula, or a half type, which is computed in f32
    /// and rounded.
    has_several: bool,
    /// The `full` node that an item broadcasts, if there is one.
    pub(crate) constant: Vec<Option<u32>>,
    class: Vec<Class>,
    /// Whether an elementwise value depends on its flat position (ranges, random numbers): a reduction
    /// reads it from memory, because it may iterate in another order.
    positional: Vec<bool>,
    /// Whether the item gets a buffer.
    materialised: Vec<bool>,
    /// Whether a constant is materialised as a single element that its readers broadcast: the `full`
    /// node's buffer, which has only that element unless other readers need all.
    single: Vec<bool>,
    /// The kernel that writes the item's buffer.
    pub(super) kernel: Vec<u32>,
    /// The place of the value of a ready, materialised or view item: an item with a buffer, and a layout
    /// over it.
    pub(super) places: Vec<Option<(u32, Layout)>>,
    /// For each item, the fused gather that it is or is a view of.
    gather_of: Vec<u32>,
    /// The access to such an item.
    pub(super) gathered: Vec<Option<Gathered>>,
}

impl Analysis<'_> {
    /// Whether kernel `kernel` computes the item, as one of its results or inlined.
    pub(crate) fn computed_in(&self, i: u32, kernel: u32) -> bool {
        let i = i as usize;
        match self.class[i] {
            Class::Elementwise | Class::Constant => !self.materialised[i] || self.kernel[i] == kernel,
            Class::Ready | Class::View | Class::Gathered | Class::Opaque | Class::Element | Class::Part => {
                self.materialised[i] && self.kernel[i] == kernel
            }
        }
    }

    /// The result of kernel `kernel` that the item is a view of, if there is one. Inside a row kernel
    /// such a view is the value itself.
    pub(crate) fn viewed_in(&self, i: u32, kernel: u32) -> Option<u32> {
        let (source, _) = self.places[i as usize].as_ref()?;
        (*source != i && self.kernel[*source as usize] == kernel).then_some(*source)
    }

    /// The kernel that writes the item's buffer, or the first kernel of a tuple.
    pub(super) fn kernel_of(&self, i: u32) -> Option<u32> {
        Some(self.kernel[i as usize]).filter(|&kernel| kernel != NONE)
    }

    /// Whether another concatenation copies this one's parts.
    pub(super) fn is_part(&self, i: u32) -> bool {
        self.class[i as usize] == Class::Part
    }

    pub(super) fn is_reduction(&self, i: u32) -> bool {
        matches!(self.items[i as usize].node.op, Op::Reduce { .. }) && self.class[i as usize] == Class::Opaque
    }

    /// Whether two gathers of one shape may read their table as one input.
    fn share_a_table(&self, a: u32, b: u32) -> bool {
        let [of_a, of_b] = [a, b].map(|i| &self.items[i as usize]);
        let axis = |item: &Item| if let Op::Gather { axis, .. } = item.node.op { Some(axis) } else { None };
        of_a.inputs[0] == of_b.inputs[0]
            && of_a.node.shape == of_b.node.shape
            && axis(of_a) == axis(of_b)
            && self.are_of_one_line(a, b)
    }

    /// Whether two gathers have the same errors: both are of one source line, and an out-of-range index
    /// has the ordinary error.
    pub(super) fn are_of_one_line(&self, a: u32, b: u32) -> bool {
        let [a, b] = [a, b].map(|i| &self.items[i as usize].node);
        let is_plain = |op: &Op| matches!(op, Op::Gather { refusal: None, .. });
        std::ptr::eq(a, b) || a.location == b.location && is_plain(&a.op) && is_plain(&b.op)
    }

    /// Whether readers compute the item themselves.
    fn inlines(&self, i: u32) -> bool {
        self.class[i as usize] == Class::Elementwise && !self.materialised[i as usize]
    }

    /// The buffers that reading an item's value needs, if it is not inlined.
    pub(super) fn sources(&self, i: u32) -> SmallVec<[u32; 2]> {
        match (&self.places[i as usize], &self.gathered[i as usize]) {
            (Some((source, _)), _) => SmallVec::from_slice(&[*source]),
            (None, Some(gathered)) => gathered.sources(),
            (None, None) => SmallVec::new(),
        }
    }

    /// The place of an item that is not inlined.
    pub(crate) fn place(&self, i: u32) -> (u32, Layout) {
        self.places[i as usize].clone().unwrap_or_else(|| {
            // Inlined items have no place and are never asked for one; an empty read is harmless.
            debug_assert!(false, "item {i} has no place");
            (i, Layout::contiguous(self.items[i as usize].node.shape.clone()))
        })
    }

    /// The layout of an item's value in its buffer.
    pub(super) fn view(&self, i: u32) -> View {
        let (_, layout) = self.places[i as usize].as_ref()?;
        (!layout.is_plain()).then(|| Arc::new(layout.clone()))
    }

    /// Whether a result of a row kernel over `space` is one value per row. (A copy has the space's
    /// elements under another shape.)
    pub(super) fn is_per_row_in(&self, i: u32, space: &Shape) -> bool {
        self.is_reduction(i) || (self.class[i as usize] == Class::Elementwise && self.shape(i) != space)
    }

    /// The block format of an item's buffer, if it has one.
    pub(super) fn format(&self, source: u32) -> Option<&Arc<dyn BlockFormat>> {
        self.items[source as usize].value.as_ref()?.format.as_ref()
    }

    /// The block format of the buffer that an item is a view of, if it has one.
    fn format_read(&self, i: u32) -> Option<&Arc<dyn BlockFormat>> {
        self.places[i as usize].as_ref().and_then(|(source, _)| self.format(*source))
    }

    /// The dtype of a contraction's factors.
    pub(super) fn factors_dtype(&self, i: u32) -> DType {
        self.items[self.items[i as usize].inputs[0] as usize].node.dtype
    }

    pub(super) fn shape(&self, i: u32) -> &Shape {
        &self.items[i as usize].node.shape
    }
}

/// The plan for the pending items. Its kernels are shared through `kernels`.
pub(super) fn plan(items: &[Item], limits: &Limits, kernels: &mut Kernels) -> Result<Plan> {
    let mut analysis = classify(items);
    choose_materialised(&mut analysis, limits);
    let parts = fit_limits(&mut analysis, limits);
    find_places(&mut analysis);
    refuse_blocks(&analysis)?;
    let groups = group(&mut analysis, &parts, limits);
    let epilogues = epilogue::find(&analysis, &groups, &parts, limits);
    let drafts = write_kernels(&analysis, &groups, &epilogues)?;
    Ok(assemble(&analysis, drafts, kernels))
}

fn classify(items: &[Item]) -> Analysis<'_> {
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
        single: vec![false; n],
        kernel: vec![NONE; n],
        places: vec![None; n],
        gather_of: vec![NONE; n],
        gathered: vec![None; n],
    }
}

/// An upper bound of the number of instructions of an elementwise item, without its operands.
fn instrs(item: &Item) -> usize {
    // Two operands cast to a wider type, and the result cast back.
    let around = if item.node.dtype.is_narrow() { 3 } else { 0 };
    let own = if let Op::Formula(formula) = &item.node.op { formula.instrs() } else { 1 };
    own + around
}

/// The relative cost of computing an elementwise operation again, in additions.
fn cost(op: &Op) -> u32 {
    match op {
        Op::Unary(op) => op.cost(),
        Op::Binary(op) => op.cost(),
        Op::Random { .. } => RANDOM_COST,
        Op::Powi(_) => POWI_COST,
        Op::Formula(formula) => formula.instrs() as u32,
        Op::Arange(_) | Op::Compare(_) | Op::Where | Op::Cast => 1,
        // These are not elementwise and are never inlined.
        Op::Leaf
        | Op::Full(_)
        | Op::Reshape
        | Op::Permute(_)
        | Op::Expand
        | Op::Slice { .. }
        | Op::Unfold { .. }
        | Op::Concat { .. }
        | Op::Pad(_)
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::Cumulative { .. }
        | Op::Sort { .. }
        | Op::Contract(_)
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::Contiguous
        | Op::ToDevice
        | Op::Custom(_)
        | Op::CustomKernel(_)
        | Op::TupleElement { .. } => 0,
    }
}

/// The cost in additions above which an expression is stored rather than computed again in a second
/// kernel over the same elements.
const RECOMPUTE_LIMIT: u32 = 5;
/// The same bound if all readers are elementwise over one shape, and will mostly be in one kernel.
const RECOMPUTE_LIMIT_IN_MAPS: u32 = 30;

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

/// The cost of computing each elementwise item or gather again, including its inlined inputs.
fn costs(analysis: &Analysis<'_>, limits: &Limits) -> Vec<u32> {
    let items = analysis.items;
    let mut costs = vec![0u32; items.len()];
    for (i, item) in items.iter().enumerate() {
        let own = match analysis.class[i] {
            Class::Elementwise => cost(&item.node.op),
            Class::Opaque if !item.store && gather::may_be_read(items, i, limits.max_indexed_bytes) => {
                GATHER_COST
            }
            Class::Ready
            | Class::Constant
            | Class::View
            | Class::Gathered
            | Class::Opaque
            | Class::Element
            | Class::Part => continue,
        };
        // An input of another shape is read from memory or is one value per row; one that is not an
        // expression costs nothing.
        let inlined = item
            .inputs
            .iter()
            .filter(|&&j| items[j as usize].node.shape == item.node.shape)
            .fold(0u32, |sum, &j| sum.saturating_add(costs[j as usize]));
        costs[i] = inlined.saturating_add(own);
    }
    costs
}

fn choose_materialised(analysis: &mut Analysis<'_>, limits: &Limits) {
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
            Class::Opaque if nested[i] <= NESTED && is_part(analysis, i, reader[i]) => {
                analysis.class[i] = Class::Part;
            }
            Class::Opaque if has_gathers && is_gathered(analysis, i, &uses[i], costs[i], limits) => {
                analysis.class[i] = Class::Gathered;
            }
            Class::Opaque | Class::Element => analysis.materialised[i] = true,
            Class::Part | Class::Gathered | Class::View => {}
            Class::Constant => {
                analysis.materialised[i] |= item.store;
                analysis.single[i] &= !item.store;
            }
            Class::Elementwise => {
                let limit = if beyond[i] { RECOMPUTE_LIMIT } else { RECOMPUTE_LIMIT_IN_MAPS };
                analysis.materialised[i] |= item.store || (reader[i] == SEVERAL && costs[i] > limit);
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
            let takes_expressions = match analysis.class[i] {
                Class::Elementwise => same_shape,
                // An index is inlined if it is read in the gather's own order.
                Class::Gathered => k == 1 && same_shape && !uses[i].viewed && !analysis.positional[j],
                Class::Ready
                | Class::Constant
                | Class::View
                | Class::Opaque
                | Class::Element
                | Class::Part => matches!(op, Op::Reduce { .. }) && !analysis.positional[j],
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
                used.in_memory |= match analysis.class[i] {
                    Class::Elementwise => false,
                    Class::View => item.store || uses_of_reader.in_memory,
                    Class::Gathered => !takes_expressions || analysis.class[j] == Class::View,
                    Class::Ready | Class::Constant | Class::Opaque | Class::Element | Class::Part => {
                        !takes_expressions
                    }
                };
            }
            match analysis.class[j] {
                Class::Elementwise => analysis.materialised[j] |= !takes_expressions,
                Class::Constant
                    if (is_part || matches!(analysis.class[i], Class::Opaque | Class::Gathered))
                        && !takes_expressions =>
                {
                    // Operations that copy or select elements can read one element repeatedly; other
                    // kernels need all elements in memory.
                    let copied = matches!(op, Op::Concat { .. } | Op::Scatter { .. } | Op::Gather { .. });
                    analysis.single[j] = copied && (analysis.single[j] || !analysis.materialised[j]);
                    analysis.materialised[j] = true;
                }
                Class::Ready
                | Class::Constant
                | Class::View
                | Class::Gathered
                | Class::Opaque
                | Class::Element
                | Class::Part => {}
            }
            nested[j] = nested[j].max(if is_part { nested[i] + 1 } else { 1 });
            reader[j] = if reader[j] == NONE || reader[j] == root { root } else { SEVERAL };
            beyond[j] |= match analysis.class[i] {
                Class::Elementwise => inlined && beyond[i],
                Class::Gathered => uses[i].beyond,
                Class::Ready
                | Class::Constant
                | Class::View
                | Class::Opaque
                | Class::Element
                | Class::Part => true,
            };
        }
    }
    if has_gathers {
        analysis.gather_of = gather::bases(items, |i| analysis.class[i] == Class::Gathered);
    }
    // All broadcasts of one number share its buffer.
    for i in (0..n).filter(|&i| analysis.single[i]).collect::<SmallVec<[usize; 8]>>() {
        if let Some(full) = analysis.constant[i].map(|full| full as usize).filter(|&full| full != i) {
            analysis.materialised[i] = false;
            analysis.single[full] |= !analysis.materialised[full];
            analysis.materialised[full] = true;
        }
    }
}

/// Whether item `i`, with these readers and this cost of computing it again, is a [`Class::Gathered`].
fn is_gathered(analysis: &Analysis<'_>, i: usize, uses: &Uses, cost: u32, limits: &Limits) -> bool {
    let limit = if uses.beyond { RECOMPUTE_LIMIT } else { RECOMPUTE_LIMIT_IN_MAPS };
    // An index that is read through a view is in memory.
    let cost = if uses.viewed { GATHER_COST } else { cost };
    let again = uses.reader == SEVERAL && cost > limit;
    let pays = limits.gathers_in_maps || uses.beyond || cost > GATHER_COST;
    gather::may_be_read(analysis.items, i, limits.max_indexed_bytes)
        && !analysis.items[i].store
        && uses.reader != NONE
        && !uses.in_memory
        && !again
        && pays
        // With a constant index, a copy of the selected elements is cheaper.
        && analysis.class[analysis.items[i].inputs[1] as usize] != Class::Constant
}

/// The maximum nesting of concatenations that are copied as one: one built up step by step may be of any
/// depth.
const NESTED: u8 = 4;

/// Whether item `i`, all of whose readers are in the kernel of `reader`, is a [`Class::Part`].
fn is_part(analysis: &Analysis<'_>, i: usize, reader: u32) -> bool {
    let is_concat = |i: usize| {
        matches!(analysis.items[i].node.op, Op::Concat { .. }) && analysis.class[i] == Class::Opaque
    };
    is_concat(i)
        && !analysis.items[i].store
        && reader != NONE
        && reader != SEVERAL
        && is_concat(reader as usize)
}

/// The contents of an inlined expression: its operations, and the items it loads. Both are sorted,
/// without duplicates.
#[derive(Clone, Default)]
pub(super) struct Parts {
    members: SmallVec<[u32; 8]>,
    pub(super) loads: SmallVec<[u32; 8]>,
}

impl Parts {
    /// Adds the contents of another root; results of the kernel itself are not loaded.
    fn join(&mut self, other: &Parts, roots: &[u32], analysis: &Analysis<'_>) {
        Parts::add(&mut self.members, &other.members);
        Parts::add(&mut self.loads, &other.loads);
        self.loads.retain(|j| !roots.contains(j) || analysis.class[*j as usize] == Class::View);
    }

    fn add(set: &mut SmallVec<[u32; 8]>, other: &[u32]) {
        for &x in other {
            if let Err(at) = set.binary_search(&x) {
                set.insert(at, x);
            }
        }
    }

    /// The number of instructions.
    pub(super) fn size(&self, analysis: &Analysis<'_>) -> usize {
        // A range or random draw takes two more for its scalars; they are too rare to count.
        let gathered = self.loads.iter().filter(|&&j| analysis.gather_of[j as usize] != NONE).count();
        let plain = self.members.len() + self.loads.len() + gathered;
        if !analysis.has_several {
            return plain;
        }
        self.loads.len()
            + gathered
            + self.members.iter().map(|&i| instrs(&analysis.items[i as usize])).sum::<usize>()
    }

    /// Whether a value in it depends on its flat position: such an expression has other values over
    /// another space.
    pub(super) fn is_positional(&self, analysis: &Analysis<'_>) -> bool {
        self.members.iter().any(|&i| analysis.items[i as usize].node.op.is_positional())
    }

    /// Whether it contains a fused gather.
    pub(super) fn has_gathers(&self, analysis: &Analysis<'_>) -> bool {
        self.loads.iter().any(|&j| analysis.gather_of[j as usize] != NONE)
    }

    /// An upper bound of the number of inputs. A fused gather counts its table, which gathers of one
    /// line share, and its index unless that is another input already.
    fn inputs(&self, analysis: &Analysis<'_>) -> usize {
        // Gathers and items, each with the view through which it is read.
        let mut tables: SmallVec<[(u32, u32); 8]> = SmallVec::new();
        let mut indices: SmallVec<[(u32, u32); 8]> = SmallVec::new();
        let mut plain = 0;
        for &j in &self.loads {
            let gather = analysis.gather_of[j as usize];
            if gather == NONE {
                plain += 1;
                continue;
            }
            // Each view has a layout of its own.
            let view = if j == gather { NONE } else { j };
            let is_known =
                tables.iter().any(|&(other, of)| view == of && analysis.share_a_table(other, gather));
            tables.extend((!is_known).then_some((gather, view)));
            let index = (analysis.items[gather as usize].inputs[1], view);
            let is_new = !analysis.inlines(index.0) && !indices.contains(&index);
            indices.extend(is_new.then_some(index));
        }
        plain + tables.len() + indices.len()
    }

    fn fits(&self, analysis: &Analysis<'_>, limits: &Limits) -> bool {
        self.size(analysis) <= limits.max_instrs && self.inputs(analysis) <= limits.max_inputs
    }
}

/// Materialises inputs of expressions that would exceed the device's limits. All expressions are then
/// checked again, because other readers load a newly materialised input in addition to the inputs that
/// it was made from.
fn fit_limits(analysis: &mut Analysis<'_>, limits: &Limits) -> Vec<Parts> {
    loop {
        let before = analysis.materialised.iter().filter(|&&is| is).count();
        let parts = parts_within(analysis, limits);
        if analysis.materialised.iter().filter(|&&is| is).count() == before {
            return parts;
        }
    }
}

/// Gives a buffer to an expression, or to a fused gather and then to its index too.
fn store(analysis: &mut Analysis<'_>, i: u32) {
    let mut next = Some(i);
    while let Some(i) = next.take() {
        analysis.materialised[i as usize] = true;
        if analysis.class[i as usize] == Class::Gathered {
            analysis.class[i as usize] = Class::Opaque;
            analysis.gather_of.iter_mut().filter(|of| **of == i).for_each(|of| *of = NONE);
            let index = analysis.items[i as usize].inputs[1];
            let is_made = matches!(analysis.class[index as usize], Class::Elementwise | Class::Gathered);
            next = Some(index).filter(|_| is_made);
        }
    }
}

/// The contents of each item's expression, after materialising each input that would exceed the limits.
fn parts_within(analysis: &mut Analysis<'_>, limits: &Limits) -> Vec<Parts> {
    let mut parts: Vec<Parts> = vec![Parts::default(); analysis.items.len()];
    for i in 0..analysis.items.len() {
        if analysis.class[i] == Class::Part {
            let mut mine = Parts::default();
            for &j in &analysis.items[i].inputs {
                if analysis.class[j as usize] == Class::Part {
                    Parts::add(&mut mine.loads, &parts[j as usize].loads);
                } else {
                    Parts::add(&mut mine.loads, &[j]);
                }
            }
            parts[i] = mine;
        }
        if analysis.class[i] == Class::Gathered {
            let mut mine = Parts { members: SmallVec::new(), loads: SmallVec::from_elem(i as u32, 1) };
            let index = analysis.items[i].inputs[1];
            if analysis.inlines(index) || analysis.class[index as usize] == Class::Gathered {
                let mut both = mine.clone();
                Parts::add(&mut both.members, &parts[index as usize].members);
                Parts::add(&mut both.loads, &parts[index as usize].loads);
                match both.fits(analysis, limits) {
                    true => mine = both,
                    false => store(analysis, index),
                }
            }
            parts[i] = mine;
        }
        if analysis.class[i] != Class::Elementwise {
            continue;
        }
        loop {
            let mut mine = Parts::default();
            mine.members.push(i as u32);
            for &j in &analysis.items[i].inputs {
                match (analysis.class[j as usize], analysis.materialised[j as usize]) {
                    (Class::Gathered, _) => {
                        Parts::add(&mut mine.members, &parts[j as usize].members);
                        Parts::add(&mut mine.loads, &parts[j as usize].loads);
                    }
                    (Class::Constant, _) => Parts::add(&mut mine.members, &[j]),
                    (Class::Elementwise, false) => {
                        let inlined = &parts[j as usize];
                        Parts::add(&mut mine.members, &inlined.members);
                        Parts::add(&mut mine.loads, &inlined.loads);
                    }
                    _ => Parts::add(&mut mine.loads, &[j]),
                }
            }
            if mine.fits(analysis, limits) {
                parts[i] = mine;
                break;
            }
            let largest = analysis.items[i]
                .inputs
                .iter()
                .copied()
                .filter(|&j| {
                    analysis.class[j as usize] == Class::Elementwise && !analysis.materialised[j as usize]
                })
                .max_by_key(|&j| parts[j as usize].size(analysis));
            match largest {
                Some(j) => analysis.materialised[j as usize] = true,
                None => {
                    let read = |&j: &u32| analysis.gather_of[j as usize] != NONE;
                    match analysis.items[i].inputs.iter().copied().find(read) {
                        Some(j) => store(analysis, analysis.gather_of[j as usize]),
                        // Three loads and an operation are within the limits of every backend.
                        None => {
                            parts[i] = mine;
                            break;
                        }
                    }
                }
            }
        }
    }
    parts
}

/// Finds the layouts of everything in memory. A view that strides cannot express becomes a copy.
fn find_places(analysis: &mut Analysis<'_>) {
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
            Class::Constant | Class::Elementwise if analysis.materialised[i] => own(&item.node.shape),
            Class::Constant | Class::Elementwise | Class::Part => None,
            Class::Gathered => {
                let [table, index] = [0, 1].map(|k| item.inputs[k] as usize);
                let is_made = analysis.inlines(index as u32) || analysis.class[index] == Class::Gathered;
                let index = if is_made { None } else { analysis.places[index].clone() };
                let table = analysis.places[table].clone();
                analysis.gathered[i] = table.and_then(|table| Gathered::of(analysis, i as u32, table, index));
                None
            }
            Class::View if let Some(base) = &analysis.gathered[item.inputs[0] as usize] => {
                match base.viewed(&item.node.op, &item.node.shape) {
                    Some(view) => {
                        analysis.gathered[i] = Some(view);
                        None
                    }
                    None => {
                        analysis.materialised[i] = true;
                        own(&item.node.shape)
                    }
                }
            }
            Class::View => {
                let Some((source, base)) = analysis.places[item.inputs[0] as usize].clone() else { continue };
                // A copy of a tensor in blocks decodes it.
                let decodes = matches!(item.node.op, Op::Contiguous) && analysis.format(source).is_some();
                match view(&item.node.op, &base, &item.node.shape).filter(|_| !decodes) {
                    Some(layout) => Some((source, layout)),
                    None => {
                        analysis.materialised[i] = true;
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
fn refuse_blocks(analysis: &Analysis<'_>) -> Result<()> {
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

/// The layout of a view operation over `base`, if strides can express it.
pub(super) fn view(op: &Op, base: &Layout, shape: &Shape) -> Option<Layout> {
    match op {
        Op::Permute(axes) => Some(base.permute(axes)),
        Op::Expand => Some(base.expand(shape)),
        Op::Slice { axis, start, step } => Some(base.slice(*axis, *start, shape[*axis], *step)),
        Op::Unfold { axis, step, dilation } => {
            Some(base.unfold(*axis, shape[*axis], shape[shape.rank() - 1], *step, *dilation))
        }
        Op::Reshape | Op::TupleElement { .. } => base.reshape(shape),
        Op::Contiguous => custom::is_plain(base).then(|| base.clone()),
        // These are not views.
        Op::Leaf
        | Op::Full(_)
        | Op::Arange(_)
        | Op::Random { .. }
        | Op::Unary(_)
        | Op::Powi(_)
        | Op::Formula(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Where
        | Op::Cast
        | Op::Concat { .. }
        | Op::Pad(_)
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::Cumulative { .. }
        | Op::Sort { .. }
        | Op::Contract(_)
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::ToDevice
        | Op::Custom(_)
        | Op::CustomKernel(_) => None,
    }
}

/// A planned kernel: a fused map or row kernel with several results, or one other item.
pub(super) struct Group {
    pub(super) shape: Shape,
    /// The number of axes that make a row, once a reduction over the last axes is among the roots.
    pub(super) row_axes: Option<usize>,
    pub(super) roots: SmallVec<[u32; 4]>,
    /// The contents of a map or row kernel; `None` for any other.
    pub(super) parts: Option<Parts>,
}

/// An item that is about to be assigned to a kernel.
struct Candidate {
    root: u32,
    /// The index space over which it is computed.
    shape: Shape,
    /// For a reduction over the last axes whose rows are within the device's limit, the number of these
    /// axes.
    row_axes: Option<usize>,
    parts: Parts,
}

impl Group {
    /// Whether the kernel can compute the candidate, given that its inputs are available in time.
    fn takes(&self, new: &Candidate, analysis: &Analysis<'_>) -> bool {
        if self.shape == new.shape && self.row_axes.is_none_or(|k| new.row_axes.is_none_or(|n| n == k)) {
            // A map that is unrelated to the rows would only be slowed down by them.
            let rows = self.row_axes.is_some() || new.row_axes.is_some();
            return !rows || self.reads_own(new, analysis) || self.reduces_the_same(new, analysis);
        }
        // One value per row, computed from results of the row kernel. It is computed at every position
        // of the row, so it must not depend on the position.
        let Some(k) = self.row_axes else { return false };
        new.row_axes.is_none()
            && is_per_row(&new.shape, &self.shape, k)
            && !new.parts.is_positional(analysis)
            && self.reads_own(new, analysis)
    }

    /// Whether both only reduce rows of one common input, which is then read once.
    fn reduces_the_same(&self, new: &Candidate, analysis: &Analysis<'_>) -> bool {
        let is_whole = |&j: &u32| *analysis.shape(j) == self.shape;
        let reduces = self.row_axes.is_some() && new.row_axes.is_some() && !self.roots.iter().any(is_whole);
        let Some(parts) = self.parts.as_ref().filter(|_| reduces) else { return false };
        new.parts.loads.iter().any(|j| is_whole(j) && parts.loads.contains(j))
    }

    fn reads_own(&self, new: &Candidate, analysis: &Analysis<'_>) -> bool {
        new.parts.loads.iter().any(|&j| {
            analysis.places[j as usize].as_ref().is_some_and(|(source, _)| self.roots.contains(source))
        })
    }
}

/// Whether `shape` enumerates the rows of `space`: its leading axes, with or without axes of size 1 for
/// the row.
fn is_per_row(shape: &Shape, space: &Shape, row_axes: usize) -> bool {
    let lead = space.rank() - row_axes;
    shape.len() >= lead && shape[..lead] == space[..lead] && {
        let rest = &shape[lead..];
        rest.is_empty() || (rest.len() == row_axes && rest.iter().all(|&d| d == 1))
    }
}

/// The layout over `space` of an operand with `layout` over `shape`: the same shape, or a row kernel's
/// space whose rows `shape` enumerates.
pub(super) fn over_space(layout: &Layout, shape: &Shape, space: &Shape, row_axes: usize) -> Layout {
    let read = layout.expand(shape);
    if shape == space {
        return read;
    }
    let lead = space.rank() - row_axes;
    let strides: SmallVec<[isize; 5]> =
        read.strides()[..lead].iter().copied().chain((0..row_axes).map(|_| 0)).collect();
    Layout::new(space.clone(), &strides, read.offset())
}

/// Whether a layout over `space` reads element `r` of a row-major buffer everywhere in row `r`.
fn numbers_rows(layout: &Layout, space: &Shape, row_axes: usize) -> bool {
    let lead = space.rank() - row_axes;
    let rows: Shape = space[..lead].iter().copied().collect();
    let plain = rows.contiguous_strides();
    layout.offset() == 0
        && (0..space.rank()).all(|a| {
            let wanted = if a < lead { plain[a] } else { 0 };
            space[a] == 1 || layout.strides()[a] == wanted
        })
}

fn group(analysis: &mut Analysis<'_>, parts: &[Parts], limits: &Limits) -> Vec<Group> {
    // How far back to search for a kernel to join: enough for the updates of a model's parameters.
    const WINDOW: usize = 64;
    let materialised = analysis.materialised.iter().filter(|&&is| is).count();
    let mut groups: Vec<Group> = Vec::with_capacity(materialised);
    for i in 0..analysis.items.len() as u32 {
        let at = i as usize;
        if !analysis.materialised[at] {
            continue;
        }
        if analysis.class[at] == Class::Element {
            analysis.kernel[at] = analysis.kernel[analysis.items[at].inputs[0] as usize];
            continue;
        }
        let Some(new) = candidate(analysis, parts, limits, i) else {
            analysis.kernel[at] = groups.len() as u32;
            groups.push(Group {
                shape: analysis.shape(i).clone(),
                row_axes: None,
                roots: SmallVec::from_elem(i, 1),
                parts: None,
            });
            continue;
        };
        let first = (0..new.parts.loads.len()).fold(groups.len().saturating_sub(WINDOW), |first, k| {
            first.max(readable_from(analysis, &groups, &new, new.parts.loads[k]))
        });
        let joined = (first..groups.len()).find_map(|g| {
            let theirs = groups[g].parts.as_ref()?;
            if groups[g].roots.len() >= limits.max_outputs || !groups[g].takes(&new, analysis) {
                return None;
            }
            let mut both = theirs.clone();
            both.join(&new.parts, &groups[g].roots, analysis);
            both.fits(analysis, limits).then_some((g, both))
        });
        match joined {
            Some((g, both)) => {
                let Group { row_axes, roots, parts, .. } = &mut groups[g];
                *row_axes = row_axes.or(new.row_axes);
                *parts = Some(both);
                roots.push(i);
                analysis.kernel[at] = g as u32;
            }
            None => {
                analysis.kernel[at] = groups.len() as u32;
                let Candidate { shape, row_axes, parts, .. } = new;
                groups.push(Group { shape, row_axes, roots: SmallVec::from_elem(i, 1), parts: Some(parts) });
            }
        }
    }
    groups
}

/// The requirements of computing an item within a map or row kernel; `None` if it needs a kernel of its
/// own.
fn candidate(analysis: &Analysis<'_>, parts: &[Parts], limits: &Limits, i: u32) -> Option<Candidate> {
    let at = i as usize;
    let item = &analysis.items[at];
    let only = |j: u32| Parts { members: SmallVec::from_elem(i, 1), loads: SmallVec::from_elem(j, 1) };
    match analysis.class[at] {
        Class::Opaque => {
            let Op::Reduce { axes, .. } = &item.node.op else { return None };
            let source = item.inputs[0];
            let shape = analysis.shape(source).clone();
            let lead = shape.rank() - axes.len();
            let row: usize = axes.iter().map(|&a| shape[a]).product();
            if axes.iter().enumerate().any(|(k, &a)| a != lead + k) || row == 0 || row > limits.max_row {
                return None;
            }
            let inlined = analysis.inlines(source) || analysis.class[source as usize] == Class::Gathered;
            let mut parts = if inlined { parts[source as usize].clone() } else { only(source) };
            Parts::add(&mut parts.members, &[i]);
            Some(Candidate { root: i, shape, row_axes: Some(axes.len()), parts })
        }
        // A copy iterates over the shape that it reads, any other item over its own.
        Class::View => {
            let source = item.inputs[0];
            if analysis.format_read(source).is_some() {
                return None;
            }
            Some(Candidate {
                root: i,
                shape: analysis.shape(source).clone(),
                row_axes: None,
                parts: only(source),
            })
        }
        Class::Ready
        | Class::Constant
        | Class::Elementwise
        | Class::Gathered
        | Class::Element
        | Class::Part => {
            let mut parts = parts[at].clone();
            if parts.members.is_empty() {
                parts.members.push(i);
            }
            let shape = if analysis.single[at] { Shape::scalar() } else { analysis.shape(i).clone() };
            Some(Candidate { root: i, shape, row_axes: None, parts })
        }
    }
}

/// The first kernel in which the candidate can read item `j`.
fn readable_from(analysis: &Analysis<'_>, groups: &[Group], new: &Candidate, j: u32) -> usize {
    if let Some(gathered) = &analysis.gathered[j as usize] {
        // Loads at indices can only read from memory.
        let made_in = gathered.sources().into_iter().map(|source| analysis.kernel[source as usize]);
        return made_in.filter(|&kernel| kernel != NONE).map(|kernel| kernel as usize + 1).max().unwrap_or(0);
    }
    let Some((source, layout)) = &analysis.places[j as usize] else { return 0 };
    let made_in = analysis.kernel[*source as usize];
    if made_in == NONE {
        return 0;
    }
    // A result of the same kernel can be read from its register: a map's at the same position; a
    // reduction's, and values derived from it, everywhere in the row. A copy reads memory.
    let group = &groups[made_in as usize];
    let copies = analysis.class[new.root as usize] == Class::View;
    let source_shape = analysis.shape(*source);
    let direct = !copies
        && match group.row_axes {
            Some(k) if analysis.is_per_row_in(*source, &group.shape) => {
                let space = &group.shape;
                let within = new.shape == *space || is_per_row(&new.shape, space, k);
                // The layout must hold both as the reader broadcasts it, and for the reader's own place
                // in the space.
                within && numbers_rows(&over_space(layout, &new.shape, space, k), space, k)
            }
            _ => {
                *source == j && analysis.class[j as usize] == Class::Elementwise && *source_shape == new.shape
            }
        };
    if direct { made_in as usize } else { made_in as usize + 1 }
}
