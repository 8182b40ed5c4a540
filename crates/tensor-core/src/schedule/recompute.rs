//! The cost of computing a value again, which decides whether it is stored: within a plan
//! (`plan/materialise.rs`), and for nodes outside of an evaluation (`collect.rs`).

use crate::{
    graph::op::Op,
    kernels::kernel::{POWI_COST, RANDOM_COST},
};

/// The cost in additions above which an expression is stored rather than computed again in a second
/// kernel over the same elements.
pub(super) const RECOMPUTE_LIMIT: u32 = 5;
/// The same bound if all readers are elementwise over one shape, and will mostly be in one kernel.
pub(super) const RECOMPUTE_LIMIT_IN_MAPS: u32 = 30;

/// The relative cost of computing an elementwise operation again, in additions.
pub(super) fn own_cost(op: &Op) -> u32 {
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
