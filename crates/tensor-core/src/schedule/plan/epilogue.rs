//! The sixth pass, the choice of epilogues: maps that are computed on each finished element of a
//! contraction before it is stored, instead of by a separate kernel over its result.
//!
//! A map is fused if it reads the contraction element by element in its storage order, if its other
//! inputs can be read in that order too, and if the fused kernel uses no more memory than two kernels.
//! If others read the contraction's own result later, it becomes an additional output.
//!
//! Reads the groups, the contents of the expressions and the analysis, and changes none of them. Leaves the
//! pairs of a contraction and a map.

use smallvec::SmallVec;

use super::{
    analysis::{Analysis, NONE},
    group::Group,
    parts::Parts,
    reasons::Separation,
};
use crate::{
    base::shape::Shape,
    devices::backend::Limits,
    graph::op::{Op, Subscripts},
    kernels::layout::Layout,
};

/// For each kernel, its counterpart in a contraction with an epilogue, or `NONE`.
pub(super) struct Epilogues {
    /// For a map, the contraction whose epilogue it is.
    product: Vec<u32>,
    /// For a contraction, the map that is its epilogue.
    map: Vec<u32>,
    /// For a map that reads contractions, why it is no epilogue of the last of them.
    refused: Vec<Option<Separation>>,
}

impl Epilogues {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.product.is_empty()
    }

    /// The contraction whose epilogue map `g` is.
    pub(super) fn product(&self, g: usize) -> Option<usize> {
        self.product.get(g).filter(|&&p| p != NONE).map(|&p| p as usize)
    }

    /// Why map `g`, which reads a contraction, is not its epilogue.
    pub(super) fn refused(&self, g: usize) -> Option<Separation> {
        self.refused.get(g).copied().flatten()
    }

    /// Whether contraction `g` is computed in the kernel of a map.
    pub(super) fn has_map(&self, g: usize) -> bool {
        self.map.get(g).is_some_and(|&map| map != NONE)
    }
}

/// The axes of a result in the order in which they are stored.
pub(super) fn stored_order(stored: &Layout) -> SmallVec<[usize; 8]> {
    // An axis of size 1 may have any stride.
    let mut order: SmallVec<[usize; 8]> = (0..stored.shape().rank()).collect();
    if !stored.is_contiguous() {
        order.sort_by_key(|&axis| std::cmp::Reverse(stored.strides()[axis]));
    }
    order
}

/// The readers of each buffer.
struct Readers {
    /// For each buffer, the last kernel that reads it.
    last: Vec<u32>,
    /// For each contraction, all kernels that read it.
    of_products: Vec<SmallVec<[u32; 2]>>,
    /// For each buffer, whether a node keeps it.
    kept: Vec<bool>,
}

impl Readers {
    fn of(analysis: &Analysis<'_>, groups: &[Group], parts: &[Parts]) -> Readers {
        let n = analysis.items.len();
        let mut readers =
            Readers { last: vec![NONE; n], of_products: vec![SmallVec::new(); n], kept: vec![false; n] };
        for (g, group) in groups.iter().enumerate() {
            let mut read = |j: u32| {
                for source in analysis.sources(j).into_iter().map(|source| source as usize) {
                    if analysis.kernel[source] == g as u32 {
                        continue;
                    }
                    readers.last[source] = g as u32;
                    let known = &mut readers.of_products[source];
                    if subscripts(analysis, source as u32).is_some() && known.last() != Some(&(g as u32)) {
                        known.push(g as u32);
                    }
                }
            };
            match &group.parts {
                Some(parts) => parts.loads.iter().copied().for_each(read),
                None => {
                    for &j in &analysis.items[group.roots[0] as usize].inputs {
                        match analysis.sources(j).is_empty() {
                            false => read(j),
                            true => parts[j as usize].loads.iter().copied().for_each(&mut read),
                        }
                    }
                }
            }
        }
        for (i, item) in analysis.items.iter().enumerate() {
            if let (true, Some((source, _))) = (item.store, &analysis.places[i]) {
                readers.kept[*source as usize] = true;
            }
        }
        readers
    }

    /// Whether a buffer can be reused once kernel `g` has read it.
    fn ends_at(&self, analysis: &Analysis<'_>, source: u32, g: u32) -> bool {
        let item = &analysis.items[source as usize];
        self.last[source as usize] == g && !self.kept[source as usize] && (item.value.is_none() || item.dies)
    }
}

/// The subscripts of a pending contraction.
fn subscripts<'a>(analysis: &Analysis<'a>, i: u32) -> Option<&'a Subscripts> {
    let item = &analysis.items[i as usize];
    let Op::Contract(subscripts) = &item.node.op else { return None };
    item.value.is_none().then_some(subscripts)
}

/// Finds the epilogues among the planned kernels.
pub(super) fn find(analysis: &Analysis<'_>, groups: &[Group], parts: &[Parts], limits: &Limits) -> Epilogues {
    let mut found = Epilogues { product: Vec::new(), map: Vec::new(), refused: Vec::new() };
    let is_product = |group: &Group| group.parts.is_none() && subscripts(analysis, group.roots[0]).is_some();
    if !groups.iter().any(is_product) {
        return found;
    }
    found.product.resize(groups.len(), NONE);
    found.map.resize(groups.len(), NONE);
    found.refused.resize(groups.len(), None);
    let readers = Readers::of(analysis, groups, parts);
    for g in 0..groups.len() {
        let Some(map) = Map::of(analysis, groups, g, limits) else { continue };
        // The contraction that is computed last: the others are complete by then.
        let mut products: SmallVec<[u32; 4]> = map.products().collect();
        products.sort_unstable();
        for &p in products.iter().rev() {
            let kernel = analysis.kernel[p as usize];
            let free = found.map[kernel as usize] == NONE;
            match if free { map.suits(p, &readers) } else { Err(Separation::HasEpilogue) } {
                Ok(()) => {
                    found.product[g] = kernel;
                    found.map[kernel as usize] = g as u32;
                    found.refused[g] = None;
                    break;
                }
                Err(reason) => {
                    found.refused[g].get_or_insert(reason);
                }
            }
        }
    }
    found
}

/// A map that may become an epilogue.
struct Map<'a> {
    analysis: &'a Analysis<'a>,
    group: &'a Group,
    parts: &'a Parts,
    g: u32,
    limits: &'a Limits,
}

impl<'a> Map<'a> {
    fn of(analysis: &'a Analysis<'a>, groups: &'a [Group], g: usize, limits: &'a Limits) -> Option<Map<'a>> {
        let group = &groups[g];
        let parts = group.parts.as_ref().filter(|_| group.row_axes.is_none())?;
        Some(Map { analysis, group, parts, g: g as u32, limits })
    }

    /// The buffers that it loads: the item with the buffer, and the layout.
    fn loads(&self) -> impl Iterator<Item = (u32, &'a Layout)> {
        let places = &self.analysis.places;
        let own = self.g;
        self.parts
            .loads
            .iter()
            .filter_map(|&j| places[j as usize].as_ref())
            .filter(move |(source, _)| self.analysis.kernel[*source as usize] != own)
            .map(|(source, layout)| (*source, layout))
    }

    /// The contractions among its loads.
    fn products(&self) -> impl Iterator<Item = u32> {
        self.loads().map(|(source, _)| source).filter(|&source| subscripts(self.analysis, source).is_some())
    }

    /// Whether it can be, and should be, the epilogue of contraction `p`; otherwise the reason.
    fn suits(&self, p: u32, readers: &Readers) -> Result<(), Separation> {
        let (analysis, shape) = (self.analysis, &self.group.shape);
        let require = |is_met: bool, reason| if is_met { Ok(()) } else { Err(reason) };
        require(self.limits.max_epilogue > 0, Separation::NoEpilogues)?;
        let most = self.limits.max_epilogue_of(shape.numel());
        require(self.parts.size(analysis) <= most, Separation::LongEpilogue)?;
        require(!self.group.is_framed(analysis), Separation::OtherOrder)?;
        let is_plain = !self.parts.is_positional(analysis) && !self.parts.has_gathers(analysis);
        require(is_plain, Separation::PositionInEpilogue)?;
        let Some((_, stored)) = &analysis.places[p as usize] else { return Err(Separation::OwnKernel) };
        let order: Shape = stored_order(stored).iter().map(|&axis| stored.shape()[axis]).collect();
        // Element by element, in storage order.
        let in_order =
            |layout: &Layout| layout.shape() == shape && layout.is_contiguous() && layout.offset() == 0;
        let mut others = 0;
        for (source, layout) in self.loads() {
            let fits = if source == p {
                in_order(layout)
            } else {
                others += 1;
                layout.expand(shape).reshape(&order).is_some()
            };
            require(fits, Separation::OtherOrder)?;
        }
        let kept = readers.kept[p as usize] || readers.of_products[p as usize].iter().any(|&r| r != self.g);
        let outputs = self.group.roots.len() + usize::from(kept);
        require(shape.numel() == order.numel(), Separation::OtherOrder)?;
        require(shape.numel() > 0 && self.has_terms(p), Separation::OwnKernel)?;
        let fits = others + 2 <= self.limits.max_inputs && outputs <= self.limits.max_outputs;
        require(fits, Separation::DeviceLimits)?;
        let is_first = readers.of_products[p as usize].iter().all(|&reader| reader >= self.g);
        require(is_first, Separation::ReadEarlier)?;
        let in_place = self.works_in_place(p, readers);
        require(
            in_place <= if kept || self.group.roots.len() > 1 { 0 } else { 1 },
            Separation::WorksInPlace,
        )?;
        require(self.holds_no_more(p, readers), Separation::HoldsMore)
    }

    /// Whether the operands of a contraction have elements.
    fn has_terms(&self, p: u32) -> bool {
        self.analysis.items[p as usize].inputs.iter().all(|&i| self.analysis.shape(i).numel() > 0)
    }

    /// The number of outputs that a separate map kernel would store in place of its inputs, not counting
    /// the contraction: a contraction never works in place.
    fn works_in_place(&self, p: u32, readers: &Readers) -> usize {
        let analysis = self.analysis;
        let made = |dtype| self.group.roots.iter().any(|&r| analysis.items[r as usize].node.dtype == dtype);
        let taken = self.loads().filter(|&(source, layout)| {
            source != p
                && layout.is_plain()
                && layout.shape() == &self.group.shape
                && made(analysis.items[source as usize].node.dtype)
                && readers.ends_at(analysis, source, self.g)
        });
        taken.map(|(source, _)| source).collect::<SmallVec<[u32; 4]>>().len().min(self.group.roots.len())
    }

    /// Whether delaying the contraction until the map runs holds no more memory: its operands, in place
    /// of its result.
    fn holds_no_more(&self, p: u32, readers: &Readers) -> bool {
        let analysis = self.analysis;
        let own = analysis.kernel[p as usize];
        if own + 1 == self.g {
            return true;
        }
        let bytes = |i: u32| {
            let node = &analysis.items[i as usize].node;
            node.shape.numel() * node.dtype.size()
        };
        let inputs = analysis.items[p as usize].inputs.iter();
        let sources = inputs.filter_map(|&i| analysis.places[i as usize].as_ref()).map(|(source, _)| *source);
        sources.filter(|&source| readers.ends_at(analysis, source, own)).map(bytes).sum::<usize>() <= bytes(p)
    }
}
