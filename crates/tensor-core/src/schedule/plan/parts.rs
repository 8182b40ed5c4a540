//! [`Parts`]: the operations and loads of an expression that one kernel computes, and its size as the
//! device's limits count it.

use smallvec::SmallVec;

use super::analysis::{Analysis, Class, NONE, instrs};
use crate::devices::backend::Limits;

/// The contents of an inlined expression: its operations, and the items it loads. Both are sorted,
/// without duplicates.
#[derive(Clone, Default)]
pub(super) struct Parts {
    pub(super) members: SmallVec<[u32; 8]>,
    pub(super) loads: SmallVec<[u32; 8]>,
}

impl Parts {
    /// Adds the contents of another root; results of the kernel itself are not loaded.
    pub(super) fn join(&mut self, other: &Parts, roots: &[u32], analysis: &Analysis<'_>) {
        Parts::add(&mut self.members, &other.members);
        Parts::add(&mut self.loads, &other.loads);
        self.loads.retain(|j| !roots.contains(j) || analysis.class[*j as usize] == Class::View);
    }

    pub(super) fn add(set: &mut SmallVec<[u32; 8]>, other: &[u32]) {
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
    pub(super) fn inputs(&self, analysis: &Analysis<'_>) -> usize {
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

    pub(super) fn fits(&self, analysis: &Analysis<'_>, limits: &Limits) -> bool {
        self.size(analysis) <= limits.max_instrs && self.inputs(analysis) <= limits.max_inputs
    }
}
