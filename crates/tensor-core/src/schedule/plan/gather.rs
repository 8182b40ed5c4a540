//! Fused gathers: they are not stored, because their readers load the elements at computed indices.
//!
//! A gather is fused if no reader needs it in memory: all its readers, direct or through views, are
//! maps, reductions or indices of other fused gathers, and all are in one kernel or elementwise. Its
//! table is in memory. If its index is an expression over the gather's own shape, the same kernel
//! computes it; otherwise the index is in memory too, and a view of the gather is a view of its table
//! and of its index.

use smallvec::SmallVec;

use super::layouts::view;
use crate::{
    base::shape::Shape,
    graph::op::Op,
    kernels::{
        kernel::{IndexedAxis, LOAD_AT_COST},
        layout::Layout,
    },
    schedule::collect::Item,
};

/// The cost of a repeated gather without its index, in additions: no more than that of loading stored
/// elements.
pub(super) const GATHER_COST: u32 = LOAD_AT_COST;

/// The way in which a gather, or a view of one, is read at indices.
#[derive(Clone)]
pub(super) struct Gathered {
    /// The gather.
    pub(super) gather: u32,
    /// The item whose buffer is read.
    pub(super) table: u32,
    /// The layout of the table over the shape of the gather or view.
    pub(super) layout: Layout,
    /// The axis of the indices.
    pub(super) axis: IndexedAxis,
    pub(super) index: Index,
}

/// The source of the indices.
#[derive(Clone)]
pub(super) enum Index {
    /// An expression over the gather's shape, which the reader computes: the item.
    Expression(u32),
    /// A buffer, and the layout of the indices in it.
    Memory(u32, Layout),
}

impl Gathered {
    /// A gather whose inputs have these places; `index` is `None` if it is an expression.
    pub(super) fn of(
        items: &[Item],
        gather: u32,
        table: (u32, Layout),
        index: Option<(u32, Layout)>,
    ) -> Option<Gathered> {
        let item = &items[gather as usize];
        let Op::Gather { axis, .. } = item.node.op else { return None };
        let (source, table) = table;
        let along = IndexedAxis { axis, size: table.shape()[axis], stride: table.strides()[axis] };
        let strides: SmallVec<[isize; 5]> = table
            .strides()
            .iter()
            .enumerate()
            .map(|(a, &stride)| if a == axis { 0 } else { stride })
            .collect();
        let layout = Layout::new(item.node.shape.clone(), &strides, table.offset());
        let index = match index {
            Some((source, layout)) => Index::Memory(source, layout.expand(&item.node.shape)),
            None => Index::Expression(item.inputs[1]),
        };
        Some(Gathered { gather, table: source, layout, axis: along, index })
    }

    /// A view operation applied to it, if strides can express that.
    pub(super) fn viewed(&self, op: &Op, shape: &Shape) -> Option<Gathered> {
        let over = |base: &Layout| {
            if let Op::Contiguous = op { Some(base.clone()) } else { view(op, base, shape) }
        };
        let index = match &self.index {
            Index::Expression(_) => return None,
            Index::Memory(source, layout) => Index::Memory(*source, over(layout)?),
        };
        Some(Gathered { layout: over(&self.layout)?, index, ..self.clone() })
    }

    /// The buffers that it reads: the table's and, if it is in memory, the index's.
    pub(super) fn sources(&self) -> SmallVec<[u32; 2]> {
        let mut sources = SmallVec::from_slice(&[self.table]);
        if let Index::Memory(source, _) = self.index {
            sources.push(source);
        }
        sources
    }
}

/// Whether an item is a pending gather from a buffer that the device's programs may read at indices.
pub(super) fn may_be_read(items: &[Item], i: usize, max_bytes: u64) -> bool {
    let item = &items[i];
    if item.value.is_some() || !matches!(item.node.op, Op::Gather { .. }) {
        return false;
    }
    // The buffer may be larger than the gathered tensor.
    let mut table = item.inputs[0] as usize;
    while items[table].value.is_none() && items[table].node.op.is_view() {
        table = items[table].inputs[0] as usize;
    }
    let Item { node, value, .. } = &items[table];
    if value.as_ref().is_some_and(|value| value.format.is_some()) {
        return false;
    }
    let numel = value.as_ref().map_or(node.shape.numel(), |value| value.storage.numel());
    // A device may store small elements in words.
    const WORD: usize = 4;
    (numel as u64).saturating_mul(node.dtype.size().max(WORD) as u64) <= max_bytes
}
