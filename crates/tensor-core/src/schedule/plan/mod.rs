//! The planner: from nodes in topological order to a list of kernels, with buffers reused as soon as they
//! are free.
//!
//! Elementwise nodes are inlined into the kernels of their readers if these have the same shape. A node
//! is materialised (given a buffer) if it must be stored, if a reader cannot inline it, if it is
//! expensive and several kernels read it, or if a kernel would exceed the device's limits. Materialised
//! nodes of one shape share a kernel if their order allows it.
//!
//! [`plan`] calls the passes in order; each is one file, whose head says what it reads and what it leaves.
//! They share the [`Analysis`](analysis::Analysis). `parts`, `layouts` and `gather` serve several passes,
//! `program` writes the programs of fused kernels, and `step` defines the result.

mod analysis;
mod assemble;
mod classify;
mod epilogue;
mod fit;
mod frame;
mod gather;
mod group;
mod layouts;
mod materialise;
mod parts;
mod place;
mod program;
mod reasons;
mod step;
mod write;

pub(crate) use self::reasons::Reasons;
pub use self::reasons::{Separation, StoreReason};
pub(crate) use self::step::{Output, Part, Plan, ScalarRef, Step, Store, Target};
use super::{collect::Item, kernels::Kernels};
use crate::{base::error::Result, devices::backend::Limits};

/// The plan for the pending items. Its kernels are shared through `kernels`.
pub(super) fn plan(items: &[Item], limits: &Limits, kernels: &mut Kernels) -> Result<Plan> {
    Ok(plan_with_reasons(items, limits, kernels)?.0)
}

/// [`plan`], with the reasons of its decisions.
pub(super) fn plan_with_reasons(
    items: &[Item],
    limits: &Limits,
    kernels: &mut Kernels,
) -> Result<(Plan, Reasons)> {
    let mut analysis = classify::classify(items);
    materialise::choose_materialised(&mut analysis, limits);
    let parts = fit::fit_limits(&mut analysis, limits);
    frame::choose_frames(&mut analysis, &parts, limits);
    place::find_places(&mut analysis);
    place::refuse_blocks(&analysis)?;
    let groups = group::group(&mut analysis, &parts, limits);
    let epilogues = epilogue::find(&analysis, &groups, &parts, limits);
    let drafts = write::write_kernels(&analysis, &groups, &epilogues)?;
    let plan = assemble::assemble(&analysis, drafts, kernels);
    let separate = (0..groups.len()).map(|g| epilogues.refused(g).or(groups[g].separation)).collect();
    Ok((plan, Reasons { stored: analysis.stored_because, separate, kernel: analysis.kernel }))
}
