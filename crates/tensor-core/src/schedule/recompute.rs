//! The cost of computing a value again, which decides whether it is stored: within a plan
//! (`plan/materialise.rs`), and for nodes outside of an evaluation (`collect.rs`).

use crate::{
    graph::op::{Expression, Op, OpClass},
    kernels::kernel::{POWI_COST, RANDOM_COST},
};

/// The cost in additions above which an expression is stored rather than computed again in a second
/// kernel over the same elements.
const RECOMPUTE_LIMIT: u32 = 5;
/// The same bound if all readers are elementwise over one shape, and will mostly be in one kernel.
pub(super) const RECOMPUTE_LIMIT_IN_MAPS: u32 = 30;

/// The bound for an item with readers in several kernels. `beyond` says whether one of those iterates over
/// other elements than the item's own.
pub(super) fn recompute_limit(beyond: bool) -> u32 {
    if beyond { RECOMPUTE_LIMIT } else { RECOMPUTE_LIMIT_IN_MAPS }
}

/// The relative cost of computing an elementwise operation again, in additions; 0 for others, which are
/// never inlined.
pub(super) fn own_cost(op: &Op) -> u32 {
    let OpClass::Expression(expression) = op.class() else { return 0 };
    match expression {
        Expression::Unary(op) => op.cost(),
        Expression::Binary(op) => op.cost(),
        Expression::Random(_) => RANDOM_COST,
        Expression::Powi(_) => POWI_COST,
        Expression::Formula(formula) => formula.instrs() as u32,
        Expression::Arange(_) | Expression::Compare(_) | Expression::Where | Expression::Cast => 1,
        Expression::Full(_) => 0,
    }
}
