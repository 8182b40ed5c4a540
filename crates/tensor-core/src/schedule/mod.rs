//! From the waiting part of the graph to kernels that ran.
//!
//! [`evaluate`] collects what waits (`collect`), looks up or makes a plan for a graph of this form (`plan` decides
//! what fuses, `draft` and `program` write the kernels, `assemble` gives them buffers), and runs it (`execute`). `pending` bounds what waits.

mod assemble;
mod bounds;
mod collect;
mod draft;
mod execute;
pub(crate) mod pending;
mod plan;
mod program;
mod single;

use std::sync::{Arc, MutexGuard};

use rustc_hash::FxHashMap;

use crate::{
    Device, Result,
    node::{Node, lock},
};

/// Plans of graph forms seen before, for one device.
#[derive(Default)]
pub(crate) struct PlanCache {
    plans: FxHashMap<Box<[u64]>, Entry>,
    /// Counts lookups, so that plans not asked for in a long time can go.
    clock: u64,
    collector: collect::Collector,
    singles: single::Singles,
}

struct Entry {
    plan: Arc<assemble::Plan>,
    used: u64,
}

/// Plans kept; when there are more, the half not used for longest goes.
const MAX_PLANS: usize = 512;

impl PlanCache {
    fn plan(&mut self, device: &Device) -> Result<Arc<assemble::Plan>> {
        self.clock += 1;
        let key = self.collector.key();
        if let Some(entry) = self.plans.get_mut(key) {
            entry.used = self.clock;
            return Ok(entry.plan.clone());
        }
        if self.plans.len() >= MAX_PLANS {
            let mut ages: Vec<u64> = self.plans.values().map(|e| e.used).collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            self.plans.retain(|_, e| e.used > middle);
        }
        let plan = Arc::new(plan::plan(self.collector.items(), &device.info().limits)?);
        self.plans.insert(key.into(), Entry { plan: plan.clone(), used: self.clock });
        Ok(plan)
    }
}

/// Computes the value of one node, and with it whatever is held on the way. As [`evaluate`].
pub(crate) fn evaluate_one(target: &Arc<Node>) -> Result<()> {
    let device = &target.device;
    let mut cache = lock(device.plans());
    let new = match cache.singles.evaluate(target, device.backend().as_ref()) {
        single::Outcome::Done(result) => return result,
        single::Outcome::New => true,
        single::Outcome::Other => false,
    };
    run(cache, device, &mut vec![target.clone()], new)
}

/// Computes the values of `targets`, and with them whatever is held on the way.
///
/// # Errors
/// The first failure, with the operation and source line it belongs to. What was computed before it stays computed, and
/// everything else stays as it was.
pub(crate) fn evaluate(mut targets: Vec<Arc<Node>>) -> Result<()> {
    let Some(first) = targets.first() else { return Ok(()) };
    if let [one] = targets.as_slice() {
        return evaluate_one(one);
    }
    let device = first.device.clone();
    if targets.iter().any(|t| t.device != device) {
        // One device after the other: nothing that waits crosses devices.
        let (here, elsewhere): (Vec<_>, Vec<_>) = targets.into_iter().partition(|t| t.device == device);
        let first = evaluate(here);
        return evaluate(elsewhere).and(first);
    }
    run(lock(device.plans()), &device, &mut targets, false)
}

/// One evaluation at a time for a device: two threads never compute, or give away, the same buffer. `new` asks to learn the one
/// target's kernel.
fn run(
    mut cache: MutexGuard<'_, PlanCache>,
    device: &Device,
    targets: &mut Vec<Arc<Node>>,
    new: bool,
) -> Result<()> {
    cache.collector.collect(targets);
    if cache.collector.is_empty() {
        return Ok(());
    }
    let plan = cache.plan(device);
    if let (true, Ok(plan)) = (new, &plan) {
        let PlanCache { singles, collector, .. } = &mut *cache;
        singles.learn(plan, collector.items());
    }
    let result =
        plan.and_then(|plan| execute::execute(&plan, cache.collector.items(), device.backend().as_ref()));
    let spent = cache.collector.take();
    drop(cache);
    collect::discard(spent);
    result
}
