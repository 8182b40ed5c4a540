//! The scheduler: from the pending part of the graph to executed kernels.
//!
//! [`evaluate`] collects the pending nodes (`collect`), looks up or makes a plan for a graph of this form,
//! and runs it (`execute`). The folder `plan` is the planner: it decides what is fused, writes the kernels,
//! and assigns their buffers. `kernels` deduplicates the kernels of all plans. `pending` bounds the pending
//! work. `recompute` has the cost of computing a value again. `transfer` copies tensors from other devices.
//! `capture` notes the effects of a function that is compiled, and `replay` runs it.
//! `explain` reports what would run. `watch` times launches. `interrupt` asks whether to go on.
//!
//! It depends on `graph`, `devices`, `kernels`, `base` and `elements`.

mod bounds;
mod cache;
pub(crate) mod capture;
mod collect;
mod execute;
pub(crate) mod explain;
mod failure;
pub(crate) mod interrupt;
mod kernels;
pub(crate) mod pending;
pub(crate) mod plan;
mod recompute;
pub(crate) mod replay;
mod single;
mod transfer;
pub(crate) mod watch;
mod watch_flags;

use std::sync::{Arc, Mutex, MutexGuard};

use smallvec::SmallVec;

use self::{
    cache::{Cache, Limit},
    transfer::Evaluation,
};
use crate::{
    base::{
        error::{Error, Result},
        sync::lock,
    },
    devices::device::Device,
    graph::node::{Node, Value},
};

/// Plans by the form of their graph, for one device.
pub(crate) struct PlanCache {
    plans: Cache<Arc<plan::Plan>>,
    kernels: kernels::Kernels,
    collector: collect::Collector,
    singles: single::Singles,
}

/// The bounds of the plan cache: enough for several hundred forms of a network's training step, as they
/// occur if the last batch or the length of sequences varies. The bound on entries is for small plans.
const PLANS: Limit = Limit { bytes: 32 << 20, entries: 2048 };

impl Default for PlanCache {
    fn default() -> PlanCache {
        PlanCache {
            plans: Cache::new(PLANS),
            kernels: Default::default(),
            collector: Default::default(),
            singles: Default::default(),
        }
    }
}

/// The plans of this device. Their lock also serializes evaluation on the device.
fn plans(device: &Device) -> &Mutex<PlanCache> {
    device.attached()
}

impl PlanCache {
    /// Whether a plan for a graph of the collected form is known.
    fn has_plan(&mut self) -> bool {
        self.plans.get(self.collector.key()).is_some()
    }

    /// The plan for the collected items. With `new`, the kernel of the single target is learnt if the
    /// plan is one kernel.
    fn plan(&mut self, device: &Device, new: bool) -> Result<Arc<plan::Plan>> {
        let PlanCache { plans, kernels, collector, singles } = self;
        if let Some(plan) = plans.get(collector.key()).cloned() {
            if new {
                singles.learn(&plan, collector.items());
            }
            return Ok(plan);
        }
        let plan = Arc::new(plan::plan(collector.items(), &device.info().limits, kernels)?);
        if !new || !singles.learn(&plan, collector.items()) {
            plans.insert(collector.key(), plan.clone(), plan.bytes());
        }
        Ok(plan)
    }
}

/// A callback after each kernel of an evaluation. The device is locked: it must not evaluate anything.
pub(crate) type Progress<'a> = &'a dyn Fn();

/// The callback of an evaluation without progress reports.
const UNWATCHED: Progress<'static> = &|| ();

/// [`evaluate`] for one node.
pub(crate) fn evaluate_one(target: &Arc<Node>) -> Result<()> {
    match compute_one(target, UNWATCHED)? {
        copies if copies.is_empty() => Ok(()),
        copies => finish(Evaluation::new(vec![target.clone()], copies), UNWATCHED),
    }
}

/// The value of a node, which is computed if necessary.
pub(crate) fn computed(node: &Arc<Node>) -> Result<Value> {
    loop {
        if let Some(value) = &lock(&node.state).value {
            return Ok(value.clone());
        }
        evaluate_one(node)?;
    }
}

/// Computes the values of `targets`, and of the held nodes among their inputs.
///
/// # Errors
/// The first failure, with its operation and source line. Values computed before it are kept, and
/// everything else stays as it was.
pub(crate) fn evaluate(targets: Vec<Arc<Node>>) -> Result<()> {
    evaluate_watched(targets, UNWATCHED)
}

/// [`evaluate`] with a progress callback. The kernels that a target needs come before those that only
/// later targets need.
pub(crate) fn evaluate_watched(targets: Vec<Arc<Node>>, progress: Progress<'_>) -> Result<()> {
    if capture::is_capturing() {
        // The whole function is planned at its end.
        return Ok(());
    }
    let mut result = Ok(());
    for here in by_device(targets) {
        let own = match compute(&here, progress) {
            Ok(copies) if copies.is_empty() => Ok(()),
            Ok(copies) => finish(Evaluation::new(here, copies), progress),
            Err(error) => Err(error),
        };
        result = result.and(own);
    }
    result
}

/// [`evaluate`], if it needs no new memory on any device; otherwise returns false and computes nothing.
pub(crate) fn evaluate_in_place(targets: Vec<Arc<Node>>) -> Result<bool> {
    if capture::is_capturing() {
        return Ok(true);
    }
    let groups = by_device(targets);
    // A single device is checked in the same step as it runs.
    if groups.len() > 1 {
        for here in &groups {
            if !in_place(here, |_| Ok(()))? {
                return Ok(false);
            }
        }
    }
    for here in &groups {
        if !in_place(here, |ready| ready.execute(UNWATCHED))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether nodes of one device can be computed without new memory; if so, `f` is called.
fn in_place(targets: &[Arc<Node>], f: impl FnOnce(&Ready<'_>) -> Result<()>) -> Result<bool> {
    let Some(first) = targets.first() else { return Ok(true) };
    let device = &first.device;
    let (copies, answer) = with_plan(lock(plans(device)), device, targets, false, |ready| {
        if !ready.plan.is_in_place() {
            return Ok(false);
        }
        f(ready).map(|()| true)
    })?;
    Ok(copies.is_empty() && answer.unwrap_or(true))
}

/// [`evaluate`] without blocking the thread while tensors are copied between devices.
pub(crate) async fn evaluate_async(targets: Vec<Arc<Node>>) -> Result<()> {
    let mut result = Ok(());
    for here in by_device(targets) {
        let own = async {
            let copies = compute(&here, UNWATCHED)?;
            if copies.is_empty() {
                return Ok(());
            }
            let mut evaluation = Evaluation::new(here, copies);
            while let Some(transfer) = evaluation.advance(UNWATCHED)? {
                transfer.run_async().await?;
            }
            Ok(())
        };
        result = result.and(own.await);
    }
    result
}

fn finish(mut evaluation: Evaluation, progress: Progress<'_>) -> Result<()> {
    while let Some(transfer) = evaluation.advance(progress)? {
        transfer.run()?;
    }
    Ok(())
}

/// The nodes grouped by device, in order of first occurrence.
fn by_device(mut targets: Vec<Arc<Node>>) -> SmallVec<[Vec<Arc<Node>>; 1]> {
    let mut groups = SmallVec::new();
    while let Some(device) = targets.first().map(|first| first.device.clone()) {
        if targets.iter().all(|target| target.device == device) {
            groups.push(targets);
            break;
        }
        let (here, elsewhere) = targets.into_iter().partition(|target| target.device == device);
        groups.push(here);
        targets = elsewhere;
    }
    groups
}

/// Computes nodes of one device, unless they wait for copies from other devices; returns those.
fn compute(targets: &[Arc<Node>], progress: Progress<'_>) -> Result<Vec<Arc<Node>>> {
    match targets {
        [] => Ok(Vec::new()),
        [target] => compute_one(target, progress),
        [first, ..] => run(lock(plans(&first.device)), &first.device, targets, false, progress),
    }
}

fn compute_one(target: &Arc<Node>, progress: Progress<'_>) -> Result<Vec<Arc<Node>>> {
    if target.op.is_tuple() {
        let message = "an operation with several results has no value of its own; take one of them";
        return Err(failure::blame(target, Error::invalid(target.op.name(), message)));
    }
    let device = &target.device;
    let mut cache = lock(plans(device));
    let new = match cache.singles.evaluate(target, device.backend().as_ref()) {
        single::Outcome::Done(result) => return result.map(|()| Vec::new()),
        single::Outcome::New => true,
        single::Outcome::Other => false,
    };
    run(cache, device, std::slice::from_ref(target), new, progress)
}

/// A plan with its device and items.
struct Ready<'a> {
    plan: &'a plan::Plan,
    items: &'a [collect::Item],
    device: &'a Device,
}

impl Ready<'_> {
    fn execute(&self, progress: Progress<'_>) -> Result<()> {
        execute::execute(self.plan, self.items, self.device.backend().as_ref(), progress)
    }
}

/// Runs the plan of [`with_plan`].
fn run(
    cache: MutexGuard<'_, PlanCache>,
    device: &Device,
    targets: &[Arc<Node>],
    new: bool,
    progress: Progress<'_>,
) -> Result<Vec<Arc<Node>>> {
    with_plan(cache, device, targets, new, |ready| ready.execute(progress)).map(|(copies, _)| copies)
}

/// Makes a plan and calls `f` with it. Evaluations on one device are serialized, so that two threads
/// never compute or overwrite the same buffer; other devices are not blocked. `new` requests that the
/// single target's kernel be learnt. Returns the copies from other devices that must be made first; in
/// that case, or if there is nothing to compute, `f` was not called.
fn with_plan<R>(
    mut cache: MutexGuard<'_, PlanCache>,
    device: &Device,
    targets: &[Arc<Node>],
    new: bool,
    f: impl FnOnce(&Ready<'_>) -> Result<R>,
) -> Result<(Vec<Arc<Node>>, Option<R>)> {
    let begun = watch::begin_plan();
    let copies = cache.collector.collect(targets);
    let mut result = Ok(None);
    if copies.is_empty() && !cache.collector.is_empty() {
        let known = begun.is_some() && cache.has_plan();
        let plan = cache.plan(device, new);
        watch::note_plan(begun, device, cache.collector.items().len(), !known);
        result =
            plan.and_then(|plan| f(&Ready { plan: &plan, items: cache.collector.items(), device }).map(Some));
    }
    let spent = cache.collector.take();
    drop(cache);
    collect::discard(spent);
    pending::after_evaluation();
    result.map(|result| (copies, result))
}
