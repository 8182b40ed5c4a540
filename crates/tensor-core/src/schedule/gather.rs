//! Gathers that no kernel stores: their readers load the elements at indices for themselves.
//!
//! A gather is such if nothing wants it in memory: all that reads it, itself or through views, are maps,
//! reductions and indices of other such gathers, all of one kernel or elementwise. What it reads from lies in
//! memory. Its index is computed in the same kernel where it is an expression over the gather's own shape,
//! and lies in memory otherwise: then a view of the gather is a view of its table and of its index.

use smallvec::SmallVec;

use super::{
    collect::Item,
    plan::{Analysis, NONE, view},
};
use crate::{
    base::shape::Shape,
    graph::op::Op,
    kernels::{
        kernel::{IndexedAxis, LOAD_AT_COST},
        layout::Layout,
    },
};

/// The cost of reading a gather again, in additions, its index apart: no more than reading its elements where
/// they were stored.
pub(super) const GATHER_COST: u32 = LOAD_AT_COST;

/// How a gather, or a view of one, is read at indices.
#[derive(Clone)]
pub(super) struct Gathered {
    /// The gather.
    pub(super) gather: u32,
    /// The buffer that is read from.
    pub(super) table: u32,
    /// How it lies over the shape of the gather, or of the view.
    pub(super) layout: Layout,
    /// The axis that it is read along.
    pub(super) axis: IndexedAxis,
    pub(super) index: Index,
}

/// Where indices come from.
#[derive(Clone)]
pub(super) enum Index {
    /// An expression that the reader computes, over the gather's shape: of this item.
    Expression(u32),
    /// A buffer, and how the indices lie in it.
    Memory(u32, Layout),
}

impl Gathered {
    /// A gather whose inputs lie in these places; `index` is `None` where it is an expression.
    pub(super) fn of(
        analysis: &Analysis<'_>,
        gather: u32,
        table: (u32, Layout),
        index: Option<(u32, Layout)>,
    ) -> Option<Gathered> {
        let item = &analysis.items[gather as usize];
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

    /// A view operation over it, where strides can express that.
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

    /// The buffers that are read: the table's, and the index's where that is one.
    pub(super) fn sources(&self) -> SmallVec<[u32; 2]> {
        let mut sources = SmallVec::from_slice(&[self.table]);
        if let Index::Memory(source, _) = self.index {
            sources.push(source);
        }
        sources
    }
}

/// Whether an item that waits is a gather from a buffer that a device's programs may read at indices.
pub(super) fn may_be_read(items: &[Item], i: usize, max_bytes: u64) -> bool {
    let item = &items[i];
    if item.value.is_some() || !matches!(item.node.op, Op::Gather { .. }) {
        return false;
    }
    // The buffer may be larger than what is gathered from.
    let mut table = item.inputs[0] as usize;
    while items[table].value.is_none() && items[table].node.op.is_view() {
        table = items[table].inputs[0] as usize;
    }
    let Item { node, value, .. } = &items[table];
    if value.as_ref().is_some_and(|value| value.format.is_some()) {
        return false;
    }
    let numel = value.as_ref().map_or(node.shape.numel(), |value| value.storage.numel());
    // A device may hold small elements in words.
    const WORD: usize = 4;
    (numel as u64).saturating_mul(node.dtype.size().max(WORD) as u64) <= max_bytes
}

/// For each item, the gather that it is read at indices for: itself, or the one that it is a view of.
pub(super) fn bases(items: &[Item], is_read: impl Fn(usize) -> bool) -> Vec<u32> {
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
