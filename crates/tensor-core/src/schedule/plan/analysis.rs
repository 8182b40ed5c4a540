//! [`Analysis`]: the data that the passes of the planner share. It has one entry for each item: its class,
//! the kernel that computes it, and the place of its value.
//!
//! `classify` creates it; `materialise`, `fit`, `place` and `group` fill and change its fields; the passes
//! after them only read it, and so do all methods here but [`Analysis::materialise`].

use std::sync::Arc;

use smallvec::SmallVec;

use super::{gather::Gathered, reasons::StoreReason};
use crate::{
    base::shape::Shape,
    elements::dtype::DType,
    graph::{node::View, op::Op},
    kernels::{blocks::BlockFormat, kernel::Frame, layout::Layout},
    schedule::{collect::Item, failure::refusal},
};

/// The way in which the planner treats an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
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
    /// A concatenation, or a reshape that reorders, which is read only by a concatenation: that one's kernel
    /// copies its parts directly.
    Part,
}

/// No item, or no kernel.
pub(super) const NONE: u32 = u32::MAX;

/// The planner's information about each item.
pub(super) struct Analysis<'a> {
    pub(super) items: &'a [Item],
    /// Whether any item takes several instructions: a formula, or a half type, which is computed in f32
    /// and rounded.
    pub(super) has_several: bool,
    /// The `full` node that an item broadcasts, if there is one.
    pub(super) constant: Vec<Option<u32>>,
    pub(super) class: Vec<Class>,
    /// Whether an elementwise value depends on its flat position (ranges, random numbers): a reduction
    /// reads it from memory, because it may iterate in another order.
    pub(super) positional: Vec<bool>,
    /// Whether the item gets a buffer.
    pub(super) materialised: Vec<bool>,
    /// The first reason for that.
    pub(super) stored_because: Vec<Option<StoreReason>>,
    /// Whether a constant is materialised as a single element that its readers broadcast: the `full`
    /// node's buffer, which has only that element unless other readers need all.
    pub(super) single: Vec<bool>,
    /// The kernel that writes the item's buffer.
    pub(super) kernel: Vec<u32>,
    /// The place of the value of a ready, materialised or view item: an item with a buffer, and a layout
    /// over it.
    pub(super) places: Vec<Option<(u32, Layout)>>,
    /// The zeros around the elements of the item's buffer, which paddings of the item read.
    pub(super) frames: Vec<Option<Frame>>,
    /// For each item, the fused gather that it is or is a view of.
    pub(super) gather_of: Vec<u32>,
    /// The access to such an item.
    pub(super) gathered: Vec<Option<Gathered>>,
}

impl Analysis<'_> {
    /// Gives item `i` a buffer.
    pub(super) fn materialise(&mut self, i: usize, reason: StoreReason) {
        self.materialised[i] = true;
        self.stored_because[i].get_or_insert(reason);
    }

    /// Whether kernel `kernel` computes the item, as one of its results or inlined.
    pub(super) fn computed_in(&self, i: u32, kernel: u32) -> bool {
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
    pub(super) fn viewed_in(&self, i: u32, kernel: u32) -> Option<u32> {
        let (source, _) = self.places[i as usize].as_ref()?;
        (*source != i && self.kernel[*source as usize] == kernel).then_some(*source)
    }

    /// The kernel that writes the item's buffer, or the first kernel of a tuple.
    pub(super) fn kernel_of(&self, i: u32) -> Option<u32> {
        Some(self.kernel[i as usize]).filter(|&kernel| kernel != NONE)
    }

    /// Whether a concatenation copies the parts of this item.
    pub(super) fn is_part(&self, i: u32) -> bool {
        self.class[i as usize] == Class::Part
    }

    pub(super) fn is_reduction(&self, i: u32) -> bool {
        matches!(self.items[i as usize].node.op, Op::Reduce { .. }) && self.class[i as usize] == Class::Opaque
    }

    /// Whether two gathers of one shape may read their table as one input.
    pub(super) fn share_a_table(&self, a: u32, b: u32) -> bool {
        let [of_a, of_b] = [a, b].map(|i| &self.items[i as usize]);
        let axis = |item: &Item| if let Op::Gather { axis, .. } = item.node.op { Some(axis) } else { None };
        of_a.inputs[0] == of_b.inputs[0]
            && of_a.node.shape == of_b.node.shape
            && axis(of_a) == axis(of_b)
            && self.are_of_one_line(a, b)
    }

    /// Whether two gathers have the same errors: both are of one source line and one operation.
    pub(super) fn are_of_one_line(&self, a: u32, b: u32) -> bool {
        let [a, b] = [a, b].map(|i| &self.items[i as usize].node);
        let is_gather = matches!((&a.op, &b.op), (Op::Gather { .. }, Op::Gather { .. }));
        std::ptr::eq(a, b) || is_gather && a.location == b.location && refusal(a) == refusal(b)
    }

    /// Whether readers compute the item themselves.
    pub(super) fn inlines(&self, i: u32) -> bool {
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
    pub(super) fn place(&self, i: u32) -> (u32, Layout) {
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
    pub(super) fn format_read(&self, i: u32) -> Option<&Arc<dyn BlockFormat>> {
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

/// An upper bound of the number of instructions of an elementwise item, without its operands.
pub(super) fn instrs(item: &Item) -> usize {
    // Two operands cast to a wider type, and the result cast back.
    let around = if item.node.dtype.is_narrow() { 3 } else { 0 };
    let own = if let Op::Formula(formula) = &item.node.op { formula.instrs() } else { 1 };
    own + around
}
