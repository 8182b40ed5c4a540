//! The kernels that an evaluation would run, without running them.

use std::{collections::HashSet, sync::Arc};

use super::{
    PlanCache,
    collect::{self, Item},
    execute,
    plan::{self, Output, Plan, Reasons, Separation, StoreReason, Target},
};
use crate::{
    base::{error::Result, location::Location, shape::Shape, sync::lock},
    devices::device::Device,
    elements::{dtype::DType, scalar::Scalar},
    graph::{handle::Tensor, node::Node, op::Op},
    kernels::kernel::Kernel,
};

/// The planned work of computing a tensor: see [`plan_of`].
#[derive(Debug, Default)]
pub struct PlanReport {
    /// Copies from other devices, in no particular order.
    pub copies: Vec<PlannedCopy>,
    /// Kernels, in their order on each device.
    pub kernels: Vec<PlannedKernel>,
    /// Whether the rest can be planned only after the copies are made.
    pub waits_for_copies: bool,
}

/// A copy between devices.
#[derive(Clone, Debug)]
pub struct PlannedCopy {
    /// The source device.
    pub from: Device,
    /// The destination device.
    pub to: Device,
    /// The number of bytes.
    pub bytes: u64,
    /// The line that requested it.
    pub location: Location,
}

/// A kernel, and the part of the graph that it computes.
#[derive(Debug)]
pub struct PlannedKernel {
    /// The device that it runs on.
    pub device: Device,
    /// The kernel.
    pub kernel: Kernel,
    /// The values of its scalars.
    pub scalars: Vec<Scalar>,
    /// The operations that it computes, inputs before results.
    pub operations: Vec<PlannedOperation>,
    /// The ids of the tensors that it reads.
    pub inputs: Vec<u64>,
    /// Bytes of new buffers for its outputs; other outputs overwrite a buffer that is not read
    /// afterwards.
    pub allocates: u64,
    /// Why it is not a part of the kernel before it whose result it reads; `None` if it reads no kernel's
    /// result.
    pub separation: Option<Separation>,
}

/// An operation of the graph, as a part of a kernel.
#[derive(Clone, Debug)]
pub struct PlannedOperation {
    /// The id of the tensor.
    pub id: u64,
    /// The operation's name, as after `grad_fn=`.
    pub name: String,
    /// The shape of its result.
    pub shape: Shape,
    /// The dtype of its result.
    pub dtype: DType,
    /// The line that built it.
    pub location: Location,
    /// Whether the result is stored, rather than used only inside the kernel.
    pub stored: bool,
    /// Why it is stored.
    pub stored_because: Option<StoreReason>,
}

/// The kernels that computing a tensor now would run, given the values that are already computed.
/// Nothing runs.
///
/// For a tensor that has its value, the kernels that would compute it again from its inputs; none, if it
/// has dropped them (see [`Tensor::inputs`]).
///
/// # Errors
/// A graph that cannot be planned.
pub fn plan_of(tensor: &Tensor) -> Result<PlanReport> {
    let mut report = PlanReport::default();
    let mut work = Vec::new();
    let node = tensor.node();
    match node.has_value() {
        true => work.extend(again(&node)),
        false => work.push(node),
    }
    let mut met = HashSet::new();
    while let Some(target) = work.pop() {
        let copies = plan_one(&target, &mut report)?;
        report.waits_for_copies |= !copies.is_empty() && !matches!(target.op, Op::ToDevice);
        for copy in copies {
            if !met.insert(copy.id) {
                continue;
            }
            let source = lock(&copy.state).inputs.first().cloned();
            // The source is gone if another thread has made the copy meanwhile.
            let Some(source) = source else { continue };
            let bytes = (copy.shape.numel() * copy.dtype.size()) as u64;
            let (from, to, location) = (source.device.clone(), copy.device.clone(), copy.location);
            report.copies.push(PlannedCopy { from, to, bytes, location });
            if !source.has_value() {
                work.push(source);
            }
        }
    }
    Ok(report)
}

/// A copy of this node without its value, if its inputs are still known.
fn again(node: &Arc<Node>) -> Option<Arc<Node>> {
    let inputs = lock(&node.state).inputs.clone();
    if inputs.is_empty() || matches!(node.op, Op::TupleElement { .. }) || node.op.is_tuple() {
        return None;
    }
    let (op, shape, device) = (node.op.clone(), node.shape.clone(), node.device.clone());
    Some(Arc::new(Node::new(op, shape, node.dtype, device, inputs, None, false, node.location)))
}

/// Adds the kernels of one node, unless it waits for copies from other devices; returns those.
fn plan_one(target: &Arc<Node>, report: &mut PlanReport) -> Result<Vec<Arc<Node>>> {
    let device = &target.device;
    let mut cache = lock(super::plans(device));
    let PlanCache { collector, kernels, .. } = &mut *cache;
    let copies = collector.collect(std::slice::from_ref(target));
    let planned = match copies.is_empty() {
        true => plan::plan_with_reasons(collector.items(), &device.info().limits, kernels).map(Some),
        false => Ok(None),
    };
    let items = cache.collector.take();
    drop(cache);
    if let Ok(Some((plan, reasons))) = &planned {
        describe(plan, reasons, &items, device, &mut report.kernels);
    }
    collect::discard(items);
    planned.map(|_| copies)
}

fn describe(
    plan: &Plan,
    reasons: &Reasons,
    items: &[Item],
    device: &Device,
    kernels: &mut Vec<PlannedKernel>,
) {
    // The item whose value is in each slot.
    let mut of_slot = vec![None; plan.slots];
    for &(item, slot) in &plan.leaves {
        of_slot[slot as usize] = Some(item);
    }
    for step in &plan.steps {
        let sources: Vec<u32> = step.inputs.iter().filter_map(|&slot| of_slot[slot as usize]).collect();
        let mut results: Vec<u32> = step.made.iter().map(|store| store.item).collect();
        for target in &step.targets {
            match target {
                Target::Node { item, .. } => results.push(*item),
                Target::Slot(_) => {}
            }
        }
        for store in &step.made {
            of_slot[store.slot as usize] = Some(store.item);
        }
        let mut inside: HashSet<u32> = HashSet::new();
        let mut open = results.clone();
        while let Some(i) = open.pop() {
            let item = &items[i as usize];
            let read = sources.contains(&i) && !results.contains(&i);
            if !read && item.value.is_none() && inside.insert(i) {
                open.extend(&item.inputs);
            }
        }
        let mut inside: Vec<u32> = inside.into_iter().collect();
        inside.sort_unstable();
        // Constants are scalars of the program, not operations.
        inside.retain(|&i| !matches!(items[i as usize].node.op, Op::Full(_)));
        let operation = |&i: &u32| {
            let Item { node, store, .. } = &items[i as usize];
            let stored = *store || results.contains(&i);
            PlannedOperation {
                id: node.id,
                name: node.op.grad_name(),
                shape: node.shape.clone(),
                dtype: node.dtype,
                location: node.location,
                stored,
                stored_because: match reasons.stored[i as usize] {
                    // A kept view of a result has no buffer of its own.
                    None if stored => Some(StoreReason::Kept),
                    reason => reason.filter(|_| stored),
                },
            }
        };
        let fresh = step.outputs.iter().map(|output| match *output {
            Output::Fresh { dtype, numel } => (numel * dtype.size()) as u64,
            Output::Reused { .. } => 0,
        });
        kernels.push(PlannedKernel {
            device: device.clone(),
            kernel: step.shared.kernel.clone(),
            scalars: step
                .scalars
                .iter()
                .map(|s| execute::scalar(s, &items[s.item as usize].node.op))
                .collect(),
            operations: inside.iter().map(operation).collect(),
            inputs: sources.iter().map(|&i| items[i as usize].node.id).collect(),
            allocates: fresh.sum(),
            separation: reasons.separation(step.origin),
        });
    }
}
