//! The steps of a compiled function that compute the same at each call, because they read only tensors that
//! its calls have in common: scales of normalizations of an ONNX model, masks, weights that are cast. They
//! run once.

use super::program::{Leaf, Source, Varying};
use crate::{
    base::error::Result,
    devices::backend::Backend,
    kernels::kernel::Body,
    schedule::{
        execute::{self, Bound, Constants},
        plan::{Output, Plan, Step, Target},
    },
};

/// The most bytes that one compiled function keeps, in all of its programs.
pub(super) const MAX_CONSTANT_BYTES: usize = 256 << 20;

/// Runs the steps of a plan that read only constants, and keeps what other steps read of them, in at most
/// `budget` bytes. `leaves` and `varying` are those of the plan's leaves and items.
pub(super) fn compute<B: Bound + ?Sized>(
    plan: &Plan,
    leaves: &[Leaf],
    varying: &[Option<Varying>],
    bound: &B,
    backend: &dyn Backend,
    budget: usize,
) -> Result<Constants> {
    // For each slot, whether it is the same at each call, and its bytes.
    let mut is_constant = vec![false; plan.slots];
    let mut bytes = vec![0; plan.slots];
    for (leaf, &(_, slot)) in leaves.iter().zip(&plan.leaves) {
        is_constant[slot as usize] = matches!(leaf.source, Source::Fixed(_));
    }
    let mut left = budget;
    let mut steps = vec![false; plan.steps.len()];
    for (at, step) in plan.steps.iter().enumerate() {
        let outputs = step.outputs.iter().zip(&step.targets);
        let slots: Option<Vec<(u32, usize)>> = outputs
            .map(|(output, target)| match (output, target) {
                (Output::Fresh { dtype, numel }, Target::Slot(slot)) => Some((*slot, dtype.size() * numel)),
                (Output::Reused { input }, Target::Slot(slot)) => {
                    Some((*slot, bytes[step.inputs[*input as usize] as usize]))
                }
                (_, Target::Node { .. }) => None,
            })
            .collect();
        let Some(slots) = slots.filter(|_| is_repeatable(step)) else { continue };
        let total: usize = slots.iter().map(|(_, bytes)| bytes).sum();
        let reads_constants = step.inputs.iter().all(|&slot| is_constant[slot as usize])
            && step.scalars.iter().all(|scalar| varying[scalar.item as usize].is_none());
        if !reads_constants || total > left {
            continue;
        }
        left -= total;
        steps[at] = true;
        for (slot, own) in slots {
            (is_constant[slot as usize], bytes[slot as usize]) = (true, own);
        }
    }
    let others = plan.steps.iter().zip(&steps).filter(|(_, is_constant)| !**is_constant);
    let mut wanted = vec![false; plan.slots];
    others.flat_map(|(step, _)| &step.inputs).for_each(|&slot| wanted[slot as usize] = true);
    execute::constants(plan, bound, backend, steps, &wanted)
}

/// Whether a step could be left out at later calls: no result of the function depends on its having run, it
/// cannot fail, and it is no code of others.
fn is_repeatable(step: &Step) -> bool {
    let is_custom = matches!(step.shared.kernel.body, Body::Custom(_));
    step.stores.is_empty() && !step.empty && !step.shared.may_fail && !is_custom
}
